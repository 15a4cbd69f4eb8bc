//! Examples for the help of every verb. A test parses each of them.

use clap::Command;

use agentsh_terminal::style::{HEADING, QUIET, paint};

/// The words of a verb, and an example command with a remark after `#`.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "agentsh run claude",
            "agentsh run --review codex   # `agentsh review` then shows and applies its changes",
            "agentsh mcp run -- npx -y @modelcontextprotocol/server-filesystem .",
            "agentsh report               # what the last session ran, and what was refused",
        ],
    ),
    (
        "run",
        &[
            "agentsh run claude",
            "agentsh run -- claude -p 'fix the tests'",
            "agentsh run --allow api.example.com --read ~/src/lib -- codex   # for this run only",
            "agentsh run --publish 3000 -- npm run dev                       # look at it at 127.0.0.1:3000",
            "agentsh run --policy strict -- ./some-agent",
            "agentsh run --review claude                                     # then `agentsh review` applies what you want",
            "agentsh run --learn policy.yaml claude                          # writes the policy that the run needed",
            "agentsh run --agree claude                                      # trusts new remotes and modules of the project",
        ],
    ),
    (
        "mcp run",
        &[
            "agentsh mcp run -- npx -y @modelcontextprotocol/server-filesystem .",
            "agentsh mcp run --url https://mcp.example.com/mcp --header 'X-Key: ${KEY}'",
        ],
    ),
    ("mcp pins list", &["agentsh mcp pins list", "agentsh mcp pins list --server fs --json"]),
    ("mcp pins trust", &["agentsh mcp pins trust --server fs   # after `agentsh mcp pins diff --server fs`"]),
    ("mcp pins diff", &["agentsh mcp pins diff --server fs"]),
    ("mcp pins reset", &["agentsh mcp pins reset --server fs", "agentsh mcp pins reset --all"]),
    (
        "mcp wrap",
        &["agentsh mcp wrap --client cursor", "agentsh mcp wrap --client cursor --write   # and --undo"],
    ),
    (
        "enable",
        &["agentsh enable claude codex", "agentsh enable claude --rc   # PATH too, in your shell's file"],
    ),
    ("disable", &["agentsh disable claude", "agentsh disable --all"]),
    ("status", &["agentsh status"]),
    (
        "client-config",
        &[
            "agentsh client-config --client cursor docs --url https://mcp.example.com/mcp",
            "agentsh client-config --client vscode --write files -- npx -y @modelcontextprotocol/server-filesystem .",
        ],
    ),
    (
        "profile add",
        &[
            "agentsh profile add tracker --url https://mcp.example.com/mcp --secret-header Authorization   # reads the value from standard input",
            "agentsh profile add db --secret-env DATABASE_URL -- ./db-server",
        ],
    ),
    (
        "login",
        &[
            "agentsh login tracker                  # a server of your configuration",
            "agentsh login https://mcp.example.com/mcp --scope files:write",
            "agentsh login --list",
        ],
    ),
    ("logout", &["agentsh logout tracker"]),
    ("profile list", &["agentsh profile list", "agentsh profile list --json"]),
    ("profile show", &["agentsh profile show tracker"]),
    ("profile remove", &["agentsh profile remove tracker"]),
    ("profile test", &["agentsh profile test tracker"]),
    ("profile export", &["agentsh profile export github --output github.profile.json"]),
    ("profile import", &["agentsh profile import github.profile.json --key allowed_signers"]),
    ("mcp approve", &["agentsh mcp approve .mcp.json", "agentsh mcp approve --forget .mcp.json"]),
    ("advisories", &["agentsh advisories update --source all.zip", "agentsh advisories list"]),
    (
        "advisories update",
        &[
            "agentsh advisories update                       # the sources that the policy names",
            "agentsh advisories update --source ./osv        # a directory of OSV records",
            "agentsh advisories update --source all.zip",
        ],
    ),
    ("advisories list", &["agentsh advisories list --json"]),
    ("advisories show", &["agentsh advisories show GHSA-jf85-cpcp-j695"]),
    (
        "policy",
        &[
            "agentsh policy allow api.example.com",
            "agentsh policy check",
            "agentsh policy explain --write .git/hooks/pre-commit",
            "agentsh policy show --agent claude",
        ],
    ),
    ("policy bundle", &["agentsh policy bundle pull", "agentsh policy bundle status"]),
    ("policy bundle keygen", &["agentsh policy bundle keygen acme.key"]),
    (
        "policy bundle sign",
        &[
            "agentsh policy bundle sign policy.yaml --name acme --version 7 --expires 90d --key acme.key --output acme.bundle",
        ],
    ),
    ("policy bundle verify", &["agentsh policy bundle verify acme.bundle"]),
    ("policy bundle pull", &["agentsh policy bundle pull"]),
    ("policy bundle status", &["agentsh policy bundle status --json"]),
    (
        "policy bundle try",
        &[
            "agentsh policy bundle try acme.bundle --days 7",
            "agentsh policy bundle try acme.bundle --fleet https://fleet.example",
        ],
    ),
    ("approvals", &["agentsh approvals list", "agentsh approvals approve 3f2a-1 --session"]),
    (
        "approvals list",
        &[
            "agentsh approvals list",
            "agentsh approvals list --json",
            "agentsh approvals list --fleet https://fleet.example.com:8700   # of all hosts",
        ],
    ),
    ("approvals show", &["agentsh approvals show 3f2a-1"]),
    (
        "approvals approve",
        &[
            "agentsh approvals approve 3f2a-1               # this one call",
            "agentsh approvals approve 3f2a-1 --session     # and the same call again, while the session lasts",
            "agentsh approvals approve 3f2a-1 --always      # in every session: writes a line of policy, and shows it",
            "agentsh approvals approve 5b21c04e --fleet https://fleet.example.com:8700",
        ],
    ),
    (
        "review",
        &[
            "agentsh review                            # the newest layer over this project, with its differences",
            "agentsh review --apply                    # everything but what runs automatically outside",
            "agentsh review 0199 --apply src .envrc    # only these, also if they run automatically outside",
            "agentsh review --undo                     # undo the last --apply",
            "agentsh review --discard",
        ],
    ),
    ("approvals deny", &["agentsh approvals deny 3f2a-1"]),
    ("mcp tools", &["agentsh mcp tools", "agentsh mcp tools --server fs --session latest"]),
    ("mcp inventory", &["agentsh mcp inventory", "agentsh mcp inventory --server fs --json"]),
    ("mcp servers", &["agentsh mcp servers", "agentsh mcp servers --json"]),
    ("mcp calls", &["agentsh mcp calls --since 1h", "agentsh mcp calls --action block --wide"]),
    (
        "mcp events",
        &["agentsh mcp events --session latest", "agentsh mcp events --type net_connect_blocked --json"],
    ),
    ("mcp detections", &["agentsh mcp detections --since 1d", "agentsh mcp detections --severity high"]),
    ("proxy", &["agentsh proxy --config proxy.json", "agentsh proxy --config proxy.json --policy strict"]),
    ("policy check", &["agentsh policy check", "agentsh policy check policy.yaml"]),
    (
        "policy show",
        &["agentsh policy show", "agentsh policy show strict", "agentsh policy show --agent claude"],
    ),
    (
        "policy explain",
        &[
            "agentsh policy explain --write .git/hooks/pre-commit",
            "agentsh policy explain --agent claude --connect example.com:443",
            "agentsh policy explain --server fs --read ~/Documents",
            "agentsh policy explain --content page.txt --subject results",
        ],
    ),
    (
        "policy allow",
        &[
            "agentsh policy allow api.example.com db.example.com:5432",
            "agentsh policy allow ~/src/lib                     # to be read",
            "agentsh policy allow --write ~/notes",
            "agentsh policy allow tracker/create_issue",
            "agentsh policy allow --server tracker api.example.com",
        ],
    ),
    ("policy generate", &["agentsh policy generate latest --output narrow.yaml"]),
    ("policy init", &["agentsh policy init"]),
    ("policy reference", &["agentsh policy reference | less"]),
    ("policy schema", &["agentsh policy schema > policy.schema.json"]),
    ("policy test", &["agentsh policy test", "agentsh policy test policy.yaml"]),
    (
        "receipt",
        &[
            "agentsh receipt --output receipt.json              # the last session, and the commits that it made",
            "agentsh receipt 01a20aed --commit HEAD --key ~/.ssh/id_ed25519 --output receipt.json",
            "agentsh receipt --output receipt.json --note       # also in the notes of the commits",
        ],
    ),
    (
        "receipt verify",
        &[
            "agentsh receipt verify receipt.json --commit HEAD --key allowed_signers",
            "agentsh receipt verify receipt.json --key ada.pub --policy requirements.yaml",
        ],
    ),
    ("receipt key", &["agentsh receipt key", "agentsh receipt key --key ~/.ssh/id_ed25519"]),
    (
        "report",
        &[
            "agentsh report",
            "agentsh report list",
            "agentsh report 01a20aed",
            "agentsh report latest --format html > report.html",
        ],
    ),
    (
        "events",
        &["agentsh events --session latest", "agentsh events --since 1h --json", "agentsh events verify"],
    ),
    ("undo", &["agentsh undo AGENTS.md   # `agentsh report` names what changed"]),
    ("events verify", &["agentsh events verify", "agentsh events verify --json"]),
    ("scan definitions", &["agentsh scan definitions tools.jsonl --format text"]),
    ("scan output", &["agentsh scan output results.jsonl"]),
    ("scan servers", &["agentsh scan servers", "agentsh scan servers --server fs --format json"]),
    ("scan project", &["agentsh scan project", "agentsh scan project ~/src/clone --format json"]),
    ("scan outbound", &["agentsh scan outbound calls.jsonl --format text"]),
    (
        "fleet serve",
        &[
            "agentsh fleet serve                                              # a file, for a few hosts of this machine",
            "agentsh fleet serve --database postgres://agentsh@localhost/fleet --listen 0.0.0.0:8700 --tls-cert cert.pem --tls-key key.pem --keep 90",
            "agentsh fleet serve --registry closed                            # with a registry that approvers fill",
        ],
    ),
    (
        "fleet token",
        &[
            "agentsh fleet token                                              # for a host, once, within 24 hours",
            "agentsh fleet token --role viewer --name ada --valid-for 2",
            "agentsh fleet token --again 212ab95e6ef380833cdf2291             # another key for the same host",
        ],
    ),
    (
        "fleet enrol",
        &["agentsh fleet enrol --url https://fleet.example.com:8700 --token -   # reads the token"],
    ),
    ("fleet forward", &["agentsh fleet forward", "agentsh fleet forward --once --check"]),
    ("fleet login", &["agentsh fleet login --url https://fleet.example.com:8700 --token -"]),
    (
        "fleet hosts",
        &["agentsh fleet hosts", "agentsh fleet hosts --json", "agentsh fleet hosts --credentials"],
    ),
    ("fleet accept", &["agentsh fleet accept 212ab95e6ef380833cdf2291"]),
    ("fleet revoke", &["agentsh fleet revoke 212ab95e6ef380833cdf2291"]),
    ("fleet doctor", &["agentsh fleet doctor", "agentsh fleet doctor --json"]),
    ("registry hash", &["agentsh registry hash -- npx -y @modelcontextprotocol/server-everything"]),
    (
        "registry diff",
        &[
            "agentsh registry diff captured/before captured/after",
            "agentsh registry diff --server weather   # compares it with what is registered under its name",
        ],
    ),
    ("registry register", &["agentsh registry register -- npx -y @modelcontextprotocol/server-everything"]),
    (
        "registry verify",
        &[
            "agentsh registry verify -- npx -y @modelcontextprotocol/server-everything",
            "agentsh registry verify --url https://mcp.example.com/mcp --registry https://registry.example.com",
        ],
    ),
    ("registry approvals", &["agentsh registry approvals", "agentsh registry approvals show 7"]),
    ("registry approvals list", &["agentsh registry approvals list --json"]),
    ("registry approvals show", &["agentsh registry approvals show 7"]),
    (
        "registry approvals approve",
        &["agentsh registry approvals approve 7 --reason 'release 2.1' --token operators"],
    ),
    (
        "registry approvals reject",
        &["agentsh registry approvals reject 7 --reason 'asks for keys' --token operators"],
    ),
    (
        "registry revoke",
        &["agentsh registry revoke weather e3b0c44298fc1c14… --reason stolen --token operators"],
    ),
    ("registry log", &["agentsh registry log", "agentsh registry log --json"]),
    (
        "registry serve",
        &[
            "agentsh registry serve --open",
            "agentsh registry serve --database postgres://registry@localhost/registry",
        ],
    ),
    ("gateway", &["agentsh gateway --config gateway.yaml"]),
    ("gateway keys", &["agentsh gateway keys list --config gateway.yaml"]),
    ("gateway keys create", &["agentsh gateway keys create laptop --endpoint files --days 90"]),
    ("gateway keys list", &["agentsh gateway keys list --config gateway.yaml"]),
    ("gateway keys revoke", &["agentsh gateway keys revoke laptop"]),
    ("ui", &["agentsh ui", "agentsh ui --port 8123 --no-open   # behind `ssh -L 8123:127.0.0.1:8123`"]),
    ("doctor", &["agentsh doctor", "agentsh doctor --json"]),
    (
        "setup",
        &["sudo agentsh setup", "agentsh setup --print   # what it would do", "sudo agentsh setup --undo"],
    ),
    ("vet-url", &["agentsh vet-url https://example.com/hook"]),
    ("completions", &["agentsh completions bash > ~/.local/share/bash-completion/completions/agentsh"]),
    ("man", &["agentsh man | man -l -", "agentsh man --directory ~/.local/share/man/man1"]),
    ("demo", &["agentsh demo", "agentsh demo --json"]),
    (
        "call",
        &[
            "agentsh call fs --list",
            "agentsh call fs read_text_file '{\"path\": \"notes.txt\"}'",
            "agentsh call tracker search - --json",
        ],
    ),
    ("why", &["agentsh why ~/.ssh", "agentsh why example.com:8443", "agentsh why docker"]),
];

/// Shown of the examples of the verbs below one that has none of its own.
const OF_OTHERS: usize = 4;

/// Width of an ordinary terminal without two spaces of indentation.
const ROOM: usize = 78;

/// The command line with its examples.
pub(super) fn add(command: Command) -> Command {
    below(command, "")
}

fn below(mut command: Command, words: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in names {
        let inside = if words.is_empty() { name.clone() } else { format!("{words} {name}") };
        command = command.mut_subcommand(&name, |inner| below(inner, &inside));
    }
    let lines = of(words);
    if lines.is_empty() {
        return command;
    }
    let mut text = paint(HEADING, "Examples:");
    // Next to the commands where a terminal has room for all of them, else below each.
    let is_beside = lines.iter().all(|line| line.len() <= ROOM);
    for line in lines {
        text.push_str("\n  ");
        match line.split_once(" #") {
            Some((words, remark)) => {
                let remark = paint(QUIET, &format!("#{remark}"));
                text.push_str(&match is_beside {
                    true => format!("{words} {remark}"),
                    false => format!("{}\n      {remark}", words.trim_end()),
                });
            }
            None => text.push_str(line),
        }
    }
    command.after_help(text)
}

/// Its own examples, or the first ones of the verbs below it.
pub(super) fn of(words: &str) -> Vec<&'static str> {
    let own = EXAMPLES.iter().find(|(verb, _)| *verb == words);
    if let Some((_, examples)) = own {
        return examples.to_vec();
    }
    let is_below =
        |verb: &str| words.is_empty() || verb.strip_prefix(words).is_some_and(|rest| rest.starts_with(' '));
    let firsts =
        EXAMPLES.iter().filter(|(verb, _)| is_below(verb)).filter_map(|(_, examples)| examples.first());
    firsts.take(OF_OTHERS).copied().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use clap::CommandFactory;

    use super::super::{Arguments, whole};
    use super::*;

    /// Splits as a shell does: quotes of one kind, no comment, nothing after a pipe.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" #").next().unwrap().split(['|', '>', '<']).next().unwrap();
        let (mut words, mut quoted) = (vec![String::new()], false);
        for character in line.trim().chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                other => words.last_mut().unwrap().push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    fn visit(command: &Command, path: &str, visited: &mut Vec<String>) {
        let is_ours = |inner: &&Command| !inner.is_hide_set() && inner.get_name() != "help";
        for inner in command.get_subcommands().filter(is_ours) {
            let path = format!("{path} {}", inner.get_name()).trim().to_owned();
            visit(inner, &path, visited);
            visited.push(path);
        }
    }

    #[test]
    fn every_verb_has_examples_and_every_example_is_a_command_line() {
        let mut verbs = Vec::new();
        visit(&whole(), "", &mut verbs);
        let without: Vec<&String> = verbs.iter().filter(|verb| of(verb).is_empty()).collect();
        assert!(without.is_empty(), "give these an entry in cli/examples.rs: {without:?}");
        for (verb, examples) in EXAMPLES {
            assert!(verb.is_empty() || verbs.iter().any(|known| known == verb), "no verb `{verb}`");
            for example in *examples {
                let words = words(example.strip_prefix("sudo ").unwrap_or(example));
                assert!(words[1..].join(" ").starts_with(verb), "{example}: not of `{verb}`");
                if let Err(error) = Arguments::command().try_get_matches_from(&words) {
                    panic!("{example}: {error}");
                }
            }
        }
    }

    #[test]
    fn help_shows_examples() {
        let mut command = add(whole());
        let run = command.find_subcommand_mut("run").unwrap();
        assert!(run.render_help().to_string().contains("Examples:\n  agentsh run claude\n"));
        let mcp = command.find_subcommand_mut("mcp").unwrap();
        assert!(mcp.render_help().to_string().contains("agentsh mcp pins list"));
    }
}
