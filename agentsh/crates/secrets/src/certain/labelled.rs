//! Values that are secret because of the name before them, and cloud secrets with a unique form.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use super::Secret;
use crate::runs::{is_standard_base64, runs};
use crate::{checks, names};

const MAX_LENGTH: usize = 512;

/// An Authorization scheme, with its value.
const SCHEME: &[u8; 7] = b"bearer ";
/// Maximum spaces before an assignment sign.
const MAX_SPACES: usize = 4;

pub(super) fn find(text: &str, found: &mut Vec<Secret>) {
    let bytes = text.as_bytes();
    let is_scheme = |at: &usize| {
        bytes[*at..].first_chunk().is_some_and(|word: &[u8; 7]| word.eq_ignore_ascii_case(SCHEME))
    };
    // Names are searched backwards from assignment signs, so most text is skipped.
    let mut schemes = memchr::memchr2_iter(b'b', b'B', bytes).filter(is_scheme).peekable();
    let mut signs = memchr::memchr2_iter(b'=', b':', bytes).peekable();
    let (mut from, mut values) = (0, Values::default());
    loop {
        let scheme = match (schemes.peek(), signs.peek()) {
            (None, None) => return,
            (Some(scheme), sign) if sign.is_none_or(|sign| scheme < sign) => schemes.next(),
            _ => None,
        };
        let secret = match scheme {
            Some(at) if at < from => continue,
            Some(at) => bearer(bytes, at, at + SCHEME.len()),
            None => signs.next().and_then(|sign| assigned(text, sign, from, &mut values)),
        };
        if let Some(secret) = secret {
            from = secret.place.end;
            found.push(secret);
        }
    }
}

/// The assigned value, if a secret's name is before the sign, after `from`.
fn assigned(text: &str, sign: usize, from: usize, values: &mut Values) -> Option<Secret> {
    let before = text.as_bytes().get(from..sign)?;
    let spaces = before.iter().rev().take(MAX_SPACES).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let before = &before[..before.len() - spaces];
    let before = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before);
    let is_word = |byte: &&u8| is_name(byte) || **byte >= 0x80;
    if !names::may_end_name(before, &TAILS) {
        return None;
    }
    let length = before.iter().rev().take_while(is_word).count();
    let end = from + before.len();
    let word = aho_corasick::Input::new(text).range(end - length..end);
    automaton()?.find_iter(word).find_map(|name| assignment(text, name.start(), name.end(), values))
}

fn is_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Ends of unquoted values: one with many names is read once.
#[derive(Default)]
struct Values {
    end: usize,
    #[cfg(test)]
    read: usize,
}

impl Values {
    fn end(&mut self, bytes: &[u8], at: usize) -> usize {
        if at >= self.end {
            let is_value = |byte: &&u8| {
                byte.is_ascii_graphic()
                    && !matches!(
                        **byte,
                        b'"' | b'\'' | b',' | b';' | b'`' | b'<' | b'>' | b')' | b'}' | b']' | b'&'
                    )
            };
            self.end = at + bytes[at..].iter().take_while(is_value).count();
            #[cfg(test)]
            {
                self.read += self.end - at;
            }
        }
        self.end.min(at + MAX_LENGTH)
    }
}

/// The names.
fn automaton() -> Option<&'static AhoCorasick> {
    static AUTOMATON: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    AUTOMATON
        .get_or_init(|| {
            // An Authorization scheme is not a name.
            let names = names::spellings().into_iter().filter(|name| name != "bearer");
            AhoCorasick::builder().ascii_case_insensitive(true).build(names).ok()
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
    // A known format is reported as such.
    let is_jwt = value.starts_with(b"eyJ") && value.iter().filter(|byte| **byte == b'.').count() == 2;
    (length >= 16 && is_random(value) && !is_jwt).then_some(Secret {
        kind: "BEARER TOKEN",
        place: start..from + length,
        value: from..from + length,
    })
}

/// What may follow a secret's name before the assignment sign.
const TAILS: [&str; 8] = ["", "s", "_id", "_value", "_key", "-key", "_base64", "_token"];

/// `name=value` and `"name": "value"`. Without quotes the whole assignment is replaced, else the value, so that JSON
/// stays valid.
fn assignment(text: &str, name: usize, from: usize, values: &mut Values) -> Option<Secret> {
    let bytes = text.as_bytes();
    let is_part = |byte: &&u8| is_name(byte);
    let end = from + bytes[from..].iter().take(40).take_while(is_part).count();
    let tail = &text[from..end];
    // `token_count`, `passwordField`: not a secret's name.
    if !TAILS.iter().any(|known| known.eq_ignore_ascii_case(tail)) {
        return None;
    }
    let before = bytes[..name].iter().rev().take(60).take_while(is_part).count();
    let start = name - before;
    let quote = bytes.get(end).copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let mut at = end + usize::from(quote.is_some());
    let spaces = |at: usize| bytes[at..].iter().take(4).take_while(|b| matches!(b, b' ' | b'\t')).count();
    at += spaces(at);
    if !matches!(bytes.get(at), Some(b'=' | b':')) {
        return None;
    }
    let sign = bytes[at];
    at += 1 + usize::from(bytes[at..].starts_with(b":=")) + usize::from(bytes[at..].starts_with(b"=>"));
    let glued = quote.is_none();
    at += spaces(at);
    let value_quote = bytes.get(at).copied().filter(|byte| matches!(byte, b'"' | b'\'' | b'`'));
    let value_at = at + usize::from(value_quote.is_some());
    let end = match value_quote {
        Some(mark) => {
            let is_value = |byte: &&u8| **byte != mark && byte.is_ascii_graphic();
            value_at + bytes[value_at..].iter().take(MAX_LENGTH).take_while(is_value).count()
        }
        None => values.end(bytes, value_at),
    };
    let value = &bytes[value_at..end];
    if !is_secret(value) || value_quote.is_none() && is_code(value, sign == b':', &bytes[end..]) {
        return None;
    }
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

/// A value, and not a name, placeholder or word.
fn is_secret(value: &[u8]) -> bool {
    if value.len() < 8 || matches!(value[0], b'$' | b'{' | b'<' | b'[' | b'*' | b'%' | b'/') {
        return false;
    }
    // `process.env.NAME`, `os.environ["X"]`, `get_secret(...)`.
    !any_byte(value, |byte| matches!(byte, b'(' | b'{' | b'[' | b'<')) && is_random(value)
}

/// An expression or a type in source code: a path of names (`config.token2`, `proc_macro::TokenStream`), or after a
/// colon a name that ends as it does only in code (`password: Password2,`).
fn is_code(value: &[u8], behind_colon: bool, rest: &[u8]) -> bool {
    let is_word = |part: &[u8]| {
        part.first().is_some_and(|first| !first.is_ascii_digit())
            && part.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            && !checks::looks_random(part)
    };
    let mut parts = value.split(|byte| matches!(byte, b'.' | b':')).filter(|part| !part.is_empty());
    let is_path = value.contains(&b'.') || value.windows(2).any(|pair| pair == b"::");
    let ends_in_code = || {
        rest.starts_with(b",")
            || rest.starts_with(b")")
            || rest.starts_with(b" = ")
            || rest.starts_with(b" {")
    };
    parts.all(is_word) && (is_path || behind_colon && ends_in_code())
}

/// Letters and digits mixed as people do not write.
fn is_random(value: &[u8]) -> bool {
    let upper = any_byte(value, |byte| byte.is_ascii_uppercase());
    let lower = any_byte(value, |byte| byte.is_ascii_lowercase());
    let digits = any_byte(value, |byte| byte.is_ascii_digit());
    if usize::from(digits) + usize::from(upper) + usize::from(lower) < 2 {
        return false;
    }
    let is_mixed = any_byte(value, |byte| !byte.is_ascii_digit());
    let entropy = checks::entropy(value);
    is_mixed && entropy >= 2.8 && (digits || value.len() >= 16 && entropy > 3.6)
}

/// Whether any byte fits, many bytes at once.
fn any_byte(value: &[u8], fits: impl Fn(u8) -> bool) -> bool {
    value.chunks(32).any(|block| block.iter().fold(false, |any, byte| any | fits(*byte)))
}

/// Length of a cloud secret access key, in bytes.
const CLOUD_SECRET: usize = 40;

/// A cloud secret access key: 40 characters of Base64 that are no hash, path or words.
pub(super) fn cloud_secrets(bytes: &[u8], found: &mut Vec<Secret>) {
    for Range { start, end: at } in runs(bytes, is_standard_base64, CLOUD_SECRET) {
        let around = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'-' | b'_' | b'.' | b'%'));
        let before = start.checked_sub(1).and_then(|before| bytes.get(before));
        if at - start != CLOUD_SECRET
            || around(before)
            || around(bytes.get(at))
            || bytes.get(at) == Some(&b'=')
        {
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
            found.push(Secret::without_label("AWS SECRET KEY", start..at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        find(text, &mut found);
        found.into_iter().map(|secret| secret.kind).collect()
    }

    #[test]
    fn assignment_sign_leads_back_to_its_name() {
        const VALUE: &str = "aB3dE6gH9jK2mN5p";
        for name in ["password", "API_KEY", "db.secret_token", "x-secret-key", "tokens", "пароль", "my密码"]
        {
            for sign in ["=", ": ", "    : ", ":= ", " => ", "\": \"", "' = '"] {
                assert_eq!(kinds(&format!("a {name}{sign}{VALUE} b")).len(), 1, "{name}{sign}");
            }
        }
        for text in ["password_count=", "token", "token     = ", "secrets[0] = ", "the key: "] {
            assert_eq!(kinds(&format!("{text}{VALUE}")), [""; 0], "{text}");
        }
        let header = format!("Authorization: Bearer {VALUE}, token={VALUE}");
        assert_eq!(kinds(&header), ["BEARER TOKEN", "SECRET"]);
    }

    #[test]
    fn names_in_source_code_are_no_secrets() {
        for code in [
            "fn parse(tokens: proc_macro2::TokenStream) -> Result",
            "pub hClientToken: super::Foundation::HANDLE2,",
            "pub const INVALID_PASSWORD: WIN32_ERROR = 86;",
            "fn agree(my_private_key: EphemeralPrivateKey, peer: u8)",
            "self.token = config.adminToken2",
        ] {
            assert_eq!(kinds(code), [""; 0], "{code}");
        }
        for text in [
            "DB_PASSWORD=Sommer2024",
            "password: Winter.2024",
            "token: 7GYZNS7O67,",
            "token = \"config.token2\"",
        ] {
            assert_eq!(kinds(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn value_with_many_names_is_read_once() {
        let text = "password=".repeat(1000);
        let mut values = Values::default();
        for sign in memchr::memchr_iter(b'=', text.as_bytes()) {
            assert_eq!(assigned(&text, sign, 0, &mut values), None);
        }
        assert!(values.read <= text.len(), "{}", values.read);
    }
}
