//! From a tag to the places where it was seen: eight bytes an entry, one probe a look-up, whatever is stored.

/// Up to this many places for one tag: a text that two servers returned belongs to both.
const SAME_TAG: usize = 4;
const SHARDS: usize = 256;
const EMPTY: u64 = 0;

/// Positions count up for ever, and those below `floor` are gone: their slots are taken again without being searched
/// for. Each shard grows by itself, so that growing never needs twice the memory.
#[derive(Clone, Debug)]
pub struct Index {
    shards: Vec<Vec<u64>>,
    used: Vec<u32>,
    filter: Filter,
    entries: usize,
}

/// What tells in one read that a tag was never stored: two bits in one word.
#[derive(Clone, Debug)]
pub struct Filter {
    words: Vec<u64>,
    room: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            shards: vec![Vec::new(); SHARDS],
            used: vec![0; SHARDS],
            filter: Filter::new(4096),
            entries: 0,
        }
    }
}

impl Index {
    /// Stores that `tag` was seen at `at`. `same(other)`: the place `other` may be forgotten in favour of this one.
    pub fn insert(&mut self, tag: u32, at: u32, floor: u32, same: impl Fn(u32) -> bool) {
        let shard = (tag >> 24) as usize;
        if (self.used[shard] as usize + 1) * 5 > self.shards[shard].len() * 4 {
            self.grow(shard, floor);
        }
        let slots = &mut self.shards[shard];
        let entry = u64::from(tag) << 32 | u64::from(at.wrapping_add(1));
        let mut slot = home(tag, slots.len());
        let mut oldest: Option<(usize, u32)> = None;
        let mut equal = 0;
        let target = loop {
            let found = slots[slot];
            if found == EMPTY {
                self.used[shard] += 1;
                break slot;
            }
            let position = place(found);
            if position < floor {
                break slot;
            }
            if (found >> 32) as u32 == tag {
                if same(position) {
                    break slot;
                }
                equal += 1;
                if oldest.is_none_or(|(_, old)| position < old) {
                    oldest = Some((slot, position));
                }
                if equal == SAME_TAG
                    && let Some((slot, _)) = oldest
                {
                    break slot;
                }
            }
            slot = if slot + 1 == slots.len() { 0 } else { slot + 1 };
        };
        slots[target] = entry;
        self.entries += 1;
        if self.entries > self.filter.room {
            self.rebuild_filter(floor);
        }
        self.filter.insert(tag);
    }

    /// Whether the tag may be stored. One read of memory.
    #[inline]
    #[must_use]
    pub fn may_have(&self, tag: u32) -> bool {
        self.filter.may_have(tag)
    }

    /// Calls `visit` with every place of the tag from `floor` on.
    pub fn find(&self, tag: u32, floor: u32, mut visit: impl FnMut(u32)) {
        let slots = &self.shards[(tag >> 24) as usize];
        if slots.is_empty() {
            return;
        }
        let mut slot = home(tag, slots.len());
        while slots[slot] != EMPTY {
            if (slots[slot] >> 32) as u32 == tag && place(slots[slot]) >= floor {
                visit(place(slots[slot]));
            }
            slot = if slot + 1 == slots.len() { 0 } else { slot + 1 };
        }
    }

    /// Moves every place down by `by`, and forgets those that were below it.
    pub fn rebase(&mut self, by: u32) {
        for shard in 0..SHARDS {
            let old = std::mem::take(&mut self.shards[shard]);
            let length = old.len();
            let mut slots = vec![EMPTY; length];
            let mut used = 0;
            for entry in old.into_iter().filter(|&entry| entry != EMPTY && place(entry) >= by) {
                put(&mut slots, entry - u64::from(by));
                used += 1;
            }
            self.shards[shard] = slots;
            self.used[shard] = used;
        }
        self.rebuild_filter(0);
    }

    /// In bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shards.iter().map(|slots| slots.capacity() * 8).sum::<usize>() + self.filter.words.len() * 8
    }

    fn grow(&mut self, shard: usize, floor: u32) {
        let old = std::mem::take(&mut self.shards[shard]);
        let live = old.iter().filter(|&&entry| entry != EMPTY && place(entry) >= floor).count();
        let mut slots = vec![EMPTY; (live + live / 2 + 8).next_multiple_of(8)];
        for entry in old.into_iter().filter(|&entry| entry != EMPTY && place(entry) >= floor) {
            put(&mut slots, entry);
        }
        self.shards[shard] = slots;
        self.used[shard] = live as u32;
    }

    fn rebuild_filter(&mut self, floor: u32) {
        let live =
            || self.shards.iter().flatten().copied().filter(|&entry| entry != EMPTY && place(entry) >= floor);
        self.entries = live().count();
        let mut filter = Filter::new(self.entries * 3 / 2);
        for entry in live() {
            filter.insert((entry >> 32) as u32);
        }
        self.filter = filter;
    }
}

impl Filter {
    /// With room for `entries`: about one tag in fifty that was never stored seems to be there.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        let room = entries.max(512);
        Self { words: vec![0; room / 4], room }
    }

    pub fn insert(&mut self, tag: u32) {
        let at = self.word(tag);
        if let Some(word) = self.words.get_mut(at) {
            *word |= mask(tag);
        }
    }

    #[inline]
    #[must_use]
    pub fn may_have(&self, tag: u32) -> bool {
        let mask = mask(tag);
        self.words.get(self.word(tag)).is_some_and(|word| word & mask == mask)
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    #[inline]
    fn word(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.words.len() as u64) >> 32) as usize
    }
}

#[inline]
fn mask(tag: u32) -> u64 {
    1 << (tag & 63) | 1 << (tag >> 6 & 63)
}

fn home(tag: u32, slots: usize) -> usize {
    ((u64::from(tag & 0x00FF_FFFF) * slots as u64) >> 24) as usize
}

fn place(entry: u64) -> u32 {
    (entry as u32).wrapping_sub(1)
}

fn put(slots: &mut [u64], entry: u64) {
    let mut slot = home((entry >> 32) as u32, slots.len());
    while slots[slot] != EMPTY {
        slot = if slot + 1 == slots.len() { 0 } else { slot + 1 };
    }
    slots[slot] = entry;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn found(index: &Index, tag: u32, floor: u32) -> Vec<u32> {
        let mut places = Vec::new();
        index.find(tag, floor, |place| places.push(place));
        places.sort_unstable();
        places
    }

    proptest! {
        #[test]
        fn finds_what_a_map_finds(tags in proptest::collection::vec(0_u32..400, 0..600), floor in 0_u32..600) {
            let mut index = Index::default();
            let mut map = BTreeMap::new();
            for (at, tag) in tags.iter().enumerate() {
                let tag = tag.wrapping_mul(0x9E37_79B1);
                index.insert(tag, at as u32, 0, |_| true);
                map.insert(tag, at as u32);
            }
            for (&tag, &at) in &map {
                prop_assert!(index.may_have(tag));
                prop_assert_eq!(found(&index, tag, floor), if at >= floor { vec![at] } else { vec![] });
            }
            index.rebase(floor);
            for (&tag, &at) in &map {
                prop_assert_eq!(found(&index, tag, 0), if at >= floor { vec![at - floor] } else { vec![] });
            }
        }
    }

    #[test]
    fn one_tag_has_four_places_and_the_oldest_goes() {
        let mut index = Index::default();
        for at in 0..6 {
            index.insert(42, at, 0, |_| false);
        }
        assert_eq!(found(&index, 42, 0), [2, 3, 4, 5]);
    }

    #[test]
    fn dead_entries_do_not_take_memory() {
        let mut index = Index::default();
        for at in 0..200_000_u32 {
            index.insert(at.wrapping_mul(0x9E37_79B1), at, at.saturating_sub(5_000), |_| true);
        }
        assert!(index.size() < 400_000, "{}", index.size());
    }
}
