//! Checks outside of a sandbox: the event store, the agents on PATH, and why user namespaces may be refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentsh_agents::Kind;
use agentsh_base::types::{FileKey, SessionId};
use agentsh_base::wsl::{self, Wsl};
use agentsh_host::Context;
use agentsh_sandbox::SpawnError;
use agentsh_sandbox::control::Cause;
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_sandbox::mount_calls::file_key;
use agentsh_store::{Event, Journal, PinStore, Reader, StoreError};

use super::layer::{AGENT, Layer, State};

/// A journal that takes longer is not read to its end here.
const VERIFY_LIMIT: Duration = Duration::from_millis(1500);

/// The real store is opened and its chain checked; a throw-away one is written, checked, damaged and checked.
pub async fn event_store(state: &Path, throw_away: &Path) -> Layer {
    let (layer, asked) = ("event-store", "opens, and its hash chain is valid");
    let broken = |why: String, remedy: String| {
        Layer::new(layer, asked, "", State::Absent).with_reason(why).remedy(remedy)
    };
    match notices_damage(throw_away).await {
        Ok(true) => {}
        Ok(false) => {
            return broken("a changed event was not detected".to_owned(), "please report it".to_owned());
        }
        Err(error) => {
            return broken(format!("a throw-away store: {error}"), "check for a full disk".to_owned());
        }
    }
    let check = async {
        Journal::open(state, SessionId(uuid::Uuid::now_v7())).await?.close().await?;
        match Reader::open(state).await? {
            Some(mut reader) => reader.verify().await.map(Some),
            None => Ok(None),
        }
    };
    let place = state.display();
    match tokio::time::timeout(VERIFY_LIMIT, check).await {
        Ok(Ok(None)) => Layer::enforced(layer, asked, format!("{place}: empty; damage is detected")),
        Ok(Ok(Some(found))) if found.ok => Layer::enforced(
            layer,
            asked,
            format!(
                "{place}: {} events in {} sessions; damage is detected",
                found.events,
                found.sessions.len()
            ),
        ),
        Ok(Ok(Some(found))) => {
            let first = found.problems.first().map(|problem| problem.detail.clone()).unwrap_or_default();
            let why = format!("{} problems in {place}, first: {first}", found.problem_count);
            broken(
                why,
                "`agentsh events verify` shows them all; move the directory away to start over".to_owned(),
            )
        }
        Ok(Err(error)) => broken(error.to_string(), format!("agentsh must be able to write in {place}")),
        Err(_) => Layer::new(layer, asked, format!("{place}: opens"), State::Degraded)
            .with_reason("it is too large to check here")
            .remedy("run `agentsh events verify` to check all of it"),
    }
}

/// Whether the check finds one changed word in the file.
async fn notices_damage(state: &Path) -> Result<bool, StoreError> {
    const WORD: &[u8] = b"doctor-marker";
    let journal = Journal::open(state, SessionId(uuid::Uuid::now_v7())).await?;
    journal
        .commit(Event::McpToolsListChanged {
            server_id: agentsh_base::types::ServerId("doctor-marker".to_owned()),
        })
        .await?;
    journal.close().await?;
    let verified = async || -> Result<bool, StoreError> {
        match Reader::open(state).await? {
            Some(mut reader) => Ok(reader.verify().await?.ok),
            None => Ok(false),
        }
    };
    if !verified().await? {
        return Ok(false);
    }
    let mut changed = 0;
    for entry in std::fs::read_dir(state).into_iter().flatten().flatten() {
        let Ok(mut bytes) = std::fs::read(entry.path()) else { continue };
        while let Some(at) = memchr::memmem::find(&bytes, WORD) {
            bytes[at] = b'D';
            changed += 1;
        }
        // If the file cannot be written, nothing is damaged, and the check below reports that.
        let _ = std::fs::write(entry.path(), bytes);
    }
    Ok(changed > 0 && !verified().await.unwrap_or(false))
}

/// The differences of WSL; None elsewhere.
pub fn below_windows() -> Option<Layer> {
    let (layer, asked) = ("wsl", "Windows stays outside");
    Some(match wsl::current()? {
        Wsl::One => {
            Layer::new(layer, asked, "WSL 1", State::Absent).with_reason(NO_KERNEL).remedy(SECOND_KIND)
        }
        Wsl::Two => Layer::new(
            layer,
            asked,
            "WSL 2: inside, Windows programs do not start and Windows drives are read-only",
            State::Found,
        ),
    })
}

const NO_KERNEL: &str = "WSL 1 has no Linux kernel and no namespaces";
const SECOND_KIND: &str = "in Windows: `wsl --set-version NAME 2`, with the name that `wsl --list` shows";

/// The agents on PATH. None is executed; a hash is known if a run has computed it.
pub async fn agents(context: &Context) -> Vec<Layer> {
    let known = PinStore::new(&context.state).all_digests().await.unwrap_or_default();
    Kind::all().filter_map(Kind::program).map(|name| agent(name, context, &known)).collect()
}

fn agent(name: &str, context: &Context, known: &BTreeMap<FileKey, [u8; 32]>) -> Layer {
    let layer = format!("{AGENT}{name}");
    let asked = format!("`{name}` on PATH");
    let Some(found) = on_path(name, context) else {
        return Layer::new(&layer, &asked, "", State::NotFound);
    };
    let real = found.canonicalize().unwrap_or_else(|_| found.clone());
    let key = File::open(&real).and_then(|file| file_key(file.as_fd()));
    let digest = key.ok().and_then(|key| known.get(&key));
    let hash = match digest {
        Some(bytes) => {
            let hex: String = agentsh_base::hex(bytes.iter().take(6));
            format!("; sha256 {hex}…")
        }
        // Its first run does it.
        None => String::new(),
    };
    let leads = if real == found { String::new() } else { format!(" -> {}", real.display()) };
    Layer::new(&layer, &asked, format!("{}{leads}{hash}", found.display()), State::Found)
}

fn on_path(name: &str, context: &Context) -> Option<PathBuf> {
    let path = context.env.get("PATH")?;
    let is_program =
        |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(path)
        .filter(|entry| entry.is_absolute())
        .map(|entry| entry.join(name))
        .find(is_program)
}

/// Why the kernel refused a step of starting a sandbox, and what to do about it; nothing for an error of the program.
#[must_use]
pub fn explain_spawn(error: &SpawnError) -> Option<String> {
    match error {
        SpawnError::Kernel { source, .. } => Some(explain(&source.to_string())),
        // If AppArmor allows the namespace but takes its capabilities away, the first mount fails.
        SpawnError::Init { message, cause: Cause::Other, .. } => {
            let refused = ["EPERM", "EACCES", "not permitted", "Permission denied"];
            refused.iter().any(|word| message.contains(word)).then(|| explain(message))
        }
        SpawnError::Init { .. } | SpawnError::Vanished { .. } => None,
    }
}

/// Why no sandbox could be started, and what to do about it.
#[must_use]
pub fn explain(message: &str) -> String {
    if wsl::current() == Some(Wsl::One) {
        return format!("{NO_KERNEL}; {SECOND_KIND}");
    }
    if Path::new(OWN_DIRECTORY).exists() {
        return "this is a sandbox of agentsh already, and none starts inside; start the command without agentsh".to_owned();
    }
    let setting = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    remedies(
        message,
        &setting("/proc/sys/kernel/unprivileged_userns_clone"),
        &setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        &setting("/proc/sys/user/max_user_namespaces"),
        ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists()),
    )
}

/// Everything, and what is less and has to be asked for.
const IN_A_CONTAINER: &str = "start it with `docker run --security-opt seccomp=unconfined --security-opt \
                              apparmor=unconfined --security-opt systempaths=unconfined` (podman: `--security-opt \
                              seccomp=unconfined --security-opt unmask=ALL`), or take the weaker sandbox that needs no \
                              namespaces: `--tier container`";

fn remedies(message: &str, clone: &str, apparmor: &str, most: &str, container: bool) -> String {
    if clone == "0" {
        return "this system allows user namespaces only for root; allow them with \
                `sudo sysctl -w kernel.unprivileged_userns_clone=1`, or start agentsh as root"
            .to_owned();
    }
    if most == "0" {
        return format!(
            "user namespaces are switched off; allow them with `sudo sysctl -w user.max_user_namespaces=15000`; in a \
             container: {IN_A_CONTAINER}"
        );
    }
    if apparmor == "1" {
        return "AppArmor allows user namespaces only for programs with a profile; `sudo agentsh setup` gives agentsh one \
                (`agentsh setup --print` shows it), or start agentsh as root"
            .to_owned();
    }
    if container {
        return format!("this is a container whose runtime refuses namespaces; {IN_A_CONTAINER}");
    }
    let mentioned = message.contains("clone3") || message.contains("uid_map");
    if mentioned {
        format!(
            "allow user namespaces for this user (hardened kernels often refuse them), or start agentsh as root; in a \
             container: {IN_A_CONTAINER}"
        )
    } else {
        "the step that failed is named on the left; agentsh needs Linux 5.13 or later with namespaces"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn each_reason_for_refused_namespaces_has_its_remedy() {
        assert!(remedies("", "0", "", "", false).contains("kernel.unprivileged_userns_clone=1"));
        // For agentsh alone, never for every program of the machine.
        let apparmor = remedies("", "1", "1", "99", false);
        assert!(apparmor.contains("agentsh setup") && !apparmor.contains("sysctl"), "{apparmor}");
        assert!(remedies("", "", "", "0", true).contains("user.max_user_namespaces"));
        let container = remedies("", "", "", "", true);
        assert!(container.contains("--tier container") && container.contains("docker run --security-opt"));
        assert!(remedies("clone3 (…): EPERM", "", "", "", false).contains("allow user namespaces"));
    }

    #[tokio::test]
    async fn the_store_is_opened_and_damage_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let row = event_store(&place.path().join("state"), &place.path().join("throw-away")).await;
        assert_eq!(row.state, State::Enforced, "{row:?}");
        let row = event_store(Path::new("/proc/nowhere"), &place.path().join("other")).await;
        assert_eq!(row.state, State::Absent, "{row:?}");
    }
}
