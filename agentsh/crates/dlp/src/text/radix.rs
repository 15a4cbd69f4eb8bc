//! Alphabets in which each letter stands for a fixed number of bits: binary, hex, base32, base64. Every alignment
//! is tried, because what stands in front of an encoded secret shifts it.

use std::ops::Range;

use super::Step;
use super::profile::Profile;
use super::readable::is_printable;
use super::runs::{Alphabet, NONE, groups, pack, words};
use super::walk::Walk;

const fn alphabet(letters: &[u8], fold_case: bool, apart: bool) -> Alphabet {
    let mut table = [NONE; 256];
    let mut index = 0;
    while index < letters.len() {
        let letter = letters[index];
        #[expect(clippy::cast_possible_truncation, reason = "no alphabet here has more than 64 letters")]
        let value = index as u8;
        table[letter as usize] = value;
        if fold_case {
            table[letter.to_ascii_lowercase() as usize] = value;
        }
        index += 1;
    }
    Alphabet { table, prefixed: fold_case, apart }
}

static BINARY: Alphabet = alphabet(b"01", false, false);
static HEX: Alphabet = alphabet(b"0123456789ABCDEF", true, true);
/// One case at a time: base64 is full of short runs of these letters in both.
static BASE32: [Alphabet; 4] = [
    alphabet(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", false, true),
    alphabet(b"abcdefghijklmnopqrstuvwxyz234567", false, true),
    // z-base-32.
    alphabet(b"YBNDRFG8EJKMCPQXOT1UWISZA345H769", false, true),
    alphabet(b"ybndrfg8ejkmcpqxot1uwisza345h769", false, true),
];
/// The alphabet of the RFC, in which bytes that are no text are compared as well.
const COMMON: usize = 2;
const STANDARD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Both alphabets at once: no encoder mixes them, and no decoder could tell which one was meant.
static BASE64: Alphabet = {
    let mut both = alphabet(STANDARD, false, false);
    both.table[b'-' as usize] = 62;
    both.table[b'_' as usize] = 63;
    both
};

/// The value of each letter of both alphabets of base64.
pub(super) fn of_base64() -> &'static [u8; 256] {
    &BASE64.table
}

/// Texts of at most this many bytes are looked at in pieces as well as joined.
const SHORT: usize = 4096;

/// Base64, the one that encoders use for long data. Gives how many symbols of long groups are text, letter by letter.
pub(super) fn decode_base64(text: &str, profile: &Profile, walk: &mut Walk<'_>) -> usize {
    // The first of four symbols is a letter wherever the bytes are ASCII.
    if profile.letters_and_digits() < 8 || profile.upper() + profile.lower() < 2 {
        return 0;
    }
    let mut bytes = Vec::new();
    let loose = (profile.upper() + profile.digits()) * 5 > profile.letters_and_digits();
    let mut explained = base64(text, &BASE64, loose, walk, &mut bytes);
    // A word in front of it that is of these letters too shifts all of it: `powershell -enc ..`.
    if loose && profile.white() > 0 && text.len() <= SHORT {
        explained = explained.max(base64(text, &BASE64, false, walk, &mut bytes));
    }
    explained
}

pub(super) fn decode_hex(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let hexadecimal = profile.digits() + profile.range(b'a'..=b'f') + profile.range(b'A'..=b'F');
    if profile.digits() >= 4 && hexadecimal >= 12 {
        let loose = hexadecimal * 10 >= profile.letters_and_digits() * 9;
        hex(text, loose, &words(text.as_bytes()), walk, &mut Vec::new());
    }
}

/// Bits, and five of them to a letter.
pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    let mut bytes = Vec::new();
    let mut words: Option<Vec<Range<usize>>> = None;
    if profile.count(b'0') >= 8 && profile.count(b'1') >= 8 {
        binary(text, walk, &mut bytes);
    }
    if profile.letters_and_digits() < 16 {
        return;
    }
    // Hex is made of these letters too, and of the first six alone.
    let hexadecimal = profile.range(b'a'..=b'f') + profile.range(b'A'..=b'F');
    if hexadecimal * 10 > (profile.upper() + profile.lower()) * 9 {
        return;
    }
    let numbered = profile.digits() > 0;
    let loose = profile.range(b'2'..=b'7') * 12 > profile.letters_and_digits();
    for (index, alphabet) in BASE32.iter().enumerate() {
        let (own, other) = if index % 2 == 0 {
            (profile.upper(), profile.lower())
        } else {
            (profile.lower(), profile.upper())
        };
        // What is not all letters of one case is broken into words by the other one. Two symbols in three are letters.
        if own >= MIN_LETTERS && own + profile.digits() >= 16 && (index < 2 || numbered) {
            let words = words.get_or_insert_with(|| self::words(text.as_bytes()));
            base32(text, alphabet, (loose && other == 0, index < COMMON), words, walk, &mut bytes);
        }
    }
}

/// Fewer letters than any 16 symbols of base32 are likely to have.
const MIN_LETTERS: usize = 4;

fn binary(text: &str, walk: &mut Walk<'_>, bytes: &mut Vec<u8>) {
    walk.work(text.len());
    groups(text.as_bytes(), &BINARY, 40, true, &[], &mut |symbols, at| {
        for offset in 0..8 {
            pack::<1, 8>(&symbols[offset..], bytes);
            walk.work(bytes.len());
            walk.found_bytes(Step::Binary, bytes, at.clone());
        }
    });
}

fn hex(text: &str, loose: bool, words: &[Range<usize>], walk: &mut Walk<'_>, bytes: &mut Vec<u8>) {
    walk.work(text.len());
    groups(text.as_bytes(), &HEX, 12, loose, words, &mut |symbols, at| {
        if symbols.iter().all(|symbol| *symbol > 9) {
            return;
        }
        let mut settled = Settled::new(symbols);
        for offset in 0..2 {
            settled.unpack::<4, 2>(symbols, offset, bytes);
            walk.work(bytes.len());
            walk.found_bytes(Step::Hex, bytes, at.clone());
            if offset == 0 && is_drawn(&text[at.clone()], 8) {
                walk.found_binary(Step::Hex, bytes, &at);
            }
        }
    });
}

fn base64(text: &str, alphabet: &Alphabet, loose: bool, walk: &mut Walk<'_>, bytes: &mut Vec<u8>) -> usize {
    walk.work(text.len());
    let mut explained = 0;
    groups(text.as_bytes(), alphabet, 8, loose, &[], &mut |symbols, at| {
        let upper = symbols.iter().any(|symbol| *symbol < 26);
        let lower = symbols.iter().any(|symbol| (26..52).contains(symbol));
        let other = symbols.iter().any(|symbol| *symbol >= 52);
        if symbols.len() < 16 && usize::from(upper) + usize::from(lower) + usize::from(other) < 2 {
            return;
        }
        let mut settled = Settled::new(symbols);
        for offset in 0..4 {
            settled.unpack::<6, 4>(symbols, offset, bytes);
            walk.work(bytes.len());
            walk.found_bytes(Step::Base64, bytes, at.clone());
            if offset == 0 && !text[at.clone()].contains(' ') && is_drawn(&text[at.clone()], 16) {
                walk.found_binary(Step::Base64, bytes, &at);
            }
        }
        explained += settled.text;
    });
    explained
}

/// Whether at least one of so many letters is a digit, as in everything that is encoded: words are in these alphabets,
/// too, and must not be compared as the bytes that they would be.
fn is_drawn(text: &str, share: usize) -> bool {
    text.bytes().filter(u8::is_ascii_digit).count() * share >= text.len()
}

/// Symbols that are judged together, a multiple of every group.
const BLOCK: usize = 1024;
/// So many different symbols at least stand in what says something.
const MIN_SYMBOLS: u32 = 5;

/// The blocks of a long group that need not be unpacked again: they read as text in one alignment, and so are noise
/// in every other one, or repeat a few symbols.
struct Settled {
    blocks: Vec<bool>,
    /// Symbols that read as text.
    text: usize,
}

impl Settled {
    fn new(symbols: &[u8]) -> Self {
        let is_dull = |block: &[u8]| {
            let seen = block.iter().fold(0_u64, |seen, symbol| seen | 1 << (symbol & 63));
            seen.count_ones() < MIN_SYMBOLS && block.len() == BLOCK
        };
        Self { blocks: symbols.chunks(BLOCK).map(is_dull).collect(), text: 0 }
    }

    /// Unpacks in one alignment what is not settled.
    fn unpack<const BITS: usize, const GROUP: usize>(
        &mut self,
        symbols: &[u8],
        offset: usize,
        bytes: &mut Vec<u8>,
    ) {
        let symbols = symbols.get(offset..).unwrap_or_default();
        if symbols.len() < 4 * BLOCK {
            return pack::<BITS, GROUP>(symbols, bytes);
        }
        bytes.clear();
        let mut part = Vec::with_capacity(BLOCK);
        for (symbols, settled) in symbols.chunks(BLOCK).zip(&mut self.blocks) {
            if !*settled {
                pack::<BITS, GROUP>(symbols, &mut part);
                bytes.extend_from_slice(&part);
                *settled = part.iter().all(|byte| is_printable(*byte));
                self.text += if *settled { symbols.len() } else { 0 };
            }
        }
    }
}

fn base32(
    text: &str,
    alphabet: &Alphabet,
    (loose, binary): (bool, bool),
    words: &[Range<usize>],
    walk: &mut Walk<'_>,
    bytes: &mut Vec<u8>,
) {
    walk.work(text.len());
    groups(text.as_bytes(), alphabet, 16, loose, words, &mut |symbols, at| {
        let mut settled = Settled::new(symbols);
        for offset in 0..8 {
            settled.unpack::<5, 8>(symbols, offset, bytes);
            walk.work(bytes.len());
            walk.found_bytes(Step::Base32, bytes, at.clone());
            if binary && offset == 0 && !text[at.clone()].contains(' ') && is_drawn(&text[at.clone()], 16) {
                walk.found_binary(Step::Base32, bytes, &at);
            }
        }
    });
}
