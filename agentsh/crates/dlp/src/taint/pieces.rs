//! How much of each text has arrived in pieces that are cut anywhere, in the middle of a word too, over all calls to all
//! servers that leave, in any order and with whatever around them.
//!
//! Of the prose of a private result every fifth short gram is kept. A call that has one of them has the symbols around it
//! as well, as far as both texts agree: where a piece was cut costs nothing but the place of the cut.

use std::collections::BTreeMap;
use std::ops::Range;

use super::findings::{NEAR, Search};
use super::hash::{self, Hasher, SHORT};
use super::judge::{Judge, Severity};
use super::leaves::Role;
use super::marker;
use super::memory::{OriginId, TaintMemory};
use super::ranges::Ranges;

/// From each kept gram to the next: a piece of so many symbols more than a short gram, less one, has one of them.
pub(super) const STEP: usize = 5;
/// Longest text that is followed, in bytes: a longer one goes in so many pieces that the labels decide.
const MAX_TEXT: usize = 16 << 10;
/// So many symbols of one result, and so many of a hundred of its prose, are the result.
const MANY: u32 = 96;
const SHARE: u32 = 25;
/// Results for which it is counted, and different pieces of one text that are.
const MAX_RESULTS: usize = 512;
pub(super) const MAX_PIECES: usize = 8192;
/// Tells these tags from those of pairs of words, which stand beside them in older records and have not got it.
const OF_PIECE: u32 = 0x100;

/// The tag of one short gram.
#[inline]
pub(super) fn tag(gram: u64) -> u32 {
    hash::tag(gram) | OF_PIECE
}

pub(super) fn is_piece(tag: u32) -> bool {
    tag & OF_PIECE != 0
}

/// Whether a text of a result is followed: with a heading or a list in it, it is prose all the same.
pub(super) fn is_followed(text: &str) -> bool {
    text.len() <= MAX_TEXT && marker::is_prose(text.trim_start_matches(['#', '-', '*', ' ', '\n']))
}

/// The tags that are kept of prose that stands at these places of a result; none of what its `shadow` says counts nowhere.
pub(super) fn kept(
    hasher: &Hasher,
    symbols: &[u8],
    shadow: &[u8],
    prose: &[Range<usize>],
) -> Vec<(u32, u32)> {
    let mut tags = Vec::new();
    for range in prose {
        hasher.each_short_gram(&symbols[range.clone()], |at, gram| {
            let place = range.start + at;
            if at.is_multiple_of(STEP) && shadow.get(place) == Some(&hash::shadow(gram)) {
                tags.push((tag(gram), place as u32));
            }
        });
    }
    tags
}

/// A part of a result in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub origin: OriginId,
    /// In symbols of the result.
    pub place: Range<u32>,
    pub tag: u32,
}

/// What has arrived of each result.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    covered: BTreeMap<OriginId, Ranges>,
    /// What of those was covered before the last call to which it brought something.
    before: BTreeMap<OriginId, Ranges>,
    /// What the last call brought.
    last: Vec<(OriginId, Range<u32>)>,
    tags: Vec<u32>,
}

impl Pieces {
    /// Before the next call.
    pub fn begin(&mut self) {
        // The oldest results, and only for calls that were sent.
        while self.covered.len() > MAX_RESULTS {
            self.covered.pop_first();
        }
        self.before.clear();
        self.last.clear();
        self.tags.clear();
    }

    pub fn add(&mut self, piece: &Piece) {
        if self.cover(piece.origin, piece.place.clone()) {
            self.tags.push(piece.tag);
        }
    }

    /// False: it was covered.
    fn cover(&mut self, origin: OriginId, place: Range<u32>) -> bool {
        let covered = self.covered.entry(origin).or_default();
        if covered.has(&place) {
            return false;
        }
        self.before.entry(origin).or_insert_with(|| covered.clone());
        covered.add(place.clone());
        self.last.push((origin, place));
        true
    }

    /// Takes back what [`Pieces::last`] said.
    fn restore(&mut self, origin: OriginId, at: u32) {
        self.cover(origin, at..at + SHORT as u32);
    }

    /// The last call was not sent.
    pub fn take_back(&mut self) {
        for (origin, before) in std::mem::take(&mut self.before) {
            if before.len() == 0 {
                self.covered.remove(&origin);
            } else {
                self.covered.insert(origin, before);
            }
        }
        self.begin();
    }

    /// Takes in what a copy counted of the one call that it judged.
    pub fn adopt(&mut self, copy: Self) {
        self.begin();
        for (origin, place) in copy.last {
            self.cover(origin, place);
        }
        self.tags = copy.tags;
    }

    /// The kept grams that the last call sent for the first time.
    pub fn last(&self) -> &[u32] {
        &self.tags
    }

    /// Of which results the last call brought something, and how many symbols of each have arrived.
    fn grown(&self) -> impl Iterator<Item = (OriginId, u32)> {
        self.before.keys().filter_map(|origin| Some((*origin, self.covered.get(origin)?.len())))
    }
}

impl TaintMemory {
    /// What has arrived of other results has arrived of a new one where it says the same: its grams take the place of theirs.
    pub(super) fn carry(&mut self, to: OriginId, start: u32, tags: &[(u32, u32)]) {
        if self.pieces.covered.is_empty() {
            return;
        }
        let (floor, end) = (self.floor(), self.shadow_start + self.shadow.len() as u32);
        let mut carried = Ranges::default();
        for (tag, at) in tags.iter().filter(|(tag, _)| self.prose.may_have(*tag)) {
            let new = start + at;
            self.prose.find(*tag, floor, |old| {
                let Some((from, entry)) = self.entry_at(old) else { return };
                let place = old - entry.start;
                let gram = place..place + SHORT as u32;
                let around = self.pieces.covered.get(&from).and_then(|covered| covered.around(&gram));
                let Some(around) = around.filter(|_| self.shadow(old) == self.shadow(new)) else { return };
                // As far as both agree; what stands further away has grams of its own.
                let most = STEP as u32;
                let before = (1..=most.min(place - around.start).min(*at))
                    .take_while(|by| self.shadow(old - by) == self.shadow(new - by))
                    .count() as u32;
                let room = (around.end - gram.end).min(end.saturating_sub(new + SHORT as u32));
                let after = (1..=most.min(room))
                    .take_while(|by| self.shadow(old + by) == self.shadow(new + by))
                    .count() as u32;
                carried.add(at - before..at + SHORT as u32 + after);
            });
        }
        if carried.len() > 0 {
            self.pieces.covered.insert(to, carried);
        }
    }

    /// Takes in what a copy counted of the one call that it judged, of what was read meanwhile as well.
    pub(super) fn adopt_pieces(&mut self, copy: Self) {
        let first_new = copy.next_id(0);
        self.pieces.adopt(copy.pieces);
        if self.next_id(0) > first_new {
            let tags = self.pieces.tags.clone();
            self.restore_pieces(&tags, first_new);
        }
    }

    /// Notes these grams as sent, of results from `first` on.
    pub(super) fn restore_pieces(&mut self, tags: &[u32], first: OriginId) {
        let mut places = Vec::new();
        for tag in tags.iter().filter(|tag| self.prose.may_have(**tag)) {
            self.prose.find(*tag, self.floor(), |place| {
                let found = self.entry_at(place).filter(|(origin, _)| *origin >= first);
                places.extend(found.map(|(origin, entry)| (origin, place - entry.start)));
            });
        }
        places.into_iter().for_each(|(origin, at)| self.pieces.restore(origin, at));
    }
}

impl Judge {
    /// Results of which too much has arrived with what the call brings.
    pub(super) fn arrived(&self, search: &mut Search<'_, '_>) {
        let leaf = search.call.items.iter().position(|leaf| leaf.role == Role::Text).unwrap_or(0);
        for (id, count) in self.memory.pieces.grown() {
            let Some(entry) = self.memory.entry(id) else { continue };
            let prose = entry.kept_of_prose * STEP as u32;
            if count >= MANY && count * 100 >= prose * SHARE {
                let shown = format!("[{count} characters in pieces over all calls]");
                let provenance = search.provenance(id, &entry.origin);
                search.push(NEAR, "near-copy", Severity::Medium, leaf, shown, provenance, Vec::new(), false);
            }
        }
    }
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
