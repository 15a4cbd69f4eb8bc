//! Keyed rolling hashes. Without the key nobody can tell which texts collide, and a stored hash says nothing.

use sha2::{Digest, Sha256};

/// Symbols in a short gram: the smallest piece of a secret that is recognised.
pub const SHORT: usize = 10;
/// Symbols in a long gram (two short ones), the unit of a copied run.
pub const LONG: usize = 2 * SHORT;
/// Steps between letters in a short interval gram, and (two of them) in a long one.
pub const STEPS: usize = 12;
pub const LONG_STEPS: usize = 2 * STEPS;

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX_OLD: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// The tables of one key.
#[derive(Clone)]
pub struct Hasher {
    enter: [u64; 256],
    /// `enter`, rotated as far as a symbol has moved when it leaves a short gram.
    leave: [u64; 256],
    step_enter: [u64; 16],
    step_leave: [u64; 16],
    step_enter_back: [u64; 16],
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        let words = |domain: u8, at: usize| {
            let mut sha = Sha256::new();
            sha.update(key);
            sha.update([domain]);
            sha.update((at as u64).to_le_bytes());
            let digest = sha.finalize();
            let mut word = [0; 8];
            word.copy_from_slice(&digest[..8]);
            u64::from_le_bytes(word)
        };
        let enter: [u64; 256] = std::array::from_fn(|at| words(0, at));
        let step_enter: [u64; 16] = std::array::from_fn(|at| words(1, at));
        Self {
            leave: enter.map(|word| word.rotate_left(SHORT as u32)),
            enter,
            step_leave: step_enter.map(|word| word.rotate_left(STEPS as u32)),
            step_enter_back: step_enter.map(|word| word.rotate_left(STEPS as u32 - 1)),
            step_enter,
        }
    }

    /// The hash of every short gram of `symbols`: entry `i` is the gram that starts at `i`.
    pub fn short_grams(&self, symbols: &[u8], into: &mut Vec<u64>) {
        into.clear();
        if symbols.len() < SHORT {
            return;
        }
        into.reserve(symbols.len() + 1 - SHORT);
        let mut hash = 0_u64;
        for &symbol in &symbols[..SHORT] {
            hash = hash.rotate_left(1) ^ self.enter[usize::from(symbol)];
        }
        into.push(hash.wrapping_mul(MIX));
        for (&new, &old) in symbols[SHORT..].iter().zip(symbols) {
            hash = hash.rotate_left(1) ^ (self.leave[usize::from(old)] ^ self.enter[usize::from(new)]);
            into.push(hash.wrapping_mul(MIX));
        }
    }

    /// As [`Hasher::short_grams`], over the distances between neighbouring letters: the same for a text, for its
    /// reversal, and for every Caesar or mirrored alphabet over either.
    pub fn interval_grams(&self, letters: &[u8], into: &mut Vec<u64>) {
        into.clear();
        if letters.len() <= STEPS {
            return;
        }
        into.reserve(letters.len() - STEPS);
        let step = |at: usize| usize::from(distance(letters[at], letters[at + 1]));
        let (mut forward, mut back) = (0_u64, 0_u64);
        for at in 0..STEPS {
            forward = forward.rotate_left(1) ^ self.step_enter[step(at)];
            back = back.rotate_right(1) ^ self.step_enter_back[step(at)];
        }
        into.push((forward ^ back).wrapping_mul(MIX));
        for at in STEPS..letters.len() - 1 {
            let (old, new) = (step(at - STEPS), step(at));
            forward = forward.rotate_left(1) ^ (self.step_leave[old] ^ self.step_enter[new]);
            back = (back ^ self.step_enter[old]).rotate_right(1) ^ self.step_enter_back[new];
            into.push((forward ^ back).wrapping_mul(MIX));
        }
    }

    /// One hash over all of `symbols`.
    #[must_use]
    pub fn whole(&self, symbols: &[u8]) -> u64 {
        let hash = symbols.iter().fold(symbols.len() as u64, |hash, &symbol| {
            (hash.rotate_left(5) ^ self.enter[usize::from(symbol)]).wrapping_mul(MIX)
        });
        (hash ^ (hash >> 31)).wrapping_mul(MIX_OLD)
    }
}

/// A key for another purpose.
#[must_use]
pub fn derive(key: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(key).chain_update(purpose).finalize().into()
}

/// The tag of the long gram that begins where `first` does and ends where `second` does.
#[must_use]
pub fn long(first: u64, second: u64) -> u32 {
    (first.wrapping_mul(MIX_OLD).wrapping_add(second.wrapping_mul(MIX)) >> 32) as u32
}

/// As [`long`], the same when the text runs backwards.
#[must_use]
pub fn long_interval(first: u64, second: u64) -> u32 {
    (first.wrapping_add(second).wrapping_mul(MIX_OLD) >> 32) as u32
}

/// The tag under which a short gram stands in an index.
#[must_use]
pub fn tag(gram: u64) -> u32 {
    (gram >> 32) as u32
}

/// What the memory keeps of a short gram in order to follow a copy to its ends.
#[must_use]
pub fn shadow(gram: u64) -> u8 {
    (gram >> 24) as u8
}

/// Between two letters on a ring of 26, whichever way is shorter.
fn distance(first: u8, second: u8) -> u8 {
    let apart = first.abs_diff(second) % 26;
    apart.min(26 - apart)
}

/// Calls `select` with the position of the smallest value of every window of `window` values, each once: two texts
/// that share `window` values in a row select a position in common.
pub fn winnow(
    length: usize,
    window: usize,
    value: impl Fn(usize) -> u32,
    mut select: impl FnMut(usize, u32),
) {
    if length == 0 {
        return;
    }
    let window = window.clamp(1, length);
    let mut best = (u32::MAX, 0);
    let mut has_best = false;
    for at in 0..length {
        let new = value(at);
        if has_best && best.1 + window > at {
            if new <= best.0 {
                best = (new, at);
                if at + 1 >= window {
                    select(at, new);
                }
            } else if at + 1 == window {
                select(best.1, best.0);
            }
        } else {
            let start = (at + 1).saturating_sub(window);
            best = (u32::MAX, at);
            for candidate in start..=at {
                let found = value(candidate);
                if found <= best.0 {
                    best = (found, candidate);
                }
            }
            has_best = true;
            if at + 1 >= window {
                select(best.1, best.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;
    use crate::guard::taint::symbols::Folded;

    fn hasher() -> Hasher {
        Hasher::new(&[7; 32])
    }

    fn intervals(text: &str) -> Vec<u64> {
        let mut grams = Vec::new();
        hasher().interval_grams(&Folded::of(text).letters, &mut grams);
        grams
    }

    #[test]
    fn caesar_mirror_and_reversal_have_the_same_intervals() {
        let text = "the quarterly numbers stay inside the house";
        let shifted: String = text
            .chars()
            .map(|c| if c.is_ascii_lowercase() { char::from((c as u8 - b'a' + 11) % 26 + b'a') } else { c })
            .collect();
        let mirrored: String = text
            .chars()
            .map(|c| if c.is_ascii_lowercase() { char::from(b'a' + b'z' - c as u8) } else { c })
            .collect();
        let wanted = intervals(text);
        assert_eq!(intervals(&shifted), wanted);
        assert_eq!(intervals(&mirrored), wanted);
        let mut reversed = intervals(&shifted.chars().rev().collect::<String>());
        reversed.reverse();
        assert_eq!(reversed, wanted);
        assert_ne!(intervals("the quarterly numbers stay outside the house"), wanted);
    }

    #[test]
    fn another_key_gives_other_hashes() {
        let symbols = Folded::of("some text of twenty characters").symbols;
        let (mut one, mut other) = (Vec::new(), Vec::new());
        hasher().short_grams(&symbols, &mut one);
        Hasher::new(&[8; 32]).short_grams(&symbols, &mut other);
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }

    proptest! {
        #[test]
        fn grams_depend_on_their_symbols_alone(before in "[a-z]{0,30}", gram in "[a-z]{10}", after in "[a-z]{0,30}") {
            let (mut alone, mut within) = (Vec::new(), Vec::new());
            hasher().short_grams(gram.as_bytes(), &mut alone);
            hasher().short_grams(format!("{before}{gram}{after}").as_bytes(), &mut within);
            prop_assert_eq!(alone[0], within[before.len()]);
        }

        #[test]
        fn every_window_has_a_selected_position(values in proptest::collection::vec(0_u32..20, 0..80), window in 1_usize..15) {
            let mut selected = Vec::new();
            winnow(values.len(), window, |at| values[at], |at, value| {
                assert_eq!(values[at], value);
                selected.push(at);
            });
            prop_assert!(selected.windows(2).all(|pair| pair[0] < pair[1]));
            for start in 0..(values.len() + 1).saturating_sub(window) {
                let smallest = *values[start..start + window].iter().min().unwrap();
                prop_assert!(selected.iter().any(|&at| at >= start && at < start + window && values[at] == smallest));
            }
            prop_assert_eq!(selected.is_empty(), values.is_empty());
        }
    }
}
