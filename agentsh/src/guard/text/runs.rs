//! Runs of the letters of an alphabet, also when they are broken over lines, grouped, or separated one by one.

use std::ops::Range;

/// A byte that is not of the alphabet.
pub(super) const NONE: u8 = 0xff;

pub(super) struct Alphabet {
    /// The value of each byte.
    pub table: [u8; 256],
    /// `0x` before a piece belongs to no piece.
    pub prefixed: bool,
}

/// Bytes between two pieces of one group: `", "`, `" +\n    "`.
const MAX_GAP: usize = 12;

/// Finds groups of at least `shortest` symbols and gives their values and where they stand. Pieces are one group
/// when they are equally long, when both are long, or, with `loose`, always. Linear.
pub(super) fn groups(
    text: &[u8],
    alphabet: &Alphabet,
    shortest: usize,
    loose: bool,
    each: &mut dyn FnMut(&[u8], Range<usize>),
) {
    let mut symbols: Vec<u8> = Vec::new();
    let mut group = 0..0;
    let (mut last, mut pieces, mut closed) = (0, 0_usize, false);
    let mut position = 0;
    while position < text.len() {
        if alphabet.table[usize::from(text[position])] == NONE {
            position += 1;
            continue;
        }
        let start = position;
        while position < text.len() && alphabet.table[usize::from(text[position])] != NONE {
            position += 1;
        }
        let mut end = position;
        if alphabet.prefixed && text[end - 1] == b'0' && matches!(text.get(end), Some(b'x' | b'X')) {
            end -= 1;
        }
        let length = end - start;
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
    }
    if symbols.len() >= shortest {
        each(&symbols, group);
    }
}

/// Puts the bits of symbols together: `BITS` from each, `GROUP` symbols to a whole number of bytes.
pub(super) fn pack<const BITS: usize, const GROUP: usize>(symbols: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.reserve(symbols.len() * BITS / 8 + 8);
    let mut chunks = symbols.chunks_exact(GROUP);
    for chunk in &mut chunks {
        let word = chunk.iter().fold(0_u64, |word, symbol| (word << BITS) | u64::from(*symbol));
        out.extend_from_slice(&word.to_be_bytes()[8 - BITS * GROUP / 8..]);
    }
    let rest = chunks.remainder();
    let bits = rest.len() * BITS;
    if bits >= 8 {
        let word = rest.iter().fold(0_u64, |word, symbol| (word << BITS) | u64::from(*symbol));
        let word = word >> (bits % 8);
        out.extend_from_slice(&word.to_be_bytes()[8 - bits / 8..]);
    }
}
