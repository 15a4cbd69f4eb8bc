//! Server entries in the formats of different programs: to the common form and back.
//!
//! The common form is the one of Claude Code and most others: `command`, `args`, `env`, `cwd`, or `url` and `headers`.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Context;
use super::expand::{self, Lookups};

/// How entries look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `{"command", "args", "env"}`.
    Common,
    /// Like `Common`, with `"type": "stdio"`.
    Typed,
    /// Gemini CLI and Qwen Code: the common one, with variables as a shell has them.
    Gemini,
    /// GitHub Copilot CLI: `"type": "local"`, and a list of `tools`.
    Copilot,
    /// Zed: `"source": "custom"`, once with the words under `command.path`.
    Zed,
    /// OpenCode: `{"type": "local", "command": [...], "environment": {...}}`.
    OpenCode,
    /// Goose: `{"type": "stdio", "cmd", "args", "envs"}`.
    Goose,
}

/// Members of an entry that say how a server is started or reached.
const START_MEMBERS: &[&str] = &[
    "args",
    "cmd",
    "command",
    "cwd",
    "env",
    "envFile",
    "env_keys",
    "environment",
    "envs",
    "headers",
    "httpUrl",
    "oauth",
    "serverUrl",
    "source",
    "transport",
    "type",
    "uri",
    "url",
];

impl Dialect {
    /// An entry in the common form. What is not understood stays as it is, and is complained about there.
    #[must_use]
    pub fn common(self, entry: &Value) -> Value {
        let Value::Object(entry) = entry else { return entry.clone() };
        let mut common = entry.clone();
        let mut rename = |from: &str, to: &str| {
            if let Some(value) = common.shift_remove(from) {
                common.insert(to.to_owned(), value);
            }
        };
        match self {
            Self::Common | Self::Typed | Self::Gemini => {}
            Self::Copilot => {}
            Self::Zed => {
                common.shift_remove("source");
                if let Some(Value::Object(command)) = common.get("command").cloned() {
                    common.shift_remove("command");
                    let member = |name: &str| command.get(name).cloned();
                    for (name, value) in
                        [("command", member("path")), ("args", member("args")), ("env", member("env"))]
                    {
                        common.extend(value.map(|value| (name.to_owned(), value)));
                    }
                }
            }
            Self::OpenCode => {
                rename("environment", "env");
                if let Some(Value::Array(words)) = common.get("command").cloned() {
                    let mut words = words.into_iter();
                    common.insert("command".to_owned(), words.next().unwrap_or(Value::Null));
                    common.insert("args".to_owned(), words.collect());
                }
            }
            Self::Goose => {
                rename("cmd", "command");
                rename("envs", "env");
                rename("uri", "url");
            }
        }
        let kind = match common.get("type").and_then(Value::as_str) {
            Some("local") => Some("stdio"),
            Some("remote" | "streamable_http") => Some("http"),
            _ => None,
        };
        if let Some(kind) = kind {
            common.insert("type".to_owned(), kind.into());
        }
        Value::Object(common)
    }

    /// Whether an entry is not a separate server, or disabled by the user.
    #[must_use]
    pub fn is_off(self, entry: &Value) -> bool {
        let flag = |name: &str| entry.get(name).and_then(Value::as_bool);
        let is_off = flag("disabled") == Some(true) || flag("enabled") == Some(false);
        let kind = entry.get("type").and_then(Value::as_str);
        is_off
            || (self == Self::Goose
                && matches!(kind, Some("builtin" | "platform" | "frontend" | "inline_python")))
    }

    /// A program with its arguments and variables in this form, merged over the old entry: members that do not say how a
    /// server is started stay.
    #[must_use]
    pub fn server_entry(self, start: &Start, before: Option<&Value>) -> Value {
        let Start { command, args, env } = start;
        let entry = match self {
            Self::Common | Self::Gemini | Self::Zed if env.is_empty() => {
                json!({"command": command, "args": args})
            }
            Self::Common | Self::Gemini => json!({"command": command, "args": args, "env": env}),
            Self::Typed => json!({"type": "stdio", "command": command, "args": args, "env": env}),
            Self::Copilot => {
                json!({"type": "local", "command": command, "args": args, "env": env, "tools": ["*"]})
            }
            Self::Zed => json!({"command": command, "args": args, "env": env}),
            Self::OpenCode => {
                let words: Vec<&String> = std::iter::once(command).chain(args).collect();
                json!({"type": "local", "command": words, "environment": env, "enabled": true})
            }
            Self::Goose => {
                json!({"type": "stdio", "cmd": command, "args": args, "envs": env, "enabled": true, "timeout": 300})
            }
        };
        let mut entry = match entry {
            Value::Object(entry) => entry,
            _ => Map::new(),
        };
        if self == Self::Zed {
            entry.insert("source".to_owned(), "custom".into());
        }
        let kept = before.and_then(Value::as_object).into_iter().flatten();
        entry.extend(
            kept.filter(|(name, _)| !START_MEMBERS.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        Value::Object(entry)
    }

    /// Variables inside a value, as this program writes them.
    pub(super) fn expand(self, text: &str, context: &Context<'_>, lookups: &mut Lookups) -> String {
        match self {
            Self::Gemini => expand::shell(text, context.env, lookups),
            Self::OpenCode => expand::curly(text, context.env, lookups),
            Self::Goose | Self::Zed => text.to_owned(),
            Self::Common | Self::Typed | Self::Copilot => {
                let shown = |path: &Path| path.to_string_lossy().into_owned();
                let directories = [
                    ("workspaceFolder", shown(context.project)),
                    ("workspaceRoot", shown(context.project)),
                    ("userHome", shown(context.home)),
                ];
                expand::editor(text, context.env, &directories.into(), lookups)
            }
        }
    }
}

/// The command that replaces a server, or is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub command: String,
    pub args: Vec<String>,
    pub env: std::collections::BTreeMap<String, String>,
}
