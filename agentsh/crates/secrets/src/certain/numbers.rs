//! Numbers with a check digit or a fixed form: cards, social security, phones, IBANs.

use std::ops::Range;

use super::Secret;
use crate::{checks, iban};

/// Limit of a number with separators, in bytes.
const MAX_LENGTH: usize = 48;
/// The longest known number.
const MAX_DIGITS: usize = 19;
/// Minimum digits of a number.
const MIN_DIGITS: usize = 9;
/// Bytes that are checked together for digits.
const BLOCK_BYTES: usize = 32;

pub(super) fn find(text: &str, found: &mut Vec<Secret>) {
    find_where(text, may_begin, found);
}

/// `may_begin`: whether a number may begin at a byte, with a first group of that length.
fn find_where(text: &str, may_begin: fn(&[u8], usize, usize) -> bool, found: &mut Vec<Secret>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    let (mut digits, mut groups) = (Vec::new(), Vec::new());
    while let Some(at) = next_digit(bytes, from) {
        let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if may_begin(bytes, at, length) {
            let (end, is_whole) = chain(bytes, at, &mut digits, &mut groups);
            if (MIN_DIGITS..=MAX_DIGITS).contains(&digits.len())
                && let Some(secret) = number(bytes, at, end, &digits, &groups)
            {
                from = secret.place.end;
                found.push(secret);
                continue;
            }
            if is_whole && digits.len() < MIN_DIGITS {
                // Later groups begin shorter numbers.
                from = end;
                continue;
            }
        }
        // An IBAN begins with two letters before its check digits.
        if let Some(place) = at.checked_sub(2).and_then(|start| iban::find_iban(bytes, start)) {
            from = place.end;
            found.push(Secret::without_label("IBAN", place));
            continue;
        }
        // Other values do not begin inside a word.
        let in_word = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        let is_part = |byte: &&u8| if in_word { byte.is_ascii_alphanumeric() } else { byte.is_ascii_digit() };
        from = at + bytes[at..].iter().take_while(is_part).count();
    }
}

/// Whether a number may begin with a group of this length: this and the next group rule out most.
fn may_begin(bytes: &[u8], start: usize, length: usize) -> bool {
    if is_after_letter(bytes, start) {
        return false;
    }
    let next = || {
        let rest = &bytes[start + length..];
        let between = rest.iter().take(2).take_while(|byte| !byte.is_ascii_digit()).count();
        rest[between..].iter().take(7).take_while(|byte| byte.is_ascii_digit()).count()
    };
    match length {
        _ if start.checked_sub(1).is_some_and(|before| matches!(bytes[before], b'+' | b'(')) => true,
        1 => bytes[start] == b'1' && next() == 3,
        3 => matches!(next(), 2 | 3),
        4 => matches!(next(), 4 | 6),
        _ => (13..=MAX_DIGITS).contains(&length),
    }
}

/// Whether it continues a word.
fn is_after_letter(bytes: &[u8], start: usize) -> bool {
    start.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_alphanumeric() || bytes[before] == b'_')
}

/// The position of the next digit.
fn next_digit(bytes: &[u8], mut from: usize) -> Option<usize> {
    // In a text of digits the next one is near.
    if let Some(offset) = bytes[from..].iter().take(8).position(u8::is_ascii_digit) {
        return Some(from + offset);
    }
    while let Some(block) = bytes[from..].first_chunk::<BLOCK_BYTES>() {
        if block.iter().fold(false, |any, byte| any | byte.is_ascii_digit()) {
            break;
        }
        from += BLOCK_BYTES;
    }
    bytes[from..].iter().position(u8::is_ascii_digit).map(|offset| from + offset)
}

struct Group {
    start: usize,
    end: usize,
}

/// Digit groups with single separators: their end, and whether no other group follows.
fn chain(bytes: &[u8], start: usize, digits: &mut Vec<u8>, groups: &mut Vec<Group>) -> (usize, bool) {
    digits.clear();
    groups.clear();
    let (mut at, mut end) = (start, start);
    while at < bytes.len() && at - start < MAX_LENGTH && digits.len() <= MAX_DIGITS {
        let from = at;
        while at < bytes.len() && bytes[at].is_ascii_digit() && digits.len() < MAX_LENGTH {
            digits.push(bytes[at] - b'0');
            at += 1;
        }
        if at == from {
            return (end, true);
        }
        groups.push(Group { start: from, end: at });
        end = at;
        at += match bytes.get(at..) {
            Some([b' ' | b'-' | b'.', next, ..]) if next.is_ascii_digit() => 1,
            Some([b')', b' ' | b'-', next, ..]) if next.is_ascii_digit() => 2,
            Some([b')', next, ..]) if next.is_ascii_digit() => 1,
            Some([b' ', b'(', next, ..]) if next.is_ascii_digit() => 2,
            _ => return (end, true),
        };
    }
    (end, at >= bytes.len())
}

fn number(bytes: &[u8], start: usize, end: usize, digits: &[u8], groups: &[Group]) -> Option<Secret> {
    let before = start.checked_sub(1).map(|at| bytes[at]);
    let after = bytes.get(end).copied();
    if after.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let lengths: Vec<usize> = groups.iter().map(|group| group.end - group.start).collect();
    let separators: Vec<u8> = groups.windows(2).map(|pair| bytes[pair[0].end]).collect();
    let all = |mark: u8| separators.iter().all(|byte| *byte == mark);
    if let Some(end) = card(digits, groups, &separators)
        && !matches!(before, Some(b'.' | b'-'))
        && !matches!(bytes.get(end), Some(b'-' | b'_'))
    {
        return Some(Secret::without_label("CREDIT CARD", start..end));
    }
    // Not part of something longer: 1-2-3-123-45-6789.
    let bounded = !matches!(before, Some(b'-' | b'.' | b'/' | b'@' | b'#'))
        && after != Some(b'-')
        && after != Some(b'/');
    if lengths == [3, 2, 4] && all(b'-') && bounded && checks::ssn(digits) {
        return Some(Secret::without_label("SSN", start..end));
    }
    phone(bytes, start, end, &lengths, &separators, bounded)
        .map(|place| Secret::without_label("PHONE", place))
}

/// The end of a card number: groups with one kind of separator, issuer, length and check digit.
fn card(digits: &[u8], groups: &[Group], separators: &[u8]) -> Option<usize> {
    let one_kind = separators.iter().all(|byte| *byte == separators[0] && matches!(byte, b' ' | b'-'));
    if !(13..=19).contains(&digits.len()) || !one_kind {
        return None;
    }
    let lengths: Vec<usize> = groups.iter().map(|group| group.end - group.start).collect();
    let is_written = lengths.len() == 1
        || lengths.iter().rev().skip(1).all(|length| *length == 4)
            && lengths.last().is_some_and(|last| *last <= 4)
        || lengths == [4, 6, 5]
        || lengths == [4, 6, 4];
    (is_written && checks::is_issuer(digits) && checks::luhn(digits))
        .then(|| groups.last().map_or(0, |group| group.end))
}

fn phone(
    bytes: &[u8],
    start: usize,
    end: usize,
    lengths: &[usize],
    separators: &[u8],
    bounded: bool,
) -> Option<Range<usize>> {
    let opened = |start: usize| start.checked_sub(1).filter(|at| bytes[*at] == b'(').unwrap_or(start);
    let start = if separators.first() == Some(&b')') { opened(start) } else { start };
    let plus = start.checked_sub(1).filter(|at| bytes[*at] == b'+');
    let total: usize = lengths.iter().sum();
    if let Some(plus) = plus {
        let alone = plus == 0 || !bytes[plus - 1].is_ascii_alphanumeric();
        let grouped = lengths[0] <= 3 && lengths.len() >= 2 || lengths.len() == 1 && total >= 11;
        return (alone && grouped && (8..=15).contains(&total)).then_some(plus..end);
    }
    let one_kind = separators.iter().skip(1).all(|byte| Some(byte) == separators.get(1));
    let national = lengths == [3, 3, 4] && one_kind || lengths == [1, 3, 3, 4] && bytes[start] == b'1';
    // Three dotted groups may be a version: the first digit decides.
    let first = lengths.len().checked_sub(3).map(|skip| lengths[..skip].iter().sum::<usize>() + skip);
    let is_area = first
        .and_then(|at| bytes.get(start + at + usize::from(bytes[start] == b'(')))
        .is_some_and(|d| (b'2'..=b'9').contains(d));
    (national && bounded && is_area).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quick_number_search_finds_the_same_as_the_slow_one(
            text in "((555|4111|1|[0-9]{1,5}|378282|10005|[0-9]{13,20})[ .()+\\-]{1,2}|[A ]|\\+){0,12}",
        ) {
            let (mut quickly, mut slowly) = (Vec::new(), Vec::new());
            find_where(&text, may_begin, &mut quickly);
            find_where(&text, |bytes, at, _| !is_after_letter(bytes, at), &mut slowly);
            prop_assert_eq!(quickly, slowly);
        }
    }
}
