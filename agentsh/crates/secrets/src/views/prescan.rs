//! A fast pass that decides which views a text can need.

use agentsh_base::ascii;

use super::invisible::invisible;
use super::obfuscation::{TURNED, is_clue};

/// The features of a text.
#[derive(Clone, Debug, Default)]
pub struct Prescan {
    pub non_ascii: bool,
    pub control: bool,
    /// Invisible characters.
    pub invisible: bool,
    /// Character references, percent or backslash escapes.
    pub escapes: bool,
    /// Possible Base64 or hexadecimal.
    pub runs: bool,
    /// Possible lists of character codes.
    pub lists: bool,
    /// Several single letters between spaces.
    pub spaced: bool,
    /// The ends of several words of mixed letters and digits.
    pub leet: Vec<usize>,
    /// Where words of a text in rot13 begin.
    pub turned: Vec<usize>,
}

/// Minimum length of an encoded run.
const RUN: usize = 16;

const SPACE: u8 = 0;
const LETTER: u8 = 1;
const DIGIT: u8 = 2;
const OTHER: u8 = 3;
const MARK: u8 = 4;
const CONTROL: u8 = 5;

static CLASS: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' => SPACE,
            b'a'..=b'z' | b'A'..=b'Z' => LETTER,
            b'0'..=b'9' => DIGIT,
            b'&' | b'%' | b'\\' => MARK,
            0..=0x1f | 0x7f => CONTROL,
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
        let non_ascii = !bytes.is_ascii();
        let invisible = non_ascii && invisible(text).next().is_some();
        let mut survey = Self { non_ascii, invisible, ..Self::default() };
        let (mut at, mut singles, mut pairs, mut leet) = (0, 0_usize, 0_usize, 0_usize);
        while at < bytes.len() {
            match CLASS[usize::from(bytes[at])] {
                LETTER | DIGIT => {
                    // Nearly all words are letters only, read eight at a time.
                    let start = at;
                    at += ascii::letters(&bytes[at..]);
                    let class_at = |at: usize| bytes.get(at).map(|byte| CLASS[usize::from(*byte)]);
                    if class_at(at) != Some(DIGIT) {
                        let word = &bytes[start..at];
                        if word.len() >= 4 && TURNED.may_have(word) && is_clue(word) {
                            survey.turned.push(start);
                        }
                        survey.runs |= word.len() >= RUN;
                        leet = leet.saturating_sub(1);
                        if leet >= 5 {
                            survey.leet.push(at);
                        }
                        singles = if word.len() == 1 { singles + 1 } else { 0 };
                        survey.spaced |= singles >= 6;
                        pairs *= usize::from(word.len() == 2);
                        continue;
                    }
                    let (mut changes, mut digits, mut last) = (0, 0, LETTER);
                    while let Some(class @ (LETTER | DIGIT)) = class_at(at) {
                        digits += usize::from(class == DIGIT);
                        changes += usize::from(class != last);
                        last = class;
                        at += 1;
                    }
                    let length = at - start;
                    survey.runs |= length >= RUN;
                    let is_leet = changes >= 2 && digits < length && length < RUN;
                    leet = if is_leet { leet + 2 } else { leet.saturating_sub(1) };
                    if leet >= 5 {
                        survey.leet.push(at);
                    }
                    singles = if length == 1 { singles + 1 } else { 0 };
                    let is_number =
                        digits > 0 && (length == 2 || digits == length && matches!(length, 3 | 8));
                    pairs = if is_number { pairs + 1 } else { pairs * usize::from(length == 2) };
                    survey.spaced |= singles >= 6;
                    survey.lists |= pairs >= 6;
                }
                MARK => {
                    survey.escapes |= match bytes[at] {
                        b'&' => bytes.get(at + 1) == Some(&b'#') || reference(&bytes[at + 1..]),
                        b'%' => {
                            bytes.get(at + 1..at + 3).is_some_and(|b| b.iter().all(u8::is_ascii_hexdigit))
                        }
                        _ => matches!(bytes.get(at + 1), Some(b'u' | b'x' | b'U' | b'0'..=b'3')),
                    };
                    at += 1;
                }
                CONTROL => {
                    survey.control = true;
                    at += 1;
                }
                // Other scripts at once.
                OTHER if bytes[at] >= 0x80 => {
                    at += bytes[at..].iter().position(u8::is_ascii).unwrap_or(bytes.len() - at);
                }
                _ => at += 1,
            }
        }
        survey
    }
}

/// A named reference inside a word or address.
fn reference(rest: &[u8]) -> bool {
    [&b"colon;"[..], b"sol;", b"period;", b"commat;", b"num;", b"lt;"]
        .iter()
        .any(|name| rest.starts_with(name))
}
