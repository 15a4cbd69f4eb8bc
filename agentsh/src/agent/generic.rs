//! Agents without an adapter of their own: the policy names the JSON file that lists their servers, and a copy
//! with bridges is mounted over it. `mcpServers` is the form of Claude Desktop, Cursor, Windsurf and Gemini,
//! `servers` the one of VS Code.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::expand::{self, Lookups};
use super::servers::{Gathered, Place, bridge_entry, gather};
use super::{AgentError, Context, Launch, Scope, agreement, json, read};
use crate::types::ServerId;

/// Members of an entry that a bridge has no use for, or that would start something else.
const DROPPED: &[&str] = &[
    "args",
    "command",
    "cwd",
    "env",
    "envFile",
    "headers",
    "httpUrl",
    "serverUrl",
    "transport",
    "type",
    "url",
];

pub(super) fn adapt(context: &Context<'_>) -> Result<Launch, AgentError> {
    let mut launch = Launch { argv: context.argv.to_vec(), ..Launch::default() };
    super::project_files::cover(context, &mut launch);
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
    let mut document = json::parse(&text, path)?;
    let key = match (document.get("mcpServers"), document.get("servers")) {
        (Some(_), Some(_)) => {
            return Err(bad(
                "both \"mcpServers\" and \"servers\"".to_owned(),
                "keep the one that the agent reads",
            ));
        }
        (_, Some(_)) => "servers",
        _ => "mcpServers",
    };
    let Some(root) = document.as_object_mut() else {
        return Err(bad("not a JSON object".to_owned(), "correct the file"));
    };
    let scope = if path.starts_with(context.project) { Scope::Project } else { Scope::User };
    let entries = root.entry(key).or_insert_with(|| Value::Object(Map::new()));
    let mut gathered = Gathered::default();
    let agreed = scope == Scope::Project && agreement::is_agreed(context.agreed, path, &text);
    let place = Place { file: path, scope, agreed, lines: json::key_lines(&text, &[key]) };
    let expand =
        |text: &str, lookups: &mut Lookups| expand::editor(text, context.env, &directories(context), lookups);
    gather(entries, &place, &[], expand, &mut gathered)?;
    refuse_prompted(&mut gathered);
    let wanted = gathered.finish(context, &mut launch);
    *entries = Value::Object(rewritten(entries, wanted.into_keys(), key, context));
    let mut content = serde_json::to_vec_pretty(&document)
        .map_err(|error| AgentError::Render { what: error.to_string() })?;
    content.push(b'\n');
    launch.replaced.push((path.to_owned(), content));
    Ok(launch)
}

/// The list with bridges: the other members of an entry, such as an approval list, stay as they are.
fn rewritten(
    entries: &Value,
    wanted: impl Iterator<Item = ServerId>,
    key: &str,
    context: &Context<'_>,
) -> Map<String, Value> {
    let entry = |id: ServerId| {
        let mut entry = bridge_entry(&id, context);
        if key == "servers" {
            entry.insert("type".to_owned(), "stdio".into());
        }
        let before = entries.get(&id.0).and_then(Value::as_object).into_iter().flatten();
        entry.extend(
            before
                .filter(|(name, _)| !DROPPED.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        (id.0, Value::Object(entry))
    };
    wanted.map(entry).collect()
}

/// Takes out the servers whose values only the editor can ask for.
fn refuse_prompted(gathered: &mut Gathered) {
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
            "it uses ${input:...} or ${command:...}, which only the editor knows; write the value out";
        gathered.refused.push((id, reason.to_owned()));
    }
}

fn directories<'a>(context: &Context<'_>) -> BTreeMap<&'a str, String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    BTreeMap::from([
        ("workspaceFolder", text(context.project)),
        ("workspaceRoot", text(context.project)),
        ("userHome", text(context.home)),
    ])
}
