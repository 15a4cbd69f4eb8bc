//! Concatenates strings, so that a payload split over two of them is found, and maps findings back to their string.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use agentsh_base::json::Json;

/// Limit of strings per message; readers refuse longer ones.
const MAX_STRINGS: usize = 100_000;

/// A string and its place.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    pub pointer: String,
    pub text: Cow<'a, str>,
    /// A member's name; `pointer` leads to its value.
    pub is_name: bool,
}

/// All parts, joined by line feeds.
#[derive(Debug, Default)]
pub struct Document {
    pub text: String,
    /// Where each part begins.
    starts: Vec<usize>,
}

impl Document {
    #[must_use]
    pub fn of(parts: &[Part<'_>]) -> Self {
        let mut document = Self::default();
        document.text.reserve(parts.iter().map(|part| part.text.len() + 1).sum());
        for part in parts {
            document.starts.push(document.text.len());
            document.text.push_str(&part.text);
            document.text.push('\n');
        }
        document
    }

    #[must_use]
    pub fn start(&self, part: usize) -> usize {
        self.starts.get(part).copied().unwrap_or(self.text.len())
    }

    /// The part of a place, and the place in it.
    #[must_use]
    pub fn locate(&self, place: &Range<usize>) -> Option<(usize, Range<usize>)> {
        let part = self.starts.partition_point(|start| *start <= place.start).checked_sub(1)?;
        let start = self.starts[part];
        let end = self.starts.get(part + 1).map_or(self.text.len(), |next| *next).saturating_sub(1);
        Some((part, place.start.min(end) - start..place.end.min(end).max(place.start.min(end)) - start))
    }
}

/// Every string in a value, and every name not in `known`.
pub fn strings<'a>(value: &Json<'a>, pointer: &str, known: &dyn Fn(&str) -> bool, parts: &mut Vec<Part<'a>>) {
    if parts.len() >= MAX_STRINGS {
        return;
    }
    match value {
        Json::String(_) => {
            if let Some(text) = value.as_text().filter(|text| !text.is_empty()) {
                parts.push(Part { pointer: pointer.to_owned(), text, is_name: false });
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                strings(item, &format!("{pointer}/{at}"), known, parts);
            }
        }
        Json::Object(members) => {
            for (raw, member) in members {
                let name = agentsh_base::json::unescape(raw);
                let inner = format!("{pointer}/{}", escape(&name));
                if !known(&name) {
                    parts.push(Part { pointer: inner.clone(), text: name, is_name: true });
                }
                strings(member, &inner, known, parts);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// Every string except below certain members. Names are omitted.
pub fn strings_but<'a>(value: &Json<'a>, is_left: &dyn Fn(&str) -> bool, parts: &mut Vec<Part<'a>>) {
    fn walk<'a>(
        value: &Json<'a>,
        pointer: &mut String,
        is_left: &dyn Fn(&str) -> bool,
        parts: &mut Vec<Part<'a>>,
    ) {
        let length = pointer.len();
        match value {
            _ if parts.len() >= MAX_STRINGS => {}
            Json::String(_) => {
                if let Some(text) = value.as_text().filter(|text| !text.is_empty()) {
                    parts.push(Part { pointer: pointer.clone(), text, is_name: false });
                }
            }
            Json::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    pointer.push_str(&format!("/{at}"));
                    walk(item, pointer, is_left, parts);
                    pointer.truncate(length);
                }
            }
            Json::Object(members) => {
                for (raw, member) in members {
                    let name = agentsh_base::json::unescape(raw);
                    if !is_left(&name) {
                        pointer.push('/');
                        pointer.push_str(&escape(&name));
                        walk(member, pointer, is_left, parts);
                        pointer.truncate(length);
                    }
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }
    walk(value, &mut String::new(), is_left, parts);
}

/// Escapes a name for a JSON pointer.
#[must_use]
pub fn escape(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) { name.replace('~', "~0").replace('/', "~1").into() } else { name.into() }
}

/// The value as compact JSON, with strings replaced by `rewrites`. `pointer` is its place.
#[must_use]
pub fn rewritten_json(value: &Json<'_>, rewrites: &[crate::Rewrite]) -> String {
    let mut out = Vec::new();
    let rewrites = rewrites.iter().map(|rewrite| (rewrite.pointer.as_str(), rewrite.text.as_str())).collect();
    write(value, &mut String::new(), &rewrites, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn write(value: &Json<'_>, pointer: &mut String, rewrites: &BTreeMap<&str, &str>, out: &mut Vec<u8>) {
    let length = pointer.len();
    match value {
        Json::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                pointer.push('/');
                pointer.push_str(&at.to_string());
                write(item, pointer, rewrites, out);
                pointer.truncate(length);
            }
            out.push(b']');
        }
        Json::Object(members) => {
            out.push(b'{');
            for (at, (raw, member)) in members.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                out.push(b'"');
                out.extend_from_slice(raw.as_bytes());
                out.extend_from_slice(b"\":");
                pointer.push('/');
                pointer.push_str(&escape(&agentsh_base::json::unescape(raw)));
                write(member, pointer, rewrites, out);
                pointer.truncate(length);
            }
            out.push(b'}');
        }
        Json::String(_) => match rewrites.get(pointer.as_str()) {
            Some(text) => agentsh_base::json::write_text(text, out),
            None => value.write(out),
        },
        _ => value.write(out),
    }
}
