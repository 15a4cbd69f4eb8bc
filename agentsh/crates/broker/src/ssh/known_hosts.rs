//! The host keys that the user knows for a server, from `ssh-keygen -F`, which also finds hashed names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use agentsh_policy::{Ruled, SshAccess, SshHost};
use agentsh_store::escape;

use crate::credentials;
use agentsh_host::{Context, host_programs};
use agentsh_host::{Facts, Record};

type Lines = Vec<(String, String)>;

/// The host keys of an entry's servers. `known` gets the lines that the agent sees of it.
pub(super) async fn of(
    facts: &Facts,
    record: &Record,
    entry: &Ruled<SshAccess>,
    known: &mut BTreeSet<String>,
) -> BTreeMap<Vec<u8>, Ruled<SshHost>> {
    let mut found = BTreeMap::new();
    for host in &entry.value.hosts {
        let name = match host.port {
            22 => host.host.clone(),
            port => format!("[{}]:{port}", host.host),
        };
        let lines = lines(&facts.context, &name).await;
        if lines.is_empty() {
            let shown = escape::line(&name);
            record.note(&format!(
                "no ssh key is used for '{shown}': your known_hosts has no host key for it, by {}; connect once outside",
                entry.rule
            ));
        }
        let host = Ruled { value: host.clone(), rule: entry.rule.clone() };
        keep(&name, lines, &host, known, &mut found);
    }
    found
}

fn keep(
    name: &str,
    lines: Lines,
    host: &Ruled<SshHost>,
    known: &mut BTreeSet<String>,
    found: &mut BTreeMap<Vec<u8>, Ruled<SshHost>>,
) {
    for (kind, key) in lines {
        if let Ok(public) = STANDARD.decode(&key) {
            known.insert(format!("{name} {kind} {key}\n"));
            // If two names have the same host key, the first counts.
            found.entry(public).or_insert_with(|| host.clone());
        }
    }
}

/// Kinds and keys of one name, without those that are revoked anywhere.
async fn lines(context: &Context, name: &str) -> Lines {
    let Some(program) = host_programs::find(context, "ssh-keygen") else { return Vec::new() };
    let files = [
        context.home.join(".ssh/known_hosts"),
        context.home.join(".ssh/known_hosts2"),
        PathBuf::from("/etc/ssh/ssh_known_hosts"),
    ];
    let (home, env, name) = (context.home.clone(), host_programs::environment(context), name.to_owned());
    let read = move || {
        let (mut lines, mut revoked) = (Vec::new(), Vec::new());
        for file in files.iter().filter(|file| file.is_file()) {
            let args = ["-F", &name, "-f", &file.display().to_string()].map(str::to_owned);
            // The program fails if it finds no key.
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
    use agentsh_base::types::RuleRef;

    #[test]
    fn known_hosts_comments_and_markers_are_handled() {
        let (mut lines, mut revoked) = (Vec::new(), Vec::new());
        let said = "# Host h found: line 1\nh ssh-ed25519 AAAA comment\n@cert-authority h ssh-rsa BBBB\n@revoked h \
                    ssh-rsa CCCC\n|1|x|y ssh-rsa DDDD\nshort\n";
        read(said, &mut lines, &mut revoked);
        let pair = |kind: &str, key: &str| (kind.to_owned(), key.to_owned());
        assert_eq!(lines, [pair("ssh-ed25519", "AAAA"), pair("ssh-rsa", "DDDD")]);
        assert_eq!(revoked, ["CCCC"]);
    }

    #[test]
    fn host_that_is_a_suffix_of_another_is_known_too() {
        let (mut known, mut found) = (BTreeSet::new(), BTreeMap::new());
        for (name, line) in [("git.example", 1), ("example", 2)] {
            let value = SshHost { host: name.to_owned(), port: 22 };
            let rule = RuleRef { id: "ssh".to_owned(), file: "p.yaml".to_owned(), line };
            let lines = vec![("ssh-ed25519".to_owned(), "AAAA".to_owned())];
            keep(name, lines, &Ruled { value, rule }, &mut known, &mut found);
        }
        let lines: Vec<&str> = known.iter().map(String::as_str).collect();
        assert_eq!(lines, ["example ssh-ed25519 AAAA\n", "git.example ssh-ed25519 AAAA\n"]);
        assert_eq!(found.values().map(|host| host.rule.line).collect::<Vec<_>>(), [1]);
    }
}
