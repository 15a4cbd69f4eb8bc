//! National identity numbers. A number with a strong check is found anywhere; a weak one only near a word for it.

use std::ops::Range;

use super::national_checks::{
    baltic, belgian, brazilian, chinese, ean, finnish, french, irish, is_day, iso_7064, italian, japanese,
    korean, mexican, national_insurance, norwegian, romanian, shifted_date, singapore, spanish, turkish,
    values,
};
use crate::checks::{self, date, weighted_sum};

/// Bytes around a number in which a label may be.
const LABEL_WINDOW_BEFORE: usize = 56;
const LABEL_WINDOW_AFTER: usize = 20;
/// Minimum digits of all formats.
pub(super) const MIN_COUNT: usize = 6;
/// Shorter labels must be whole words: `bsn`, not `absent`.
const MIN_SUBSTRING_LABEL: usize = 8;

/// When a number needs no label.
#[derive(Clone, Copy, Debug)]
enum WithoutLabel {
    /// At most one in a thousand numbers passes the check.
    Always,
    /// If grouped like this.
    Grouped(&'static [usize]),
    Never,
    /// Never, and only its own label counts.
    Named,
}

/// Digits, perhaps in groups.
struct Form {
    digits: usize,
    check: fn(&[u8]) -> bool,
    alone: WithoutLabel,
    labels: &'static [&'static str],
}

const fn form(
    digits: usize,
    check: fn(&[u8]) -> bool,
    alone: WithoutLabel,
    labels: &'static [&'static str],
) -> Form {
    Form { digits, check, alone, labels }
}

/// Labels for all formats with a check.
const GENERIC_LABELS: [&str; 9] = [
    "national id",
    "national_id",
    "nationalid",
    "identity number",
    "identity card",
    "personal id",
    "social security",
    "social insurance",
    "tax id",
];

const FORMS: [Form; 31] = [
    // France: NIR with its key.
    form(15, french, WithoutLabel::Always, &[]),
    // China.
    form(18, |digits| chinese(digits, digits.last().copied()), WithoutLabel::Always, &[]),
    // Switzerland.
    form(13, |d| d.starts_with(&[7, 5, 6]) && ean(d), WithoutLabel::Always, &[]),
    // Norway.
    form(11, norwegian, WithoutLabel::Always, &[]),
    // Belgium.
    form(11, belgian, WithoutLabel::Always, &[]),
    // Korea.
    form(13, korean, WithoutLabel::Grouped(&[6, 7]), &["주민", "rrn"]),
    // South Africa.
    form(
        13,
        |d| checks::luhn(d) && date(d, 2, 4) && d[10] < 3,
        WithoutLabel::Never,
        &["sa id", "rsa id", "id no", "south african"],
    ),
    // Romania.
    form(13, romanian, WithoutLabel::Never, &["cnp", "numeric personal"]),
    // Brazil.
    form(11, brazilian, WithoutLabel::Grouped(&[3, 3, 3, 2]), &["cpf"]),
    // Poland.
    form(
        11,
        |d| weighted_sum(d, &[1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1]).is_multiple_of(10) && shifted_date(d),
        WithoutLabel::Never,
        &["pesel"],
    ),
    // Turkey.
    form(11, turkish, WithoutLabel::Never, &["tckn", "kimlik", "t.c.", "tc no"]),
    // Germany and Croatia.
    form(
        11,
        iso_7064,
        WithoutLabel::Never,
        &["steuer-id", "steuerid", "idnr", "identifikationsnummer", "steuernummer", "oib"],
    ),
    // Estonia and Lithuania.
    form(11, baltic, WithoutLabel::Never, &["isikukood", "asmens kodas"]),
    // Greece.
    form(11, |d| checks::luhn(d) && date(d, 2, 0), WithoutLabel::Never, &["amka", "αμκα"]),
    // India.
    form(
        12,
        |d| d[0] > 1 && checks::verhoeff(d),
        WithoutLabel::Grouped(&[4, 4, 4]),
        &["aadhaar", "aadhar", "uidai", "आधार"],
    ),
    // Japan.
    form(12, japanese, WithoutLabel::Never, &["my number", "mynumber", "マイナンバー", "個人番号"]),
    // Sweden, with and without the century.
    form(
        12,
        |d| checks::luhn(&d[2..]) && date(d, 4, 6) && matches!(d, [1, 9, ..] | [2, 0, ..]),
        WithoutLabel::Never,
        SWEDISH,
    ),
    form(10, |d| checks::luhn(d) && date(d, 2, 4), WithoutLabel::Never, SWEDISH),
    // Denmark: the check digit was abolished.
    form(10, |d| date(d, 2, 0), WithoutLabel::Named, &["cpr", "personnummer"]),
    // United Kingdom: NHS.
    form(
        10,
        |d| weighted_sum(d, &[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]).is_multiple_of(11),
        WithoutLabel::Never,
        &["nhs"],
    ),
    // Bulgaria.
    form(
        10,
        |d| weighted_sum(d, &[2, 4, 8, 5, 10, 9, 7, 3, 6]) % 11 % 10 == u32::from(d[9]),
        WithoutLabel::Never,
        &["egn", "егн"],
    ),
    // Finland, if the check is a digit.
    form(
        10,
        |d| finnish(&d.iter().map(|d| d + b'0').collect::<Vec<_>>()),
        WithoutLabel::Never,
        &["hetu", "henkilötunnus"],
    ),
    // Czechia and Slovakia.
    form(
        10,
        |d| d.iter().fold(0, |sum, digit| (sum * 10 + u32::from(*digit)) % 11) == 0,
        WithoutLabel::Never,
        &["rodné číslo", "rodne cislo", "rodné č"],
    ),
    // Netherlands.
    form(
        9,
        |d| (weighted_sum(d, &[9, 8, 7, 6, 5, 4, 3, 2]) + 11 * 9 - u32::from(d[8])).is_multiple_of(11),
        WithoutLabel::Never,
        &["bsn", "burgerservicenummer", "sofinummer"],
    ),
    // Canada.
    form(9, checks::luhn, WithoutLabel::Never, &["sin", "social insurance"]),
    // Israel.
    form(9, checks::luhn, WithoutLabel::Never, &["teudat", "ת.ז", "ת\"ז", "תעודת זהות"]),
    // United States.
    form(9, checks::ssn, WithoutLabel::Never, &["ssn", "itin"]),
    // Australia.
    form(
        9,
        |d| weighted_sum(d, &[1, 4, 3, 7, 5, 8, 6, 9, 10]).is_multiple_of(11),
        WithoutLabel::Never,
        &["tfn", "tax file"],
    ),
    // Portugal.
    form(
        9,
        |d| (11 - weighted_sum(d, &[9, 8, 7, 6, 5, 4, 3, 2]) % 11) % 11 % 10 == u32::from(d[8]),
        WithoutLabel::Never,
        &["nif", "contribuinte"],
    ),
    // Passports of digits only.
    form(9, |_| true, WithoutLabel::Named, PASSPORT),
    form(8, |d| !is_day(d), WithoutLabel::Named, PASSPORT),
];

const SWEDISH: &[&str] = &["personnummer", "personnr", "samordningsnummer", "pnr"];
const PASSPORT: &[&str] = &["passport", "reisepass", "passeport", "pasaporte", "passaporto", "护照"];

/// Letters and digits: `A` is a capital, `9` a digit; others are ignored.
struct LetteredId {
    shape: &'static [u8],
    check: fn(&[u8]) -> bool,
    /// Empty: needs no label.
    labels: &'static [&'static str],
}

const LETTERED_IDS: [LetteredId; 10] = [
    // United Kingdom: national insurance.
    LetteredId { shape: b"AA999999A", check: national_insurance, labels: &[] },
    // Spain: citizens and foreigners.
    LetteredId { shape: b"99999999A", check: |v| spanish(v) && !is_day(&values(v)), labels: &[] },
    LetteredId { shape: b"A9999999A", check: |v| spanish(v) || singapore(v), labels: &[] },
    // Finland.
    LetteredId { shape: b"999999999A", check: finnish, labels: &[] },
    // China, if the check is ten.
    LetteredId {
        shape: b"99999999999999999A",
        check: |v| v[17] == b'X' && chinese(&values(v), Some(10)),
        labels: &[],
    },
    // Ireland.
    LetteredId { shape: b"9999999A", check: irish, labels: &["pps", "ppsn"] },
    LetteredId { shape: b"9999999AA", check: irish, labels: &["pps", "ppsn"] },
    // Passports.
    LetteredId { shape: b"A99999999", check: |_| true, labels: PASSPORT },
    LetteredId { shape: b"AA9999999", check: |_| true, labels: PASSPORT },
    LetteredId { shape: b"A9999999A", check: |_| true, labels: PASSPORT },
];

/// The national id at the digits `at`. `sought`: for lookups, without a label.
pub(super) fn find(
    text: &str,
    at: &Range<usize>,
    digits: &[u8],
    groups: &[usize],
    sought: bool,
) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let is_end = |at: Option<&u8>| at.is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    let before = |at: usize| at.checked_sub(1).and_then(|at| bytes.get(at));
    let starts = is_end(before(at.start)) && before(at.start) != Some(&b'.');
    if digits.len() > MIN_COUNT && starts && is_end(bytes.get(at.end)) {
        return number(text, at, digits, groups, sought).then(|| at.clone());
    }
    with_capitals(text, at, digits)
}

fn number(text: &str, at: &Range<usize>, digits: &[u8], groups: &[usize], sought: bool) -> bool {
    // Single words are looked up without this.
    if sought && groups.len() > 1 && (8..=9).contains(&digits.len()) {
        return true;
    }
    let mut near = Near::default();
    let fits = |form: &&Form| form.digits == digits.len() && (form.check)(digits);
    FORMS.iter().filter(fits).any(|form| match form.alone {
        WithoutLabel::Always => true,
        WithoutLabel::Grouped(wanted) if wanted == groups => true,
        WithoutLabel::Grouped(_) | WithoutLabel::Never => {
            near.has_label_near(text, at, form.labels) || near.has_label_near(text, at, &GENERIC_LABELS)
        }
        WithoutLabel::Named => near.has_label_near(text, at, form.labels),
    })
}

/// Capitals around digits, as one value: `AB 12 34 56 C`, `X1234567L`.
fn with_capitals(text: &str, at: &Range<usize>, digits: &[u8]) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let is_capital = |byte: &&u8| byte.is_ascii_uppercase();
    let around = &bytes[at.start.saturating_sub(2)..(at.end + 2).min(bytes.len())];
    if !around.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let gap = |byte: Option<&u8>| usize::from(matches!(byte, Some(b' ' | b'-')) && digits.len() == MIN_COUNT);
    let space = gap(at.start.checked_sub(1).and_then(|before| bytes.get(before)));
    let head = bytes[..at.start - space].iter().rev().take(3).take_while(is_capital).count();
    let start = if head > 0 { at.start - space - head } else { at.start };
    let mut value = bytes[at.start - space - head..at.start - space].to_vec();
    value.extend(digits.iter().map(|digit| b'0' + digit));
    let mut end = at.end;
    // A Finn born since 2000: `010101A123X`.
    if head == 0
        && digits.len() == MIN_COUNT
        && let Some([sign, rest @ ..]) = bytes.get(end..end + 4)
        && sign.is_ascii_uppercase()
        && rest.iter().all(u8::is_ascii_digit)
    {
        value.extend_from_slice(rest);
        end += 4;
    }
    let space = gap(bytes.get(end)) * usize::from(head > 0);
    let tail = bytes[end + space..].iter().take(3).take_while(is_capital).count();
    if tail > 0 {
        value.extend_from_slice(&bytes[end + space..end + space + tail]);
        end += space + tail;
    }
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if is_word(start.checked_sub(1).and_then(|before| bytes.get(before))) || is_word(bytes.get(end)) {
        return None;
    }
    let fits = |form: &LetteredId| {
        form.shape.len() == value.len()
            && form.shape.iter().zip(&value).all(|(shape, byte)| (*shape == b'9') == byte.is_ascii_digit())
            && (form.check)(&value)
            && (form.labels.is_empty() || Near::default().has_label_near(text, &(start..end), form.labels))
    };
    LETTERED_IDS.iter().any(fits).then_some(start..end)
}

/// A word of capitals and digits with a check: Italian and Mexican.
pub(super) fn is_word(word: &[u8]) -> bool {
    let shaped = |shape: &[u8]| {
        shape.len() == word.len()
            && shape.iter().zip(word).all(|(shape, byte)| match shape {
                b'9' => byte.is_ascii_digit(),
                b'A' => byte.is_ascii_uppercase(),
                _ => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            })
    };
    match word.len() {
        16 => shaped(b"AAAAAA99A99A999A") && italian(word),
        18 => shaped(b"AAAA999999AAAAAA*9") && matches!(word[10], b'H' | b'M' | b'X') && mexican(word),
        _ => false,
    }
}

/// The lower-case text around a number, read on first use; None without words.
#[derive(Default)]
struct Near(Option<[String; 2]>);

impl Near {
    /// Whether a label is near `at`.
    fn has_label_near(&mut self, text: &str, at: &Range<usize>, labels: &[&str]) -> bool {
        let near = self.0.get_or_insert_with(|| {
            let before = text.floor_char_boundary(at.start.saturating_sub(LABEL_WINDOW_BEFORE))..at.start;
            let behind = at.end..text.floor_char_boundary(at.end + LABEL_WINDOW_AFTER);
            let is_word = |byte: &u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
            [before, behind].map(|near| match text.as_bytes()[near.clone()].iter().any(is_word) {
                true => text[near].to_lowercase(),
                false => String::new(),
            })
        });
        labels.iter().any(|label| near.iter().any(|near| has_label(near, label)))
    }
}

/// A full search per label and number is slow: most labels' first letters are absent.
fn has_label(near: &str, label: &str) -> bool {
    let bytes = (near.as_bytes(), label.as_bytes());
    let begins = memchr::memchr_iter(bytes.1.first().copied().unwrap_or_default(), bytes.0);
    begins.filter(|at| bytes.0[*at..].starts_with(bytes.1)).any(|at| {
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        label.len() >= MIN_SUBSTRING_LABEL
            || !label.is_ascii()
            || !is_letter(near[..at].chars().next_back())
                && !is_letter(near[at + label.len()..].chars().next())
    })
}

#[cfg(test)]
#[path = "national_tests.rs"]
mod tests;
