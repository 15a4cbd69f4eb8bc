//! The findings of one call, and how they are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::hits::{Hit, HitKind, Hits, MayNotFlow};
use super::leaves::Leaves;
use super::origin::{Origin, OriginId};
use super::plain_words;
use super::ranges::Ranges;
use super::symbols::Folded;
pub use crate::Severity;
use agentsh_secrets::values::Kind;
use agentsh_secrets::views::{Folding, folding};

pub const MARKER: &str = "taint-marker";
pub const ENTITY: &str = "taint-entity";
pub const FINGERPRINT: &str = "taint-fingerprint";
pub const DECODED: &str = "taint-decoded";
pub const SPLIT: &str = "taint-split";
pub const NEAR: &str = "taint-near";
pub const CELLS: &str = "taint-cells";
pub const COVERAGE: &str = "taint-coverage";
/// Bytes that cannot be read: they may be a copy or not.
pub const OPAQUE: &str = "taint-opaque";
/// The category of those that are a compressed file or stream.
pub const PACKED: &str = "packed";

/// Maximum number of findings of one category in one call: for data that leaves, and again for data that may go
/// there.
const MAX_FINDINGS: usize = 16;
/// Letters and digits of a passage outside common words.
const MIN_CONTENT: usize = 16;
/// Number of different letters and digits that a passage must have near its beginning.
const MIN_DISTINCT: usize = 7;
const MAX_COUNTED: usize = 4096;
/// Characters of context on each side.
const CONTEXT: usize = 50;

/// One piece of a result in the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One of `taint-marker`, `taint-entity`, `taint-fingerprint`, `taint-decoded`, `taint-split`, `taint-near`,
    /// `taint-cells`, `taint-coverage`, `taint-opaque`.
    pub rule: &'static str,
    /// The kind of value, or `passage`, `marker`, `near-copy`, `values`, `opaque`, `packed`.
    pub category: &'static str,
    pub severity: Severity,
    /// JSON pointer into the arguments; `tool` for the tool's name.
    pub pointer: String,
    /// The surrounding text, at most 50 characters on each side, with every letter as `x` and every digit as `0`.
    pub context: String,
    pub origin: OriginId,
    /// Decodings that led to it, outermost first.
    pub chain: Vec<&'static str>,
    /// The amount for people: `212 letters and digits`.
    pub amount: String,
}

pub type Findings = Vec<Finding>;

/// Leaves that were folded into one stream: where each begins, in symbols.
pub(super) type Bounds = Vec<(usize, usize)>;

/// The findings in one call so far.
pub(super) struct Search<'c, 'a> {
    pub call: &'c Leaves<'a>,
    pub found: Findings,
    pub leaving: MayNotFlow<'c>,
    /// Links that were whole in a result. A secret-looking part of one belongs to its address.
    pub links: Vec<Link>,
    /// Letters and digits of each result in the text that has most of them: the call, or what decodes from it.
    amounts: BTreeMap<OriginId, u32>,
    seen: BTreeSet<(&'static str, &'static str, OriginId, usize)>,
    counts: BTreeMap<Class, usize>,
}

/// A link in a leaf, in bytes, and a result that contained it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub leaf: usize,
    pub at: Range<usize>,
    pub origin: OriginId,
}

/// Findings of one class share a limit: the category, and whether it leaves. Findings that may leave cannot displace others.
type Class = (&'static str, bool);

/// A result that something came out of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Provenance {
    pub origin: OriginId,
    pub leaves: bool,
}

impl<'c, 'a> Search<'c, 'a> {
    pub fn new(call: &'c Leaves<'a>, leaving: MayNotFlow<'c>) -> Self {
        let (found, links, amounts) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { call, found, leaving, links, amounts, seen: BTreeSet::new(), counts: BTreeMap::new() }
    }

    /// Counts what one text has of each result.
    pub fn count(&mut self, hits: &[Hit]) {
        let mut found = BTreeMap::<OriginId, Ranges>::new();
        for hit in hits.iter().filter(|hit| hit.leaves) {
            found.entry(hit.origin).or_default().add(hit.start as u32..hit.end as u32);
        }
        for (origin, ranges) in found {
            let amount = self.amounts.entry(origin).or_default();
            *amount = ranges.len().max(*amount);
        }
    }

    /// The findings; those about copies contain the total amount of the result.
    pub fn finish(mut self) -> Findings {
        for finding in self.found.iter_mut().filter(|finding| finding.amount.is_empty()) {
            finding.amount = characters(self.amounts.get(&finding.origin).copied().unwrap_or_default());
        }
        self.found
    }

    /// Whether a range of a leaf is part of a link in that result.
    pub fn is_in_link(&self, leaf: usize, range: &Range<usize>, origin: OriginId) -> bool {
        self.links.iter().any(|link| {
            link.leaf == leaf
                && link.origin == origin
                && link.at.start <= range.start
                && range.end <= link.at.end
        })
    }

    pub fn provenance(&self, id: OriginId, origin: &Origin) -> Provenance {
        Provenance { origin: id, leaves: (self.leaving)(origin) }
    }

    /// More leaves than were examined: the data may come from any source.
    pub fn report_too_many_leaves(&mut self, hits: &Hits, leaf: usize, chain: Vec<&'static str>) {
        if let Some(origin) = hits.uncounted_result() {
            let (shown, provenance) =
                ("[more fragments than the limit]".to_owned(), Provenance { origin, leaves: true });
            let amount = "more fragments than the limit".to_owned();
            self.push(NEAR, "near-copy", Severity::Medium, leaf, shown, provenance, chain.clone(), amount);
        }
        if hits.is_full()
            && let Some(last) = hits.list.iter().rfind(|hit| hit.leaves)
        {
            let shown = "[more passages than the limit]".to_owned();
            let amount = String::new();
            self.push(FINGERPRINT, "passage", Severity::High, leaf, shown, last.provenance(), chain, amount);
        }
    }

    /// A hit in leaves that were folded into one stream.
    pub fn hit(&mut self, hit: &Hit, bounds: &Bounds) {
        let leaf_of = |position: usize| {
            let after = bounds.partition_point(|bound| bound.0 <= position);
            bounds.get(after.wrapping_sub(1)).copied().unwrap_or_default()
        };
        let ((begin, first), (_, last)) = (leaf_of(hit.start), leaf_of(hit.end.saturating_sub(1)));
        let is_whole = first == last;
        let rule = if is_whole { rule_name_severity(hit.what).0 } else { SPLIT };
        let text = &*self.call.items[first].text;
        self.report_passage(hit, rule, (text, first), (hit.start - begin, is_whole), None, Vec::new);
    }

    /// A hit in a text that decodes from a leaf.
    pub fn report_decoded_hit(
        &mut self,
        hit: &Hit,
        text: &str,
        leaf: usize,
        how: impl FnOnce() -> Vec<&'static str>,
    ) {
        // For example the link itself without its escapes.
        let whole = 0..self.call.items[leaf].text.len();
        self.report_passage(hit, DECODED, (text, leaf), (hit.start, true), Some(whole), how);
    }

    /// A hit in a text of a leaf, from this symbol on, `is_whole` when it ends there too. `link`: what of the leaf
    /// must be a link for it to be part of one, when that is not the passage itself.
    fn report_passage(
        &mut self,
        hit: &Hit,
        rule: &'static str,
        (text, leaf): (&str, usize),
        (start, is_whole): (usize, bool),
        link: Option<Range<usize>>,
        chain: impl FnOnce() -> Vec<&'static str>,
    ) {
        let (_, category, severity) = rule_name_severity(hit.what);
        let provenance = Provenance { origin: hit.origin, leaves: hit.leaves };
        // The text is searched once for each finding, not for each hit.
        if !self.is_new(rule, category, provenance, leaf) {
            return;
        }
        let range = byte_range(text, start, hit.end - hit.start);
        let link = link.as_ref().unwrap_or(&range);
        let is_of_link = || may_be_of_link(hit.what) && self.is_in_link(leaf, link, hit.origin);
        let is_empty = || {
            let passage = text.get(range.clone()).unwrap_or_default();
            hit.what == HitKind::Run && says_nothing(passage)
        };
        if !(is_whole && (is_of_link() || is_empty())) {
            let context = context(text, range);
            self.push(rule, category, severity, leaf, context, provenance, chain(), String::new());
        }
    }

    fn is_new(
        &self,
        rule: &'static str,
        category: &'static str,
        provenance: Provenance,
        leaf: usize,
    ) -> bool {
        self.has_room((category, provenance.leaves))
            && !self.seen.contains(&(rule, category, provenance.origin, leaf))
    }

    fn has_room(&self, class: Class) -> bool {
        self.counts.get(&class).is_none_or(|count| *count < MAX_FINDINGS)
    }

    /// `amount`: empty where [`Search::count`] says it.
    #[expect(clippy::too_many_arguments, reason = "they are the fields of one finding")]
    pub fn push(
        &mut self,
        rule: &'static str,
        category: &'static str,
        severity: Severity,
        leaf: usize,
        context: String,
        provenance: Provenance,
        chain: Vec<&'static str>,
        amount: String,
    ) {
        let Provenance { origin, leaves } = provenance;
        let class = (category, leaves);
        if self.has_room(class) && self.seen.insert((rule, category, origin, leaf)) {
            *self.counts.entry(class).or_default() += 1;
            let pointer = self.call.pointer(leaf);
            self.found.push(Finding { rule, category, severity, pointer, context, origin, chain, amount });
        }
    }
}

impl Hit {
    fn provenance(&self) -> Provenance {
        Provenance { origin: self.origin, leaves: self.leaves }
    }
}

/// Whether only its looks say that it is a secret. Links are left out of passages, except for secret-looking parts.
fn may_be_of_link(what: HitKind) -> bool {
    match what {
        HitKind::Run => true,
        HitKind::Value(kind) => kind == Kind::HighEntropy,
    }
}

fn rule_name_severity(what: HitKind) -> (&'static str, &'static str, Severity) {
    match what {
        HitKind::Run => (FINGERPRINT, "passage", Severity::High),
        HitKind::Value(kind) => {
            (ENTITY, kind.as_str(), if kind.is_secret() { Severity::Critical } else { Severity::High })
        }
    }
}

/// Common words, or a few characters repeated: such a passage identifies no source.
fn says_nothing(passage: &str) -> bool {
    let folded = folded_words(passage);
    let passage = folded.as_deref().unwrap_or(passage);
    let distinct: BTreeSet<char> = passage
        .chars()
        .filter(|character| character.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .take(MAX_COUNTED)
        .collect();
    distinct.len() < MIN_DISTINCT || plain_words::own_length(passage, MIN_CONTENT) < MIN_CONTENT
}

/// The passage with letters of other alphabets or in frames replaced by ASCII. None: it is ASCII already.
fn folded_words(passage: &str) -> Option<String> {
    if passage.is_ascii() {
        return None;
    }
    let mut words = String::with_capacity(passage.len());
    for character in passage.chars() {
        match folding(character) {
            _ if character.is_ascii() => words.push(character),
            Folding::Nothing if character.is_whitespace() => words.push(' '),
            Folding::Nothing => {}
            Folding::One(one) => words.push(one),
            Folding::Several(several) => words.push_str(several),
        }
    }
    Some(words)
}

/// The byte range of `count` symbols of `text` from `first` on.
fn byte_range(text: &str, first: usize, count: usize) -> Range<usize> {
    let start = byte_of(text, first).map_or(text.len(), |range| range.start);
    let end = byte_of(text, first + count.max(1) - 1).map_or(text.len(), |range| range.end);
    start.min(end)..end
}

/// The character that the `wanted`th symbol comes from.
fn byte_of(text: &str, wanted: usize) -> Option<Range<usize>> {
    // Bytes that are counted together, so that a long text is folded once and not for each of its characters.
    const BLOCK: usize = 1024;
    let mut folded = Folded::default();
    let mut counted = |text: &str| {
        folded.clear();
        folded.push(text);
        folded.symbols.len()
    };
    let (mut before, mut at) = (0, 0);
    while at < text.len() {
        let block = &text[at..text.floor_char_boundary(at + BLOCK)];
        let count = counted(block);
        if before + count > wanted {
            let mut buffer = [0; 4];
            for (offset, character) in block.char_indices() {
                before += counted(character.encode_utf8(&mut buffer));
                if before > wanted {
                    return Some(at + offset..at + offset + character.len_utf8());
                }
            }
        }
        before += count;
        at += block.len();
    }
    None
}

/// A number of letters and digits, for people.
pub(super) fn characters(count: u32) -> String {
    if count == 1 { "1 letter or digit".to_owned() } else { format!("{count} letters and digits") }
}

/// The shape of the text around a range: neighbours of a secret may be secrets, so none of their letters is shown.
pub(super) fn context(text: &str, range: Range<usize>) -> String {
    let shape = |character: char| match character {
        character if character.is_numeric() => '0',
        character if character.is_alphabetic() => 'x',
        '\n' | '\r' | '\t' => ' ',
        character if character.is_ascii_punctuation() || character == ' ' => character,
        _ => '?',
    };
    let before: Vec<char> =
        text.get(..range.start).unwrap_or_default().chars().rev().take(CONTEXT).map(shape).collect();
    let after: String = text.get(range.end..).unwrap_or_default().chars().take(CONTEXT).map(shape).collect();
    let count = text.get(range).unwrap_or_default().chars().count();
    format!("{}[{count} characters]{after}", before.iter().rev().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_short_patterns_carry_no_information() {
        for text in ["a".repeat(48), "0101 ".repeat(20), "abcabc-".repeat(9)] {
            assert!(says_nothing(&text), "{text}");
        }
        assert!(!says_nothing("the orchard at Lindenau goes to the Brandt family"));
    }

    #[test]
    fn byte_range_of_a_hit_covers_its_symbols() {
        let text = format!("{}Ünder - the éaves{}", "ab, ".repeat(700), " 12".repeat(500));
        let first = 1400;
        assert_eq!(&text[byte_range(&text, first, 13)], "Ünder - the éaves");
        assert_eq!(byte_range("short", 90, 3), 5..5);
    }
}
