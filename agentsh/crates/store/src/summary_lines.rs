//! Lines of a summary, each about one event. All text is escaped.

use crate::escape::line;
use crate::summary::{Bundle, FlowRow, Layer, Mismatch, Refusal};
use crate::types::ServerId;

/// A missing layer, and what protects instead.
pub(super) fn missing_layer(layer: &Layer) -> String {
    match layer.got.as_str() {
        "" => format!("{} {}", line(&layer.layer), layer.state),
        got => format!("{} ({})", line(&layer.layer), line(got)),
    }
}

pub(super) fn refusal(refusal: &Refusal) -> String {
    let what = match &refusal.tool_name {
        Some(tool) => {
            let withheld = if refusal.what == "message" { " withheld" } else { "" };
            format!("{}/{}{withheld}", line(&refusal.server_id.0), line(tool))
        }
        None => format!("server {}", line(&refusal.server_id.0)),
    };
    let times = if refusal.count > 1 { format!(" {} times", refusal.count) } else { String::new() };
    let detail = refusal.detail.as_deref().filter(|detail| !detail.is_empty());
    let detail = detail.map_or(String::new(), |detail| format!(" ({})", line(detail)));
    let rule = refusal.rule.to_string();
    format!("{what}{times}: {}{detail}, by {}", line(&refusal.reason), line(&rule))
}

/// The changed files first: a long text is cut at its end.
pub(super) fn bundle(found: &Bundle) -> String {
    let version = found.version.map(|version| format!(" version {version}")).unwrap_or_default();
    let detail = match found.detail.as_str() {
        "" => String::new(),
        detail => format!(": {}", line(detail)),
    };
    format!("'{}'{version}: {}{detail}", line(&found.name), found.state)
}

pub(super) fn mismatch(found: &Mismatch) -> String {
    let files: Vec<_> = found.changed.iter().map(|path| line(path)).collect();
    let files = if files.is_empty() { line(&found.binary_path).into_owned() } else { files.join(", ") };
    format!(
        "{}: {files} changed ({}): expected {}, found {}, program {}",
        line(&found.server_id.0),
        found.action,
        line(&found.expected_hash),
        line(&found.actual_hash),
        line(&found.binary_path),
    )
}

pub(super) fn owner(server: Option<&ServerId>) -> String {
    server.map_or("the agent".to_owned(), |server| line(&server.0).into_owned())
}

/// A command line for a shell; characters that nobody can type stay escaped.
pub(super) fn command(words: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,~".contains(c);
    let quoted = |word: &String| {
        let shown = line(word);
        if !shown.is_empty() && shown.chars().all(is_plain) {
            return shown.into_owned();
        }
        format!("'{}'", shown.replace('\'', "'\\''"))
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

pub(super) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Adds to the group of this key, in the order of the first ones.
pub(super) fn add_to_group<K: PartialEq, T>(groups: &mut Vec<(K, Vec<T>)>, key: K, one: T) {
    match groups.iter_mut().find(|(known, _)| *known == key) {
        Some((_, group)) => group.push(one),
        None => groups.push((key, vec![one])),
    }
}

/// Hosts with their ports; 0 is an unknown one.
pub(super) fn destinations<'a>(all: impl ExactSizeIterator<Item = (&'a str, u16)>) -> String {
    const MAX_NAMED: usize = 5;
    let more = all.len().saturating_sub(MAX_NAMED);
    let named = all.take(MAX_NAMED).map(|(host, port)| match port {
        0 => line(host).into_owned(),
        port => format!("{}:{port}", line(host)),
    });
    let mut named: Vec<String> = named.collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

/// `files -> mail`, `mail -> host.example`.
pub(super) fn arrow(found: &FlowRow) -> String {
    match (&found.from, &found.host) {
        (Some(from), _) => format!("{} -> {}", line(&from.0), line(&found.to.0)),
        (None, Some(host)) => format!("{} -> {}", line(&found.to.0), line(host)),
        (None, None) => format!("{} -> somewhere", line(&found.to.0)),
    }
}

pub(super) fn flow(found: &FlowRow) -> String {
    let mut what = Vec::new();
    match found.copies {
        0 => {}
        1 => what.push("1 copy".to_owned()),
        copies => what.push(format!("{copies} copies")),
    }
    if found.without_copy > 0 {
        what.push(format!("{} without a copy", count(found.without_copy, "call")));
    }
    if found.from.is_none() {
        what.push(format!(
            "{} that named a host which is not listed",
            count(found.passed + found.refused, "call")
        ));
    }
    let (arrow, what) = (arrow(found), what.join(", "));
    let last =
        if found.detail.is_empty() { String::new() } else { format!("; last: {}", line(&found.detail)) };
    format!("{arrow}: {what}; {} passed, {} refused{last}", found.passed, found.refused)
}
