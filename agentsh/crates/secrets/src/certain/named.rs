//! Values that are secret because of the name in front of them, and those that look like nothing else.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use super::Secret;
use crate::{checks, names};

const MAX_LENGTH: usize = 512;

pub(super) fn find(text: &str, found: &mut Vec<Secret>) {
    let Some(names) = automaton() else { return };
    let bytes = text.as_bytes();
    let mut from = 0;
    for name in names.find_iter(text) {
        if name.start() < from {
            continue;
        }
        let secret = if name.pattern().as_usize() == 0 {
            bearer(bytes, name.start(), name.end())
        } else {
            assignment(text, name.start(), name.end())
        };
        if let Some(secret) = secret {
            from = secret.place.end;
            found.push(secret);
        }
    }
}

/// The first pattern is the scheme of a header, the others are names.
fn automaton() -> Option<&'static AhoCorasick> {
    static AUTOMATON: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    AUTOMATON
        .get_or_init(|| {
            // The scheme ends later than its name does, so the name would be found in its place.
            let names = names::spellings().into_iter().filter(|name| name != "bearer");
            let patterns = std::iter::once("bearer ".to_owned()).chain(names);
            // Twice as fast as the NFA that so many patterns get by default, for half a megabyte.
            AhoCorasick::builder()
                .kind(Some(aho_corasick::AhoCorasickKind::DFA))
                .ascii_case_insensitive(true)
                .build(patterns)
                .ok()
        })
        .as_ref()
}

fn bearer(bytes: &[u8], start: usize, from: usize) -> Option<Secret> {
    if start.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_alphanumeric()) {
        return None;
    }
    let is_token = |byte: &&u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
    };
    let length = bytes[from..].iter().take(4096).take_while(is_token).count();
    let value = &bytes[from..from + length];
    // What is known by its form is told as that.
    let is_jwt = value.starts_with(b"eyJ") && value.iter().filter(|byte| **byte == b'.').count() == 2;
    (length >= 16 && is_random(value) && !is_jwt).then_some(Secret {
        kind: "BEARER TOKEN",
        place: start..from + length,
        value: from..from + length,
    })
}

/// `name=value` and `"name": "value"`. Without quotes the whole assignment is the secret, otherwise its value: what
/// was JSON stays JSON.
fn assignment(text: &str, name: usize, from: usize) -> Option<Secret> {
    let bytes = text.as_bytes();
    let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let end = from + bytes[from..].iter().take(40).take_while(is_name).count();
    let tail = &text[from..end].to_ascii_lowercase();
    // `token_count`, `passwordField`: more than the name of a secret.
    if !(tail.is_empty()
        || matches!(tail.as_str(), "s" | "_id" | "_value" | "_key" | "-key" | "_base64" | "_token"))
    {
        return None;
    }
    let before = bytes[..name].iter().rev().take(60).take_while(is_name).count();
    let start = name - before;
    let quote = bytes.get(end).copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let mut at = end + usize::from(quote.is_some());
    let spaces = |at: usize| bytes[at..].iter().take(4).take_while(|b| matches!(b, b' ' | b'\t')).count();
    at += spaces(at);
    if !matches!(bytes.get(at), Some(b'=' | b':')) {
        return None;
    }
    at += 1 + usize::from(bytes[at..].starts_with(b":=")) + usize::from(bytes[at..].starts_with(b"=>"));
    let glued = quote.is_none();
    at += spaces(at);
    let value_quote = bytes.get(at).copied().filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
    let value_at = at + usize::from(value_quote.is_some());
    let is_value = |byte: &&u8| match value_quote {
        Some(mark) => **byte != mark && byte.is_ascii_graphic(),
        None => {
            byte.is_ascii_graphic()
                && !matches!(
                    **byte,
                    b'"' | b'\'' | b',' | b';' | b'`' | b'<' | b'>' | b')' | b'}' | b']' | b'&'
                )
        }
    };
    let length = bytes[value_at..].iter().take(MAX_LENGTH).take_while(is_value).count();
    let value = &bytes[value_at..value_at + length];
    if !is_secret(value) {
        return None;
    }
    let end = value_at + length;
    let closed = value_quote.is_some_and(|mark| bytes.get(end) == Some(&mark));
    let place = if glued && !closed { start..end } else { value_at..end };
    let kind = if text[start..from].to_ascii_lowercase().contains("pass")
        || text[name..from].eq_ignore_ascii_case("pwd")
    {
        "PASSWORD"
    } else {
        "SECRET"
    };
    Some(Secret { kind, place, value: value_at..end })
}

/// A value, not the name of one, a placeholder or a word.
fn is_secret(value: &[u8]) -> bool {
    if value.len() < 8 || matches!(value[0], b'$' | b'{' | b'<' | b'[' | b'*' | b'%' | b'/') {
        return false;
    }
    // `process.env.NAME`, `os.environ["X"]`, `get_secret(...)`.
    let is_code = value.iter().any(|byte| matches!(byte, b'(' | b'{' | b'[' | b'<'))
        || value.split(|byte| *byte == b'.').count() > 2 && !is_random(value);
    !is_code && is_random(value)
}

/// Letters and digits in a mixture that people do not write.
fn is_random(value: &[u8]) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let upper = value.iter().any(u8::is_ascii_uppercase);
    let lower = value.iter().any(u8::is_ascii_lowercase);
    let classes = usize::from(digits > 0) + usize::from(upper) + usize::from(lower);
    classes >= 2
        && digits < value.len()
        && checks::entropy(value) >= 2.8
        && (digits > 0 || value.len() >= 16 && checks::entropy(value) > 3.6)
}

/// Forty characters of Base64 that are no hash, no path and no words: the secret half of a cloud access key.
pub(super) fn cloud_secrets(bytes: &[u8], found: &mut Vec<Secret>) {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let mut at = 0;
    while at < bytes.len() {
        if !is_part(bytes[at]) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_part(bytes[at]) {
            at += 1;
        }
        let around = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'-' | b'_' | b'.' | b'%'));
        let before = start.checked_sub(1).and_then(|before| bytes.get(before));
        if at - start != 40 || around(before) || around(bytes.get(at)) || bytes.get(at) == Some(&b'=') {
            continue;
        }
        let value = &bytes[start..at];
        let count = |fits: fn(&u8) -> bool| value.iter().filter(|byte| fits(byte)).count();
        if count(u8::is_ascii_digit) >= 2
            && count(u8::is_ascii_uppercase) >= 4
            && count(u8::is_ascii_lowercase) >= 4
            && !value.iter().all(u8::is_ascii_hexdigit)
            && checks::looks_random(value)
            && checks::entropy(value) > 4.0
        {
            found.push(Secret::whole("AWS SECRET KEY", start..at));
        }
    }
}
