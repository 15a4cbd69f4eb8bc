//! The command `agentsh policy allow` that allows what was refused.

use std::borrow::Cow;
use std::path::Path;

use crate::escape;
use crate::types::RuleRef;

/// One command line. `words` are hosts, paths and ports of this machine (`localhost:5432`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// None: for the agent.
    pub server: Option<String>,
    pub words: Vec<String>,
    /// Paths may be written as well.
    pub write: bool,
    pub tools: Vec<String>,
    pub env: Vec<String>,
    /// None: the user's own policy.
    pub file: Option<String>,
}

impl Allow {
    /// The same, in the file of the rule that refuses. What the user's own policy adds counts for the organisation's as well.
    #[must_use]
    pub fn against(self, rule: &RuleRef) -> Self {
        let file = Path::new(&rule.file);
        let is_other = file.is_absolute() && !file.ends_with("agentsh/policy.yaml");
        Self { file: is_other.then(|| rule.file.clone()), ..self }
    }

    /// The same, for whoever types it in another directory than the project's.
    #[must_use]
    pub fn in_project(mut self, project: &Path) -> Self {
        for word in self.words.iter_mut().filter(|word| word.starts_with('.')) {
            *word = project.join(word.trim_start_matches("./")).display().to_string();
        }
        self
    }

    /// The whole line; None where there is nothing to allow, or a name has characters that nobody can type or see.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let mut line = "agentsh policy allow".to_owned();
        let options = self.file.iter().map(|file| ("--file ", file));
        let options = options.chain(self.server.iter().map(|server| ("--server ", server)));
        let options = options.chain(self.tools.iter().map(|tool| ("--tool ", tool)));
        let options = options.chain(self.env.iter().map(|name| ("--env ", name)));
        for (option, word) in options {
            line.push_str(&format!(" {option}{}", typed(word)?));
        }
        if self.write {
            line.push_str(" --write");
        }
        for word in &self.words {
            line.push_str(&format!(" {}", typed(word)?));
        }
        let is_empty = self.words.is_empty() && self.tools.is_empty() && self.env.is_empty();
        (!is_empty).then_some(line)
    }
}

/// A path as the command understands it: one that lies in the project begins with a dot.
#[must_use]
pub fn path(path: &str) -> String {
    if path.starts_with(['/', '~', '.']) { path.to_owned() } else { format!("./{path}") }
}

/// As a shell reads it; None for what a terminal would obey or not show.
#[must_use]
pub fn typed(word: &str) -> Option<Cow<'_, str>> {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "/._-~@+=:,%".contains(sign);
    if word.is_empty() || word.starts_with('-') || matches!(escape::line(word), Cow::Owned(_)) {
        return None;
    }
    if word.chars().all(is_plain) {
        return Some(Cow::Borrowed(word));
    }
    Some(Cow::Owned(format!("'{}'", word.replace('\'', "'\\''"))))
}

/// The command for a piece of policy on one line as agentsh writes it, or that piece where there is no command.
#[must_use]
pub fn shown(change: &str) -> Cow<'_, str> {
    command(change).map_or(Cow::Borrowed(change), |command| Cow::Owned(format!("`{command}`")))
}

/// Like [`shown`], without the quotation marks; None if there is no command.
#[must_use]
pub fn command(change: &str) -> Option<String> {
    parse(change)?.line()
}

/// The command's subject for a piece of policy, as agentsh writes it on one line; None if no command adds it.
#[must_use]
pub fn parse(change: &str) -> Option<Allow> {
    let mut leaves = Vec::new();
    let mut reader = Reader { rest: change };
    reader.map_entries(&mut Vec::new(), &mut leaves)?;
    if !reader.rest.is_empty() {
        return None;
    }
    let mut allow = Allow::default();
    let (mut read, mut unmask) = (None, None);
    let mut tool = (None, None);
    for (key, value) in leaves {
        let of_process = key.strip_prefix("agent.").or_else(|| key.strip_prefix("sandbox.mcp.servers."));
        match (of_process, key.as_str()) {
            (_, "sandbox.mcp.servers.id") => allow.server = Some(value),
            (_, "sandbox.mcp.allowed_tools.server") => tool.0 = Some(value),
            (_, "sandbox.mcp.allowed_tools.tool") => tool.1 = Some(value),
            (Some("network.allow"), _) => allow.words.push(value),
            (Some("network.loopback"), _) => allow.words.push(format!("localhost:{value}")),
            (Some("env_allow"), _) => allow.env.push(value),
            // The last one is what was asked for; the others are in force anyway.
            (Some("filesystem.read"), _) => read = Some(value),
            (Some("filesystem.write"), _) => (read, allow.write) = (Some(value), true),
            (Some("filesystem.unmask"), _) => unmask = Some(value),
            _ => return None,
        }
    }
    match (read, unmask) {
        (Some(granted), _) => allow.words.push(path(&granted)),
        // A guarded file in the project. In the home it may be a secret that the program only wanted to read.
        (None, Some(guarded)) if !guarded.starts_with('~') => {
            allow.write = true;
            allow.words.push(path(&guarded));
        }
        (None, Some(_)) => return None,
        (None, None) => {}
    }
    if let (Some(server), Some(name)) = tool {
        allow.tools.push(format!("{server}/{name}"));
    }
    Some(allow)
}

/// Reads maps and lists in brackets, with names as keys and names, numbers or quoted text as values.
struct Reader<'t> {
    rest: &'t str,
}

/// Deepest nesting of a piece; the deepest that agentsh writes has six.
const MAX_DEPTH: usize = 12;

impl Reader<'_> {
    fn eat(&mut self, sign: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(sign)?.trim_start();
        Some(())
    }

    /// Every value with its keys, joined by dots. Without brackets around them.
    fn map_entries(&mut self, at: &mut Vec<String>, into: &mut Vec<(String, String)>) -> Option<()> {
        loop {
            let key = self.word()?;
            self.eat(":")?;
            at.push(key);
            self.value(at, into)?;
            at.pop();
            if self.eat(",").is_none() {
                return Some(());
            }
        }
    }

    fn value(&mut self, at: &mut Vec<String>, into: &mut Vec<(String, String)>) -> Option<()> {
        if at.len() > MAX_DEPTH {
            return None;
        }
        if self.eat("{").is_some() {
            self.map_entries(at, into)?;
            return self.eat("}");
        }
        if self.eat("[").is_some() {
            loop {
                if self.rest.starts_with('[') {
                    return None;
                }
                self.value(at, into)?;
                if self.eat(",").is_none() {
                    return self.eat("]");
                }
            }
        }
        let value = self.word()?;
        into.push((at.join("."), value));
        Some(())
    }

    fn word(&mut self) -> Option<String> {
        let mut word = String::new();
        if let Some(quoted) = self.rest.strip_prefix('"') {
            let mut signs = quoted.char_indices();
            loop {
                match signs.next()? {
                    (at, '"') => {
                        self.rest = quoted.get(at + 1..)?.trim_start();
                        return Some(word);
                    }
                    (_, '\\') => {
                        word.push(signs.next().map(|(_, sign)| sign).filter(|sign| "\"\\".contains(*sign))?)
                    }
                    (_, sign) => word.push(sign),
                }
            }
        }
        let is_end = |sign: char| sign.is_whitespace() || "{}[]:,\"".contains(sign);
        let end = self.rest.find(is_end).unwrap_or(self.rest.len());
        word.push_str(self.rest.get(..end)?);
        self.rest = self.rest.get(end..)?.trim_start();
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_pieces_become_commands() {
        for (piece, line) in [
            ("agent: {network: {allow: [\"two.test:8443\"]}}", "two.test:8443"),
            ("agent: {network: {allow: [\"[2001:db8::1]:22\"]}}", "'[2001:db8::1]:22'"),
            ("agent: {network: {loopback: [5432]}}", "localhost:5432"),
            ("agent: {filesystem: {read: [\"~/a b\"]}}", "'~/a b'"),
            ("agent: {filesystem: {write: [\".\", \"~/notes\"]}}", "--write ~/notes"),
            ("agent: {filesystem: {unmask: [\"sub/.envrc\"]}}", "--write ./sub/.envrc"),
            ("agent: {filesystem: {unmask: [\"~/.netrc\"], read: [\"~/.netrc\"]}}", "~/.netrc"),
            ("agent: {env_allow: [\"MY_TOKEN\"]}", "--env MY_TOKEN"),
            (
                "sandbox: {mcp: {servers: [{id: \"my server\", network: {allow: [\"a.test\"]}}]}}",
                "--server 'my server' a.test",
            ),
            (
                "sandbox: {mcp: {allowed_tools: [{server: \"fs\", tool: \"read's\"}]}}",
                "--tool 'fs/read'\\''s'",
            ),
        ] {
            assert_eq!(command(piece).as_deref(), Some(&*format!("agentsh policy allow {line}")), "{piece}");
            assert_eq!(shown(piece), format!("`agentsh policy allow {line}`"));
        }
    }

    #[test]
    fn policy_piece_without_a_command_is_shown_as_it_is() {
        for piece in [
            "sandbox: {mcp: {exfiltration: {allow: [{from: a, to: b}]}}}",
            "agent: {network: {allow: [{host: a.test, inspect: true}]}}",
            "agent: {filesystem: {unmask: [\"~/.netrc\"]}}",
            "agent: {filesystem: {read: [\"/a\u{202e}b\"]}}",
            "agent: {filesystem: {read: [\"/a\\u{1b}b\"]}}",
            "sign: [file]",
            "agent: {env_allow: []}",
            "agent: {network: {allow: [\"a.test\"]}} # more",
            "agent: [[a]]",
            "",
        ] {
            assert_eq!(command(piece), None, "{piece}");
            assert_eq!(shown(piece), piece);
        }
        assert_eq!(command(&"agent: {a: ".repeat(10_000)), None);
    }
}
