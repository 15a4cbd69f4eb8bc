//! Prose in pieces: how much of each text has been sent in pieces, over all calls to all servers outside, in any order. A
//! piece may be cut in the middle of a word and have other text around it.
//!
//! Of the prose of a private result every fifth short gram is kept. A call that has one of them has the symbols around it
//! as well, as far as both texts agree: only the symbols right at a cut are lost.
//!
//! Numbers: 96 symbols (a sentence) and a quarter of the prose are the text (decision 501); texts of 16 KiB, since a longer
//! one needs so many pieces that the labels decide; 512 results and 8,192 pieces of one text bound its memory. Cost: one
//! tag for five symbols of prose, one lookup for each symbol of a call. Alone it finds 12 of 207 attempts. It misses single
//! words in another order, and text in other words.

use std::collections::BTreeMap;
use std::ops::Range;

use super::blocks::Grams;
use super::decoded_views::DecodedViews;
use super::detector::Detector;
use super::findings::{NEAR, Search, characters};
use super::hash::{self, Hasher, SHORT};
use super::hits::{Hits, Piece, Text};
use super::leaves::Role;
use super::marker;
use super::memory::TaintMemory;
use super::origin::OriginId;
use super::placed::Placed;
use super::position_change::PositionChange;
use super::print::{PROSE, Print};
use super::ranges::Ranges;
use super::search_targets::SearchTargets;
use crate::Severity;

/// So many symbols of one result, together with this percentage of its prose, are a finding.
const MIN_COPIED_SYMBOLS: u32 = 96;
const MIN_COPIED_PERCENT: u32 = 25;
/// Distance between kept grams: a piece that is `STEP - 1` symbols longer than a short gram contains one.
const STEP: usize = 5;
/// Longest text that is followed, in bytes.
const MAX_TEXT: usize = 16 << 10;
/// Results for which it is counted, and different pieces of one text that are.
const MAX_RESULTS: usize = 512;
const MAX_PIECES: usize = 8192;
/// Whether a text of a result is followed: with a heading or a list in it, it is prose anyway.
pub(super) fn is_followed(text: &str) -> bool {
    text.len() <= MAX_TEXT && marker::is_prose(text.trim_start_matches(['#', '-', '*', ' ', '\n']))
}

/// The kept tags of prose at these positions of a result, without n-grams that `shadow` excludes.
pub(super) fn kept_tags(
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
                tags.push((hash::tag(gram), place as u32));
            }
        });
    }
    tags
}

/// The parts of each result that have been sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    prose: SearchTargets,
    covered: BTreeMap<OriginId, Ranges>,
    /// The ranges before the last call that added something.
    before: BTreeMap<OriginId, Ranges>,
    /// The positions that the last call added, with their kept n-grams.
    last: Vec<(OriginId, Range<u32>)>,
    tags: Vec<u32>,
}

impl Detector for Pieces {
    type SentParts = Vec<u32>;

    fn remember(&mut self, placed: &Placed<'_>, print: &Print) {
        self.carry(placed, &print.tags[PROSE]);
        placed.insert(&mut self.prose.index, &print.tags[PROSE]);
    }

    fn apply_move(&mut self, moved: &PositionChange) {
        moved.apply(&mut self.prose.index, true);
    }

    fn size(&self) -> usize {
        self.prose.index.size()
    }

    fn begin(&mut self) {
        // The oldest results, and only for calls that were sent.
        while self.covered.len() > MAX_RESULTS {
            self.covered.pop_first();
        }
        self.before.clear();
        self.last.clear();
        self.tags.clear();
    }

    #[inline]
    fn add_grams(&mut self, grams: &Grams<'_>) {
        if !self.prose.index.is_empty() {
            self.prose.add_candidates(grams.at, grams.own_grams().iter().map(|gram| hash::tag(*gram)));
        }
    }

    /// Each is followed as far as the next kept gram, which is found by itself: no text costs more than its symbols.
    fn find_hits(&mut self, text: &Text<'_>, hits: &mut Hits) {
        let mut known = BTreeMap::<u32, usize>::new();
        self.prose.visit_found(text.memory.floor(), |at, tag, place| {
            let Some((origin, entry)) = text.memory.entry_at(place) else { return };
            if !(text.leaving)(&entry.origin) {
                return;
            }
            let Some((start, end)) = text.extend(at, place, entry, STEP) else { return };
            let first = place - entry.start - (at - start) as u32;
            match hits.of_pieces.last_mut().filter(|last| start <= last.end) {
                Some(last) => *last = last.start.min(start)..last.end.max(end),
                None => hits.of_pieces.push(start..end),
            }
            let found = first..first + (end - start) as u32;
            match known.get(&place).copied() {
                // Around the same gram.
                Some(index) => {
                    if let Some(Piece { place, .. }) = hits.pieces.get_mut(index) {
                        *place = place.start.min(found.start)..place.end.max(found.end);
                    }
                }
                None if hits.pieces.len() >= MAX_PIECES => hits.has_more_pieces = true,
                None => {
                    known.insert(place, hits.pieces.len());
                    hits.pieces.push(Piece { origin, place: found, tag });
                }
            }
        });
    }

    /// Results of which too much has arrived with what the call brings.
    fn judge(&mut self, memory: &TaintMemory, _: &DecodedViews, search: &mut Search<'_, '_>) {
        let leaf = search.call.items.iter().position(|leaf| leaf.role == Role::Text).unwrap_or(0);
        for id in self.before.keys() {
            let Some((entry, covered)) = memory.entry(*id).zip(self.covered.get(id)) else { continue };
            let (count, prose) = (covered.len(), entry.kept_of_prose * STEP as u32);
            if count >= MIN_COPIED_SYMBOLS && count * 100 >= prose * MIN_COPIED_PERCENT {
                let shown = format!("[{count} characters in pieces over all calls]");
                let provenance = search.provenance(*id, &entry.origin);
                let amount = format!("{} in pieces, with those of earlier calls,", characters(count));
                search.push(NEAR, "near-copy", Severity::Medium, leaf, shown, provenance, Vec::new(), amount);
            }
        }
    }

    fn forget(&mut self) {
        for (origin, before) in std::mem::take(&mut self.before) {
            if before.len() == 0 {
                self.covered.remove(&origin);
            } else {
                self.covered.insert(origin, before);
            }
        }
        self.begin();
    }

    fn export(&self) -> Vec<u32> {
        self.tags.clone()
    }

    fn import(&mut self, memory: &TaintMemory, brought: Vec<u32>) {
        self.restore(memory, &brought, OriginId(0));
    }

    fn adopt(&mut self, copy: Self, memory: &TaintMemory, new: OriginId) {
        self.begin();
        for (origin, place) in copy.last {
            self.mark_covered(origin, place);
        }
        self.restore(memory, &copy.tags, new);
        self.tags = copy.tags;
    }
}

impl Pieces {
    /// Counts what one text of a call brought.
    pub fn add(&mut self, hits: &Hits) {
        for Piece { origin, place, tag } in &hits.pieces {
            if self.mark_covered(*origin, place.clone()) {
                self.tags.push(*tag);
            }
        }
    }

    /// False: it was covered.
    fn mark_covered(&mut self, origin: OriginId, place: Range<u32>) -> bool {
        let covered = self.covered.entry(origin).or_default();
        if covered.has(&place) {
            return false;
        }
        self.before.entry(origin).or_insert_with(|| covered.clone());
        covered.add(place.clone());
        self.last.push((origin, place));
        true
    }

    /// Notes these grams as sent, of results from `first` on.
    fn restore(&mut self, memory: &TaintMemory, tags: &[u32], first: OriginId) {
        let index = &self.prose.index;
        let mut places = Vec::new();
        for tag in tags.iter().filter(|tag| index.may_have(**tag)) {
            index.find(*tag, memory.floor(), |place| {
                let found = memory.entry_at(place).filter(|(origin, _)| *origin >= first);
                places.extend(found.map(|(origin, entry)| (origin, place - entry.start)));
            });
        }
        for (origin, at) in places {
            self.mark_covered(origin, at..at + SHORT as u32);
        }
    }

    /// If a new result repeats another one, what has arrived of that one counts for the new one: its n-grams replace the
    /// others.
    fn carry(&mut self, placed: &Placed<'_>, tags: &[(u32, u32)]) {
        if self.covered.is_empty() {
            return;
        }
        let (memory, index, start) = (placed.memory, &self.prose.index, placed.start);
        let (floor, end) = (memory.floor(), memory.end());
        let mut carried = Ranges::default();
        for (tag, at) in tags.iter().filter(|(tag, _)| index.may_have(*tag)) {
            let new = start + at;
            index.find(*tag, floor, |old| {
                let Some((from, entry)) = memory.entry_at(old) else { return };
                let place = old - entry.start;
                let gram = place..place + SHORT as u32;
                let around = self.covered.get(&from).and_then(|covered| covered.containing_range(&gram));
                let same = |old: u32, new: u32| memory.shadow(old) == memory.shadow(new);
                let Some(around) = around.filter(|_| same(old, new)) else { return };
                // As far as both agree; text further away has n-grams of its own.
                let most = STEP as u32;
                let before = (1..=most.min(place - around.start).min(*at))
                    .take_while(|by| same(old - by, new - by))
                    .count() as u32;
                let room = (around.end - gram.end).min(end.saturating_sub(new + SHORT as u32));
                let after = (1..=most.min(room)).take_while(|by| same(old + by, new + by)).count() as u32;
                carried.add(at - before..at + SHORT as u32 + after);
            });
        }
        if carried.len() > 0 {
            self.covered.insert(placed.id, carried);
        }
    }
}

#[cfg(test)]
#[path = "tests/pieces.rs"]
mod tests;
