//! Mail addresses, and URLs with a password.

use std::ops::Range;

use super::Secret;

const MAX_LOCAL_PART: usize = 64;
const MAX_DOMAIN: usize = 253;
const MAX_LENGTH: usize = 2048;

pub(super) fn addresses(text: &str, found: &mut Vec<Secret>) {
    let bytes = text.as_bytes();
    let (mut from, mut read, mut part) = (0, 0, 0);
    for at in memchr::memchr_iter(b'@', bytes) {
        // The start of user and password. Each byte is examined once.
        part = bytes[read..at].iter().rposition(|byte| !is_part(*byte)).map_or(part, |last| read + last + 1);
        read = at;
        if at < from {
            continue;
        }
        if let Some((place, password)) = connection(bytes, part, at) {
            from = place.end;
            found.push(Secret { kind: "CONNECTION STRING", place, value: password });
        } else if let Some(place) = email(text, at) {
            from = place.end;
            found.push(Secret::without_label("EMAIL", place));
        }
    }
}

fn email(text: &str, at: usize) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let is_local = |byte: &&u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-' | b'\'' | b'#' | b'!')
    };
    let local = bytes[..at].iter().rev().take(MAX_LOCAL_PART + 1).take_while(is_local).count();
    let start = at - local;
    let written = &text[start..at];
    let cut = written.len() - written.trim_start_matches(['.', '\'', '-', '#', '!', '%']).len();
    let start = start + cut;
    if start == at || local > MAX_LOCAL_PART || text[..at].ends_with('.') {
        return None;
    }
    // `scheme://host/@x`, `@scope/name@1.0` and others are not addresses.
    if start
        .checked_sub(1)
        .is_some_and(|before| matches!(bytes[before], b'/' | b'@' | b':') && bytes[before] != b':')
    {
        return None;
    }
    let domain = bytes[at + 1..]
        .iter()
        .take(MAX_DOMAIN)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        .count();
    let name = text[at + 1..at + 1 + domain].trim_end_matches(['.', '-']);
    let (host, top) = name.rsplit_once('.')?;
    let is_top = top.len() >= 2 && (top.bytes().all(|b| b.is_ascii_alphabetic()) || top.starts_with("xn--"));
    let is_host = !host.is_empty() && !host.starts_with(['.', '-']) && !host.contains("..");
    let end = at + 1 + name.len();
    // A git remote: `git@host:path`.
    let is_remote =
        bytes.get(end) == Some(&b':') && bytes.get(end + 1).is_some_and(|b| !b.is_ascii_whitespace());
    (is_top && is_host && !is_remote).then_some(start..end)
}

/// Whether it may be in the user or password of a URL.
fn is_part(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'/')
}

/// `scheme://user:password@host/...` around the `@`, and the password. `slashes`: start of the user.
fn connection(bytes: &[u8], slashes: usize, at: usize) -> Option<(Range<usize>, Range<usize>)> {
    const MAX_USER_INFO: usize = 256;
    let user = &bytes[slashes..at];
    if user.len() > MAX_USER_INFO || !bytes[..slashes].ends_with(b"://") {
        return None;
    }
    let colon = memchr::memchr(b':', user)?;
    if colon + 1 >= user.len() {
        return None;
    }
    let password = &user[colon + 1..];
    let is_placeholder = password.len() < 3
        || password.iter().all(|byte| *byte == b'*' || *byte == b'x' || *byte == b'.')
        || matches!(password.first(), Some(b'$' | b'{' | b'[' | b'%'))
        || matches!(password, b"password" | b"pass" | b"PASSWORD" | b"secret" | b"user" | b"pwd");
    let scheme = bytes[..slashes - 3]
        .iter()
        .rev()
        .take(30)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
        .count();
    if scheme == 0 || is_placeholder {
        return None;
    }
    let is_url = |byte: &&u8| {
        byte.is_ascii_graphic()
            && !matches!(**byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b')' | b']' | b'}' | b'|')
    };
    let rest = bytes[at..].iter().take(MAX_LENGTH).take_while(is_url).count();
    let query = memchr::memchr(b'?', &bytes[at..at + rest]);
    // Without a query, `&` belongs to the surrounding text.
    let rest = match memchr::memchr(b'&', &bytes[at..at + rest]) {
        Some(and) if query.is_none_or(|query| query > and) => and,
        _ => rest,
    };
    let mut end = at + rest;
    while end > at && matches!(bytes[end - 1], b'.' | b',' | b';' | b':' | b'!' | b'?') {
        end -= 1;
    }
    Some((slashes - 3 - scheme..end, slashes + colon + 1..at))
}
