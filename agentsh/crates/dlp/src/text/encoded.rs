//! A fast pass that rules out prose, code and tables before the decoders run. If unsure, it says yes.

use agentsh_base::ascii;

/// Letters and digits in a row that may be base64, base32 or hex.
const RUN: usize = 12;
/// A piece that is longer than words are is judged before it ends.
const LONG: usize = 64;
/// A word with signs in it that may be one of the larger alphabets.
const DENSE: usize = 20;
/// Surplus of short pieces that look odd over other ones.
const ODD_PIECES: i32 = 6;
/// Up to this length a text may be nothing but one short value that is encoded.
const SHORT: usize = 64;

#[derive(Clone, Copy, Default)]
struct Piece {
    length: usize,
    digits: usize,
    upper: usize,
    lower: usize,
    /// Small letters that are followed by a capital or a digit.
    turns: usize,
    hex: usize,
}

const UPPER: u8 = 1;
const LOWER: u8 = 2;
const DIGIT: u8 = 4;
const HEX: u8 = 8;
const WHITE: u8 = 16;
/// Signs of prose, names and addresses.
const COMMON: u8 = 32;
/// Other signs.
const SIGN: u8 = 64;
/// The characters of pieces.
const PIECE: u8 = UPPER | LOWER | DIGIT;

static CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        #[expect(clippy::cast_possible_truncation, reason = "it is below 128")]
        let letter = byte as u8;
        table[byte] = match letter {
            b'A'..=b'F' => UPPER | HEX,
            b'G'..=b'Z' => UPPER,
            b'a'..=b'f' => LOWER | HEX,
            b'g'..=b'z' => LOWER,
            b'0'..=b'9' => DIGIT | HEX,
            b' ' | b'\n' | b'\r' | b'\t' => WHITE,
            b'.' | b',' | b'\'' | b'"' | b':' | b';' | b'-' | b'/' | b'(' | b')' | b'_' | b'?' => COMMON,
            0x21..=0x7e => SIGN,
            _ => 0,
        };
        byte += 1;
    }
    table
};

/// Whether something may be encoded in the text. False is a promise only for what programs encode, not for riddles.
#[must_use]
pub fn looks_encoded(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut piece, mut odd) = (Piece::default(), 0);
    let (mut white, mut signs, mut common, mut dense, mut dense_signs) = (0, 0, 0, 0, 0);
    let mut at = 0;
    while at < bytes.len() {
        // A word of small letters at once: it is not an encoding, and most of every text.
        if piece.length == 0 {
            let small = ascii::small_letters(&bytes[at..]);
            let ends = bytes.get(at + small).is_none_or(|next| CLASS[usize::from(*next)] & PIECE == 0);
            if small > 2 && ends {
                at += small;
                dense += small;
                odd = (odd - 1).max(0);
                if bytes.get(at) == Some(&b' ') {
                    at += 1;
                    white += 1;
                    (dense, dense_signs) = (0, 0);
                }
                continue;
            }
        }
        let byte = bytes[at];
        let class = CLASS[usize::from(byte)];
        at += 1;
        if class & PIECE != 0 {
            piece.length += 1;
            dense += 1;
            if piece.length.is_multiple_of(LONG) && piece.is_encoded() {
                return true;
            }
            piece.hex += usize::from(class & HEX != 0);
            if class & LOWER != 0 {
                piece.lower += 1;
            } else {
                let after_small = at > 1 && bytes[at - 2].is_ascii_lowercase();
                piece.turns += usize::from(after_small);
                piece.upper += usize::from(class & UPPER != 0);
                piece.digits += usize::from(class & DIGIT != 0);
            }
            continue;
        }
        if matches!(byte, b'+' | b'/') && piece.length >= 4 && piece.turns > 0 {
            // Base64 within a run.
            piece.length += 1;
            dense += 1;
            continue;
        }
        if piece.length > 0 {
            if piece.is_encoded() {
                return true;
            }
            odd = (odd + if piece.is_odd() { 1 } else { -1 }).max(0);
            if odd >= ODD_PIECES {
                return true;
            }
            piece = Piece::default();
        }
        match class {
            WHITE => {
                white += 1;
                (dense, dense_signs) = (0, 0);
            }
            COMMON => {
                common += 1;
                dense = if byte == b'"' { 0 } else { dense + 1 };
            }
            SIGN => {
                signs += 1;
                dense += 1;
                dense_signs += 1;
                if is_escape(byte, &bytes[at..]) || (dense >= DENSE && dense_signs >= 4) {
                    return true;
                }
            }
            _ if byte >= 0x80 => {
                if is_hidden(&bytes[at - 1..]) {
                    return true;
                }
            }
            _ => return true,
        }
    }
    if piece.length > 0 && (piece.is_encoded() || odd + i32::from(piece.is_odd()) >= ODD_PIECES) {
        return true;
    }
    let length = bytes.len();
    if length <= SHORT && is_short_encoding(bytes, white, signs, common) {
        return true;
    }
    let rest = length - white;
    // Morse and rot47.
    (length >= 16 && common * 5 >= length * 3) || (rest >= 16 && signs * 7 >= rest)
}

/// A text of a few words is too short for statistics: it counts as encoded if it is one word of one case, has many
/// different signs in one word, or groups that are no words.
fn is_short_encoding(bytes: &[u8], white: usize, signs: usize, common: usize) -> bool {
    if white == 0 {
        let is_word = bytes.len() >= RUN + 4 && signs + common == 0;
        return is_word || bytes.len() >= RUN && signs >= 2 && signs + common >= 3 && !bytes.contains(&b'/');
    }
    let mut groups = 0;
    let all_odd = bytes.split(|byte| CLASS[usize::from(*byte)] & WHITE != 0).all(|group| {
        groups += usize::from(!group.is_empty());
        let has = |group: &[u8], class: u8| group.iter().any(|byte| CLASS[usize::from(*byte)] & class != 0);
        let turns = group.get(1..).is_some_and(|rest| has(rest, UPPER)) && has(group, LOWER);
        // The last one of a few may be short.
        let padded = group.ends_with(b"=");
        group.is_empty() || turns || padded || has(group, DIGIT) && has(group, UPPER | LOWER)
    });
    all_odd && groups >= 3
}

impl Piece {
    fn is_encoded(&self) -> bool {
        if self.length < RUN {
            return false;
        }
        let mixed = self.upper > 0 && self.lower > 0 && self.digits > 0;
        let cases = self.upper * 6 >= self.length && self.lower * 6 >= self.length && self.turns >= 2;
        let hex = self.hex == self.length && (self.digits > 0);
        let one_case = self.length >= 16 && (self.lower == 0 || (self.upper == 0 && self.digits >= 2));
        mixed || cases || hex || one_case
    }

    /// Short, and not a word: a group of letters of an encoding, or a number.
    fn is_odd(&self) -> bool {
        self.digits > 0
            || self.turns > 0
            || (self.lower == 0 && self.length >= 2)
            || self.upper > 1
            || (self.length == 2 && self.hex == 2)
            || self.length == 1
    }
}

/// Whether the characters after a sign make it an escape.
fn is_escape(sign: u8, rest: &[u8]) -> bool {
    let hex = |at: usize| rest.get(at).is_some_and(u8::is_ascii_hexdigit);
    match sign {
        b'%' | b'=' => hex(0) && hex(1) || (sign == b'=' && matches!(rest.first(), Some(b'\n' | b'\r'))),
        b'\\' => true,
        _ => false,
    }
}

/// Characters that cannot be seen.
fn is_hidden(rest: &[u8]) -> bool {
    match rest {
        [0xe2, 0x80, third, ..] => (0x8b..=0x8f).contains(third) || (0xaa..=0xae).contains(third),
        [0xe2, 0x81, third, ..] => (0xa0..=0xaf).contains(third),
        [0xef, 0xb8, third, ..] => (0x80..=0x8f).contains(third),
        [0xef, 0xbb, 0xbf, ..] | [0xf3, 0xa0, ..] | [0xc2, 0xad, ..] | [0xe1, 0xa0, 0x8e, ..] => true,
        // Fullwidth signs and digits may spell any of the above.
        [0xef, 0xbc, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_code_and_tables_do_not_look_encoded() {
        for text in [
            "The ferry leaves at nine, so please bring the tickets and something warm to wear.",
            "SELECT id, full_name FROM customers WHERE region = 'north' ORDER BY created_at",
            "for (const row of rows) {\n    total += row.price;\n}\n",
            r#"[{"id":1,"name":"aB3dE6gH","note":"river garden plan"},{"id":2,"name":"xY7zQ1wR","note":"x"}]"#,
            "https://docs.example.com/guide/start",
            "report-2024.md",
            "src/guard/view_tests.rs",
            "Release 2024 of May",
            "Meeting With Anna Lee",
            "feature/login-page",
            "",
        ] {
            assert!(!looks_encoded(text), "{text}");
        }
    }

    #[test]
    fn encodings_of_programs_look_encoded() {
        for text in [
            "bWVldCBtZSBhdCB0aGUgb3JjaGFyZA==",
            "please store bWVldCBtZSBhdCB0aGUgb3JjaGFyZA and go on",
            "6d656574206d65206174",
            "6d 65 65 74 20 6d 65 20 61 74",
            "109 101 101 116 32 109 101",
            "NVSWK5BANVSSAYLUEB2GQZI=",
            "meet%20me",
            "meet\\u0020me",
            "-- . . - / -- . / .- - / - .... .",
            "m-e=20e=65t",
            "meet\u{200b}me",
            "5tbj6;-3VX8fQgD=u&uT",
            "guztmljzgawtimzz",
            "Z3Jhbml0 ZU11bGUh T3Nsbw==",
            "Z3Jhbml0\nZU11bGUh\nOTQ=",
            "01101101 01100101 01100101 01110100 00100000 01101101",
        ] {
            assert!(looks_encoded(text), "{text}");
        }
    }
}
