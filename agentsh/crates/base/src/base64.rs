//! Base64 in foreign texts: either alphabet, with or without padding.

/// The bytes of a run of Base64 characters. The caller ensures that it contains no others: they count as the last one of the
/// alphabet.
#[must_use]
pub fn decoded(run: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(run.len() / 4 * 3 + 3);
    let (mut buffer, mut bits) = (0_u32, 0);
    for byte in run {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        buffer = buffer << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits & 0xff) as u8);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_alphabets_are_read() {
        assert_eq!(super::decoded(b"eyJhbGciOiJIUzI1NiJ9"), br#"{"alg":"HS256"}"#);
        assert_eq!(super::decoded(b"-_8"), super::decoded(b"+/8"));
    }
}
