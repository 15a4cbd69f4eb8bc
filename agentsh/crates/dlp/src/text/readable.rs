//! From decoded bytes to text. Wrong guesses decode to noise, so only readable text is kept.

use std::borrow::Cow;

/// Fewer bytes of text than this are chance.
pub(super) const MIN_LENGTH: usize = 6;

/// The readable text in `bytes`: all of it, or its printable characters if they are the majority. None if there is none.
/// Linear.
pub(super) fn readable_text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    if bytes.len() < MIN_LENGTH {
        return None;
    }
    let (printable, zero, high) = counts(bytes);
    if (printable + high) * 10 >= bytes.len() * 9
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Some(Cow::Borrowed(text));
    }
    // Wide characters: two or four bytes for each letter. Values of a format of bytes: most of it is text.
    if zero * 10 < bytes.len() * 3 && printable * 10 < bytes.len() * 7 {
        return None;
    }
    let kept: Vec<u8> = bytes.iter().copied().filter(|byte| is_printable(*byte) || *byte >= 0x80).collect();
    let text: String = kept.utf8_chunks().map(|chunk| chunk.valid()).collect();
    let is_text = text.len() >= MIN_LENGTH && text.len() * 10 >= (bytes.len() - zero) * 7;
    is_text.then_some(Cow::Owned(text))
}

/// The numbers of bytes that are printable, zero, and beyond ASCII.
fn counts(bytes: &[u8]) -> (usize, usize, usize) {
    if bytes.len() > 0x1f_ffff {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let (a, b) = (counts(first), counts(second));
        return (a.0 + b.0, a.1 + b.1, a.2 + b.2);
    }
    let sum = bytes.iter().fold(0_u64, |sum, byte| sum + CLASS[usize::from(*byte)]);
    let field = |at: u64| usize::try_from(sum >> at & 0x1f_ffff).unwrap_or(0);
    (field(0), field(21), field(42))
}

const PRINTABLE: u64 = 1;
/// Three counters of 21 bits, of which each byte counts in one.
static CLASS: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte {
            0x20..=0x7e | 0x09 | 0x0a | 0x0d => PRINTABLE,
            0 => 1 << 21,
            0x80..=0xff => 1 << 42,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// Bytes that are printable, or a whole character beyond ASCII.
pub(super) fn readable_bytes(bytes: &[u8]) -> usize {
    let (printable, _, high) = counts(bytes);
    if high == 0 {
        return printable;
    }
    let wide = |text: &str| text.chars().filter(|one| !one.is_ascii()).map(char::len_utf8).sum::<usize>();
    printable + bytes.utf8_chunks().map(|chunk| wide(chunk.valid())).sum::<usize>()
}

pub(super) fn is_printable(byte: u8) -> bool {
    CLASS[usize::from(byte)] & PRINTABLE != 0
}
