//! The two kinds of grams: of symbols, and of the distances between letters.

use super::blocks::{BLOCK, EARLIER, Grams};
use super::hash::{self, Hasher, SHORT, STEPS};

/// What grams are made of.
pub(super) trait Unit {
    /// So far from each other begin the two grams that make a long one.
    const APART: usize;
    /// Units that one gram covers.
    const SPAN: usize;

    /// Every gram of `text`, in order.
    fn each_block(hasher: &Hasher, text: &[u8], each: impl FnMut(&Grams<'_>));

    /// The tag of the long gram that two make.
    fn long(first: u64, second: u64) -> u32;

    /// Fills `tags` with those of the long grams that a block completes, and tells where the first of them begins and how
    /// many they are.
    #[inline]
    fn long_of(grams: &Grams<'_>, tags: &mut [u32; BLOCK]) -> (usize, usize) {
        // The first block of a text has none before it.
        let missing = Self::APART.saturating_sub(grams.at);
        let second = &grams.buffer[(EARLIER + missing).min(grams.buffer.len())..];
        let first = &grams.buffer[EARLIER + missing - Self::APART..];
        for ((tag, &first), &second) in tags.iter_mut().zip(first).zip(second) {
            *tag = Self::long(first, second);
        }
        (grams.at.saturating_sub(Self::APART), second.len())
    }

    /// Grams of a text of so many units.
    fn count(units: usize) -> usize {
        (units + 1).saturating_sub(Self::SPAN)
    }
}

/// Symbols, as they stand there.
pub(super) struct Symbols;
/// Distances between neighbouring letters.
pub(super) struct Intervals;

impl Unit for Symbols {
    const APART: usize = SHORT;
    const SPAN: usize = SHORT;

    fn each_block(hasher: &Hasher, text: &[u8], each: impl FnMut(&Grams<'_>)) {
        hasher.each_short_block(text, each);
    }

    fn long(first: u64, second: u64) -> u32 {
        hash::long(first, second)
    }
}

impl Unit for Intervals {
    const APART: usize = STEPS;
    const SPAN: usize = STEPS + 1;

    fn each_block(hasher: &Hasher, text: &[u8], each: impl FnMut(&Grams<'_>)) {
        hasher.each_interval_block(text, each);
    }

    fn long(first: u64, second: u64) -> u32 {
        hash::long_interval(first, second)
    }
}

const _: () = assert!(Symbols::APART <= EARLIER && Intervals::APART <= EARLIER && EARLIER <= BLOCK);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    /// Every tag of a long gram, one by one.
    fn slowly<U: Unit>(grams: &[u64]) -> Vec<(usize, u32)> {
        let pairs = grams.iter().zip(grams.iter().skip(U::APART)).enumerate();
        pairs.map(|(at, (first, second))| (at, U::long(*first, *second))).collect()
    }

    fn in_blocks<U: Unit>(hasher: &Hasher, text: &[u8]) -> (Vec<u64>, Vec<(usize, u32)>) {
        let (mut grams, mut tags) = (Vec::new(), Vec::new());
        U::each_block(hasher, text, |block| {
            assert_eq!(block.at, grams.len());
            grams.extend_from_slice(block.own());
            let mut long = [0; BLOCK];
            let (start, count) = U::long_of(block, &mut long);
            tags.extend(long[..count].iter().enumerate().map(|(at, tag)| (start + at, *tag)));
        });
        (grams, tags)
    }

    proptest! {
        #[test]
        fn blocks_hold_what_single_grams_are(text in proptest::collection::vec(0_u8..26, 0..900)) {
            let hasher = Hasher::new(&[7; 32]);
            // What a gram is does not depend on what stands around it.
            let short: Vec<u64> =
                (0..Symbols::count(text.len())).map(|at| hasher.roll(&text, at).unwrap().gram()).collect();
            let mut steps = Vec::new();
            for alone in text.windows(Intervals::SPAN) {
                hasher.each_interval_gram(alone, |_, gram| steps.push(gram));
            }
            prop_assert_eq!(Symbols::count(text.len()), short.len());
            prop_assert_eq!(Intervals::count(text.len()), steps.len());
            let expected = (short.clone(), slowly::<Symbols>(&short));
            prop_assert_eq!(in_blocks::<Symbols>(&hasher, &text), expected);
            let expected = (steps.clone(), slowly::<Intervals>(&steps));
            prop_assert_eq!(in_blocks::<Intervals>(&hasher, &text), expected);
        }
    }
}
