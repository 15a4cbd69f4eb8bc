//! Where Claude Code's servers are declared, and which of them it would start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::argv::Parsed;
use super::plugins;
use super::repository;
use super::settings::Settings;
use crate::servers::{COMMAND_LINE, EntrySource, FoundServer, GatheredServers, read_server_entries};
use crate::{AgentError, Context, Origin, RemoteKind, Scope, Transport, agreement, expand, json, read};
use agentsh_base::types::ServerId;

/// Members of an entry that say how to use a server, not how to start it.
pub(super) const KEPT_MEMBERS: &[&str] = &["timeout", "alwaysLoad"];

/// The content of Claude Code's own directory and files.
#[derive(Debug)]
pub(super) struct Sources {
    /// `~/.claude`, or `CLAUDE_CONFIG_DIR`.
    pub(super) directory: PathBuf,
    /// The path of `~/.claude.json`.
    pub(super) state_path: PathBuf,
    pub(super) state: Option<Value>,
    /// Key of this project in `projects` of the state: the repository, else the working directory.
    pub(super) project_key: String,
    /// Every `.mcp.json` from the root down to the working directory.
    pub(super) mcp_json: Vec<PathBuf>,
    state_text: String,
}

/// Claude Code's own directory, if the user has moved it.
pub(super) fn custom_config_directory(context: &Context<'_>) -> Option<PathBuf> {
    let moved = context.env.get("CLAUDE_CONFIG_DIR").filter(|path| !path.is_empty());
    moved.map(|path| context.cwd.join(path))
}

/// Reads what is in Claude Code's own places.
pub(super) fn sources(context: &Context<'_>) -> Result<Sources, AgentError> {
    let moved = custom_config_directory(context);
    let directory = moved.clone().unwrap_or_else(|| context.home.join(".claude"));
    let old_place = directory.join(".config.json");
    let state_path = if old_place.exists() {
        old_place
    } else if moved.is_some() {
        directory.join(".claude.json")
    } else {
        context.home.join(".claude.json")
    };
    let state_text = read::text(&state_path, read::STATE_LIMIT)?.unwrap_or_default();
    let state =
        if state_text.trim().is_empty() { None } else { Some(json::parse(&state_text, &state_path)?) };
    let cwd = std::fs::canonicalize(context.cwd).unwrap_or_else(|_| context.cwd.to_owned());
    let project_key = repository::main_checkout(&cwd).to_string_lossy().into_owned();
    let mut mcp_json: Vec<PathBuf> = cwd
        .ancestors()
        .filter(|directory| directory.parent().is_some())
        .map(|directory| directory.join(".mcp.json"))
        .filter(|path| path.symlink_metadata().is_ok())
        .collect();
    mcp_json.reverse();
    Ok(Sources { directory, state_path, state, project_key, mcp_json, state_text })
}

/// Gathers every server that Claude Code would start, lowest precedence first.
pub(super) fn servers(
    context: &Context<'_>,
    parsed: &Parsed,
    sources: &Sources,
    settings: &Settings,
) -> Result<GatheredServers, AgentError> {
    let mut gathered = GatheredServers::default();
    let source = |name: &str| match &parsed.setting_sources {
        None => true,
        Some(list) => list.split(',').any(|item| item.trim() == name),
    };
    let simple = context.env.get("CLAUDE_CODE_SIMPLE").is_some_and(|value| value == "1" || value == "true");
    if !parsed.strict && !parsed.bare && !simple {
        if source("user") {
            state_servers(context, sources, &["mcpServers"], Scope::User, &mut gathered)?;
        }
        if source("project") {
            project_servers(context, sources, settings, &mut gathered)?;
        }
        if source("local") {
            let place = ["projects", sources.project_key.as_str(), "mcpServers"];
            state_servers(context, sources, &place, Scope::Local, &mut gathered)?;
        }
    }
    if !parsed.strict && !parsed.bare && !simple {
        plugins::servers(context, parsed, settings, &sources.directory, &mut gathered);
    }
    for config in &parsed.configs {
        command_line_servers(context, config, &mut gathered)?;
    }
    let switched_off =
        strings(value_at(sources.state.as_ref(), &["projects", &sources.project_key, "disabledMcpServers"]));
    gathered.found.retain(|id, _| !switched_off.contains(&id.0));
    Ok(gathered)
}

/// Servers of one file that is Claude Code's own list, such as the one of an administrator.
pub(super) fn file_servers(
    context: &Context<'_>,
    path: &Path,
    scope: Scope,
    gathered: &mut GatheredServers,
) -> Result<(), AgentError> {
    let text = match read::text(path, read::LIMIT) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(()),
        Err(error) => return gathered.bad_file(scope, error),
    };
    if scope == Scope::Project && text.trim().is_empty() {
        return Ok(());
    }
    document_servers(context, &text, path, scope, gathered)
}

/// Turns the servers that a `--agents` value declares inside an agent into bridges, because Claude Code starts
/// them even when told to use no configuration but ours.
pub(super) fn agents_value(
    context: &Context<'_>,
    value: &str,
    gathered: &mut GatheredServers,
    bridge: impl Fn(&ServerId) -> Value,
) -> Result<String, AgentError> {
    let path = Path::new(COMMAND_LINE);
    let bad =
        |what: String| AgentError::CommandLine { what, fix: "correct the value of --agents".to_owned() };
    let mut agents = json::parse(value, path).map_err(|error| bad(format!("--agents: {error}")))?;
    for agent in agents.as_object_mut().into_iter().flat_map(|agents| agents.values_mut()) {
        let Some(Value::Array(list)) = agent.get_mut("mcpServers") else {
            if agent.get("mcpServers").is_some() {
                return Err(bad("--agents: mcpServers is not a list".to_owned()));
            }
            continue;
        };
        for entries in list.iter_mut().filter(|entry| !entry.is_string()) {
            let mut inner = GatheredServers::default();
            let place = EntrySource {
                file: path,
                scope: Scope::CommandLine,
                agreed: false,
                lines: Default::default(),
            };
            read_server_entries(
                entries,
                &place,
                KEPT_MEMBERS,
                |text, lookups| expand::braces(text, context.env, lookups),
                &mut inner,
            )?;
            gathered.notes.append(&mut inner.notes);
            for (id, found) in inner.found {
                if gathered
                    .found
                    .get(&id)
                    .is_some_and(|other| other.declared.transport != found.declared.transport)
                {
                    return Err(bad(format!(
                        "--agents declares the MCP server {id}, which is also declared elsewhere"
                    )));
                }
                let other =
                    matches!(found.declared.transport, Transport::Remote { kind: RemoteKind::Other, .. });
                if let Some(entry) = entries.as_object_mut() {
                    if other {
                        entry.shift_remove(&id.0)
                    } else {
                        entry.insert(id.0.clone(), bridge(&id))
                    };
                }
                gathered.found.insert(id, found);
            }
        }
        list.retain(|entry| entry.as_object().is_none_or(|entries| !entries.is_empty()));
    }
    serde_json::to_string(&agents).map_err(|error| AgentError::Render { what: error.to_string() })
}

fn state_servers(
    context: &Context<'_>,
    sources: &Sources,
    keys: &[&str],
    scope: Scope,
    gathered: &mut GatheredServers,
) -> Result<(), AgentError> {
    let Some(entries) = value_at(sources.state.as_ref(), keys) else { return Ok(()) };
    let lines = json::key_lines(&sources.state_text, keys);
    let place = EntrySource { file: &sources.state_path, scope, agreed: false, lines };
    read_server_entries(
        entries,
        &place,
        KEPT_MEMBERS,
        |text, lookups| expand::braces(text, context.env, lookups),
        gathered,
    )
}

fn project_servers(
    context: &Context<'_>,
    sources: &Sources,
    settings: &Settings,
    gathered: &mut GatheredServers,
) -> Result<(), AgentError> {
    let mut project = GatheredServers::default();
    let mut unapproved = BTreeMap::<PathBuf, Vec<String>>::new();
    for path in &sources.mcp_json {
        file_servers(context, path, Scope::Project, &mut project)?;
    }
    for (id, FoundServer { declared, kept }) in project.found {
        if settings.disables(&id) {
            project.notes.push(format!("server {id} of the project is disabled in Claude Code's settings"));
            continue;
        }
        let runs = matches!(declared.transport, Transport::Stdio { .. });
        let is_approved = settings.approves(&id);
        let Origin { file, line, .. } = &declared.origin;
        // The policy's grants for that name were meant for the user's own server.
        if !is_approved && gathered.found.contains_key(&id) {
            project.notes.push(format!(
                "{}:{line}: server {id} of the project has the name of one of your own, which is started instead; \
                 approve it in Claude Code to start the project's",
                file.display()
            ));
            continue;
        }
        if runs && !is_approved && !declared.origin.agreed {
            unapproved.entry(file.clone()).or_default().push(id.to_string());
        }
        gathered.found.insert(id, FoundServer { declared, kept });
    }
    gathered.refused.extend(project.refused);
    gathered.notes.extend(project.notes);
    gathered.notes.extend(unapproved.iter().map(|(file, ids)| {
        format!(
            "{} is not approved, so its servers run without your environment variables: {}; to approve it: `{}`",
            file.display(),
            ids.join(", "),
            agreement::command(file)
        )
    }));
    Ok(())
}

fn command_line_servers(
    context: &Context<'_>,
    config: &str,
    gathered: &mut GatheredServers,
) -> Result<(), AgentError> {
    if config.trim_start().starts_with('{') {
        return document_servers(context, config, Path::new(COMMAND_LINE), Scope::CommandLine, gathered);
    }
    let path = context.cwd.join(config);
    let Some(text) = read::text(&path, read::LIMIT)? else {
        return Err(AgentError::CommandLine {
            what: format!("--mcp-config names {}, which does not exist", path.display()),
            fix: "correct the path".to_owned(),
        });
    };
    document_servers(context, &text, &path, Scope::CommandLine, gathered)
}

fn document_servers(
    context: &Context<'_>,
    text: &str,
    path: &Path,
    scope: Scope,
    gathered: &mut GatheredServers,
) -> Result<(), AgentError> {
    let missing = || AgentError::Config {
        path: path.to_owned(),
        line: 1,
        what: "no \"mcpServers\" object".to_owned(),
        fix: "put the servers under \"mcpServers\"".to_owned(),
    };
    let document = match json::parse(text, path) {
        Ok(document) => document,
        Err(error) => return gathered.bad_file(scope, error),
    };
    let Some(entries) = document.get("mcpServers") else { return gathered.bad_file(scope, missing()) };
    let agreed = scope == Scope::Project && agreement::is_agreed(context.agreed, path, text);
    let place = EntrySource { file: path, scope, agreed, lines: json::key_lines(text, &["mcpServers"]) };
    read_server_entries(
        entries,
        &place,
        KEPT_MEMBERS,
        |text, lookups| expand::braces(text, context.env, lookups),
        gathered,
    )
}

fn value_at<'v>(value: Option<&'v Value>, keys: &[&str]) -> Option<&'v Value> {
    keys.iter().try_fold(value?, |value, key| value.get(*key))
}

pub(super) fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
