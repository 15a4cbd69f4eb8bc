//! The matches of detectors in one text.

use std::ops::Range;

use super::entry::Entry;
use super::hash::{self, RollingHash, SHORT};
use super::memory::TaintMemory;
use super::origin::{Origin, OriginId};
use agentsh_secrets::values::Kind;

/// Maximum number of hits of one scan in leaving data, and again in data that may go there. Chosen: more are one
/// finding of their own.
const MAX_HITS: usize = 256;
/// Number of recent hits that are checked for already covering a place.
const RECENT: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HitKind {
    /// A copied passage.
    Run,
    /// A secret or personal value, or a piece of a secret.
    Value(Kind),
}

/// `start..end` are symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub start: usize,
    pub end: usize,
    pub origin: OriginId,
    /// The result may not go where the text goes.
    pub leaves: bool,
    pub what: HitKind,
}

/// A part of the prose of a result in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub origin: OriginId,
    /// In symbols of the result.
    pub place: Range<u32>,
    pub tag: u32,
}

/// Whether the labels forbid a result at the destination of the searched text.
pub(super) type MayNotFlow<'l> = &'l (dyn Fn(&Origin) -> bool + Sync);

/// A text that is searched, in symbols.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    pub memory: &'t TaintMemory,
    pub symbols: &'t [u8],
    pub leaving: MayNotFlow<'t>,
}

/// The hits of one scan. Hits that may leave have a limit of their own, so they cannot displace others.
#[derive(Default)]
pub(super) struct Hits {
    pub list: Vec<Hit>,
    /// Parts of prose that may not go there, too short to be a copy by themselves: each place of a result once.
    pub pieces: Vec<Piece>,
    /// Their ranges in the text, in order, with repetitions.
    pub of_pieces: Vec<Range<usize>>,
    /// There are more of them than are counted.
    pub has_more_pieces: bool,
    leaving: usize,
    harmless: usize,
}

impl Hits {
    /// Whether the text exceeds the limit, so that not all of it was searched.
    pub fn is_full(&self) -> bool {
        self.leaving >= MAX_HITS
    }

    /// A result of which pieces were not counted any more.
    pub fn uncounted_result(&self) -> Option<OriginId> {
        self.pieces.last().filter(|_| self.has_more_pieces).map(|piece| piece.origin)
    }

    /// Whether there is room for another hit, and none of the latest ones contains it.
    pub fn has_room(&self, leaves: bool, covers: impl Fn(&Hit) -> bool) -> bool {
        let count = if leaves { self.leaving } else { self.harmless };
        count < MAX_HITS && !self.list.iter().rev().take(RECENT).any(covers)
    }

    pub fn push(&mut self, hit: Hit) {
        *if hit.leaves { &mut self.leaving } else { &mut self.harmless } += 1;
        self.list.push(hit);
    }

    /// The places in the text with data of a result, in symbols.
    pub fn hit_ranges(&self) -> Vec<Range<usize>> {
        let copies = self.list.iter().map(|hit| hit.start..hit.end);
        copies.chain(self.of_pieces.iter().cloned()).collect()
    }
}

impl Text<'_> {
    /// Follows a copy to both ends, at most `most` symbols, in symbols of the searched text. None when the tags were
    /// equal by chance.
    pub fn extend(&self, at: usize, place: u32, entry: &Entry, most: usize) -> Option<(usize, usize)> {
        let Self { memory, symbols, .. } = self;
        let hasher = &memory.hasher;
        let same = |roll: RollingHash, place: u32| memory.shadow(place) == Some(hash::shadow(roll.gram()));
        let here = hasher.roll(symbols, at).filter(|roll| same(*roll, place))?;
        let (mut first, mut first_place, mut roll) = (at, place, here);
        while first > 0 && first_place > entry.start && at - first < most {
            roll.roll_back(hasher, symbols[first - 1], symbols[first - 1 + SHORT]);
            if !same(roll, first_place - 1) {
                break;
            }
            first -= 1;
            first_place -= 1;
        }
        let (mut last, mut last_place, mut roll) = (at, place, here);
        while last_place + (SHORT as u32) < entry.end && last + SHORT < symbols.len() && last - at < most {
            roll.forward(hasher, symbols[last], symbols[last + SHORT]);
            if !same(roll, last_place + 1) {
                break;
            }
            last += 1;
            last_place += 1;
        }
        Some((first, last + SHORT))
    }
}
