//! Examples for the help of every verb. A test parses each of them.

use clap::Command;

use agentsh_terminal::style::{HEADING, QUIET, paint};

/// One example a line, with a remark after `#`, in the order of the help. Indented ones are of the verb above them, the others of the
/// verb that they begin with.
const EXAMPLES: &str = include_str!("examples.txt");

/// Shown of the examples of the verbs below one that has none of its own.
const OF_OTHERS: usize = 4;

/// Width of an ordinary terminal without two spaces of indentation.
const MAX_COLUMNS: usize = 78;

/// The examples, each with the words of its verb.
pub(super) struct Examples(Vec<(String, &'static str)>);

/// The command line with its examples.
pub(super) fn add(command: Command) -> Command {
    let examples = Examples::of_all(&command);
    add_examples_below(command, "", &examples)
}

fn add_examples_below(mut command: Command, words: &str, examples: &Examples) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    for name in names {
        let inside = if words.is_empty() { name.clone() } else { format!("{words} {name}") };
        command = command.mut_subcommand(&name, |inner| add_examples_below(inner, &inside, examples));
    }
    let lines = examples.of(words);
    if lines.is_empty() {
        return command;
    }
    let mut text = paint(HEADING, "Examples:");
    // Next to the commands where a terminal has room for all of them, else below each.
    let is_beside = lines.iter().all(|line| line.len() <= MAX_COLUMNS);
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

impl Examples {
    /// Of a command line that is built.
    pub(super) fn of_all(command: &Command) -> Self {
        let mut named = "";
        let examples = EXAMPLES.lines().filter_map(|line| match line.strip_prefix("  ") {
            Some(example) => Some((named.to_owned(), example)),
            None if line.is_empty() => None,
            None => match line.strip_suffix(':') {
                Some(verb) => {
                    named = verb;
                    None
                }
                None => Some((verb_of(line, command), line)),
            },
        });
        Self(examples.collect())
    }

    /// Its own examples, or the first ones of the verbs below it.
    pub(super) fn of(&self, words: &str) -> Vec<&'static str> {
        let own = self.0.iter().filter(|(verb, _)| verb == words).map(|(_, example)| *example);
        let own: Vec<&str> = own.collect();
        if !own.is_empty() {
            return own;
        }
        let is_below = |verb: &str| verb.strip_prefix(words).is_some_and(|rest| rest.starts_with(' '));
        let mut firsts: Vec<_> = self.0.iter().filter(|(verb, _)| is_below(verb)).collect();
        firsts.dedup_by(|one, before| one.0 == before.0);
        firsts.into_iter().take(OF_OTHERS).map(|(_, example)| *example).collect()
    }
}

fn verb_of(example: &str, mut command: &Command) -> String {
    let mut verb = Vec::new();
    for word in example.trim_start_matches("sudo ").split(' ').skip(1) {
        let Some(inner) = command.find_subcommand(word) else { break };
        verb.push(word);
        command = inner;
    }
    verb.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use clap::CommandFactory;

    use super::super::{Arguments, full_command};
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
        visit(&full_command(), "", &mut verbs);
        let examples = Examples::of_all(&full_command());
        let without: Vec<&String> = verbs.iter().filter(|verb| examples.of(verb).is_empty()).collect();
        assert!(without.is_empty(), "give these a line in cli/examples.txt: {without:?}");
        for (verb, example) in &examples.0 {
            assert!(verb.is_empty() || verbs.contains(verb), "no verb `{verb}`");
            let words = words(example.strip_prefix("sudo ").unwrap_or(example));
            assert!(words[1..].join(" ").starts_with(verb), "{example}: not of `{verb}`");
            if let Err(error) = Arguments::command().try_get_matches_from(&words) {
                panic!("{example}: {error}");
            }
        }
    }

    #[test]
    fn help_shows_examples() {
        let mut command = add(full_command());
        let run = command.find_subcommand_mut("run").unwrap();
        assert!(run.render_help().to_string().contains("Examples:\n  agentsh run claude\n"));
        let mcp = command.find_subcommand_mut("mcp").unwrap();
        assert!(mcp.render_help().to_string().contains("agentsh mcp pins list"));
    }
}
