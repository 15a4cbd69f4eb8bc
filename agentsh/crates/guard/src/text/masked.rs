//! Bytes that were combined with one byte by exclusive or.
//!
//! Every mask fits some bytes, so only those under which nearly all of them print are tried, the ones that read best
//! first.

use std::cmp::Reverse;
use std::ops::Range;

use super::Step;
use super::readable::is_printable;
use super::views::Walk;

/// Fewer bytes print under some mask by chance.
const MIN_LENGTH: usize = 12;
/// One byte in so many need not print: what stands in front of an encoded text decodes as well.
const ODD: usize = 8;
/// More are not looked at.
const MAX_LENGTH: usize = 64 * 1024;
/// So few bytes say too little about how well they read.
const SHORT: usize = 512;
/// Bytes that one piece may give in all, unless one mask alone gives more.
const OUTPUT: usize = 4096;

/// `bytes` were decoded by `step` from `at` of the current text.
pub(super) fn decode(step: Step, bytes: &[u8], at: &Range<usize>, walk: &mut Walk<'_>) {
    if bytes.len() < MIN_LENGTH || bytes.len() > MAX_LENGTH {
        return;
    }
    // Under one mask all of ASCII has the same first bit, and noise has not.
    let high = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    walk.work(bytes.len());
    if high.min(bytes.len() - high) * ODD > bytes.len() || walk.take_attempt() < bytes.len() {
        return;
    }
    let mut counts = [0_usize; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    let odd = bytes.len() / ODD;
    let seen: Vec<(u8, usize)> = (0..=255).zip(counts).filter(|(_, count)| *count > 0).collect();
    let plain = score(&seen, 0, odd);
    let mut masks: Vec<(usize, u8)> =
        (1..=255).filter_map(|mask| Some((score(&seen, mask, odd)?, mask))).collect();
    masks.sort_by_key(|(score, _)| Reverse(*score));
    // What reads best as it stands needs no mask.
    let best = masks.first().map(|(score, _)| *score);
    if bytes.len() > SHORT && plain >= best {
        return;
    }
    for (_, mask) in masks.into_iter().take((OUTPUT / bytes.len()).max(1)) {
        let text: String =
            bytes.iter().map(|byte| byte ^ mask).filter(|byte| is_printable(*byte)).map(char::from).collect();
        walk.found_masked(step, &text, at.clone());
    }
}

/// How well the bytes read under a mask; None when too many of them do not print.
fn score(seen: &[(u8, usize)], mask: u8, most_odd: usize) -> Option<usize> {
    let (mut sum, mut odd) = (0_usize, 0);
    for (byte, count) in seen {
        let worth = match byte ^ mask {
            b' ' | b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b'h' => 3,
            b'a'..=b'z' => 2,
            b'A'..=b'Z' | b'0'..=b'9' => 1,
            other if is_printable(other) => 0,
            _ => {
                odd += count;
                if odd > most_odd {
                    return None;
                }
                0
            }
        };
        sum = sum.saturating_add(worth * count);
    }
    Some(sum)
}
