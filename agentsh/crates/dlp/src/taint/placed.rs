//! A remembered result, for indices that take its tags.

use std::cell::Cell;

use super::entry::Entry;
use super::index::Index;
use super::memory::TaintMemory;
use super::origin::{Origin, OriginId};

pub(super) struct Placed<'m> {
    pub memory: &'m TaintMemory,
    pub id: OriginId,
    pub origin: &'m Origin,
    /// The position of its first symbol.
    pub start: u32,
}

impl<'m> Placed<'m> {
    /// None: it is not remembered.
    pub fn of(memory: &'m TaintMemory, id: OriginId) -> Option<Self> {
        let Entry { origin, start, .. } = memory.entry(id)?;
        Some(Self { memory, id, origin, start: *start })
    }

    /// Puts tags into an index. A tag takes the place of the same one in this result, and in older ones of the same server.
    pub fn insert(&self, index: &mut Index, tags: &[(u32, u32)]) {
        // Neighbouring tags were seen in the same results before.
        let last = Cell::new((0, 0, false));
        index.insert_all(tags, self.start, self.memory.floor(), |at| {
            let (from, to, _) = last.get();
            if !(from..to).contains(&at) {
                last.set(self.result_at(at));
            }
            last.get().2
        });
    }

    /// The places of the result that has this one, and whether its tags may go.
    fn result_at(&self, at: u32) -> (u32, u32, bool) {
        if at >= self.start {
            return (self.start, u32::MAX, true);
        }
        let entries = &self.memory.entries;
        let after = entries.partition_point(|entry| entry.start <= at);
        let Some(found) = after.checked_sub(1).and_then(|at| entries.get(at)) else { return (0, 0, true) };
        let end = entries.get(after).map_or(self.start, |entry| entry.start);
        (found.start, end, found.origin.server == self.origin.server)
    }
}
