//! Whose results go when the memory is full: first those of the server that needs the room, then those of public servers,
//! and of a private one nothing below its share. Of a private result the secrets stay when its text goes.

use std::collections::{BTreeMap, VecDeque};

use super::memory::{Entry, Evicted, Keeps, Origin, OriginId, TaintMemory, size_of_secrets};
use super::print::Span;
use crate::types::ServerId;

/// Of the memory, what forgotten results between others may take until their room is used again.
const MAX_WASTE: usize = 2;
/// Of the share of a server, what the secrets of its results may take after their texts went.
const SECRETS: usize = 4;

/// The results of one server.
#[derive(Clone, Debug, Default)]
struct Shelf {
    private: bool,
    /// Bytes.
    used: usize,
    used_by_secrets: usize,
    /// Oldest first: those that are whole, and those of which the secrets are left.
    whole: VecDeque<OriginId>,
    secrets: VecDeque<OriginId>,
}

/// What each server takes of the memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    shelves: BTreeMap<ServerId, Shelf>,
    pub used: usize,
    /// Bytes of forgotten results that stand between others.
    waste: usize,
}

impl Room {
    pub fn add(&mut self, id: OriginId, entry: &Entry) {
        let size = entry.size;
        self.used += size;
        let shelf = self.shelves.entry(entry.origin.server.clone()).or_default();
        shelf.private |= entry.origin.private;
        shelf.used += size;
        shelf.whole.push_back(id);
    }

    /// A result is forgotten; one that stands between others leaves its room behind.
    pub fn remove(&mut self, entry: &Entry, is_first: bool) {
        let size = entry.size;
        self.used -= size;
        self.waste += if is_first { 0 } else { size };
        if let Some(shelf) = self.shelves.get_mut(&entry.origin.server) {
            shelf.used -= size;
            if entry.keeps == Keeps::Secrets {
                shelf.used_by_secrets -= size;
                shelf.secrets.retain(|id| *id != entry.id);
            } else if shelf.whole.front() == Some(&entry.id) {
                shelf.whole.pop_front();
            } else {
                shelf.whole.retain(|id| *id != entry.id);
            }
            if shelf.whole.is_empty() && shelf.secrets.is_empty() {
                self.shelves.remove(&entry.origin.server);
            }
        }
    }

    /// Of a result that took `before` bytes only the secrets are left.
    fn shrink(&mut self, entry: &Entry, before: usize) {
        let size = entry.size;
        self.used -= before - size;
        self.waste += before - size;
        if let Some(shelf) = self.shelves.get_mut(&entry.origin.server) {
            shelf.used -= before - size;
            shelf.used_by_secrets += size;
            shelf.whole.retain(|id| *id != entry.id);
            shelf.secrets.push_back(entry.id);
        }
    }

    fn share(&self, memory: usize) -> usize {
        memory / self.shelves.len().max(1)
    }

    /// Which result goes next so that one of `origin` with `needed` bytes has room.
    fn next(&self, origin: &Origin, needed: usize, memory: usize) -> Option<OriginId> {
        let own = self.shelves.get(&origin.server);
        let is_new = usize::from(own.is_none());
        let share = memory / (self.shelves.len() + is_new).max(1);
        let others =
            || self.shelves.iter().filter(|(server, _)| **server != origin.server).map(|(_, shelf)| shelf);
        let largest = |private: bool| {
            let of_kind = others().filter(|shelf| shelf.private == private && !shelf.whole.is_empty());
            of_kind.max_by_key(|shelf| shelf.used)
        };
        let own_used = own.map_or(0, |own| own.used);
        let own_oldest = own.and_then(|own| own.whole.front().copied());
        // Below its share it may ask others for theirs, a public one only other public ones.
        let may_ask = own_used + needed <= share;
        if may_ask && let Some(public) = largest(false) {
            return public.whole.front().copied();
        }
        if may_ask
            && origin.private
            && let Some(other) = largest(true).filter(|other| other.used > share)
        {
            return other.whole.front().copied();
        }
        own_oldest
    }

    /// Secrets of a server that have to go: they are more than their part of its share.
    fn oldest_secret(&self, server: &ServerId, memory: usize) -> Option<OriginId> {
        let shelf = self.shelves.get(server)?;
        let is_full = shelf.used_by_secrets > self.share(memory) / SECRETS;
        shelf.secrets.front().copied().filter(|_| is_full)
    }
}

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

/// Spans that overlap as one range; they are in order.
fn ranges(spans: &[Span]) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = spans.iter().peekable();
    std::iter::from_fn(move || {
        let first = rest.next()?;
        let (from, mut to) = (first.start, first.end);
        while let Some(next) = rest.next_if(|next| next.start <= to) {
            to = to.max(next.end);
        }
        Some((from, to))
    })
}

/// The place of a symbol among those of the secrets. None: it is in none.
fn packed(spans: &[Span], at: u32) -> Option<u32> {
    let mut before = 0;
    for (from, to) in ranges(spans) {
        if at < from {
            return None;
        }
        if at < to {
            return Some(before + (at - from));
        }
        before += to - from;
    }
    None
}

/// Symbols of the secrets of a result.
pub(super) fn symbols_of(spans: &[Span]) -> usize {
    ranges(spans).map(|(from, to)| (to - from) as usize).sum()
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
