//! Check digits, entropy and other measures.

/// The Luhn check of a card number.
#[must_use]
pub fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, &digit)| {
            let doubled = u32::from(digit) * if at % 2 == 1 { 2 } else { 1 };
            if doubled > 9 { doubled - 9 } else { doubled }
        })
        .sum();
    !digits.is_empty() && sum.is_multiple_of(10)
}

/// The check of an IBAN without spaces (remainder of 97).
#[must_use]
pub fn iban(value: &[u8]) -> bool {
    if !(15..=34).contains(&value.len())
        || !value[..2].iter().all(u8::is_ascii_alphabetic)
        || !value[2..4].iter().all(u8::is_ascii_digit)
    {
        return false;
    }
    let remainder = value[4..].iter().chain(&value[..4]).try_fold(0_u32, |sum, byte| {
        let digit = char::from(*byte).to_digit(36)?;
        Some(if digit > 9 { (sum * 100 + digit) % 97 } else { (sum * 10 + digit) % 97 })
    });
    remainder == Some(1)
}

/// A US social security number, without ranges that are never issued.
#[must_use]
pub fn ssn(digits: &[u8]) -> bool {
    let number = |range: std::ops::Range<usize>| {
        digits.get(range).map_or(0, |part| part.iter().fold(0, |sum, &digit| sum * 10 + u32::from(digit)))
    };
    digits.len() == 9
        && !matches!(number(0..3), 0 | 666 | 900..=999)
        && number(3..5) != 0
        && number(5..9) != 0
}

/// The weighted sum of digits.
#[must_use]
pub fn weighted_sum(digits: &[u8], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| u32::from(*digit) * weight).sum()
}

/// Whether two digits at one place are a month, and at another a day.
#[must_use]
pub fn date(digits: &[u8], month: usize, day: usize) -> bool {
    let number = |at: usize| Some(digits.get(at)? * 10 + digits.get(at + 1)?);
    matches!(number(month), Some(1..=12)) && matches!(number(day), Some(1..=31))
}

/// The Verhoeff check.
#[must_use]
pub fn verhoeff(digits: &[u8]) -> bool {
    const PERMUTED: [u8; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let product = |a: u8, b: u8| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => (a + b - 5) % 5 + 5,
        (false, true) => (a - b) % 5 + 5,
        (false, false) => (a + 5 - b) % 5,
    };
    let check = digits.iter().rev().enumerate().fold(0, |check, (at, digit)| {
        let turned = (0..at % 8).fold(*digit, |digit, _| PERMUTED[usize::from(digit % 10)]);
        product(check, turned)
    });
    check == 0
}

/// Shannon entropy, in bits per character.
#[must_use]
pub fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for &byte in text {
        counts[usize::from(byte)] += 1;
    }
    // Bytes that occur once add nothing.
    let repeated: f64 = text
        .iter()
        .map(|byte| counts[usize::from(*byte)])
        .filter(|count| *count > 1)
        .map(|count| f64::from(count).log2())
        .sum();
    let length = text.len().max(1) as f64;
    length.log2() - repeated / length
}

/// Whether a word looks random: case and digits change more often than in written words.
#[must_use]
pub fn looks_random(word: &[u8]) -> bool {
    // Nine different bytes have 3.17 bits each.
    if word.len() < 10 {
        return false;
    }
    let class = |byte: u8| match byte {
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 3,
        _ => 0,
    };
    let mut changes = 0;
    let mut previous = 0;
    let (mut letters, mut digits) = (0_usize, 0_usize);
    for &byte in word {
        let now = class(byte);
        letters += usize::from(now == 1 || now == 2);
        digits += usize::from(now == 3);
        // `Name` has one change that people make.
        changes += usize::from(now != 0 && previous != 0 && now != previous && !(previous == 2 && now == 1));
        if now != 0 {
            previous = now;
        }
    }
    letters > 0 && digits > 0 && changes * 5 >= word.len() && entropy(word) >= 3.2
}

/// Hexadecimal digits alone.
#[must_use]
pub fn is_hex(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A UUID in groups.
#[must_use]
pub fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| {
            if matches!(at, 8 | 13 | 18 | 23) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}

/// Whether these digits begin a card number of this length (ISO/IEC 7812).
#[must_use]
pub fn is_issuer(digits: &[u8]) -> bool {
    let first =
        |count: usize| digits.iter().take(count).fold(0_u32, |sum, digit| sum * 10 + u32::from(*digit));
    let length = digits.len();
    match (first(1), first(2), first(3), first(4)) {
        (4, ..) => matches!(length, 13 | 16 | 19),
        (_, 51..=55, ..) | (_, _, _, 2221..=2720) => length == 16,
        (_, 34 | 37, ..) => length == 15,
        (_, _, _, 3528..=3589) => (16..=19).contains(&length),
        (_, _, 300..=305, _) | (_, _, _, 3095) | (_, 36 | 38 | 39, ..) => (14..=19).contains(&length),
        (_, 62, ..) | (_, 65, ..) | (_, _, 644..=649, _) | (_, _, _, 6011) => (16..=19).contains(&length),
        _ => false,
    }
}
