//! Plugins of Codex that the user has enabled. Codex does not see their directory; their servers are in its
//! configuration, behind bridges.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::plugins::{Plugin, PluginLayout, add};
use crate::servers::GatheredServers;
use crate::{Context, Scope};

const PLUGIN_LAYOUT: PluginLayout<'_> = PluginLayout {
    manifests: &[".codex-plugin/plugin.json", ".claude-plugin/plugin.json"],
    root: &["CLAUDE_PLUGIN_ROOT", "PLUGIN_ROOT"],
    id: |_, server| server.to_owned(),
    starts_in_root: true,
    kept: &[],
};

/// Adds the servers of the plugins that the user's configuration names.
pub(super) fn servers(
    context: &Context<'_>,
    effective: &Table,
    codex_home: &Path,
    into: &mut GatheredServers,
) {
    for (key, entry) in effective.get("plugins").and_then(Value::as_table).into_iter().flatten() {
        if entry.get("enabled").and_then(Value::as_bool) == Some(false) {
            continue;
        }
        let (name, market) = key.rsplit_once('@').unwrap_or((key, ""));
        let is_plain = |part: &str| !part.is_empty() && !part.contains('/') && !part.starts_with('.');
        let root = if is_plain(name) && is_plain(market) {
            newest(&codex_home.join("plugins/cache").join(market).join(name))
        } else {
            None
        };
        match root {
            Some(root) => {
                add(
                    context,
                    &Plugin { name: name.to_owned(), root, scope: Scope::User },
                    &PLUGIN_LAYOUT,
                    into,
                );
            }
            None => into.notes.push(format!(
                "the plugin {} is not installed in {}; its MCP servers are not started",
                agentsh_base::escape::line(key),
                codex_home.join("plugins/cache").display()
            )),
        }
    }
}

/// The version of a plugin that was installed last.
fn newest(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    let made = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    entries.filter(|path| path.is_dir()).max_by_key(made)
}
