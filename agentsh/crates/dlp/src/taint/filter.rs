//! A filter that rules out a tag with one memory access.

/// Masks with four bits of a word, selected by the hash.
static MASKS: [u64; 1024] = {
    let mut masks = [0_u64; 1024];
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut at = 0;
    while at < masks.len() {
        while masks[at].count_ones() < 4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            masks[at] |= 1 << (random >> 58);
        }
        at += 1;
    }
    masks
};

/// Four bits in one word of 64 for each tag.
#[derive(Clone, Debug)]
pub struct Filter {
    words: Vec<u64>,
    room: usize,
}

impl Filter {
    /// With room for `entries`: about one tag in two hundred that was never stored seems to be there.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        let room = entries.max(512);
        Self { words: vec![0; room / 4], room }
    }

    pub fn insert(&mut self, tag: u32) {
        let (at, mask) = self.place(tag);
        if let Some(word) = self.words.get_mut(at) {
            *word |= mask;
        }
    }

    #[inline]
    #[must_use]
    pub fn may_have(&self, tag: u32) -> bool {
        let (at, mask) = self.place(tag);
        self.words.get(at).is_some_and(|word| word & mask == mask)
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds everything that another filter of the same room has.
    pub fn add(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Tags that it is made for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.room
    }

    /// In bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.words.len() * 8
    }

    #[inline]
    fn place(&self, tag: u32) -> (usize, u64) {
        let at = ((u64::from(tag) * self.words.len() as u64) >> 32) as usize;
        // The word is chosen by the upper bits of the tag, the bits within it by the lower ones.
        let mask = MASKS[tag as usize % MASKS.len()];
        (at, mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_has_no_false_negatives_and_few_false_positives() {
        let mut filter = Filter::new(20_000);
        let tag = |number: u32| number.wrapping_mul(0x9E37_79B1);
        (0..20_000).for_each(|number| filter.insert(tag(number)));
        assert!((0..20_000).all(|number| filter.may_have(tag(number))));
        let wrong = (20_000..120_000).filter(|number| filter.may_have(tag(*number))).count();
        assert!(wrong < 1_500, "{wrong} of 100,000");
    }
}
