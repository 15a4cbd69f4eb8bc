//! Percent and backslash escapes, nested and mixed, resolved in one pass: all output is
//! checked from its end, so that an escape that arises from another one is resolved as well.

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if !profile.contains_any(b"%\\") {
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
            // An escape cannot end this far after its start.
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

/// Occurs in every escape, at most [`MAX_LENGTH`] bytes before its end.
fn begins(byte: u8) -> bool {
    matches!(byte, b'%' | b'\\')
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

/// The escape at the end of `out`: its length and its meaning, which is always shorter.
fn ending(out: &[u8]) -> Option<(usize, Unit)> {
    match *out.last()? {
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
        [.., b'%' | b'\\', b'u', a, b, c, d] => utf16_unit(out, hex(&[*a, *b, *c, *d])?),
        [.., b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7'] => {
            Some((4, Unit::Byte((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))))
        }
        _ => None,
    }
}

/// A UTF-16 unit. The first half of a pair waits for the second.
fn utf16_unit(out: &[u8], unit: u32) -> Option<(usize, Unit)> {
    if let Some(character) = char::from_u32(unit) {
        return Some((6, Unit::Character(character)));
    }
    let [.., b'%' | b'\\', b'u', a, b, c, d, _, _, _, _, _, _] = out else { return None };
    let high = hex(&[*a, *b, *c, *d]).filter(|high| (0xd800..0xdc00).contains(high))?;
    let low = unit.checked_sub(0xdc00)?;
    char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + low).map(|character| (12, Unit::Character(character)))
}

fn hex(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 6 {
        return None;
    }
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}
