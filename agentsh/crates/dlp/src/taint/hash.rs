//! Keyed rolling hashes. Without the key, stored hashes reveal nothing and collisions cannot be found.

use sha2::{Digest, Sha256};

use super::blocks::{Filling, Grams};

pub use super::blocks::SHORT;

/// Symbols in a long gram (two short ones), the unit of a copied run.
pub const LONG: usize = 2 * SHORT;

/// Odd numbers with random-looking bits: multiplying by them spreads similar values.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX_OLD: u64 = 0xC2B2_AE3D_27D4_EB4F;

/// The tables of one key.
#[derive(Clone)]
pub struct Hasher {
    enter: [u64; 256],
    /// `enter`, rotated as far as a symbol has moved when it leaves a short gram.
    leave: [u64; 256],
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        let enter: [u64; 256] = std::array::from_fn(|at| {
            let digest = Sha256::new()
                .chain_update(key)
                .chain_update([0])
                .chain_update((at as u64).to_le_bytes())
                .finalize();
            let mut word = [0; 8];
            word.copy_from_slice(&digest[..8]);
            u64::from_le_bytes(word)
        });
        Self { leave: enter.map(|word| word.rotate_left(SHORT as u32)), enter }
    }

    /// Calls `each` with every short gram of `symbols` and where it starts.
    pub fn each_short_gram(&self, symbols: &[u8], mut each: impl FnMut(usize, u64)) {
        self.each_short_block(symbols, |grams| grams.each(&mut each));
    }

    /// Like [`Hasher::each_short_gram`], in blocks.
    #[inline]
    pub(super) fn each_short_block(&self, symbols: &[u8], mut each: impl FnMut(&Grams<'_>)) {
        let Some(mut roll) = self.roll(symbols, 0) else { return };
        let mut block = Filling::new();
        block.free_slots()[0] = roll.gram();
        block.take(1, &mut each);
        let (mut olds, mut news) = (symbols, &symbols[SHORT..]);
        while !news.is_empty() {
            let room = block.free_slots();
            let count = room.len().min(news.len());
            for ((gram, &old), &new) in room.iter_mut().zip(olds).zip(&news[..count]) {
                roll.forward(self, old, new);
                *gram = roll.gram();
            }
            block.take(count, &mut each);
            (olds, news) = (&olds[count..], &news[count..]);
        }
        block.finish(&mut each);
    }

    /// The short gram that starts at `at`, to be moved from there.
    #[must_use]
    pub fn roll(&self, symbols: &[u8], at: usize) -> Option<RollingHash> {
        let gram = symbols.get(at..at + SHORT)?;
        let enter = |hash: u64, symbol: &u8| hash.rotate_left(1) ^ self.enter[usize::from(*symbol)];
        Some(RollingHash(gram.iter().fold(0, enter)))
    }

    /// The hash over all of `symbols`.
    #[must_use]
    pub fn hash_all(&self, symbols: &[u8]) -> u64 {
        let hash = symbols.iter().fold(symbols.len() as u64, |hash, &symbol| {
            (hash.rotate_left(5) ^ self.enter[usize::from(symbol)]).wrapping_mul(MIX)
        });
        (hash ^ (hash >> 31)).wrapping_mul(MIX_OLD)
    }
}

/// A short gram that moves along a text.
#[derive(Clone, Copy, Debug)]
pub struct RollingHash(u64);

impl RollingHash {
    #[inline]
    #[must_use]
    pub fn gram(self) -> u64 {
        self.0.wrapping_mul(MIX)
    }

    /// Moves one symbol forward: `old` leaves at the front, `new` enters at the end.
    #[inline]
    pub fn forward(&mut self, hasher: &Hasher, old: u8, new: u8) {
        self.0 = self.0.rotate_left(1) ^ (hasher.leave[usize::from(old)] ^ hasher.enter[usize::from(new)]);
    }

    /// Moves one symbol back: the same in reverse.
    #[inline]
    pub fn roll_back(&mut self, hasher: &Hasher, old: u8, new: u8) {
        self.0 = (self.0 ^ (hasher.leave[usize::from(old)] ^ hasher.enter[usize::from(new)])).rotate_right(1);
    }
}

/// A key for another purpose.
#[must_use]
pub fn derive(key: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(key).chain_update(purpose).finalize().into()
}

/// The tag of the long gram that begins where `first` does and ends where `second` does.
#[must_use]
pub fn long_gram_tag(first: u64, second: u64) -> u32 {
    (first.wrapping_mul(MIX_OLD).wrapping_add(second.wrapping_mul(MIX)) >> 32) as u32
}

/// The tag of a short n-gram in an index.
#[must_use]
pub fn tag(gram: u64) -> u32 {
    (gram >> 32) as u32
}

/// The byte kept for each short n-gram, to follow a copy to its ends.
#[must_use]
pub fn shadow(gram: u64) -> u8 {
    (gram >> 24) as u8
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;
    use crate::taint::symbols::Folded;

    fn hasher() -> Hasher {
        Hasher::new(&[7; 32])
    }

    fn short(hasher: &Hasher, symbols: &[u8]) -> Vec<u64> {
        let mut grams = Vec::new();
        hasher.each_short_gram(symbols, |_, gram| grams.push(gram));
        grams
    }

    #[test]
    fn another_key_gives_other_hashes() {
        let symbols = Folded::of("some text of twenty characters").symbols;
        let (one, other) = (short(&hasher(), &symbols), short(&Hasher::new(&[8; 32]), &symbols));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }

    proptest! {
        #[test]
        fn hash_of_a_gram_depends_on_its_symbols_alone(before in "[a-z]{0,30}", gram in "[a-z]{10}", after in "[a-z]{0,30}") {
            let alone = short(&hasher(), gram.as_bytes());
            let within = short(&hasher(), format!("{before}{gram}{after}").as_bytes());
            prop_assert_eq!(alone[0], within[before.len()]);
        }
    }
}
