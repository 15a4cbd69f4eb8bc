//! Named secrets and personal values: keys, passwords, cards, accounts, telephone numbers, by themselves.
//!
//! Numbers: the whole of a personal value; 12 symbols of a secret, because a quarter of a key may not be sent
//! (`slices`); a short value from five symbols on, and only as a whole, since shorter ones occur everywhere.
//! Of a secret every third gram is kept, so that each piece of 12 has one. Values are searched for by name in 64 KiB of a
//! call and word by word in 256 KiB, bounds on its time. Cost: one lookup for each word, and one for each symbol where
//! secrets are known. Alone they find 6 of 207 attempts. They miss the last four digits of a number, and hashes of keys.

use std::ops::Range;

use super::blocks::Grams;
use super::detector::Detector;
use super::entry::Span;
use super::findings::{ENTITY, Link, Search, characters, context};
use super::hash::{self, Hasher};
use super::hits::{Hit, HitKind, Hits, Text};
use super::leaves::Leaves;
use super::memory::TaintMemory;
use super::placed::Placed;
use super::position_change::PositionChange;
use super::print::{Print, SECRETS, VALUES};
use super::search_targets::SearchTargets;
use super::symbols::{self, Folded};
use crate::Severity;
use agentsh_secrets::values::{self, Kind};

/// A piece of a secret of this length is as bad as all of it.
const MIN_PIECE: usize = 12;
/// Every third n-gram of a secret is kept.
const SECRET_STEP: usize = 3;
/// A shorter value does not count.
const MIN_VALUE: usize = 5;
/// Bytes of the arguments in which values are named, and in which single words are looked up.
const MAX_NAMED: usize = 64 * 1024;
const MAX_WORDS: usize = 256 * 1024;
/// Longest text that is a value by itself.
const MAX_ALONE: usize = 256;

#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// Grams of long values.
    long: SearchTargets,
    /// Short values, and links, each as a whole.
    short: SearchTargets,
    single: Folded,
}

/// The tag of a whole value. None: it is too short to be one.
pub(super) fn tag_of(hasher: &Hasher, kind: Kind, symbols: &[u8]) -> Option<u32> {
    // Values of persons and secrets are compared regardless of their kind.
    let family = if kind.is_reference() { kind as u8 } else { 0 };
    let mixed =
        || hasher.hash_all(symbols).wrapping_add(u64::from(family).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (symbols.len() >= MIN_VALUE).then(|| hash::tag(mixed()))
}

/// The tags that are kept of a value that is long enough for grams.
pub(super) fn of_span(hasher: &Hasher, symbols: &[u8], span: &Span, into: &mut Vec<(u32, u32)>) {
    let symbols = &symbols[span.start as usize..span.end as usize];
    let is_secret = span.kind.is_secret();
    let mut least: Option<(u32, u32)> = None;
    hasher.each_short_gram(symbols, |at, gram| {
        let (tag, place) = (hash::tag(gram), span.start + at as u32);
        if is_secret && at.is_multiple_of(SECRET_STEP) {
            into.push((tag, place));
        }
        if least.is_none_or(|(least, _)| tag <= least) {
            least = Some((tag, place));
        }
    });
    // A value that is not a secret counts only as a whole, so one tag is enough.
    into.extend(least.filter(|_| !is_secret));
}

impl Detector for Values {
    type SentParts = ();

    fn remember(&mut self, placed: &Placed<'_>, print: &Print) {
        placed.insert(&mut self.long.index, &print.tags[SECRETS]);
        placed.insert(&mut self.short.index, &print.tags[VALUES]);
    }

    fn apply_move(&mut self, moved: &PositionChange) {
        moved.apply(&mut self.long.index, false);
        moved.apply(&mut self.short.index, false);
    }

    fn size(&self) -> usize {
        self.long.index.size() + self.short.index.size()
    }

    #[inline]
    fn add_grams(&mut self, grams: &Grams<'_>) {
        if !self.long.index.is_empty() {
            self.long.add_candidates(grams.at, grams.own_grams().iter().map(|gram| hash::tag(*gram)));
        }
    }

    fn find_hits(&mut self, text: &Text<'_>, hits: &mut Hits) {
        self.long.visit_found(text.memory.floor(), |at, _, place| {
            let Some((origin, entry)) = text.memory.entry_at(place) else { return };
            let leaves = (text.leaving)(&entry.origin);
            if !hits.has_room(leaves, |hit| hit.origin == origin && hit.start <= at && at < hit.end) {
                return;
            }
            let Some((start, end)) = text.extend(at, place, entry, usize::MAX) else { return };
            let relative = place - entry.start;
            let Some(span) = span_at(&entry.spans, relative) else { return };
            let before = (at - start).min((relative - span.start) as usize);
            let after = (end - at).min((span.end - relative) as usize);
            let whole = (span.end - span.start) as usize;
            let needed = if span.kind.is_secret() { whole.min(MIN_PIECE) } else { whole };
            if before + after >= needed {
                let (start, end, what) = (at - before, at + after, HitKind::Value(span.kind));
                hits.push(Hit { start, end, origin, leaves, what });
            }
        });
    }
}

/// The innermost span that contains an n-gram.
fn span_at(spans: &[Span], at: u32) -> Option<&Span> {
    let after = spans.partition_point(|span| span.start <= at);
    spans[..after].iter().rev().take(16).find(|span| at < span.end)
}

impl Values {
    /// Links of a call that were whole in a result.
    pub fn links(&mut self, memory: &TaintMemory, call: &Leaves<'_>) -> Vec<Link> {
        let mut links = Vec::new();
        let mut named = MAX_NAMED;
        for (leaf, item) in call.items.iter().enumerate() {
            if !item.text.contains("://") || item.text.len() > named {
                continue;
            }
            named -= item.text.len();
            for entity in values::find(&item.text, 256).into_iter().filter(|entity| entity.kind == Kind::Url)
            {
                let at = entity.start..entity.end;
                self.single.clear();
                self.single.push(item.text.get(at.clone()).unwrap_or_default());
                let Some(tag) = tag_of(&memory.hasher, Kind::Url, &self.single.symbols) else { continue };
                self.short.index.find(tag, memory.floor(), |place| {
                    if let Some((origin, _)) = memory.entry_at(place) {
                        links.push(Link { leaf, at: at.clone(), origin });
                    }
                });
            }
        }
        links
    }

    /// Looks up every value and every short word of a call.
    pub fn search_words(&mut self, memory: &TaintMemory, search: &mut Search<'_, '_>) {
        let call = search.call;
        let (mut named, mut split) = (MAX_NAMED, MAX_WORDS);
        for (at, leaf) in call.items.iter().enumerate() {
            if leaf.text.len() <= named {
                named -= leaf.text.len();
                for entity in values::find_sought(&leaf.text, 256) {
                    self.value(memory, entity.kind, entity.start..entity.end, at, &leaf.text, search);
                }
            }
            if leaf.text.len() <= split {
                split -= leaf.text.len();
                let is_between = |one: char| {
                    one.is_whitespace()
                        || matches!(one, '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '<' | '>' | '=' | ':')
                };
                for word in leaf.text.split(is_between).filter(|word| (6..=20).contains(&word.len())) {
                    let start = word.as_ptr() as usize - leaf.text.as_ptr() as usize;
                    let range = start..start + word.len();
                    self.value(memory, Kind::HighEntropy, range, at, &leaf.text, search);
                }
            }
        }
    }

    /// Values of a text that is little more than one of them.
    pub fn search_single_value(
        &mut self,
        memory: &TaintMemory,
        text: &str,
        leaf: usize,
        search: &mut Search<'_, '_>,
    ) {
        if text.len() <= MAX_ALONE {
            for entity in values::find_sought(text, 16) {
                self.value(memory, entity.kind, entity.start..entity.end, leaf, text, search);
            }
            self.value(memory, Kind::HighEntropy, 0..text.len(), leaf, text, search);
        }
    }

    fn value(
        &mut self,
        memory: &TaintMemory,
        kind: Kind,
        range: Range<usize>,
        leaf: usize,
        text: &str,
        search: &mut Search<'_, '_>,
    ) {
        // A link, an address or an id is there to be used.
        if kind.is_reference() {
            return;
        }
        let value = text.get(range.clone()).unwrap_or_default();
        let mut buffer = [0; symbols::MAX_WORD];
        let symbols = symbols::of_word(value, &mut buffer).unwrap_or_else(|| {
            self.single.clear();
            self.single.push(value);
            &self.single.symbols
        });
        let index = &self.short.index;
        let tag = tag_of(&memory.hasher, kind, symbols).filter(|tag| index.may_have(*tag));
        let (Some(tag), count) = (tag, symbols.len()) else { return };
        index.find(tag, memory.floor(), |place| {
            let Some((id, entry)) = memory.entry_at(place) else { return };
            if kind == Kind::HighEntropy && search.is_in_link(leaf, &range, id) {
                return;
            }
            let provenance = search.provenance(id, &entry.origin);
            let category = if kind == Kind::HighEntropy { "short-value" } else { kind.as_str() };
            let (context, amount) = (context(text, range.clone()), characters(count as u32));
            search.push(ENTITY, category, Severity::High, leaf, context, provenance, Vec::new(), amount);
        });
    }
}
