//! Whole numbers that hold two, three or four bytes of a text each, in either order.

/// Fewer bytes are chance.
const MIN_LENGTH: usize = 12;

/// The texts that numbers may be. Nothing comes out of numbers of one byte each: those are codes of characters.
#[must_use]
pub fn widened(values: &[u32]) -> Vec<String> {
    let most = values.iter().copied().max().unwrap_or(0);
    let widths: &[usize] = match most {
        0..=0xff => return Vec::new(),
        0x100..=0xffff => &[2],
        0x1_0000..=0xff_ffff => &[3, 4],
        _ => &[4],
    };
    let orders = widths.iter().flat_map(|width| [(*width, false), (*width, true)]);
    orders.filter_map(|(width, least_first)| text_of(values, width, least_first)).collect()
}

fn text_of(values: &[u32], width: usize, least_first: bool) -> Option<String> {
    if values.len() * width < MIN_LENGTH {
        return None;
    }
    let mut bytes = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let mut number = value.to_be_bytes();
        let group = &mut number[4 - width..];
        if least_first {
            group.reverse();
        }
        // The last group may be filled up, and a dump ends with the address behind it.
        let is_last = at + 2 >= values.len();
        let is_text = |byte: &u8| *byte >= 0x20 && *byte != 0x7f || matches!(byte, b'\n' | b'\r' | b'\t');
        if !group.iter().all(|byte| is_text(byte) || is_last && *byte == 0) {
            return None;
        }
        bytes.extend(group.iter().filter(|byte| **byte != 0));
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    const SAID: &str = "the orchard at Lindenau";

    #[test]
    fn numbers_of_every_width_and_order_are_read() {
        for width in 2..=4 {
            for least_first in [false, true] {
                let numbers: Vec<u32> = SAID
                    .as_bytes()
                    .chunks(width)
                    .map(|group| {
                        let fold = |number: u32, byte: &u8| number << 8 | u32::from(*byte);
                        if least_first {
                            group.iter().rev().fold(0, fold)
                        } else {
                            group.iter().fold(0, fold)
                        }
                    })
                    .collect();
                assert!(widened(&numbers).iter().any(|text| text == SAID), "{numbers:?}");
            }
        }
    }

    #[test]
    fn amounts_years_and_ids_are_none() {
        for numbers in [
            vec![2019, 2020, 2021, 2022, 2023, 2024],
            vec![8080, 443, 5432, 6379, 9200, 27017],
            vec![104_233, 98_120, 87_002, 120_455],
            vec![3_000_000_017, 2_999_120_001, 1_200_440_812],
            vec![1, 2, 3],
            vec![],
        ] {
            assert_eq!(widened(&numbers), Vec::<String>::new(), "{numbers:?}");
        }
    }
}
