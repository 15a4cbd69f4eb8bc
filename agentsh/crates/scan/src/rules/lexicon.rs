//! Words and phrases, found in one pass. Each word of the text is hashed while it is read; only those that begin a
//! phrase cost more.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use agentsh_base::ascii;
use aho_corasick::{AhoCorasick, Input};

use crate::views;

/// Bytes of anything but letters and digits that a space in a phrase stands for, at most.
const BETWEEN: usize = 4;
/// Concepts that are recognised by form.
const FORMS: [&str; 3] = ["url", "address", "identifier"];

/// A phrase at a place of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub concept: u16,
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Default)]
pub struct Lexicon {
    names: HashMap<String, u16>,
    /// By the hash of their first word.
    phrases: HashMap<u32, Vec<Phrase>, BuildHasherDefault<Hashed>>,
    /// One bit for each possible beginning: nearly every word is told from them by that.
    filter: Vec<u64>,
    /// Phrases in scripts that have no words between spaces, or endings that change.
    foreign: Vec<(String, u16)>,
    automaton: Option<AhoCorasick>,
    /// Bytes of the longest of them.
    longest: usize,
    /// Phrases without a letter or digit; there are few.
    signs: Vec<(String, u16)>,
}

/// What is a hash already. The words of a text choose no key: those of the rules are all that there are.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u32(&mut self, hash: u32) {
        self.0 = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Debug)]
struct Phrase {
    concept: u16,
    /// The first two letters of the second word: most phrases that begin with `the` are told from a text by that.
    second: Option<[u8; 2]>,
    /// What stands in front of the first word.
    before: Box<str>,
    first: Box<str>,
    /// From the end of the first word on; a space stands for anything but letters and digits, `*` at the end for
    /// the rest of a word.
    rest: Box<str>,
}

const FILTER_BITS: u32 = 16;

/// Lower-case letters and digits; 0 for what stands between words.
static WORD: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let small = (byte as u8).to_ascii_lowercase();
        if small.is_ascii_alphanumeric() || byte >= 0x80 {
            table[byte] = small;
        }
        byte += 1;
    }
    table
};

impl Lexicon {
    /// Adds phrases to a concept, and gives its number.
    pub fn add(&mut self, name: &str, phrases: &[String]) -> u16 {
        let concept = self.concept(name);
        for phrase in phrases {
            let small = phrase.to_lowercase();
            if small.is_ascii() {
                self.phrase(concept, &small);
            } else {
                self.phrase(concept, &views::folded(&small).text.to_lowercase());
            }
        }
        concept
    }

    fn concept(&mut self, name: &str) -> u16 {
        let next = u16::try_from(self.names.len() + FORMS.len()).unwrap_or(u16::MAX);
        *self.names.entry(name.to_owned()).or_insert(next)
    }

    #[must_use]
    pub fn number(&self, name: &str) -> Option<u16> {
        let form = FORMS.iter().position(|form| *form == name).and_then(|at| u16::try_from(at).ok());
        form.or_else(|| self.names.get(name).copied())
    }

    fn phrase(&mut self, concept: u16, phrase: &str) {
        if !phrase.is_ascii() {
            self.foreign.push((phrase.to_owned(), concept));
            return;
        }
        let start = phrase.bytes().position(|byte| WORD[usize::from(byte)] != 0).unwrap_or(phrase.len());
        let length = phrase[start..].bytes().take_while(|byte| WORD[usize::from(*byte)] != 0).count();
        let first = &phrase[start..start + length];
        if first.is_empty() {
            self.signs.push((phrase.to_owned(), concept));
            return;
        }
        let rest = &phrase.as_bytes()[start + length..];
        let second = rest.first().is_some_and(|byte| *byte == b' ').then(|| lead(&rest[1..])).flatten();
        self.phrases.entry(ascii::word(first.as_bytes()).1).or_default().push(Phrase {
            concept,
            second,
            before: phrase[..start].into(),
            first: first.into(),
            rest: phrase[start + length..].into(),
        });
    }

    /// After the last phrase.
    pub fn close(&mut self) {
        self.filter = vec![0; 1 << (FILTER_BITS - 6)];
        for hash in self.phrases.keys() {
            let bit = (hash >> (32 - FILTER_BITS)) as usize;
            self.filter[bit / 64] |= 1 << (bit % 64);
        }
        self.longest = self.foreign.iter().map(|(phrase, _)| phrase.len()).max().unwrap_or_default();
        if !self.foreign.is_empty() {
            self.automaton = AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .build(self.foreign.iter().map(|(phrase, _)| phrase))
                .ok();
        }
    }

    /// Calls `found` with every phrase, in the order of their starts.
    pub fn each(&self, text: &str, found: &mut impl FnMut(Hit)) {
        let signs = || {
            self.signs.iter().flat_map(|(sign, concept)| {
                let places = memchr::memmem::find_iter(text.as_bytes(), sign.as_bytes());
                places.map(|start| Hit { concept: *concept, start, end: start + sign.len() })
            })
        };
        if text.is_ascii() && signs().next().is_none() {
            self.words(text, found);
            return;
        }
        // All kinds in the order in which they stand.
        let mut hits: Vec<Hit> = signs().collect();
        self.words(text, &mut |hit| hits.push(hit));
        if let Some(automaton) = &self.automaton {
            for near in near_others(text.as_bytes(), self.longest) {
                let near = Input::new(text.as_bytes()).range(near);
                hits.extend(automaton.find_overlapping_iter(near).filter_map(|place| {
                    let (_, concept) = self.foreign.get(place.pattern().as_usize())?;
                    Some(Hit { concept: *concept, start: place.start(), end: place.end() })
                }));
            }
        }
        hits.sort_by_key(|hit| (hit.start, hit.end));
        hits.into_iter().for_each(found);
    }

    fn words(&self, text: &str, found: &mut impl FnMut(Hit)) {
        let bytes = text.as_bytes();
        if self.filter.is_empty() {
            return;
        }
        let mut at = 0;
        while at < bytes.len() {
            if WORD[usize::from(bytes[at])] == 0 {
                at += 1;
                continue;
            }
            let start = at;
            let (length, hash) = ascii::word(&bytes[at..]);
            at += length;
            forms(bytes, start, at, found);
            let bit = (hash >> (32 - FILTER_BITS)) as usize;
            if self.filter[bit / 64] >> (bit % 64) & 1 != 0
                && let Some(phrases) = self.phrases.get(&hash)
            {
                let between =
                    bytes[at..].iter().take(BETWEEN).take_while(|b| WORD[usize::from(**b)] == 0).count();
                let second = lead(&bytes[at + between..]);
                for phrase in phrases {
                    if phrase.second.is_some() && phrase.second != second {
                        continue;
                    }
                    if let Some(hit) = phrase.at(bytes, start, at) {
                        found(hit);
                    }
                }
            }
        }
    }
}

/// What stands at most so many bytes from a byte that is not ASCII: ranges in order, none next to another.
fn near_others(bytes: &[u8], distance: usize) -> Vec<Range<usize>> {
    const BLOCK: usize = 64;
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (at, block) in bytes.chunks(BLOCK).enumerate().filter(|(_, block)| !block.is_ascii()) {
        let start = (at * BLOCK).saturating_sub(distance);
        let end = (at * BLOCK + block.len() + distance).min(bytes.len());
        match ranges.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// The first two bytes of a word, the second one 0 where it ends.
fn lead(bytes: &[u8]) -> Option<[u8; 2]> {
    let first = WORD[usize::from(*bytes.first()?)];
    let second = bytes.get(1).map_or(0, |byte| WORD[usize::from(*byte)]);
    (first != 0).then_some([first, second])
}

/// What is recognised by its form: `scheme://`, `someone@somewhere.tld`, `snake_case`.
#[inline]
fn forms(bytes: &[u8], start: usize, end: usize, found: &mut impl FnMut(Hit)) {
    match bytes.get(end) {
        Some(b':') if bytes[end..].starts_with(b"://") => {
            let length = bytes[end..].iter().take(256).take_while(|b| !b.is_ascii_whitespace()).count();
            if length > 6 {
                found(Hit { concept: 0, start, end: end + length.min(60) });
            }
        }
        Some(b'@') => {
            let rest = &bytes[end + 1..];
            let host = rest
                .iter()
                .take(100)
                .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
                .count();
            if rest[..host].iter().position(|byte| *byte == b'.').is_some_and(|dot| dot > 0 && dot + 2 < host)
            {
                found(Hit { concept: 1, start, end: end + 1 + host });
            }
        }
        Some(b'_') if bytes.get(end + 1).is_some_and(u8::is_ascii_alphabetic) => {
            let before = start.checked_sub(1).map(|at| bytes[at]);
            if bytes[start].is_ascii_lowercase() && !matches!(before, Some(b'_' | b'.' | b'$' | b'-')) {
                let rest = bytes[end..].iter().take(64);
                let length = rest.take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
                found(Hit { concept: 2, start, end: end + length });
            }
        }
        _ => {}
    }
}

impl Phrase {
    fn at(&self, bytes: &[u8], start: usize, end: usize) -> Option<Hit> {
        if !bytes[start..end].eq_ignore_ascii_case(self.first.as_bytes())
            || !self.before.is_empty() && !bytes[..start].ends_with(self.before.as_bytes())
            || self.before.starts_with('.') && is_member(&bytes[..start - self.before.len()])
        {
            return None;
        }
        let mut at = end;
        let rest = self.rest.as_bytes();
        let mut in_word = true;
        for (step, &byte) in rest.iter().enumerate() {
            if byte == b'*' {
                in_word = false;
                continue;
            }
            if byte == b' ' {
                // In front of a word anything but letters and digits, in front of a sign only space.
                let is_word = rest.get(step + 1).is_some_and(|next| WORD[usize::from(*next)] != 0);
                let is_between = |byte: &&u8| {
                    if is_word { WORD[usize::from(**byte)] == 0 } else { byte.is_ascii_whitespace() }
                };
                let between = bytes[at..].iter().take(BETWEEN + 1).take_while(is_between).count();
                if between == 0 || between > BETWEEN {
                    return None;
                }
                at += between;
                in_word = false;
                continue;
            }
            if bytes.get(at)?.to_ascii_lowercase() != byte {
                return None;
            }
            at += 1;
            in_word = WORD[usize::from(byte)] != 0;
        }
        if in_word && bytes.get(at).is_some_and(|byte| WORD[usize::from(*byte)] != 0) {
            return None;
        }
        Some(Hit { concept: self.concept, start: start - self.before.len(), end: at })
    }
}

/// Whether a dot behind it asks for a member, as in `process.env`, and does not begin the name of a file.
fn is_member(before: &[u8]) -> bool {
    before.last().is_some_and(|byte| WORD[usize::from(*byte)] != 0 || matches!(byte, b')' | b']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(phrases: &[&str], text: &str) -> Vec<String> {
        let mut lexicon = Lexicon::default();
        lexicon.add("it", &phrases.iter().map(|phrase| (*phrase).to_owned()).collect::<Vec<_>>());
        lexicon.close();
        let mut found = Vec::new();
        let own = lexicon.number("it");
        lexicon.each(text, &mut |hit| {
            if Some(hit.concept) == own {
                found.push(text[hit.start..hit.end].to_owned());
            }
        });
        found
    }

    #[test]
    fn phrases_are_found_as_words() {
        assert_eq!(hits(&["ignore"], "Ignore ignored IGNORE-it"), ["Ignore", "IGNORE"]);
        assert_eq!(hits(&["system override"], "system_override SYSTEM\n  OVERRIDE systemoverride").len(), 2);
        assert_eq!(
            hits(&[".env", "<important>", "don't tell"], "a .env x.environment <IMPORTANT> don't tell env"),
            [".env", "<IMPORTANT>", "don't tell"]
        );
        assert_eq!(hits(&[".env"], "process.env f().env ./.env ~/.env").len(), 2);
        assert_eq!(hits(&["忽略"], "请忽略之前"), ["忽略"]);
        // Once each, wherever it stands among others.
        for length in [0, 1, 31, 32, 33, 65, 100] {
            let text = format!("{0}忽略 all {0}忽略 all {0}", "x ".repeat(length));
            assert_eq!(hits(&["忽略 all", "ignore"], &text).len(), 2, "{length}");
        }
    }
}
