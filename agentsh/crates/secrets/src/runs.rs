//! Long runs of one class of bytes, found by sampling: a run of that length covers a sampled position.

use std::ops::Range;

/// The bytes of a run.
pub(crate) type Kind = [bool; 256];

/// Base64.
pub(crate) static BASE64: Kind = kind(b"+/");
/// Bytes of keys, and their joiners.
pub(crate) static KEY: Kind = kind(b"-_.");

const fn kind(signs: &[u8]) -> Kind {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_u8 {
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
pub(crate) fn runs<'t>(
    bytes: &'t [u8],
    kind: &'static Kind,
    least: usize,
) -> impl Iterator<Item = Range<usize>> + 't {
    // Every long run that begins before `from` was returned.
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let window = bytes.get(from..from + least)?;
            if let Some(other) = window.iter().rposition(|byte| !kind[usize::from(*byte)]) {
                from += other + 1;
                continue;
            }
            let more = bytes[from + least..].iter().take_while(|byte| kind[usize::from(**byte)]).count();
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
            prop_assert_eq!(runs(bytes, &KEY, least).collect::<Vec<_>>(), long);
        }
    }
}
