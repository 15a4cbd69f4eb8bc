//! `agentsh policy reference` and `agentsh policy schema`: every key, from the tables that the reader uses.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use agentsh_policy::keys::{Key, Kind};
use agentsh_policy::top_keys;

const HEAD: &str = include_str!("reference.md");

pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for key in top_keys() {
        section(&mut text, key, &[]);
    }
    text
}

fn section(text: &mut String, key: &Key, above: &[&str]) {
    let path: Vec<&str> = above.iter().copied().chain([key.name]).collect();
    let _ = write!(text, "\n## `{}`\n\n{}\n\n", path.join("."), key.about);
    let _ = writeln!(text, "- type: {}", key.kind.describe());
    if !key.also.is_empty() {
        let _ = writeln!(text, "- also written: `{}`", key.also.join("`, `"));
    }
    if !key.default.is_empty() {
        let _ = writeln!(text, "- default: {}", key.default);
    }
    let _ = writeln!(text, "- layers: {}", key.merging());
    if !key.example.is_empty() {
        let _ = write!(text, "\n```yaml\n{}```\n", example(&path, key.example));
    }
    if key.name == "mcp_rules" {
        return;
    }
    items(text, key.kind);
    for inner in key.kind.keys() {
        section(text, inner, &path);
    }
}

/// A table of the keys of a list's entries, or of the values of a map.
fn items(text: &mut String, kind: Kind) {
    let keys: &[Key] = match kind {
        Kind::List(item) | Kind::Whole(item) | Kind::Names(item) => match *item {
            Kind::Map(keys) | Kind::Process(keys) => keys,
            Kind::Either(kinds) => {
                let maps = kinds.iter().find_map(|kind| match kind {
                    Kind::Map(keys) => Some(*keys),
                    _ => None,
                });
                maps.unwrap_or_default()
            }
            _ => return,
        },
        _ => return,
    };
    if keys.is_empty() {
        return;
    }
    text.push_str("\n| key of an entry | type | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let kind = key.kind.describe();
        let _ = writeln!(text, "| `{}` | {kind} | {} | {} |", key.name, key.default, key.about);
    }
}

/// The value with its keys around it.
fn example(path: &[&str], value: &str) -> String {
    let mut text = String::new();
    for (depth, key) in path.iter().enumerate() {
        let indent = "  ".repeat(depth);
        let end = if depth + 1 == path.len() { format!(" {value}") } else { String::new() };
        let _ = writeln!(text, "{indent}{key}:{end}");
    }
    text
}

/// A JSON schema of a policy, for editors.
pub fn schema() -> Value {
    let mut whole = map(&top_keys());
    if let Some(fields) = whole.as_object_mut() {
        fields.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        fields.insert("title".to_owned(), json!("A policy of agentsh"));
    }
    whole
}

fn map(keys: &[&Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut value = of(key.kind);
        if let Some(fields) = value.as_object_mut() {
            let default =
                if key.default.is_empty() { String::new() } else { format!(" Default: {}.", key.default) };
            fields.insert("description".to_owned(), json!(format!("{}{default}", key.about)));
        }
        for name in key.names() {
            properties.insert(name.to_owned(), value.clone());
        }
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn of(kind: Kind) -> Value {
    match kind {
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Number(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
        Kind::Share => json!({"type": "number", "minimum": 0, "maximum": 1}),
        Kind::Text => json!({"type": "string"}),
        Kind::Duration => json!({"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d))+$"}),
        Kind::Size => json!({"type": "string", "pattern": "^[0-9]+ ?([KMGTkmgt]i?)?[Bb]?$"}),
        Kind::Percent => json!({"type": "string", "pattern": "^[0-9]+%$"}),
        Kind::Word(words) => json!({"enum": words}),
        Kind::Whole(item) => json!({"type": "array", "items": of(*item)}),
        Kind::List(item) => {
            let list = json!({"type": "array", "items": of(*item)});
            let replaced = json!({"type": "object", "additionalProperties": false, "required": ["replace"],
                "properties": {"replace": list.clone()}});
            json!({"anyOf": [list, replaced]})
        }
        Kind::Names(value) => json!({"type": "object", "additionalProperties": of(*value)}),
        Kind::Either(kinds) => json!({"anyOf": kinds.iter().map(|kind| of(*kind)).collect::<Vec<_>>()}),
        Kind::Map(_) | Kind::Process(_) | Kind::Agent | Kind::Mcp => map(&kind.keys()),
    }
}
