//! From decoded bytes to text. A wrong guess decodes to noise, and noise must not reach whoever searches the
//! views: only what reads as text is kept.

use std::borrow::Cow;

/// Fewer bytes of text than this are chance.
pub(super) const SHORTEST: usize = 6;
/// As [`SHORTEST`], for text between bytes that are none.
const SHORTEST_RUN: usize = 8;

pub(super) struct Readable<'b> {
    pub text: Cow<'b, str>,
    /// At least nine tenths of the bytes were text.
    pub clean: bool,
}

/// What reads as text in `bytes`: all of it, or its printable characters when they are the most, or the runs of
/// at least [`SHORTEST_RUN`] of them, with a line feed between. None when there is none. Linear.
pub(super) fn readable(bytes: &[u8]) -> Option<Readable<'_>> {
    if bytes.len() < SHORTEST {
        return None;
    }
    if let Some(text) = with_byte_order_mark(bytes) {
        return Some(Readable { text: Cow::Owned(text), clean: true });
    }
    let printable = bytes.iter().filter(|byte| is_printable(**byte)).count();
    if printable == bytes.len() {
        return std::str::from_utf8(bytes).ok().map(|text| Readable { text: Cow::Borrowed(text), clean: true });
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let control = bytes.iter().filter(|byte| **byte < 0x80 && !is_printable(**byte)).count();
        if control * 10 <= bytes.len() {
            return Some(Readable { text: Cow::Borrowed(text), clean: true });
        }
    }
    let zero = bytes.iter().filter(|byte| **byte == 0).count();
    // Wide characters: two or four bytes for each letter.
    if zero * 10 >= bytes.len() * 3 || printable * 10 >= bytes.len() * 7 {
        let kept: Vec<u8> = bytes.iter().copied().filter(|byte| is_printable(*byte) || *byte >= 0x80).collect();
        let text: String = kept.utf8_chunks().map(|chunk| chunk.valid()).collect();
        let shown = bytes.len() - zero;
        let clean = text.len() * 10 >= shown * 9;
        let enough = text.len() >= SHORTEST && text.len() * 10 >= shown * 7;
        return enough.then_some(Readable { text: Cow::Owned(text), clean });
    }
    runs(bytes)
}

fn runs(bytes: &[u8]) -> Option<Readable<'_>> {
    let mut text = String::new();
    let mut position = 0;
    // Every run that is long enough covers a multiple of its least length: noise is skipped in strides.
    let mut probe = SHORTEST_RUN - 1;
    while probe < bytes.len() {
        if !is_printable(bytes[probe]) {
            probe += SHORTEST_RUN;
            continue;
        }
        let mut start = probe;
        while start > position && is_printable(bytes[start - 1]) {
            start -= 1;
        }
        let mut end = probe + 1;
        while end < bytes.len() && is_printable(bytes[end]) {
            end += 1;
        }
        if end - start >= SHORTEST_RUN {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(std::str::from_utf8(&bytes[start..end]).unwrap_or(""));
        }
        position = end;
        probe = end + SHORTEST_RUN - 1;
    }
    if text.len() < bytes.len() / 8 && reads_as_other_script(bytes) {
        text = bytes.utf8_chunks().map(|chunk| chunk.valid()).filter(|valid| valid.len() >= 12).collect();
    }
    (!text.is_empty()).then_some(Readable { text: Cow::Owned(text), clean: false })
}

/// Whether the bytes around the middle are UTF-8 beyond ASCII: text in another script behind a few wrong bytes.
fn reads_as_other_script(bytes: &[u8]) -> bool {
    let middle = bytes.len() / 2;
    let window = &bytes[middle..(middle + 32).min(bytes.len())];
    window.utf8_chunks().any(|chunk| chunk.valid().len() >= 12 && !chunk.valid().is_ascii())
}

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

fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e | b'\t' | b'\n' | b'\r')
}
