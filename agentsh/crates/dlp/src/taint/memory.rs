//! Results as keyed hashes, bounded. `room` chooses what to evict.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::entry::{Entry, RememberedParts, Span, entry_size, live_size};
use super::hash::{self, Hasher};
use super::known_text::Known;
use super::origin::{Origin, OriginId};
use super::position_change::PositionChange;
use super::print::{PROSE, Print};
use super::room::Room;
use super::sources::Sources;
use crate::types::ServerId;
use agentsh_secrets::values::Kind;

/// Positions are 32 bits wide; beyond this they are counted from a new start.
const REBASE: u32 = 1 << 31;

#[derive(Clone, Debug)]
pub struct Config {
    /// How long a result is remembered: 60 to 86,400 s, default 3600.
    pub lifetime: Duration,
    /// Bytes for everything remembered, default 12 MiB.
    pub memory: usize,
    /// Whether [`Stored::record`] is made.
    pub record: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { lifetime: Duration::from_secs(3600), memory: 12 << 20, record: false }
    }
}

impl Config {
    /// The same, with the lifetime clamped to its limits.
    #[must_use]
    pub fn clamped(self) -> Self {
        let lifetime = self.lifetime.clamp(Duration::from_secs(60), Duration::from_secs(86_400));
        Self { lifetime, memory: self.memory.max(1 << 20), ..self }
    }
}

/// Results that were evicted before they expired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    pub results: u64,
    /// The number of evicted results whose secrets are kept.
    pub kept: u64,
    /// The number of results evicted earlier whose secrets are evicted now.
    pub secrets: u64,
    pub by_server: BTreeMap<ServerId, u64>,
    /// Symbols of text.
    pub symbols: u64,
}

/// The outcome of remembering one result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub id: OriginId,
    pub evicted: Option<Evicted>,
    /// It was remembered already.
    pub repeated: bool,
    /// The result was longer than what one result may take.
    pub truncated: bool,
    /// The result as [`super::persist`] writes it.
    pub record: Option<Vec<u8>>,
}

/// The outcome of inserting a result into the memory.
#[derive(Debug)]
pub(super) struct Inserted {
    pub id: OriginId,
    pub evicted: Option<Evicted>,
    /// How others have to update their positions before they store those of this result.
    pub moved: Vec<PositionChange>,
}

#[derive(Clone, Debug)]
pub struct TaintMemory {
    pub(super) config: Config,
    pub(super) hasher: Hasher,
    pub(super) mac_key: [u8; 32],
    pub(super) entries: VecDeque<Entry>,
    pub(super) sources: Sources,
    next_id: u64,
    /// Results that are remembered, if only for their secrets.
    pub(super) live: usize,
    pub(super) room: Room,
    /// One byte for each short n-gram, at the position of its first symbol.
    pub(super) shadow: VecDeque<u8>,
    pub(super) shadow_start: u32,
    pub(super) known: Known,
}

impl TaintMemory {
    #[must_use]
    pub fn new(config: Config, key: &[u8; 32]) -> Self {
        Self {
            config: config.clamped(),
            hasher: Hasher::new(key),
            mac_key: hash::derive(key, b"taint record"),
            entries: VecDeque::new(),
            sources: Sources::default(),
            next_id: 1,
            live: 0,
            room: Room::default(),
            shadow: VecDeque::new(),
            shadow_start: 0,
            known: Known::default(),
        }
    }

    /// Results that are remembered now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Bytes that results take, without the indices of detectors.
    pub(super) fn size(&self) -> usize {
        self.shadow.capacity() + self.entries.iter().map(entry_size).sum::<usize>()
    }

    #[must_use]
    pub fn origin(&self, id: OriginId) -> Option<&Origin> {
        self.entry(id).map(|entry| &entry.origin)
    }

    /// The id that a result will have after this many others.
    #[must_use]
    pub fn next_id(&self, others: usize) -> OriginId {
        OriginId(self.next_id + others as u64)
    }

    pub(super) fn is_forgotten(&self, id: OriginId) -> bool {
        id.0 < self.next_id && self.entry(id).is_none()
    }

    /// Everything that is remembered, oldest first.
    pub fn origins(&self) -> impl Iterator<Item = (OriginId, &Origin)> {
        let live = self.entries.iter().filter(|entry| entry.keeps != RememberedParts::Nothing);
        live.map(|entry| (entry.id, &entry.origin))
    }

    /// A result has its time once more: it came again.
    pub(super) fn extend_lifetime(&mut self, id: OriginId, until: Duration) {
        if let Some(entry) = self.index_of(id).and_then(|at| self.entries.get_mut(at)) {
            entry.until = entry.until.max(until);
        }
    }

    /// Forgets what is older than its lifetime.
    pub fn expire(&mut self, now: Duration) {
        while let Some(entry) = self.entries.front().filter(|entry| entry.until <= now) {
            self.forget(entry.id);
        }
    }

    pub(super) fn entry(&self, id: OriginId) -> Option<&Entry> {
        self.entries.get(self.index_of(id)?).filter(|entry| entry.keeps != RememberedParts::Nothing)
    }

    pub(super) fn index_of(&self, id: OriginId) -> Option<usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok()
    }

    /// The result that a position belongs to.
    pub(super) fn entry_at(&self, position: u32) -> Option<(OriginId, &Entry)> {
        let after = self.entries.partition_point(|entry| entry.start <= position);
        let at = after.checked_sub(1)?;
        let entry = self.entries.get(at).filter(|entry| entry.keeps != RememberedParts::Nothing)?;
        (position < entry.end).then_some((entry.id, entry))
    }

    /// The kept byte of the short gram that begins at `position`.
    pub(super) fn shadow(&self, position: u32) -> Option<u8> {
        self.shadow.get(position.checked_sub(self.shadow_start)? as usize).copied()
    }

    /// The offset at which the next result begins.
    pub(super) fn end(&self) -> u32 {
        self.shadow_start + self.shadow.len() as u32
    }

    pub(super) fn floor(&self) -> u32 {
        self.entries.front().map_or(u32::MAX, |entry| entry.start)
    }

    /// Remembers a result until its time is over, and makes room for it.
    pub(super) fn insert(&mut self, origin: Origin, print: &Print, until: Duration) -> Inserted {
        self.expire(origin.time);
        let (evicted, moved) = self.make_room(&origin, print_size(print));
        let mut moved: Vec<PositionChange> = moved.into_iter().collect();
        if self.shadow_start > REBASE {
            moved.push(self.rebase());
        }
        let start = self.end();
        self.shadow.reserve_exact(if self.shadow.capacity() - self.shadow.len() < print.shadow.len() {
            print.shadow.len() + self.shadow.len() / 4
        } else {
            0
        });
        self.shadow.extend(print.shadow.iter().copied());
        let kind = |code: u8| Kind::from_code(code).unwrap_or(Kind::HighEntropy);
        let id = self.next_id(0);
        let mut entry = Entry {
            id,
            keeps: RememberedParts::All,
            origin,
            until,
            start,
            // A result without a symbol still is a result.
            end: self.end(),
            spans: print
                .spans
                .iter()
                .map(|&(start, end, code)| Span { start, end, kind: kind(code) })
                .collect(),
            kept_of_prose: print.tags[PROSE].len() as u32,
            tags: print.tags.iter().map(Vec::len).sum::<usize>() as u32,
            size: 0,
        };
        entry.size = live_size(&entry);
        self.room.add(id, &entry);
        self.next_id += 1;
        self.live += 1;
        self.sources.add(&entry.origin);
        self.entries.push_back(entry);
        Inserted { id, evicted, moved }
    }

    /// Gives back the room of what is forgotten at the old end.
    pub(super) fn drop_first(&mut self) {
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.keeps == RememberedParts::Nothing) {
            let gone = (entry.end - entry.start) as usize;
            self.shadow.drain(..gone.min(self.shadow.len()));
            self.shadow_start += gone as u32;
        }
    }

    fn rebase(&mut self) -> PositionChange {
        let by = std::mem::take(&mut self.shadow_start);
        for entry in &mut self.entries {
            entry.start -= by;
            entry.end -= by;
        }
        PositionChange::Down(by)
    }
}

fn print_size(print: &Print) -> usize {
    size_of::<Entry>() + 128 + print.shadow.len() + print.tags.iter().map(Vec::len).sum::<usize>() * 15
}
