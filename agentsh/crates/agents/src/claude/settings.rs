//! Settings files of Claude Code. The user's decide about servers and the model's address. Of the project's, the agent
//! gets only what restricts and what changes the appearance.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::argv::Parsed;
use super::config::strings;
use crate::{AgentError, Context, agreement, json, read};
use agentsh_base::types::ServerId;

/// The settings that the user made.
#[derive(Debug, Default)]
pub(super) struct Settings {
    disabled: Vec<String>,
    approved: Vec<String>,
    approve_all: bool,
    /// Plugins, each as `NAME@MARKETPLACE`, and whether they are on.
    plugins: BTreeMap<String, bool>,
    /// Its own sandbox is asked for.
    pub(super) sandbox: bool,
    /// A program gives the key.
    pub(super) key_helper: bool,
    /// `env` of the user's own settings: wins over the environment.
    pub(super) env: BTreeMap<String, String>,
    /// Files of the project, and what the agent gets in their place.
    pub(super) covered: Vec<(PathBuf, Vec<u8>)>,
    pub(super) notes: Vec<String>,
}

/// The files of a project, below its directory.
const PROJECT_FILES: &[&str] = &[".claude/settings.json", ".claude/settings.local.json"];
/// Lists in which each entry takes something away.
const NARROWING_LISTS: &[&str] = &["claudeMdExcludes", "deniedMcpServers", "disabledMcpjsonServers"];
/// Switches that take something away when they are on.
const NARROWING_SWITCHES: &[&str] =
    &["disableAllHooks", "disableArtifact", "disableAutoMode", "disableWorkflows"];
/// Switches, numbers and words that change how things look, or what the model knows about the work.
const HARMLESS_KEYS: &[&str] = &[
    "$schema",
    "alwaysThinkingEnabled",
    "autoCompactEnabled",
    "autoMemoryEnabled",
    "awaySummaryEnabled",
    "editorMode",
    "effortLevel",
    "fastMode",
    "includeCoAuthoredBy",
    "includeGitInstructions",
    "language",
    "outputStyle",
    "prefersReducedMotion",
    "promptSuggestionEnabled",
    "respectGitignore",
    "showThinkingSummaries",
    "showTurnDuration",
    "spinnerTipsEnabled",
    "syntaxHighlightingDisabled",
    "terminalProgressBarEnabled",
    "theme",
    "verbose",
    "viewMode",
];
/// Members of `permissions` that take something away, and the modes that allow nothing by themselves.
const NARROWING_PERMISSIONS: &[&str] = &["ask", "deny"];
const NARROWING_MODES: &[&str] = &["default", "manual", "plan"];
/// Maximum number of keys that a message names.
const MAX_NAMED: usize = 12;

/// Reads every settings file that can switch a project's server off, or move the model.
pub(super) fn settings(context: &Context<'_>, parsed: &Parsed, directory: &Path) -> Settings {
    let mut settings = Settings::default();
    settings.read_file(&directory.join("settings.json"));
    // Settings further up are read by a session that begins in a subdirectory, or that moves.
    let within = |directory: &&Path| directory.starts_with(context.project);
    for directory in std::iter::once(context.cwd).chain(context.cwd.ancestors().skip(1).filter(within)) {
        for name in PROJECT_FILES {
            settings.read_project(context, &directory.join(name));
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
        is_listed(&self.disabled, id)
    }

    pub(super) fn approves(&self, id: &ServerId) -> bool {
        self.approve_all || is_listed(&self.approved, id)
    }

    /// Whether the user has switched a plugin on.
    pub(super) fn switches_on(&self, plugin: &str) -> bool {
        self.plugins.get(plugin) == Some(&true)
    }

    pub(super) fn switches_off(&self, plugin: &str) -> bool {
        self.plugins.get(plugin) == Some(&false)
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
        let plugins = value.get("enabledPlugins").and_then(Value::as_object).into_iter().flatten();
        self.plugins.extend(plugins.filter_map(|(name, value)| Some((name.clone(), value.as_bool()?))));
        self.sandbox |= asks_for_sandbox(&value);
        self.key_helper |= value.get("apiKeyHelper").is_some();
        let env = value.get("env").and_then(Value::as_object).into_iter().flatten();
        self.env.extend(env.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))));
    }

    fn unknown(&mut self, error: &AgentError) {
        self.notes.push(format!("{error}; agentsh does not know its settings"));
    }

    /// A file that came with the project: it may take something away, and the agent gets it without the rest.
    fn read_project(&mut self, context: &Context<'_>, path: &Path) {
        let project = context.project;
        let text = match read::text(path, read::LIMIT) {
            Ok(Some(text)) => text,
            Ok(None) => return,
            Err(error) => {
                self.notes.push(format!("{error}; the agent gets empty settings instead"));
                return self.mask(project, path, b"{}\n".to_vec());
            }
        };
        if agreement::is_agreed(context.agreed, path, &text) {
            return self.read_text(&text, path);
        }
        let parsed = if text.trim().is_empty() { return } else { json::parse(&text, path) };
        let value = match parsed {
            Ok(value) => value,
            // Content that two parsers may read differently is not passed on.
            Err(error) => {
                self.notes.push(format!("{error}; the agent gets empty settings instead"));
                return self.mask(project, path, b"{}\n".to_vec());
            }
        };
        self.disabled.extend(strings(value.get("disabledMcpjsonServers")));
        self.sandbox |= asks_for_sandbox(&value);
        let Value::Object(keys) = value else { return self.mask(project, path, b"{}\n".to_vec()) };
        let (kept, taken) = of_a_project(keys);
        if taken.is_empty() {
            return;
        }
        let names: Vec<&str> = taken.iter().take(MAX_NAMED).map(String::as_str).collect();
        let names = names.join(", ");
        let names = agentsh_base::escape::line(&names);
        self.notes.push(format!(
            "{}: ignored {names}, which came with the project; to use it, move it to ~/.claude/settings.json, or approve the file: {}",
            path.display(),
            agreement::command(path)
        ));
        if let Ok(content) = super::render(&Value::Object(kept)) {
            self.mask(project, path, content);
        }
    }

    /// Covers the target of a link; a target outside the project did not come with it.
    fn mask(&mut self, project: &Path, path: &Path, content: Vec<u8>) {
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

/// The allowed keys of a project, and the names of the others.
fn of_a_project(keys: Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let (mut kept, mut taken) = (Map::new(), Vec::new());
    for (key, value) in keys {
        match value {
            Value::Object(members) if key == "permissions" => {
                let mut narrowing = Map::new();
                for (name, value) in members {
                    if narrows(&name, &value) {
                        narrowing.insert(name, value);
                    } else {
                        taken.push(format!("permissions.{name}"));
                    }
                }
                kept.insert(key, Value::Object(narrowing));
            }
            value if may_be_a_projects(&key, &value) => drop(kept.insert(key, value)),
            _ => taken.push(key),
        }
    }
    (kept, taken)
}

fn narrows(permission: &str, value: &Value) -> bool {
    match permission {
        "defaultMode" => value.as_str().is_some_and(|mode| NARROWING_MODES.contains(&mode)),
        "disableAutoMode" | "disableBypassPermissionsMode" => value == "disable",
        _ => NARROWING_PERMISSIONS.contains(&permission) && value.is_array(),
    }
}

fn may_be_a_projects(key: &str, value: &Value) -> bool {
    // A resource of some account is written as `arn:...`; the name of a model has no such characters.
    if key == "model" {
        return value.as_str().is_some_and(|name| !name.contains([':', '/']));
    }
    NARROWING_LISTS.contains(&key) && value.is_array()
        || NARROWING_SWITCHES.contains(&key) && (*value == true || value == "disable")
        || HARMLESS_KEYS.contains(&key) && !(value.is_object() || value.is_array())
}

fn is_listed(names: &[String], id: &ServerId) -> bool {
    names.iter().any(|name| normalised_name(name) == normalised_name(&id.0))
}

/// Claude Code compares the names in its approval lists in the form they have in tool names.
fn normalised_name(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    name.chars().map(safe).collect()
}
