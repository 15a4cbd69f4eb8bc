//! JSON configuration files with the line of each key, parsed by the strict reader.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::AgentError;
use agentsh_base::json::{JsonError, JsonErrorKind, MAX_DEPTH, MAX_FILE_VALUES, read_file, unescape};

/// Parses a whole file.
///
/// # Errors
/// For anything that is not JSON, for a duplicate key in an object, and for comments.
pub fn parse(text: &str, path: &Path) -> Result<Value, AgentError> {
    read_file(text.as_bytes()).map(|json| json.to_value()).map_err(|error| {
        let before = text.get(..error.offset).unwrap_or(text);
        let (what, fix) = if is_comment(text, error.offset) {
            ("comments are not supported here".to_owned(), "remove them, or keep a copy without them")
        } else {
            (format!("not valid JSON: {}", reason(text, error)), "correct the file")
        };
        AgentError::Config {
            path: path.to_owned(),
            line: 1 + before.matches('\n').count() as u64,
            what,
            fix: fix.to_owned(),
        }
    })
}

fn reason(text: &str, JsonError { kind, offset }: JsonError) -> String {
    match kind {
        JsonErrorKind::DuplicateKey => {
            let end = string_end(text.as_bytes(), offset.saturating_sub(1));
            let key = text.get(offset..end.saturating_sub(1)).unwrap_or_default();
            format!("duplicate key {:?}", unescape(key))
        }
        JsonErrorKind::TooDeep => format!("it is nested deeper than {MAX_DEPTH} levels"),
        JsonErrorKind::TooManyValues => format!("it contains more than {MAX_FILE_VALUES} values"),
        JsonErrorKind::InvalidUtf8 | JsonErrorKind::InvalidJson => {
            match text.get(offset..).unwrap_or("").chars().next() {
                Some(found) => format!("{found:?} is not expected there"),
                None => "it ends too early".to_owned(),
            }
        }
    }
}

/// Parses a whole file in which comments and commas after the last member are allowed.
///
/// # Errors
/// Like [`parse`], for everything else.
pub(super) fn parse_relaxed(text: &str, path: &Path) -> Result<Value, AgentError> {
    parse(&blank_comments(text), path)
}

/// The text with spaces for its comments, and for commas after a last member, so that positions stay the same.
#[must_use]
pub fn blank_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    // The position of a comma that nothing has followed yet.
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
                        let key = unescape(text.get(at + 1..end - 1).unwrap_or_default()).into_owned();
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

/// Whether the reader stopped at the start of a comment.
fn is_comment(text: &str, offset: usize) -> bool {
    text.get(offset..).is_some_and(|rest| rest.starts_with("//") || rest.starts_with("/*"))
}
