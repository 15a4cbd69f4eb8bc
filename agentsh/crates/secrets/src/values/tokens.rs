//! Words with a meaning: addresses, identifiers, keys, values after the name of a secret.

use super::entities::{Entity, Kind};
use super::{columns, ids, national};
use crate::names::{MAX_WORD, is_copula, is_secret_name, is_told, is_value};
use crate::{checks, key_formats};
use agentsh_base::ascii;

const MAX_LOCAL: usize = 64;
const MAX_DOMAIN: usize = 253;

pub(super) fn find(text: &str, limit: usize, found: &mut Vec<Entity>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    let (mut announced, mut table_end) = (false, 0);
    while at < bytes.len() {
        if found.len() >= limit {
            return;
        }
        let class = class(bytes[at]);
        if class == WORD_BREAK {
            // A secret's name applies to the next word only after these.
            if matches!(bytes[at], b'\n' | b',' | b'{' | b'}' | b'[' | b']') {
                announced &= bytes[at] == b'[';
            }
            at += 1;
            continue;
        }
        let letters = ascii::letters(&bytes[at..]);
        let stop = usize::from(bytes.get(at + letters) == Some(&b'.'));
        let ends = bytes.get(at + letters + stop).is_none_or(|next| self::class(*next) == WORD_BREAK);
        let end = if letters > 0 && ends && letters <= MAX_PLAIN {
            // Letters alone are not a value.
            at + letters + stop
        } else {
            let end = at + letters + length(&bytes[at + letters..], |class| class != WORD_BREAK);
            check_word(text, at, end, announced, found);
            end
        };
        announced = match next(text, at, end, announced) {
            Expectation::Value => true,
            Expectation::Cell if at >= table_end => {
                table_end = columns::find(text, at, limit, found);
                false
            }
            Expectation::Cell | Expectation::Nothing => false,
        };
        at = end;
    }
}

/// Maximum length of a plain word.
const MAX_PLAIN: usize = 16;
/// Always ends a word.
const WORD_BREAK: u8 = 1;
static CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let breaks = b" \n\r\t\"'`<>{}[](),;|";
    let mut at = 0;
    while at < breaks.len() {
        table[breaks[at] as usize] = WORD_BREAK;
        at += 1;
    }
    table
};

#[inline]
fn class(byte: u8) -> u8 {
    CLASS[usize::from(byte)]
}

/// Length of the leading bytes of a class.
#[inline]
fn length(bytes: &[u8], fits: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !fits(class(*byte))).unwrap_or(bytes.len())
}

/// The kind of value that a word announces.
enum Expectation {
    Nothing,
    /// A secret: after `password:`, `"token": `, `Bearer`, `password is`, `<password>`.
    Value,
    /// A table cell, perhaps a header for secrets.
    Cell,
}

fn next(text: &str, start: usize, end: usize, announced: bool) -> Expectation {
    let word = &text[start..end];
    let ahead = &text.as_bytes()[end..];
    let told = |is_told: bool| if is_told { Expectation::Value } else { Expectation::Nothing };
    // Usually another word follows.
    let is_next = matches!(ahead, [b' ', next, ..] if next.is_ascii_alphabetic());
    if !announced && is_next && !matches!(end - start, 5 | 6) && !word.ends_with([':', '=']) {
        return told(is_copula(&ahead[1..]) && is_secret_name(word));
    }
    let behind = ahead.iter().find(|byte| !matches!(byte, b'"' | b'\'' | b'`' | b' ' | b'*'));
    let is_tag = ahead.first() == Some(&b'>')
        && word.as_bytes()[0].is_ascii_alphabetic()
        && start.checked_sub(1).map(|before| text.as_bytes()[before]) == Some(b'<');
    let is_assigned = word.ends_with([':', '=', '：'])
        || is_tag
        || matches!(behind, Some(b':' | b'='))
        || is_next && is_copula(&ahead[1..]);
    match word.len() {
        6 if word.eq_ignore_ascii_case("bearer") => return Expectation::Value,
        5 if word.eq_ignore_ascii_case("basic") => return Expectation::Value,
        5 | 6 if is_assigned && word.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("value")) => {
            // `{"name": "password", "value": "..."}`
            return told(names_secret(&text[..start]));
        }
        1 | 2 if matches!(word, ":" | "=" | ":=" | "=>") => return told(announced),
        1..=7 if announced && is_copula(word.as_bytes()) => return Expectation::Value,
        _ => {}
    }
    match behind {
        _ if is_assigned => told(is_secret_name(word)),
        Some(b',' | b'|' | b'\t' | b';' | b'\n' | b'\r') if is_secret_name(word) => Expectation::Cell,
        _ => Expectation::Nothing,
    }
}

/// Whether a text ends with a secret's name.
fn names_secret(before: &str) -> bool {
    const NAME_WINDOW_BYTES: usize = 80;
    let near = &before[before.floor_char_boundary(before.len().saturating_sub(NAME_WINDOW_BYTES))..];
    let near = near.trim_end_matches(|c: char| !c.is_alphanumeric());
    near.rsplit(|c: char| c.is_whitespace() || "\"'`<>,".contains(c)).next().is_some_and(is_secret_name)
}

fn check_word(text: &str, start: usize, end: usize, announced: bool, found: &mut Vec<Entity>) {
    let end = start + text[start..end].trim_end_matches(['.', ':', '!', '?', '\\']).len();
    let word = &text[start..end];
    if word.len() < 6 {
        return;
    }
    let (before, mut is_assignment) = (found.len(), false);
    let mut push = |kind, start, end| found.push(Entity { kind, start, end });
    if let Some(scheme) = find_scheme(word).filter(|scheme| *scheme <= 30 && word.len() > scheme + 6) {
        address(word, scheme, start, &mut push);
        return;
    }
    if announced && is_value(word) || is_told(text, start, word) {
        push(Kind::NamedSecret, start, end);
        return;
    }
    // A known key format wins.
    if key_formats::key_kind(word).is_none() && word.len() <= MAX_WORD && ids::is_id(text, start, word) {
        push(Kind::Id, start, end);
        return;
    }
    if let Some(at) =
        word.bytes().position(|byte| matches!(byte, b'=' | b':')).filter(|at| *at + 8 < word.len())
        && word.len() <= MAX_WORD
        && !word[at + 1..].bytes().all(|byte| byte == b'=')
    {
        let secret = is_secret_name(&word[..at]);
        let value = word[at + 1..].trim_start_matches(['=', ':']);
        let value_start = end - value.len();
        // A known format is reported as such.
        if secret && is_value(value) && key_formats::key_kind(value).is_none() {
            push(Kind::NamedSecret, value_start, end);
        } else {
            classify(value, value_start, &mut push);
        }
        is_assignment =
            word[..at].bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    }
    emails(word, start, &mut push);
    // Only the value of an assignment counts.
    if !is_assignment || found.len() == before {
        classify(word, start, &mut |kind, start, end| found.push(Entity { kind, start, end }));
    }
    if found.len() == before && !word.is_ascii() {
        parts(text, start, end, found);
    }
    for entity in &mut found[before..] {
        if entity.kind == Kind::HighEntropy && ids::is_called_id(&text[..entity.start]) {
            entity.kind = Kind::Id;
        }
    }
}

/// The position of `://`.
fn find_scheme(word: &str) -> Option<usize> {
    memchr::memchr_iter(b':', word.as_bytes()).find(|at| word.as_bytes()[*at..].starts_with(b"://"))
}

/// Limit of a name in another script with its link, in bytes.
const MAX_FOREIGN: usize = 32;

/// ASCII words between letters of other scripts, without spaces.
fn parts(text: &str, start: usize, end: usize, found: &mut Vec<Entity>) {
    let bytes = &text.as_bytes()[..end];
    let mut at = start;
    while at < end {
        let length = length_of(&bytes[at..], u8::is_ascii);
        if length >= 6 {
            let value = text[at..at + length].trim_matches([':', '.', '=']);
            let from = value.as_ptr() as usize - text.as_ptr() as usize;
            // The name is the end of the preceding text, perhaps a whole sentence.
            let name = &text[start.max(text.floor_char_boundary(at.saturating_sub(MAX_FOREIGN)))..at];
            if is_value(value) && is_secret_name(name) {
                found.push(Entity { kind: Kind::NamedSecret, start: from, end: from + value.len() });
            } else {
                classify(value, from, &mut |kind, start, end| found.push(Entity { kind, start, end }));
            }
        }
        at += length;
        at += length_of(&bytes[at..], |byte| !byte.is_ascii());
    }
}

fn length_of(bytes: &[u8], fits: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().position(|byte| !fits(byte)).unwrap_or(bytes.len())
}

/// A URL, or a connection string if it has a password; and secrets in its parts.
fn address(word: &str, scheme: usize, start: usize, push: &mut impl FnMut(Kind, usize, usize)) {
    let word = word.trim_end_matches(['.', '*', '_']);
    let rest = &word[scheme + 3..];
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let user = rest[..authority].rfind('@');
    if let Some(user) = user
        && let Some(colon) = rest[..user].find(':').filter(|colon| colon + 3 < user)
    {
        push(Kind::ConnectionString, start + scheme + 3 + colon + 1, start + scheme + 3 + user);
    }
    push(Kind::Url, start, start + word.len());
    let mut at = scheme + 3 + authority;
    for part in rest[authority..].split(['/', '?', '&', '#', '=']) {
        if let Some((Kind::ApiKey | Kind::Jwt, _)) = key_formats::key_kind(part) {
            push(Kind::ApiKey, start + at, start + at + part.len());
        } else if part.len() >= 24
            && part.len() <= MAX_WORD
            && checks::looks_random(part.as_bytes())
            && !checks::is_hex(part)
        {
            push(Kind::HighEntropy, start + at, start + at + part.len());
        }
        at += part.len() + 1;
    }
}

fn emails(word: &str, start: usize, push: &mut impl FnMut(Kind, usize, usize)) {
    let bytes = word.as_bytes();
    for at in memchr::memchr_iter(b'@', bytes) {
        let local = bytes[..at]
            .iter()
            .rev()
            .take(MAX_LOCAL)
            .take_while(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-')
            })
            .count();
        let domain = bytes[at + 1..]
            .iter()
            .take(MAX_DOMAIN)
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
            .count();
        let name = word[at + 1..at + 1 + domain].trim_end_matches(['.', '-']);
        let top = name.rsplit('.').next().unwrap_or_default();
        if local > 0
            && name.len() > top.len() + 1
            && top.len() >= 2
            && top.bytes().all(|byte| byte.is_ascii_alphabetic())
        {
            push(Kind::Email, start + at - local, start + at + 1 + name.len());
        }
    }
}

/// Words joined by `_` or `-`, perhaps with a short number: a name.
fn is_name(word: &str) -> bool {
    let (mut words, mut others) = (0, 0);
    for part in word.split(['_', '-']) {
        let bytes = part.as_bytes();
        let (first, rest) = bytes.split_first().unwrap_or((&b'-', &[]));
        let one_case = rest.iter().all(u8::is_ascii_lowercase) || bytes.iter().all(u8::is_ascii_uppercase);
        if bytes.len() >= 3 && first.is_ascii_alphabetic() && one_case {
            words += 1;
        } else {
            others += part.len();
        }
    }
    words >= 2 && others <= 8
}

/// A word by its own form.
fn classify(word: &str, start: usize, push: &mut impl FnMut(Kind, usize, usize)) {
    let end = start + word.len();
    if word.len() > MAX_WORD {
        return;
    }
    if let Some((kind, prefix)) = key_formats::key_kind(word) {
        // A short prefix is not worth tracking.
        push(kind, if prefix < 5 { start } else { start + prefix }, end);
        return;
    }
    let bytes = word.as_bytes();
    if checks::iban(bytes) {
        push(Kind::Iban, start, end);
    } else if national::is_word(bytes) {
        push(Kind::NationalId, start, end);
    } else if checks::is_uuid(bytes) {
        push(Kind::Uuid, start, end);
    } else if checks::is_hex(word) && word.len() >= 7 {
        if word.len() >= 16
            && bytes.iter().any(u8::is_ascii_digit)
            && bytes.iter().any(u8::is_ascii_alphabetic)
        {
            push(Kind::HexId, start, end);
        }
    } else if bytes.iter().filter(|byte| **byte == b'/').count() >= 2 && is_path(bytes) {
        push(Kind::Path, start, end);
    } else if word.len() >= 12 && is_key_like(bytes) && checks::looks_random(bytes) && !is_name(word) {
        push(Kind::HighEntropy, start, end);
    }
}

fn is_path(bytes: &[u8]) -> bool {
    bytes
        .split(|byte| matches!(byte, b'/' | b'.' | b'-' | b'_'))
        .all(|part| part.len() < 24 && !checks_random(part))
}

fn checks_random(part: &[u8]) -> bool {
    part.len() >= 10 && checks::looks_random(part)
}

fn is_key_like(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| {
        byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'+' | b'/'
                    | b'='
                    | b'-'
                    | b'_'
                    | b'~'
                    | b'!'
                    | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'*'
                    | b'^'
                    | b'@'
                    | b'.'
            )
    })
}
