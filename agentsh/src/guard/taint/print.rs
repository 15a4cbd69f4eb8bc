//! What one result said, as keyed hashes.

use std::ops::Range;

use super::hash::{self, Earlier, Hasher, LONG, LONG_STEPS, SHORT, STEPS};
use super::known::Known;
use super::memory::TaintMemory;
use super::near;
use super::symbols::Folded;
use super::winnow::Winnow;
use crate::guard::secrets::{self, Kind};
use crate::guard::threads::side_by_side;

/// One of so many neighbouring grams is kept.
pub(super) const WINDOW: usize = 13;
pub(super) const STEP_WINDOW: usize = 25;
/// In secrets, where small pieces count.
const SECRET_WINDOW: usize = 3;
/// Short grams in a row, all of them known before, that make a known passage.
const KNOWN_RUN: usize = LONG - SHORT + 1;
/// Values that are looked at in one result.
const MAX_ENTITIES: usize = 4096;
/// Symbols of one result; what stands beyond is not remembered, and the result of [`TaintMemory::print`] says so.
pub(super) const MAX_SYMBOLS: usize = 8 << 20;

/// A secret or personal value inside a result. Positions are symbols from the start of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
    pub kind: Kind,
}

/// Everything about one result that is remembered: what goes into the indices, and what is written to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Print {
    pub shadow: Vec<u8>,
    pub letters: u32,
    pub spans: Vec<(u32, u32, u8)>,
    /// Tag and position, for each index in the order of `TaintMemory::indices`.
    pub tags: [Vec<(u32, u32)>; 6],
}

/// A result while it is read: its texts as one, and where what matters stands in it.
#[derive(Default)]
struct Reading {
    text: Folded,
    /// Each with its letters.
    spans: Vec<(Span, Range<usize>)>,
    /// Links and the like, as symbols and as letters.
    references: [Vec<Range<usize>>; 2],
    values: Vec<(u32, u32)>,
    pairs: Vec<(u32, u32)>,
}

impl TaintMemory {
    /// Hashes the texts of a result, without what everybody says and what the agent said before. True when the end of
    /// it was left out.
    pub(super) fn print<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> (Print, bool) {
        self.known.prepare(&self.hasher);
        let (hasher, known) = (&self.hasher, &self.known);
        let mut reading = Reading::default();
        let mut truncated = false;
        for leaf in texts {
            if reading.text.symbols.len() + leaf.len() > MAX_SYMBOLS {
                truncated = true;
            } else {
                reading.add(hasher, leaf);
            }
        }
        let Reading { text, mut spans, references: [symbols, letters], values, mut pairs } = reading;
        pairs.retain(|(tag, _)| !known.has(*tag));
        spans.retain(|(span, _)| {
            let mut is_known = span.end - span.start >= SHORT as u32;
            let text = &text.symbols[span.start as usize..span.end as usize];
            hasher.each_short_gram(text, |_, gram| is_known &= known.has(hash::tag(gram)));
            !is_known
        });
        let secrets: Vec<Range<usize>> =
            spans.iter().map(|(span, _)| span.start as usize..span.end as usize).collect();
        let passages = Passages { hasher, known };
        let ((shadow, long), steps) = side_by_side(
            text.symbols.len(),
            || passages.of_symbols(&text.symbols, &symbols, &secrets),
            || passages.of_letters(&text.letters, &letters),
        );
        let (mut short, mut secret_steps) = (Vec::new(), Vec::new());
        for (span, letters) in &spans {
            values_in(hasher, &text, span, letters, &mut short, &mut secret_steps);
        }
        let print = Print {
            shadow,
            letters: text.letters.len() as u32,
            spans: spans.iter().map(|(span, _)| (span.start, span.end, span.kind as u8)).collect(),
            tags: [long, short, steps, secret_steps, values, pairs],
        };
        (print, truncated)
    }
}

impl Reading {
    /// Folds one leaf and notes where its values stand.
    fn add(&mut self, hasher: &Hasher, leaf: &str) {
        let entities = with_lone_secret(leaf, secrets::find(leaf, MAX_ENTITIES));
        let text = &mut self.text;
        let leaf_start = text.symbols.len() as u32;
        let mut bounds: Vec<usize> = entities.iter().flat_map(|entity| [entity.start, entity.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut places = Vec::with_capacity(bounds.len());
        let mut from = 0;
        for &bound in &bounds {
            text.push(&leaf[from..bound]);
            places.push((text.symbols.len(), text.letters.len()));
            from = bound;
        }
        text.push(&leaf[from..]);
        let place = |at: usize| bounds.binary_search(&at).map_or((0, 0), |index| places[index]);
        for entity in entities {
            let (start, end) = (place(entity.start), place(entity.end));
            let symbols = &text.symbols[start.0..end.0];
            if symbols.len() >= 5 && (entity.kind.is_reference() || symbols.len() < SHORT) {
                self.values.push((value_tag(hasher, entity.kind, symbols), start.0 as u32));
            }
            if entity.kind.is_reference() && entity.kind != Kind::Email {
                self.references[0].push(start.0..end.0);
                self.references[1].push(start.1..end.1);
            } else if symbols.len() >= SHORT && !entity.kind.is_reference() {
                let span = Span { start: start.0 as u32, end: end.0 as u32, kind: entity.kind };
                self.spans.push((span, start.1..end.1));
            }
        }
        near::pairs(hasher, leaf, |tag| self.pairs.push((tag, leaf_start)));
    }
}

/// The tags of one secret or personal value.
fn values_in(
    hasher: &Hasher,
    text: &Folded,
    span: &Span,
    letters: &Range<usize>,
    short: &mut Vec<(u32, u32)>,
    steps: &mut Vec<(u32, u32)>,
) {
    let symbols = &text.symbols[span.start as usize..span.end as usize];
    if !span.kind.is_secret() {
        // Only the whole of it counts, so that one tag is enough.
        let mut least: Option<(u32, u32)> = None;
        hasher.each_short_gram(symbols, |at, gram| {
            let tag = hash::tag(gram);
            if least.is_none_or(|(least, _)| tag <= least) {
                least = Some((tag, span.start + at as u32));
            }
        });
        short.extend(least);
        return;
    }
    let mut winnow = Winnow::<SECRET_WINDOW>::new();
    hasher.each_short_gram(symbols, |at, gram| winnow.push(hash::tag(gram), span.start + at as u32, short));
    winnow.finish(short);
    let mut winnow = Winnow::<SECRET_WINDOW>::new();
    let first = letters.start as u32;
    hasher.each_interval_gram(&text.letters[letters.clone()], |at, gram| {
        winnow.push(hash::tag(gram), first + at as u32, steps);
    });
    winnow.finish(steps);
}

struct Passages<'m> {
    hasher: &'m Hasher,
    known: &'m Known,
}

impl Passages<'_> {
    /// The kept byte of each gram, and the tags of the passages that count: everything but what is known and what is
    /// a reference, and every secret.
    fn of_symbols(
        &self,
        symbols: &[u8],
        references: &[Range<usize>],
        secrets: &[Range<usize>],
    ) -> (Vec<u8>, Vec<(u32, u32)>) {
        let grams = (symbols.len() + 1).saturating_sub(SHORT);
        let mut shadow = Vec::with_capacity(symbols.len());
        let mut tags = Vec::with_capacity(grams / 6);
        // Hardly any result has a known passage: it is read as if it had none, and again when it has.
        let mut known = Runs::default();
        let ranges = open(grams, SHORT, Vec::new(), references, secrets);
        self.symbols_of(symbols, &ranges, &mut shadow, &mut tags, |at, gram| {
            known.see(at, self.known.may_have(hash::tag(gram)));
        });
        let known = known.finish(grams);
        if !known.is_empty() {
            shadow.clear();
            tags.clear();
            let ranges = open(grams, SHORT, known, references, secrets);
            self.symbols_of(symbols, &ranges, &mut shadow, &mut tags, |_, _| {});
        }
        shadow.resize(symbols.len(), 0);
        (shadow, tags)
    }

    fn symbols_of(
        &self,
        symbols: &[u8],
        ranges: &[Range<usize>],
        shadow: &mut Vec<u8>,
        tags: &mut Vec<(u32, u32)>,
        mut see: impl FnMut(usize, u64),
    ) {
        let grams = (symbols.len() + 1).saturating_sub(SHORT);
        let mut from = 0;
        for range in ranges.iter().cloned().chain(std::iter::once(grams..grams)) {
            let closed = &symbols[from..(range.start + SHORT - 1).clamp(from, symbols.len())];
            self.hasher.each_short_gram(closed, |at, gram| {
                see(from + at, gram);
                shadow.push(!hash::shadow(gram));
            });
            let mut winnow = Winnow::<WINDOW>::new();
            let mut earlier = Earlier::<SHORT>::new();
            let text = &symbols[range.start..(range.end + SHORT - 1).clamp(range.start, symbols.len())];
            self.hasher.each_short_gram(text, |at, gram| {
                see(range.start + at, gram);
                shadow.push(hash::shadow(gram));
                if let Some((start, other)) = earlier.pair(at, gram) {
                    winnow.push(hash::long(other, gram), (range.start + start) as u32, tags);
                }
            });
            winnow.finish(tags);
            from = range.end;
        }
    }

    /// The same for distances between letters.
    fn of_letters(&self, letters: &[u8], references: &[Range<usize>]) -> Vec<(u32, u32)> {
        let grams = letters.len().saturating_sub(STEPS);
        let mut tags = Vec::with_capacity(grams / 12);
        let mut known = Runs::default();
        let ranges = open(grams, STEPS, Vec::new(), references, &[]);
        self.letters_of(letters, &ranges, &mut tags, |at, gram| {
            known.see(at, self.known.may_have(hash::tag(gram)));
        });
        let known = known.finish(grams);
        if !known.is_empty() {
            tags.clear();
            let ranges = open(grams, STEPS, known, references, &[]);
            self.letters_of(letters, &ranges, &mut tags, |_, _| {});
        }
        tags
    }

    fn letters_of(
        &self,
        letters: &[u8],
        ranges: &[Range<usize>],
        tags: &mut Vec<(u32, u32)>,
        mut see: impl FnMut(usize, u64),
    ) {
        let grams = letters.len().saturating_sub(STEPS);
        let text = |range: &Range<usize>| &letters[range.start..(range.end + STEPS).min(letters.len())];
        let mut from = 0;
        for range in ranges.iter().cloned().chain(std::iter::once(grams..grams)) {
            let closed = from..range.start;
            self.hasher.each_interval_gram(text(&closed), |at, gram| see(closed.start + at, gram));
            let mut winnow = Winnow::<STEP_WINDOW>::new();
            let mut earlier = Earlier::<STEPS>::new();
            self.hasher.each_interval_gram(text(&range), |at, gram| {
                see(range.start + at, gram);
                if let Some((start, other)) = earlier.pair(at, gram) {
                    winnow.push(hash::long_interval(other, gram), (range.start + start) as u32, tags);
                }
            });
            winnow.finish(tags);
            from = range.end;
        }
    }
}

/// Runs of at least [`KNOWN_RUN`] grams that are known.
#[derive(Default)]
struct Runs {
    found: Vec<Range<usize>>,
    from: usize,
}

impl Runs {
    #[inline]
    fn see(&mut self, at: usize, is_known: bool) {
        if !is_known {
            self.end(at);
        }
    }

    #[inline]
    fn end(&mut self, at: usize) {
        if at - self.from >= KNOWN_RUN {
            self.found.push(self.from..at);
        }
        self.from = at + 1;
    }

    fn finish(mut self, grams: usize) -> Vec<Range<usize>> {
        self.end(grams.max(self.from));
        self.found
    }
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

/// The tag of a whole value.
pub(super) fn value_tag(hasher: &Hasher, kind: Kind, symbols: &[u8]) -> u32 {
    // What stands for a person or a secret is compared without regard to what it was taken for.
    let family = if kind.is_reference() { kind as u8 } else { 0 };
    hash::tag(hasher.whole(symbols).wrapping_add(u64::from(family).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// A result that is one word and nothing else, and looks like a password.
fn with_lone_secret(leaf: &str, mut entities: Vec<secrets::Entity>) -> Vec<secrets::Entity> {
    if !entities.is_empty() {
        return entities;
    }
    let word = leaf.trim();
    let is_short = (12..=64).contains(&word.len()) && !word.contains(['/', ' ', '.']);
    let has = |class: fn(&u8) -> bool| word.bytes().any(|byte| class(&byte));
    if is_short
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_punctuation)
    {
        let start = leaf.len() - leaf.trim_start().len();
        entities.push(secrets::Entity { kind: Kind::HighEntropy, start, end: start + word.len() });
    }
    entities
}

const _: () = assert!(LONG_STEPS == 2 * STEPS);
