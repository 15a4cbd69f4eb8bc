//! Merges the answers of several servers. Unknown members are kept; the first server wins.

use std::collections::BTreeMap;

use crate::json::{self, Json, write_text};

use super::super::listing::cursor;
use super::names::{SEPARATOR, write_cursor};
use super::owners::Owners;

/// The proxy's name for the client.
const SERVER_INFO: &str =
    concat!(r#"{"name":"agentsh","title":"agentsh proxy","version":""#, env!("CARGO_PKG_VERSION"), "\"}");
/// The proxy's own capabilities: tools, with list changes.
const OWN_CAPABILITIES: &[u8] = br#"{"tools":{"listChanged":true}}"#;
/// What a server that has not answered yet may have: a client asks for nothing that was not announced at the start.
const ALL_CAPABILITIES: &[u8] = br#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},
    "resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}"#;

/// A paginated list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
    Tasks,
}

impl List {
    #[must_use]
    pub fn of(method: &str) -> Option<Self> {
        Some(match method {
            "tools/list" => Self::Tools,
            "prompts/list" => Self::Prompts,
            "resources/list" => Self::Resources,
            "resources/templates/list" => Self::Templates,
            "tasks/list" => Self::Tasks,
            _ => return None,
        })
    }

    /// Its member of the result.
    #[must_use]
    pub fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Tasks => "tasks",
        }
    }

    /// The server capability for it.
    #[must_use]
    pub fn capability(self) -> &'static str {
        match self {
            Self::Templates => "resources",
            other => other.member(),
        }
    }
}

/// Appends the `result` of a list, and its siblings. `answers` are whole messages by server; `own` are the proxy's
/// entries.
pub fn write_list(
    list: List,
    ids: &[String],
    answers: &BTreeMap<usize, Vec<u8>>,
    own: &[String],
    owners: &mut Owners,
    out: &mut Vec<u8>,
) {
    let trees = results(answers);
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(list.member().as_bytes());
    out.extend_from_slice(b"\":[");
    let start = out.len();
    let mut more = Vec::new();
    for (server, result) in trees.iter().filter_map(|(server, tree)| Some((*server, tree.member("result")?)))
    {
        if let Some(cursor) = cursor(result) {
            more.push((server, cursor.to_owned()));
        }
        for item in result.member(list.member()).and_then(Json::as_array).unwrap_or_default() {
            let comma = out.len() > start;
            write_item(list, server, ids.get(server).map_or("", String::as_str), item, owners, comma, out);
        }
    }
    for item in own {
        if out.len() > start {
            out.push(b',');
        }
        out.extend_from_slice(item.as_bytes());
    }
    out.push(b']');
    if !more.is_empty() {
        out.extend_from_slice(b",\"nextCursor\":");
        write_cursor(&more, out);
    }
    write_rest(&trees, &[list.member(), "nextCursor"], out);
    out.push(b'}');
    write_around(&trees, out);
}

/// A `tools/list` answer without one tool. None: the tool is not in it.
pub fn without_tool(answer: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut tree = json::read(answer).ok()?;
    let Some(Json::Array(tools)) = tree.member_mut("result").and_then(|result| result.member_mut("tools"))
    else {
        return None;
    };
    let before = tools.len();
    tools.retain(|tool| tool.member("name").and_then(Json::as_text).is_none_or(|own| own != name));
    let is_less = tools.len() < before;
    is_less.then(|| tree.to_compact().into_bytes())
}

fn write_item(
    list: List,
    server: usize,
    id: &str,
    item: &Json<'_>,
    owners: &mut Owners,
    comma: bool,
    out: &mut Vec<u8>,
) {
    let text = |name: &str| item.member(name).and_then(Json::as_text);
    let prefixed = matches!(list, List::Tools | List::Prompts);
    match list {
        // An entry without a name cannot be used, and could collide.
        List::Tools | List::Prompts if text("name").is_none() => return,
        List::Tools | List::Prompts => {}
        // It is unclear which of two servers is meant, so the first declared server gets it.
        List::Resources => {
            if text("uri").is_some_and(|uri| !owners.note_uri(server, &uri)) {
                return;
            }
        }
        List::Templates => {
            text("uriTemplate").iter().for_each(|template| owners.note_template(server, template));
        }
        // The first task of a name wins.
        List::Tasks => {
            if text("taskId").is_some_and(|task| !owners.note_task(server, &task)) {
                return;
            }
        }
    }
    if comma {
        out.push(b',');
    }
    let Some(members) = item.as_object().filter(|_| prefixed) else { return item.write(out) };
    let mut sign = b'{';
    for (raw, value) in members {
        out.push(sign);
        sign = b',';
        Json::String(raw).write(out);
        out.push(b':');
        match value {
            Json::String(name) if json::unescape(raw) == "name" => {
                out.push(b'"');
                out.extend_from_slice(id.as_bytes());
                out.extend_from_slice(SEPARATOR.as_bytes());
                out.extend_from_slice(name.as_bytes());
                out.push(b'"');
            }
            other => other.write(out),
        }
    }
    out.push(b'}');
}

/// Appends the `result` of `initialize`; `requested` is for a client without servers.
pub fn write_hello(
    ids: &[String],
    answers: &BTreeMap<usize, Vec<u8>>,
    requested: Option<&str>,
    out: &mut Vec<u8>,
) {
    let trees = results(answers);
    let versions = trees.iter().filter_map(|(_, tree)| tree.member("result")?.member("protocolVersion"));
    // Revisions are dates. Older servers ignore unknown members.
    let newest =
        versions.filter_map(|version| Some((version.as_text()?, version))).max_by(|a, b| a.0.cmp(&b.0));
    out.extend_from_slice(b"{\"protocolVersion\":");
    match newest {
        Some((_, version)) => version.write(out),
        None => write_text(requested.unwrap_or("2025-11-25"), out),
    }
    write_common(ids, &trees, out);
    write_rest(&trees, &["protocolVersion", "capabilities", "serverInfo", "instructions"], out);
    out.push(b'}');
    write_around(&trees, out);
}

/// Appends the `result` of `server/discover`; false if the servers have no common revision.
pub fn write_discovered(ids: &[String], answers: &BTreeMap<usize, Vec<u8>>, out: &mut Vec<u8>) -> bool {
    let trees = results(answers);
    let versions = |tree: &Json<'_>| -> Vec<String> {
        let listed = tree.member("result").and_then(|result| result.member("supportedVersions"));
        let listed = listed.and_then(Json::as_array).unwrap_or_default();
        listed.iter().filter_map(|version| Some(version.as_text()?.into_owned())).collect()
    };
    let mut shared: Option<Vec<String>> = None;
    for (_, tree) in &trees {
        let theirs = versions(tree);
        match &mut shared {
            None => shared = Some(theirs),
            Some(shared) => shared.retain(|version| theirs.contains(version)),
        }
    }
    let shared = shared.unwrap_or_default();
    out.extend_from_slice(b"{\"supportedVersions\":[");
    for (index, version) in shared.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(version, out);
    }
    out.push(b']');
    write_common(ids, &trees, out);
    write_rest(&trees, &["supportedVersions", "capabilities", "serverInfo", "instructions"], out);
    out.push(b'}');
    write_around(&trees, out);
    !shared.is_empty()
}

/// Capabilities announced by `initialize` or `server/discover`.
pub fn announced(answer: &Json<'_>) -> Option<Vec<String>> {
    let capabilities = answer.member("result")?.member("capabilities")?.as_object()?;
    Some(capabilities.iter().map(|(raw, _)| json::unescape(raw).into_owned()).collect())
}

fn write_common(ids: &[String], trees: &[(usize, Json<'_>)], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"capabilities\":");
    let own = if trees.len() < ids.len() { ALL_CAPABILITIES } else { OWN_CAPABILITIES };
    let own = json::read(own).unwrap_or(Json::Null);
    let theirs = trees.iter().filter_map(|(_, tree)| tree.member("result")?.member("capabilities"));
    let all: Vec<&Json<'_>> = theirs.chain([&own]).collect();
    write_union(&all, out);
    out.extend_from_slice(b",\"serverInfo\":");
    out.extend_from_slice(SERVER_INFO.as_bytes());
    let mut instructions = String::new();
    for (server, tree) in trees {
        let text = tree.member("result").and_then(|result| result.member("instructions"));
        if let (Some(text), Some(id)) = (text.and_then(Json::as_text), ids.get(*server)) {
            let gap = if instructions.is_empty() { "" } else { "\n\n" };
            instructions.push_str(&format!("{gap}Tools named {id}{SEPARATOR}*:\n{text}"));
        }
    }
    if !instructions.is_empty() {
        out.extend_from_slice(b",\"instructions\":");
        write_text(&instructions, out);
    }
}

/// Merges objects; `true` wins over `false`; otherwise the first value wins.
fn write_union(values: &[&Json<'_>], out: &mut Vec<u8>) {
    let Some((first, _)) = values.split_first() else { return out.extend_from_slice(b"{}") };
    match first {
        Json::Object(_) => {
            let mut names: Vec<(&str, Vec<&Json<'_>>)> = Vec::new();
            for (raw, value) in values.iter().filter_map(|value| value.as_object()).flatten() {
                match names.iter_mut().find(|(known, _)| json::unescape(known) == json::unescape(raw)) {
                    Some((_, same)) => same.push(value),
                    None => names.push((raw, vec![value])),
                }
            }
            let mut sign = b'{';
            for (raw, same) in &names {
                out.push(sign);
                sign = b',';
                Json::String(raw).write(out);
                out.push(b':');
                write_union(same, out);
            }
            out.extend_from_slice(if names.is_empty() { "{}" } else { "}" }.as_bytes());
        }
        Json::Bool(_) => Json::Bool(values.iter().any(|value| matches!(value, Json::Bool(true)))).write(out),
        other => other.write(out),
    }
}

/// Appends unknown siblings of `result`; the first of a name wins.
fn write_around(trees: &[(usize, Json<'_>)], out: &mut Vec<u8>) {
    let mut seen = vec!["jsonrpc".to_owned(), "id".to_owned(), "result".to_owned(), "error".to_owned()];
    for (raw, value) in trees.iter().filter_map(|(_, tree)| tree.as_object()).flatten() {
        let name = json::unescape(raw).into_owned();
        if !seen.contains(&name) {
            out.push(b',');
            Json::String(raw).write(out);
            out.push(b':');
            value.write(out);
            seen.push(name);
        }
    }
}

/// Appends members that are not `written` yet. Cache hints become the most restrictive of all parts.
fn write_rest(trees: &[(usize, Json<'_>)], written: &[&str], out: &mut Vec<u8>) {
    let results = || trees.iter().filter_map(|(_, tree)| tree.member("result")?.as_object()).flatten();
    let mut seen: Vec<String> = Vec::new();
    for (raw, value) in results() {
        let name = json::unescape(raw).into_owned();
        if written.contains(&name.as_str()) || seen.contains(&name) {
            continue;
        }
        let same = || results().filter(|(other, _)| json::unescape(other) == name).map(|(_, value)| value);
        let chosen = match name.as_str() {
            "ttlMs" => same().min_by(|a, b| number(a).total_cmp(&number(b))),
            "cacheScope" => same().find(|value| value.as_text().as_deref() == Some("private")),
            _ => None,
        };
        out.push(b',');
        Json::String(raw).write(out);
        out.push(b':');
        chosen.unwrap_or(value).write(out);
        seen.push(name);
    }
}

fn number(value: &Json<'_>) -> f64 {
    match value {
        Json::Number(raw) => raw.parse().unwrap_or(0.0),
        _ => 0.0,
    }
}

fn results(answers: &BTreeMap<usize, Vec<u8>>) -> Vec<(usize, Json<'_>)> {
    // agentsh wrote them, so they are valid.
    answers.iter().filter_map(|(server, answer)| Some((*server, json::read(answer).ok()?))).collect()
}
