//! Which results to evict: first those of the server that needs the room, then those of public servers; a private
//! server keeps its share. The secrets of a private result are kept longer than its text.

use std::collections::{BTreeMap, VecDeque};

use super::entry::{Entry, RememberedParts};
use super::origin::{Origin, OriginId};
use crate::types::ServerId;

/// The divisor of a server's share that the secrets of its evicted results may use.
const SECRETS: usize = 4;

/// The results of one server.
#[derive(Clone, Debug, Default)]
struct ServerResults {
    private: bool,
    /// Bytes.
    used: usize,
    used_by_secrets: usize,
    /// Oldest first: whole results, and results of which only the secrets are left.
    whole: VecDeque<OriginId>,
    secrets: VecDeque<OriginId>,
}

/// The memory used by each server.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    shelves: BTreeMap<ServerId, ServerResults>,
    pub used: usize,
    /// Bytes of forgotten results between others.
    pub waste: usize,
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

    /// A result is forgotten; one between others leaves a gap.
    pub fn remove(&mut self, entry: &Entry, is_first: bool) {
        let size = entry.size;
        self.used -= size;
        self.waste += if is_first { 0 } else { size };
        if let Some(shelf) = self.shelves.get_mut(&entry.origin.server) {
            shelf.used -= size;
            if entry.keeps == RememberedParts::Secrets {
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

    /// Only the secrets of a result that took `before` bytes are left.
    pub fn shrink(&mut self, entry: &Entry, before: usize) {
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

    fn memory_share(&self, memory: usize) -> usize {
        memory / self.shelves.len().max(1)
    }

    /// The next result to evict so that one of `origin` with `needed` bytes fits.
    pub fn next(&self, origin: &Origin, needed: usize, memory: usize) -> Option<OriginId> {
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
        // Below its share, a server may take room from others; a public one only from other public ones.
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
    pub fn oldest_secret(&self, server: &ServerId, memory: usize) -> Option<OriginId> {
        let shelf = self.shelves.get(server)?;
        let is_full = shelf.used_by_secrets > self.memory_share(memory) / SECRETS;
        shelf.secrets.front().copied().filter(|_| is_full)
    }
}
