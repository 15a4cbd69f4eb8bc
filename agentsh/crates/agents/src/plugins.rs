//! MCP servers of an agent's plugin: declared in a file or in the manifest, below the directory where the user
//! installed the plugin.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::servers::{EntrySource, GatheredServers, read_server_entries};
use super::{AgentError, Context, Scope, Transport, expand, json, read};
use agentsh_base::types::ServerId;

/// One plugin that the user has installed and enabled.
pub(super) struct Plugin {
    pub name: String,
    pub root: PathBuf,
    pub scope: Scope,
}

/// How an agent names and starts the servers of its plugins.
pub(super) struct PluginLayout<'a> {
    /// The possible paths of a manifest, below the plugin's directory.
    pub manifests: &'a [&'a str],
    /// The variables that mean the plugin's directory.
    pub root: &'a [&'a str],
    /// The name of a server, from those of its plugin and of its entry.
    pub id: fn(&str, &str) -> String,
    /// Servers start in the plugin's directory.
    pub starts_in_root: bool,
    pub kept: &'a [&'a str],
}

/// The file in which a plugin declares its servers if its manifest names none.
const USUAL_FILE: &str = ".mcp.json";

/// Adds the servers of a plugin as the user's declarations. One that cannot be read or bridged is reported and not started.
pub(super) fn add(
    context: &Context<'_>,
    plugin: &Plugin,
    customs: &PluginLayout<'_>,
    into: &mut GatheredServers,
) {
    let shown = agentsh_base::escape::line(&plugin.name).into_owned();
    let root = match std::fs::canonicalize(&plugin.root) {
        Ok(root) => root,
        Err(error) => {
            return into.notes.push(format!(
                "MCP servers of the plugin {shown} are not started: {}: {error}",
                plugin.root.display()
            ));
        }
    };
    let project = std::fs::canonicalize(context.project).unwrap_or_else(|_| context.project.to_owned());
    if root.starts_with(project) && plugin.scope != Scope::CommandLine {
        return into.notes.push(format!(
            "MCP servers of the plugin {shown} are not started: it is in the project ({}), where the agent or a commit may have put it",
            root.display()
        ));
    }
    let mut inner = GatheredServers::default();
    if let Err(error) = declarations(context, plugin, &root, customs, &mut inner) {
        into.notes.push(format!("MCP servers of the plugin {shown} are not started: {error}"));
    }
    into.notes.append(&mut inner.notes);
    for (id, mut found) in inner.found {
        let id = ServerId((customs.id)(&plugin.name, &id.0));
        if let Some(problem) = prepare_server(&mut found.declared.transport, &root, customs) {
            into.refused.push((id, problem));
        } else if let std::collections::btree_map::Entry::Vacant(entry) = into.found.entry(id.clone()) {
            found.declared.id = id;
            entry.insert(found);
        }
    }
}

/// The file at its usual place, and what the manifest adds.
fn declarations(
    context: &Context<'_>,
    plugin: &Plugin,
    root: &Path,
    customs: &PluginLayout<'_>,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    file(context, plugin, root, &root.join(USUAL_FILE), customs, into)?;
    for name in customs.manifests {
        let path = root.join(name);
        let Some(text) = read::text(&path, read::LIMIT)? else { continue };
        let manifest = json::parse(&text, &path)?;
        let Some(servers) = manifest.get("mcpServers") else { break };
        let parts =
            if let Value::Array(parts) = servers { parts.as_slice() } else { std::slice::from_ref(servers) };
        for part in parts {
            match part {
                Value::String(named) => named_file(context, plugin, root, named, customs, into)?,
                entries => entries_of(context, entries, (&path, plugin.scope), root, customs, into)?,
            }
        }
        break;
    }
    Ok(())
}

/// A file of the plugin, or a bundle, which brings its own program.
fn named_file(
    context: &Context<'_>,
    plugin: &Plugin,
    root: &Path,
    named: &str,
    customs: &PluginLayout<'_>,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    let shown = agentsh_base::escape::line(named).into_owned();
    let lower = named.to_ascii_lowercase();
    if lower.ends_with(".mcpb") || lower.ends_with(".dxt") || named.contains("://") {
        into.notes.push(format!(
            "the bundle {shown} of the plugin {} is not started: unpack it, and declare its server yourself",
            agentsh_base::escape::line(&plugin.name)
        ));
        return Ok(());
    }
    let path = root.join(named);
    let is_inside = std::fs::canonicalize(&path).is_ok_and(|real| real.starts_with(root));
    if !is_inside {
        into.notes.push(format!(
            "servers of the plugin {} are not started: {shown} is not in its directory",
            agentsh_base::escape::line(&plugin.name)
        ));
        return Ok(());
    }
    file(context, plugin, root, &path, customs, into)
}

/// Servers under `mcpServers`, or at the top.
fn file(
    context: &Context<'_>,
    plugin: &Plugin,
    root: &Path,
    path: &Path,
    customs: &PluginLayout<'_>,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    let Some(text) = read::text(path, read::LIMIT)? else { return Ok(()) };
    if text.trim().is_empty() {
        return Ok(());
    }
    let document = json::parse(&text, path)?;
    let entries = document.get("mcpServers").unwrap_or(&document);
    entries_of(context, entries, (path, plugin.scope), root, customs, into)
}

fn entries_of(
    context: &Context<'_>,
    entries: &Value,
    (file, scope): (&Path, Scope),
    root: &Path,
    customs: &PluginLayout<'_>,
    into: &mut GatheredServers,
) -> Result<(), AgentError> {
    let mut env = context.env.clone();
    for name in customs.root {
        env.insert((*name).to_owned(), root.to_string_lossy().into_owned());
    }
    env.insert("CLAUDE_PROJECT_DIR".to_owned(), context.project.to_string_lossy().into_owned());
    let place = EntrySource { file, scope, agreed: false, lines: Default::default() };
    read_server_entries(
        entries,
        &place,
        customs.kept,
        |text, lookups| expand::braces(text, &env, lookups),
        into,
    )
}

/// Prepares a plugin's server as the agent does; the reason if it cannot be started here.
fn prepare_server(transport: &mut Transport, root: &Path, customs: &PluginLayout<'_>) -> Option<String> {
    let unknown = |text: &str| text.contains("${user_config.") || text.contains("${CLAUDE_PLUGIN_DATA}");
    let only_there =
        "it uses values that only the agent's plugin system knows; declare it yourself".to_owned();
    match transport {
        Transport::Stdio { command, args, env, cwd } => {
            let mut texts = std::iter::once(&*command).chain(&*args).chain(env.values()).chain(&*cwd);
            let is_unknown = texts.any(|text| unknown(text));
            drop(texts);
            if is_unknown {
                return Some(only_there);
            }
            for name in customs.root {
                env.entry((*name).to_owned()).or_insert_with(|| root.to_string_lossy().into_owned());
            }
            if customs.starts_in_root {
                let directory = cwd.as_ref().map_or_else(|| root.to_owned(), |cwd| root.join(cwd));
                *cwd = Some(directory.to_string_lossy().into_owned());
            }
            None
        }
        Transport::Remote { url, headers, .. } => {
            (unknown(url) || headers.values().any(|value| unknown(value))).then_some(only_there)
        }
    }
}
