//! By which host keys the user knows a server: asked of `ssh-keygen -F`, which also finds names that are kept as hashes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::policy::{Ruled, SshAccess, SshHost};
use crate::store::escape;

use super::super::{Context, Session, credentials, registries};

type Lines = Vec<(String, String)>;

/// The host keys of an entry's servers. `known` gets the lines that the agent sees of it.
pub(super) async fn of(
    session: &Session,
    entry: &Ruled<SshAccess>,
    known: &mut String,
) -> BTreeMap<Vec<u8>, SshHost> {
    let mut found = BTreeMap::new();
    for host in &entry.value.hosts {
        let name = match host.port {
            22 => host.host.clone(),
            port => format!("[{}]:{port}", host.host),
        };
        let lines = lines(&session.context, &name).await;
        if lines.is_empty() {
            let shown = escape::line(&name);
            session.note(&format!(
                "no ssh key is used for '{shown}': your known_hosts has no host key of it, by {}; connect to it once outside",
                entry.rule
            ));
        }
        for (kind, key) in lines {
            let line = format!("{name} {kind} {key}\n");
            if let (Ok(public), false) = (STANDARD.decode(&key), known.contains(&line)) {
                known.push_str(&line);
                found.insert(public, host.clone());
            } else if let Ok(public) = STANDARD.decode(&key) {
                found.insert(public, host.clone());
            }
        }
    }
    found
}

/// Kinds and keys of one name, without those that are revoked anywhere.
async fn lines(context: &Context, name: &str) -> Lines {
    let Some(program) = registries::program(context, "ssh-keygen") else { return Vec::new() };
    let files = [
        context.home.join(".ssh/known_hosts"),
        context.home.join(".ssh/known_hosts2"),
        PathBuf::from("/etc/ssh/ssh_known_hosts"),
    ];
    let (home, env, name) = (context.home.clone(), context.env.clone(), name.to_owned());
    let read = move || {
        let (mut lines, mut revoked) = (Vec::new(), Vec::new());
        for file in files.iter().filter(|file| file.is_file()) {
            let args = ["-F", &name, "-f", &file.display().to_string()].map(str::to_owned);
            // It says no where it finds nothing.
            let said = credentials::ask_program(&program, &args, &home, &env, "").unwrap_or_default();
            read(&said, &mut lines, &mut revoked);
        }
        lines.retain(|(_, key)| !revoked.contains(key));
        lines
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

fn read(said: &str, lines: &mut Lines, revoked: &mut Vec<String>) {
    for line in said.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["@revoked", _, _, key, ..] => revoked.push((*key).to_owned()),
            // An authority for host keys: servers with certificates are not known by a key.
            [marker, ..] if marker.starts_with('@') => {}
            [_, kind, key, ..] => lines.push(((*kind).to_owned(), (*key).to_owned())),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_markers() {
        let (mut lines, mut revoked) = (Vec::new(), Vec::new());
        let said = "# Host h found: line 1\nh ssh-ed25519 AAAA comment\n@cert-authority h ssh-rsa BBBB\n@revoked h \
                    ssh-rsa CCCC\n|1|x|y ssh-rsa DDDD\nshort\n";
        read(said, &mut lines, &mut revoked);
        let pair = |kind: &str, key: &str| (kind.to_owned(), key.to_owned());
        assert_eq!(lines, [pair("ssh-ed25519", "AAAA"), pair("ssh-rsa", "DDDD")]);
        assert_eq!(revoked, ["CCCC"]);
    }
}
