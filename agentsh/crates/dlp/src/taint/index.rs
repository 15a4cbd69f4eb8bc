//! A hash index from a tag to its places: eight bytes per entry, one probe per lookup.

use super::filter::Filter;

/// Up to this many places for one tag: a text that two servers returned belongs to both.
const SAME_TAG: usize = 4;
const SHARDS: usize = 256;
const EMPTY: u64 = 0;

/// Positions count up for ever, and those below `floor` are dead: their slots are reused without being searched for.
/// Each shard grows by itself, so that growing never needs twice the memory.
#[derive(Clone, Debug)]
pub struct Index {
    shards: Vec<Vec<u64>>,
    used: Vec<u32>,
    filter: Filter,
    /// Tags that went into the filter since it was made.
    entries: usize,
}

/// From here on entries are put in order of their shards before they are stored: each shard is then read and
/// written while it is in the processor's cache.
const BATCH: usize = 256;
/// A slot is prefetched this many entries before its turn, so that several memory reads overlap.
const PREFETCH_DISTANCE: usize = 12;

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
    /// Stores that each tag was seen at its place, counted from `base`. `same(other)`: the place `other` may be
    /// forgotten in favour of a new one.
    pub fn insert_all(&mut self, tags: &[(u32, u32)], base: u32, floor: u32, same: impl Fn(u32) -> bool) {
        if tags.len() < BATCH {
            for &(tag, at) in tags {
                self.insert(tag, base + at, floor, &same);
            }
            return;
        }
        let mut ends = [0_usize; SHARDS];
        tags.iter().for_each(|(tag, _)| ends[(tag >> 24) as usize] += 1);
        let mut sum = 0;
        for (shard, end) in ends.iter_mut().enumerate() {
            self.reserve(shard, *end, floor);
            (*end, sum) = (sum, sum + *end);
        }
        let mut sorted = vec![(0, 0); tags.len()];
        for &entry in tags {
            let end = &mut ends[(entry.0 >> 24) as usize];
            sorted[*end] = entry;
            *end += 1;
        }
        if self.entries + tags.len() > self.filter.capacity() {
            self.rebuild_filter(floor, tags.len());
        }
        let mut seen = 0;
        for (index, &(tag, at)) in sorted.iter().enumerate() {
            seen ^= sorted.get(index + PREFETCH_DISTANCE).map_or(EMPTY, |(tag, _)| self.first_slot(*tag));
            self.put(tag, base + at, floor, &same);
        }
        std::hint::black_box(seen);
    }

    /// Stores that `tag` was seen at `at`.
    pub fn insert(&mut self, tag: u32, at: u32, floor: u32, same: impl Fn(u32) -> bool) {
        self.reserve((tag >> 24) as usize, 1, floor);
        self.put(tag, at, floor, &same);
    }

    /// Like [`Index::insert`], if there is space.
    #[inline]
    fn put(&mut self, tag: u32, at: u32, floor: u32, same: &impl Fn(u32) -> bool) {
        let shard = (tag >> 24) as usize;
        let slots = self.shards[shard].as_mut_slice();
        let entry = u64::from(tag) << 32 | u64::from(at.wrapping_add(1));
        let mut slot = home(tag, slots.len());
        let mut oldest: Option<(usize, u32)> = None;
        // A tag that has a live place is in the filter already.
        let (mut equal, mut is_known) = (0, false);
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
                is_known = true;
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
        if !is_known {
            self.entries += 1;
            if self.entries > self.filter.capacity() {
                self.rebuild_filter(floor, 0);
            }
            self.filter.insert(tag);
        }
    }

    /// Nothing was ever stored, or all of it is forgotten.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
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

    /// Like [`Index::find`], for many tags; `visit` also gets the value stored with the tag, and the tag.
    pub fn find_all(&self, tags: &[(usize, u32)], floor: u32, mut visit: impl FnMut(usize, u32, u32)) {
        let mut seen = 0;
        for (index, &(at, tag)) in tags.iter().enumerate() {
            seen ^= tags.get(index + PREFETCH_DISTANCE).map_or(EMPTY, |(_, tag)| self.first_slot(*tag));
            self.find(tag, floor, |place| visit(at, tag, place));
        }
        std::hint::black_box(seen);
    }

    fn first_slot(&self, tag: u32) -> u64 {
        let slots = &self.shards[(tag >> 24) as usize];
        slots.get(home(tag, slots.len())).copied().unwrap_or(EMPTY)
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
        self.rebuild_filter(0, 0);
    }

    /// Moves every place to where `to` says; None: it is forgotten.
    pub fn remap(&mut self, to: impl Fn(u32) -> Option<u32>) {
        for shard in 0..SHARDS {
            let old = std::mem::take(&mut self.shards[shard]);
            let moved = |entry: u64| Some(entry >> 32 << 32 | u64::from(to(place(entry))?.wrapping_add(1)));
            let live: Vec<u64> = old.into_iter().filter(|&entry| entry != EMPTY).filter_map(moved).collect();
            let mut slots = vec![EMPTY; (live.len() + live.len() * 3 / 4 + 8).next_multiple_of(8)];
            live.iter().for_each(|&entry| put(&mut slots, entry));
            self.used[shard] = live.len() as u32;
            self.shards[shard] = slots;
        }
        self.rebuild_filter(0, 0);
    }

    /// In bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shards.iter().map(|slots| slots.capacity() * 8).sum::<usize>() + self.filter.size()
    }

    /// Reserves room for `more` entries.
    fn reserve(&mut self, shard: usize, more: usize, floor: u32) {
        if (self.used[shard] as usize + more) * 4 <= self.shards[shard].len() * 3 {
            return;
        }
        let old = std::mem::take(&mut self.shards[shard]);
        let live = old.iter().filter(|&&entry| entry != EMPTY && place(entry) >= floor).count();
        let wanted = live + more;
        let mut slots = vec![EMPTY; (wanted + wanted * 3 / 4 + 8).next_multiple_of(8)];
        for entry in old.into_iter().filter(|&entry| entry != EMPTY && place(entry) >= floor) {
            put(&mut slots, entry);
        }
        self.shards[shard] = slots;
        self.used[shard] = live as u32;
    }

    fn rebuild_filter(&mut self, floor: u32, more: usize) {
        let live =
            || self.shards.iter().flatten().copied().filter(|&entry| entry != EMPTY && place(entry) >= floor);
        self.entries = live().count();
        let mut filter = Filter::new((self.entries + more) * 3 / 2);
        for entry in live() {
            filter.insert((entry >> 32) as u32);
        }
        self.filter = filter;
    }
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
        fn index_finds_what_a_map_finds(tags in proptest::collection::vec(0_u32..400, 0..600), floor in 0_u32..600) {
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
    fn index_keeps_the_four_newest_places_of_a_tag() {
        let mut index = Index::default();
        for at in 0..6 {
            index.insert(42, at, 0, |_| false);
        }
        assert_eq!(found(&index, 42, 0), [2, 3, 4, 5]);
    }

    #[test]
    fn index_reuses_memory_of_dead_entries() {
        let mut index = Index::default();
        for at in 0..200_000_u32 {
            index.insert(at.wrapping_mul(0x9E37_79B1), at, at.saturating_sub(5_000), |_| true);
        }
        assert!(index.size() < 400_000, "{}", index.size());
    }
}
