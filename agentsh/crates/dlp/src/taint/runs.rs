//! Exact runs: a passage of a result that a call contains; case, spaces, signs and look-alike letters do not matter.
//!
//! Numbers: a run has 30 letters and digits, since everyday phrases have fewer and one tag is kept for ten of them, of
//! which two make one that is compared (`hash`). Cost: one tag for ten symbols of a result, one lookup for each symbol of
//! a call. Alone it finds 2 of 207 attempts; refusals of passages come from it. It misses shorter phrases and other words.

use super::blocks::{BLOCK, Grams};
use super::detector::Detector;
use super::hash::{self, LONG, SHORT};
use super::hits::{Hit, HitKind, Hits, Text};
use super::placed::Placed;
use super::position_change::PositionChange;
use super::print::{Print, RUNS};
use super::search_targets::SearchTargets;

/// Every copied run of this many symbols (letters and digits) is found at any position.
pub const GUARANTEED_RUN: usize = 30;
// A run has a long gram at every place where one may be kept.
const _: () = assert!(GUARANTEED_RUN >= LONG + SHORT - 1);

#[derive(Clone, Debug, Default)]
pub(super) struct Runs(SearchTargets);

impl Detector for Runs {
    type SentParts = ();

    fn remember(&mut self, placed: &Placed<'_>, print: &Print) {
        placed.insert(&mut self.0.index, &print.tags[RUNS]);
    }

    fn apply_move(&mut self, moved: &PositionChange) {
        moved.apply(&mut self.0.index, true);
    }

    fn size(&self) -> usize {
        self.0.index.size()
    }

    #[inline]
    fn add_grams(&mut self, grams: &Grams<'_>) {
        let mut tags = [0; BLOCK];
        let (start, count) = grams.fill_long_tags(hash::long_gram_tag, &mut tags);
        self.0.add_candidates(start, tags[..count].iter().copied());
    }

    fn find_hits(&mut self, text: &Text<'_>, hits: &mut Hits) {
        self.0.visit_found(text.memory.floor(), |at, _, place| {
            let Some((origin, entry)) = text.memory.entry_at(place) else { return };
            let covers = |hit: &Hit| {
                hit.origin == origin && hit.what == HitKind::Run && at + LONG <= hit.end && hit.start <= at
            };
            let leaves = (text.leaving)(&entry.origin);
            if hits.has_room(leaves, covers)
                && let Some((start, end)) = text.extend(at, place, entry, usize::MAX)
                && end - start >= GUARANTEED_RUN
            {
                hits.push(Hit { start, end, origin, leaves, what: HitKind::Run });
            }
        });
    }
}
