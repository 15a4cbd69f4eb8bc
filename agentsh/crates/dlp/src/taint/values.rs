//! Whole values in arguments: links, and secrets and personal values that are too short for a fingerprint.

use std::ops::Range;

use super::findings::{ENTITY, Link, Search, characters, context};
use super::judge::Judge;
use super::leaves::Leaves;
use super::print::value_tag;
use super::symbols::{self, Folded};
use crate::Severity;
use agentsh_secrets::values::{self, Kind};

/// Bytes of the arguments in which values are named, and in which single words are looked up.
const MAX_NAMED: usize = 64 * 1024;
const MAX_WORDS: usize = 256 * 1024;

impl Judge {
    /// Links of a call that stood whole in a result.
    pub(super) fn links(&self, call: &Leaves<'_>) -> Vec<Link> {
        let mut links = Vec::new();
        let mut named = MAX_NAMED;
        let mut folded = Folded::default();
        for (leaf, item) in call.items.iter().enumerate() {
            if !item.text.contains("://") || item.text.len() > named {
                continue;
            }
            named -= item.text.len();
            for entity in values::find(&item.text, 256).into_iter().filter(|entity| entity.kind == Kind::Url)
            {
                let at = entity.start..entity.end;
                folded.clear();
                folded.push(item.text.get(at.clone()).unwrap_or_default());
                let tag = value_tag(&self.memory.hasher, Kind::Url, &folded.symbols);
                self.memory.values.find(tag, self.memory.floor(), |place| {
                    if let Some((origin, _)) = self.memory.entry_at(place) {
                        links.push(Link { leaf, at: at.clone(), origin });
                    }
                });
            }
        }
        links
    }

    /// Looks up every value and every short word.
    pub(super) fn words(&mut self, search: &mut Search<'_, '_>) {
        let call = search.call;
        let (mut named, mut split) = (MAX_NAMED, MAX_WORDS);
        let mut folded = std::mem::take(&mut self.single);
        for (at, leaf) in call.items.iter().enumerate() {
            if leaf.text.len() <= named {
                named -= leaf.text.len();
                for entity in values::find_sought(&leaf.text, 256) {
                    self.value(entity.kind, entity.start..entity.end, at, &leaf.text, &mut folded, search);
                }
            }
            if leaf.text.len() <= split {
                split -= leaf.text.len();
                for word in leaf.text.split(|character: char| {
                    character.is_whitespace()
                        || matches!(
                            character,
                            '"' | '\'' | '`' | ',' | ';' | '(' | ')' | '<' | '>' | '=' | ':'
                        )
                }) {
                    if (6..=20).contains(&word.len()) {
                        let start = word.as_ptr() as usize - leaf.text.as_ptr() as usize;
                        self.value(
                            Kind::HighEntropy,
                            start..start + word.len(),
                            at,
                            &leaf.text,
                            &mut folded,
                            search,
                        );
                    }
                }
            }
        }
        self.single = folded;
    }

    pub(super) fn value(
        &self,
        kind: Kind,
        range: Range<usize>,
        leaf: usize,
        text: &str,
        folded: &mut Folded,
        search: &mut Search<'_, '_>,
    ) {
        // A link, an address or an id is there to be used.
        if kind.is_reference() {
            return;
        }
        let value = text.get(range.clone()).unwrap_or_default();
        let mut buffer = [0; symbols::MAX_WORD];
        let symbols = symbols::of_word(value, &mut buffer).unwrap_or_else(|| {
            folded.clear();
            folded.push(value);
            &folded.symbols
        });
        if symbols.len() < 5 {
            return;
        }
        let tag = value_tag(&self.memory.hasher, kind, symbols);
        let count = symbols.len();
        self.found(kind, tag, count, range, leaf, text, search);
    }

    #[expect(clippy::too_many_arguments, reason = "they are a value and where it stands")]
    fn found(
        &self,
        kind: Kind,
        tag: u32,
        count: usize,
        range: Range<usize>,
        leaf: usize,
        text: &str,
        search: &mut Search<'_, '_>,
    ) {
        if !self.memory.values.may_have(tag) {
            return;
        }
        self.memory.values.find(tag, self.memory.floor(), |place| {
            if let Some((id, entry)) = self.memory.entry_at(place) {
                if kind == Kind::HighEntropy && search.is_in_link(leaf, &range, id) {
                    return;
                }
                let provenance = search.provenance(id, &entry.origin);
                let category = if kind == Kind::HighEntropy { "short-value" } else { kind.as_str() };
                let context = context(text, range.clone());
                let amount = characters(count as u32);
                search.push(ENTITY, category, Severity::High, leaf, context, provenance, Vec::new(), amount);
            }
        });
    }
}
