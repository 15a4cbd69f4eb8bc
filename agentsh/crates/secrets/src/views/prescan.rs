//! A fast pass that decides which views a text can need.

use agentsh_base::ascii;

use super::obfuscation::TURNED;

/// The features of a text.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prescan {
    pub non_ascii: bool,
    pub control: bool,
    /// Invisible characters.
    pub invisible: usize,
    /// Character references, percent, backslash or quoted-printable escapes.
    pub escapes: bool,
    /// Possible Base64, hexadecimal or character codes.
    pub runs: bool,
    /// Several single letters between spaces.
    pub spaced: bool,
    /// Several words of mixed letters and digits.
    pub leet: bool,
    /// Possible words of a disguised text.
    pub turned: bool,
}

/// Minimum length of an encoded run.
const RUN: usize = 16;

const SPACE: u8 = 0;
const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const OTHER: u8 = 3;
const MARK: u8 = 4;
const CONTROL: u8 = 5;
const HIGH: u8 = 6;

static CLASS: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' => SPACE,
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'&' | b'%' | b'\\' | b'=' => MARK,
            0..=0x1f | 0x7f => CONTROL,
            0x80..=0xff => HIGH,
            _ => OTHER,
        };
        byte += 1;
    }
    table
};

impl Prescan {
    #[must_use]
    pub fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut survey = Self::default();
        let (mut at, mut singles, mut pairs, mut leet, mut turned) = (0, 0, 0, 0_usize, 0);
        while at < bytes.len() {
            match CLASS[usize::from(bytes[at])] {
                LETTER | DIGIT => {
                    let (start, mut changes, mut digits, mut last) = (at, 0, 0, LETTER);
                    // Nearly all words are letters only, read eight at a time.
                    at += ascii::letters(&bytes[at..]);
                    if (4..=12).contains(&(at - start)) {
                        turned += usize::from(TURNED.may_have(&bytes[start..at]));
                    }
                    while let Some(class @ (LETTER | DIGIT)) =
                        bytes.get(at).map(|byte| CLASS[usize::from(*byte)])
                    {
                        digits += usize::from(class == DIGIT);
                        changes += usize::from(class != last);
                        last = class;
                        at += 1;
                    }
                    let length = at - start;
                    survey.runs |= length >= RUN;
                    if digits > 0 && digits < length && length < RUN && changes >= 2 {
                        leet += 2;
                        survey.leet |= leet >= 5;
                    } else {
                        leet = leet.saturating_sub(1);
                    }
                    singles = if length == 1 { singles + 1 } else { 0 };
                    let is_number =
                        digits > 0 && (length == 2 || digits == length && matches!(length, 3 | 8));
                    pairs = if is_number { pairs + 1 } else { pairs * usize::from(length == 2) };
                    survey.spaced |= singles >= 6;
                    survey.runs |= pairs >= 6;
                }
                MARK => {
                    survey.escapes |= match bytes[at] {
                        b'&' => bytes.get(at + 1) == Some(&b'#') || reference(&bytes[at + 1..]),
                        b'%' => {
                            bytes.get(at + 1..at + 3).is_some_and(|b| b.iter().all(u8::is_ascii_hexdigit))
                        }
                        b'=' => bytes.get(at + 3) == Some(&b'='),
                        _ => matches!(bytes.get(at + 1), Some(b'u' | b'x' | b'U' | b'0'..=b'3')),
                    };
                    at += 1;
                }
                CONTROL => {
                    survey.control = true;
                    at += 1;
                }
                HIGH => {
                    survey.non_ascii = true;
                    survey.invisible += usize::from(begins_invisible(&bytes[at..]));
                    at += 1;
                }
                _ => at += 1,
            }
        }
        survey.turned = turned >= 2;
        survey
    }

    #[must_use]
    pub fn needs_folding(&self) -> bool {
        self.non_ascii || self.control
    }
}

/// A named reference inside a word or address.
fn reference(rest: &[u8]) -> bool {
    [&b"colon;"[..], b"sol;", b"period;", b"commat;", b"num;", b"lt;"]
        .iter()
        .any(|name| rest.starts_with(name))
}

/// By the first bytes only, with a few false positives.
fn begins_invisible(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0xc2, 0xad, ..]
            | [0xcd, 0x8f, ..]
            | [0xd8, 0x9c, ..]
            | [0xe1, 0x85, ..]
            | [0xe1, 0xa0, 0x8e, ..]
            | [0xe2, 0x80, 0x8b..=0x8f | 0xaa..=0xae, ..]
            | [0xe2, 0x81, 0xa0..=0xaf, ..]
            | [0xe3, 0x85, 0xa4, ..]
            | [0xef, 0xb8, 0x80..=0x8f, ..]
            | [0xef, 0xbb, 0xbf, ..]
            | [0xef, 0xbe, 0xa0, ..]
            | [0xef, 0xbf, 0xb9..=0xbb, ..]
            | [0xf0, 0x9d, 0x85, 0xb3..=0xba, ..]
            | [0xf3, 0xa0, ..]
    )
}
