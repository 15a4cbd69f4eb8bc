//! Judges the answers of the test programs: a layer counts as enforced only if every attack on it was made and refused
//! with that layer's own error, and what must work did.

use std::collections::BTreeMap;

use crate::attempt::Try;
use agentsh_sandbox::{Enforcement, State as Got};

use super::layer::{Layer, State};
use super::probe::{Answer, CPU_PERCENT, MEMORY_LIMIT, NAMESPACES, PIDS_LIMIT};
use super::{ProbeEnd, Probed};

/// Answers by the name of their probe.
pub type Answers = BTreeMap<String, Answer>;

const REPORT: &str = "this should not happen: please report it with the output of `agentsh doctor --json`";
/// Lines that are not answers are left out: the row then says that there was no answer.
#[must_use]
pub fn read(output: &str) -> Answers {
    let answers = output.lines().filter_map(|line| serde_json::from_str::<Answer>(line).ok());
    answers.map(|answer| (answer.probe.clone(), answer)).collect()
}

/// The host's facts for the comparison.
#[derive(Debug, Default)]
pub struct Host {
    pub namespaces: BTreeMap<String, String>,
    pub uid: u32,
    /// Owner on disk of the file that was made inside.
    pub made_by: Option<u32>,
    /// Connections that reached the host's listener.
    pub reached: usize,
    /// The hook file is still what it was.
    pub hook_unchanged: bool,
    pub pinned_text: String,
}

/// The rows that one ordinary sandbox decides.
#[must_use]
pub fn ordinary_layers(answers: &Answers, enforcement: &[Enforcement], host: &Host) -> Vec<Layer> {
    vec![
        user_namespace(answers.get("namespaces")),
        mounts(answers.get("mounts"), host),
        processes(answers.get("namespaces"), host),
        network(answers.get("network"), host),
        identity(answers.get("identity"), enforcement, host),
        landlock(answers.get("landlock"), enforcement),
        by_tries(
            "seccomp",
            "system calls that no program needs are refused",
            answers.get("seccomp"),
            &["EPERM", "ENOSYS", "EPROTONOSUPPORT"],
        ),
        capabilities(answers.get("capabilities")),
        no_new_privileges(answers.get("no-new-privileges")),
        by_tries(
            "terminal-injection",
            "programs inside cannot type into your terminal",
            answers.get("terminal"),
            &["EPERM"],
        ),
    ]
}

/// The common part: every attempt refused with one of `errors`, everything allowed allowed.
fn by_tries(layer: &str, asked: &str, answer: Option<&Answer>, errors: &[&str]) -> Layer {
    let Some(answer) = answer.filter(|answer| !answer.forbidden.is_empty()) else {
        return Layer::new(layer, asked, "nothing is known", State::Absent)
            .with_reason("the program inside did not answer")
            .remedy(REPORT);
    };
    let through: Vec<&Try> = answer.forbidden.iter().filter(|attempt| !attempt.is_refused()).collect();
    let refused = answer.forbidden.len() - through.len();
    let got = format!("{refused} of {} attempts refused", answer.forbidden.len());
    if !through.is_empty() {
        let state = if refused == 0 { State::Absent } else { State::Degraded };
        return Layer::new(layer, asked, got, state).with_reason(list(&through)).remedy(REPORT);
    }
    let other = |attempt: &&Try| attempt.error.as_deref().is_some_and(|error| !errors.contains(&error));
    let elsewhere: Vec<&Try> = answer.forbidden.iter().filter(other).collect();
    if !elsewhere.is_empty() {
        let why = format!("not refused by this layer: {}", list(&elsewhere));
        return Layer::new(layer, asked, got, State::Degraded).with_reason(why).remedy(REPORT);
    }
    let too_much: Vec<&Try> = answer.allowed.iter().filter(|attempt| attempt.is_refused()).collect();
    if !too_much.is_empty() {
        let why = format!("it refuses calls that programs need: {}", list(&too_much));
        return Layer::new(layer, asked, got, State::Degraded).with_reason(why).remedy(REPORT);
    }
    let mut distinct: Vec<&str> =
        answer.forbidden.iter().filter_map(|attempt| attempt.error.as_deref()).collect();
    distinct.sort_unstable();
    distinct.dedup();
    Layer::enforced(layer, asked, format!("{got} ({})", distinct.join(", ")))
}

fn user_namespace(answer: Option<&Answer>) -> Layer {
    let (layer, asked) = ("user-namespace", "separate, without the host's root user");
    let Some(answer) = answer else { return by_tries(layer, asked, None, &[]) };
    let fact = |name: &str| answer.facts.get(name).map(String::as_str).unwrap_or_default();
    let map: Vec<&str> = fact("uid_map").split_whitespace().collect();
    match map.as_slice() {
        [_, host, "1"] if *host != "0" && fact("uid") != "0" => {
            Layer::enforced(layer, asked, format!("one user id inside, {host} on the host"))
        }
        _ => Layer::new(layer, asked, format!("id map `{}`", map.join(" ")), State::Absent).remedy(REPORT),
    }
}

fn mounts(answer: Option<&Answer>, host: &Host) -> Layer {
    let asked = "an empty read-only root that contains only what is granted";
    let row = by_tries("mount-tree", asked, answer, &["EROFS", "ENOENT"]);
    if row.state == State::Enforced && !host.hook_unchanged {
        return Layer::new("mount-tree", asked, row.got, State::Absent)
            .with_reason("a hook file of the project was changed from inside")
            .remedy(REPORT);
    }
    row
}

fn processes(answer: Option<&Answer>, host: &Host) -> Layer {
    let (layer, asked) = ("process-namespaces", "separate pid, ipc, uts, cgroup and mount namespaces");
    let mut row = by_tries(layer, asked, answer, &["ESRCH", "ENOENT"]);
    let Some(answer) = answer else { return row };
    let shared: Vec<&str> = NAMESPACES
        .into_iter()
        .filter(|name| {
            let inside = answer.facts.get(*name).filter(|link| !link.is_empty());
            inside.is_none() || inside == host.namespaces.get(*name)
        })
        .collect();
    if !shared.is_empty() {
        row.state = State::Absent;
        row.why = format!("shared with the host: {}", shared.join(", "));
        row.remedy = REPORT.to_owned();
    }
    row
}

fn network(answer: Option<&Answer>, host: &Host) -> Layer {
    let asked = "a separate network namespace without a route";
    let row = by_tries(
        "network-namespace",
        asked,
        answer,
        &["ENETUNREACH", "ECONNREFUSED", "EADDRNOTAVAIL", "EPERM", "EAFNOSUPPORT"],
    );
    if host.reached > 0 {
        return Layer::new("network-namespace", asked, row.got, State::Absent)
            .with_reason(format!("{} connections reached a listener on the host", host.reached))
            .remedy(REPORT);
    }
    row
}

fn identity(answer: Option<&Answer>, enforcement: &[Enforcement], host: &Host) -> Layer {
    let (layer, asked) = ("id-mapped-mounts", "root's files are usable without being root");
    if host.uid != 0 {
        return Layer::new(layer, asked, "", State::NotNeeded)
            .with_reason("your files belong to you inside as well");
    }
    let less = enforcement.iter().find(|got| got.layer == "id map" && got.state != Got::Enforced);
    if let Some(less) = less {
        return Layer::new(layer, asked, &*less.got, State::Degraded).with_reason(&*less.why).remedy(
            "put the project on a file system with id-mapped mounts (ext4, xfs, btrfs; tmpfs from Linux 6.3)",
        );
    }
    let made = answer.is_some_and(|answer| {
        !answer.allowed.is_empty() && answer.allowed.iter().all(|attempt| !attempt.is_refused())
    });
    let inside = answer.and_then(|answer| answer.facts.get("uid")).map(String::as_str).unwrap_or_default();
    match (made, host.made_by) {
        (true, Some(0)) if inside != "0" => Layer::enforced(
            layer,
            asked,
            format!("a file made by id {inside} inside belongs to root on disk"),
        ),
        (false, _) => Layer::new(layer, asked, "no file could be made", State::Absent).remedy(REPORT),
        (true, owner) => {
            let owner = owner.map_or("unknown".to_owned(), |id| id.to_string());
            let got = format!("a file was made; its owner on disk: {owner}");
            Layer::new(layer, asked, got, State::Absent).remedy(REPORT)
        }
    }
}

fn landlock(answer: Option<&Answer>, enforcement: &[Enforcement]) -> Layer {
    let applied = enforcement.iter().find(|got| got.layer == "landlock");
    let asked = "the file rules, enforced by a second mechanism";
    match applied {
        Some(applied) if applied.state == Got::Absent => Layer::new("landlock", asked, "", State::Absent)
            .with_reason(&*applied.why)
            .remedy("boot a kernel 5.13 or later with `landlock` in `lsm=`; until then: `agentsh run --allow-degraded`"),
        Some(applied) => {
            let row = by_tries("landlock", asked, answer, &["EACCES"]);
            if row.state != State::Enforced {
                return row;
            }
            // Only the version: its other features were not tried here.
            let version = applied.got.split(':').next().unwrap_or_default();
            let got = format!("{version}; {}", row.got);
            match applied.state {
                Got::Enforced => Layer::enforced("landlock", asked, got),
                _ => Layer::new("landlock", asked, got, State::Degraded)
                    .with_reason(&*applied.why)
                    .remedy("kernel 6.12 and later have all of it"),
            }
        }
        None => by_tries("landlock", asked, None, &[]),
    }
}

fn capabilities(answer: Option<&Answer>) -> Layer {
    let mut row = by_tries("capabilities", "none, and none can be gained", answer, &["EPERM", "EINVAL"]);
    let Some(answer) = answer else { return row };
    let wanting: Vec<String> = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .into_iter()
        .filter_map(|set| match answer.facts.get(set).map(|bits| u64::from_str_radix(bits.trim(), 16)) {
            Some(Ok(0)) => None,
            Some(Ok(bits)) => Some(format!("{set} ({})", capability_names(bits))),
            _ => Some(set.to_owned()),
        })
        .collect();
    if wanting.is_empty() {
        row.got = format!("all five sets empty; {}", row.got);
    } else {
        row.state = State::Absent;
        row.why = format!("not empty: {}", wanting.join(", "));
        row.remedy = REPORT.to_owned();
    }
    row
}

/// The names of the capabilities in a set of `/proc/PID/status`, and the numbers of those that have no name yet.
fn capability_names(mut bits: u64) -> String {
    let mut names: Vec<_> = caps::all().into_iter().filter(|one| bits & one.bitmask() != 0).collect();
    names.sort_by_key(|one| one.index());
    bits = names.iter().fold(bits, |bits, one| bits & !one.bitmask());
    let unnamed = (bits != 0).then(|| format!("{bits:#x}"));
    names.iter().map(ToString::to_string).chain(unnamed).collect::<Vec<_>>().join(", ")
}

fn no_new_privileges(answer: Option<&Answer>) -> Layer {
    let mut row = by_tries("no-new-privs", "set, and cannot be unset", answer, &["EINVAL"]);
    if answer.is_some_and(|answer| answer.facts.get("set").map(String::as_str) != Some("true")) {
        row.state = State::Absent;
        row.why = "it is not set inside".to_owned();
        row.remedy = REPORT.to_owned();
    }
    row
}

#[must_use]
pub fn memory(probed: &Probed) -> Layer {
    let (layer, asked) =
        ("memory-limit", format!("{} MiB together (three processes need 48 MiB each)", MEMORY_LIMIT >> 20));
    let answers = read(&probed.output);
    let ended = answers
        .get("memory")
        .map_or(0, |answer| answer.forbidden.iter().filter(|attempt| attempt.is_refused()).count());
    let held_by_cgroup = probed.memory_in_cgroup && (ended > 0 || probed.exit_code == 137);
    match probed.ended {
        ProbeEnd::ByItself if held_by_cgroup => {
            Layer::enforced(layer, &asked, "by cgroup: a process above the limit was killed")
        }
        ProbeEnd::ByTheMemoryWatchdog => Layer::new(
            layer,
            &asked,
            "enforced by a watchdog that polls faster as memory runs out",
            State::Degraded,
        )
        .with_reason(NO_CGROUP)
        .remedy(cgroup_remedy()),
        ProbeEnd::ByItself if ended > 0 => {
            Layer::new(layer, &asked, "enforced for each process separately", State::Degraded)
                .with_reason(NO_CGROUP)
                .remedy(cgroup_remedy())
        }
        _ => Layer::new(layer, &asked, "processes could use 144 MiB", State::Absent)
            .with_reason(if probed.memory_in_cgroup {
                "the cgroup killed nothing: perhaps swap is in use"
            } else {
                "neither a cgroup nor the watchdog stopped it"
            })
            .remedy(cgroup_remedy()),
    }
}

#[must_use]
pub fn pids(probed: &Probed) -> Layer {
    let asked = format!("at most {PIDS_LIMIT} processes");
    let answers = read(&probed.output);
    let answer = answers.get("pids");
    let mut row = by_tries("process-limit", &asked, answer, &["EAGAIN"]);
    let made: Option<u64> = answer.and_then(|answer| answer.facts.get("made")?.parse().ok());
    if row.state == State::Enforced {
        match made {
            Some(made) if made < PIDS_LIMIT => row.got = format!("refused after {made} (EAGAIN)"),
            _ => row.state = State::Degraded,
        }
    }
    row
}

#[must_use]
pub fn cpu(probed: &Probed) -> Layer {
    let (layer, asked) = ("cpu-limit", format!("{CPU_PERCENT} % of one CPU"));
    match (probed.cpu_in_cgroup, probed.throttled) {
        (true, Some(times)) if times > 0 => {
            Layer::enforced(layer, &asked, format!("by cgroup: a busy loop was throttled {times} times"))
        }
        (true, _) => Layer::new(layer, &asked, "the quota was accepted", State::Degraded)
            .with_reason("a busy loop was not slowed down")
            .remedy(REPORT),
        (false, _) => {
            Layer::new(layer, &asked, "", State::Absent).with_reason(NO_CGROUP).remedy(cgroup_remedy())
        }
    }
}

/// `tampered` is the outcome of starting with a bound file that changed after the check: None is a start. The file
/// that the answers are about was changed as well, after its bytes were copied.
#[must_use]
pub fn pinning_layer(answers: &Answers, tampered: Option<&str>, host: &Host) -> Layer {
    let (layer, asked) = ("pinned-execution", "changed bytes do not run; the checked bytes do");
    let row = by_tries(layer, asked, answers.get("pinned"), &["EROFS", "EACCES"]);
    if row.state != State::Enforced {
        return row;
    }
    if answers.get("pinned").and_then(|answer| answer.facts.get("bytes")) != Some(&host.pinned_text) {
        return Layer::new(layer, asked, "runs other bytes than the pinned ones", State::Absent)
            .remedy(REPORT);
    }
    let why = match tampered {
        Some(message) if message.contains("changed after it was checked") => {
            let got = "runs the pinned copy; modified files are refused";
            return Layer::enforced(layer, asked, got);
        }
        Some(message) => format!("refused for another reason: {message}"),
        None => "a bound file started with changed bytes".to_owned(),
    };
    Layer::new(layer, asked, "", State::Absent).with_reason(why).remedy(REPORT)
}

const NO_CGROUP: &str =
    "agentsh cannot create such a cgroup here: that needs root, or a cgroup that is delegated to this user";

/// Empty where nothing can be done: an ordinary user makes no cgroups.
fn cgroup_remedy() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "start agentsh in a cgroup whose parent enables the controller (see its cgroup.subtree_control)"
    } else {
        ""
    }
}

fn list(tries: &[&Try]) -> String {
    tries.iter().map(|attempt| attempt.display_text()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
