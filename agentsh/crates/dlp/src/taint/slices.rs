//! Short pieces of a secret: six symbols with a digit or an inner capital occur in no other text by chance.

use std::collections::BTreeMap;

use super::hash::{self, Hasher};
use super::symbols::Folded;
use agentsh_secrets::values::Kind;

/// Symbols of a piece.
pub(super) const SLICE: usize = 6;
/// The least number of marks and symbols of a secret: a piece of a shorter one may be an ordinary word.
const MIN_MARKS: usize = 3;
const MIN_SECRET: usize = 10;
/// Symbols of a secret that count.
const MAX_SECRET: usize = 512;
/// Maximum number of places of one piece in one secret.
const MAX_REPEATS: usize = 2;
/// A secret with fewer symbols counts as made of words by a person.
const RANDOM: u32 = 16;
/// Number of symbols of a secret that are as bad as all of it.
const OF_WORDS: u32 = 8;

/// A text as symbols, each with whether a digit or a capital inside a word made it.
#[derive(Clone, Debug, Default)]
pub(super) struct Marked {
    symbols: Vec<u8>,
    marks: Vec<bool>,
}

impl Marked {
    pub fn of(text: &str) -> Self {
        let mut marked = Self::default();
        let mut folded = Folded::default();
        let (mut before, mut digits) = (None, 0);
        for character in text.chars() {
            let is_digit = character.is_numeric();
            let is_inner = character.is_uppercase() && before.is_some_and(|one: char| !one.is_uppercase());
            if digits == 4 && !is_digit {
                marked.unmark_year();
            }
            digits = if is_digit { digits + 1 } else { 0 };
            if character.is_ascii() {
                folded.push_single(character as u8);
            } else {
                folded.push_wide(character);
            }
            marked.marks.resize(folded.symbols.len(), is_digit || is_inner);
            before = Some(character).filter(|one| one.is_alphanumeric());
        }
        if digits == 4 {
            marked.unmark_year();
        }
        marked.symbols = folded.symbols;
        marked
    }

    /// Four digits in a row are a year, a port or the end of a number: everybody has them.
    fn unmark_year(&mut self) {
        let from = self.marks.len().saturating_sub(4);
        self.marks[from..].fill(false);
    }

    /// Every piece that means something, with the place of its first symbol.
    pub fn for_each_piece(&self, hasher: &Hasher, mut emit: impl FnMut(u32, usize)) {
        let mut last_mark = None;
        for end in 1..=self.symbols.len() {
            if self.marks[end - 1] {
                last_mark = Some(end - 1);
            }
            if let Some(start) = end.checked_sub(SLICE)
                && last_mark.is_some_and(|mark| mark >= start)
            {
                emit(hash::tag(hasher.hash_all(&self.symbols[start..end])), start);
            }
        }
    }
}

/// One secret as its pieces. Only their positions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub kind: Kind,
    /// Symbols.
    pub length: u32,
    /// A hash of its symbols: two readings of one secret are one.
    pub whole: u64,
    /// Each with the place of its first symbol.
    pub pieces: Vec<(u32, u32)>,
}

impl Followed {
    /// None for a text that is too short or has only letters, or for a key that looks random but may be an id.
    pub fn of(hasher: &Hasher, kind: Kind, secret: &str) -> Option<Self> {
        if !kind.is_secret() || kind == Kind::HighEntropy && !looks_like_a_key(secret) {
            return None;
        }
        let mut marked = Marked::of(secret);
        marked.symbols.truncate(MAX_SECRET);
        marked.marks.truncate(MAX_SECRET);
        let marks = marked.marks.iter().filter(|mark| **mark).count();
        let length = marked.symbols.len();
        if length < MIN_SECRET || marks < MIN_MARKS || marks >= length {
            return None;
        }
        let (mut pieces, mut times) = (Vec::new(), BTreeMap::<u32, usize>::new());
        marked.for_each_piece(hasher, |tag, at| {
            let times = times.entry(tag).or_default();
            *times += 1;
            if *times <= MAX_REPEATS {
                pieces.push((tag, at as u32));
            }
        });
        (!pieces.is_empty()).then(|| Self {
            kind,
            length: length as u32,
            whole: hasher.hash_all(&marked.symbols),
            pieces,
        })
    }

    /// Whether it may have been made of a secret: it came from a disk.
    pub fn is_possible(&self) -> bool {
        let length = self.length as usize;
        (MIN_SECRET..=MAX_SECRET).contains(&length)
            && self.pieces.iter().all(|(_, at)| *at as usize + SLICE <= length)
            && self.pieces.len() <= length
    }
}

/// Small letters, capitals and digits: hashes and ids of most kinds have letters of one case.
fn looks_like_a_key(text: &str) -> bool {
    // Names that a program makes of words and a number are shorter.
    const MIN_LENGTH: usize = 20;
    let has = |class: fn(&u8) -> bool| text.bytes().any(|byte| class(&byte));
    text.len() >= MIN_LENGTH
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
}

/// The number of symbols of a secret of this length that must not leave: more than a quarter.
pub(super) fn too_many(length: u32) -> u32 {
    if length < RANDOM { OF_WORDS } else { (length / 4 + 1).max(SLICE as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<usize> {
        let followed = Followed::of(&Hasher::new(&[7; 32]), Kind::ApiKey, text);
        followed
            .map(|followed| followed.pieces.iter().map(|(_, at)| *at as usize).collect())
            .unwrap_or_default()
    }

    #[test]
    fn words_and_years_yield_no_secret_slices() {
        for text in
            ["correct-horse-battery", "Autumn2026!", "12345678901234567890", "Ab1", "SETTINGS_FILE_NAME"]
        {
            assert_eq!(pieces(text), [0_usize; 0], "{text}");
        }
        assert_eq!(pieces("Qz7Lm2Wx9Rt4").len(), 7);
        // A piece without a mark is not looked for.
        assert_eq!(pieces("prefixprefixQz7Lm2").first(), Some(&7));
    }

    #[test]
    fn random_looking_text_is_followed_unless_it_is_a_hash() {
        let hasher = Hasher::new(&[7; 32]);
        let followed = |text| Followed::of(&hasher, Kind::HighEntropy, text).is_some();
        assert!(followed("Qz7Lm2Wx9Rt4Vb6Nc8Kd3Hs5"));
        for text in ["e3b0c44298fc1c149afbf4c8996fb92427ae41e4", "Qz7Lm2Wx9Rt4", "0123456789abcdefghijklmnop"]
        {
            assert!(!followed(text), "{text}");
        }
    }

    #[test]
    fn slices_of_a_secret_are_limited_to_a_quarter_of_it() {
        assert_eq!([10, 16, 24, 32, 40].map(too_many), [8, 6, 7, 9, 11]);
    }
}
