//! Near copies: neighbouring content words, which survive when a few words in between are changed.

use super::hash::{self, Hasher};
use super::symbols::Folded;

/// Longest text whose words are paired, in bytes: near copies are about documents, not dumps.
const MAX_TEXT: usize = 64 * 1024;
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
    let mut previous = 0_u64;
    let mut folded = Folded::default();
    let mut end = 0;
    for word in text.split(|character: char| !character.is_alphanumeric()) {
        if word.is_empty() {
            continue;
        }
        // The parts of an address or a path are no neighbours in a document.
        let start = word.as_ptr().addr() - text.as_ptr().addr();
        let gap = &text[end..start];
        end = start + word.len();
        if !gap.is_empty() && gap.bytes().all(|byte| b"/.:?&=#@%".contains(&byte)) {
            previous = 0;
        }
        if word.len() < MIN_WORD || is_common(word) {
            continue;
        }
        folded.clear();
        folded.push(word);
        if folded.symbols.len() < MIN_WORD {
            continue;
        }
        let hash = hasher.whole(&folded.symbols);
        if previous != 0 && previous != hash {
            let tag = hash::long(previous, hash);
            if tag & 0x100 == 0 {
                emit(tag);
            }
        }
        previous = hash;
    }
}

/// Letters and digits in words that mean something.
#[must_use]
pub(super) fn content_length(text: &str) -> usize {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|word| !is_common(word))
        .map(|word| word.chars().count())
        .sum()
}

fn is_common(word: &str) -> bool {
    use std::collections::HashSet;
    use std::sync::OnceLock;
    static WORDS: OnceLock<HashSet<&'static str>> = OnceLock::new();
    if word.len() > 10 || !word.is_ascii() {
        return false;
    }
    let mut lower = [0_u8; 10];
    for (slot, byte) in lower.iter_mut().zip(word.bytes()) {
        *slot = byte.to_ascii_lowercase();
    }
    let words = WORDS.get_or_init(|| COMMON.split_whitespace().collect());
    std::str::from_utf8(&lower[..word.len()]).is_ok_and(|word| words.contains(word))
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
