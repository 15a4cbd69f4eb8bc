//! `--allow`, `--read`, `--write`, `--env` and `--deny-tool`: the policy layer of the command line.
//!
//! The flags become the text of a policy and go through the same reader, so that they mean what a file would mean.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::diagnostic::{PolicyError, Source};
use super::explain::Answer;
use super::model::{Question, WrittenLayer};
use super::path::PathContext;
use super::search::Search;
use super::sections::{McpPolicy, Policy};
use super::{domain, narrow, place, read, sections};
use crate::types::ServerId;

/// The name of this layer in rules.
pub const COMMAND_LINE: &str = "command line";

/// The additions of one command line, for the agent or for one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// None: the agent.
    pub server: Option<ServerId>,
    /// `HOST[:PORT]`; a loopback address or `localhost` opens that port of this machine.
    pub allow: Vec<String>,
    /// Relative to `directory`.
    pub read: Vec<String>,
    pub write: Vec<String>,
    pub env: Vec<String>,
    /// `SERVER/TOOL`.
    pub deny_tool: Vec<String>,
    /// `~` of the paths.
    pub home: PathBuf,
    /// The directory in which the command line was typed.
    pub directory: PathBuf,
}

impl Flags {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.allow, &self.read, &self.write, &self.env, &self.deny_tool].iter().all(|list| list.is_empty())
    }

    /// The piece of policy that makes them last.
    ///
    /// # Errors
    /// [`PolicyError::Flag`] for the first invalid value.
    pub fn text(&self) -> Result<String, PolicyError> {
        let context = PathContext { home: self.home.clone(), project: self.directory.clone() };
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        for word in &self.allow {
            match self.loopback(word)? {
                Some(port) => ports.push(port.to_string()),
                None => hosts.push(quoted("--allow", word)?),
            }
        }
        let paths = |flag: &str, words: &[String]| -> Result<Vec<String>, PolicyError> {
            let paths = words.iter().map(|word| {
                let path = place::resolve(word, &context);
                if word.is_empty() || !path.exists() {
                    return Err(refused(flag, word, "there is no such path"));
                }
                quoted(flag, &path.to_string_lossy())
            });
            paths.collect()
        };
        let (read, write) = (paths("--read", &self.read)?, paths("--write", &self.write)?);
        let names = self.env.iter().map(|name| quoted("--env", name)).collect::<Result<Vec<_>, _>>()?;
        let parts = joined([
            map("network", [list("allow", &hosts), list("loopback", &ports)]),
            map("filesystem", [list("read", &read), list("write", &write)]),
            list("env_allow", &names),
        ]);
        let mut text = String::new();
        let mut mcp = Vec::new();
        match (&self.server, parts.is_empty()) {
            (_, true) => {}
            (None, false) => {
                let _ = writeln!(text, "agent: {{{parts}}}");
            }
            (Some(id), false) => mcp.push(format!("servers: [{{id: {}, {parts}}}]", quoted("--id", &id.0)?)),
        }
        let mut denied = Vec::new();
        for word in &self.deny_tool {
            let Some((ServerId(server), Question::Tool(tool))) = sections::tool(word) else {
                return Err(refused("--deny-tool", word, "write SERVER/TOOL"));
            };
            let (server, tool) = (quoted("--deny-tool", &server)?, quoted("--deny-tool", &tool)?);
            denied.push(format!("{{server: {server}, tool: {tool}}}"));
        }
        if !denied.is_empty() {
            let list = denied.join(", ");
            mcp.push(format!("enforce_policy: true, tool_policy: denylist, denied_tools: [{list}]"));
        }
        if !mcp.is_empty() {
            let _ = writeln!(text, "sandbox: {{mcp: {{{}}}}}", mcp.join(", "));
        }
        Ok(text)
    }

    /// Lays them over everything else.
    ///
    /// # Errors
    /// [`PolicyError::Flag`] for what a flag cannot open: a mask, or a path that a layer denies.
    pub(super) fn merge_over(&self, policy: &mut Policy, request: &Search) -> Result<(), PolicyError> {
        if self.is_empty() {
            return Ok(());
        }
        let text = self.text()?;
        let source = Source { name: COMMAND_LINE, text: &text };
        let mut raw = read::read(source, false).map_err(PolicyError::Invalid)?;
        // Denials are lists of their own, so that they hold whatever lists the layers below use.
        let mut denials = McpPolicy { narrowed_by: policy.mcp.narrowed_by.take(), ..McpPolicy::default() };
        for mcp in &mut raw.mcp {
            let lists = std::mem::take(&mut mcp.lists);
            sections::RawMcp { lists, ..sections::RawMcp::default() }.merge(&mut denials);
        }
        policy.mcp.narrowed_by =
            if self.deny_tool.is_empty() { denials.narrowed_by } else { Some(Box::new(denials)) };
        let tests = std::mem::take(&mut policy.tests);
        let locks = policy.organisation.as_ref().map(|found| found.locks.clone()).unwrap_or_default();
        if locks.is_empty() {
            raw.merge(policy);
        } else if let Err(problems) = narrow::merge_narrowed(policy, &raw, &locks, source) {
            let why = problems.first().map(|problem| problem.message.clone()).unwrap_or_default();
            let why = format!("{why}; your organisation locks this section");
            return Err(PolicyError::Flag { flag: COMMAND_LINE.to_owned(), why });
        }
        policy.layers.insert(COMMAND_LINE.to_owned(), WrittenLayer::new(COMMAND_LINE, &text));
        policy.tests = tests;
        policy.source = format!("{} + {COMMAND_LINE}", policy.source);
        let typed = PathContext { home: self.home.clone(), project: self.directory.clone() };
        let context = PathContext { home: self.home.clone(), project: request.project.clone() };
        let questions = [
            ("--read", &self.read, Question::Read as fn(String) -> Question),
            ("--write", &self.write, Question::Write),
            ("--env", &self.env, Question::Env),
        ];
        for (flag, words, question) in questions {
            for word in words {
                let path = place::resolve(word, &typed).display().to_string();
                let asked = if flag == "--env" { word.clone() } else { path };
                let answer = policy.ask(self.server.as_ref(), &question(asked), &context);
                if !answer.allow {
                    return Err(stays_closed(flag, word, &answer));
                }
            }
        }
        Ok(())
    }

    /// The port of `localhost:5432`.
    fn loopback(&self, word: &str) -> Result<Option<u16>, PolicyError> {
        let Ok((host, port)) = domain::split_port(word) else { return Ok(None) };
        let is_local = match domain::normalise(host) {
            Ok(domain::Host::Address(address)) => address.is_loopback(),
            Ok(domain::Host::Name(name)) => name == "localhost",
            Err(_) => false,
        };
        match (is_local, port) {
            (false, _) => Ok(None),
            (true, Some(port)) => Ok(Some(port)),
            (true, None) => Err(refused("--allow", word, "name the port of this machine: `localhost:5432`")),
        }
    }
}

fn stays_closed(flag: &str, word: &str, answer: &Answer) -> PolicyError {
    let mut why = format!("{} by {}", answer.text, answer.rule);
    if let Some(change) = &answer.change {
        let _ = write!(why, "; to allow it: {}", agentsh_base::remedy::shown(change));
    }
    refused(flag, word, &why)
}

fn refused(flag: &str, word: &str, why: &str) -> PolicyError {
    PolicyError::Flag { flag: format!("{flag} {word}"), why: why.to_owned() }
}

/// These parts on one line of YAML, as far as there are any.
fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn list(key: &str, entries: &[String]) -> Option<String> {
    (!entries.is_empty()).then(|| format!("{key}: [{}]", entries.join(", ")))
}

fn map(key: &str, parts: [Option<String>; 2]) -> Option<String> {
    let parts = joined(parts);
    (!parts.is_empty()).then(|| format!("{key}: {{{parts}}}"))
}

/// The word quoted on one line of YAML.
fn quoted(flag: &str, word: &str) -> Result<String, PolicyError> {
    if word.chars().any(char::is_control) {
        return Err(refused(flag, "...", "it contains a control character"));
    }
    Ok(format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")))
}
