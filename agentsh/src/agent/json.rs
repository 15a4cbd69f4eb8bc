//! JSON in which every key stands once, and the lines on which keys stand.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::AgentError;

/// Parses a whole file.
///
/// # Errors
/// For anything that is not JSON, for a key that stands twice in one object, and for comments.
pub fn parse(text: &str, path: &Path) -> Result<Value, AgentError> {
    serde_json::from_str::<Strict>(text).map(|strict| strict.0).map_err(|error| {
        let (what, fix) = if comment_at(text, error.line(), error.column()) {
            ("comments are not supported here".to_owned(), "remove them, or keep a copy without them")
        } else {
            (format!("not valid JSON: {error}"), "correct the file")
        };
        AgentError::Config {
            path: path.to_owned(),
            line: error.line().max(1) as u64,
            what,
            fix: fix.to_owned(),
        }
    })
}

/// Parses a whole file in which comments and commas behind the last member are allowed.
///
/// # Errors
/// As [`parse`], for everything else.
pub(super) fn parse_relaxed(text: &str, path: &Path) -> Result<Value, AgentError> {
    parse(&plain(text), path)
}

/// The text with spaces for its comments, and for commas behind a last member: places stay what they are.
#[must_use]
pub fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    // Where a comma stands that nothing has followed yet.
    let mut comma = None;
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let end = match (byte, bytes.get(at + 1)) {
            (b'"', _) => string_end(bytes, at),
            (b'/', Some(b'/')) => {
                let length = bytes.iter().skip(at).take_while(|byte| **byte != b'\n').count();
                blank(&mut out, length);
                at += length;
                continue;
            }
            (b'/', Some(b'*')) => {
                let inner = bytes.get(at + 2..).unwrap_or_default();
                let length =
                    inner.windows(2).position(|pair| pair == b"*/").map_or(inner.len(), |end| end + 2);
                let comment = bytes.get(at..at + 2 + length).unwrap_or_default();
                out.extend(comment.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
                at += comment.len();
                continue;
            }
            _ => at + 1,
        };
        match byte {
            b',' => comma = Some(out.len()),
            b'}' | b']' => {
                if let Some(place) = comma.take().and_then(|at: usize| out.get_mut(at)) {
                    *place = b' ';
                }
            }
            _ if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        out.extend(bytes.get(at..end).unwrap_or_default());
        at = end;
    }
    // Whole characters were copied, or replaced by spaces.
    String::from_utf8(out).unwrap_or_default()
}

fn blank(out: &mut Vec<u8>, length: usize) {
    out.resize(out.len() + length, b' ');
}

/// The lines, counted from 1, of the direct keys of the object at `place`. `text` must have been parsed before.
pub(super) fn key_lines(text: &str, place: &[&str]) -> BTreeMap<String, u64> {
    let bytes = text.as_bytes();
    let mut found = BTreeMap::new();
    // For each open bracket: how many steps of `place` lead to it, if they do.
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut next = Some(0);
    let (mut at, mut line) = (0, 1);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => line += 1,
            b'{' => open.push(next.take()),
            b'[' => {
                open.push(None);
                next = None;
            }
            b'}' | b']' => {
                open.pop();
            }
            b'"' => {
                let end = string_end(bytes, at);
                if followed_by_colon(bytes, end) {
                    let steps = open.last().copied().flatten();
                    next = None;
                    if let Some(steps) = steps {
                        let key: String = serde_json::from_str(&text[at..end]).unwrap_or_default();
                        if steps == place.len() {
                            found.entry(key).or_insert(line);
                        } else if key == place[steps] {
                            next = Some(steps + 1);
                        }
                    }
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Index after the closing quote of the string that starts at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

fn followed_by_colon(bytes: &[u8], from: usize) -> bool {
    bytes.iter().skip(from).find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Whether the parser stopped at the start of a comment. Lines and columns count from 1.
fn comment_at(text: &str, line: usize, column: usize) -> bool {
    let Some(text) = text.lines().nth(line.saturating_sub(1)) else { return false };
    let start = column.saturating_sub(1).min(text.len());
    text.as_bytes().get(start) == Some(&b'/') && matches!(text.as_bytes().get(start + 1), Some(b'/' | b'*'))
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice")));
            }
            let Strict(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}
