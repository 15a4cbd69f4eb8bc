//! Which result a place in an index belongs to, and whether a new one may take its tag.

use std::cell::Cell;
use std::collections::VecDeque;

use super::entry::Entry;
use super::index::Index;
use crate::types::ServerId;

/// How places in one kind of index are counted.
pub(super) struct Positions<'m> {
    /// Where the new result begins.
    pub base: u32,
    /// Places below are forgotten.
    pub floor: u32,
    pub entries: &'m VecDeque<Entry>,
    pub starts: fn(&Entry) -> u32,
}

impl Positions<'_> {
    /// A tag takes the place of the same one in this result, and in older ones of the same server.
    pub fn insert(&self, index: &mut Index, tags: &[(u32, u32)], server: &ServerId) {
        // Neighbouring tags were seen in the same results before.
        let last = Cell::new((0, 0, false));
        index.insert_all(tags, self.base, self.floor, |at| {
            let (from, to, _) = last.get();
            if !(from..to).contains(&at) {
                last.set(self.result_at(at, server));
            }
            last.get().2
        });
    }

    /// The places of the result that has this one, and whether its tags may go.
    fn result_at(&self, at: u32, server: &ServerId) -> (u32, u32, bool) {
        if at >= self.base {
            return (self.base, u32::MAX, true);
        }
        let after = self.entries.partition_point(|entry| (self.starts)(entry) <= at);
        let entry = |index: usize| self.entries.get(index);
        let Some(found) = after.checked_sub(1).and_then(entry) else { return (0, 0, true) };
        let end = entry(after).map_or(self.base, self.starts);
        ((self.starts)(found), end, found.origin.server == *server)
    }
}
