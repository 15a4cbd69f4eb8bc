//! Which passages of a result count, and the tags that are kept of them.
//!
//! Of neighbouring grams one is kept, at places that are [`Unit::APART`] from each other. Arguments are searched gram
//! by gram, so that a copy is found wherever it stands in them, and nothing has to be chosen by what the grams are.

use std::ops::Range;

use super::grams::{Intervals, Symbols, Unit};
use super::hash::{self, Hasher};
use super::known::Known;

/// Tags, each with the place where its gram begins.
type Tags = Vec<(u32, u32)>;

pub(super) struct Passages<'m> {
    pub hasher: &'m Hasher,
    pub known: &'m Known,
}

impl Passages<'_> {
    /// The kept byte of each gram, and the tags of the passages that count: everything but what is known and what is
    /// a reference, and every secret.
    pub fn of_symbols(
        &self,
        symbols: &[u8],
        references: &[Range<usize>],
        secrets: &[Range<usize>],
    ) -> (Vec<u8>, Tags) {
        let mut shadow = Vec::with_capacity(symbols.len());
        let tags = self.tags::<Symbols>(symbols, references, secrets, |at, is_open, grams| {
            if at == 0 {
                shadow.clear();
            }
            // What does not count matches nothing.
            let mask = if is_open { 0 } else { u8::MAX };
            shadow.extend(grams.iter().map(|gram| hash::shadow(*gram) ^ mask));
        });
        shadow.resize(symbols.len(), 0);
        (shadow, tags)
    }

    /// The tags for distances between letters.
    pub fn of_letters(&self, letters: &[u8], references: &[Range<usize>]) -> Tags {
        self.tags::<Intervals>(letters, references, &[], |_, _, _| {})
    }

    /// `see` is shown all grams in order: where the first of them stands, and whether they count.
    fn tags<U: Unit>(
        &self,
        text: &[u8],
        references: &[Range<usize>],
        secrets: &[Range<usize>],
        mut see: impl FnMut(usize, bool, &[u64]),
    ) -> Tags {
        let grams = U::count(text.len());
        let mut tags = Vec::with_capacity(grams / U::APART);
        let ranges = open(grams, U::APART, Vec::new(), references, secrets);
        // Hardly any result has a known passage: it is read as if it had none, and again when it has.
        let mut may_be_known = false;
        self.tags_of::<U>(text, &ranges, &mut tags, |at, is_open, block| {
            may_be_known = may_be_known || self.may_be_known::<U>(text, at, block);
            see(at, is_open, block);
        });
        let known = if may_be_known { self.known_runs::<U>(text) } else { Vec::new() };
        if !known.is_empty() {
            tags.clear();
            self.tags_of::<U>(text, &open(grams, U::APART, known, references, secrets), &mut tags, see);
        }
        tags
    }

    fn tags_of<U: Unit>(
        &self,
        text: &[u8],
        ranges: &[Range<usize>],
        tags: &mut Tags,
        mut see: impl FnMut(usize, bool, &[u64]),
    ) {
        let grams = U::count(text.len());
        let units = |range: Range<usize>| &text[range.start..(range.end + U::SPAN - 1).min(text.len())];
        let mut from = 0;
        for range in ranges.iter().cloned().chain(std::iter::once(grams..grams)) {
            if from < range.start {
                U::each_block(self.hasher, units(from..range.start), |block| {
                    see(from + block.at, false, block.own());
                });
            }
            if !range.is_empty() {
                let mut before = None;
                U::each_block(self.hasher, units(range.clone()), |block| {
                    see(range.start + block.at, true, block.own());
                    for (at, gram) in kept::<U>(block.at, block.own()) {
                        let first = before.replace(gram);
                        tags.extend(
                            first.map(|first| (U::long(first, gram), (range.start + at - U::APART) as u32)),
                        );
                    }
                });
            }
            from = range.end;
        }
    }

    /// Whether a run of known grams may go through these, of which the first stands at `at`.
    fn may_be_known<U: Unit>(&self, text: &[u8], at: usize, grams: &[u64]) -> bool {
        let mut seeming = kept::<U>(at, grams).filter(|(_, gram)| self.known.may_have(hash::tag(*gram)));
        // What seems to be known is mostly chance: its neighbours tell.
        seeming.any(|(at, _)| {
            let end = (at + U::APART + U::SPAN).min(text.len());
            !self.known_runs::<U>(&text[at.saturating_sub(U::APART)..end]).is_empty()
        })
    }

    /// Runs of known grams that are as long as two of them that make a long one.
    fn known_runs<U: Unit>(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut from = 0;
        let mut end = |at: usize, from: &mut usize| {
            if at - *from > U::APART {
                found.push(*from..at);
            }
            *from = at + 1;
        };
        U::each_block(self.hasher, text, |grams| {
            for (at, gram) in grams.own().iter().enumerate() {
                if !self.known.may_have(hash::tag(*gram)) {
                    end(grams.at + at, &mut from);
                }
            }
        });
        end(U::count(text.len()).max(from), &mut from);
        found
    }
}

/// Of grams, the first of which stands at `at`, those whose place is a multiple of [`Unit::APART`]. Any run of so many
/// grams has one of them.
fn kept<U: Unit>(at: usize, grams: &[u64]) -> impl Iterator<Item = (usize, u64)> {
    let first = at.next_multiple_of(U::APART) - at;
    grams
        .iter()
        .copied()
        .enumerate()
        .skip(first)
        .step_by(U::APART)
        .map(move |(inside, gram)| (at + inside, gram))
}

/// The ranges of `grams` grams that count. A reference closes every gram that begins in it and does not leave it by
/// much; a secret opens its own again, whatever closed them.
fn open(
    grams: usize,
    length: usize,
    mut closed: Vec<Range<usize>>,
    references: &[Range<usize>],
    secrets: &[Range<usize>],
) -> Vec<Range<usize>> {
    let range = |range: &Range<usize>, beyond: usize| {
        let end = (range.end + beyond).saturating_sub(length).min(grams);
        (range.start < end).then_some(range.start..end)
    };
    closed.extend(references.iter().filter_map(|reference| range(reference, 2)));
    closed.sort_unstable_by_key(|range| range.start);
    let mut open = Vec::new();
    let mut from = 0;
    for range in closed {
        if from < range.start {
            open.push(from..range.start);
        }
        from = from.max(range.end);
    }
    if from < grams {
        open.push(from..grams);
    }
    open.extend(secrets.iter().filter_map(|secret| range(secret, 1)));
    open.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(open.len());
    for range in open {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
