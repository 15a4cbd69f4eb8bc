//! Makes room when the memory is full, and gives back what is forgotten.

use std::collections::VecDeque;

use super::entry::{Entry, Keeps, packed, ranges, size_of_secrets};
use super::memory::{Evicted, TaintMemory};
use super::origin::{Origin, OriginId};

/// Of the memory, what forgotten results between others may take until their room is used again.
const MAX_WASTE: usize = 2;

impl TaintMemory {
    /// Forgets until `needed` bytes of `origin` have room, or nothing more may go for them.
    pub(super) fn make_room(&mut self, origin: &Origin, needed: usize) -> Option<Evicted> {
        let mut evicted = Evicted::default();
        while self.room.used + needed > self.config.memory
            && let Some(id) = self.room.next(origin, needed, self.config.memory)
            && let Some(at) = self.place(id)
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
                entry.keeps = Keeps::Secrets;
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
        if self.room.waste > self.config.memory / MAX_WASTE {
            self.compact();
        }
        (evicted.results > 0).then_some(evicted)
    }

    /// Forgets one result, wherever it stands.
    pub(super) fn forget(&mut self, id: OriginId) {
        let Some(at) = self.place(id) else { return };
        let entry = &mut self.entries[at];
        if entry.keeps == Keeps::Nothing {
            return;
        }
        self.room.remove(entry, at == 0);
        self.sources.remove(&entry.origin);
        self.live -= 1;
        entry.keeps = Keeps::Nothing;
        entry.spans = Box::default();
        self.drop_first();
    }

    /// Moves together what is still remembered: once for so many bytes that were forgotten between others.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.entries);
        let mut shadow = VecDeque::new();
        let mut moved: Vec<Option<u32>> = Vec::with_capacity(old.len());
        for entry in &old {
            let start = shadow.len() as u32;
            let first = (entry.start - self.shadow_start) as usize;
            match entry.keeps {
                Keeps::Nothing => {
                    moved.push(None);
                    continue;
                }
                Keeps::All => {
                    shadow.extend(self.shadow.range(first..first + (entry.end - entry.start) as usize));
                }
                Keeps::Secrets => {
                    for range in ranges(&entry.spans) {
                        shadow.extend(self.shadow.range(first + range.0 as usize..first + range.1 as usize));
                    }
                }
            }
            moved.push(Some(start));
        }
        let place = |at: u32, is_text: bool| {
            let index = old.partition_point(|entry| entry.start <= at).checked_sub(1)?;
            let (entry, start) = (old.get(index)?, (*moved.get(index)?)?);
            match entry.keeps {
                Keeps::All => Some(start + (at - entry.start)),
                Keeps::Secrets if is_text => None,
                _ => packed(&entry.spans, at - entry.start).map(|at| start + at),
            }
        };
        let letter = |at: u32, is_text: bool| {
            let index = old.partition_point(|entry| entry.letters_start <= at).checked_sub(1)?;
            let keeps = old.get(index)?.keeps;
            (keeps == Keeps::All || keeps == Keeps::Secrets && !is_text).then_some(at)
        };
        for (index, is_text) in [
            (&mut self.long, true),
            (&mut self.prose, true),
            (&mut self.short, false),
            (&mut self.values, false),
        ] {
            index.remap(|at| place(at, is_text));
        }
        self.steps.remap(|at| letter(at, true));
        self.secret_steps.remap(|at| letter(at, false));
        self.entries = old
            .into_iter()
            .zip(moved)
            .filter_map(|(entry, start)| start.map(|start| packed_entry(entry, start)))
            .collect();
        self.shadow = shadow;
        self.shadow_start = 0;
        self.room.waste = 0;
    }
}

/// Where it stands after everything but its secrets is gone.
fn packed_entry(mut entry: Entry, start: u32) -> Entry {
    let mut length = entry.end - entry.start;
    if entry.keeps == Keeps::Secrets {
        length = ranges(&entry.spans).map(|(from, to)| to - from).sum();
        let spans = entry.spans.clone();
        for span in &mut entry.spans {
            let end = packed(&spans, span.end - 1).map_or(span.end, |at| at + 1);
            span.start = packed(&spans, span.start).unwrap_or(span.start);
            span.end = end;
        }
    }
    (entry.start, entry.end) = (start, start + length);
    entry
}

#[cfg(test)]
#[path = "tests/eviction.rs"]
mod tests;
