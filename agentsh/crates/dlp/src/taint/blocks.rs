//! Grams in blocks, to be processed in short loops without branches.

/// Grams at once.
pub(super) const BLOCK: usize = 256;
/// N-grams kept from the block before: as many as are between the two that form a long one.
const EARLIER: usize = SHORT;
/// Symbols in a short gram: the smallest piece of a secret that is recognised.
pub const SHORT: usize = 10;

/// Neighbouring grams, and those just before them.
pub(super) struct Grams<'b> {
    /// The start of the first one.
    pub at: usize,
    pub buffer: &'b [u64],
}

impl<'b> Grams<'b> {
    pub fn own_grams(&self) -> &'b [u64] {
        &self.buffer[EARLIER..]
    }

    /// Each with its start.
    #[inline]
    pub fn each(&self, each: &mut impl FnMut(usize, u64)) {
        self.own_grams().iter().enumerate().for_each(|(at, gram)| each(self.at + at, *gram));
    }

    /// Fills `tags` with those of the long grams that this block completes (`hash::long_gram_tag`), and returns where the
    /// first of them begins and how many there are.
    #[inline]
    pub fn fill_long_tags(
        &self,
        tag_of: impl Fn(u64, u64) -> u32,
        tags: &mut [u32; BLOCK],
    ) -> (usize, usize) {
        // The first block of a text has none before it.
        let missing = EARLIER.saturating_sub(self.at);
        let second = &self.buffer[(EARLIER + missing).min(self.buffer.len())..];
        let first = &self.buffer[missing..];
        for ((tag, &first), &second) in tags.iter_mut().zip(first).zip(second) {
            *tag = tag_of(first, second);
        }
        (self.at.saturating_sub(EARLIER), second.len())
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

    /// The room for the next grams; never empty between two calls of [`Filling::take`].
    #[inline]
    pub fn free_slots(&mut self) -> &mut [u64] {
        &mut self.buffer[EARLIER + self.filled..]
    }

    /// `count` n-grams were written into the buffer.
    #[inline]
    pub fn take(&mut self, count: usize, each: &mut impl FnMut(&Grams<'_>)) {
        self.filled += count;
        if self.filled == BLOCK {
            self.finish(each);
        }
    }

    /// Passes the remaining grams to `each`.
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

    use super::super::hash::{self, Hasher};
    use super::*;

    proptest! {
        #[test]
        fn block_of_grams_equals_grams_hashed_one_by_one(text in proptest::collection::vec(0_u8..26, 0..900)) {
            let hasher = Hasher::new(&[7; 32]);
            let count = (text.len() + 1).saturating_sub(SHORT);
            // A gram does not depend on its surroundings.
            let alone: Vec<u64> = (0..count).map(|at| hasher.roll(&text, at).unwrap().gram()).collect();
            let pairs = alone.iter().zip(alone.iter().skip(SHORT)).enumerate();
            let expected: Vec<_> = pairs.map(|(at, (first, second))| (at, hash::long_gram_tag(*first, *second))).collect();
            let (mut grams, mut tags) = (Vec::new(), Vec::new());
            hasher.each_short_block(&text, |block| {
                assert_eq!(block.at, grams.len());
                grams.extend_from_slice(block.own_grams());
                let mut long = [0; BLOCK];
                let (start, count) = block.fill_long_tags(hash::long_gram_tag, &mut long);
                tags.extend(long[..count].iter().enumerate().map(|(at, tag)| (start + at, *tag)));
            });
            prop_assert_eq!((grams, tags), (alone, expected));
        }
    }
}
