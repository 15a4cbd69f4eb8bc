//! Plugins of Claude Code that the user has enabled. With a strict list it starts none of their servers, so agentsh
//! adds them to the list, behind bridges, with the names that their tools have anyway.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::argv::Parsed;
use super::config::KEPT_MEMBERS;
use super::settings::Settings;
use crate::plugins::{Plugin, PluginLayout, add};
use crate::servers::GatheredServers;
use crate::{Context, Scope, json, read};

const LIST: &str = "plugins/installed_plugins.json";
const MANIFEST: &str = ".claude-plugin/plugin.json";
/// The marketplace of plugins in the skills directory.
const OF_SKILLS: &str = "skills-dir";
/// Maximum number of skills examined. Further ones have no servers, because Claude Code starts only those of the
/// list.
const MAX_SKILLS: usize = 1_000;
const PLUGIN_LAYOUT: PluginLayout<'_> = PluginLayout {
    manifests: &[MANIFEST],
    root: &["CLAUDE_PLUGIN_ROOT"],
    id,
    starts_in_root: false,
    kept: KEPT_MEMBERS,
};

/// The id in tool names: `mcp__plugin_PLUGIN_SERVER__TOOL`.
fn id(plugin: &str, server: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    format!("plugin_{plugin}_{server}").chars().map(plain).collect()
}

/// Adds the servers of the user's plugins, and of those that the command line names.
pub(super) fn servers(
    context: &Context<'_>,
    parsed: &Parsed,
    settings: &Settings,
    directory: &Path,
    into: &mut GatheredServers,
) {
    for plugin in installed_plugins(context, settings, directory, into) {
        add(context, &plugin, &PLUGIN_LAYOUT, into);
    }
    for root in in_skills(directory) {
        let name = manifest_name(&root).unwrap_or_default();
        if !settings.switches_off(&format!("{name}@{OF_SKILLS}")) {
            add(context, &Plugin { name, root, scope: Scope::User }, &PLUGIN_LAYOUT, into);
        }
    }
    let within = |directory: &&Path| directory.starts_with(context.project);
    for root in context.cwd.ancestors().filter(within).flat_map(|above| in_skills(&above.join(".claude"))) {
        into.notes.push(format!(
            "{}: this plugin came with the project; MCP servers that it declares are not started",
            agentsh_base::escape::line(&root.display().to_string())
        ));
    }
    for named in &parsed.plugin_dirs {
        let root = context.cwd.join(named);
        let name = manifest_name(&root)
            .or_else(|| Some(root.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_default();
        add(context, &Plugin { name, root, scope: Scope::CommandLine }, &PLUGIN_LAYOUT, into);
    }
    if parsed.plugin_urls {
        into.notes.push("MCP servers of plugins from a URL (--plugin-url) are not started".to_owned());
    }
}

/// Directories of skills that say they are plugins.
fn in_skills(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join("skills")).into_iter().flatten().flatten();
    let is_plugin = |root: &PathBuf| root.join(MANIFEST).is_file();
    let mut found: Vec<PathBuf> =
        entries.take(MAX_SKILLS).map(|entry| entry.path()).filter(is_plugin).collect();
    found.sort();
    found
}

fn manifest_name(root: &Path) -> Option<String> {
    let path = root.join(MANIFEST);
    let manifest = json::parse(&read::text(&path, read::LIMIT).ok()??, &path).ok()?;
    Some(manifest.get("name")?.as_str()?.to_owned())
}

/// The installed plugins that the user's settings enable for this project.
fn installed_plugins(
    context: &Context<'_>,
    settings: &Settings,
    directory: &Path,
    into: &mut GatheredServers,
) -> Vec<Plugin> {
    let path = directory.join(LIST);
    let list = match read::text(&path, read::LIMIT)
        .and_then(|text| text.map(|text| json::parse(&text, &path)).transpose())
    {
        Ok(list) => list.unwrap_or_default(),
        Err(error) => {
            into.notes.push(format!("{error}; MCP servers of plugins are not started"));
            return Vec::new();
        }
    };
    let mut plugins = Vec::new();
    for (key, found) in list.get("plugins").and_then(Value::as_object).into_iter().flatten() {
        if !settings.switches_on(key) {
            continue;
        }
        // One entry for each place of installation; older lists have a single one.
        let places =
            if let Value::Array(places) = found { places.as_slice() } else { std::slice::from_ref(found) };
        let is_for_this = |place: &&Value| {
            let of = place.get("projectPath").and_then(Value::as_str);
            of.is_none_or(|of| Path::new(of) == context.project || Path::new(of) == context.cwd)
        };
        let root = places.iter().filter(is_for_this).find_map(|place| place.get("installPath")?.as_str());
        let name = key.split('@').next().unwrap_or(key).to_owned();
        match root {
            Some(root) => plugins.push(Plugin { name, root: PathBuf::from(root), scope: Scope::User }),
            None if places.iter().any(|place| place.get("projectPath").is_some()) => {}
            None => into.notes.push(format!(
                "{}: the plugin {} has no path; its MCP servers are not started",
                path.display(),
                agentsh_base::escape::line(&name)
            )),
        }
    }
    plugins
}
