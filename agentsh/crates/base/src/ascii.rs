//! Runs of ASCII letters, eight bytes at a time.

const HIGH: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// The number of first bytes that are small ASCII letters.
#[inline]
#[must_use]
pub fn small_letters(bytes: &[u8]) -> usize {
    run(bytes, 0)
}

/// The number of first bytes that are ASCII letters.
#[inline]
#[must_use]
pub fn letters(bytes: &[u8]) -> usize {
    run(bytes, ONES * 0x20)
}

/// The number of first bytes that are ASCII.
#[inline]
#[must_use]
pub fn ascii_prefix_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let high = u64::from_le_bytes(*chunk) & HIGH;
        if high != 0 {
            return at + (high.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + bytes[at..].iter().position(|byte| !byte.is_ascii()).unwrap_or(bytes.len() - at)
}

/// The number of ASCII letters at the beginning of eight bytes, the first in the lowest bits; and all letters in lower case.
#[inline]
#[must_use]
pub fn letters_of(word: u64) -> (usize, u64) {
    let lower = word | (ONES * 0x20);
    (small_letters_of(lower), lower)
}

#[inline]
fn small_letters_of(word: u64) -> usize {
    let others = !(bytes_in_range(word, b'a', b'z') & !word) & HIGH;
    (others.trailing_zeros() / 8) as usize
}

/// The high bit of each byte that, without its own high bit, is between two others. Nothing is carried into the next byte.
#[inline]
fn bytes_in_range(word: u64, first: u8, last: u8) -> u64 {
    let low = word & !HIGH;
    (low + ONES * u64::from(0x80 - first)) & !(low + ONES * u64::from(0x7f - last))
}

/// The number of first bytes that are ASCII letters, digits or not ASCII; and a case-insensitive hash of them.
#[inline]
#[must_use]
pub fn word_prefix(bytes: &[u8]) -> (usize, u32) {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut at, mut hash) = (0, 0_u64);
    loop {
        let rest = &bytes[at..];
        let eight = rest.first_chunk::<8>().copied().unwrap_or_else(|| {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        let eight = u64::from_le_bytes(eight);
        let lower = eight | (ONES * 0x20);
        let others = !(bytes_in_range(lower, b'a', b'z') | bytes_in_range(eight, b'0', b'9') | eight) & HIGH;
        let count = others.trailing_zeros() / 8;
        let kept = if count < 8 { lower & !(u64::MAX << (count * 8)) } else { lower };
        hash = (hash ^ kept).wrapping_mul(SPREAD);
        hash ^= hash >> 32;
        at += count as usize;
        if count < 8 {
            return (at, (hash.wrapping_mul(SPREAD) >> 32) as u32);
        }
    }
}

/// Eight bytes with small ASCII letters for capitals.
#[inline]
#[must_use]
pub fn lower(word: u64) -> u64 {
    word | (bytes_in_range(word, b'A', b'Z') & !word & HIGH) >> 2
}

/// For eight bytes, the high bit of each that equals `byte`.
#[inline]
#[must_use]
pub fn equal(word: u64, byte: u8) -> u64 {
    let other = word ^ (ONES * u64::from(byte));
    !(((other & !HIGH) + !HIGH) | other) & HIGH
}

/// Bytes that are small letters once the bits of `case` are set in them.
#[inline]
fn run(bytes: &[u8], case: u64) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let count = small_letters_of(u64::from_le_bytes(*chunk) | case);
        if count < 8 {
            return at + count;
        }
        at += 8;
    }
    let is_small = |byte: &u8| (byte | case as u8).is_ascii_lowercase();
    at + bytes[at..].iter().position(|byte| !is_small(byte)).unwrap_or(bytes.len() - at)
}

/// The first two letters, the last letter and the length of the words in a list: they exclude nearly every other word. Case is
/// ignored.
pub struct Outlines {
    /// One bit for each length.
    beginnings: [u32; 1024],
    ends: [u32; 32],
}

impl Default for Outlines {
    fn default() -> Self {
        Self::new()
    }
}

impl Outlines {
    #[must_use]
    pub const fn new() -> Self {
        Self { beginnings: [0; 1024], ends: [0; 32] }
    }

    /// Adds a word of 2 to 31 letters, digits and signs.
    pub const fn add(&mut self, word: &[u8]) {
        let length = 1 << word.len();
        self.beginnings[beginning(word[0], word[1])] |= length;
        self.ends[(word[word.len() - 1] & 31) as usize] |= length;
    }

    /// Whether the list may have this word; almost always when it has.
    #[inline]
    #[must_use]
    pub fn may_have(&self, word: &[u8]) -> bool {
        let [first, second, ..] = word else { return false };
        let Some(last) = word.last() else { return false };
        let lengths = self.beginnings[beginning(*first, *second)] & self.ends[usize::from(last & 31)];
        word.len() < 32 && lengths >> word.len() & 1 == 1
    }
}

const fn beginning(first: u8, second: u8) -> usize {
    ((first & 31) as usize) << 5 | (second & 31) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn outlines_match_all_listed_words_and_few_others() {
        let mut outlines = Outlines::new();
        for word in ["curl", "invoke-webrequest", "nc", "abcdefghijklmnopqrstuvwxyz01234"] {
            outlines.add(word.as_bytes());
        }
        for word in ["curl", "CURL", "invoke-WebRequest", "nc", "abcdefghijklmnopqrstuvwxyz01234", "coil"] {
            assert_eq!(outlines.may_have(word.as_bytes()), word != "coil", "{word}");
        }
        for word in ["", "c", "cu", "curls", "cure", "cart", "n", "ncc", &"n".repeat(32), &"c".repeat(64)] {
            assert!(!outlines.may_have(word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn eight_byte_comparison_treats_each_byte_separately() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                for around in [0, b'l', b'm', 0x7f, 0x80, u8::MAX] {
                    let mut bytes = [around; 8];
                    bytes[at] = byte;
                    let marked = bytes.map(|byte| if byte == b'l' { 0x80 } else { 0 });
                    assert_eq!(
                        equal(u64::from_le_bytes(bytes), b'l'),
                        u64::from_le_bytes(marked),
                        "{bytes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn eight_bytes_become_lower_case_each() {
        for byte in 0..=u8::MAX {
            let bytes = [byte, b'A', 0x80 | b'A', b'z', byte, b'@', b'[', byte];
            assert_eq!(
                lower(u64::from_le_bytes(bytes)).to_le_bytes(),
                bytes.map(|byte| byte.to_ascii_lowercase())
            );
        }
    }

    #[test]
    fn letters_are_distinguished_from_all_other_bytes() {
        for byte in 0..=u8::MAX {
            let text = [b'q', byte, b'q', b'q', b'q', b'q', b'q', b'q', b'q', b'q'];
            assert_eq!(small_letters(&text), if byte.is_ascii_lowercase() { 10 } else { 1 }, "{byte}");
            assert_eq!(letters(&text), if byte.is_ascii_alphabetic() { 10 } else { 1 }, "{byte}");
        }
    }

    proptest! {
        #[test]
        fn letter_runs_are_as_long_as_counted_byte_by_byte(text in "[a-zA-Z \u{e9}]{0,40}") {
            let bytes = text.as_bytes();
            prop_assert_eq!(small_letters(bytes), bytes.iter().take_while(|byte| byte.is_ascii_lowercase()).count());
            prop_assert_eq!(letters(bytes), bytes.iter().take_while(|byte| byte.is_ascii_alphabetic()).count());
            prop_assert_eq!(ascii_prefix_length(bytes), bytes.iter().take_while(|byte| byte.is_ascii()).count());
        }

        #[test]
        fn word_hash_ignores_case_and_ends_with_the_word(text in "[a-zA-Z0-9@\\[`{/:\u{e9} ]{0,40}") {
            let bytes = text.as_bytes();
            let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte >= 0x80;
            let (length, hash) = word_prefix(bytes);
            prop_assert_eq!(length, bytes.iter().take_while(is_part).count());
            prop_assert_eq!(word_prefix(&bytes[..length].to_ascii_uppercase()), (length, hash));
            prop_assert_ne!(word_prefix(&[&bytes[..length], b"x"].concat()).1, hash);
        }
    }
}
