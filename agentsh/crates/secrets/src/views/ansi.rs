//! Terminal control sequences.

use std::borrow::Cow;

use super::view::{Builder, View};

/// The text without control characters and sequences except tab, line feed and carriage return; and the removed bytes.
/// Idempotent.
#[must_use]
pub fn strip(text: &str) -> (Cow<'_, str>, usize) {
    match visible(text) {
        None => (text.into(), 0),
        Some(view) => {
            let removed = text.len() - view.text.len();
            (view.text.into(), removed)
        }
    }
}

/// As [`strip`], with places; `None` if there is nothing to remove.
#[must_use]
pub fn visible(text: &str) -> Option<View> {
    has_control(text).then(|| {
        let mut kept = Builder::with_capacity(text.len());
        for_each_visible(text, false, &mut |piece, at| kept.copy(piece, at));
        kept.finish(text.len())
    })
}

/// Whether a removed piece has a control string, whose text a model may read.
#[must_use]
pub fn has_string(removed: &str) -> bool {
    let begins = |rest: &[u8]| match rest {
        [0x1b, next, ..] => matches!(next, b']' | b'P' | b'X' | b'^' | b'_'),
        [0xc2, next, ..] => matches!(next, 0x90 | 0x98 | 0x9d..=0x9f),
        _ => false,
    };
    let bytes = removed.as_bytes();
    memchr::memchr2_iter(0x1b, 0xc2, bytes).any(|at| begins(&bytes[at..]))
}

#[must_use]
pub fn has_control(text: &str) -> bool {
    let bytes = text.as_bytes();
    // Checks many bytes at once.
    bytes.chunks(64).any(|block| block.iter().fold(false, |any, byte| any | is_control(*byte)))
        || memchr::memchr_iter(0xc2, bytes).any(|at| bytes.get(at + 1).is_some_and(|next| *next < 0xa0))
}

fn is_control(byte: u8) -> bool {
    byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r') || byte == 0x7f
}

/// Calls `keep` with remaining pieces and places. `strings`: also text in control strings (titles, links), for
/// scanning.
pub fn for_each_visible<'a>(text: &'a str, strings: bool, keep: &mut dyn FnMut(&'a str, usize)) {
    if !has_control(text) {
        return keep(text, 0);
    }
    let bytes = text.as_bytes();
    let mut terminators = Terminators { from: 0, found: Some(0..0) };
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        let length = match bytes[at] {
            0x1b => escape(text, at, strings, &mut terminators),
            0xc2 if bytes.get(at + 1).is_some_and(|next| (0x80..0xa0).contains(next)) => {
                c1(text, at, strings, &mut terminators)
            }
            byte if is_control(byte) => 1,
            _ => {
                at += 1;
                continue;
            }
        };
        keep(&text[start..at], start);
        at += length;
        start = at;
    }
    keep(&text[start..], start);
}

/// Length of an escape sequence.
fn escape(text: &str, at: usize, strings: bool, terminators: &mut Terminators) -> usize {
    let rest = &text.as_bytes()[at + 1..];
    match rest.first() {
        Some(b'[') => 2 + control_sequence(&rest[1..]),
        Some(b']' | b'P' | b'X' | b'^' | b'_') if strings => 2,
        // An unterminated string extends to the end, as in a terminal.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            terminators.end_after(text, at + 2).map_or(text.len(), |end| end) - at
        }
        // `&` and `%` may begin an escape of another kind.
        Some(0x20..=0x2f) if strings => 1,
        Some(0x20..=0x2f) => {
            let between = rest.iter().take(8).take_while(|byte| (0x20..=0x2f).contains(*byte)).count();
            1 + between + usize::from(rest.get(between).is_some_and(|byte| (0x30..=0x7e).contains(byte)))
        }
        Some(0x30..=0x7e) => 2,
        _ => 1,
    }
}

fn c1(text: &str, at: usize, strings: bool, terminators: &mut Terminators) -> usize {
    match text.as_bytes()[at + 1] {
        0x9b => 2 + control_sequence(&text.as_bytes()[at + 2..]),
        // Most programs ignore eight-bit controls: an unterminated one is one character.
        0x90 | 0x98 | 0x9d..=0x9f if !strings => terminators.end_after(text, at + 2).unwrap_or(at + 2) - at,
        _ => 2,
    }
}

/// Parameter, intermediate and final bytes.
fn control_sequence(rest: &[u8]) -> usize {
    let parameters = rest.iter().take_while(|byte| (0x20..=0x3f).contains(*byte)).count();
    parameters + usize::from(rest.get(parameters).is_some_and(|byte| (0x40..=0x7e).contains(byte)))
}

/// Ends of control strings: each byte is examined once.
struct Terminators {
    from: usize,
    found: Option<std::ops::Range<usize>>,
}

impl Terminators {
    /// After the first BEL or ST from `at`.
    fn end_after(&mut self, text: &str, at: usize) -> Option<usize> {
        let found = self.found.clone()?;
        if self.from <= at && at <= found.start && found.end > 0 {
            return Some(found.end);
        }
        let bytes = text.as_bytes();
        self.from = at;
        self.found = (at..bytes.len()).find_map(|place| match bytes[place] {
            0x07 => Some(place..place + 1),
            0x1b if bytes.get(place + 1) == Some(&b'\\') => Some(place..place + 2),
            0xc2 if bytes.get(place + 1) == Some(&0x9c) => Some(place..place + 2),
            _ => None,
        });
        self.found.as_ref().map(|found| found.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_sequences_are_removed() {
        for (text, kept) in [
            ("a\u{1b}[31mb\u{1b}[0m", "ab"),
            ("a\u{1b}[?25lb", "ab"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]8;;http://e\u{1b}\\link\u{1b}]8;;\u{1b}\\b", "alinkb"),
            ("a\u{1b}]0;no end", "a"),
            ("a\u{1b}Pdcs\u{1b}\\b\u{1b}_apc\u{1b}\\c\u{1b}^pm\u{1b}\\d\u{1b}Xsos\u{1b}\\e", "abcde"),
            ("a\u{1b}cb\u{1b}(Bc\u{1b}#8d", "abcd"),
            ("a\u{1b}", "a"),
            ("a\0\u{7}\u{8}\u{7f}b", "ab"),
            ("a\u{9b}31mb\u{85}\u{90}c", "abc"),
            ("a\u{9d}0;title\u{9c}b", "ab"),
            ("a\tb\nc\rd", "a\tb\nc\rd"),
            ("Straße über", "Straße über"),
        ] {
            let (once, removed) = strip(text);
            assert_eq!(once, kept);
            assert_eq!(removed, text.len() - kept.len());
            assert_eq!(strip(&once).0, once);
        }
    }

    #[test]
    fn scan_reads_text_inside_control_strings() {
        let mut seen = String::new();
        for_each_visible("a\u{1b}]0;ignore this\u{7}b", true, &mut |piece, _| seen.push_str(piece));
        assert_eq!(seen, "a0;ignore thisb");
    }
}
