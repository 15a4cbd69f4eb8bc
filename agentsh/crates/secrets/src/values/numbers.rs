//! Numbers with a meaning: cards, phones, national ids, addresses of machines.

use std::ops::Range;

use super::entities::{Entity, Kind};
use super::national;
use crate::{checks, iban};

/// Minimum digits.
const MIN_COUNT: usize = 7;
const _: () = assert!(national::MIN_COUNT < MIN_COUNT);
/// Limit with separators, in bytes.
const MAX_LENGTH: usize = 40;

/// Digits with single separators, as people write long numbers.
pub(super) fn find(text: &str, limit: usize, sought: bool, found: &mut Vec<Entity>) {
    let bytes = text.as_bytes();
    // In pieces whose count fits a byte, to count many bytes at once.
    let digits = |piece: &[u8]| piece.iter().map(|byte| u8::from(byte.is_ascii_digit())).sum::<u8>();
    if bytes.chunks(255).map(|piece| usize::from(digits(piece))).sum::<usize>() < national::MIN_COUNT {
        return;
    }
    spaced_ibans(bytes, limit, found);
    let mut at = 0;
    let (mut digits, mut groups) = (Vec::new(), Vec::new());
    while let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) {
        let end = chain(bytes, start, &mut digits, &mut groups);
        at = end.max(start + 1);
        if digits.len() < national::MIN_COUNT {
            continue;
        }
        let glued = start > 0
            && (bytes[start - 1].is_ascii_alphanumeric() || matches!(bytes[start - 1], b'.' | b'_'))
            || bytes.get(end).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let id = national::find(text, &(start..end), &digits, &groups, sought);
        if let Some(Range { start, end }) = id.filter(|_| found.len() < limit) {
            found.push(Entity { kind: Kind::NationalId, start, end });
            continue;
        }
        if glued || digits.len() < MIN_COUNT {
            continue;
        }
        let plus = start > 0 && bytes[start - 1] == b'+';
        if let Some(kind) = number_kind(bytes, start, end, &digits, &groups, plus)
            && found.len() < limit
        {
            found.push(Entity { kind, start, end });
        }
    }
}

/// IBANs in groups of four, the last one shorter.
fn spaced_ibans(bytes: &[u8], limit: usize, found: &mut Vec<Entity>) {
    let mut at = 0;
    // The first space follows four letters and digits.
    for space in memchr::memchr_iter(b' ', bytes) {
        let Some(start) =
            space.checked_sub(4).filter(|start| *start >= at && begins_iban(&bytes[*start..space]))
        else {
            continue;
        };
        if let Some(Range { start, end }) = iban::find_iban(bytes, start).filter(|_| found.len() < limit) {
            found.push(Entity { kind: Kind::Iban, start, end });
            at = end;
        }
    }
}

fn begins_iban(bytes: &[u8]) -> bool {
    matches!(bytes, [b'A'..=b'Z', b'A'..=b'Z', b'0'..=b'9', b'0'..=b'9'])
}

fn number_kind(
    bytes: &[u8],
    start: usize,
    end: usize,
    digits: &[u8],
    groups: &[usize],
    plus: bool,
) -> Option<Kind> {
    let written = &bytes[start..end];
    if groups.len() == 4 && written.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
        return is_address(written).then_some(Kind::Ip);
    }
    if (13..=19).contains(&digits.len()) && checks::is_issuer(digits) && checks::luhn(digits) {
        return Some(Kind::Card);
    }
    if groups == [3, 2, 4] && checks::ssn(digits) && written.iter().any(|byte| matches!(byte, b'-' | b' ')) {
        return Some(Kind::NationalId);
    }
    if plus && (8..=15).contains(&digits.len()) {
        return Some(Kind::Phone);
    }
    let dated = groups.first() == Some(&4) && groups.get(1) == Some(&2);
    let grouped = groups.len() >= 3 && groups.iter().all(|&length| (2..=4).contains(&length));
    (grouped
        && !dated
        && (10..=12).contains(&digits.len())
        && written.iter().any(|byte| matches!(byte, b'-' | b' ' | b')')))
    .then_some(Kind::Phone)
}

/// From a digit: the number's end, digits and group lengths.
fn chain(bytes: &[u8], start: usize, digits: &mut Vec<u8>, groups: &mut Vec<usize>) -> usize {
    digits.clear();
    groups.clear();
    groups.push(0);
    let (mut at, mut end) = (start, start);
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_digit() {
            digits.push(byte - b'0');
            if let Some(last) = groups.last_mut() {
                *last += 1;
            }
            end = at + 1;
        } else {
            let separators = bytes[at..]
                .iter()
                .take(3)
                .take_while(|byte| matches!(byte, b' ' | b'-' | b'.' | b'(' | b')'))
                .count();
            let next = bytes.get(at + separators).is_some_and(u8::is_ascii_digit);
            if separators == 0
                || !next
                || at - start > MAX_LENGTH
                || (separators > 1
                    && !bytes[at..at + separators].iter().any(|byte| matches!(byte, b'(' | b')')))
            {
                break;
            }
            groups.push(0);
            at += separators - 1;
        }
        at += 1;
    }
    end
}

/// An IPv4 address, except loopback and unspecified.
fn is_address(written: &[u8]) -> bool {
    let mut parts = written.split(|byte| *byte == b'.').map(|part| {
        std::str::from_utf8(part).ok().filter(|part| part.len() <= 3).and_then(|part| part.parse::<u8>().ok())
    });
    let first = parts.next().flatten();
    !matches!(first, None | Some(0 | 127)) && parts.all(|part| part.is_some())
}
