//! Checks of national identity numbers. Digits are values, words are ASCII; lengths are those of the format.

use crate::checks::{date, weighted_sum};

pub(super) fn values(word: &[u8]) -> Vec<u8> {
    word.iter().filter(|byte| byte.is_ascii_digit()).map(|digit| digit - b'0').collect()
}

fn number_of(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(*digit))
}

/// `20241105`
pub(super) fn is_day(digits: &[u8]) -> bool {
    matches!(digits, [1, 9, ..] | [2, 0, ..]) && date(digits, 4, 6)
}

pub(super) fn french(digits: &[u8]) -> bool {
    let month = number_of(&digits[3..5]);
    matches!(digits[0], 1 | 2)
        && (matches!(month, 1..=12) || month == 20)
        && number_of(&digits[5..7]) > 0
        && 97 - number_of(&digits[..13]) % 97 == number_of(&digits[13..])
}

/// 17 digits and their check.
pub(super) fn chinese(digits: &[u8], check: Option<u8>) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    matches!(number_of(&digits[..2]), 11..=15 | 21..=23 | 31..=37 | 41..=46 | 50..=54 | 61..=65 | 71 | 81 | 82)
        && matches!(number_of(&digits[6..8]), 19 | 20)
        && date(digits, 10, 12)
        && check.is_some_and(|check| (12 - weighted_sum(digits, &WEIGHTS) % 11) % 11 == u32::from(check))
}

pub(super) fn ean(digits: &[u8]) -> bool {
    weighted_sum(digits, &[1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1]).is_multiple_of(10)
}

pub(super) fn norwegian(digits: &[u8]) -> bool {
    let mut born = digits.to_vec();
    // Temporary residents have 40 added to the day.
    born[0] = if born[0] >= 4 { born[0] - 4 } else { born[0] };
    date(&born, 2, 0)
        && weighted_sum(digits, &[3, 7, 6, 1, 8, 9, 4, 5, 2, 1]).is_multiple_of(11)
        && weighted_sum(digits, &[5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11)
}

pub(super) fn belgian(digits: &[u8]) -> bool {
    let (born, check) = (number_of(&digits[..9]), number_of(&digits[9..]));
    date(digits, 2, 4) && (97 - born % 97 == check || 97 - (2_000_000_000 + born) % 97 == check)
}

pub(super) fn korean(digits: &[u8]) -> bool {
    let sum = weighted_sum(digits, &[2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5]);
    date(digits, 2, 4) && matches!(digits[6], 1..=8) && (11 - sum % 11) % 10 == u32::from(digits[12])
}

pub(super) fn romanian(digits: &[u8]) -> bool {
    let sum = weighted_sum(digits, &[2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9]) % 11;
    matches!(digits[0], 1..=8)
        && date(digits, 3, 5)
        && (if sum == 10 { 1 } else { sum }) == u32::from(digits[12])
}

pub(super) fn brazilian(digits: &[u8]) -> bool {
    let check = |weights: &[u32]| match weighted_sum(digits, weights) % 11 {
        0 | 1 => 0,
        rest => 11 - rest,
    };
    digits.iter().any(|digit| *digit != digits[0])
        && check(&[10, 9, 8, 7, 6, 5, 4, 3, 2]) == u32::from(digits[9])
        && check(&[11, 10, 9, 8, 7, 6, 5, 4, 3, 2]) == u32::from(digits[10])
}

/// The century is part of the month.
pub(super) fn shifted_date(digits: &[u8]) -> bool {
    let mut born = digits.to_vec();
    born[2] %= 2;
    date(&born, 2, 4)
}

pub(super) fn turkish(digits: &[u8]) -> bool {
    let odd = weighted_sum(digits, &[7, 0, 7, 0, 7, 0, 7, 0, 7]);
    let even = weighted_sum(digits, &[0, 1, 0, 1, 0, 1, 0, 1]);
    digits[0] != 0
        && (odd + 100 - even) % 10 == u32::from(digits[9])
        && weighted_sum(digits, &[1; 10]) % 10 == u32::from(digits[10])
}

/// ISO 7064, MOD 11,10.
pub(super) fn iso_7064(digits: &[u8]) -> bool {
    let product = digits[..10].iter().fold(10, |product, digit| {
        let sum = (product + u32::from(*digit)) % 10;
        (if sum == 0 { 10 } else { sum }) * 2 % 11
    });
    (11 - product) % 10 == u32::from(digits[10])
}

pub(super) fn baltic(digits: &[u8]) -> bool {
    let first = weighted_sum(digits, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 1]) % 11;
    let second = weighted_sum(digits, &[3, 4, 5, 6, 7, 8, 9, 1, 2, 3]) % 11 % 10;
    matches!(digits[0], 1..=8)
        && date(digits, 3, 5)
        && (if first == 10 { second } else { first }) == u32::from(digits[10])
}

pub(super) fn japanese(digits: &[u8]) -> bool {
    let rest = weighted_sum(digits, &[6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2]) % 11;
    (if rest < 2 { 0 } else { 11 - rest }) == u32::from(digits[11])
}

pub(super) fn national_insurance(value: &[u8]) -> bool {
    let [first, second, ..] = value else { return false };
    // QQ is never issued, and is used in examples.
    if value.starts_with(b"QQ") {
        return matches!(value[8], b'A'..=b'D');
    }
    !b"DFIQUV".contains(first)
        && !b"DFIQUVO".contains(second)
        && ![*b"BG", *b"GB", *b"NK", *b"KN", *b"TN", *b"NT", *b"ZZ"].contains(&[*first, *second])
        && matches!(value[8], b'A'..=b'D')
}

/// The letter is the number modulo 23; leading `X`, `Y`, `Z` mean 0, 1, 2.
pub(super) fn spanish(value: &[u8]) -> bool {
    let Some((last, front)) = value.split_last() else { return false };
    let mut digits = values(front);
    match front.first() {
        Some(letter @ b'X'..=b'Z') => digits.insert(0, letter - b'X'),
        Some(b'0'..=b'9') => {}
        _ => return false,
    }
    b"TRWAGMYFPDXBNJZSQVHLCKE".get((number_of(&digits) % 23) as usize) == Some(last)
}

pub(super) fn singapore(value: &[u8]) -> bool {
    let sum = weighted_sum(&values(value), &[2, 7, 6, 5, 4, 3, 2]);
    let (letters, offset): (&[u8; 11], u32) = match value[0] {
        b'S' => (b"JZIHGFEDCBA", 0),
        b'T' => (b"JZIHGFEDCBA", 4),
        b'F' => (b"XWUTRQPNMLK", 0),
        b'G' => (b"XWUTRQPNMLK", 4),
        _ => return false,
    };
    letters[((sum + offset) % 11) as usize] == value[8]
}

pub(super) fn finnish(value: &[u8]) -> bool {
    let digits = values(&value[..9]);
    date(&digits, 2, 0)
        && b"0123456789ABCDEFHJKLMNPRSTUVWXY".get((number_of(&digits) % 31) as usize) == value.last()
}

pub(super) fn irish(value: &[u8]) -> bool {
    let second = value.get(8).map_or(0, |letter| u32::from(letter - b'@') * 9);
    let sum = weighted_sum(&values(value), &[8, 7, 6, 5, 4, 3, 2]) + second;
    b"WABCDEFGHIJKLMNOPQRSTUV".get((sum % 23) as usize) == Some(&value[7])
}

pub(super) fn italian(word: &[u8]) -> bool {
    const ODD: [u32; 26] =
        [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23];
    let sum: u32 = word[..15]
        .iter()
        .enumerate()
        .map(|(at, byte)| {
            let value = usize::from(if byte.is_ascii_digit() { byte - b'0' } else { byte - b'A' });
            if at % 2 == 0 { ODD[value] } else { value as u32 }
        })
        .sum();
    sum % 26 == u32::from(word[15] - b'A')
}

pub(super) fn mexican(word: &[u8]) -> bool {
    // After N comes a letter outside ASCII.
    let value = |byte: u8| match byte {
        b'0'..=b'9' => u32::from(byte - b'0'),
        b'A'..=b'N' => u32::from(byte - b'A') + 10,
        _ => u32::from(byte - b'A') + 11,
    };
    let sum: u32 = word[..17].iter().zip(2_u32..).map(|(byte, at)| value(*byte) * (20 - at)).sum();
    (10 - sum % 10) % 10 == u32::from(word[17] - b'0') && date(&values(&word[4..10]), 2, 4)
}
