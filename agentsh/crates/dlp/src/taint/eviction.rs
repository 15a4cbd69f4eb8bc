//! Evicts results when the memory is full.

use std::collections::VecDeque;

use super::entry::{Entry, RememberedParts, position_in_secrets, ranges, size_of_secrets};
use super::memory::{Evicted, TaintMemory};
use super::origin::{Origin, OriginId};
use super::position_change::{MovedResult, PositionChange};

/// The share of the memory (one part in this many) that gaps between results may take until it is compacted.
const MAX_WASTE: usize = 2;

impl TaintMemory {
    /// Forgets until `needed` bytes of `origin` have room, or nothing more may go for them.
    pub(super) fn make_room(
        &mut self,
        origin: &Origin,
        needed: usize,
    ) -> (Option<Evicted>, Option<PositionChange>) {
        let mut evicted = Evicted::default();
        while self.room.used + needed > self.config.memory
            && let Some(id) = self.room.next(origin, needed, self.config.memory)
            && let Some(at) = self.index_of(id)
        {
            let Some(entry) = self.entries.get_mut(at) else { break };
            evicted.results += 1;
            evicted.symbols += u64::from(entry.end - entry.start);
            *evicted.by_server.entry(entry.origin.server.clone()).or_default() += 1;
            let server = entry.origin.server.clone();
            let has_secrets =
                entry.origin.private && entry.spans.iter().any(|span| !span.kind.is_reference());
            if has_secrets {
                let before = entry.size;
                entry.size = size_of_secrets(entry);
                entry.keeps = RememberedParts::Secrets;
                self.room.shrink(&self.entries[at], before);
                evicted.kept += 1;
                while let Some(id) = self.room.oldest_secret(&server, self.config.memory) {
                    evicted.secrets += 1;
                    self.forget(id);
                }
            } else {
                self.forget(id);
            }
        }
        let moved = (self.room.waste > self.config.memory / MAX_WASTE).then(|| self.compact());
        ((evicted.results > 0).then_some(evicted), moved)
    }

    /// Forgets one result, at any position.
    pub(super) fn forget(&mut self, id: OriginId) {
        let Some(at) = self.index_of(id) else { return };
        let entry = &mut self.entries[at];
        if entry.keeps == RememberedParts::Nothing {
            return;
        }
        self.room.remove(entry, at == 0);
        self.sources.remove(&entry.origin);
        self.live -= 1;
        entry.keeps = RememberedParts::Nothing;
        entry.spans = Box::default();
        self.drop_first();
    }

    /// Compacts the memory, once enough bytes between results were forgotten.
    fn compact(&mut self) -> PositionChange {
        let old = std::mem::take(&mut self.entries);
        let (mut shadow, mut was) = (VecDeque::new(), Vec::with_capacity(old.len()));
        for entry in old {
            let (start, spans) = (shadow.len() as u32, entry.spans.clone());
            let first = (entry.start - self.shadow_start) as usize;
            let mut keep = |from: u32, to: u32| {
                shadow.extend(self.shadow.range(first + from as usize..first + to as usize));
            };
            match entry.keeps {
                RememberedParts::Nothing => {}
                RememberedParts::All => keep(0, entry.end - entry.start),
                RememberedParts::Secrets => ranges(&spans).for_each(|(from, to)| keep(from, to)),
            }
            let Entry { start: before, keeps, .. } = entry;
            let now = (keeps != RememberedParts::Nothing).then_some(start);
            was.push(MovedResult { start: before, keeps, spans, now });
            self.entries.extend(now.map(|start| packed_entry(entry, start)));
        }
        self.shadow = shadow;
        self.shadow_start = 0;
        self.room.waste = 0;
        PositionChange::Together(was)
    }
}

/// The position after everything but its secrets is evicted.
fn packed_entry(mut entry: Entry, start: u32) -> Entry {
    let mut length = entry.end - entry.start;
    if entry.keeps == RememberedParts::Secrets {
        length = ranges(&entry.spans).map(|(from, to)| to - from).sum();
        let spans = entry.spans.clone();
        for span in &mut entry.spans {
            let end = position_in_secrets(&spans, span.end - 1).map_or(span.end, |at| at + 1);
            span.start = position_in_secrets(&spans, span.start).unwrap_or(span.start);
            span.end = end;
        }
    }
    (entry.start, entry.end) = (start, start + length);
    entry
}

#[cfg(test)]
#[path = "tests/eviction.rs"]
mod tests;
