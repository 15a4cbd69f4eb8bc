//! Decodes a text: character references, percent and backslash escapes in one view, and each readable run of Base64, Base32, hexadecimal or numbers.

use std::borrow::Cow;

use agentsh_base::radix::{self, BASE64, HEX, NONE};

use super::view::{Builder, View};

/// Minimum decoded characters.
const MIN_COUNT: usize = 4;
/// Minimum length of a Base64 or hexadecimal run.
const RUN: usize = 16;
/// The same for Base32 and numbers.
const BASE32: usize = 24;
const NUMBERS: usize = 12;
/// Limit of runs per text.
const RUNS: usize = 256;

/// The text with resolved escapes, if any.
#[must_use]
pub fn escapes(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    let mut builder = Builder::with_capacity(text.len());
    let (mut start, mut at, mut count) = (0, 0, 0);
    while at < bytes.len() {
        let found = match bytes[at] {
            b'&' => reference(&text[at..]),
            b'%' => percent(&text[at..]),
            b'\\' => backslash(&text[at..]),
            _ => {
                let next = bytes[at..].iter().position(|byte| BEGINS_ESCAPE[usize::from(*byte)]);
                at = next.map_or(bytes.len(), |length| at + length);
                continue;
            }
        };
        let Some((decoded, length)) = found else {
            at += 1;
            continue;
        };
        builder.copy(&text[start..at], start);
        builder.put(&decoded, at);
        at += length;
        start = at;
        count += 1;
    }
    builder.copy(&text[start..], start);
    (count > 0).then(|| builder.finish(text.len()))
}

fn reference(rest: &str) -> Option<(Cow<'static, str>, usize)> {
    const NAMED: [(&str, &str); 12] = [
        ("lt;", "<"),
        ("gt;", ">"),
        ("amp;", "&"),
        ("quot;", "\""),
        ("apos;", "'"),
        ("nbsp;", " "),
        ("colon;", ":"),
        ("sol;", "/"),
        ("period;", "."),
        ("commat;", "@"),
        ("num;", "#"),
        ("NewLine;", "\n"),
    ];
    let body = &rest[1..];
    if let Some(number) = body.strip_prefix('#') {
        let (radix, digits) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (16, digits),
            None => (10, number),
        };
        let length = digits.bytes().take(8).take_while(|b| char::from(*b).is_digit(radix)).count();
        let value = u32::from_str_radix(digits.get(..length)?, radix).ok()?;
        let decoded = char::from_u32(value)?;
        let before = rest.len() - digits.len();
        let stop = usize::from(digits.as_bytes().get(length) == Some(&b';'));
        return Some((decoded.to_string().into(), before + length + stop));
    }
    NAMED.iter().find(|(name, _)| body.starts_with(name)).map(|(name, text)| ((*text).into(), name.len() + 1))
}

/// Consecutive percent escapes that are UTF-8.
fn percent(rest: &str) -> Option<(Cow<'static, str>, usize)> {
    let bytes = rest.as_bytes();
    let width = match hex_byte(bytes.get(1..3)?)? {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    let decoded: Vec<u8> = bytes
        .chunks(3)
        .take(width)
        .map_while(|escape| escape.strip_prefix(b"%").filter(|digits| digits.len() == 2).and_then(hex_byte))
        .collect();
    let text = String::from_utf8(decoded).ok()?;
    Some((text.into(), width * 3))
}

fn backslash(rest: &str) -> Option<(Cow<'static, str>, usize)> {
    match rest.as_bytes().get(1)? {
        b'n' | b't' | b'r' => Some((" ".into(), 2)),
        b'0'..=b'3' => {
            let value = u8::from_str_radix(rest.get(1..4)?, 8).ok()?;
            Some((char::from(value).to_string().into(), 4))
        }
        b'x' => Some((char::from(hex_byte(rest.as_bytes().get(2..4)?)?).to_string().into(), 4)),
        b'u' => {
            let first = u32::from_str_radix(rest.get(2..6)?, 16).ok()?;
            if let Some(character) = char::from_u32(first) {
                return Some((character.to_string().into(), 6));
            }
            let second = rest.get(6..12)?.strip_prefix("\\u")?;
            let second = u32::from_str_radix(second, 16).ok()?;
            let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
            Some((String::from_utf16(&pair).ok()?.into(), 12))
        }
        b'U' => {
            let value = u32::from_str_radix(rest.get(2..10)?, 16).ok()?;
            Some((char::from_u32(value)?.to_string().into(), 10))
        }
        _ => None,
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = [digits.first()?, digits.get(1)?].map(|digit| HEX[usize::from(*digit)]);
    (high != NONE && low != NONE).then_some(high << 4 | low)
}

/// Readable runs of Base64, Base32 and hexadecimal.
pub(super) fn runs(text: &str) -> Vec<View> {
    let bytes = text.as_bytes();
    let mut views = Vec::new();
    for run in crate::runs::runs(bytes, is_base64, RUN) {
        let place = run.clone();
        let padding = bytes[run.end..].iter().take(6).take_while(|byte| **byte == b'=').count();
        let run = &bytes[run];
        let hex = run.strip_prefix(b"0x").unwrap_or(run);
        if hex.len() >= RUN && hex.len().is_multiple_of(2) && hex.iter().all(u8::is_ascii_hexdigit) {
            push(radix::decoded::<4, 2>(hex, &HEX), place, &mut views);
        } else {
            let place = place.start..place.end + padding;
            if may_be_base32(run) {
                push(radix::decoded::<5, 8>(run, &radix::BASE32), place.clone(), &mut views);
            }
            let before = views.len();
            if may_be_text(run) {
                push(utf16_to_bytes(radix::base64(run)), place.clone(), &mut views);
            }
            // A slash may also separate the parts of an address.
            if views.len() == before && run.contains(&b'/') {
                parts(run, place.start, &mut views);
            }
        }
        if views.len() >= RUNS {
            break;
        }
    }
    views
}

/// The readable ones of the parts of a run between slashes.
fn parts(run: &[u8], mut start: usize, views: &mut Vec<View>) {
    for part in run.split(|byte| *byte == b'/') {
        if part.len() >= RUN && may_be_text(part) {
            push(utf16_to_bytes(radix::base64(part)), start..start + part.len(), views);
        }
        start += part.len() + 1;
    }
}

/// Readable lists of character codes.
pub(super) fn lists(text: &str) -> Vec<View> {
    let bytes = text.as_bytes();
    let mut views = Vec::new();
    let mut at = 0;
    while at < bytes.len() && views.len() < RUNS {
        let start = at;
        let length = bytes[at..].iter().take_while(|byte| is_base64(**byte)).count();
        at += length.max(1);
        let goes_on = || matches!(bytes.get(at), Some(b' ' | b',' | b':' | b'\n' | b'\\'));
        if matches!(length, 2 | 3 | 8) && goes_on() {
            // A list is not read again from its second number.
            for list in [spaced_hex(bytes, start), numbers(bytes, start)] {
                at = at.max(list.end);
                push(list.decoded, start..list.end, &mut views);
            }
        }
    }
    views
}

fn push(decoded: Vec<u8>, place: std::ops::Range<usize>, views: &mut Vec<View>) {
    // Most runs are not text, which their first bytes show.
    let Ok(text) = String::from_utf8(decoded) else { return };
    let is_plain = |c: &char| c.is_ascii_graphic() || c.is_whitespace() || c.is_alphabetic();
    let (plain, all) = if text.is_ascii() {
        (text.bytes().filter(|byte| matches!(byte, 9..=13 | 32..=126)).count(), text.len())
    } else {
        (text.chars().filter(is_plain).count(), text.chars().count())
    };
    if text.len() >= MIN_COUNT && plain * 20 >= all * 19 && !text.contains('\u{fffd}') {
        views.push(View::standing_for(text, place));
    }
}

/// Whether a Base64 run can be text, by its first bytes.
fn may_be_text(run: &[u8]) -> bool {
    let first = radix::base64(&run[..run.len().min(8)]);
    first.iter().skip(1).step_by(2).all(|byte| *byte == 0)
        || std::str::from_utf8(&first).err().is_none_or(|error| error.error_len().is_none())
}

fn may_be_base32(run: &[u8]) -> bool {
    run.len() >= BASE32 && run.iter().all(|byte| radix::BASE32[usize::from(*byte)] != NONE)
}

/// UTF-16 text, which shells accept in Base64, as bytes.
fn utf16_to_bytes(bytes: Vec<u8>) -> Vec<u8> {
    let is_wide = bytes.len() >= 8 && bytes.iter().skip(1).step_by(2).all(|byte| *byte == 0);
    if is_wide { bytes.into_iter().step_by(2).collect() } else { bytes }
}

/// Possible character codes, and the end of the list.
struct List {
    decoded: Vec<u8>,
    end: usize,
}

impl List {
    fn of_at_least(mut self, fewest: usize) -> Self {
        if self.decoded.len() < fewest {
            self.decoded.clear();
        }
        self
    }
}

/// `73 103 110` and `01001001 01100111`: codes separated by a space or comma.
fn numbers(bytes: &[u8], start: usize) -> List {
    let mut list = List { decoded: Vec::new(), end: start };
    let mut at = start;
    loop {
        let length = bytes[at..].iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
        let digits = std::str::from_utf8(&bytes[at..at + length]).unwrap_or_default();
        let value = match length {
            2 | 3 => digits.parse::<u8>().ok(),
            8 => u8::from_str_radix(digits, 2).ok(),
            _ => None,
        };
        let Some(value) = value.filter(|_| !bytes.get(at + length).is_some_and(u8::is_ascii_alphanumeric))
        else {
            break;
        };
        list.decoded.push(value);
        list.end = at + length;
        let between = bytes[list.end..].iter().take(3);
        let between = between.take_while(|byte| matches!(byte, b' ' | b',' | b'\n')).count();
        if between == 0 {
            break;
        }
        at = list.end + between;
    }
    list.of_at_least(NUMBERS)
}

/// `49 67 6e`, `\x49 \x67` and `0x49, 0x67`: at least eight separated pairs.
fn spaced_hex(bytes: &[u8], start: usize) -> List {
    let mut list = List { decoded: Vec::new(), end: start };
    let mut at = start;
    while let Some(pair) = bytes.get(at..at + 2).and_then(hex_byte) {
        if bytes.get(at + 2).is_some_and(u8::is_ascii_alphanumeric) {
            break;
        }
        list.decoded.push(pair);
        list.end = at + 2;
        let between = bytes[list.end..]
            .iter()
            .take(4)
            .take_while(|byte| matches!(byte, b' ' | b',' | b':' | b'\n' | b'\\' | b'x'))
            .count();
        if between == 0 {
            break;
        }
        at = list.end + between;
        if bytes.get(at..at + 2) == Some(b"0x") {
            at += 2;
        }
    }
    list.of_at_least(8)
}

static BEGINS_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    (table[b'&' as usize], table[b'%' as usize], table[b'\\' as usize]) = (true, true, true);
    table
};

fn is_base64(byte: u8) -> bool {
    BASE64[usize::from(byte)] != NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded() {
        for (text, decoded) in [
            ("&#73;&#x67;nore &lt;b&gt;", "Ignore <b>"),
            ("%49gnore%20%C3%BC", "Ignore ü"),
            (r"\u0049\x67nore \ud83d\ude00", "Ignore 😀"),
            (r"\111\147nore", "Ignore"),
        ] {
            assert_eq!(escapes(text).map(|view| view.text).as_deref(), Some(decoded));
        }
        for plain in ["100 % & more \\ less", "/list?page=20&size=AB", "a == b", r"C:\0 and \9"] {
            assert_eq!(escapes(plain), None);
        }
        let text = "a &#73;&#103; b";
        let view = escapes(text).unwrap_or_default();
        assert_eq!(&text[view.original_range(2..4)], "&#73;&#103;");
    }

    #[test]
    fn encoded_runs_are_decoded() {
        for text in [
            "x SWdub3JlIGFsbCBwcmV2aW91cw== y",
            "x SWdub3JlIGFsbCBwcmV2aW91cw y",
            "x 49676e6f726520616c6c2070726576696f7573 y",
            "x 49 67 6e 6f 72 65 20 61 6c 6c 20 70 72 65 76 69 6f 75 73 y",
            "x 73 103 110 111 114 101 32 97 108 108 32 112 114 101 118 105 111 117 115 y",
            "x 01001001 01100111 01101110 01101111 01110010 01100101 00100000 01100001 01101100 01101100 00100000 01110000 \
             01110010 01100101 01110110 01101001 01101111 01110101 01110011 y",
            "x JFTW433SMUQGC3DMEBYHEZLWNFXXK4Y= y",
            "x SQBnAG4AbwByAGUAIABhAGwAbAAgAHAAcgBlAHYAaQBvAHUAcwA= y",
        ] {
            let views = [runs(text), lists(text)].concat();
            assert!(views.iter().any(|view| view.text == "Ignore all previous"), "{text}: {views:?}");
        }
        assert_eq!(runs("da39a3ee5e6b4b0d3255bfef95601890afd80709 internationalisation"), []);
    }
}
