//! Alphabets in which a text is one large number, and not groups of letters: bases 10, 58 and 62; and the same in
//! blocks of eight bytes.
//!
//! To read such a number takes the square of its length, so a guess is looked at first: its topmost bytes follow from
//! its first letters and its length, and are no text where the guess is wrong.

use super::Step;
use super::profile::Profile;
use super::readable::is_printable;
use super::runs::{NONE, words};
use super::walk::Walk;

/// Letters of a word.
const MIN_LENGTH: usize = 12;
const MAX_LENGTH: usize = 1024;
/// Digits of a number alone: shorter ones are ids and amounts.
const MIN_DIGITS: usize = 24;
/// Multiplications for one text, and for each of its bytes: only numbers that may be text take any.
const WORK: usize = 400_000;
const WORK_OF_A_BYTE: usize = 16;
/// Bytes of a block.
const BLOCK: usize = 8;

/// What the letters of a word are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    /// Digits alone.
    Digits,
    /// Digits, and letters of both cases.
    Mixed,
}

struct Base {
    step: Step,
    looks: Looks,
    base: u32,
    table: [u8; 256],
}

static BASES: [Base; 6] = [
    base(Step::Base58, Looks::Mixed, b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"),
    base(Step::Base58, Looks::Mixed, b"123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"),
    base(Step::Base62, Looks::Mixed, b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
    base(Step::Base62, Looks::Mixed, b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    base(Step::Base62, Looks::Mixed, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
    base(Step::Decimal, Looks::Digits, b"0123456789"),
];

const fn base(step: Step, looks: Looks, letters: &[u8]) -> Base {
    let mut table = [NONE; 256];
    let mut value = 0;
    while value < letters.len() {
        #[expect(clippy::cast_possible_truncation, reason = "no alphabet here has more than 62 letters")]
        let byte = value as u8;
        table[letters[value] as usize] = byte;
        value += 1;
    }
    #[expect(clippy::cast_possible_truncation, reason = "no alphabet here has more than 62 letters")]
    let base = letters.len() as u32;
    Base { step, looks, base, table }
}

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.digits() == 0 || profile.letters_and_digits() < MIN_LENGTH {
        return;
    }
    let bytes = text.as_bytes();
    let mut left = WORK.saturating_add(bytes.len().saturating_mul(WORK_OF_A_BYTE));
    walk.work(text.len());
    for at in words(bytes) {
        let word = &bytes[at.clone()];
        let Some(looks) = looks(word) else { continue };
        for base in BASES.iter().filter(|base| base.looks == looks) {
            let values: Option<Vec<u8>> = word
                .iter()
                .map(|letter| base.table[usize::from(*letter)])
                .map(|value| (value != NONE).then_some(value))
                .collect();
            walk.work(word.len());
            let Some(values) = values else { continue };
            if let Some(found) = base.in_blocks(&values) {
                walk.found_bytes(base.step, &found, at.clone());
            }
            if !(base.top(&values)).is_some_and(|top| begins_a_text(&top)) {
                continue;
            }
            let cost = values.len() * values.len() / 8;
            if cost > left {
                walk.cut();
                return;
            }
            left -= cost;
            walk.work(cost);
            walk.found_bytes(base.step, &base.number(&values), at.clone());
        }
    }
}

fn looks(word: &[u8]) -> Option<Looks> {
    if !(MIN_LENGTH..=MAX_LENGTH).contains(&word.len()) {
        return None;
    }
    let has = |class: fn(&u8) -> bool| word.iter().any(class);
    match (has(u8::is_ascii_digit), has(u8::is_ascii_uppercase), has(u8::is_ascii_lowercase)) {
        (true, true, true) => Some(Looks::Mixed),
        (true, false, false) => (word.len() >= MIN_DIGITS).then_some(Looks::Digits),
        _ => None,
    }
}

/// Whether bytes are text, the last letter of which may be cut.
fn begins_a_text(bytes: &[u8]) -> bool {
    let is_whole = std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    is_whole && bytes.iter().all(|byte| is_printable(*byte) || *byte >= 0x80)
}

/// Letters that fix the topmost 32 bits, also where they are decimal digits.
const TOPMOST: usize = 16;

impl Base {
    /// The topmost bytes of the number: a logarithm of it is precise enough.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lengths are at most 1024, and what comes out is within 32 bits and positive"
    )]
    fn top(&self, values: &[u8]) -> Option<[u8; 4]> {
        let zeros = values.iter().take_while(|value| **value == 0).count();
        let values = &values[zeros..];
        let first = &values[..values.len().min(TOPMOST)];
        let head = first.iter().fold(0.0, |head, value| head * f64::from(self.base) + f64::from(*value));
        let logarithm = head.ln() + (values.len() - first.len()) as f64 * f64::from(self.base).ln();
        let of_a_byte = 256_f64.ln();
        let places = (logarithm / of_a_byte).floor();
        if places < 4.0 {
            return None;
        }
        let top = (logarithm - (places - 3.0) * of_a_byte).exp();
        // What the other letters add is far below the lowest of them.
        Some((top.min(f64::from(u32::MAX)) as u32).to_be_bytes())
    }

    fn number(&self, values: &[u8]) -> Vec<u8> {
        // Limbs of 32 bits, least first.
        let mut limbs: Vec<u32> = Vec::with_capacity(values.len() / 5 + 1);
        for value in values {
            let mut carry = u64::from(*value);
            for limb in &mut limbs {
                carry += u64::from(*limb) * u64::from(self.base);
                #[expect(clippy::cast_possible_truncation, reason = "the rest is carried on")]
                let low = carry as u32;
                *limb = low;
                carry >>= 32;
            }
            if carry > 0 {
                limbs.push(u32::try_from(carry).unwrap_or(u32::MAX));
            }
        }
        let bytes = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes());
        bytes.skip_while(|byte| *byte == 0).collect()
    }

    /// Blocks of eight bytes, each a number of its own, the last one of as many as its letters hold. None: the first one
    /// is not text, or one of them is too large.
    fn in_blocks(&self, values: &[u8]) -> Option<Vec<u8>> {
        let letters = self.letters_of(BLOCK);
        let mut bytes = Vec::with_capacity(values.len() / letters * BLOCK + BLOCK);
        for block in values.chunks(letters) {
            let number = block
                .iter()
                .fold(0_u128, |number, value| number * u128::from(self.base) + u128::from(*value));
            let number = u64::try_from(number).ok()?.to_be_bytes();
            let length = (1..=BLOCK).rev().find(|length| self.letters_of(*length) <= block.len())?;
            bytes.extend_from_slice(&number[BLOCK - length..]);
            if bytes.len() <= BLOCK && !begins_a_text(&bytes) {
                return None;
            }
        }
        Some(bytes)
    }

    /// Letters that so many bytes take.
    fn letters_of(&self, bytes: usize) -> usize {
        let most = (1_u128 << (8 * bytes)) - 1;
        let steps = std::iter::successors(Some(most), |rest| Some(rest / u128::from(self.base)));
        steps.take_while(|rest| *rest > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use crate::text::{Limits, visit};

    const SAID: &str = "the orchard at Lindenau goes to the Brandt family in spring";

    fn written(bytes: &[u8], letters: &[u8]) -> String {
        let mut digits: Vec<usize> = Vec::new();
        for byte in bytes {
            let mut carry = usize::from(*byte);
            for digit in &mut digits {
                carry += *digit * 256;
                *digit = carry % letters.len();
                carry /= letters.len();
            }
            while carry > 0 {
                digits.push(carry % letters.len());
                carry /= letters.len();
            }
        }
        digits.iter().rev().map(|digit| char::from(letters[*digit])).collect()
    }

    fn sees(text: &str, said: &str) -> bool {
        let mut seen = false;
        let _ = visit(text, &Limits::default(), &mut |view| seen |= view.text.contains(said));
        seen
    }

    const ALPHABETS: [&[u8]; 6] = [
        b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
        b"123456789abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ",
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
        b"0123456789",
    ];

    #[test]
    fn numbers_of_every_base_are_read() {
        for letters in ALPHABETS {
            for said in [SAID, "sk_live_Zq8Lw2Vn5Rt7Yb", "Склад в Твери закроют"] {
                let text = format!("note {} end", written(said.as_bytes(), letters));
                assert!(sees(&text, said), "{text}");
            }
        }
    }

    #[test]
    fn blocks_of_eight_bytes_are_read() {
        for (letters, width) in [(ALPHABETS[0], 11), (ALPHABETS[3], 11)] {
            let text: String = SAID
                .as_bytes()
                .chunks(8)
                .filter(|block| block.len() == 8)
                .map(|block| {
                    let number = written(block, letters);
                    let zeros = char::from(letters[0]).to_string().repeat(width - number.len());
                    zeros + &number
                })
                .collect();
            assert!(sees(&text, &SAID[..56]), "{text}");
        }
    }

    #[test]
    fn wrong_guesses_do_not_use_up_what_a_right_one_needs() {
        let mut state = 3_u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(ALPHABETS[0][(state >> 33) as usize % 58])
        };
        let mut text = String::new();
        for _ in 0..400 {
            text.extend((0..400).map(|_| letter()));
            text.push(' ');
        }
        let long = SAID.repeat(6);
        text.push_str(&written(long.as_bytes(), ALPHABETS[0]));
        assert!(sees(&text, SAID));
    }
}
