//! One server entry of a JSON configuration: names, types, variables, and whether it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::agreement;
use super::expand::Lookups;
use super::{AgentError, Context, Declared, Launch, Origin, RemoteKind, Scope, Transport};
use agentsh_base::types::ServerId;

/// Each server is a process: more than this in one file is a mistake or an attack.
const MAX_SERVERS: usize = 256;
const MAX_NAME: usize = 128;
/// The name of the agent itself in policies, as the server of its own tools.
const OWN_TOOLS: &str = "agent";
pub(super) const PROJECTS_REMOTE: &str =
    "it came with the project and is a remote server; to use it, declare it in your own configuration";
/// Transports behind a URL that agentsh does not speak.
const UNSUPPORTED_TRANSPORTS: [&str; 4] = ["ws", "ws-ide", "sse-ide", "sdk"];
/// The agent's own credentials: nothing that came with the project gets them by naming them.
const CREDENTIALS: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "OPENAI_API_KEY",
];

/// A server, and those members of its entry that have nothing to do with launching it.
#[derive(Clone, Debug)]
pub(super) struct FoundServer {
    pub(super) declared: Declared,
    pub(super) kept: Map<String, Value>,
}

/// The servers that an adapter has found so far; a later declaration of a name replaces an earlier one.
#[derive(Debug, Default)]
pub(super) struct GatheredServers {
    pub(super) found: BTreeMap<ServerId, FoundServer>,
    pub(super) refused: Vec<(ServerId, String)>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug)]
pub(super) struct EntrySource<'a> {
    pub(super) file: &'a Path,
    pub(super) scope: Scope,
    /// The user has agreed to this file of the project.
    pub(super) agreed: bool,
    /// Lines of the servers' keys.
    pub(super) lines: BTreeMap<String, u64>,
}

/// Reads a `name: entry` object.
///
/// # Errors
/// For a bad entry, unless it came with the project: those are refused one by one.
pub(super) fn read_server_entries(
    entries: &Value,
    place: &EntrySource<'_>,
    kept: &[&str],
    mut expand: impl FnMut(&str, &mut Lookups) -> String,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    let problem = match entries {
        Value::Object(entries) if entries.len() <= MAX_SERVERS => {
            for (nth, (name, entry)) in entries.iter().enumerate() {
                gather_one((nth, name), entry, place, kept, &mut expand, into)?;
            }
            return Ok(());
        }
        Value::Object(entries) => {
            format!("{} MCP servers, more than the {MAX_SERVERS} supported", entries.len())
        }
        _ => "the list of MCP servers is not an object".to_owned(),
    };
    let error = config_error(place, 1, problem, "correct it");
    into.bad_file(place.scope, error)
}

impl GatheredServers {
    /// A bad file stops the launch, unless it came with the project.
    pub(super) fn bad_file(&mut self, scope: Scope, error: AgentError) -> Result<(), AgentError> {
        if scope != Scope::Project {
            return Err(error);
        }
        self.notes.push(format!("{error}; none of its servers is started"));
        Ok(())
    }

    /// Adds the policy's servers and moves what can be started into the launch. Returns the members of each
    /// entry that are to be kept.
    pub(super) fn finish(
        mut self,
        context: &Context<'_>,
        launch: &mut Launch,
    ) -> BTreeMap<ServerId, Map<String, Value>> {
        for (id, declared) in context.extra {
            let kept = self.found.remove(id).map(|found| found.kept).unwrap_or_default();
            self.refused.retain(|(refused, _)| refused != id);
            self.found.insert(id.clone(), FoundServer { declared: declared.clone(), kept });
        }
        let mut options = BTreeMap::new();
        for (id, found) in self.found {
            match found.declared.transport {
                // Everything that an agent sends there leaves this machine.
                Transport::Remote { .. } if found.declared.origin.scope == Scope::Project => {
                    launch.refused.push((id, PROJECTS_REMOTE.to_owned()));
                }
                Transport::Remote { kind: RemoteKind::Other, .. } => {
                    launch.refused.push((id, "agentsh does not support its transport".to_owned()));
                }
                Transport::Remote { .. } | Transport::Stdio { .. } => {
                    options.insert(id.clone(), found.kept);
                    launch.servers.insert(id, found.declared);
                }
            }
        }
        launch.refused.extend(self.refused);
        launch.notes.extend(self.notes);
        options
    }
}

/// Why a name cannot be used. Names become one argument, one directory entry and one line of a report.
pub(super) fn name_problem(name: &str) -> Option<String> {
    let spoofing = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if name.is_empty() {
        Some("its name is empty".to_owned())
    } else if name.len() > MAX_NAME {
        Some(format!("its name is longer than {MAX_NAME} bytes"))
    } else if name.chars().any(spoofing) {
        Some(format!("its name {name:?} contains invisible or control characters"))
    } else if name.contains('/') || name == "." || name == ".." {
        Some(format!("its name {name:?} reads like a path"))
    } else if name.starts_with('-') {
        Some(format!("its name {name:?} reads like an option"))
    } else if name.contains(['*', '?', '[']) {
        Some(format!("its name {name:?} reads like a pattern of a policy"))
    } else if name == OWN_TOOLS {
        Some(format!("the name {name:?} is reserved for the agent's own tools"))
    } else {
        None
    }
}

/// The entry that takes a server's place in the agent's configuration.
pub(super) fn bridge_entry(id: &ServerId, context: &Context<'_>) -> Map<String, Value> {
    let entry = json!({
        "command": context.bridge,
        "args": ["bridge", id.0],
        "env": {"AGENTSH_SOCKET": context.socket},
    });
    match entry {
        Value::Object(entry) => entry,
        _ => Map::new(),
    }
}

/// Complains about a variable that the project may not have.
pub(super) fn credential_problem(lookups: &Lookups) -> Option<String> {
    let name = lookups.used.iter().find(|name| CREDENTIALS.contains(&name.as_str()))?;
    Some(format!("it came with the project and requests {name}, which is the agent's own credential"))
}

fn gather_one(
    (nth, name): (usize, &str),
    entry: &Value,
    place: &EntrySource<'_>,
    kept: &[&str],
    expand: &mut impl FnMut(&str, &mut Lookups) -> String,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    let line = place.lines.get(name).copied().unwrap_or(0);
    let id = ServerId(name.to_owned());
    let origin = Origin { file: place.file.to_owned(), line, nth, scope: place.scope, agreed: place.agreed };
    let withhold = place.scope == Scope::Project && !place.agreed;
    let mut lookups = Lookups { withhold, ..Lookups::default() };
    let transport = match name_problem(name) {
        Some(problem) => Err(problem),
        None => transport(entry, &mut |text| expand(text, &mut lookups)),
    };
    let credential = if place.scope == Scope::Project { credential_problem(&lookups) } else { None };
    match (transport, credential) {
        (Ok(transport), None) => {
            if !(place.scope == Scope::Project && matches!(transport, Transport::Remote { .. })) {
                into.note_lookups(&id, &origin, &lookups);
            }
            let kept = members(entry, kept);
            into.found.insert(id.clone(), FoundServer { declared: Declared { id, transport, origin }, kept });
        }
        (Err(problem), _) | (Ok(_), Some(problem)) => {
            if place.scope != Scope::Project {
                let what = format!("MCP server {name:?}: {problem}");
                return Err(config_error(place, line, what, "correct or remove this entry"));
            }
            // The name goes into reports as it is: what could move a cursor must not.
            let shown = if name_problem(name).is_some() { name.escape_debug().to_string() } else { id.0 };
            into.refused.push((ServerId(shown), format!("{}:{line}: {problem}", place.file.display())));
        }
    }
    Ok(())
}

impl GatheredServers {
    fn note_lookups(&mut self, id: &ServerId, origin: &Origin, lookups: &Lookups) {
        let place = format!("{}:{}", origin.file.display(), origin.line);
        if !lookups.missing.is_empty() {
            let names = list(&lookups.missing);
            self.notes.push(format!("{place}: server {id} uses variables that are not set: {names}"));
        }
        if !lookups.withheld.is_empty() {
            self.notes.push(withheld_variables_note(&place, id, &lookups.withheld, &origin.file));
        }
        let lacking: BTreeSet<String> = lookups.missing.union(&lookups.withheld).cloned().collect();
        let given: Vec<&str> = lookups.used.difference(&lacking).map(String::as_str).collect();
        if origin.scope == Scope::Project && !given.is_empty() {
            let names = given.join(", ");
            self.notes.push(format!("{place}: server {id} came with the project and gets: {names}"));
        }
    }
}

fn transport(entry: &Value, expand: &mut impl FnMut(&str) -> String) -> Result<Transport, String> {
    let Value::Object(entry) = entry else { return Err("its entry is not an object".to_owned()) };
    let kind = match entry.get("type").or_else(|| entry.get("transport")) {
        None => None,
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(_) => return Err("its type is not a string".to_owned()),
    };
    let url = ["url", "httpUrl", "serverUrl"].iter().find_map(|key| entry.get(*key));
    match (kind, url) {
        (Some("stdio") | None, None) => {}
        (None, Some(_)) if entry.contains_key("command") => {
            return Err("it has both a command and a URL".to_owned());
        }
        (
            Some("http" | "streamable-http" | "streamableHttp" | "sse" | "ws" | "sse-ide" | "ws-ide" | "sdk"),
            _,
        )
        | (None, Some(_)) => {
            let kind = match kind {
                Some(kind) if UNSUPPORTED_TRANSPORTS.contains(&kind) => RemoteKind::Other,
                Some("sse") => RemoteKind::Sse,
                _ => RemoteKind::Http,
            };
            let url = url.and_then(Value::as_str).ok_or("its URL is not a string")?;
            let headers = strings(entry, "headers", expand)?;
            return Ok(Transport::Remote { url: expand(url), headers, kind });
        }
        (Some("stdio"), Some(_)) => return Err("it is of type stdio and has a URL".to_owned()),
        (Some(other), _) => return Err(format!("its type {other:?} is unknown")),
    }
    let command = match entry.get("command") {
        Some(Value::String(command)) => checked(expand(command), "command")?,
        Some(_) => return Err("its command is not a string".to_owned()),
        None => return Err("it has no command".to_owned()),
    };
    if command.is_empty() {
        return Err("its command is empty".to_owned());
    }
    let args = match entry.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(args)) => args
            .iter()
            .map(|arg| match arg {
                Value::String(arg) => checked(expand(arg), "args"),
                _ => Err("its args contain something that is not a string".to_owned()),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err("its args are not a list".to_owned()),
    };
    let env = strings(entry, "env", expand)?;
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(format!("its env names a variable {name:?}"));
    }
    let cwd = match entry.get("cwd") {
        None | Some(Value::Null) => None,
        Some(Value::String(cwd)) => Some(checked(expand(cwd), "cwd")?),
        Some(_) => return Err("its cwd is not a string".to_owned()),
    };
    Ok(Transport::Stdio { command, args, env, cwd })
}

/// An object of names and texts.
fn strings(
    entry: &Map<String, Value>,
    key: &str,
    expand: &mut impl FnMut(&str) -> String,
) -> Result<BTreeMap<String, String>, String> {
    let read = |(name, value): (&String, &Value)| match value {
        Value::String(value) => Ok((name.clone(), checked(expand(value), key)?)),
        _ => Err(format!("its {key} gives {name:?} a value that is not a string")),
    };
    match entry.get(key) {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(values)) => values.iter().map(read).collect(),
        Some(_) => Err(format!("its {key} is not an object")),
    }
}

fn checked(value: String, key: &str) -> Result<String, String> {
    if value.contains('\0') { Err(format!("its {key} contains a NUL character")) } else { Ok(value) }
}

fn members(entry: &Value, kept: &[&str]) -> Map<String, Value> {
    let take = |key: &&str| entry.get(*key).map(|value| ((*key).to_owned(), value.clone()));
    kept.iter().filter_map(take).filter(|(_, value)| value.is_number() || value.is_boolean()).collect()
}

/// Variables that a server of the project asked for and does not get.
pub(super) fn withheld_variables_note(
    place: &str,
    id: &ServerId,
    names: &BTreeSet<String>,
    file: &Path,
) -> String {
    format!(
        "{place}: server {id} came with the project and does not get: {}; to approve it: {}",
        list(names),
        agreement::command(file)
    )
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn config_error(place: &EntrySource<'_>, line: u64, what: String, fix: &str) -> AgentError {
    if place.scope == Scope::CommandLine && place.file == Path::new(COMMAND_LINE) {
        return AgentError::CommandLine { what, fix: fix.to_owned() };
    }
    AgentError::Config { path: PathBuf::from(place.file), line, what, fix: fix.to_owned() }
}

/// Used in place of a file for the origin of text from the command line.
pub(super) const COMMAND_LINE: &str = "command line";
