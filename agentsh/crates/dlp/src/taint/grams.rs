//! Grams of a text in blocks: what is done with many of them at once is done in short loops without a branch.

use super::hash::{self, Hasher, SHORT, STEPS};

/// Grams at once.
pub(super) const BLOCK: usize = 256;
/// Grams that are kept from the block before: at least as many as lie between the two that make a long one.
const EARLIER: usize = 16;

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

/// Neighbouring grams, and those just before them.
pub(super) struct Grams<'b> {
    /// Where the first one begins.
    pub at: usize,
    buffer: &'b [u64],
}

impl<'b> Grams<'b> {
    pub fn own(&self) -> &'b [u64] {
        &self.buffer[EARLIER..]
    }

    /// Each with where it begins.
    #[inline]
    pub fn each(&self, each: &mut impl FnMut(usize, u64)) {
        self.own().iter().enumerate().for_each(|(at, gram)| each(self.at + at, *gram));
    }

    /// Fills `tags` with those of the long grams that these complete, and tells where the first of them begins and how
    /// many they are.
    #[inline]
    pub fn long<U: Unit>(&self, tags: &mut [u32; BLOCK]) -> (usize, usize) {
        // The first block of a text has none before it.
        let missing = U::APART.saturating_sub(self.at);
        let second = &self.buffer[(EARLIER + missing).min(self.buffer.len())..];
        let first = &self.buffer[EARLIER + missing - U::APART..];
        for ((tag, &first), &second) in tags.iter_mut().zip(first).zip(second) {
            *tag = U::long(first, second);
        }
        (self.at.saturating_sub(U::APART), second.len())
    }
}

/// Grams on their way into a block.
pub(super) struct Filling {
    buffer: [u64; EARLIER + BLOCK],
    filled: usize,
    at: usize,
}

impl Filling {
    pub fn new() -> Self {
        Self { buffer: [0; EARLIER + BLOCK], filled: 0, at: 0 }
    }

    /// Where the next grams go; never empty between two calls of [`Filling::take`].
    #[inline]
    pub fn room(&mut self) -> &mut [u64] {
        &mut self.buffer[EARLIER + self.filled..]
    }

    /// So many were put into the room.
    #[inline]
    pub fn take(&mut self, count: usize, each: &mut impl FnMut(&Grams<'_>)) {
        self.filled += count;
        if self.filled == BLOCK {
            self.finish(each);
        }
    }

    /// Shows what is there.
    pub fn finish(&mut self, each: &mut impl FnMut(&Grams<'_>)) {
        if self.filled == 0 {
            return;
        }
        each(&Grams { at: self.at, buffer: &self.buffer[..EARLIER + self.filled] });
        let mut last = [0; EARLIER];
        last.copy_from_slice(&self.buffer[self.filled..self.filled + EARLIER]);
        self.buffer[..EARLIER].copy_from_slice(&last);
        self.at += self.filled;
        self.filled = 0;
    }
}

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
            let (start, count) = block.long::<U>(&mut long);
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
