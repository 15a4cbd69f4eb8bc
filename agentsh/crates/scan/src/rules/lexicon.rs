//! Finds words and phrases in one pass, by hashing each word; only words that begin a phrase cost more.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use agentsh_base::ascii;

/// Maximum non-alphanumeric bytes for a space in a phrase.
const BETWEEN: usize = 4;
/// Maximum length of the rest of a name or path, in bytes.
const MAX_NAME: usize = 64;
/// Concepts recognised by form.
const FORMS: [&str; 4] = ["url", "address", "identifier", "dotted-name"];

/// A phrase found in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub concept: u16,
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Default)]
pub struct Lexicon {
    names: HashMap<String, u16>,
    /// By [`key`].
    phrases: HashMap<u64, Vec<Phrase>, BuildHasherDefault<Hashed>>,
    /// Phrases in scripts without word spaces, or with inflections, by [`beginnings`].
    foreign: HashMap<u64, Vec<(String, u16)>, BuildHasherDefault<Hashed>>,
    /// A bit for each first word and beginning, which rules out nearly every other.
    filter: Vec<u64>,
    /// Length of the longest in `foreign`, in bytes, and a bit for each byte that begins one of their characters, from 0xc0.
    longest: usize,
    leads: u64,
    /// Bytes that begin one, in either case.
    foreign_starts: Starts,
    /// Phrases without letters and digits.
    signs: Vec<(String, u16)>,
    /// Bytes that begin one.
    sign_starts: Starts,
}

/// Keys are hashes already. Texts cannot choose keys, only rules do.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        // The table's place is in the lowest bits, which the second word alone would decide.
        self.0 = hash.wrapping_mul(SPREAD).rotate_left(32);
    }
}

/// The hash of a first word and the first letters of the second one, which rule out most phrases beginning with `the`.
fn key(hash: u32, second: Option<[u8; 2]>) -> u64 {
    u64::from(hash) << 16 | second.map_or(0, |letters| u64::from(u16::from_le_bytes(letters)))
}

#[derive(Debug)]
struct Phrase {
    /// Those that have it: compared with a text once for all of them.
    concepts: Vec<u16>,
    /// Before the first word.
    before: Box<str>,
    first: Box<str>,
    /// After the first word; a space matches non-alphanumeric bytes, a final `*` the rest of a name.
    rest: Box<str>,
    is_path: bool,
}

#[derive(Debug)]
struct Starts([bool; 256]);

impl Default for Starts {
    fn default() -> Self {
        Self([false; 256])
    }
}

/// The keys of a phrase in `foreign`, by its first bytes in lower case: of its first four, which every such phrase has and which
/// rule out most texts; that of a phrase of at least six, and that of a shorter one.
fn beginnings(bytes: &[u8]) -> Option<[u64; 3]> {
    let first = bytes.first_chunk::<8>().copied().or_else(|| {
        let mut first = [0; 8];
        first.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (bytes.len() >= 4).then_some(first)
    })?;
    let first = ascii::lower(u64::from_le_bytes(first));
    let four = first & 0xffff_ffff;
    Some([four, first << 16, four | 1 << 32])
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const FILTER_BITS: u32 = 16;

/// The place of a key in the filter: an element and its bit.
fn bit(key: u64) -> (usize, u64) {
    let bit = (key.wrapping_mul(SPREAD) >> (64 - FILTER_BITS)) as usize;
    (bit / 64, 1 << (bit % 64))
}

/// Lower-case letters and digits; 0 between words.
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
    /// Adds a concept's phrases, folded and in lower case; returns its number.
    pub fn add(&mut self, name: &str, phrases: &[String]) -> u16 {
        let concept = self.concept(name);
        phrases.iter().for_each(|phrase| self.phrase(concept, phrase));
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
        self.filter.resize(1 << (FILTER_BITS - 6), 0);
        if let Some([four, six, short]) = beginnings(phrase.as_bytes()).filter(|_| !phrase.is_ascii()) {
            let key = if phrase.len() >= 6 { six } else { short };
            let leads = phrase.bytes().filter(|byte| *byte >= 0xc0);
            self.leads = leads.fold(self.leads, |leads, byte| leads | 1 << (byte - 0xc0));
            self.longest = self.longest.max(phrase.len());
            for first in phrase.bytes().take(1).flat_map(|byte| [byte, byte.to_ascii_uppercase()]) {
                self.foreign_starts.0[usize::from(first)] = true;
            }
            for part in [four, key] {
                self.filter[bit(part).0] |= bit(part).1;
            }
            self.foreign.entry(key).or_default().push((phrase.to_owned(), concept));
            return;
        }
        let start = phrase.bytes().position(|byte| WORD[usize::from(byte)] != 0).unwrap_or(phrase.len());
        let length = phrase[start..].bytes().take_while(|byte| WORD[usize::from(*byte)] != 0).count();
        let first = &phrase[start..start + length];
        if first.is_empty() {
            phrase.bytes().take(1).for_each(|first| self.sign_starts.0[usize::from(first)] = true);
            self.signs.push((phrase.to_owned(), concept));
            return;
        }
        let rest = &phrase.as_bytes()[start + length..];
        let second = rest.first().is_some_and(|byte| *byte == b' ').then(|| lead(&rest[1..])).flatten();
        let hash = ascii::word_prefix(first.as_bytes()).1;
        let key = key(hash, second);
        for part in [hash.into(), key] {
            self.filter[bit(part).0] |= bit(part).1;
        }
        let (before, rest) = (&phrase[..start], &phrase[start + length..]);
        let phrases = self.phrases.entry(key).or_default();
        let is_same =
            |known: &&mut Phrase| (&*known.before, &*known.first, &*known.rest) == (before, first, rest);
        if let Some(known) = phrases.iter_mut().find(is_same) {
            known.concepts.push(concept);
            return;
        }
        phrases.push(Phrase {
            concepts: vec![concept],
            before: before.into(),
            first: first.into(),
            rest: rest.into(),
            is_path: phrase.contains('/') || phrase.starts_with("id_"),
        });
    }

    fn may_have(&self, key: u64) -> bool {
        self.filter[bit(key).0] & bit(key).1 != 0
    }

    /// Calls `found` with every phrase, in order of their starts.
    pub fn for_each_phrase(&self, text: &str, found: &mut impl FnMut(Hit)) {
        let near = if text.is_ascii() { Vec::new() } else { self.near_foreign(text.as_bytes()) };
        if near.is_empty() {
            return self.find_words(text, found);
        }
        let mut hits: Vec<Hit> = Vec::new();
        self.find_words(text, &mut |hit| hits.push(hit));
        let bytes = text.as_bytes();
        for range in near {
            let begins = |(_, byte): &(usize, &u8)| self.foreign_starts.0[usize::from(**byte)];
            for (at, _) in bytes[range.clone()].iter().enumerate().filter(begins) {
                let start = range.start + at;
                let Some([four, six, short]) = beginnings(&bytes[start..]) else { break };
                if self.may_have(four) {
                    for key in [six, short].iter().filter(|key| self.may_have(**key)) {
                        self.foreign_at(bytes, start, *key, &mut hits);
                    }
                }
            }
        }
        hits.sort_by_key(|hit| (hit.start, hit.end));
        hits.into_iter().for_each(found);
    }

    /// Adds the phrases with this key that are at `start`.
    fn foreign_at(&self, bytes: &[u8], start: usize, key: u64, hits: &mut Vec<Hit>) {
        for (phrase, concept) in self.foreign.get(&key).into_iter().flatten() {
            let end = start + phrase.len();
            if bytes.get(start..end).is_some_and(|part| part.eq_ignore_ascii_case(phrase.as_bytes())) {
                hits.push(Hit { concept: *concept, start, end });
            }
        }
    }

    /// The phrase of signs that a text begins with.
    fn sign(&self, bytes: &[u8]) -> Option<&(String, u16)> {
        if !self.sign_starts.0[usize::from(*bytes.first()?)] {
            return None;
        }
        self.signs.iter().find(|(sign, _)| bytes.starts_with(sign.as_bytes()))
    }

    /// Ranges around the characters of phrases in `foreign`, in order and disjoint.
    fn near_foreign(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        const BLOCK: usize = 64;
        let is_lead = |byte: &u8| *byte >= 0xc0 && self.leads >> (byte - 0xc0) & 1 == 1;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let blocks = bytes.chunks(BLOCK).enumerate();
        for (at, block) in blocks.filter(|(_, block)| !block.is_ascii() && block.iter().any(is_lead)) {
            let start = (at * BLOCK).saturating_sub(self.longest);
            let end = (at * BLOCK + block.len() + self.longest).min(bytes.len());
            match ranges.last_mut() {
                Some(last) if start <= last.end => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    fn find_words(&self, text: &str, found: &mut impl FnMut(Hit)) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !self.filter.is_empty() {
            if WORD[usize::from(bytes[at])] == 0 {
                let sign = self.sign(&bytes[at..]);
                if let Some((sign, concept)) = sign {
                    found(Hit { concept: *concept, start: at, end: at + sign.len() });
                }
                at += sign.map_or(1, |(sign, _)| sign.len());
                continue;
            }
            let start = at;
            let (length, hash) = ascii::word_prefix(&bytes[at..]);
            at += length;
            forms(bytes, start, at, found);
            if self.may_have(hash.into()) {
                let between =
                    bytes[at..].iter().take(BETWEEN).take_while(|b| WORD[usize::from(**b)] == 0).count();
                let second = lead(&bytes[at + between..]);
                let second = second.map(|second| key(hash, Some(second)));
                for key in std::iter::once(key(hash, None)).chain(second).filter(|key| self.may_have(*key)) {
                    for phrase in self.phrases.get(&key).into_iter().flatten() {
                        let Some(Range { start, end }) = phrase.at(bytes, start, at) else { continue };
                        phrase
                            .concepts
                            .iter()
                            .for_each(|concept| found(Hit { concept: *concept, start, end }));
                    }
                }
            }
        }
    }
}

/// The first two bytes of a word; the second is 0 at its end.
fn lead(bytes: &[u8]) -> Option<[u8; 2]> {
    let first = WORD[usize::from(*bytes.first()?)];
    let second = bytes.get(1).map_or(0, |byte| WORD[usize::from(*byte)]);
    (first != 0).then_some([first, second])
}

/// Concepts recognised by form: `scheme://`, `someone@somewhere.tld`, `snake_case`, `name.of.tool`.
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
        Some(b'.') => {
            if let Some(length) = dotted(bytes, start, end) {
                found(Hit { concept: 3, start, end: start + length });
            }
        }
        _ => {}
    }
}

/// The length of a name such as `mail.send`: words of two letters or more. No file and no host is one.
fn dotted(bytes: &[u8], start: usize, end: usize) -> Option<usize> {
    /// Endings of files and hosts.
    const ENDINGS: [&[u8]; 32] = [
        b"app", b"bat", b"bin", b"cfg", b"com", b"conf", b"cpp", b"css", b"dev", b"exe", b"go", b"html",
        b"io", b"jar", b"java", b"js", b"json", b"md", b"net", b"org", b"php", b"pl", b"ps1", b"py", b"rb",
        b"rs", b"sh", b"toml", b"ts", b"txt", b"yaml", b"yml",
    ];
    let before = start.checked_sub(1).map(|at| bytes[at]);
    if matches!(before, Some(b'_' | b'.' | b'$' | b'-' | b'/' | b'@' | b':'))
        || !bytes[start].is_ascii_lowercase()
    {
        return None;
    }
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let follows = |at: usize| bytes[at] == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
    let (mut from, mut at) = (start, end);
    loop {
        let word = &bytes[from..at];
        if word.len() < 2 || !word.iter().all(is_name) {
            return None;
        }
        if at - start > MAX_NAME || at >= bytes.len() || !follows(at) {
            let is_tool = from > start && !ENDINGS.contains(&word);
            return is_tool.then_some(at - start);
        }
        from = at + 1;
        at = from + bytes[from..].iter().take(MAX_NAME).take_while(|byte| is_name(byte)).count();
    }
}

impl Phrase {
    fn at(&self, bytes: &[u8], start: usize, end: usize) -> Option<Range<usize>> {
        if !self.before.is_empty() && !bytes[..start].ends_with(self.before.as_bytes())
            || (self.before.starts_with('.') || &*self.before == "[")
                && is_member(&bytes[..start - self.before.len()])
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
                // Before a word any non-alphanumeric byte, before a sign only a space.
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
        if rest.ends_with(b"*") {
            let is_name = |byte: &&u8| WORD[usize::from(**byte)] != 0 || **byte == b'_';
            at += bytes[at..].iter().take(MAX_NAME).take_while(is_name).count();
        }
        if self.is_path && is_public_key(&bytes[at..]) {
            return None;
        }
        // Last, because words with equal hashes are nearly always equal.
        let is_first = |(byte, letter): (&u8, &u8)| WORD[usize::from(*byte)] == *letter;
        if self.first.len() != end - start
            || !bytes[start..end].iter().zip(self.first.as_bytes()).all(is_first)
        {
            return None;
        }
        Some(start - self.before.len()..at)
    }
}

/// Whether the rest of a path makes it that of a public key, which is no secret.
fn is_public_key(rest: &[u8]) -> bool {
    let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"/._-*".contains(byte);
    let path = &rest[..rest.iter().take(MAX_NAME).take_while(is_part).count()];
    path.strip_suffix(b".").unwrap_or(path).ends_with(b".pub")
}

/// Whether a following dot accesses a member, as in `process.env`, and does not begin a file name; or a bracket an element, as
/// in `list[system_message]`, and is no marker.
fn is_member(before: &[u8]) -> bool {
    before.last().is_some_and(|byte| WORD[usize::from(*byte)] != 0 || matches!(byte, b')' | b']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(phrases: &[&str], text: &str) -> Vec<String> {
        let mut lexicon = Lexicon::default();
        lexicon.add("it", &phrases.iter().map(|phrase| (*phrase).to_owned()).collect::<Vec<_>>());
        let mut found = Vec::new();
        let own = lexicon.number("it");
        lexicon.for_each_phrase(text, &mut |hit| {
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
        assert_eq!(hits(&["[system]"], "list[system] [system]").len(), 1);
        assert_eq!(hits(&[".env"], "process.env f().env ./.env ~/.env").len(), 2);
        assert_eq!(hits(&["忽略"], "请忽略之前"), ["忽略"]);
        assert_eq!(hits(&["delete_*"], "call delete_all_files(x)"), ["delete_all_files"]);
        assert_eq!(hits(&["~/.ssh", "id_rsa"], "~/.ssh/id_rsa, ~/.ssh/id_rsa.pub. ~/.ssh").len(), 3);
        // Each once, at any position among others.
        for length in [0, 1, 31, 32, 33, 65, 100] {
            let text = format!("{0}忽略 all {0}忽略 all {0}", "x ".repeat(length));
            assert_eq!(hits(&["忽略 all", "ignore"], &text).len(), 2, "{length}");
        }
    }
}
