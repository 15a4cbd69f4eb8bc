//! `agentsh --help` on one screen: ten commands with descriptions, the others by name and group. Every command has its
//! own help.

use std::fmt::Write;

use clap::Command;

use agentsh_agents::Kind;

use agentsh_terminal::style::{HEADING, HELP, QUIET, paint};

/// In the order in which a user meets them.
const FIRST: [&str; 10] =
    ["run", "mcp", "review", "policy", "report", "ui", "approvals", "doctor", "enable", "help"];

/// All others.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Agents", &["disable", "status", "client-config", "undo", "demo"]),
    ("MCP servers", &["profile", "login", "logout", "proxy", "gateway", "scan", "advisories"]),
    ("Records", &["events", "receipt"]),
    ("Teams", &["fleet", "registry"]),
    ("Inside a sandbox", &["call", "why"]),
    ("This machine", &["setup", "vet-url", "completions", "man"]),
];

/// The command with this help in place of clap's list of everything.
pub(super) fn on_one_screen(command: Command) -> Command {
    let mut text =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n", paint(HEADING, "Commands:"));
    for name in FIRST {
        let about = match command.find_subcommand(name).and_then(Command::get_about) {
            Some(about) => about.to_string(),
            None => "Show the help of a command".to_owned(),
        };
        let name = format!("{name:<10}");
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {} {about}", paint(*HELP.get_literal(), &name));
    }
    let _ = writeln!(text, "\n{}", paint(HEADING, "Further commands:"));
    for (group, names) in GROUPS {
        let group = format!("{group:<17} ");
        let _ = writeln!(text, "  {} {}", paint(QUIET, &group), names.join(", "));
    }
    let _ = write!(text, "\n{}\n{{options}}{{after-help}}", paint(HEADING, "Options:"));
    command.help_template(text)
}

/// Whether a word in place of a command is the name of an agent.
pub(super) fn is_agent(word: &str) -> bool {
    !word.contains('/') && !Kind::of(word).is_unknown()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_named_once() {
        let command = super::super::Arguments::command();
        let visible: BTreeSet<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        let named: Vec<&str> = FIRST
            .into_iter()
            .filter(|name| *name != "help")
            .chain(GROUPS.into_iter().flat_map(|(_, names)| names.iter().copied()))
            .collect();
        assert_eq!(named.len(), visible.len());
        assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), visible);
    }

    #[test]
    fn no_command_has_the_name_of_an_agent() {
        let command = super::super::Arguments::command();
        assert!(is_agent("claude") && !is_agent("./claude") && !is_agent("rnu"));
        for one in command.get_subcommands() {
            assert!(!is_agent(one.get_name()), "{}", one.get_name());
        }
    }
}
