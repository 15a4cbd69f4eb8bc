//! Servers that files of an agent's own directories declare, next to its list: those of plugins, subagents, recipes. They are behind
//! bridges or not started, and their variables and headers are for no sandbox.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::claude::front_matter::{is_declaration, without_keys};
use super::{Access, Context, InjectedFile, Launch, StateKind, read, walk};

const KINDS: [&str; 5] = ["json", "md", "toml", "yaml", "yml"];
/// Limit for one directory. Files that packages bring are not the user's lists, and no agent reads them there.
const MAX_FILES: usize = 5_000;
const PASSED_OVER: [&str; 2] = [".git", "node_modules"];
/// Files whose own members are servers.
const LISTS: [&str; 2] = [".mcp.json", "mcp.json"];
/// Members of an entry that say how a server is started or reached.
const STARTS: [&str; 7] = ["cmd", "command", "httpUrl", "serverUrl", "uri", "url", "urlTemplate"];

/// Takes the declarations out of what the agent gets to read. A directory that cannot be looked at in full is hidden.
pub(super) fn take_out(context: &Context<'_>, launch: &mut Launch) {
    for state in std::mem::take(&mut launch.home_state) {
        let place = context.home.join(&state.path);
        let real = place.canonicalize().unwrap_or_else(|_| place.clone());
        let files = match (state.access, state.kind) {
            (Access::ReadOnly | Access::Private, StateKind::Dir) => {
                walk::files(&place, &KINDS, &PASSED_OVER, MAX_FILES, launch)
            }
            (Access::ReadOnly | Access::Private, StateKind::File) => [real.clone()].into(),
            _ => BTreeSet::new(),
        };
        let mut is_kept = !launch.hidden.contains(&real);
        for (file, content) in cleaned(&files) {
            // Servers of plugins are started for agents that enable the plugin.
            let is_bridged = launch.servers.values().any(|server| server.origin.file == file);
            if !is_bridged && !place.ends_with("plugins") {
                launch.notes.push(format!(
                    "MCP servers that {} declares are not started: declare them under `mcp.servers` of your policy",
                    agentsh_base::escape::line(&file.to_string_lossy())
                ));
            }
            match file.strip_prefix(&real) {
                // Links are not followed in a copied directory.
                _ if state.access == Access::ReadOnly => launch.replaced.push((file, content)),
                Ok(below) => {
                    is_kept &= state.kind == StateKind::Dir;
                    let path = if is_kept { place.join(below) } else { place.clone() };
                    launch.files.push(InjectedFile { path, content, mode: 0o600 });
                }
                Err(_) => {}
            }
        }
        if is_kept {
            launch.home_state.push(state);
        }
    }
}

/// The files that declare servers, each with its content without them.
fn cleaned(files: &BTreeSet<PathBuf>) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut cleaned, mut documents, mut named) = (Vec::new(), Vec::new(), BTreeSet::new());
    for path in files {
        let Ok(text) = read::text(path, read::STATE_LIMIT) else {
            // It is unreadable here, but may be readable inside.
            cleaned.push((path.clone(), Vec::new()));
            continue;
        };
        let text = text.unwrap_or_default();
        if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("md")) {
            let front = text.split("---").nth(1).unwrap_or_default();
            if has_word(front)
                && let Some(content) = without_keys(&text, is_declaration)
            {
                cleaned.push((path.clone(), content.into_bytes()));
            }
            continue;
        }
        let is_list = path.file_name().is_some_and(|name| LISTS.iter().any(|list| name == *list));
        let Some(mut document) = parse(path, &text) else {
            if has_word(&text) {
                cleaned.push((path.clone(), Vec::new()));
            }
            continue;
        };
        let (mut names, mut is_changed) = (Vec::new(), false);
        strip(&mut document, &mut names, &mut is_changed);
        let around = path.ancestors().skip(1).take(2);
        named.extend(
            around.flat_map(|above| names.iter().filter_map(|name| above.join(name).canonicalize().ok())),
        );
        documents.push((path, document, is_list, is_changed));
    }
    for (path, mut document, is_list, mut is_changed) in documents {
        if is_list || named.contains(path) {
            retain(&mut document, &mut is_changed, |entry| !is_server(entry));
        }
        if is_changed && let Some(content) = rendered(path, &document) {
            cleaned.push((path.clone(), content));
        }
    }
    cleaned
}

fn has_word(text: &str) -> bool {
    text.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"mcp"))
}

fn parse(path: &Path, text: &str) -> Option<Value> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "json" => super::json::parse_relaxed(text, path).ok(),
        "toml" => serde_json::to_value(text.parse::<toml::Table>().ok()?).ok(),
        _ => serde_saphyr::from_str(text).ok(),
    }
}

/// YAML is written as JSON, which it is, too.
fn rendered(path: &Path, document: &Value) -> Option<Vec<u8>> {
    match path.extension() {
        Some(end) if end.eq_ignore_ascii_case("toml") => Some(toml::to_string(document).ok()?.into_bytes()),
        _ => serde_json::to_vec_pretty(document).ok(),
    }
}

/// Removes the declarations below a value. `names`: files that it names instead.
fn strip(value: &mut Value, names: &mut Vec<String>, is_changed: &mut bool) {
    if let Value::Object(members) = value {
        members.retain(|name, inner| {
            let last = super::plain_key(name.rsplit('.').next().unwrap_or(name));
            let is_list = last == "mcpservers";
            if is_list {
                let texts = inner.as_array().map_or_else(|| std::slice::from_ref(&*inner), Vec::as_slice);
                names.extend(texts.iter().filter_map(Value::as_str).map(str::to_owned));
                retain(inner, is_changed, |entry| !entry.is_object());
            } else if last == "extensions" {
                retain(inner, is_changed, |entry| !is_server(entry));
            }
            strip(inner, names, is_changed);
            !is_list || *inner != json!({}) && *inner != json!([])
        });
    } else if let Value::Array(items) = value {
        items.iter_mut().for_each(|item| strip(item, names, is_changed));
    }
}

fn is_server(entry: &Value) -> bool {
    STARTS.iter().any(|name| entry.get(name).is_some())
}

fn retain(entries: &mut Value, is_changed: &mut bool, is_wanted: impl Fn(&Value) -> bool) {
    let mut is_kept = |entry: &Value| {
        let is_kept = is_wanted(entry);
        *is_changed |= !is_kept;
        is_kept
    };
    match entries {
        Value::Object(members) => members.retain(|_, entry| is_kept(entry)),
        Value::Array(items) => items.retain(is_kept),
        _ => {}
    }
}
