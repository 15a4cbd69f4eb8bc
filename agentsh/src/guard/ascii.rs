//! Runs of letters, eight bytes at a time: most of every text is words.

const HIGH: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// How many of the first bytes are small ASCII letters.
#[inline]
pub(crate) fn small_letters(bytes: &[u8]) -> usize {
    run(bytes, 0)
}

/// How many of the first bytes are ASCII letters.
#[inline]
pub(crate) fn letters(bytes: &[u8]) -> usize {
    run(bytes, ONES * 0x20)
}

/// Bytes that are small letters once the bits of `case` are set in them.
#[inline]
fn run(bytes: &[u8], case: u64) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk) | case;
        let low = word & !HIGH;
        // The high bit of each byte: from `a` on, and beyond `z`. Nothing is carried into the next byte.
        let from_a = low + ONES * (0x80 - b'a' as u64);
        let beyond_z = low + ONES * (0x7f - b'z' as u64);
        let others = !(from_a & !beyond_z & !word) & HIGH;
        if others != 0 {
            return at + (others.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let is_small = |byte: &u8| (byte | case as u8).is_ascii_lowercase();
    at + bytes[at..].iter().position(|byte| !is_small(byte)).unwrap_or(bytes.len() - at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_is_told_apart() {
        for byte in 0..=u8::MAX {
            let text = [b'q', byte, b'q', b'q', b'q', b'q', b'q', b'q', b'q', b'q'];
            assert_eq!(small_letters(&text), if byte.is_ascii_lowercase() { 10 } else { 1 }, "{byte}");
            assert_eq!(letters(&text), if byte.is_ascii_alphabetic() { 10 } else { 1 }, "{byte}");
        }
    }

    proptest! {
        #[test]
        fn as_counted_one_by_one(text in "[a-zA-Z \u{e9}]{0,40}") {
            let bytes = text.as_bytes();
            prop_assert_eq!(small_letters(bytes), bytes.iter().take_while(|byte| byte.is_ascii_lowercase()).count());
            prop_assert_eq!(letters(bytes), bytes.iter().take_while(|byte| byte.is_ascii_alphabetic()).count());
        }
    }
}
