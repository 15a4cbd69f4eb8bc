//! Base58, which is one large number and not groups of letters, so that its work grows with the square of a word.
//! Words are short; the sum of the squares has a bound.

use super::Step;
use super::profile::Profile;
use super::runs::NONE;
use super::views::Walk;

const LETTERS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
const SHORTEST: usize = 12;
const LONGEST: usize = 1024;
/// Multiplications for one text: half a millisecond.
const MOST_WORK: usize = 400_000;

static TABLE: [u8; 256] = {
    let mut table = [NONE; 256];
    let mut value = 0_u8;
    while value < 58 {
        table[LETTERS[value as usize] as usize] = value;
        value += 1;
    }
    table
};

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.digits() == 0 || profile.upper() == 0 || profile.lower() == 0 {
        return;
    }
    let bytes = text.as_bytes();
    let mut left = MOST_WORK;
    let mut position = 0;
    walk.work(text.len());
    while position < bytes.len() {
        let start = position;
        while position < bytes.len() && TABLE[usize::from(bytes[position])] != NONE {
            position += 1;
        }
        let word = &bytes[start..position];
        position += 1;
        let alone = !bytes.get(position - 1).is_some_and(u8::is_ascii_alphanumeric);
        if !alone || !(SHORTEST..=LONGEST).contains(&word.len()) || !is_mixed(word) {
            continue;
        }
        let cost = word.len() * word.len() / 8;
        if cost > left {
            return;
        }
        left -= cost;
        walk.work(cost);
        walk.found_bytes(Step::Base58, &number(word), start..start + word.len());
    }
}

fn is_mixed(word: &[u8]) -> bool {
    word.iter().any(u8::is_ascii_digit)
        && word.iter().any(u8::is_ascii_uppercase)
        && word.iter().any(u8::is_ascii_lowercase)
}

fn number(word: &[u8]) -> Vec<u8> {
    // Limbs of 32 bits, least first.
    let mut limbs: Vec<u32> = Vec::with_capacity(word.len() / 5 + 1);
    for letter in word {
        let mut carry = u64::from(TABLE[usize::from(*letter)]);
        for limb in &mut limbs {
            carry += u64::from(*limb) * 58;
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
