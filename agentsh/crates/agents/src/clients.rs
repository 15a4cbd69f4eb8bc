//! Configuration files of MCP clients: where the server list is, its format, and how to add a server or put one behind
//! agentsh.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::dialect::{Dialect, Start};
use super::{AgentError, json};

/// One program that starts MCP servers.
#[derive(Debug)]
pub struct Client {
    /// On the command line.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// Its file, below the home; the first that exists, else the first. `$config/` is the directory of configurations.
    files: &'static [&'static str],
    key: &'static str,
    pub dialect: Dialect,
    is_toml: bool,
}

const fn json_of(
    name: &'static str,
    title: &'static str,
    files: &'static [&'static str],
    key: &'static str,
    dialect: Dialect,
) -> Client {
    Client { name, title, files, key, dialect, is_toml: false }
}

/// Every client whose configuration format is known.
pub const CLIENTS: &[Client] = &[
    json_of("claude", "Claude Code", &[".claude.json"], "mcpServers", Dialect::Typed),
    json_of(
        "claude-desktop",
        "Claude Desktop",
        &["$config/Claude/claude_desktop_config.json"],
        "mcpServers",
        Dialect::Common,
    ),
    Client {
        name: "codex",
        title: "Codex",
        files: &[".codex/config.toml"],
        key: "mcp_servers",
        dialect: Dialect::Common,
        is_toml: true,
    },
    json_of("cursor", "Cursor", &[".cursor/mcp.json"], "mcpServers", Dialect::Common),
    json_of("vscode", "VS Code", &["$config/Code/User/mcp.json"], "servers", Dialect::Typed),
    json_of("zed", "Zed", &["$config/zed/settings.json"], "context_servers", Dialect::Zed),
    json_of("windsurf", "Windsurf", &[".codeium/windsurf/mcp_config.json"], "mcpServers", Dialect::Common),
    json_of(
        "cline",
        "Cline",
        &[
            "$config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ".cline/data/settings/cline_mcp_settings.json",
        ],
        "mcpServers",
        Dialect::Common,
    ),
    json_of("continue", "Continue", &[".continue/mcpServers/mcp.json"], "mcpServers", Dialect::Common),
    json_of("gemini", "Gemini CLI", &[".gemini/settings.json"], "mcpServers", Dialect::Gemini),
    json_of(
        "opencode",
        "OpenCode",
        &["$config/opencode/opencode.json", "$config/opencode/opencode.jsonc"],
        "mcp",
        Dialect::OpenCode,
    ),
];

/// The words between a client and a server that it starts behind agentsh.
const WRAPPER_COMMAND: [&str; 3] = ["mcp", "run", "--id"];

/// A configuration as it would be, and what became of each server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangedConfiguration {
    pub text: String,
    pub done: Vec<String>,
    /// Servers that are left unchanged, each with the reason.
    pub left: Vec<(String, String)>,
}

impl Client {
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CLIENTS.iter().find(|client| client.name == name)
    }

    /// Its file for this user, which may not exist.
    #[must_use]
    pub fn file(&self, home: &Path, config: &Path) -> PathBuf {
        let place = |file: &&str| match file.strip_prefix("$config/") {
            Some(rest) => config.join(rest),
            None => home.join(file),
        };
        let mut places = self.files.iter().map(place);
        let first = places.next().unwrap_or_default();
        if first.exists() { first } else { places.find(|path| path.exists()).unwrap_or(first) }
    }

    /// One server alone, to be pasted.
    ///
    /// # Errors
    /// Never for a name without control characters.
    pub fn snippet(&self, id: &str, start: &Start) -> Result<String, AgentError> {
        self.with_server("", Path::new("new"), id, start).map(|changed| changed.text)
    }

    /// The configuration with this server; the same text when it is there already.
    ///
    /// # Errors
    /// When the file cannot be understood, or would lose its comments.
    pub fn with_server(
        &self,
        text: &str,
        path: &Path,
        id: &str,
        start: &Start,
    ) -> Result<ChangedConfiguration, AgentError> {
        self.change(text, path, |list, changed| {
            let before = list.get(id).cloned();
            let entry = self.dialect.server_entry(start, before.as_ref());
            if before.as_ref() != Some(&entry) {
                changed.done.push(id.to_owned());
                list.insert(id.to_owned(), entry);
            }
        })
    }

    /// The configuration with every server that is a program behind `agentsh mcp run`.
    ///
    /// # Errors
    /// When the file cannot be understood, or would lose its comments.
    pub fn wrap_servers(
        &self,
        text: &str,
        path: &Path,
        agentsh: &str,
    ) -> Result<ChangedConfiguration, AgentError> {
        self.change(text, path, |list, changed| {
            for (id, entry) in list.iter_mut() {
                match self.wrapped_entry(id, entry, agentsh) {
                    Ok(wrapped) => {
                        *entry = wrapped;
                        changed.done.push(id.clone());
                    }
                    Err(why) => changed.left.push((id.clone(), why.to_owned())),
                }
            }
        })
    }

    /// The configuration as it was before [`Client::wrap_servers`].
    ///
    /// # Errors
    /// When the file cannot be understood, or would lose its comments.
    pub fn without_agentsh(&self, text: &str, path: &Path) -> Result<ChangedConfiguration, AgentError> {
        self.change(text, path, |list, changed| {
            for (id, entry) in list.iter_mut() {
                let common = self.dialect.common(entry);
                let Some((command, args)) = command_and_arguments(&common) else { continue };
                let Some(rest) = wrapped_command(&command, &args) else { continue };
                let Some((command, args)) = rest.split_first() else { continue };
                let start = Start { command: command.clone(), args: args.to_vec(), env: variables(&common) };
                *entry = self.entry_with_command(&start, entry);
                changed.done.push(id.clone());
            }
        })
    }

    fn wrapped_entry(&self, id: &str, entry: &Value, agentsh: &str) -> Result<Value, &'static str> {
        let common = self.dialect.common(entry);
        let Some((command, args)) = command_and_arguments(&common) else {
            return Err(if common.get("url").is_some() || common.get("serverUrl").is_some() {
                "it is a remote server: see `agentsh client-config`"
            } else {
                "it has no command"
            });
        };
        if wrapped_command(&command, &args).is_some() || is_agentsh(&command) {
            return Err("it already runs through agentsh");
        }
        let env = variables(&common);
        let mut all: Vec<String> = WRAPPER_COMMAND.iter().map(|word| (*word).to_owned()).collect();
        all.push(id.to_owned());
        // Variables that the client sets by name for this server are passed to it.
        for name in env.keys() {
            all.extend(["--env".to_owned(), name.clone()]);
        }
        all.push("--".to_owned());
        all.push(command);
        all.extend(args);
        Ok(self.entry_with_command(&Start { command: agentsh.to_owned(), args: all, env }, entry))
    }

    /// Replaces the command; everything else of the entry stays in its place.
    fn entry_with_command(&self, start: &Start, before: &Value) -> Value {
        let new = self.dialect.server_entry(start, None);
        let mut entry = before.as_object().cloned().unwrap_or_default();
        for member in ["command", "args", "cmd"] {
            match new.get(member) {
                Some(value) if member != "args" || !start.args.is_empty() => {
                    entry.insert(member.to_owned(), value.clone());
                }
                _ => {
                    entry.shift_remove(member);
                }
            }
        }
        Value::Object(entry)
    }

    fn change(
        &self,
        text: &str,
        path: &Path,
        change: impl FnOnce(&mut Map<String, Value>, &mut ChangedConfiguration),
    ) -> Result<ChangedConfiguration, AgentError> {
        if self.is_toml { self.change_toml(text, path, change) } else { self.change_json(text, path, change) }
    }

    fn change_json(
        &self,
        text: &str,
        path: &Path,
        change: impl FnOnce(&mut Map<String, Value>, &mut ChangedConfiguration),
    ) -> Result<ChangedConfiguration, AgentError> {
        let bad = |what: String, fix: &str| AgentError::Config {
            path: path.to_owned(),
            line: 1,
            what,
            fix: fix.to_owned(),
        };
        let empty = text.trim().is_empty();
        let mut document = if empty { Value::Object(Map::new()) } else { json::parse_relaxed(text, path)? };
        let Some(root) = document.as_object_mut() else {
            return Err(bad("not a JSON object".to_owned(), "correct the file"));
        };
        let mut list = match root.get(self.key) {
            None => Map::new(),
            Some(Value::Object(list)) => list.clone(),
            Some(_) => return Err(bad(format!("\"{}\" is not an object", self.key), "correct it")),
        };
        let mut changed = ChangedConfiguration::default();
        change(&mut list, &mut changed);
        if changed.done.is_empty() {
            changed.text = text.to_owned();
            return Ok(changed);
        }
        // Only a comment makes the two differ in more than spaces for commas.
        if !empty && json::blank_comments(text) != text {
            return Err(bad(
                "it has comments, which would be lost".to_owned(),
                "remove them, or paste the output of this command without --write",
            ));
        }
        root.insert(self.key.to_owned(), Value::Object(list));
        changed.text = render(&document, text)?;
        Ok(changed)
    }

    /// Writes only what changed: comments stay.
    fn change_toml(
        &self,
        text: &str,
        path: &Path,
        change: impl FnOnce(&mut Map<String, Value>, &mut ChangedConfiguration),
    ) -> Result<ChangedConfiguration, AgentError> {
        let bad = |what: String| AgentError::Config {
            path: path.to_owned(),
            line: 1,
            what,
            fix: "correct the file".to_owned(),
        };
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| bad(format!("not valid TOML: {}", error.message())))?;
        let list = table.get(self.key).cloned().unwrap_or_else(|| toml::Value::Table(toml::Table::new()));
        let list =
            serde_json::to_value(list).map_err(|error| AgentError::Render { what: error.to_string() })?;
        let Value::Object(mut list) = list else {
            return Err(bad(format!("'{}' is not a table", self.key)));
        };
        let before = list.clone();
        let mut changed = ChangedConfiguration::default();
        change(&mut list, &mut changed);
        if changed.done.is_empty() {
            changed.text = text.to_owned();
            return Ok(changed);
        }
        let mut document: toml_edit::DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| bad(error.message().to_owned()))?;
        let servers = document.entry(self.key).or_insert_with(|| {
            let mut table = toml_edit::Table::new();
            table.set_implicit(true);
            toml_edit::Item::Table(table)
        });
        let Some(servers) = servers.as_table_like_mut() else {
            return Err(bad(format!("'{}' is not a table", self.key)));
        };
        for (id, entry) in &list {
            if before.get(id) == Some(entry) {
                continue;
            }
            let own = servers.entry(id).or_insert_with(toml_edit::table);
            let Some(own) = own.as_table_like_mut() else {
                return Err(bad(format!("'{id}' is not a table")));
            };
            for (name, value) in entry.as_object().into_iter().flatten() {
                if before.get(id).and_then(|before| before.get(name)) != Some(value)
                    && let Some(value) = toml_value(value)
                {
                    own.insert(name, toml_edit::Item::Value(value));
                }
            }
        }
        changed.text = document.to_string();
        Ok(changed)
    }
}

fn toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::String(text) => text.as_str().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => number.as_i64()?.into(),
        Value::Array(items) => {
            items.iter().map(toml_value).collect::<Option<toml_edit::Array>>().map(toml_edit::Value::Array)?
        }
        Value::Object(members) => {
            let mut table = toml_edit::InlineTable::new();
            for (name, value) in members {
                table.insert(name, toml_value(value)?);
            }
            toml_edit::Value::InlineTable(table)
        }
        Value::Null => return None,
    })
}

/// Pretty-printed, with the indentation that the text had.
fn render(document: &Value, before: &str) -> Result<String, AgentError> {
    use serde::Serialize as _;
    let indented = before.lines().find_map(|line| {
        let length = line.len() - line.trim_start().len();
        line.get(..length).filter(|start| !start.is_empty())
    });
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indented.unwrap_or("  ").as_bytes());
    let mut bytes = Vec::new();
    let failed = |error: serde_json::Error| AgentError::Render { what: error.to_string() };
    document.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter)).map_err(failed)?;
    let mut text =
        String::from_utf8(bytes).map_err(|error| AgentError::Render { what: error.to_string() })?;
    if before.is_empty() || before.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// The command of an entry in the common form, and its arguments.
fn command_and_arguments(common: &Value) -> Option<(String, Vec<String>)> {
    let command = common.get("command")?.as_str()?.to_owned();
    let args = common.get("args").and_then(Value::as_array).into_iter().flatten();
    Some((command, args.filter_map(|word| word.as_str().map(str::to_owned)).collect()))
}

fn variables(common: &Value) -> std::collections::BTreeMap<String, String> {
    let env = common.get("env").and_then(Value::as_object).into_iter().flatten();
    env.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// The words of the server, of one that [`Client::wrap_servers`] has put behind agentsh.
fn wrapped_command(command: &str, args: &[String]) -> Option<Vec<String>> {
    let is_ours = is_agentsh(command)
        && args.iter().zip(WRAPPER_COMMAND).filter(|(word, ours)| *word == ours).count() == 3;
    let end = args.iter().position(|word| word == "--").filter(|_| is_ours)?;
    args.get(end + 1..).map(<[String]>::to_vec).filter(|words| !words.is_empty())
}

fn is_agentsh(command: &str) -> bool {
    command.rsplit('/').next() == Some("agentsh")
}
