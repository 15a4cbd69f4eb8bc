//! Reads one result: what is kept of it, as keyed hashes.

use std::collections::BTreeSet;
use std::ops::Range;

use super::entry::Span;
use super::hash::{self, Hasher, SHORT};
use super::known::Known;
use super::passages::Passages;
use super::pieces;
use super::print::{MAX_FOLLOWED, MAX_SYMBOLS, Print};
use super::shifted;
use super::slices::Followed;
use super::symbols::Folded;
use super::values as whole_values;
use crate::threads::side_by_side;
use agentsh_secrets::values::{self, Kind};

/// A token that is a whole result, in bytes.
const MIN_TOKEN: usize = 16;
const MAX_TOKEN: usize = 512;
/// Values that are looked at in one result.
const MAX_ENTITIES: usize = 4096;

/// A result while it is read: its texts as one, and where what matters stands in it.
#[derive(Default)]
struct Reading {
    text: Folded,
    /// The end of a text was left out.
    truncated: bool,
    /// Each with its letters.
    spans: Vec<(Span, Range<usize>)>,
    /// Secrets in pieces, each with where it begins.
    followed: Vec<(u32, Followed)>,
    /// Links and the like, as symbols and as letters.
    references: [Vec<Range<usize>>; 2],
    values: Vec<(u32, u32)>,
    /// Where prose stands, in symbols.
    prose: Vec<Range<usize>>,
}

/// Hashes the texts of a result, without what everybody says and what the agent said before; `more` makes further
/// texts of it meanwhile, beside it on a processor of its own when it is a long one. True when the end of it was left out.
pub(super) fn read<'a>(
    hasher: &Hasher,
    known: &Known,
    is_private: bool,
    texts: impl Iterator<Item = &'a str> + Clone + Send,
    more: impl FnOnce() -> Vec<String> + Send,
) -> (Print, bool) {
    let mut reading = Reading::default();
    let length = texts.clone().map(str::len).sum();
    let mut long = texts.clone().filter(|text| text.len() >= MIN_TOKEN);
    let is_alone = long.next().is_some() && long.next().is_none();
    let add = |reading: &mut Reading, text: &str| {
        reading.add_within_bounds(hasher, text, is_alone && text.len() >= MIN_TOKEN);
    };
    let ((), more) = side_by_side(length, || texts.for_each(|text| add(&mut reading, text)), more);
    more.iter().for_each(|text| reading.add_within_bounds(hasher, text, false));
    let Reading { text, truncated, mut spans, followed, references: [symbols, letters], values, prose } =
        reading;
    spans.retain(|(span, _)| {
        let mut is_known = span.end - span.start >= SHORT as u32;
        let text = &text.symbols[span.start as usize..span.end as usize];
        hasher.each_short_gram(text, |_, gram| is_known &= known.has(hash::tag(gram)));
        !is_known
    });
    // A secret that the agent said itself is not followed either.
    let starts: BTreeSet<u32> = spans.iter().map(|(span, _)| span.start).collect();
    let followed = followed.into_iter().filter(|(start, _)| starts.contains(start)).map(|(_, one)| one);
    let secrets: Vec<Range<usize>> =
        spans.iter().map(|(span, _)| span.start as usize..span.end as usize).collect();
    let passages = Passages { hasher, known };
    let ((shadow, long), steps) = side_by_side(
        text.symbols.len(),
        || passages.of_symbols(&text.symbols, &symbols, &secrets),
        || passages.of_letters(&text.letters, &letters),
    );
    let (mut of_secrets, mut of_shifted) = (Vec::new(), Vec::new());
    for (span, at) in &spans {
        whole_values::of_span(hasher, &text.symbols, span, &mut of_secrets);
        if span.kind.is_secret() {
            shifted::of_secret(hasher, &text.letters, at, &mut of_shifted);
        }
    }
    // What a public source says is nobody's secret.
    let (prose, followed) = match is_private {
        true => (pieces::kept(hasher, &text.symbols, &shadow, &prose), followed.collect()),
        false => (Vec::new(), Vec::new()),
    };
    let print = Print {
        shadow,
        letters: text.letters.len() as u32,
        spans: spans.iter().map(|(span, _)| (span.start, span.end, span.kind as u8)).collect(),
        tags: [long, of_secrets, steps, of_shifted, values, prose],
        followed,
        cells: Vec::new(),
    };
    (print, truncated)
}

impl Reading {
    fn add_within_bounds(&mut self, hasher: &Hasher, leaf: &str, is_alone: bool) {
        // A byte makes a symbol at most.
        let room = MAX_SYMBOLS.saturating_sub(self.text.symbols.len());
        self.truncated |= leaf.len() > room;
        self.add(hasher, &leaf[..leaf.floor_char_boundary(room)], is_alone);
    }

    /// Folds one leaf and notes where its values stand.
    fn add(&mut self, hasher: &Hasher, leaf: &str, is_alone: bool) {
        let text = &mut self.text;
        let (leaf_start, mut place) = (text.symbols.len() as u32, (text.symbols.len(), text.letters.len()));
        let (entities, ()) =
            side_by_side(leaf.len(), || values::find(leaf, MAX_ENTITIES), || text.push(leaf));
        let entities = if is_alone { with_token(leaf, entities) } else { entities };
        let entities = with_lone_secret(leaf, entities);
        let mut bounds: Vec<usize> = entities.iter().flat_map(|entity| [entity.start, entity.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut places = Vec::with_capacity(bounds.len());
        let mut from = 0;
        for &bound in &bounds {
            let (symbols, letters) = Folded::count(&leaf[from..bound]);
            place = (place.0 + symbols, place.1 + letters);
            places.push(place);
            from = bound;
        }
        let place = |at: usize| bounds.binary_search(&at).map_or((0, 0), |index| places[index]);
        let mut link_end = 0;
        for entity in entities {
            let (start, end) = (place(entity.start), place(entity.end));
            let symbols = &text.symbols[start.0..end.0];
            if matches!(entity.kind, Kind::Url | Kind::Path) {
                link_end = link_end.max(entity.end);
            }
            let is_short = !entity.kind.is_reference() && symbols.len() < SHORT;
            if entity.kind == Kind::Url || is_short {
                let tag = whole_values::tag_of(hasher, entity.kind, symbols);
                self.values.extend(tag.map(|tag| (tag, start.0 as u32)));
            }
            if entity.kind.is_reference() && entity.kind != Kind::Email {
                self.references[0].push(start.0..end.0);
                self.references[1].push(start.1..end.1);
            } else if symbols.len() >= SHORT && !entity.kind.is_reference() {
                let span = Span { start: start.0 as u32, end: end.0 as u32, kind: entity.kind };
                // What only looks drawn is part of its address there.
                let is_of_link = entity.kind == Kind::HighEntropy && entity.start < link_end;
                if !is_of_link
                    && self.followed.len() < MAX_FOLLOWED
                    && let Some(followed) = Followed::of(
                        hasher,
                        entity.kind,
                        leaf.get(entity.start..entity.end).unwrap_or_default(),
                    )
                {
                    self.followed.push((span.start, followed));
                }
                self.spans.push((span, start.1..end.1));
            }
        }
        if pieces::is_followed(leaf) {
            self.prose.push(leaf_start as usize..text.symbols.len());
        }
    }
}

/// A result that is one token and nothing else was asked for by its name, wherever that stands: a key as a number, a
/// password. What names a place is none.
fn with_token(leaf: &str, entities: Vec<values::Entity>) -> Vec<values::Entity> {
    let word = leaf.trim();
    let is_token = (MIN_TOKEN..=MAX_TOKEN).contains(&word.len())
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>{}\"',;".contains(&byte))
        && !word.contains("://")
        && !word.starts_with(['/', '.', '~'])
        && !entities
            .iter()
            .any(|entity| matches!(entity.kind, Kind::Url | Kind::Email | Kind::Ip | Kind::Path | Kind::Id))
        && agentsh_secrets::checks::looks_random(word.as_bytes());
    if !is_token || entities.iter().any(|entity| !entity.kind.is_reference()) {
        return entities;
    }
    let start = leaf.len() - leaf.trim_start().len();
    vec![values::Entity { kind: Kind::HighEntropy, start, end: start + word.len() }]
}

/// A result that is one word and nothing else, and looks like a password.
fn with_lone_secret(leaf: &str, mut entities: Vec<values::Entity>) -> Vec<values::Entity> {
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
        entities.push(values::Entity { kind: Kind::HighEntropy, start, end: start + word.len() });
    }
    entities
}
