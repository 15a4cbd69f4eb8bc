//! Which of many neighbouring grams are kept: the smallest of every window, so that two texts that share a window in a
//! row keep one gram in common, wherever it stands in them.

/// Takes the tags of one text in order. Of equal tags in a window the last one is kept.
pub(super) struct Winnow<const WINDOW: usize> {
    /// Keys since the last whole block, smallest of them, and how many.
    block: [u64; WINDOW],
    smallest: u64,
    filled: usize,
    /// The smallest of the block before, from each of its places to its end.
    before: [u64; WINDOW],
    taken: usize,
    last: u64,
}

/// The tag above, the position below and inverted, so that of two equal tags the later one is the smaller key.
fn key(tag: u32, at: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(!at)
}

impl<const WINDOW: usize> Winnow<WINDOW> {
    pub fn new() -> Self {
        Self {
            block: [u64::MAX; WINDOW],
            smallest: u64::MAX,
            filled: 0,
            before: [u64::MAX; WINDOW],
            taken: 0,
            last: u64::MAX,
        }
    }

    /// One comparison with this block and one with what is left of the block before: no window is read twice.
    #[inline]
    pub fn push(&mut self, tag: u32, at: u32, kept: &mut Vec<(u32, u32)>) {
        let key = key(tag, at);
        self.block[self.filled] = key;
        self.smallest = self.smallest.min(key);
        self.filled += 1;
        self.taken += 1;
        let smallest = match self.before.get(self.filled) {
            Some(before) => self.smallest.min(*before),
            None => self.smallest,
        };
        if smallest != self.last && self.taken >= WINDOW {
            self.last = smallest;
            kept.push(((smallest >> 32) as u32, !(smallest as u32)));
        }
        if self.filled == WINDOW {
            let mut smallest = u64::MAX;
            for at in (0..WINDOW).rev() {
                smallest = smallest.min(self.block[at]);
                self.before[at] = smallest;
            }
            self.smallest = u64::MAX;
            self.filled = 0;
        }
    }

    /// A text that is shorter than a window has its smallest tag kept.
    pub fn finish(self, kept: &mut Vec<(u32, u32)>) {
        if self.taken > 0 && self.taken < WINDOW {
            kept.push(((self.smallest >> 32) as u32, !(self.smallest as u32)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_window_has_its_smallest_kept(values in proptest::collection::vec(0_u32..20, 0..80)) {
            const WINDOW: usize = 7;
            let (mut winnow, mut kept) = (Winnow::<WINDOW>::new(), Vec::new());
            for (at, value) in values.iter().enumerate() {
                winnow.push(*value, at as u32, &mut kept);
            }
            winnow.finish(&mut kept);
            prop_assert!(kept.iter().all(|(value, at)| values[*at as usize] == *value));
            prop_assert!(kept.windows(2).all(|pair| pair[0].1 < pair[1].1));
            let window = WINDOW.min(values.len());
            for start in 0..(values.len() + 1).saturating_sub(window.max(1)) {
                let smallest = values[start..start + window].iter().min().unwrap();
                let within = |at: &u32| (start..start + window).contains(&(*at as usize));
                prop_assert!(kept.iter().any(|(value, at)| value == smallest && within(at)));
            }
            prop_assert_eq!(kept.is_empty(), values.is_empty());
        }
    }
}
