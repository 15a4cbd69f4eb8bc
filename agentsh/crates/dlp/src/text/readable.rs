//! From decoded bytes to text. A wrong guess decodes to noise, and noise must not reach whoever searches the
//! views: only what reads as text is kept.

use std::borrow::Cow;

/// Fewer bytes of text than this are chance.
pub(super) const MIN_LENGTH: usize = 6;
/// As [`MIN_LENGTH`], for text between bytes that are none.
const MIN_RUN: usize = 8;

pub(super) struct Readable<'b> {
    pub text: Cow<'b, str>,
    /// At least nine tenths of the bytes were text.
    pub clean: bool,
}

/// What reads as text in `bytes`: all of it, or its printable characters when they are the most, or the runs of
/// at least [`MIN_RUN`] of them, with a line feed between. None when there is none. Linear.
pub(super) fn readable(bytes: &[u8]) -> Option<Readable<'_>> {
    if bytes.len() < MIN_LENGTH {
        return None;
    }
    if let Some(text) = with_byte_order_mark(bytes) {
        return Some(Readable { text: Cow::Owned(text), clean: true });
    }
    let (printable, zero, high) = counts(bytes);
    if (printable + high) * 10 >= bytes.len() * 9
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Some(Readable { text: Cow::Borrowed(text), clean: true });
    }
    // Wide characters: two or four bytes for each letter.
    if zero * 10 >= bytes.len() * 3 || printable * 10 >= bytes.len() * 7 {
        let kept: Vec<u8> =
            bytes.iter().copied().filter(|byte| is_printable(*byte) || *byte >= 0x80).collect();
        let text: String = kept.utf8_chunks().map(|chunk| chunk.valid()).collect();
        let shown = bytes.len() - zero;
        let clean = text.len() * 10 >= shown * 9;
        let enough = text.len() >= MIN_LENGTH && text.len() * 10 >= shown * 7;
        return enough.then_some(Readable { text: Cow::Owned(text), clean });
    }
    runs(bytes)
}

fn runs(bytes: &[u8]) -> Option<Readable<'_>> {
    let mut text = String::new();
    let mut position = 0;
    while position + MIN_RUN <= bytes.len() {
        // From the end of what could be a run: in noise most bytes are never looked at.
        let window = &bytes[position..position + MIN_RUN];
        if let Some(other) = window.iter().rposition(|byte| !is_printable(*byte)) {
            position += other + 1;
            continue;
        }
        let start = position;
        let length = bytes[start..].iter().take_while(|byte| is_printable(**byte)).count();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(std::str::from_utf8(&bytes[start..start + length]).unwrap_or(""));
        position = start + length;
    }
    (!text.is_empty()).then_some(Readable { text: Cow::Owned(text), clean: false })
}

/// How many bytes are printable, zero, and beyond ASCII.
fn counts(bytes: &[u8]) -> (usize, usize, usize) {
    let sum = bytes.iter().fold(0_u64, |sum, byte| sum + CLASS[usize::from(*byte)]);
    let field = |at: u64| usize::try_from(sum >> at & 0x1f_ffff).unwrap_or(0);
    if bytes.len() > 0x1f_ffff {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let (a, b) = (counts(first), counts(second));
        return (a.0 + b.0, a.1 + b.1, a.2 + b.2);
    }
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

fn with_byte_order_mark(bytes: &[u8]) -> Option<String> {
    let big = match bytes {
        [0xfe, 0xff, ..] => true,
        [0xff, 0xfe, ..] => false,
        _ => return None,
    };
    let units = bytes[2..].chunks_exact(2).map(|pair| {
        let pair = [pair[0], pair[1]];
        if big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    });
    Some(char::decode_utf16(units).map(|c| c.unwrap_or('\u{fffd}')).collect())
}

pub(super) fn is_printable(byte: u8) -> bool {
    CLASS[usize::from(byte)] & PRINTABLE != 0
}
