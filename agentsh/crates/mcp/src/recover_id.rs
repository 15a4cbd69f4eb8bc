//! Extracts the id from an unreadable line, to answer its request with an error. Nothing of it is forwarded.

use crate::json::{self, Json};

use super::jsonrpc::{Id, Shape};

/// Length of a line that is examined.
const HEAD: usize = super::framing::HEAD_BYTES;
const TAIL: usize = super::framing::TAIL_BYTES;

#[derive(Debug, PartialEq, Eq)]
pub struct RecoveredId {
    pub id: Option<Id>,
    pub shape: Shape,
}

/// For a complete line.
pub fn from_line(line: &[u8]) -> RecoveredId {
    from_ends(&line[..line.len().min(HEAD)], &line[line.len().saturating_sub(TAIL)..], line.len() as u64)
}

/// For the first and last bytes of a line of `bytes`.
pub fn from_ends(head: &[u8], tail: &[u8], bytes: u64) -> RecoveredId {
    let is_cut = bytes > head.len() as u64;
    // A byte order mark is not JSON, but some clients write it.
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let mut seen = Members::default();
    let is_object = head.trim_ascii_start().first() == Some(&b'{');
    if is_object {
        scan(head, &mut seen);
    }
    let shape = match (seen.method, seen.answer) {
        (true, false) => Shape::Request,
        (false, true) => Shape::Response,
        // The deciding members may be in the missing part.
        (false, false) if !(is_object && is_cut) => Shape::Noise,
        _ => Shape::Unknown,
    };
    // The scan may not have been at the end.
    let is_missing = is_object && is_cut && !seen.has_id;
    let id = if is_missing { id_at_end(tail) } else { seen.id };
    RecoveredId { id, shape }
}

#[derive(Default)]
struct Members {
    /// Of several the last one, as with every client: it waits for the answer.
    id: Option<Id>,
    has_id: bool,
    method: bool,
    answer: bool,
}

/// Scans tokens, noting members of the outermost object, until something is invalid.
fn scan(head: &[u8], seen: &mut Members) {
    let mut at = 0;
    let mut depth = 0_usize;
    let mut name: Option<&[u8]> = None;
    while let Some(&byte) = head.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return;
                }
            }
            b'"' => {
                let Some(length) = string_length(&head[at..]) else { return };
                let token = &head[at..at + length];
                at += length;
                let is_name = head[at..].trim_ascii_start().first() == Some(&b':');
                if depth == 1 && is_name {
                    name = Some(token);
                    note_name(token, seen);
                } else if depth == 1 {
                    note_value(name.take(), token, seen);
                }
                continue;
            }
            b'-' | b'0'..=b'9' if depth == 1 => {
                let length = head[at..].iter().take_while(|byte| !b",}] \t\r\n".contains(byte)).count();
                // A number at the end may be cut.
                if at + length < head.len() {
                    note_value(name.take(), &head[at..at + length], seen);
                }
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

fn note_name(token: &[u8], seen: &mut Members) {
    match token {
        b"\"id\"" => (seen.id, seen.has_id) = (None, true),
        b"\"method\"" => seen.method = true,
        b"\"result\"" | b"\"error\"" => seen.answer = true,
        _ => {}
    }
}

fn note_value(name: Option<&[u8]>, token: &[u8], seen: &mut Members) {
    if name == Some(b"\"id\"") {
        seen.id = id_from(token);
    }
}

fn id_from(token: &[u8]) -> Option<Id> {
    json::read(token).ok().as_ref().and_then(|value: &Json<'_>| Id::from_json(value).ok())
}

/// `..., "id": 7}`: the final brace closes the outermost object, so the member belongs to it.
fn id_at_end(tail: &[u8]) -> Option<Id> {
    let body = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let at = memchr::memmem::rfind(body, b"\"id\"")?;
    let before = body[..at].trim_ascii_end();
    if !before.ends_with(b",") && !before.ends_with(b"{") {
        return None;
    }
    let value = body[at + 4..].trim_ascii_start().strip_prefix(b":")?;
    id_from(value.trim_ascii())
}

/// Length of the string token that `bytes` start with, quotes included.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> (Option<String>, Shape) {
        let salvage = from_line(line.as_bytes());
        (salvage.id.map(|id| id.spelled.into()), salvage.shape)
    }

    #[test]
    fn finds_the_id_of_the_outermost_object_only() {
        let id = |text: &str| Some(text.to_owned());
        for (line, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#, (id("7"), Shape::Response)),
            (r#"{"id":"a\"b","method":"x","params":{"#, (id(r#""a\"b""#), Shape::Request)),
            (r#"{"result":{"id":5},"jsonrpc":"2.0","id":9}"#, (id("9"), Shape::Response)),
            (r#"{"result":{"id":5}}"#, (None, Shape::Response)),
            ("\u{feff}{\"id\":7,\"method\":\"x\"}", (id("7"), Shape::Request)),
            (r#"{"id":1,"id":2,"method":"x"}"#, (id("2"), Shape::Request)),
            (r#"{"id":1,"id":1,"method":"x"}"#, (id("1"), Shape::Request)),
            (r#"{"id":1,"id":1,"id":null,"method":"x"}"#, (None, Shape::Request)),
            (r#"{"method":"x","text":"\"id\":5"#, (None, Shape::Request)),
            (r#"{"method":"x","params":{"id":5}"#, (None, Shape::Request)),
            (r#"{"id":1.5,"method":"x"}"#, (None, Shape::Request)),
            (r#"{"id":12"#, (None, Shape::Noise)),
            (r#"{"id":"#, (None, Shape::Noise)),
            ("Server listening on 8080", (None, Shape::Noise)),
            (r#"["id",7]"#, (None, Shape::Noise)),
            (r#"{"method":"m","result":1,"id":3,}"#, (id("3"), Shape::Unknown)),
            ("{", (None, Shape::Noise)),
            ("{\"", (None, Shape::Noise)),
            ("{\"\\", (None, Shape::Noise)),
        ] {
            assert_eq!(found(line), expected, "{line}");
        }
    }

    #[test]
    fn finds_an_id_after_a_result_that_is_too_long_to_keep() {
        let line = format!(r#"{{"result":{{"text":"{}"}},"jsonrpc":"2.0","id":"z-1"}}"#, "x".repeat(10_000));
        assert_eq!(found(&line), (Some("\"z-1\"".to_owned()), Shape::Response));
        let nested = format!(r#"{{"result":{{"text":"{}","id":4}}}}"#, "x".repeat(10_000));
        assert_eq!(found(&nested).0, None);
        let in_text = format!(r#"{{"result":{{"text":"{},\"id\":4}}"#, "x".repeat(10_000));
        assert_eq!(found(&in_text).0, None);
    }
}
