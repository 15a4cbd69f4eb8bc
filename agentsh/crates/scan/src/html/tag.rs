//! Parses one tag as browsers do.

use std::borrow::Cow;
use std::ops::Range;

use agentsh_secrets::views;

/// Limit in bytes; longer tags are text.
const MAX_LENGTH: usize = 65_536;

#[derive(Debug)]
pub struct Tag<'a> {
    pub name: &'a str,
    pub closes: bool,
    pub attributes: Vec<Attribute<'a>>,
    /// Behind the `>`.
    pub end: usize,
}

#[derive(Debug)]
pub struct Attribute<'a> {
    pub name: &'a str,
    /// The range of the whole attribute.
    pub place: Range<usize>,
    text: &'a str,
    value: Range<usize>,
}

impl<'a> Tag<'a> {
    /// Parses the tag at `start`.
    pub fn read(text: &'a str, start: usize) -> Option<Self> {
        let limit = text.floor_char_boundary((start + MAX_LENGTH).min(text.len()));
        let bytes = &text.as_bytes()[..limit];
        let closes = bytes.get(start + 1) == Some(&b'/');
        let from = start + 1 + usize::from(closes);
        if !bytes.get(from)?.is_ascii_alphabetic() {
            return None;
        }
        let mut at =
            from + length(&bytes[from..], |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':'));
        let name = &text[from..at];
        if !matches!(bytes.get(at)?, b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | b'\x0c') {
            return None;
        }
        let mut attributes = Vec::new();
        loop {
            at += length(&bytes[at..], |byte| byte.is_ascii_whitespace() || byte == b'/');
            match bytes.get(at)? {
                b'>' => return Some(Self { name, closes, attributes, end: at + 1 }),
                b'<' => return None,
                _ => {}
            }
            let begin = at;
            // A leading `=` is part of the name.
            at += 1;
            at += length(&bytes[at..], |byte| {
                !byte.is_ascii_whitespace() && !matches!(byte, b'=' | b'>' | b'/' | b'<')
            });
            let name = text.get(begin..at)?;
            let spaces = length(&bytes[at..], |byte| byte.is_ascii_whitespace());
            let mut value = at..at;
            if bytes.get(at + spaces) == Some(&b'=') {
                at += spaces + 1;
                at += length(&bytes[at..], |byte| byte.is_ascii_whitespace());
                value = match bytes.get(at)? {
                    quote @ (b'"' | b'\'') => {
                        let end = at + 1 + memchr::memchr(*quote, &bytes[at + 1..])?;
                        let value = at + 1..end;
                        at = end + 1;
                        value
                    }
                    _ => {
                        let end =
                            at + length(&bytes[at..], |byte| !byte.is_ascii_whitespace() && byte != b'>');
                        let value = at..end;
                        at = end;
                        value
                    }
                };
            }
            attributes.push(Attribute { name, place: begin..at, text, value });
        }
    }

    pub fn value(&self, name: &str) -> Option<Cow<'a, str>> {
        self.attributes
            .iter()
            .find(|other| other.name.eq_ignore_ascii_case(name))
            .map(Attribute::decoded_value)
    }

    pub fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|attribute| attribute.name.eq_ignore_ascii_case(name))
    }
}

impl<'a> Attribute<'a> {
    /// Whether such a value may reach a model and not a person, and is long enough to matter.
    pub fn may_reach_model(&self) -> bool {
        let name = self.name;
        let is_text =
            !["href", "src", "class", "id", "style", "srcset", "d", "width", "height", "type", "rel"]
                .iter()
                .any(|other| name.eq_ignore_ascii_case(other));
        is_text && self.value.len() >= 16
    }

    /// The value with resolved character references.
    pub fn decoded_value(&self) -> Cow<'a, str> {
        let value = &self.text[self.value.clone()];
        if !value.contains('&') {
            return value.into();
        }
        views::escapes(value).map_or(value.into(), |view| view.text.into())
    }
}

fn length(bytes: &[u8], fits: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !fits(*byte)).unwrap_or(bytes.len())
}
