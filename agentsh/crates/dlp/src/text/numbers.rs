//! Lists of character codes: `[104, 105]`, `chr(104)+chr(105)`, `&#104;&#105;`.

use std::ops::Range;

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

/// Fewer numbers than this are numbers.
const MIN_LENGTH: usize = 6;
/// Bytes between two numbers of a list.
const MAX_GAP: usize = 12;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.digits() < MIN_LENGTH || profile.length - profile.letters_and_digits() < MIN_LENGTH - 1 {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let (mut values, mut at) = (Vec::new(), 0..0);
    let mut position = 0;
    while let Some(offset) = bytes[position..].iter().position(u8::is_ascii_digit) {
        let start = position + offset;
        let mut value = 0_u32;
        position = start;
        while let Some(digit) = bytes.get(position).filter(|byte| byte.is_ascii_digit()) {
            value = value.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            position += 1;
        }
        let gap = &bytes[at.end..start];
        // Digits in hex or in a name are between letters.
        let apart = gap.len() <= MAX_GAP && gap.iter().any(|byte| !byte.is_ascii_alphanumeric());
        if !apart || value == u32::MAX {
            list(&values, &at, walk);
            values.clear();
        }
        if values.is_empty() {
            at.start = start;
        }
        at.end = position;
        if value != u32::MAX {
            values.push(value);
        }
    }
    list(&values, &at, walk);
}

fn list(values: &[u32], at: &Range<usize>, walk: &mut Walk<'_>) {
    if values.len() < MIN_LENGTH {
        return;
    }
    let bytes: Vec<u8> = if let Ok(bytes) = values.iter().map(|value| u8::try_from(*value)).collect() {
        bytes
    } else {
        let characters: String = values.iter().filter_map(|value| char::from_u32(*value)).collect();
        characters.into_bytes()
    };
    walk.work(bytes.len());
    walk.found_bytes(Step::CharacterCodes, &bytes, at.clone());
    if bytes.len() == values.len() {
        walk.found_binary(Step::CharacterCodes, &bytes, at);
    }
}
