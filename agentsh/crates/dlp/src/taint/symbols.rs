//! Text as symbols for comparison: letters and digits only, each folded as [`folding`] says, leetspeak included.
//! Spaces, punctuation, marks and invisible characters are skipped, so they cannot hide a copy.

use agentsh_base::ascii;

use agentsh_secrets::views::{Folding, HANGUL_SYLLABLES, folding};

/// The folded text that is searched for copies.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    pub symbols: Vec<u8>,
}

/// No symbol.
const NONE: u8 = 0;
/// Bytes that are kept for the next text.
const MAX_KEPT_BYTES: usize = 64 * 1024;
/// Bytes that are folded at once.
const BLOCK: usize = 128;
/// The number of letters that are read at once.
const WORD: usize = 4;
/// Longest word that [`of_word`] takes.
pub(super) const MAX_WORD: usize = 64;
/// Marks a byte outside ASCII in [`SYMBOLS`].
const WIDE: u8 = 255;

const SYMBOLS: [u8; 256] = symbol_table();

impl Folded {
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut folded = Self::default();
        folded.push(text);
        folded
    }

    /// Empties it, for the next text. What one long text took is given back.
    pub fn clear(&mut self) {
        if self.symbols.capacity() > MAX_KEPT_BYTES {
            *self = Self::default();
        }
        self.symbols.clear();
    }

    /// Appends the symbols of `text`.
    pub fn push(&mut self, text: &str) {
        self.symbols.reserve(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (block, behind) = rest.split_at(rest.floor_char_boundary(BLOCK));
            rest = behind;
            if block.is_ascii() {
                self.push_ascii(block.as_bytes());
            } else {
                for character in block.chars() {
                    self.push_char(character);
                }
            }
        }
    }

    /// The number of symbols that [`Folded::push`] makes of a text.
    #[must_use]
    pub fn count(text: &str) -> usize {
        if !text.is_ascii() {
            return Self::of(text).symbols.len();
        }
        text.bytes().filter(|byte| SYMBOLS[usize::from(*byte)] != NONE).count()
    }

    fn push_char(&mut self, character: char) {
        if character.is_ascii() {
            self.push_single(character as u8);
        } else {
            self.push_wide(character);
        }
    }

    pub(super) fn push_single(&mut self, byte: u8) {
        let symbol = SYMBOLS[usize::from(byte)];
        if symbol != NONE {
            self.symbols.push(symbol);
        }
    }

    /// Writes everything and only then decides how much of it stays: few branches depend on the text. At most [`BLOCK`]
    /// bytes.
    fn push_ascii(&mut self, bytes: &[u8]) {
        let (mut symbols, mut end) = ([0_u8; BLOCK + 8], 0);
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut run = 0;
            if let Some(eight) = rest.first_chunk::<8>() {
                let (letters_of, lower) = ascii::letters_of(u64::from_le_bytes(*eight));
                run = letters_of;
                if run >= WORD {
                    // As in the tables: `l` counts as `i`, and every other letter as itself.
                    let symbol = lower - (ascii::equal(lower, b'l') >> 7) * u64::from(b'l' - b'i');
                    put(&mut symbols, end, symbol.to_le_bytes());
                    end += run;
                }
            }
            // A word and what follows it, or text that is not a word.
            let (word, others) = if run >= WORD { (run, 1) } else { (0, 8) };
            let others = &rest[word..(word + others).min(rest.len())];
            rest = &rest[word + others.len()..];
            for &byte in others {
                let symbol = SYMBOLS[usize::from(byte)];
                put(&mut symbols, end, [symbol]);
                end += usize::from(symbol != NONE);
            }
        }
        self.symbols.extend_from_slice(&symbols[..end]);
    }

    pub(super) fn push_wide(&mut self, character: char) {
        // A syllable counts once, as a character of Chinese or Japanese does: by its letters a short phrase would be as
        // long as a sentence.
        if HANGUL_SYLLABLES.contains(&character) {
            return self.symbols.push(foreign(character));
        }
        match folding(character) {
            Folding::Nothing => {}
            Folding::One(one) => self.push_folded(one),
            // A byte makes one symbol at most: bounds on texts are bounds on symbols.
            Folding::Several(several) => {
                several.chars().take(character.len_utf8()).for_each(|one| self.push_folded(one));
            }
        }
    }

    fn push_folded(&mut self, character: char) {
        if character.is_ascii() {
            self.push_single(character as u8);
        } else {
            self.symbols.push(foreign(character));
        }
    }
}

/// The bytes after it are overwritten by the next call.
#[inline]
fn put<const N: usize>(into: &mut [u8; BLOCK + 8], at: usize, bytes: [u8; N]) {
    if let Some(place) = into.get_mut(at..at + N) {
        place.copy_from_slice(&bytes);
    }
}

/// The symbols of one short word in ASCII; None for any other.
#[inline]
pub(super) fn of_word<'b>(word: &str, buffer: &'b mut [u8; MAX_WORD]) -> Option<&'b [u8]> {
    if word.len() > MAX_WORD || !word.is_ascii() {
        return None;
    }
    let mut end = 0;
    for byte in word.bytes() {
        let symbol = SYMBOLS[usize::from(byte)];
        buffer[end % MAX_WORD] = symbol;
        end += usize::from(symbol != NONE);
    }
    buffer.get(..end)
}

/// A letter of another script, folded: 126 classes.
fn foreign(character: char) -> u8 {
    let mixed = u32::from(character).wrapping_mul(0x9E37_79B1) >> 16;
    128 + u8::try_from(mixed % 126).unwrap_or(0)
}

const fn symbol_table() -> [u8; 256] {
    let mut table = [NONE; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'0' => b'o',
            b'1' | b'l' | b'L' => b'i',
            b'3' => b'e',
            b'4' => b'a',
            b'5' => b's',
            b'7' => b't',
            b'8' => b'b',
            letter @ (b'a'..=b'z' | b'2' | b'6' | b'9') => letter,
            letter @ b'A'..=b'Z' => letter + 32,
            128..=255 => WIDE,
            _ => NONE,
        };
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn symbols(text: &str) -> Vec<u8> {
        Folded::of(text).symbols
    }

    #[test]
    fn look_alike_texts_have_equal_symbols() {
        let wanted = symbols("Signing key sk-7Qm2");
        for variant in [
            "SIGNING  KEY SK7QM2",
            "s.i.g.n.i.n.g k-e-y s k 7 q m 2",
            "s\u{200b}igning\u{2060} k\u{301}ey sk-7Qm2",
            "ｓｉｇｎｉｎｇ ｋｅｙ ｓｋ－７Ｑｍ２",
            "𝐬𝐢𝐠𝐧𝐢𝐧𝐠 𝐤𝐞𝐲 𝐬𝐤-𝟕𝐐𝐦𝟐",
            "sіgnіng kеу sk-7Qm2",
            "51gn1ng k3y 5k-7qm2",
            "ṣịġṇịṇġ ḳẹỵ ṣḳ-7Qṃ2",
            "🇸🇮🇬🇳🇮🇳🇬 🇰🇪🇾 🇸🇰-٧🇶🇲٢",
            "ⓢⓘⓖⓝⓘⓝⓖ 🅺🅴🆈 ˢᵏ-7Qm2",
            "sɨǥɲɨɲǥ ƙɇɏ sƙ-7qm2",
            "s\u{336}i\u{489}g\u{20dd}ning\u{3164} k\u{ad}ey sk-7Qm2",
        ] {
            assert_eq!(symbols(variant), wanted, "{variant}");
        }
    }

    #[test]
    fn other_scripts_have_symbols_too() {
        for (text, count) in
            [("會議記錄", 4), ("회의록을", 4), ("会議のメモ", 5), ("ガギグ", 3), ("보고서 초안", 5)]
        {
            assert_eq!(symbols(text).len(), count, "{text}");
        }
        assert_eq!(symbols("ЖЩ"), symbols("жщ"));
        assert!(symbols("!? \u{fe0f}\u{e0041}").is_empty());
    }

    #[test]
    fn symbol_count_equals_the_length_after_folding() {
        for text in ["", "a1 B-z\n7", "ｓｉｇ k\u{301}ey 會議 51gn", "l3tt3rs"] {
            let folded = Folded::of(text);
            assert_eq!(Folded::count(text), folded.symbols.len(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn words_fold_as_their_characters_do(text in "[a-zA-Z0-9lL .\\-\n@é]{0,300}") {
            let mut slowly = Folded::default();
            text.chars().for_each(|character| slowly.push_char(character));
            let folded = Folded::of(&text);
            prop_assert_eq!(folded.symbols, slowly.symbols);
        }
    }
}
