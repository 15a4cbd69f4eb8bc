//! Strings and names: unescaping and comparing.

use std::borrow::Cow;

/// The content of a raw string (as the reader accepted it). An unpaired surrogate becomes U+FFFD, so that two spellings which
/// some parser could read as the same text never compare as different in a way that opens a gap.
#[must_use]
pub fn unescape(raw: &str) -> Cow<'_, str> {
    match raw.find('\\') {
        None => Cow::Borrowed(raw),
        Some(first) => {
            let mut text = String::with_capacity(raw.len());
            text.push_str(raw.get(..first).unwrap_or_default());
            unescape_tail(raw.get(first..).unwrap_or_default(), &mut |piece| match piece {
                Piece::Plain(plain) => text.push_str(plain),
                Piece::Char(character) => text.push(character),
                Piece::LoneSurrogate => text.push(char::REPLACEMENT_CHARACTER),
            });
            Cow::Owned(text)
        }
    }
}

/// Whether a raw string holds a surrogate escape without its partner: text that peers read in different ways.
#[must_use]
pub fn has_lone_surrogate(raw: &str) -> bool {
    let mut found = false;
    if raw.contains('\\') {
        unescape_tail(raw, &mut |piece| found |= matches!(piece, Piece::LoneSurrogate));
    }
    found
}

/// Whether a parser that ignores case (Go's standard one does) would take `name` for `reserved`.
/// `reserved` is lower-case ASCII.
#[must_use]
pub fn folds_to(name: &str, reserved: &str) -> bool {
    let mut folded = name.chars().map(fold);
    let mut wanted = reserved.chars();
    loop {
        match (folded.next(), wanted.next()) {
            (None, None) => return true,
            (Some(left), Some(right)) if left == right => {}
            _ => return false,
        }
    }
}

enum Piece<'a> {
    Plain(&'a str),
    Char(char),
    LoneSurrogate,
}

fn unescape_tail<'a>(raw: &'a str, emit: &mut dyn FnMut(Piece<'a>)) {
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        let (plain, escaped) = rest.split_at(at);
        if !plain.is_empty() {
            emit(Piece::Plain(plain));
        }
        let (piece, length) = one_escape(escaped);
        emit(piece);
        rest = escaped.get(length..).unwrap_or_default();
    }
    if !rest.is_empty() {
        emit(Piece::Plain(rest));
    }
}

/// Reads the escape at the start of `text`; gives what it says and its length in bytes.
fn one_escape(text: &str) -> (Piece<'_>, usize) {
    let bytes = text.as_bytes();
    let simple = match bytes.get(1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        _ => return unicode_escape(bytes),
    };
    (Piece::Char(simple), 2)
}

fn unicode_escape(bytes: &[u8]) -> (Piece<'static>, usize) {
    let Some(first) = hex4(bytes.get(2..6)) else { return (Piece::LoneSurrogate, bytes.len()) };
    if let Some(character) = char::from_u32(first) {
        return (Piece::Char(character), 6);
    }
    if (0xD800..0xDC00).contains(&first)
        && bytes.get(6..8) == Some(b"\\u")
        && let Some(second) = hex4(bytes.get(8..12))
        && (0xDC00..0xE000).contains(&second)
        && let Some(character) = char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    {
        return (Piece::Char(character), 12);
    }
    (Piece::LoneSurrogate, 6)
}

fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |value, &digit| Some(value * 16 + (digit as char).to_digit(16)?))
}

/// The two characters outside ASCII whose simple case folding is an ASCII letter, and ASCII itself.
fn fold(character: char) -> char {
    match character {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        other => other.to_ascii_lowercase(),
    }
}
