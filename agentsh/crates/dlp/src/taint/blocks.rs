//! Grams of a text in blocks: what is done with many of them at once is done in short loops without a branch.

/// Grams at once.
pub(super) const BLOCK: usize = 256;
/// Grams that are kept from the block before: at least as many as lie between the two that make a long one.
pub(super) const EARLIER: usize = 16;

/// Neighbouring grams, and those just before them.
pub(super) struct Grams<'b> {
    /// Where the first one begins.
    pub at: usize,
    pub buffer: &'b [u64],
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
