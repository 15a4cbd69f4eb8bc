//! Pairs of words of each result that were sent over all calls: prose that leaves in short pieces, in any order, to any
//! server, with whatever else around it.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::OriginId;

/// So many pairs of one result over all calls, and so many of a hundred of its own, are the result.
pub(super) const MANY: usize = 8;
pub(super) const SHARE: usize = 35;
/// Results for which it is counted, and pairs of each.
const MAX_RESULTS: usize = 512;
const MAX_PAIRS: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    sent: BTreeMap<OriginId, BTreeSet<u32>>,
    /// What the last call sent for the first time: of which result, and which pair.
    last: Vec<(OriginId, u32)>,
    tags: Vec<u32>,
}

impl Spread {
    /// Before the next call.
    pub fn begin(&mut self) {
        self.last.clear();
        self.tags.clear();
    }

    /// Notes a pair as sent. False: it was, or there is no room.
    pub fn note(&mut self, origin: OriginId, tag: u32) -> bool {
        if !self.sent.contains_key(&origin) && self.sent.len() >= MAX_RESULTS {
            // The oldest result.
            self.sent.pop_first();
        }
        let sent = self.sent.entry(origin).or_default();
        if sent.len() >= MAX_PAIRS || !sent.insert(tag) {
            return false;
        }
        self.last.push((origin, tag));
        self.tags.push(tag);
        true
    }

    /// How many pairs of a result were sent.
    pub fn count(&self, origin: OriginId) -> usize {
        self.sent.get(&origin).map_or(0, BTreeSet::len)
    }

    /// The last call was not sent.
    pub fn take_back(&mut self) {
        for (origin, tag) in std::mem::take(&mut self.last) {
            if let Some(sent) = self.sent.get_mut(&origin) {
                sent.remove(&tag);
            }
        }
        self.tags.clear();
    }

    /// Takes in what a copy noted of the one call that it judged.
    pub fn adopt(&mut self, copy: Self) {
        self.begin();
        for (origin, tag) in copy.last {
            self.note(origin, tag);
        }
    }

    /// The pairs that the last call sent for the first time.
    pub fn last(&self) -> &[u32] {
        &self.tags
    }
}
