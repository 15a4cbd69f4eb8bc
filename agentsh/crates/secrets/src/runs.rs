//! Long runs of one class of bytes, found by sampling: a run of that length covers a sampled position.

use std::ops::Range;

/// Whether a byte is of a key or one of its joiners.
#[inline]
pub(crate) fn is_key(byte: u8) -> bool {
    static KEY: [bool; 256] = letters_and(b"-_.");
    KEY[usize::from(byte)]
}

/// Whether a byte is of the common alphabet of Base64.
#[inline]
pub(crate) fn is_standard_base64(byte: u8) -> bool {
    static BASE64: [bool; 256] = letters_and(b"+/");
    BASE64[usize::from(byte)]
}

/// Letters, digits and these signs.
const fn letters_and(signs: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < signs.len() {
        table[signs[at] as usize] = true;
        at += 1;
    }
    table
}

/// Every run of at least `least` bytes, in order. Linear, and usually much faster.
pub fn runs<'t>(
    bytes: &'t [u8],
    is_of: impl Fn(u8) -> bool + 't,
    least: usize,
) -> impl Iterator<Item = Range<usize>> + 't {
    // Every long run that begins before `from` was returned.
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let window = bytes.get(from..from + least)?;
            if let Some(other) = window.iter().rposition(|byte| !is_of(*byte)) {
                from += other + 1;
                continue;
            }
            let more = bytes[from + least..].iter().take_while(|byte| is_of(**byte)).count();
            let run = from..from + least + more;
            from = run.end;
            return Some(run);
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sampled_runs_are_those_found_byte_by_byte(text in "[a ]{0,60}", least in 1_usize..9) {
            let bytes = text.as_bytes();
            let words = text.split(' ').map(|word| {
                let start = word.as_ptr() as usize - text.as_ptr() as usize;
                start..start + word.len()
            });
            let long: Vec<Range<usize>> = words.filter(|word| word.len() >= least).collect();
            prop_assert_eq!(runs(bytes, is_key, least).collect::<Vec<_>>(), long);
        }
    }
}
