//! Reads one result into keyed hashes.

use std::collections::BTreeSet;
use std::ops::Range;

use super::entry::Span;
use super::hash::{self, Hasher, SHORT};
use super::known_text::Known;
use super::passages::Passages;
use super::pieces;
use super::print::{MAX_FOLLOWED, MAX_SYMBOLS, Print};
use super::slices::Followed;
use super::symbols::Folded;
use super::values as whole_values;
use crate::threads::side_by_side;
use agentsh_secrets::values::{self, Kind};

/// Maximum number of values examined in one result.
const MAX_ENTITIES: usize = 4096;

/// A result while it is read: its texts as one, and the positions of what matters.
#[derive(Default)]
struct Reading {
    text: Folded,
    /// The end of a text was left out.
    truncated: bool,
    spans: Vec<Span>,
    /// Secrets in pieces, each with where it begins.
    followed: Vec<(u32, Followed)>,
    /// Links and the like.
    references: Vec<Range<usize>>,
    values: Vec<(u32, u32)>,
    /// The positions of prose, in symbols.
    prose: Vec<Range<usize>>,
}

/// Hashes the texts of a result, without common text and what the agent said before; `more` makes further texts of it
/// meanwhile, in parallel for a long one. True if the end of it was left out.
pub(super) fn read<'a>(
    hasher: &Hasher,
    known: &Known,
    is_private: bool,
    texts: impl Iterator<Item = &'a str> + Clone + Send,
    more: impl FnOnce() -> Vec<String> + Send,
) -> (Print, bool) {
    let mut reading = Reading::default();
    let length = texts.clone().map(str::len).sum();
    let ((), more) =
        side_by_side(length, || texts.for_each(|text| reading.add_within_bounds(hasher, text)), more);
    more.iter().for_each(|text| reading.add_within_bounds(hasher, text));
    let Reading { text, truncated, mut spans, followed, references, values, prose } = reading;
    spans.retain(|span| {
        let mut is_known = span.end - span.start >= SHORT as u32;
        let text = &text.symbols[span.start as usize..span.end as usize];
        hasher.each_short_gram(text, |_, gram| is_known &= known.has(hash::tag(gram)));
        !is_known
    });
    // A secret that the agent said itself is not followed either.
    let starts: BTreeSet<u32> = spans.iter().map(|span| span.start).collect();
    let followed = followed.into_iter().filter(|(start, _)| starts.contains(start)).map(|(_, one)| one);
    let secrets: Vec<Range<usize>> =
        spans.iter().map(|span| span.start as usize..span.end as usize).collect();
    let passages = Passages { hasher, known };
    let (shadow, long) = passages.of(&text.symbols, &references, &secrets);
    let mut of_secrets = Vec::new();
    spans.iter().for_each(|span| whole_values::of_span(hasher, &text.symbols, span, &mut of_secrets));
    // Data of a public source is not secret.
    let (prose, followed) = match is_private {
        true => (pieces::kept_tags(hasher, &text.symbols, &shadow, &prose), followed.collect()),
        false => (Vec::new(), Vec::new()),
    };
    let print = Print {
        shadow,
        spans: spans.iter().map(|span| (span.start, span.end, span.kind as u8)).collect(),
        tags: [long, of_secrets, values, prose],
        followed,
        cells: Vec::new(),
    };
    (print, truncated)
}

impl Reading {
    fn add_within_bounds(&mut self, hasher: &Hasher, leaf: &str) {
        // A byte makes a symbol at most.
        let room = MAX_SYMBOLS.saturating_sub(self.text.symbols.len());
        self.truncated |= leaf.len() > room;
        self.add(hasher, &leaf[..leaf.floor_char_boundary(room)]);
    }

    /// Folds one leaf and notes the positions of its values.
    fn add(&mut self, hasher: &Hasher, leaf: &str) {
        let text = &mut self.text;
        let (leaf_start, mut place) = (text.symbols.len(), text.symbols.len());
        let (entities, ()) =
            side_by_side(leaf.len(), || values::find(leaf, MAX_ENTITIES), || text.push(leaf));
        let mut bounds: Vec<usize> = entities.iter().flat_map(|entity| [entity.start, entity.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut places = Vec::with_capacity(bounds.len());
        let mut from = 0;
        for &bound in &bounds {
            place += Folded::count(&leaf[from..bound]);
            places.push(place);
            from = bound;
        }
        let place = |at: usize| bounds.binary_search(&at).map_or(0, |index| places[index]);
        let mut link_end = 0;
        for entity in entities {
            let (start, end) = (place(entity.start), place(entity.end));
            let symbols = &text.symbols[start..end];
            if matches!(entity.kind, Kind::Url | Kind::Path) {
                link_end = link_end.max(entity.end);
            }
            let is_short = !entity.kind.is_reference() && symbols.len() < SHORT;
            if entity.kind == Kind::Url || is_short {
                let tag = whole_values::tag_of(hasher, entity.kind, symbols);
                self.values.extend(tag.map(|tag| (tag, start as u32)));
            }
            if entity.kind.is_reference() && entity.kind != Kind::Email {
                self.references.push(start..end);
            } else if symbols.len() >= SHORT && !entity.kind.is_reference() {
                let span = Span { start: start as u32, end: end as u32, kind: entity.kind };
                // A random-looking part of a link belongs to its address.
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
                self.spans.push(span);
            }
        }
        if pieces::is_followed(leaf) {
            self.prose.push(leaf_start..text.symbols.len());
        }
    }
}
