//! Alphabets in which each letter stands for a fixed number of bits. Both alphabets of Base64 are one: no encoder mixes them.

/// A byte that is no letter.
pub const NONE: u8 = u8::MAX;

/// The value of each byte.
pub type Values = [u8; 256];

pub static HEX: Values = {
    let mut table = values(b"0123456789ABCDEF");
    let mut letter = b'A';
    while letter <= b'F' {
        table[letter.to_ascii_lowercase() as usize] = table[letter as usize];
        letter += 1;
    }
    table
};
pub static BASE32: Values = values(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
pub static BASE64: Values = {
    let mut both = values(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
    (both[b'-' as usize], both[b'_' as usize]) = (62, 63);
    both
};

/// The values of letters that are given in their order.
#[must_use]
pub const fn values(letters: &[u8]) -> Values {
    let mut table = [NONE; 256];
    let mut value = 0;
    while value < letters.len() {
        table[letters[value] as usize] = value as u8;
        value += 1;
    }
    table
}

/// The bytes that a text of Base64 stands for. Padding and other bytes are left out.
#[must_use]
pub fn base64(text: &[u8]) -> Vec<u8> {
    decoded::<6, 4>(text, &BASE64)
}

/// The bytes of a text with `BITS` to a letter, where `GROUP` letters are a whole number of bytes.
#[must_use]
pub fn decoded<const BITS: usize, const GROUP: usize>(text: &[u8], values: &Values) -> Vec<u8> {
    let (mut symbols, mut bytes) = (Vec::with_capacity(text.len()), Vec::new());
    symbols.extend(text.iter().map(|letter| values[usize::from(*letter)]));
    symbols.retain(|symbol| *symbol != NONE);
    pack::<BITS, GROUP>(&symbols, &mut bytes);
    bytes
}

/// Like [`decoded`], for the values of the letters.
pub fn pack<const BITS: usize, const GROUP: usize>(symbols: &[u8], out: &mut Vec<u8>) {
    let size = BITS * GROUP / 8;
    out.clear();
    out.resize(symbols.len() / GROUP * size, 0);
    let word = |symbols: &[u8]| symbols.iter().fold(0_u64, |word, symbol| word << BITS | u64::from(*symbol));
    let mut chunks = symbols.chunks_exact(GROUP);
    for (chunk, out) in (&mut chunks).zip(out.chunks_exact_mut(size)) {
        out.copy_from_slice(&word(chunk).to_be_bytes()[8 - size..]);
    }
    let rest = chunks.remainder();
    let bits = rest.len() * BITS;
    if bits >= 8 {
        out.extend_from_slice(&(word(rest) >> (bits % 8)).to_be_bytes()[8 - bits / 8..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabets_decode_to_the_bytes_that_were_encoded() {
        assert_eq!(base64(b"eyJhbGciOiJIUzI1NiJ9"), br#"{"alg":"HS256"}"#);
        assert_eq!(base64(b"-_8"), base64(b"+/8="));
        assert_eq!(base64(b"SWdu\r\nb3Jl"), b"Ignore");
        assert_eq!(decoded::<5, 8>(b"JFTW433SMUQGC3DM", &BASE32), b"Ignore all");
        assert_eq!(decoded::<4, 2>(b"49676E6f7265", &HEX), b"Ignore");
        assert_eq!(base64(b"QQ"), b"A");
        assert_eq!(base64(b"Q"), b"");
    }
}
