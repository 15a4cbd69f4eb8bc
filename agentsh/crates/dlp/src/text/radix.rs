//! Alphabets in which each letter encodes a fixed number of bits: binary, hex, base32, base64. Text in front of an encoded
//! secret may shift it.

use std::ops::Range;

use agentsh_base::radix::{self, Values, pack, values};

use super::Step;
use super::profile::Profile;
use super::readable::{is_printable, readable_bytes};
use super::runs::{Alphabet, groups};
use super::walk::Walk;

const fn alphabet(table: &'static Values, prefixed: bool, apart: bool) -> Alphabet {
    Alphabet { table, prefixed, apart }
}

static BINARY: Alphabet = alphabet(&values(b"01"), false, false);
static HEX: Alphabet = alphabet(&radix::HEX, true, true);
/// One case at a time: base64 is full of short runs of these letters in both.
static BASE32: [Alphabet; 4] = [
    alphabet(&radix::BASE32, false, true),
    alphabet(&values(b"abcdefghijklmnopqrstuvwxyz234567"), false, true),
    // z-base-32.
    alphabet(&values(b"YBNDRFG8EJKMCPQXOT1UWISZA345H769"), false, true),
    alphabet(&values(b"ybndrfg8ejkmcpqxot1uwisza345h769"), false, true),
];
/// The alphabet of the RFC, in which bytes that are no text are compared as well.
const COMMON: usize = 2;
static BASE64: Alphabet = alphabet(&radix::BASE64, false, false);

/// Texts of at most this many bytes are looked at in pieces as well as joined.
const SHORT: usize = 4096;

/// Base64, the one that encoders use for long data. Gives how many symbols of long groups are text, letter by letter.
pub(super) fn decode_base64(text: &str, profile: &Profile, walk: &mut Walk<'_>) -> usize {
    // The first of four symbols is a letter wherever the bytes are ASCII.
    if profile.letters_and_digits() < 8 || profile.uppercase_count() + profile.lower() < 2 {
        return 0;
    }
    let loose = (profile.uppercase_count() + profile.digits()) * 5 > profile.letters_and_digits();
    let mut explained = base64(text, loose, walk);
    // A word in front of it that is of these letters too shifts all of it: `powershell -enc ..`, `data:text/plain;base64,..`.
    if loose && text.len() <= SHORT {
        explained = explained.max(base64(text, false, walk));
    }
    explained
}

pub(super) fn decode_hex(text: &str, profile: &Profile, words: &[Range<usize>], walk: &mut Walk<'_>) {
    let hexadecimal = profile.digits() + profile.range(b'a'..=b'f') + profile.range(b'A'..=b'F');
    if profile.digits() >= 4 && hexadecimal >= 12 {
        let loose = hexadecimal * 10 >= profile.letters_and_digits() * 9;
        hex(text, loose, words, walk);
    }
}

/// Bits, and five of them to a letter.
pub(super) fn decode(text: &str, profile: &Profile, words: &[Range<usize>], walk: &mut Walk<'_>) {
    if profile.count(b'0') >= 8 && profile.count(b'1') >= 8 {
        binary(text, walk);
    }
    if profile.letters_and_digits() < 16 {
        return;
    }
    // Hex is made of these letters too, and of the first six alone.
    let hexadecimal = profile.range(b'a'..=b'f') + profile.range(b'A'..=b'F');
    if hexadecimal * 10 > (profile.uppercase_count() + profile.lower()) * 9 {
        return;
    }
    let numbered = profile.digits() > 0;
    let loose = profile.range(b'2'..=b'7') * 12 > profile.letters_and_digits();
    for (index, alphabet) in BASE32.iter().enumerate() {
        let (own, other) = if index % 2 == 0 {
            (profile.uppercase_count(), profile.lower())
        } else {
            (profile.lower(), profile.uppercase_count())
        };
        // Letters of the other case break a text into words. Two symbols in three are letters.
        if own >= MIN_LETTERS && own + profile.digits() >= 16 && (index < 2 || numbered) {
            base32(text, alphabet, (loose && other == 0, index < COMMON), words, walk);
        }
    }
}

/// Fewer letters than any 16 symbols of base32 are likely to have.
const MIN_LETTERS: usize = 4;

fn binary(text: &str, walk: &mut Walk<'_>) {
    walk.work(text.len());
    groups(text.as_bytes(), &BINARY, 40, true, &[], &mut |symbols, at| {
        unpack::<1, 8>(Step::Binary, symbols, &at, walk, &mut |_, _| {});
    });
}

fn hex(text: &str, loose: bool, words: &[Range<usize>], walk: &mut Walk<'_>) {
    walk.work(text.len());
    groups(text.as_bytes(), &HEX, 12, loose, words, &mut |symbols, at| {
        if symbols.iter().any(|symbol| *symbol <= 9) {
            let is_drawn = is_drawn(&text[at.clone()], 8);
            unpack::<4, 2>(Step::Hex, symbols, &at, walk, &mut |bytes, walk| {
                if is_drawn {
                    walk.found_binary(Step::Hex, bytes, &at);
                }
            });
        }
    });
}

fn base64(text: &str, loose: bool, walk: &mut Walk<'_>) -> usize {
    walk.work(text.len());
    let mut explained = 0;
    groups(text.as_bytes(), &BASE64, 8, loose, &[], &mut |symbols, at| {
        let upper = symbols.iter().any(|symbol| *symbol < 26);
        let lower = symbols.iter().any(|symbol| (26..52).contains(symbol));
        let other = symbols.iter().any(|symbol| *symbol >= 52);
        if symbols.len() < 16 && usize::from(upper) + usize::from(lower) + usize::from(other) < 2 {
            return;
        }
        let part = &text[at.clone()];
        let is_drawn = !part.contains(' ') && is_drawn(part, 16);
        unpack::<6, 4>(Step::Base64, symbols, &at, walk, &mut |bytes, walk| {
            if is_drawn {
                walk.found_binary(Step::Base64, bytes, &at);
            }
            if symbols.len() >= LONG && bytes.iter().all(|byte| is_printable(*byte)) {
                explained += symbols.len();
            }
        });
    });
    explained
}

/// Whether at least one of `share` letters is a digit, as in encoded data: words use these alphabets, too, and must
/// not be decoded.
fn is_drawn(text: &str, share: usize) -> bool {
    text.bytes().filter(u8::is_ascii_digit).count() * share >= text.len()
}

/// Symbols at each end of a group that show where its bytes begin.
const SAMPLE: usize = 32;
/// Groups of at least this many symbols are excluded from other searches.
const LONG: usize = 1024;

/// Joins the symbols of a group, and passes the bytes from the first symbol on to `first`. Text before an encoded text may
/// shift it: its bytes begin where the ends of the group read best.
fn unpack<const BITS: usize, const GROUP: usize>(
    step: Step,
    symbols: &[u8],
    at: &Range<usize>,
    walk: &mut Walk<'_>,
    first: &mut dyn FnMut(&[u8], &mut Walk<'_>),
) {
    let mut bytes = Vec::new();
    let mut is_wanted = [false; GROUP];
    is_wanted[0] = true;
    let tail = symbols.len().saturating_sub(SAMPLE) / GROUP * GROUP;
    for from in [0, tail].into_iter().take(if tail > 0 { 2 } else { 1 }) {
        let mut read = |offset: usize| {
            let sample = symbols.get(from + offset..).unwrap_or_default();
            pack::<BITS, GROUP>(&sample[..sample.len().min(SAMPLE)], &mut bytes);
            (readable_bytes(&bytes), bytes.len())
        };
        let (plain, length) = read(0);
        // If all of it is readable, no other reading is better.
        if plain < length
            && let Some(((readable, length), best)) =
                (1..GROUP).map(|offset| (read(offset), offset)).max_by_key(|((readable, _), _)| *readable)
        {
            is_wanted[best] |= readable * 4 >= length * 3 && readable > plain;
        }
    }
    for offset in (0..GROUP).filter(|offset| is_wanted[*offset]) {
        pack::<BITS, GROUP>(symbols.get(offset..).unwrap_or_default(), &mut bytes);
        walk.work(bytes.len());
        walk.found_bytes(step, &bytes, at.clone());
        if offset == 0 {
            first(&bytes, walk);
        }
    }
}

fn base32(
    text: &str,
    alphabet: &Alphabet,
    (loose, binary): (bool, bool),
    words: &[Range<usize>],
    walk: &mut Walk<'_>,
) {
    walk.work(text.len());
    groups(text.as_bytes(), alphabet, 16, loose, words, &mut |symbols, at| {
        let part = &text[at.clone()];
        let is_drawn = binary && !part.contains(' ') && is_drawn(part, 16);
        unpack::<5, 8>(Step::Base32, symbols, &at, walk, &mut |bytes, walk| {
            if is_drawn {
                walk.found_binary(Step::Base32, bytes, &at);
            }
        });
    });
}
