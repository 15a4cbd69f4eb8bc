//! Keys with a published format, PEM blocks, JSON Web Tokens.

use std::ops::Range;
use std::sync::LazyLock;

use agentsh_base::radix;
use memchr::memmem::Finder;

use super::Secret;
use crate::key_formats;
use crate::runs::{is_key, runs};

/// Minimum length of a key or token, in bytes.
const MIN_LENGTH: usize = 18;

pub(super) fn vendors(text: &str, found: &mut Vec<Secret>) {
    let bytes = text.as_bytes();
    webhooks(bytes, found);
    service_accounts(text, found);
    let mut words = key_formats::Words::default();
    // Keys are long runs, and few texts have many.
    for run in runs(bytes, is_key, MIN_LENGTH) {
        let (mut from, mut start) = (run.start, run.start);
        let signs = memchr::memchr3_iter(b'.', b'-', b'_', &bytes[run.clone()]).map(|at| run.start + at);
        // A key does not begin inside another word; read backwards, it ends there.
        for end in signs.chain([run.end]) {
            let mut take = |at: usize, found_here: Option<(Range<usize>, &'static str)>| {
                if let Some((place, kind)) = found_here.filter(|_| at >= from) {
                    from = place.end;
                    found.push(Secret::without_label(kind, place));
                }
            };
            if start < end {
                let jwt = jwt(bytes, start).map(|place| (place, "JWT"));
                take(start, jwt.or_else(|| key_formats::certain_at(bytes, start, false, &mut words)));
                if end == run.end || bytes[end] == b'.' {
                    take(end - 1, key_formats::certain_at(bytes, end - 1, true, &mut words));
                }
            }
            start = end + 1;
        }
    }
}

fn jwt(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    if !bytes[start..].starts_with(b"eyJ")
        || start.checked_sub(1).is_some_and(|before| key_formats::is_key(bytes[before]))
    {
        return None;
    }
    const MAX_LENGTH: usize = 16_384;
    let part = |at: usize| {
        bytes[at..].iter().take(MAX_LENGTH).take_while(|byte| key_formats::is_key(**byte)).count()
    };
    let header = part(start);
    let payload_at = start + header + 1;
    if bytes.get(start + header) != Some(&b'.') {
        return None;
    }
    let payload = part(payload_at);
    if payload < 8 || bytes.get(payload_at + payload) != Some(&b'.') {
        return None;
    }
    let end = payload_at + payload + 1 + part(payload_at + payload + 1);
    let decoded = radix::base64(&bytes[start..start + header]);
    let is_header = decoded.starts_with(b"{") && memchr::memmem::find(&decoded, b"\"alg\"").is_some();
    is_header.then_some(start..end)
}

fn webhooks(bytes: &[u8], found: &mut Vec<Secret>) {
    static PREFIX: LazyLock<Finder<'static>> =
        LazyLock::new(|| Finder::new("https://hooks.slack.com/services/"));
    for start in PREFIX.find_iter(bytes) {
        let from = start + PREFIX.needle().len();
        let is_path = |byte: &&u8| key_formats::is_key(**byte) || **byte == b'/';
        let length = bytes[from..].iter().take(200).take_while(is_path).count();
        if length >= 30 {
            found.push(Secret::without_label("SLACK WEBHOOK", start..from + length));
        }
    }
}

fn service_accounts(text: &str, found: &mut Vec<Secret>) {
    static NAME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"service_account\""));
    let mut from = 0;
    for at in NAME.find_iter(text.as_bytes()) {
        if let Some(place) = service_account(text, at).filter(|_| at >= from) {
            from = place.end;
            found.push(Secret::without_label("SERVICE ACCOUNT", place));
        }
    }
}

/// The whole object, from brace to brace.
fn service_account(text: &str, at: usize) -> Option<Range<usize>> {
    const MAX_BYTES_BEFORE: usize = 400;
    const MAX_LENGTH: usize = 16_384;
    let bytes = text.as_bytes();
    let from = text.floor_char_boundary(at.saturating_sub(MAX_BYTES_BEFORE));
    let start = from + memchr::memrchr(b'{', &bytes[from..at])?;
    let limit = text.floor_char_boundary((start + MAX_LENGTH).min(text.len()));
    let block = &text[start..limit];
    if !block.contains("PRIVATE KEY") {
        return None;
    }
    let end = memchr::memchr(b'}', &bytes[at..limit]).map_or(limit, |length| at + length + 1);
    Some(start..end)
}

/// Limit of a PEM block's title, in bytes.
const TITLE: usize = 60;

/// Minimum length of a body that is not on a separate line: texts about keys have shorter words after the first line.
const BODY_WITH_END: usize = 16;
/// Minimum length of a body whose last line is missing.
const BODY_WITHOUT_END: usize = 40;

/// From its first line to its last, or to the start of another block.
pub(super) fn private_keys(text: &str, found: &mut Vec<Secret>) {
    static BEGIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("-----BEGIN "));
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(length) = BEGIN.find(&bytes[from..]) {
        let start = from + length;
        from = start + 11;
        let limit = text.floor_char_boundary((from + TITLE).min(text.len()));
        let Some(title) = text[from..limit].find("-----") else { continue };
        if !text[from..from + title].contains("PRIVATE KEY") {
            continue;
        }
        let body = from + title + 5;
        // Base64, headers, and what a literal of a program has between its lines.
        let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"+/= \t\r\n\\\"',:;.()-".contains(&byte);
        let next = memchr::memmem::find(&bytes[body..], b"-----").map_or(text.len(), |length| body + length);
        let foreign = bytes[body..next].iter().position(|byte| !is_of_key(*byte));
        let within = &text[body..foreign.map_or(next, |length| body + length)];
        let has_end = foreign.is_none() && text[next..].starts_with("-----END ");
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "+/=".contains(letter);
        let longest = within.split(|letter| !is_letter(letter)).map(str::len).max().unwrap_or_default();
        let is_line = |line: &str| !line.is_empty() && line.chars().all(is_letter);
        let has_line =
            within.starts_with(['\r', '\n']) && within.trim_start().lines().next().is_some_and(is_line);
        let end = match has_end {
            true if has_line || longest >= BODY_WITH_END => {
                let tail = next + 9;
                let limit = text.floor_char_boundary((tail + TITLE).min(text.len()));
                text[tail..limit].find("-----").map_or(limit, |length| tail + length + 5)
            }
            false if has_line || longest >= BODY_WITHOUT_END => body + within.trim_end().len(),
            _ => continue,
        };
        found.push(Secret::without_label("PRIVATE KEY", start..end));
        from = end;
    }
}
