//! Redaction for the journal: certain secrets, and what looks like one by its name or itself. Linear time.

use std::borrow::Cow;

use crate::certain::{self, Secret};
use crate::{checks, key_formats, names};

/// Replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Beginnings of keys besides the known formats.
const BEGINNINGS: [&str; 4] = ["sk_", "rk_", "xox", "eyJ"];

/// Minimum length with a known prefix, and without one.
const MIN_PREFIXED: usize = 16;
const MIN_RANDOM: usize = 20;
/// Shorter words are skipped.
const MIN_LENGTH: usize = if MIN_PREFIXED < MIN_RANDOM { MIN_PREFIXED } else { MIN_RANDOM };

/// Password characters that occur in no word.
const MARKS: [char; 6] = ['!', '#', '^', '*', '@', '?'];

const PEM: &str = "-----BEGIN";

pub use crate::names::is_hidden_name;

/// `text` with secrets replaced. `cut`: the text was truncated, so its last word is dropped.
#[must_use]
pub fn replace(text: &str, cut: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let certain = secrets_to_hide(text);
    let mut certain = certain.iter().peekable();
    // The previous words announce a secret: `Bearer x`, `password: x`.
    let mut announced = false;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        while certain.next_if(|secret| secret.place.end <= at).is_some() {}
        let to_certain = certain.peek().map_or(rest.len(), |secret| secret.place.start.saturating_sub(at));
        if to_certain == 0
            && let Some(secret) = certain.next()
        {
            shown.push_str(REDACTED);
            rest = &text[secret.place.end..];
            // An announced value continues where a key would end.
            if announced || matches!(secret.kind, "PASSWORD" | "SECRET") {
                let length = value_length(rest);
                if cut && length == rest.len() {
                    return shown;
                }
                rest = &rest[length..];
            }
            announced = false;
            continue;
        }
        if rest.starts_with(PEM) {
            let end = pem_length(rest);
            shown.push_str(REDACTED);
            rest = &rest[end..];
            announced = false;
            continue;
        }
        let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len()).min(to_certain);
        if length == 0 {
            let step = rest.chars().next().map_or(1, char::len_utf8);
            if rest.starts_with("://")
                && let Some((length, user)) = userinfo(&rest[3..])
            {
                shown.push_str("://");
                shown.push_str(&redact_word(user));
                shown.push(':');
                shown.push_str(REDACTED);
                rest = &rest[3 + length..];
                continue;
            }
            if announced && rest.starts_with(MARKS) {
                shown.push_str(REDACTED);
                rest = &rest[value_length(rest)..];
                announced = false;
                continue;
            }
            announced &= rest.starts_with([' ', ':', '"', '\'', '\t', '\\']);
            shown.push_str(&rest[..step]);
            rest = &rest[step..];
            continue;
        }
        let (word, after) = split_pem(rest, length);
        if cut && after.is_empty() {
            return shown;
        }
        let is_named = announced || word.split_once('=').is_some_and(|(name, _)| is_hidden_name(name));
        announced = push_word(&mut shown, word, announced, after);
        rest = after;
        if shown.ends_with(REDACTED) {
            let length = if is_named { value_length(rest) } else { marks_length(rest) };
            if cut && length == rest.len() {
                return shown;
            }
            rest = &rest[length..];
        }
    }
    shown
}

/// Certain secrets, except contact data, which readers of the journal need. Only values, without names, schemes or
/// hosts.
fn secrets_to_hide(text: &str) -> Vec<Secret> {
    let mut found = certain::with_views(text);
    found.retain(|secret| !matches!(secret.kind, "EMAIL" | "PHONE"));
    for secret in &mut found {
        secret.place = secret.value.clone();
    }
    certain::sort_and_merge(found)
}

/// How much of `text` belongs to a named secret: up to a space, quote or next query parameter.
fn value_length(text: &str) -> usize {
    let ends = |(at, character): (usize, char)| {
        character.is_whitespace()
            || matches!(character, '"' | '\'' | '`' | '\\' | '<' | '>')
            || character == '&' && is_parameter(&text[at + 1..])
    };
    let end = text.char_indices().find(|found| ends(*found)).map_or(text.len(), |(at, _)| at);
    // Closing brackets and list separators are not part of it.
    text[..end].trim_end_matches([',', ';', '.', ':', ')', ']', '}']).len()
}

/// `name=`
fn is_parameter(text: &str) -> bool {
    const MAX_LENGTH: usize = 64;
    let end = text
        .bytes()
        .take(MAX_LENGTH)
        .position(|byte| !byte.is_ascii_alphanumeric() && !b"_-.[]%".contains(&byte));
    end.is_some_and(|end| end > 0 && text.as_bytes().get(end) == Some(&b'='))
}

/// How much follows a random-looking key: characters that no path or URL has, and what they join.
fn marks_length(text: &str) -> usize {
    let is_mark = |character: char| matches!(character, '!' | '#' | '^' | '*');
    match text.starts_with(is_mark) {
        true => text.find(|character| !is_word(character) && !is_mark(character)).unwrap_or(text.len()),
        false => 0,
    }
}

/// Appends a word, redacted if needed. True if it announces a secret.
fn push_word(shown: &mut String, word: &str, announced: bool, after: &str) -> bool {
    if announced && !is_scheme(word) {
        shown.push_str(REDACTED);
        return false;
    }
    // `name=value`: Base64 padding has nothing after it.
    if let Some((name, value)) = word.split_once('=')
        && !value.trim_matches('=').is_empty()
    {
        let secret = is_hidden_name(name);
        shown.push_str(&redact_word(name));
        shown.push('=');
        shown.push_str(&if secret { REDACTED.into() } else { redact_word(value) });
        return false;
    }
    shown.push_str(&redact_word(word));
    let next = after.trim_start_matches(['"', '\'', '\\']);
    if is_scheme(word) {
        return next.starts_with(' ');
    }
    let name = word.trim_end_matches('=');
    (next.starts_with(':') || name.len() < word.len()) && is_hidden_name(name)
}

/// An Authorization scheme.
fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// A word without inner `=`: as a whole if it looks random, else in pieces between slashes.
fn redact_word(word: &str) -> Cow<'_, str> {
    if word.len() < MIN_LENGTH {
        return word.into();
    }
    let has_all = has_class(word, |c| c.is_ascii_uppercase())
        && has_class(word, |c| c.is_ascii_lowercase())
        && has_class(word, |c| c.is_ascii_digit());
    let slashed = word.contains('/') && !word.starts_with('/') && has_all;
    // A cloud secret access key is 40 characters of Base64.
    let forty = word.len() == 40 && !has_class(word, |c| matches!(c, '.' | '-' | '_' | '~' | '%' | '$'));
    if slashed && (forty || word.len() >= 32 && run_length(word) < 2.3) {
        return REDACTED.into();
    }
    let pieces: Vec<&str> =
        word.split('/').map(|piece| if is_secret(piece) { REDACTED } else { piece }).collect();
    pieces.join("/").into()
}

fn is_secret(piece: &str) -> bool {
    if piece.len() < MIN_LENGTH {
        return false;
    }
    // A key keeps its form after a few other letters.
    if begins_key(piece) {
        return true;
    }
    let letters = has_class(piece, |c| c.is_ascii_alphabetic());
    let mixed = letters && has_class(piece, |c| c.is_ascii_digit())
        || has_class(piece, |c| c.is_ascii_lowercase()) && has_class(piece, |c| c.is_ascii_uppercase());
    piece.len() >= MIN_RANDOM
        && mixed
        && !checks::is_uuid(piece.as_bytes())
        && run_length(piece) < 2.6
        && checks::entropy(piece.as_bytes()) > 3.0
}

/// Whether a known key begins inside, after a sign or at the start.
fn begins_key(piece: &str) -> bool {
    let starts = piece.bytes().enumerate().filter(|(at, byte)| {
        byte.is_ascii_alphanumeric() && (*at == 0 || !piece.as_bytes()[at - 1].is_ascii_alphanumeric())
    });
    // Computed once, not per start.
    let last_mark = piece.bytes().rposition(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    starts.map(|(at, _)| (at, &piece[at..])).take_while(|(_, rest)| rest.len() >= MIN_PREFIXED).any(
        |(at, rest)| {
            last_mark.is_some_and(|mark| mark >= at)
                && (key_formats::begins(rest) || BEGINNINGS.iter().any(|prefix| rest.starts_with(prefix)))
                || rest.len() <= names::MAX_WORD && key_formats::key_kind(rest).is_some()
        },
    )
}

fn has_class(text: &str, class: impl Fn(char) -> bool) -> bool {
    text.chars().any(class)
}

/// Mean length of units: words (with capital) and numbers. Names have long ones.
#[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
fn run_length(text: &str) -> f64 {
    let class = |byte: u8| match byte {
        b'0'..=b'9' => 1,
        b'a'..=b'z' => 2,
        b'A'..=b'Z' => 3,
        _ => 0,
    };
    let (mut runs, mut length, mut previous) = (0_usize, 0_usize, 0);
    for now in text.bytes().map(class) {
        if now != 0 {
            length += 1;
            runs += usize::from(now != previous && !(previous == 3 && now == 2));
        }
        previous = now;
    }
    length as f64 / runs.max(1) as f64
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric()
        || matches!(character, '_' | '+' | '/' | '=' | '-' | '.' | '~' | '%' | '$')
}

/// `user:password@`: its end, and the user.
fn userinfo(text: &str) -> Option<(usize, &str)> {
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<' | '>'));
    let authority = &text[..end.unwrap_or(text.len())];
    let at = authority.rfind('@')?;
    let colon = authority[..at].find(':')?;
    Some((at, &authority[..colon]))
}

/// To the end of the block, or of the text.
fn pem_length(text: &str) -> usize {
    let Some(end) = text.find("-----END") else { return text.len() };
    let tail = &text[end + "-----END".len()..];
    tail.find("-----").map_or(text.len(), |at| end + "-----END".len() + at + "-----".len())
}

/// A block may begin inside a word (`x=-----BEGIN`).
fn split_pem(text: &str, length: usize) -> (&str, &str) {
    let inside = if length > PEM.len() { text[..length].find(PEM) } else { None };
    let length = inside.filter(|at| *at > 0).unwrap_or(length);
    text.split_at(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced() {
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----";
        for (text, shown) in [
            ("use sk-abc123def456ghi789 now", "use [redacted] now"),
            ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
            ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "[redacted]"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "[redacted]"),
            ("xoxb-123456789012-abcdef", "[redacted]"),
            ("postgres://me:hunter2@db.example.com/x", "postgres://me:[redacted]@db.example.com/x"),
            ("https://ghp_aB3dE6gH9jK2mN5pQ8sT@github.com", "https://[redacted]@github.com"),
            ("curl -H 'Authorization: Bearer abc' x", "curl -H 'Authorization: Bearer [redacted]' x"),
            ("{\"password\": \"hunter2\"}", "{\"password\": \"[redacted]\"}"),
            ("https://x.org/?q=1&token=abc&z=2", "https://x.org/?q=1&token=[redacted]&z=2"),
            ("DB_PASSWORD=hun!ter@2#x run", "DB_PASSWORD=[redacted] run"),
            ("password: Tr0ub4dor!&3, then", "password: [redacted], then"),
            ("password: !hunter2", "password: [redacted]"),
            ("{\"password\":\"a,b;c!d\",\"x\":1}", "{\"password\":\"[redacted]\",\"x\":1}"),
            ("https://x.org/?token=a!b&z=2", "https://x.org/?token=[redacted]&z=2"),
            ("use sk-abc123def456ghi789!more now", "use [redacted] now"),
            ("(sk-abc123def456ghi789)", "([redacted])"),
            ("DB_PASSWORD=hunter2 run", "DB_PASSWORD=[redacted] run"),
            ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "[redacted]"),
            (&format!("key {pem} end"), "key [redacted] end"),
            ("cert=-----BEGIN CERT", "cert=[redacted]"),
            ("pay 4111 1111 1111 1111 today", "pay [redacted] today"),
            ("ssn: 665-12-3456, iban=DE18 7276 1316 1527 2122 33.", "ssn: [redacted], iban=[redacted]."),
            ("mail bob@example.com", "mail bob@example.com"),
            ("Passwort: hunter2x", "Passwort: [redacted]"),
            ("password = Hunter2xyz9", "password = [redacted]"),
            ("contraseña: hunter2x9!&3 und", "contraseña: [redacted] und"),
            ("пароль: hunter2x9", "пароль: [redacted]"),
            ("postgres://me:hunt#er22x@db/x", "postgres://me:[redacted]@db/x"),
            ("x-----y-----BEGIN A KEY-----\nMIIB", "x-----y[redacted]"),
            ("https://ghp_aB3dE6gH9jK2mN5pQ8sT:x@github.com", "https://[redacted]:[redacted]@github.com"),
        ] {
            assert_eq!(replace(text, false), shown, "{text}");
        }
    }

    #[test]
    fn a_secret_in_another_spelling_is_replaced() {
        for spelled in [
            r"\x67\x68\x70\x5faB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9",
            r"\u0067\u0068p_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9",
            "ghp\u{200b}_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9",
            "A K I A I O S F O D N N 7 E X A M P L E",
            "%41%4B%49%41IOSFODNN7EXAMPLE",
            "41 4b 49 41 49 4f 53 46 4f 44 4e 4e 37 45 58 41 4d 50 4c 45",
        ] {
            let shown = replace(&format!("see {spelled} there"), false);
            assert!(shown.starts_with("see [redacted]") && shown.ends_with(" there"), "{spelled}: {shown}");
        }
    }

    /// The text after a place where a key could begin is not read again for each such place.
    #[test]
    fn many_key_prefixes_take_linear_time() {
        let time = |length: usize| {
            let text = "sk-".repeat(length);
            let start = std::time::Instant::now();
            assert!(!replace(&text, false).is_empty());
            start.elapsed()
        };
        let (short, long) = (time(20_000), time(320_000));
        assert!(long < short * 64 + std::time::Duration::from_millis(200), "{short:?} {long:?}");
    }

    #[test]
    fn redaction_keeps_paths_and_prose() {
        for text in [
            "/home/user/projects/my-app/node_modules/@scope/package2/dist/index.js",
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "src/components/MyVeryLongComponentName2/index.tsx",
            "The quick brown fox: it jumps (over) 13 lazy dogs!",
            "0198c0de-1234-7abc-8def-0123456789ab",
            "https://example.com:8443/a/b?page=2#top",
            "report-2024-final-version2.pdf",
            "SELECT * FROM users WHERE id = 5",
            "ünï→日本語",
        ] {
            assert_eq!(replace(text, false), text);
        }
    }
}
