//! Base64 in foreign texts: either alphabet, with or without padding.

/// The bytes of a run of Base64 characters. The caller ensures that it contains no others: they count as the last one of the
/// alphabet.
#[must_use]
pub fn decoded(run: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(run.len() / 4 * 3 + 3);
    let bits =
        |bytes: &[u8]| bytes.iter().fold(0, |bits, byte| bits << 6 | u32::from(VALUES[usize::from(*byte)]));
    let (fours, rest) = run.as_chunks::<4>();
    for four in fours {
        out.extend_from_slice(&bits(four).to_be_bytes()[1..]);
    }
    let last = bits(rest) << (24 - 6 * rest.len());
    out.extend_from_slice(&last.to_be_bytes()[1..=rest.len() * 6 / 8]);
    out
}

static VALUES: [u8; 256] = {
    let mut table = [63; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            letter @ b'A'..=b'Z' => letter - b'A',
            letter @ b'a'..=b'z' => letter - b'a' + 26,
            digit @ b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            _ => 63,
        };
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    #[test]
    fn base64_reads_both_alphabets() {
        assert_eq!(super::decoded(b"eyJhbGciOiJIUzI1NiJ9"), br#"{"alg":"HS256"}"#);
        assert_eq!(super::decoded(b"-_8"), super::decoded(b"+/8"));
    }
}
