//! Near copies: neighbouring content words, which survive when a few words in between are changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::OnceLock;

use super::findings::{NEAR, Search};
use super::hash::{self, Hasher};
use super::judge::{Judge, Severity};
use super::leaves::Role;
use super::memory::OriginId;
use super::pieces::is_piece;
use super::plain_words;
use super::spread;
use super::symbols::{self, Folded};
use agentsh_base::ascii::{self, Outlines};

/// Longest text whose words are paired, in bytes: near copies are about documents, not dumps.
const MAX_TEXT: usize = 64 * 1024;
/// A near copy shares so many pairs of words, and so many of a hundred.
const NEAR_PAIRS: u32 = 5;
const NEAR_SHARE: u32 = 35;
/// Shortest content word, in symbols.
const MIN_WORD: usize = 4;

/// Words without a meaning of their own, and words of formats and languages of programs. Folded as symbols are.
const COMMON: &str = "about after also another been before being between both could does doing done each from have having here \
into itself just like made make many more most much must only other over same should since some such than that their them then there \
these they this those through under until upon very want were what when where which while will with within would your yours \
true false null none import from export return const class function public private static void async await default require module \
include define struct self this else elif except finally raise throw while switch case break continue lambda yield print \
string integer number boolean object array list dict type name value data json path pathlib sys logging http https html head body div span \
meta link script style href charset utf viewport width device initial scale content title text select where order group table insert \
update delete create values limit join inner left right null primary foreign index";

/// Calls `emit` with the tag of each pair of content words that follow each other; half of the pairs, the same half
/// everywhere.
pub(super) fn pairs(hasher: &Hasher, text: &str, mut emit: impl FnMut(u32)) {
    if text.len() > MAX_TEXT {
        return;
    }
    let common = common();
    let (mut previous, mut was_plain) = (0_u64, false);
    let mut end = 0;
    while let Some(range) = next_word(text, end) {
        let (gap, word) = (&text[end..range.start], &text[range.clone()]);
        end = range.end;
        // The parts of an address or a path are no neighbours in a document.
        if !gap.is_empty() && gap.bytes().all(|byte| b"/.:?&=#@%".contains(&byte)) {
            previous = 0;
        }
        if word.len() < MIN_WORD || common.has(word) {
            continue;
        }
        let Some(hash) = word_hash(hasher, word) else { continue };
        let is_plain = plain_words::is_plain(word);
        // Two words of messages and of code side by side are in every one of them.
        if previous != 0 && previous != hash && !(was_plain && is_plain) {
            // In either order: who swaps two words says the same.
            let tag = hash::long(previous.min(hash), previous.max(hash));
            if tag & 0x100 == 0 {
                emit(tag);
            }
        }
        (previous, was_plain) = (hash, is_plain);
    }
}

/// The letters and digits in a row that come first from `at` on.
fn next_word(text: &str, mut at: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let start = loop {
        match bytes.get(at)? {
            byte if byte.is_ascii_alphanumeric() => break at,
            byte if byte.is_ascii() => at += 1,
            _ => match wide(text, at) {
                (_, true) => break at,
                (length, false) => at += length,
            },
        }
    };
    loop {
        at += ascii::letters(&bytes[at..]);
        match bytes.get(at) {
            Some(byte) if byte.is_ascii_digit() => at += 1,
            Some(byte) if !byte.is_ascii() && wide(text, at).1 => at += wide(text, at).0,
            _ => return Some(start..at),
        }
    }
}

/// How long the character at `at` is, and whether it is a letter or a digit.
fn wide(text: &str, at: usize) -> (usize, bool) {
    text[at..].chars().next().map_or((1, false), |one| (one.len_utf8(), one.is_alphanumeric()))
}

fn word_hash(hasher: &Hasher, word: &str) -> Option<u64> {
    let mut buffer = [0; symbols::MAX_WORD];
    if let Some(symbols) = symbols::of_word(word, &mut buffer) {
        return (symbols.len() >= MIN_WORD).then(|| hasher.whole(symbols));
    }
    let folded = Folded::of(word);
    (folded.symbols.len() >= MIN_WORD).then(|| hasher.whole(&folded.symbols))
}

/// Whether a word has no meaning of its own.
#[must_use]
pub(super) fn is_common(word: &str) -> bool {
    common().has(word)
}

/// The longest of [`COMMON`].
const MAX_LENGTH: usize = 10;

/// [`COMMON`], each word as a number, in order.
struct Common {
    outlines: Outlines,
    numbers: Vec<u128>,
}

fn common() -> &'static Common {
    static WORDS: OnceLock<Common> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mut numbers: Vec<u128> = COMMON.split_whitespace().map(|word| number(word.as_bytes())).collect();
        numbers.sort_unstable();
        let mut outlines = Outlines::new();
        COMMON.split_whitespace().for_each(|word| outlines.add(word.as_bytes()));
        Common { outlines, numbers }
    })
}

impl Common {
    fn has(&self, word: &str) -> bool {
        word.len() <= MAX_LENGTH
            && self.outlines.may_have(word.as_bytes())
            && self.numbers.binary_search(&number(word.as_bytes())).is_ok()
    }
}

/// The bytes of a word, small letters for capitals. No two words have the same: none is longer than [`MAX_LENGTH`].
fn number(word: &[u8]) -> u128 {
    word.iter().fold(0, |number, byte| number << 8 | u128::from(byte.to_ascii_lowercase()))
}

impl Judge {
    /// Neighbouring content words that one result has, too. Gives the pairs that no result has any of.
    pub(super) fn near(&mut self, search: &mut Search<'_, '_>) -> Vec<u32> {
        let mut votes: BTreeMap<OriginId, BTreeSet<u32>> = BTreeMap::new();
        let mut total = Vec::new();
        let call = search.call;
        for leaf in call.items.iter().filter(|leaf| leaf.role == Role::Text) {
            pairs(&self.memory.hasher, &leaf.text, |tag| {
                total.push(tag);
                if self.memory.pairs.may_have(tag) {
                    self.memory.pairs.find(tag, self.memory.floor(), |place| {
                        if let Some((origin, _)) = self.memory.entry_at(place) {
                            votes.entry(origin).or_default().insert(tag);
                        }
                    });
                }
            });
        }
        total.sort_unstable();
        total.dedup();
        self.spread.begin();
        if votes.is_empty() {
            return total;
        }
        let leaf = call.items.iter().position(|leaf| leaf.role == Role::Text).unwrap_or(0);
        for (origin, tags) in votes {
            let Some(entry) = self.memory.entry(origin) else { continue };
            let known = u32::from(entry.pairs);
            let (shared, all) = (tags.len() as u32, (total.len() as u32).min(known));
            let mut is_new = false;
            if (search.leaving)(&entry.origin) {
                for tag in tags {
                    is_new |= self.spread.note(origin, tag);
                }
            }
            let over_calls = self.spread.count(origin);
            if shared >= NEAR_PAIRS && shared * 100 >= all * NEAR_SHARE {
                let shown = format!("[{shared} pairs of words]");
                let provenance = search.provenance(origin, &entry.origin);
                search.push(NEAR, "near-copy", Severity::Medium, leaf, shown, provenance, Vec::new(), false);
            } else if is_new
                && over_calls >= spread::MANY
                && over_calls * 100 >= known as usize * spread::SHARE
            {
                let shown = format!("[{over_calls} pairs of words over all calls]");
                let provenance = search.provenance(origin, &entry.origin);
                search.push(NEAR, "near-copy", Severity::Medium, leaf, shown, provenance, Vec::new(), false);
            }
        }
        Vec::new()
    }

    /// Notes pairs and pieces as sent that an earlier session sent.
    pub(super) fn restore_pairs(&mut self, tags: &[u32]) {
        let (pieces, pairs): (Vec<u32>, Vec<u32>) = tags.iter().partition(|tag| is_piece(**tag));
        for tag in pairs.iter().filter(|tag| self.memory.pairs.may_have(**tag)) {
            self.memory.pairs.find(*tag, self.memory.floor(), |place| {
                if let Some((origin, _)) = self.memory.entry_at(place) {
                    self.spread.note(origin, *tag);
                }
            });
        }
        self.memory.restore_pieces(&pieces, OriginId(0));
        self.spread.begin();
        self.memory.pieces.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        // Half of the pairs count, another half for each key.
        let of = |key: u8| {
            let mut found = 0;
            pairs(&Hasher::new(&[key; 32]), text, |_| found += 1);
            found
        };
        (0..32).map(of).sum()
    }

    #[test]
    fn documents_have_pairs_and_addresses_have_none() {
        assert!(count("The budget review covers supply planning and regional invoices") > 32);
        assert!(count("{\"region\":\"northern\",\"status\":\"delayed\"}") > 0);
        assert_eq!(count("https://raw.githubusercontent.com/acme/tools/scripts/install.sh?branch=stable"), 0);
    }
}
