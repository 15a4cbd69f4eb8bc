//! What changed between two interfaces, component by component.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::component::Kind;
use crate::json::{self, Json};

type Key = (Kind, String);

/// For one component. What is not compared by then counts as changed.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Lines as people read them; empty when both are the same. `before` and `after` are canonical texts of components.
#[must_use]
pub fn difference(before: &[String], after: &[String]) -> String {
    let (before, after) = (by_name(before), by_name(after));
    let mut names: Vec<&Key> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let mut out = String::new();
    for key in names {
        let shown = display_key(key);
        match (before.get(key), after.get(key)) {
            (None, _) => drop(writeln!(out, "+ added {shown}")),
            (_, None) => drop(writeln!(out, "- removed {shown}")),
            (Some(old), Some(new)) if old != new => {
                let _infallible = writeln!(out, "~ changed {shown}:");
                let diff = similar::TextDiff::configure().timeout(TIMEOUT).diff_lines(old, new);
                let unified =
                    diff.unified_diff().context_radius(3).header("recorded", "generated").to_string();
                for line in unified.lines() {
                    let _infallible = writeln!(out, "  {line}");
                }
            }
            _ => {}
        }
    }
    out
}

/// Components that share a name are shown as one.
fn by_name(components: &[String]) -> BTreeMap<Key, String> {
    let mut found: BTreeMap<Key, String> = BTreeMap::new();
    for text in components {
        let Ok(value) = json::read_to_depth(text.as_bytes(), crate::MAX_DEPTH) else { continue };
        let kind = match value.member("type").and_then(Json::as_text).as_deref() {
            Some("prompt") => Kind::Prompt,
            Some("resource") => Kind::Resource,
            Some("server_instructions") => Kind::Instructions,
            _ => Kind::Tool,
        };
        let name = value.member(if kind == Kind::Resource { "uri" } else { "name" });
        let name = name.and_then(Json::as_text).unwrap_or_default().into_owned();
        write_indented(&value, 0, found.entry((kind, name)).or_default());
    }
    found
}

fn display_key((kind, name): &Key) -> String {
    match kind {
        Kind::Instructions => "server instructions".to_owned(),
        other => format!("{} '{name}'", other.as_str()),
    }
}

/// One member or item per line; the input is canonical, and therefore sorted.
fn write_indented(value: &Json<'_>, indent: usize, out: &mut String) {
    let margin = "  ".repeat(indent.min(64));
    match value {
        Json::Object(members) if !members.is_empty() => {
            out.push_str("{\n");
            for (name, value) in members {
                let _infallible = write!(out, "{margin}  \"{name}\": ");
                write_indented(value, indent + 1, out);
            }
            let _infallible = writeln!(out, "{margin}}}");
        }
        Json::Array(items) if !items.is_empty() => {
            out.push_str("[\n");
            for item in items {
                let _infallible = write!(out, "{margin}  ");
                write_indented(item, indent + 1, out);
            }
            let _infallible = writeln!(out, "{margin}]");
        }
        other => {
            out.push_str(&other.to_compact());
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_difference_names_each_change() {
        let tool =
            |name: &str, text: &str| format!(r#"{{"description":"{text}","name":"{name}","type":"tool"}}"#);
        let before = [tool("a", "x"), tool("b", "x"), tool("c", "x")];
        let after = [tool("a", "x"), tool("b", "y"), tool("d", "x")];
        let text = difference(&before, &after);
        assert_eq!(
            text,
            "~ changed tool 'b':\n  --- recorded\n  +++ generated\n  @@ -1,5 +1,5 @@\n   {\n  -  \"description\": \"x\"\n  +  \"description\": \"y\"\n     \"name\": \"b\"\n     \"type\": \"tool\"\n   }\n- removed tool 'c'\n+ added tool 'd'\n"
        );
        assert_eq!(difference(&before, &before), "");
    }
}
