//! Agents without an adapter: the policy names the JSON file with their servers, and a copy with bridges is mounted
//! over it. The key of the list shows the format.

use std::path::Path;

use serde_json::{Map, Value};

use super::adapter::Adapter;
use super::dialect::{Dialect, Start};
use super::servers::{EntrySource, GatheredServers, read_server_entries};
use super::{AgentError, Context, Launch, Scope, agreement, json, read};
use agentsh_base::types::ServerId;

pub(super) const ADAPTER: Adapter = Adapter {
    name: "generic",
    title: "an agent without an adapter",
    programs: &[],
    installed: &[],
    headless: &[],
    environment: &[],
    adapt: |context, _| adapt(context),
    obeyed: |_| Vec::new(),
};

/// Keys under which programs list their servers, and how entries look there. `mcpServers` is the form of Claude Desktop,
/// Cursor, Windsurf and Gemini, `servers` the one of VS Code.
const LISTS: &[(&str, Dialect)] = &[
    ("mcpServers", Dialect::Common),
    ("servers", Dialect::Typed),
    ("mcp", Dialect::OpenCode),
    ("context_servers", Dialect::Zed),
    ("amp.mcpServers", Dialect::Common),
];

/// The key and dialect of a new list in a file that has none, by the name of the file.
fn default_key_and_dialect(path: &Path) -> (&'static str, Dialect) {
    let ends = |end: &str| path.ends_with(end);
    if ends("opencode.json") || ends("opencode.jsonc") {
        ("mcp", Dialect::OpenCode)
    } else if ends(".vscode/mcp.json") || ends("Code/User/mcp.json") {
        ("servers", Dialect::Typed)
    } else if ends("zed/settings.json") || ends(".zed/settings.json") {
        ("context_servers", Dialect::Zed)
    } else if ends("amp/settings.json") || ends(".amp/settings.json") {
        ("amp.mcpServers", Dialect::Common)
    } else {
        ("mcpServers", Dialect::Common)
    }
}

fn adapt(context: &Context<'_>) -> Result<Launch, AgentError> {
    let mut launch = Launch { argv: context.argv.to_vec(), ..Launch::default() };
    super::project::mask(context, &[], &mut launch);
    let Some(path) = context.generic_config else {
        if !context.extra.is_empty() {
            launch.notes.push(
                "the policy's MCP servers are not passed: name the agent's file in agent.mcp_config"
                    .to_owned(),
            );
        }
        return Ok(launch);
    };
    let bad = |what: String, fix: &str| AgentError::Config {
        path: path.to_owned(),
        line: 1,
        what,
        fix: fix.to_owned(),
    };
    let Some(text) = read::text(path, read::LIMIT)? else {
        return Err(bad("no such file".to_owned(), "create it, or correct agent.mcp_config in the policy"));
    };
    let mut document = json::parse_relaxed(&text, path)?;
    let Some(root) = document.as_object_mut() else {
        return Err(bad("not a JSON object".to_owned(), "correct the file"));
    };
    let lists: Vec<&(&str, Dialect)> = LISTS
        .iter()
        .filter(|(key, _)| root.get(*key).is_some_and(|list| *key != "mcp" || is_list(list)))
        .collect();
    let (key, dialect) = match lists.as_slice() {
        [] => default_key_and_dialect(path),
        [one] => **one,
        [one, other, ..] => {
            return Err(bad(
                format!("both \"{}\" and \"{}\"", one.0, other.0),
                "keep only the one that the agent reads",
            ));
        }
    };
    let scope = if path.starts_with(context.project) { Scope::Project } else { Scope::User };
    let entries = root.get(key).cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let mut gathered = GatheredServers::default();
    let agreed = scope == Scope::Project && agreement::is_agreed(context.agreed, path, &text);
    let place = EntrySource {
        file: path,
        scope,
        agreed,
        lines: json::key_lines(&json::blank_comments(&text), &[key]),
    };
    let common = match &entries {
        Value::Object(entries) => entries
            .iter()
            .filter(|(_, entry)| !dialect.is_off(entry))
            .map(|(name, entry)| (name.clone(), dialect.common(entry)))
            .collect(),
        other => other.clone(),
    };
    read_server_entries(
        &common,
        &place,
        &[],
        |text, lookups| dialect.expand(text, context, lookups),
        &mut gathered,
    )?;
    refuse_prompted(&mut gathered);
    let wanted = gathered.finish(context, &mut launch);
    let bridge = |id: &ServerId| {
        let start = Start {
            command: context.bridge.to_owned(),
            args: vec!["bridge".to_owned(), id.0.clone()],
            env: [("AGENTSH_SOCKET".to_owned(), context.socket.to_owned())].into(),
        };
        (id.0.clone(), dialect.server_entry(&start, entries.get(&id.0)))
    };
    let bridges: Map<String, Value> = wanted.keys().map(bridge).collect();
    if bridges.is_empty() && entries.as_object().is_some_and(Map::is_empty) {
        return Ok(launch);
    }
    root.insert(key.to_owned(), Value::Object(bridges));
    let mut content = serde_json::to_vec_pretty(&document)
        .map_err(|error| AgentError::Render { what: error.to_string() })?;
    content.push(b'\n');
    launch.replaced.push((path.to_owned(), content));
    Ok(launch)
}

/// Whether what is under a common word is a list of servers.
fn is_list(value: &Value) -> bool {
    value.as_object().is_some_and(|entries| entries.values().all(Value::is_object))
}

/// Takes out the servers whose values only the editor can ask for.
fn refuse_prompted(gathered: &mut GatheredServers) {
    let asks = |text: &str| text.contains("${input:") || text.contains("${command:");
    let prompted: Vec<ServerId> = gathered
        .found
        .iter()
        .filter(|(_, found)| match &found.declared.transport {
            super::Transport::Stdio { command, args, env, .. } => {
                asks(command) || args.iter().any(|arg| asks(arg)) || env.values().any(|value| asks(value))
            }
            super::Transport::Remote { .. } => false,
        })
        .map(|(id, _)| id.clone())
        .collect();
    for id in prompted {
        gathered.found.remove(&id);
        let reason =
            "it uses ${input:...} or ${command:...}, which only the editor knows; write the value itself";
        gathered.refused.push((id, reason.to_owned()));
    }
}
