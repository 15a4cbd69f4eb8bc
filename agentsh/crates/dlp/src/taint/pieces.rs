//! How much of each text has arrived in pieces that are cut anywhere, in the middle of a word too, over all calls to all
//! servers that leave, in any order and with whatever around them.
//!
//! Of the prose of a private result every fifth short gram is kept. A call that has one of them has the symbols around it
//! as well, as far as both texts agree: where a piece was cut costs nothing but the place of the cut.
//!
//! Alone they find 12 of 207 attempts. They miss single words in another order, and other words.

use std::collections::BTreeMap;
use std::ops::Range;

use super::hash::{self, Hasher, SHORT};
use super::marker;
use super::origin::OriginId;
use super::ranges::Ranges;

/// From each kept gram to the next: a piece of so many symbols more than a short gram, less one, has one of them.
pub(super) const STEP: usize = 5;
/// Longest text that is followed, in bytes: a longer one goes in so many pieces that the labels decide.
const MAX_TEXT: usize = 16 << 10;
/// Results for which it is counted, and different pieces of one text that are.
pub(super) const MAX_RESULTS: usize = 512;
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
    pub covered: BTreeMap<OriginId, Ranges>,
    /// What of those was covered before the last call to which it brought something.
    before: BTreeMap<OriginId, Ranges>,
    /// What the last call brought.
    last: Vec<(OriginId, Range<u32>)>,
    pub tags: Vec<u32>,
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
    pub fn restore(&mut self, origin: OriginId, at: u32) {
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
    pub fn grown(&self) -> impl Iterator<Item = (OriginId, u32)> {
        self.before.keys().filter_map(|origin| Some((*origin, self.covered.get(origin)?.len())))
    }
}
