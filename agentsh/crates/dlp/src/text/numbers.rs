//! Lists of character codes: `[104, 105]`, `chr(104)+chr(105)`, `0150 0151`, `1 2 3` for a, b, c.

use std::ops::Range;

use super::Step;
use super::profile::Profile;
use super::walk::Walk;
use super::widened::widened;

/// Fewer numbers than this are numbers.
const MIN_LENGTH: usize = 6;
/// Bytes between two numbers of a list.
const MAX_GAP: usize = 12;

#[derive(Default)]
struct List {
    values: Vec<u32>,
    /// The same digits read in base 8; emptied by a digit that is none.
    octal: Vec<u32>,
    is_octal: bool,
    at: Range<usize>,
}

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.digits() < MIN_LENGTH || profile.length - profile.letters_and_digits() < MIN_LENGTH - 1 {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let mut list = List { is_octal: true, ..List::default() };
    let mut position = 0;
    while position < bytes.len() {
        if !bytes[position].is_ascii_digit() {
            position += 1;
            continue;
        }
        let start = position;
        let (mut value, mut octal) = (0_u32, 0_u32);
        while let Some(digit) = bytes.get(position).filter(|byte| byte.is_ascii_digit()) {
            let digit = u32::from(digit - b'0');
            value = value.saturating_mul(10).saturating_add(digit);
            octal = octal.saturating_mul(8).saturating_add(digit);
            list.is_octal &= digit < 8;
            position += 1;
        }
        let gap = &bytes[list.at.end..start];
        // Digits in hex or in a name are between letters.
        let apart = gap.len() <= MAX_GAP && gap.iter().any(|byte| !byte.is_ascii_alphanumeric());
        if !apart || value == u32::MAX {
            let is_octal = list.is_octal;
            list.give(walk);
            list = List {
                is_octal: is_octal || bytes[start..position].iter().all(|b| *b < b'8'),
                ..List::default()
            };
        }
        if value == u32::MAX {
            list.at = position..position;
            continue;
        }
        if list.values.is_empty() {
            list.at.start = start;
        }
        list.values.push(value);
        list.octal.push(octal);
        list.at.end = position;
    }
    list.give(walk);
}

impl List {
    fn give(&self, walk: &mut Walk<'_>) {
        if self.values.len() < MIN_LENGTH {
            return;
        }
        give(&self.values, &self.at, walk);
        if self.is_octal {
            give(&self.octal, &self.at, walk);
        }
        let octal = if self.is_octal { self.octal.as_slice() } else { &[] };
        for text in [self.values.as_slice(), octal].into_iter().flat_map(widened) {
            walk.work(text.len());
            walk.found_text(Step::Integers, &text, self.at.clone());
        }
        if self.values.iter().all(|value| *value <= 26) {
            let letters: Vec<u32> = self.values.iter().map(|v| if *v == 0 { 32 } else { 96 + v }).collect();
            give(&letters, &self.at, walk);
        }
    }
}

fn give(values: &[u32], at: &Range<usize>, walk: &mut Walk<'_>) {
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
