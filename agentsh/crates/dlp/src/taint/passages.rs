//! Which passages of a result count, and the tags that are kept of them.
//!
//! Of neighbouring grams one is kept, at places that are [`SHORT`] from each other. Arguments are searched gram
//! by gram, so that a copy is found at any place in them, and no gram has to be chosen by its content.

use std::ops::Range;

use super::hash::{self, Hasher, SHORT};
use super::known_text::Known;

/// Tags, each with the place where its gram begins.
type Tags = Vec<(u32, u32)>;

pub(super) struct Passages<'m> {
    pub hasher: &'m Hasher,
    pub known: &'m Known,
}

impl Passages<'_> {
    /// The kept byte of each gram, and the tags of the passages that count: everything but what is known and what is
    /// a reference, and every secret.
    pub fn of(
        &self,
        symbols: &[u8],
        references: &[Range<usize>],
        secrets: &[Range<usize>],
    ) -> (Vec<u8>, Tags) {
        let grams = count(symbols);
        let (mut shadow, mut tags) = (Vec::with_capacity(symbols.len()), Vec::with_capacity(grams / SHORT));
        // Hardly any result has a known passage: it is read as if it had none, and again when it has.
        let mut may_be_known = false;
        let ranges = open(grams, Vec::new(), references, secrets);
        self.read(symbols, &ranges, &mut shadow, &mut tags, |at, block| {
            may_be_known = may_be_known || self.may_be_known(symbols, at, block);
        });
        let known = if may_be_known { self.known_runs(symbols) } else { Vec::new() };
        if !known.is_empty() {
            shadow.clear();
            tags.clear();
            let ranges = open(grams, known, references, secrets);
            self.read(symbols, &ranges, &mut shadow, &mut tags, |_, _| {});
        }
        shadow.resize(symbols.len(), 0);
        (shadow, tags)
    }

    /// `see` gets all n-grams in order, with the position of the first.
    fn read(
        &self,
        text: &[u8],
        ranges: &[Range<usize>],
        shadow: &mut Vec<u8>,
        tags: &mut Tags,
        mut see: impl FnMut(usize, &[u64]),
    ) {
        let grams = count(text);
        let units = |range: Range<usize>| &text[range.start..(range.end + SHORT - 1).min(text.len())];
        let mut from = 0;
        for range in ranges.iter().cloned().chain(std::iter::once(grams..grams)) {
            if from < range.start {
                self.hasher.each_short_block(units(from..range.start), |block| {
                    see(from + block.at, block.own_grams());
                    // Excluded n-grams match nothing.
                    shadow.extend(block.own_grams().iter().map(|gram| !hash::shadow(*gram)));
                });
            }
            if !range.is_empty() {
                let mut before = None;
                self.hasher.each_short_block(units(range.clone()), |block| {
                    see(range.start + block.at, block.own_grams());
                    shadow.extend(block.own_grams().iter().map(|gram| hash::shadow(*gram)));
                    for (at, gram) in kept_grams(block.at, block.own_grams()) {
                        let first = before.replace(gram);
                        tags.extend(first.map(|first| {
                            (hash::long_gram_tag(first, gram), (range.start + at - SHORT) as u32)
                        }));
                    }
                });
            }
            from = range.end;
        }
    }

    /// Whether a run of known n-grams may go through these, the first of which is at `at`.
    fn may_be_known(&self, text: &[u8], at: usize, grams: &[u64]) -> bool {
        let mut seeming = kept_grams(at, grams).filter(|(_, gram)| self.known.may_have(hash::tag(*gram)));
        // A single known n-gram is mostly chance, so its neighbours decide.
        seeming.any(|(at, _)| {
            let end = (at + SHORT + SHORT).min(text.len());
            !self.known_runs(&text[at.saturating_sub(SHORT)..end]).is_empty()
        })
    }

    /// Runs of known grams that are at least as long as the two grams of a long one.
    fn known_runs(&self, text: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut from = 0;
        let mut end = |at: usize, from: &mut usize| {
            if at - *from > SHORT {
                found.push(*from..at);
            }
            *from = at + 1;
        };
        self.hasher.each_short_block(text, |grams| {
            for (at, gram) in grams.own_grams().iter().enumerate() {
                if !self.known.may_have(hash::tag(*gram)) {
                    end(grams.at + at, &mut from);
                }
            }
        });
        end(count(text).max(from), &mut from);
        found
    }
}

/// Short grams of a text.
fn count(text: &[u8]) -> usize {
    (text.len() + 1).saturating_sub(SHORT)
}

/// The n-grams from `at` on whose position is a multiple of [`SHORT`]. Any run of [`SHORT`] n-grams contains one.
fn kept_grams(at: usize, grams: &[u64]) -> impl Iterator<Item = (usize, u64)> {
    let first = at.next_multiple_of(SHORT) - at;
    grams
        .iter()
        .copied()
        .enumerate()
        .skip(first)
        .step_by(SHORT)
        .map(move |(inside, gram)| (at + inside, gram))
}

/// The ranges of `grams` grams that count. A reference excludes every gram that begins in it and does not extend far
/// beyond it; a secret includes its grams again, even if a reference excluded them.
fn open(
    grams: usize,
    mut closed: Vec<Range<usize>>,
    references: &[Range<usize>],
    secrets: &[Range<usize>],
) -> Vec<Range<usize>> {
    let range = |range: &Range<usize>, beyond: usize| {
        let end = (range.end + beyond).saturating_sub(SHORT).min(grams);
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
