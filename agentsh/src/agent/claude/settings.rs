//! Settings files of Claude Code. The user's decide about servers and about the model's address; those of the project
//! came with it, and the agent gets them without what would move the model, set variables or approve servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::argv::Parsed;
use super::config::strings;
use crate::agent::{AgentError, Context, json, read};
use crate::types::ServerId;

/// What the settings say, as far as it is the user's word.
#[derive(Debug, Default)]
pub(super) struct Settings {
    disabled: Vec<String>,
    approved: Vec<String>,
    approve_all: bool,
    /// Its own sandbox is asked for.
    pub(super) sandbox: bool,
    /// `env` of the user's own settings: wins over the environment.
    pub(super) env: BTreeMap<String, String>,
    /// Files of the project, and what the agent gets in their place.
    pub(super) covered: Vec<(PathBuf, Vec<u8>)>,
    pub(super) notes: Vec<String>,
}

/// The files of a project, below its directory.
const PROJECT_FILES: &[&str] = &[".claude/settings.json", ".claude/settings.local.json"];
/// Keys of a project that contain one of these, in whatever case, are taken out: they name an account, a program that
/// gives out credentials, another address of the model, variables, or servers.
const NOT_OF_A_PROJECT: &[&str] = &[
    "authrefresh",
    "credential",
    "endpoint",
    "env",
    "gateway",
    "helper",
    "idp",
    "login",
    "marketplace",
    "mcp",
    "modeloverrides",
    "provider",
    "proxy",
    "telemetry",
    "url",
    "wrapper",
];
/// These contain one of them and only take something away.
const HARMLESS: &[&str] = &["disabledMcpjsonServers", "deniedMcpServers", "prUrlTemplate"];
/// Most keys that a message names.
const MOST_NAMED: usize = 12;

/// Reads every settings file that can switch a project's server off, or move the model.
pub(super) fn settings(context: &Context<'_>, parsed: &Parsed, directory: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.read_file(&directory.join("settings.json"));
    // Those further up are read for a session that begins in a subdirectory, or that moves.
    let within = |directory: &&Path| directory.starts_with(context.project);
    for directory in std::iter::once(context.cwd).chain(context.cwd.ancestors().skip(1).filter(within)) {
        for name in PROJECT_FILES {
            settings.read_project(context.project, &directory.join(name));
        }
    }
    for value in &parsed.settings {
        if value.trim_start().starts_with('{') {
            settings.read_text(value, Path::new("--settings"));
        } else {
            settings.read_file(&context.cwd.join(value));
        }
    }
    settings
}

impl Settings {
    pub(super) fn disables(&self, id: &ServerId) -> bool {
        listed(&self.disabled, id)
    }

    pub(super) fn approves(&self, id: &ServerId) -> bool {
        self.approve_all || listed(&self.approved, id)
    }

    fn read_file(&mut self, path: &Path) {
        match read::text(path, read::LIMIT) {
            Ok(Some(text)) => self.read_text(&text, path),
            Ok(None) => {}
            Err(error) => self.unknown(&error),
        }
    }

    fn read_text(&mut self, text: &str, path: &Path) {
        let value = match json::parse(text, path) {
            Ok(value) => value,
            Err(error) => return self.unknown(&error),
        };
        self.disabled.extend(strings(value.get("disabledMcpjsonServers")));
        self.approved.extend(strings(value.get("enabledMcpjsonServers")));
        self.approve_all |= value.get("enableAllProjectMcpServers") == Some(&Value::Bool(true));
        self.sandbox |= asks_for_sandbox(&value);
        let env = value.get("env").and_then(Value::as_object).into_iter().flatten();
        self.env.extend(env.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))));
    }

    fn unknown(&mut self, error: &AgentError) {
        self.notes.push(format!("{error}; its settings are not known to agentsh"));
    }

    /// A file that came with the project: it may switch servers off, and the agent gets it without the rest.
    fn read_project(&mut self, project: &Path, path: &Path) {
        let text = match read::text(path, read::LIMIT) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(error) => {
                self.notes.push(format!("{error}; the agent gets empty settings in its place"));
                return self.cover(project, path, b"{}\n".to_vec());
            }
        };
        let parsed = if text.trim().is_empty() { return } else { json::parse(&text, path) };
        let mut value = match parsed {
            Ok(value) => value,
            // What two readers may understand differently is not passed on.
            Err(error) => {
                self.notes.push(format!("{error}; the agent gets empty settings in its place"));
                return self.cover(project, path, b"{}\n".to_vec());
            }
        };
        self.disabled.extend(strings(value.get("disabledMcpjsonServers")));
        self.sandbox |= asks_for_sandbox(&value);
        let Some(keys) = value.as_object_mut() else { return self.cover(project, path, b"{}\n".to_vec()) };
        let before: Vec<String> = keys.keys().cloned().collect();
        keys.retain(|key, value| may_be_a_projects(key, value));
        let taken: Vec<&str> =
            before.iter().filter(|key| !keys.contains_key(*key)).map(String::as_str).collect();
        if taken.is_empty() {
            return;
        }
        let names: String = taken.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
        let names = crate::store::escape::line(&names);
        self.notes.push(format!(
            "{}: {names} came with the project and does not count; what you want of it belongs into ~/.claude/settings.json",
            path.display()
        ));
        if let Ok(content) = super::render(&value) {
            self.cover(project, path, content);
        }
    }

    /// Where a link leads is what is covered; what lies outside the project did not come with it.
    fn cover(&mut self, project: &Path, path: &Path, content: Vec<u8>) {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let project = std::fs::canonicalize(project).unwrap_or_else(|_| project.to_owned());
        if real.starts_with(project) && !self.covered.iter().any(|(covered, _)| *covered == real) {
            self.covered.push((real, content));
        }
    }
}

fn asks_for_sandbox(settings: &Value) -> bool {
    settings.pointer("/sandbox/enabled") == Some(&Value::Bool(true))
}

fn may_be_a_projects(key: &str, value: &Value) -> bool {
    if HARMLESS.contains(&key) {
        return true;
    }
    // A resource of some account is written as `arn:...`; the name of a model has no such characters.
    if key == "model" {
        return value.as_str().is_some_and(|name| !name.contains([':', '/']));
    }
    let key = key.to_ascii_lowercase();
    !NOT_OF_A_PROJECT.iter().any(|part| key.contains(part))
}

fn listed(names: &[String], id: &ServerId) -> bool {
    names.iter().any(|name| plain(name) == plain(&id.0))
}

/// Claude Code compares the names in its approval lists in the form they have in tool names.
fn plain(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    name.chars().map(safe).collect()
}
