//! Adds a piece to a policy file. Existing text stays, with its comments and layout.

use super::diagnostic::{PolicyError, Source};
use super::yaml::{self, Entry, Node, Value};

/// Additions to one file; a piece has fewer keys and entries than that.
const MAX_ADDITIONS: usize = 64;

/// The text of `file` with everything of `piece` that it does not say yet. Maps are merged key by key, lists get the
/// entries that they lack, and entries with an `id` are merged by it.
///
/// # Errors
/// What is wrong with the file, or why the piece cannot be added to it.
pub fn merge(file: &str, text: &str, piece: &str) -> Result<String, PolicyError> {
    let refused = |why: String| PolicyError::Flag { flag: format!("cannot change {file}"), why };
    let read = |name: &str, text: &str| {
        yaml::parse(Source { name, text }).map_err(|problem| PolicyError::Invalid(vec![*problem]))
    };
    let wanted = read("the addition", piece)?;
    if text.lines().all(is_empty) {
        let head = if text.trim().is_empty() { "version: 1\n" } else { text };
        return Ok(format!("{}{}", ended(head), block(&wanted, 0)));
    }
    let expected = united(&read(file, text)?, &wanted).map_err(refused)?;
    let mut text = text.to_owned();
    for _ in 0..MAX_ADDITIONS {
        let Some(more) = step(&read(file, &text)?, &wanted, &text, true) else { break };
        text = more;
    }
    // The places that the reader gives are hints: what is written has to be what was meant.
    match read(file, &text) {
        Ok(found) if same(&found, &expected) => Ok(text),
        _ => Err(refused(format!("its layout is not understood; add to it: {piece}"))),
    }
}

/// The file's content with the piece added, as a value.
fn united(there: &Node, wanted: &Node) -> Result<Node, String> {
    let value = match (&there.value, &wanted.value) {
        (Value::Null, wanted) => wanted.clone(),
        (Value::Map(map), Value::List(_)) if replaced(map).is_some() => {
            let entry = |entry: &Entry| Ok(Entry { node: united(&entry.node, wanted)?, ..entry.clone() });
            Value::Map(map.iter().map(entry).collect::<Result<_, String>>()?)
        }
        (Value::Map(map), Value::Map(more)) => {
            let mut map = map.clone();
            for entry in more {
                match map.iter_mut().find(|known| known.key == entry.key) {
                    Some(known) => known.node = united(&known.node, &entry.node)?,
                    None => map.push(entry.clone()),
                }
            }
            Value::Map(map)
        }
        (Value::List(list), Value::List(more)) => {
            let mut list = list.clone();
            for item in more {
                match list.iter_mut().find(|known| is_same_item(known, item)) {
                    Some(known) => *known = united(known, item)?,
                    None => list.push(item.clone()),
                }
            }
            Value::List(list)
        }
        _ if same(there, wanted) => there.value.clone(),
        _ => {
            let line = there.place.line;
            return Err(format!("line {line} has a different structure; it must be {}", flow(wanted)));
        }
    };
    Ok(Node { value, place: there.place })
}

/// The list of `{replace: [...]}`.
fn replaced(map: &[Entry]) -> Option<&Node> {
    map.iter().find(|entry| entry.key == "replace").map(|entry| &entry.node)
}

/// Entries with an id are the same with the same id, others with the same value.
fn is_same_item(one: &Node, other: &Node) -> bool {
    let id = |node: &Node| match &node.value {
        Value::Map(map) => map
            .iter()
            .find(|entry| entry.key == "id")
            .map(|entry| entry.node.clone())
            .filter(|_| map.len() > 1),
        _ => None,
    };
    match (id(one), id(other)) {
        (Some(one), Some(other)) => same(&one, &other),
        _ => same(one, other),
    }
}

fn same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::Integer(one), Value::Integer(other)) => one == other,
        (Value::Float(one), Value::Float(other)) => one.total_cmp(other).is_eq(),
        (Value::Text(one), Value::Text(other)) => one == other,
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Map(one), Value::Map(other)) => {
            let is_same =
                |(one, other): (&Entry, &Entry)| one.key == other.key && same(&one.node, &other.node);
            one.len() == other.len() && one.iter().zip(other).all(is_same)
        }
        _ => false,
    }
}

/// The text with the first missing entry added; None if nothing is missing, or it has no place.
fn step(there: &Node, wanted: &Node, text: &str, is_root: bool) -> Option<String> {
    match (&there.value, &wanted.value) {
        (Value::Map(map), Value::List(_)) => step(replaced(map)?, wanted, text, false),
        (Value::Map(map), Value::Map(more)) => {
            more.iter().find_map(|entry| match map.iter().find(|known| known.key == entry.key) {
                Some(Entry { key_place, node: Node { value: Value::Null, .. }, .. }) => {
                    let at = line_start(text, key_place.line)?;
                    let indent = column(key_place.column) + 2;
                    Some(inserted(text, line_end(text, at), &block(&entry.node, indent)))
                }
                Some(known) => step(&known.node, &entry.node, text, false),
                None => match bracket(text, there) {
                    Some(open) => {
                        flow_added(text, open, &format!("{}: {}", scalar(&entry.key), flow(&entry.node)))
                    }
                    None => {
                        let first = map.first()?.key_place;
                        let indent = column(first.column);
                        let end =
                            if is_root { text.len() } else { block_end(text, first.line, indent, false)? };
                        Some(inserted(text, end, &block_entry(entry, indent)))
                    }
                },
            })
        }
        (Value::List(list), Value::List(more)) => more.iter().find_map(|item| {
            if let Some(known) = list.iter().find(|known| is_same_item(known, item)) {
                return step(known, item, text, false);
            }
            if let Some(open) = bracket(text, there) {
                return flow_added(text, open, &flow(item));
            }
            let first = list.first()?.place;
            let line = text.get(line_start(text, first.line)?..)?;
            let indent =
                line.find('-').filter(|at| line.get(..*at).is_some_and(|before| before.trim().is_empty()))?;
            Some(inserted(text, block_end(text, first.line, indent, true)?, &block_item(item, indent)))
        }),
        _ => None,
    }
}

fn column(column: u64) -> usize {
    usize::try_from(column).unwrap_or_default().saturating_sub(1)
}

/// The byte at which a line begins. Lines are counted from 1.
fn line_start(text: &str, line: u64) -> Option<usize> {
    let before = usize::try_from(line).ok()?.checked_sub(1)?;
    if before == 0 {
        return Some(0);
    }
    text.match_indices('\n').nth(before - 1).map(|(at, _)| at + 1)
}

/// The end of the line that contains `at`, without its line break.
fn line_end(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |found| at + found)
}

/// The bracket that opens a list or map on one line; None: it is written on several lines.
fn bracket(text: &str, node: &Node) -> Option<usize> {
    let start = line_start(text, node.place.line)?;
    let line = text.get(start..line_end(text, start))?;
    let (at, sign) = line.char_indices().nth(column(node.place.column))?;
    matches!(sign, '[' | '{').then_some(start + at)
}

/// A line without a value: empty, or a comment.
fn is_empty(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// The end of the last line with a value that belongs to what begins in line `first` behind `indent` blanks.
fn block_end(text: &str, first: u64, indent: usize, is_list: bool) -> Option<usize> {
    let start = line_start(text, first)?;
    let mut end = line_end(text, start);
    let mut at = end + 1;
    while at < text.len() {
        let line = text.get(at..line_end(text, at))?;
        if !is_empty(line) {
            let blanks = line.len() - line.trim_start().len();
            let is_item = line.get(blanks..).is_some_and(|rest| rest == "-" || rest.starts_with("- "));
            if blanks < indent || blanks == indent && is_list && !is_item {
                break;
            }
            end = at + line.len();
        }
        at += line.len() + 1;
    }
    Some(end)
}

/// Inserts whole lines after the line that ends at `at`.
fn inserted(text: &str, at: usize, lines: &str) -> String {
    let (before, after) = text.split_at(at);
    format!("{}{lines}{}", ended(before), after.strip_prefix('\n').unwrap_or(after))
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// Adds an entry after the last one of a list or map in brackets.
fn flow_added(text: &str, open: usize, entry: &str) -> Option<String> {
    let Flow { last, close } = flow_end(text, open)?;
    let inside = text.get(open + 1..=last)?;
    if inside.is_empty() {
        return Some(format!("{}{entry}{}", text.get(..=open)?, text.get(close..)?));
    }
    let comma = if inside.ends_with(',') { "" } else { "," };
    if !text.get(last..close)?.contains('\n') {
        return Some(format!("{}{comma} {entry}{}", text.get(..=last)?, text.get(last + 1..)?));
    }
    // A comment after the last entry stays with it.
    let end = line_end(text, last);
    let start = text.get(..last)?.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(start..end)?;
    let indent = line.get(..line.len() - line.trim_start().len())?;
    let indent = if start <= open { " ".repeat(open + 1 - start) } else { indent.to_owned() };
    let rest = text.get(last + 1..end)?;
    Some(format!("{}{comma}{rest}\n{indent}{entry}{}", text.get(..=last)?, text.get(end..)?))
}

/// The end of a list or map in brackets.
struct Flow {
    /// Its last sign before the closing bracket that is neither a blank nor of a comment; the opening one where it is empty.
    last: usize,
    close: usize,
}

fn flow_end(text: &str, open: usize) -> Option<Flow> {
    let mut signs = text.get(open..)?.char_indices().map(|(at, sign)| (open + at, sign)).peekable();
    let (mut depth, mut last, mut before) = (0_usize, open, ' ');
    while let Some((at, sign)) = signs.next() {
        match sign {
            '[' | '{' => depth += 1,
            ']' | '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(Flow { last, close: at });
                }
            }
            '#' if before.is_whitespace() => {
                while signs.next_if(|(_, sign)| *sign != '\n').is_some() {}
                continue;
            }
            // In the middle of a word it is a letter.
            '"' | '\'' if before.is_whitespace() || "[{,:".contains(before) => {
                while let Some((inside, found)) = signs.next() {
                    last = inside;
                    match found {
                        '\\' if sign == '"' => drop(signs.next()),
                        found if found != sign => {}
                        '\'' if signs.next_if(|(_, next)| *next == '\'').is_some() => {}
                        _ => break,
                    }
                }
                before = sign;
                continue;
            }
            _ => {}
        }
        if !sign.is_whitespace() {
            last = at + sign.len_utf8() - 1;
        }
        before = sign;
    }
    None
}

/// Written on separate lines, each after `indent` blanks.
fn block(node: &Node, indent: usize) -> String {
    match &node.value {
        Value::Map(map) => map.iter().map(|entry| block_entry(entry, indent)).collect(),
        Value::List(list) => list.iter().map(|item| block_item(item, indent)).collect(),
        _ => format!("{}{}\n", " ".repeat(indent), flow(node)),
    }
}

fn block_entry(entry: &Entry, indent: usize) -> String {
    let key = format!("{}{}:", " ".repeat(indent), scalar(&entry.key));
    match &entry.node.value {
        Value::Map(_) | Value::List(_) => format!("{key}\n{}", block(&entry.node, indent + 2)),
        _ => format!("{key} {}\n", flow(&entry.node)),
    }
}

fn block_item(item: &Node, indent: usize) -> String {
    let is_plain = |entry: &Entry| !matches!(entry.node.value, Value::Map(_) | Value::List(_));
    match &item.value {
        Value::Map(map) if !map.iter().all(is_plain) => {
            let lines = block(item, indent + 2);
            format!("{}- {}", " ".repeat(indent), lines.trim_start())
        }
        _ => format!("{}- {}\n", " ".repeat(indent), flow(item)),
    }
}

/// On one line.
fn flow(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Text(text) => scalar(text),
        Value::List(list) => format!("[{}]", list.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entry = |entry: &Entry| format!("{}: {}", scalar(&entry.key), flow(&entry.node));
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Words that YAML does not read as text unless they are quoted.
const OTHER_VALUES: [&str; 8] = ["true", "false", "null", "yes", "no", "on", "off", "y"];

fn scalar(text: &str) -> String {
    let is_word = text.chars().next().is_some_and(|first| first.is_ascii_lowercase())
        && text.chars().all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_')
        && text.len() > 1
        && !OTHER_VALUES.contains(&text);
    if is_word { text.to_owned() } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOST: &str = "agent: {network: {allow: [\"b.example\"]}}";

    fn added(text: &str, piece: &str) -> String {
        let once =
            merge("policy.yaml", text, piece).unwrap_or_else(|error| panic!("{text}\n{}", error.render()));
        assert_eq!(merge("policy.yaml", &once, piece).unwrap(), once, "a second time changes nothing");
        once
    }

    #[test]
    fn policy_edit_keeps_comments_and_layout() {
        for (before, after) in [
            ("", "version: 1\nagent:\n  network:\n    allow:\n      - \"b.example\"\n"),
            (
                "# mine\n#agent: {}",
                "# mine\n#agent: {}\nagent:\n  network:\n    allow:\n      - \"b.example\"\n",
            ),
            (
                "agent: {network: {allow: [a.example]}} # why\n",
                "agent: {network: {allow: [a.example, \"b.example\"]}} # why\n",
            ),
            ("agent: {network: {allow: []}}", "agent: {network: {allow: [\"b.example\"]}}"),
            (
                "agent: {env_allow: ['it''s]', x]}\n",
                "agent: {env_allow: ['it''s]', x], network: {allow: [\"b.example\"]}}\n",
            ),
            (
                "agent:\n  network:\n    allow:\n      - a.example  # why\n      # - c.example\n\n    loopback: [1]\n",
                "agent:\n  network:\n    allow:\n      - a.example  # why\n      - \"b.example\"\n      # - c.example\n\n    loopback: [1]\n",
            ),
            (
                "agent:\n  network:\n    allow:\n    - a.example\n    loopback: [1]\n",
                "agent:\n  network:\n    allow:\n    - a.example\n    - \"b.example\"\n    loopback: [1]\n",
            ),
            (
                "agent:\n  network:\n    allow: [\n      a.example,  # one\n      {host: c.example, port: 1}  # two\n    ]\n",
                "agent:\n  network:\n    allow: [\n      a.example,  # one\n      {host: c.example, port: 1},  # two\n      \"b.example\"\n    ]\n",
            ),
            (
                "agent:\n  network: # later\n  env_allow: [X]\nsandbox: {}\n",
                "agent:\n  network: # later\n    allow:\n      - \"b.example\"\n  env_allow: [X]\nsandbox: {}\n",
            ),
            (
                "agent:\n  network:\n    allow:\n      replace:\n        - \"#a\"\n",
                "agent:\n  network:\n    allow:\n      replace:\n        - \"#a\"\n        - \"b.example\"\n",
            ),
            (
                "agent: # us\n    env_allow: [X]\n\n# end\n",
                "agent: # us\n    env_allow: [X]\n    network:\n      allow:\n        - \"b.example\"\n\n# end\n",
            ),
            (
                "version: 1\n# tail\n",
                "version: 1\n# tail\nagent:\n  network:\n    allow:\n      - \"b.example\"\n",
            ),
        ] {
            assert_eq!(added(before, HOST), after);
        }
    }

    #[test]
    fn servers_are_merged_by_their_id() {
        let piece = "sandbox: {mcp: {servers: [{id: \"gh\", network: {allow: [\"b.example\"]}}]}}";
        let before = "sandbox:\n  mcp:\n    servers:\n      - id: other\n      - id: gh\n        command: x\n    rules: []\n";
        let after = "sandbox:\n  mcp:\n    servers:\n      - id: other\n      - id: gh\n        command: x\n        network:\n          \
                     allow:\n            - \"b.example\"\n    rules: []\n";
        assert_eq!(added(before, piece), after);
        let before = "sandbox: {mcp: {servers: [{id: gh, command: x}]}}\n";
        let after = "sandbox: {mcp: {servers: [{id: gh, command: x, network: {allow: [\"b.example\"]}}]}}\n";
        assert_eq!(added(before, piece), after);
        let before = "sandbox:\n  mcp:\n    servers:\n      - {id: other}\n";
        let after = "sandbox:\n  mcp:\n    servers:\n      - {id: other}\n      - id: gh\n        network:\n          allow:\n            \
                     - \"b.example\"\n";
        assert_eq!(added(before, piece).replace("\"gh\"", "gh"), after);
    }

    #[test]
    fn policy_edit_is_refused_if_the_text_contradicts_it() {
        let refused = |text: &str, piece: &str| merge("policy.yaml", text, piece).unwrap_err().render();
        let said =
            refused("sandbox:\n  mcp:\n    tool_policy: none\n", "sandbox: {mcp: {tool_policy: denylist}}");
        assert!(said.contains("line 3 has a different structure; it must be denylist"), "{said}");
        // An alias would be changed in two places.
        let said = refused("agent:\n  network: &n\n    allow: [a]\nother: *n\n", HOST);
        assert!(said.contains("add to it: agent: {network"), "{said}");
        assert!(refused("agent: [\n", HOST).contains("policy.yaml"));
        assert!(refused("a: 1\na: 2\n", HOST).contains("duplicate key `a`"));
    }

    proptest! {
        /// For any text either nothing changes, or all of the old lines are still there in their order.
        #[test]
        fn policy_edit_keeps_all_old_text(text in "(agent|sandbox|[ \\-#:\\[\\]{},\"'\n]|network|allow|a){0,40}") {
            if let Ok(after) = merge("x", &text, HOST) {
                let mut rest = after.chars();
                prop_assert!(text.chars().all(|sign| rest.any(|found| found == sign)), "{}\n{}", text, after);
            }
        }
    }
}
