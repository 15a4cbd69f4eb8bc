//! A result that is now remembered, for those who put its tags into an index.

use std::cell::Cell;

use super::entry::Entry;
use super::index::Index;
use super::memory::TaintMemory;
use super::origin::{Origin, OriginId};

pub(super) struct Placed<'m> {
    pub memory: &'m TaintMemory,
    pub id: OriginId,
    pub origin: &'m Origin,
    /// Where it begins, in symbols and in letters.
    pub start: u32,
    pub letters_start: u32,
}

impl<'m> Placed<'m> {
    /// None: it is not remembered.
    pub fn of(memory: &'m TaintMemory, id: OriginId) -> Option<Self> {
        let Entry { origin, start, letters_start, .. } = memory.entry(id)?;
        Some(Self { memory, id, origin, start: *start, letters_start: *letters_start })
    }

    /// Puts tags into an index, by the places of symbols.
    pub fn symbols(&self, index: &mut Index, tags: &[(u32, u32)]) {
        self.insert(index, tags, self.start, self.memory.floor(), |entry| entry.start);
    }

    /// As [`Placed::symbols`], by the places of letters.
    pub fn letters(&self, index: &mut Index, tags: &[(u32, u32)]) {
        self.insert(index, tags, self.letters_start, self.memory.letter_floor(), |entry| entry.letters_start);
    }

    /// A tag takes the place of the same one in this result, and in older ones of the same server.
    fn insert(
        &self,
        index: &mut Index,
        tags: &[(u32, u32)],
        base: u32,
        floor: u32,
        starts: fn(&Entry) -> u32,
    ) {
        // Neighbouring tags were seen in the same results before.
        let last = Cell::new((0, 0, false));
        index.insert_all(tags, base, floor, |at| {
            let (from, to, _) = last.get();
            if !(from..to).contains(&at) {
                last.set(self.result_at(at, base, starts));
            }
            last.get().2
        });
    }

    /// The places of the result that has this one, and whether its tags may go.
    fn result_at(&self, at: u32, base: u32, starts: fn(&Entry) -> u32) -> (u32, u32, bool) {
        if at >= base {
            return (base, u32::MAX, true);
        }
        let entries = &self.memory.entries;
        let after = entries.partition_point(|entry| starts(entry) <= at);
        let Some(found) = after.checked_sub(1).and_then(|at| entries.get(at)) else { return (0, 0, true) };
        let end = entries.get(after).map_or(base, starts);
        (starts(found), end, found.origin.server == self.origin.server)
    }
}
