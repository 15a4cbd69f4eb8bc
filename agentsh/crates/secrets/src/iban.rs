//! IBANs (ISO 13616), also in groups of four.

use std::ops::Range;

use crate::checks;

/// The place of an IBAN that begins at `start`.
pub(crate) fn find_iban(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    const MAX_COUNT: usize = 34;
    if !matches!(bytes.get(start..), Some([b'A'..=b'Z', b'A'..=b'Z', b'0'..=b'9', ..]))
        || start.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_alphanumeric())
    {
        return None;
    }
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let (mut value, mut ends, mut end) = (Vec::with_capacity(MAX_COUNT), Vec::new(), start);
    while value.len() < MAX_COUNT {
        match bytes.get(end) {
            Some(byte) if is_part(*byte) => {
                value.push(*byte);
                end += 1;
                if bytes.get(end).is_none_or(|next| !next.is_ascii_alphanumeric()) {
                    ends.push((value.len(), end));
                }
            }
            Some(b' ')
                if value.len().is_multiple_of(4) && bytes.get(end + 1).is_some_and(|b| is_part(*b)) =>
            {
                end += 1
            }
            _ => break,
        }
    }
    let whole = ends.iter().rev().find(|(length, _)| checks::iban(&value[..*length]))?;
    Some(start..whole.1)
}
