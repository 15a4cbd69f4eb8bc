//! Percent, backslash, HTML and `U+` escapes, nested and mixed, resolved in one pass: whatever is written is
//! looked at from its end, so that an escape that arises from another one is resolved as well.

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if !profile.any(b"%\\&") && (profile.count(b'+') == 0 || !profile.any(b"Uu")) {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut changed: Option<std::ops::Range<usize>> = None;
    let mut places = Vec::new();
    let (mut position, mut watched) = (0, 0_usize);
    while position < bytes.len() {
        if watched == 0 {
            // Far behind what begins an escape none can end.
            let rest = &bytes[position..];
            let plain = rest.iter().position(|byte| begins(*byte)).unwrap_or(rest.len());
            out.extend_from_slice(&rest[..plain]);
            position += plain;
            watched = MAX_LENGTH + 1;
            continue;
        }
        let byte = bytes[position];
        out.push(byte);
        watched = if begins(byte) { MAX_LENGTH } else { watched - 1 };
        let mut resolved = false;
        while let Some((length, character)) = ending(&out) {
            out.truncate(out.len() - length);
            character.write(&mut out);
            resolved = true;
        }
        if resolved {
            watched = MAX_LENGTH;
            places.push(out.len());
            changed.get_or_insert(position..position).end = position + 1;
        }
        position += 1;
    }
    if let Some(at) = changed {
        // The first escape ends at the start: a step back to where it began.
        let mut start = at.start.saturating_sub(12);
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        walk.found_rewritten(Step::Escapes, &out, start..at.end, &places);
    }
}

/// Longest escape, in bytes.
const MAX_LENGTH: usize = 12;

/// Stands in every escape, at most [`MAX_LENGTH`] bytes before its end.
fn begins(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\' | b'&' | b'+')
}

enum Unit {
    Byte(u8),
    Character(char),
}

impl Unit {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Byte(byte) => out.push(*byte),
            Self::Character(character) => {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

/// The escape that `out` ends with: its length and what it stands for, which is always shorter.
fn ending(out: &[u8]) -> Option<(usize, Unit)> {
    match *out.last()? {
        b';' => entity(out),
        b'}' => braced(out),
        last if last.is_ascii_hexdigit() => numeric(out).or_else(|| simple(out)),
        _ => simple(out),
    }
}

fn simple(out: &[u8]) -> Option<(usize, Unit)> {
    let [.., b'\\', last] = out else { return None };
    let byte = match last {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'"' | b'\'' | b'/' | b'\\' | b'`' => *last,
        _ => return None,
    };
    Some((2, Unit::Byte(byte)))
}

fn numeric(out: &[u8]) -> Option<(usize, Unit)> {
    match out {
        [.., b'%', high, low] => {
            Some((3, Unit::Byte(hex(&[*high, *low]).and_then(|v| u8::try_from(v).ok())?)))
        }
        [.., b'\\', b'x' | b'X', high, low] => {
            Some((4, Unit::Byte(hex(&[*high, *low]).and_then(|v| u8::try_from(v).ok())?)))
        }
        [.., b'%' | b'\\', b'u', a, b, c, d] => wide(out, hex(&[*a, *b, *c, *d])?),
        [.., before, b'U' | b'u', b'+', _, _, _, _] if before.is_ascii_alphanumeric() => None,
        [.., b'U' | b'u', b'+', a, b, c, d] => {
            char::from_u32(hex(&[*a, *b, *c, *d])?).map(|character| (6, Unit::Character(character)))
        }
        [.., b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            Some((4, Unit::Byte((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))))
        }
        [.., b'\\', b'U', b'0', b'0', a, b, c, d, e, f] => {
            char::from_u32(hex(&[*a, *b, *c, *d, *e, *f])?).map(|character| (10, Unit::Character(character)))
        }
        _ => None,
    }
}

/// A UTF-16 unit. The first half of a pair waits for the second.
fn wide(out: &[u8], unit: u32) -> Option<(usize, Unit)> {
    if let Some(character) = char::from_u32(unit) {
        return Some((6, Unit::Character(character)));
    }
    let [.., b'%' | b'\\', b'u', a, b, c, d, _, _, _, _, _, _] = out else { return None };
    let high = hex(&[*a, *b, *c, *d]).filter(|high| (0xd800..0xdc00).contains(high))?;
    let low = unit.checked_sub(0xdc00)?;
    char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + low).map(|character| (12, Unit::Character(character)))
}

/// `\u{1f600}`
fn braced(out: &[u8]) -> Option<(usize, Unit)> {
    let start = last_of(out, b'{', 8)?;
    if !matches!(out.get(start.checked_sub(2)?..start), Some(b"\\u" | b"\\x")) {
        return None;
    }
    let character = char::from_u32(hex(&out[start + 1..out.len() - 1])?)?;
    Some((out.len() - start + 2, Unit::Character(character)))
}

/// `&#115;`, `&#x73;`, `&amp;`
fn entity(out: &[u8]) -> Option<(usize, Unit)> {
    // Each with the character behind its name.
    const NAMES: &str = "amp& lt< gt> quot\" apos' colon: sol/ bsol\\ period. comma, commat@ num# equals= plus+ lowbar_ hyphen- \
         dash- semi; quest? percnt% dollar$ excl! lpar( rpar)";
    let start = last_of(out, b'&', 12)?;
    let inside = &out[start + 1..out.len() - 1];
    let character = match inside {
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(hex(digits)?)?,
        [b'#', digits @ ..] => char::from_u32(decimal(digits)?)?,
        b"nbsp" => ' ',
        b"NewLine" => '\n',
        name => {
            let mut known = NAMES.split(' ').map(|known| known.split_at(known.len() - 1));
            known.find(|(known, _)| known.as_bytes() == name)?.1.chars().next()?
        }
    };
    let length = out.len() - start;
    (character.len_utf8() < length).then_some((length, Unit::Character(character)))
}

/// Where `wanted` stands last, at most `within` bytes before the end.
fn last_of(out: &[u8], wanted: u8, within: usize) -> Option<usize> {
    let from = out.len().saturating_sub(within);
    out[from..].iter().rposition(|byte| *byte == wanted).map(|at| from + at)
}

fn hex(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 6 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}

fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 7 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| Some(value * 10 + char::from(*digit).to_digit(10)?))
}
