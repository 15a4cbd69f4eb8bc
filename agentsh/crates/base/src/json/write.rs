//! Compact output: the same tokens without insignificant white space.

use super::tree::Json;

impl Json<'_> {
    /// Appends the value. No newline can occur: inside strings the reader refuses raw ones.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(raw) => out.extend_from_slice(raw.as_bytes()),
            Self::String(raw) => write_raw(raw, out),
            Self::Array(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Self::Object(members) => {
                out.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_raw(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The value as compact text.
    #[must_use]
    pub fn to_compact(&self) -> String {
        let mut out = Vec::new();
        self.write(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

/// Appends `text` as a JSON string, escaping only what must be escaped.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x09 => out.extend_from_slice(b"\\t"),
            0x0A => out.extend_from_slice(b"\\n"),
            0x0C => out.extend_from_slice(b"\\f"),
            0x0D => out.extend_from_slice(b"\\r"),
            0x00..=0x1F => {
                out.extend_from_slice(b"\\u00");
                out.push(b'0' + (byte >> 4));
                out.push(b"0123456789abcdef"[usize::from(byte & 15)]);
            }
            other => out.push(other),
        }
    }
    out.push(b'"');
}

/// `text` as it is between the quotes of a JSON string.
#[must_use]
pub fn escape_text(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_text(text, &mut out);
    let spelled = String::from_utf8(out).unwrap_or_default();
    spelled.get(1..spelled.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

fn write_raw(raw: &str, out: &mut Vec<u8>) {
    out.reserve(raw.len() + 2);
    out.push(b'"');
    out.extend_from_slice(raw.as_bytes());
    out.push(b'"');
}
