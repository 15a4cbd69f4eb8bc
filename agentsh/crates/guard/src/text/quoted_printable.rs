//! Quoted-printable, as mail writes it: `=73=6B`, and lines that end in `=`.

use super::Step;
use super::profile::Profile;
use super::views::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.count(b'=') < 2 {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let (mut position, mut resolved, mut first, mut last) = (0, 0_usize, bytes.len(), 0);
    while let Some(&byte) = bytes.get(position) {
        let (length, decoded) = match (byte, &bytes[position + 1..]) {
            (b'=', [b'\r', b'\n', ..]) => (3, None),
            (b'=', [b'\n', ..]) => (2, None),
            (b'=', [high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (3, Some(high << 4 | low)),
                _ => (1, Some(byte)),
            },
            _ => (1, Some(byte)),
        };
        if length > 1 {
            resolved += 1;
            first = first.min(position);
            last = position + length;
        }
        out.extend(decoded);
        position += length;
    }
    if resolved >= 2 {
        walk.found_rewritten(Step::QuotedPrintable, &out, first..last, resolved);
    }
}

/// Upper-case, as mail writes it: `key=added` is not a character.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
