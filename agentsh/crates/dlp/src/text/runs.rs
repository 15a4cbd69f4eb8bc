//! Runs of an alphabet's letters, also broken over lines, grouped, or separated.

use std::ops::Range;

use agentsh_base::radix::{NONE, Values};
use agentsh_secrets::runs::runs;

pub(super) struct Alphabet {
    /// The value of each byte.
    pub table: &'static Values,
    /// `0x` before a piece belongs to no piece.
    pub prefixed: bool,
    /// Between other letters and digits a piece is a piece of a word, and of no group: only one that is long enough
    /// alone counts. For alphabets that every text is full of short pieces of.
    pub apart: bool,
}

/// Bytes between two pieces of one group: `", "`, `" +\n    "`.
const MAX_GAP: usize = 12;

/// Letters and digits.
static IS_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Finds groups of at least `shortest` symbols and gives their values and positions. Pieces are one group if they are equally
/// long, if both are long, or, with `loose`, always. `word_ranges`: see [`word_ranges`]; not needed for alphabets without
/// [`Alphabet::apart`]. Linear.
pub(super) fn groups(
    text: &[u8],
    alphabet: &Alphabet,
    shortest: usize,
    loose: bool,
    words: &[Range<usize>],
    each: &mut dyn FnMut(&[u8], Range<usize>),
) {
    let mut words = words.iter();
    let mut word = 0..0;
    let mut symbols: Vec<u8> = Vec::new();
    let mut group = 0..0;
    let (mut last, mut pieces, mut closed) = (0, 0_usize, false);
    let is_of = |byte: &u8| alphabet.table[usize::from(*byte)] != NONE;
    let mut position = 0;
    while position < text.len() {
        let Some(before) = text[position..].iter().position(is_of) else { break };
        let start = position + before;
        let run = text[start..].iter().position(|byte| !is_of(byte));
        position = run.map_or(text.len(), |run| start + run);
        let mut end = position;
        if alphabet.prefixed && text[end - 1] == b'0' && matches!(text.get(end), Some(b'x' | b'X')) {
            end -= 1;
        }
        let length = end - start;
        if alphabet.apart && !loose && is_glued(text, start, position) {
            if symbols.len() >= shortest {
                each(&symbols, group.clone());
            }
            symbols.clear();
            (pieces, closed) = (0, false);
            while word.end <= start {
                let Some(next) = words.next() else { break };
                word = next.clone();
            }
            let word = start..word.end.max(position);
            position = word.end;
            let of_word = |run: Range<usize>| run.start + word.start..run.end + word.start;
            for run in runs(&text[word.clone()], |byte| is_of(&byte), shortest).map(of_word) {
                symbols.extend(text[run.clone()].iter().map(|byte| alphabet.table[usize::from(*byte)]));
                each(&symbols, run);
                symbols.clear();
            }
            continue;
        }
        // A sign alone, as the `+` between two strings, is of no word.
        if length == 0 || length <= 2 && !text[start..end].iter().any(u8::is_ascii_alphanumeric) {
            continue;
        }
        let near = pieces > 0 && !closed && start - group.end <= MAX_GAP;
        let alike = length == last || (length >= 8 && last >= 8);
        let tail = length < last && (last >= 8 || pieces >= 3);
        if !(near && (loose || alike || tail)) {
            if symbols.len() >= shortest {
                each(&symbols, group.clone());
            }
            symbols.clear();
            (group, pieces, closed) = (start..end, 0, false);
        } else if !loose && !alike {
            closed = true;
        }
        symbols.extend(text[start..end].iter().map(|byte| alphabet.table[usize::from(*byte)]));
        (group.end, last, pieces) = (end, length, pieces + 1);
        // Padding is at the end of an encoded text.
        let next = text.get(end + 1).is_some_and(u8::is_ascii_alphanumeric);
        closed |= text.get(end) == Some(&b'=') && !next;
    }
    if symbols.len() >= shortest {
        each(&symbols, group);
    }
}

/// The ranges of consecutive letters and digits, in order.
pub(super) fn word_ranges(text: &[u8]) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].iter().position(|byte| IS_WORD[usize::from(*byte)]) {
        let start = from + start;
        let length = text[start..].iter().position(|byte| !IS_WORD[usize::from(*byte)]);
        let end = length.map_or(text.len(), |length| start + length);
        words.push(start..end);
        from = end;
    }
    words
}

/// Whether other letters or digits are directly before or after. One alone is a sign of a number: `\x6d`, `\u006d`, `6dh`, and
/// the `x` of `0x6d`.
fn is_glued(text: &[u8], start: usize, end: usize) -> bool {
    let is_word =
        |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(|byte| IS_WORD[usize::from(*byte)]);
    let zero = |at: Option<usize>| at.and_then(|at| text.get(at)) == Some(&b'0');
    let two_before = start.checked_sub(2);
    let before = is_word(start.checked_sub(1)) && is_word(two_before) && !zero(two_before);
    // The digit of `0x` before the next piece was counted as one of this piece.
    before || is_word(Some(end)) && is_word(Some(end + 1)) && !zero(end.checked_sub(1))
}
