//! Plain text whose letters or words are in another order or replaced: words or letters backwards, letters with others
//! between them, a shifted or mirrored alphabet, rot47, letters upside down. All are cheap enough to be tried on every
//! text.

use super::Step;
use super::profile::Profile;
use super::upside_down;
use super::walk::Walk;

/// Longer texts are not searched reversed or with letters between, to bound the time. The labels decide about them.
const MAX_REVERSED_BYTES: usize = 8 * 1024;
/// Letters between two of the text are at most one less. Each step costs one more text of the same length.
const MAX_APART: usize = 4;
/// Texts of up to this many bytes without spaces and with a digit are read in every alphabet, because letter
/// frequencies of a key say nothing; keys of known formats are shorter. All other texts are read in blocks of
/// [`BLOCK`] bytes.
const MAX_KEY: usize = 256;
/// Enough letters to tell a language from random letters, and few enough for one sentence.
const BLOCK: usize = 64;
/// The frequency of each letter in a thousand letters of English text (Norvig's count of 2012).
const FREQUENCIES: [u32; 26] =
    [80, 15, 33, 38, 125, 24, 19, 51, 76, 2, 5, 41, 25, 72, 76, 21, 1, 63, 65, 93, 27, 11, 17, 2, 17, 1];
/// By these frequencies a letter of English, German or French text counts 65 on average, a drawn one 38.
const LANGUAGE: u32 = 55;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let whole = 0..text.len();
    upside_down::decode(text, walk);
    if looks_like_rot47(profile) {
        walk.found_text(Step::Rot47, &rot47(text), whole.clone());
    }
    if text.len() <= MAX_REVERSED_BYTES {
        walk.work(text.len());
        if profile.digits() > 0 {
            // The text of a hex dump with addresses, or of numbered lines.
            let letters: String = text.chars().filter(|one| !one.is_ascii_digit()).collect();
            walk.found_order(Step::WithoutDigits, &letters, whole.clone());
        }
        walk.found_order(Step::Reversed, &text.chars().rev().collect::<String>(), whole.clone());
        // Only visible characters: selectors of emoji without the emoji between them would be hidden text.
        let is_seen = |one: &char| one.is_alphanumeric() || one.is_ascii_graphic();
        let signs: Vec<char> = text.chars().filter(is_seen).collect();
        for apart in 2..=MAX_APART {
            let chosen: String =
                (0..apart).flat_map(|first| signs.iter().skip(first).step_by(apart)).collect();
            walk.found_order(Step::Apart, &chosen, whole.clone());
        }
        if profile.white() >= 5 {
            let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
            words.reverse();
            walk.found_order(Step::ReversedWords, &words.join(" "), whole.clone());
        }
    }
    walk.work(text.len());
    let is_key = text.len() <= MAX_KEY && (profile.white() == 0 || text.len() <= BLOCK);
    if is_key && profile.digits() > 0 && profile.uppercase_count() + profile.lower() > 0 {
        for alphabet in
            Alphabet::all().filter(|one| !one.mirrored || one.places == 0).chain([Alphabet::ROT18])
        {
            walk.found_order(Step::Shifted, &alphabet.read(text.as_bytes()), whole.clone());
        }
    } else {
        let blocks = text.as_bytes().chunks(BLOCK);
        let shifted: String = blocks.filter_map(|block| Some(detect_alphabet(block)?.read(block))).collect();
        walk.found_order(Step::Shifted, &shifted, whole.clone());
    }
}

/// A substitution: each letter is shifted by a number of places, counted from `z` backwards if mirrored; digits are
/// shifted by `digits`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Alphabet {
    mirrored: bool,
    places: u8,
    digits: u8,
}

impl Alphabet {
    const PLAIN: Self = Self { mirrored: false, places: 0, digits: 0 };
    /// Rot13, with digits by five.
    const ROT18: Self = Self { mirrored: false, places: 13, digits: 5 };

    fn all() -> impl Iterator<Item = Self> {
        let shifted = (1..26).map(|places| Self { places, ..Self::PLAIN });
        shifted.chain((0..26).map(|places| Self { mirrored: true, places, ..Self::PLAIN }))
    }

    fn letter(self, letter: u8) -> u8 {
        (if self.mirrored { 25 - letter } else { letter } + self.places) % 26
    }

    fn read(self, text: &[u8]) -> String {
        let turned = |byte: &u8| match *byte {
            letter @ b'a'..=b'z' => b'a' + self.letter(letter - b'a'),
            letter @ b'A'..=b'Z' => b'A' + self.letter(letter - b'A'),
            digit @ b'0'..=b'9' => b'0' + (digit - b'0' + self.digits) % 10,
            other => other,
        };
        String::from_utf8_lossy(&text.iter().map(turned).collect::<Vec<u8>>()).into_owned()
    }

    /// How often its letters are the frequent ones.
    fn score(self, counts: &[u32; 26]) -> u32 {
        let each =
            (0..26).zip(counts).map(|(letter, count)| count * FREQUENCIES[usize::from(self.letter(letter))]);
        each.sum()
    }
}

/// The alphabet in which these bytes are language. None: unchanged, or in none.
fn detect_alphabet(bytes: &[u8]) -> Option<Alphabet> {
    let (mut counts, mut letters) = ([0; 26], 0);
    for byte in bytes.iter().filter(|byte| byte.is_ascii_alphabetic()) {
        counts[usize::from((byte | 0x20) - b'a')] += 1;
        letters += 1;
    }
    let enough = LANGUAGE * letters;
    // In any substitution some letters are more frequent than others; random letters have smaller squares.
    let squares: u32 = counts.iter().map(|count| count * count).sum();
    let is_language = letters as usize * 2 >= bytes.len() && squares * 1000 >= 70 * letters * letters;
    if letters < 16 || !is_language || Alphabet::PLAIN.score(&counts) >= enough {
        return None;
    }
    let (score, best) =
        Alphabet::all().map(|one| (one.score(&counts), one)).max_by_key(|(score, _)| *score)?;
    (score >= enough).then_some(best)
}

/// Rot47 turns small letters into the signs and digits from `2` to `K`.
fn looks_like_rot47(profile: &Profile) -> bool {
    let turned = profile.range(b'2'..=b'K');
    let shown = profile.length - profile.white();
    let marks = shown - profile.letters_and_digits();
    shown >= 12
        && (turned * 10 >= shown * 7 && marks * 20 >= shown
            || shown <= 128 && profile.white() == 0 && marks * 6 >= shown)
}

fn rot47(text: &str) -> String {
    let turned = |c: char| match u8::try_from(c) {
        Ok(byte @ 33..=126) => char::from(33 + (byte - 33 + 47) % 94),
        _ => c,
    };
    text.chars().map(turned).collect()
}
