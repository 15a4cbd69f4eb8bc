//! URLs in a text, as tolerant as the programs that will read them: `https://h`, `HTTPS:\\h`, `https:h`,
//! `//h/x`, `\\h\share`, `@h/x` where a path is expected.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::bare::{give_dotted, is_certain};
use super::host::{Authority, read, unreadable};
use super::key::{Key, Trust};
use super::{Destination, Form, Sink, Target};

/// Longest authority that is read. What is longer is unreadable.
const MAX_AUTHORITY: usize = 2048;
/// Schemes whose slashes the WHATWG parser does not need.
const WEB: [&str; 6] = ["http", "https", "ws", "wss", "ftp", "ftps"];

/// Schemes that have a host or an address of mail without slashes in front of it.
const OPAQUE: [&str; 8] = ["mailto", "stun", "stuns", "turn", "turns", "sip", "sips", "xmpp"];

pub(super) fn find(text: &str, key: Key, sink: &mut Sink<'_>) {
    let bytes = text.as_bytes();
    let mut budget = text.len() * 4 + 64 * 1024;
    for colon in memchr::memchr_iter(b':', bytes) {
        let scheme = scheme_before(text, colon);
        if scheme.is_empty() {
            continue;
        }
        let web = WEB.contains(&scheme.to_ascii_lowercase().as_str());
        // The parser removes tabs and line feeds anywhere in a URL.
        let rest = &bytes[colon + 1..];
        let skipped = rest
            .iter()
            .take(64)
            .take_while(|b| matches!(b, b'/' | b'\t' | b'\n' | b'\r') || web && **b == b'\\')
            .count();
        let slashes = rest[..skipped].iter().filter(|byte| matches!(byte, b'/' | b'\\')).count();
        let start = colon + 1 + skipped;
        let broken = rest[..skipped].ends_with(b"\n") || rest[..skipped].ends_with(b"\t");
        let opaque = OPAQUE.iter().any(|known| scheme.eq_ignore_ascii_case(known));
        if slashes < 2 && !web && !opaque
            || matches!(scheme.to_ascii_lowercase().as_str(), "data" | "javascript")
        {
            continue;
        }
        // An empty authority: `file:///etc/hosts`.
        if slashes > 2 && !web {
            continue;
        }
        let Some(found) = authority(text, start, &mut budget) else {
            sink(Destination {
                target: unreadable("too many or too long addresses"),
                port: None,
                scheme: Some(scheme.to_ascii_lowercase()),
                at: colon..colon + 1,
                form: Form::Url,
            });
            return;
        };
        // `https:` before prose, or `http:80` in a list of ports.
        let doubtful = slashes < 2 || broken;
        for part in found {
            if doubtful && !part.text.contains(['.', '[', '%', '。']) && key.trust == Trust::Nothing {
                continue;
            }
            let scheme = Some(scheme.to_ascii_lowercase());
            let at = start + part.at.start..start + part.at.end;
            match part.kind {
                Kind::Unreadable => sink(Destination {
                    target: unreadable(&part.text),
                    port: None,
                    scheme,
                    at,
                    form: Form::Url,
                }),
                Kind::Read => {
                    if let Some(Authority { target, port }) = read(&part.text) {
                        sink(Destination { target, port, scheme, at, form: Form::Url });
                    }
                }
            }
        }
    }
    find_url_value(text, key, sink);
    relative(text, key, sink);
    mixed_slashes(text, key, sink);
    driver(text, sink);
    unc(text, sink);
    continuation(text, key, sink);
}

enum Kind {
    Read,
    Unreadable,
}

struct Part {
    text: String,
    /// Bytes after the slashes.
    at: Range<usize>,
    kind: Kind,
}

/// The authorities that programs see from `start` on: one as a rule, more when readings differ. None when the
/// work for this text is used up.
fn authority(text: &str, start: usize, budget: &mut usize) -> Option<Vec<Part>> {
    let rest = &text[start..];
    let window = &rest[..rest.floor_char_boundary(MAX_AUTHORITY)];
    // Hard ends: a quote or a space closes what was quoted. A slash ends the authority for everybody.
    let closed = |c: char| matches!(c, '"' | '<' | '>' | '`' | '/' | '?' | '#') || c.is_whitespace();
    let wide = window.find(closed).map_or(window, |end| &window[..end]);
    *budget = budget.checked_sub(wide.len() + 16)?;
    if wide.len() == window.len() && rest.len() > window.len() {
        return Some(vec![unclear_part(wide)]);
    }
    // For browsers a backslash is a slash; for others it is a letter.
    let strict = wide.split('\\').next().unwrap_or("");
    let mut parts = vec![part(strict, 0)];
    let behind = wide[strict.len()..].trim_start_matches('\\');
    if let Some(other) = behind.rsplit_once('@').map(|(_, host)| host).filter(|host| !host.is_empty()) {
        parts.push(part(other, wide.len() - other.len()));
    } else if behind.starts_with('.') && behind.len() > 1 {
        parts.push(unclear_part(wide));
    }
    // Several `@`: some programs end the user name at the first one.
    if strict.matches('@').count() > 1 {
        parts.push(unclear_part(strict));
    }
    // Words of a command end here, and a name server may still be asked for all of it.
    let host = strict.rsplit('@').next().unwrap_or("");
    if let Some(end) = host.find([';', '|', '&', ','])
        && host[end + 1..].split('.').next_back().is_some_and(is_certain)
        && host[end + 1..].contains('.')
    {
        parts.push(unclear_part(strict));
    }
    Some(parts)
}

fn unclear_part(text: &str) -> Part {
    Part { text: text.to_owned(), at: 0..text.len(), kind: Kind::Unreadable }
}

/// The host without what follows it: no name ends in a sign that names cannot contain. Signs that parsers turn into a dot or a
/// letter stay.
fn host_alone(host: &str) -> &str {
    let begins = |c: char| c == ':' || is_dot(c);
    let begin = host.char_indices().rev().find(|(_, c)| begins(*c)).map_or(0, |(at, c)| at + c.len_utf8());
    let end = host[begin..].find(ends_a_name);
    host[..end.map_or(host.len(), |end| begin + end)].trim_end_matches(['.', ':', '-', '…'])
}

/// Combining marks and joiners belong to the letters of some scripts, and `%` begins a letter that is escaped.
fn ends_a_name(c: char) -> bool {
    let is_letter = |c: char| c.is_alphanumeric() || is_combining_mark(c);
    let joins =
        matches!(c, '-' | '%' | '·' | '・' | '\u{200b}'..='\u{200d}' | '\u{ad}' | '\u{2060}' | '\u{feff}');
    !joins && !is_dot(c) && !std::iter::once(c).nfkc().any(is_letter)
}

fn is_dot(c: char) -> bool {
    std::iter::once(c).nfkc().any(|c| matches!(c, '.' | '。'))
}

/// An authority without the punctuation of the text around it.
fn part(wide: &str, offset: usize) -> Part {
    let (user, host) = wide.rsplit_once('@').map_or(("", wide), |(user, host)| (user, host));
    let inner = if host.starts_with('[') {
        host.find(']').map_or(host, |end| {
            let port = host[end + 1..]
                .strip_prefix(':')
                .map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count() + 1);
            &host[..end + 1 + port]
        })
    } else {
        let end =
            host.find(|c: char| "()[]{}'|;&,*^!".contains(c) || c == '’' || c == '”').unwrap_or(host.len());
        // `$` and braces begin something that a shell or a template fills in.
        host_alone(&host[..end])
    };
    let text = if user.is_empty() { inner.to_owned() } else { format!("{user}@{inner}") };
    let length = wide.len() - host.len() + inner.len();
    Part { at: offset..offset + length, text, kind: Kind::Read }
}

/// The letters of a scheme in front of a colon. Tabs and line feeds between them do not count.
fn scheme_before(text: &str, colon: usize) -> String {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte);
    let bytes = &text.as_bytes()[..colon];
    let mut letters: Vec<u8> = Vec::new();
    for byte in bytes.iter().rev().take(40) {
        if is_letter(*byte) {
            letters.push(*byte);
        } else if !matches!(byte, b'\t' | b'\n' | b'\r') {
            break;
        } else if WEB.iter().any(|web| letters.iter().rev().map(u8::to_ascii_lowercase).eq(web.bytes())) {
            // A line that begins with a scheme.
            break;
        }
    }
    letters.reverse();
    let scheme: String = letters.iter().map(|byte| char::from(*byte)).collect();
    let scheme = scheme.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    if scheme.len() < 2 { String::new() } else { scheme.to_owned() }
}

/// A value that is one URL as a whole: its host by the URL parser.
fn find_url_value(text: &str, key: Key, sink: &mut Sink<'_>) {
    let value = text.trim_matches(|c: char| c <= ' ');
    let Some((scheme, rest)) = value.split_once(':').filter(|_| value.len() <= 64 * 1024) else { return };
    let plain: String = scheme.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
    let plain = plain.to_ascii_lowercase();
    let web = WEB.contains(&plain.as_str());
    let spaced = rest.contains(char::is_whitespace);
    if !web || spaced && key.trust == Trust::Nothing {
        return;
    }
    let at = 0..text.len();
    let parsed = url::Url::parse(value);
    let port = parsed.as_ref().ok().and_then(url::Url::port);
    let target = match &parsed {
        Ok(url) => match url.host() {
            Some(url::Host::Domain(name)) => super::host::named(name),
            Some(url::Host::Ipv4(address)) => {
                Target::Host(crate::policy::domain::Host::Address(address.into()))
            }
            Some(url::Host::Ipv6(address)) => Target::Host(crate::policy::domain::Host::Address(
                std::net::IpAddr::V6(address).to_canonical(),
            )),
            None => return,
        },
        // In a text, punctuation around an address is not part of it; under a key for addresses, it is.
        Err(url::ParseError::EmptyHost) => return,
        Err(_) if key.trust > Trust::Nothing => unreadable(value),
        Err(_) => return,
    };
    // Punctuation at its end belongs to the surrounding text, and was removed where the address is.
    let authority = rest.trim_start_matches(['/', '\\']).split(['/', '\\', '?', '#']).next().unwrap_or("");
    let host = authority.rsplit('@').next().unwrap_or("");
    if key.trust == Trust::Nothing && !host.starts_with('[') && host_alone(host).len() < host.len() {
        return;
    }
    sink(Destination { target, port, scheme: Some(plain), at, form: Form::Url });
}

/// A possible authority at the beginning of a text, without trailing punctuation.
fn authority_at(rest: &str) -> &str {
    let length = rest.bytes().take(300).take_while(|b| is_name(*b) || *b == b'@' || *b == b':').count();
    rest[..rest.floor_char_boundary(length)].trim_end_matches(['.', ':', ','])
}

/// `//host/path`, not in a comment and not inside of a path.
fn relative(text: &str, key: Key, sink: &mut Sink<'_>) {
    let bytes = text.as_bytes();
    for start in memchr::memmem::find_iter(bytes, b"//") {
        let before = start.checked_sub(1).map(|at| bytes[at]);
        if before.is_some_and(|b| !b.is_ascii_whitespace() && !b"\"'=(<>,[`{|".contains(&b)) {
            continue;
        }
        let rest = &text[start + 2..];
        let name = authority_at(rest);
        let host = name.rsplit('@').next().unwrap_or("").split(':').next().unwrap_or("");
        let after = rest.as_bytes().get(name.len()).copied();
        let ended = after.is_none_or(|b| b"/\\?#\"'>)`".contains(&b) || b.is_ascii_whitespace());
        let plain = start == 0 && key.trust > Trust::Nothing;
        let dotted = host.contains('.') && host.rsplit('.').next().is_some_and(is_certain)
            || host.parse::<std::net::Ipv4Addr>().is_ok();
        if ended && (dotted || plain && !name.is_empty()) {
            super::bare::give(name, start + 2, Form::SchemeRelative, sink);
        }
    }
}

/// `/\host`, `///host`, `/<tab>/host`: for browsers all of them are `//host`.
fn mixed_slashes(text: &str, key: Key, sink: &mut Sink<'_>) {
    let is_slash = |byte: u8| matches!(byte, b'/' | b'\\');
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'/', b'\\', &bytes[at..]) {
        let start = at + found;
        let run =
            bytes[start..].iter().take(64).take_while(|b| is_slash(**b) || b"\t\r\n".contains(b)).count();
        at = start + run;
        let slashes = &bytes[start..at];
        let count = slashes.iter().filter(|byte| is_slash(**byte)).count();
        let plain =
            slashes == b"//" || slashes.iter().all(|byte| *byte == b'\\') || !is_slash(slashes[run - 1]);
        let before = start.checked_sub(1).map(|at| bytes[at]);
        let begins = match before {
            None => key.trust > Trust::Nothing,
            Some(before) => b"\"'=(".contains(&before),
        };
        if count < 2 || plain || !begins {
            continue;
        }
        let rest = &text[at..];
        let name = authority_at(rest);
        if !name.is_empty() && (before.is_none() || name.contains('.')) {
            super::bare::give(name, at, Form::SchemeRelative, sink);
        }
    }
}

/// `jdbc:oracle:thin:@host:1521:x`: the host of a driver follows an `@`.
fn driver(text: &str, sink: &mut Sink<'_>) {
    for start in memchr::memmem::find_iter(text.as_bytes(), b"jdbc:") {
        let rest = &text[start + 5..];
        let Some(at) = rest.find('@').filter(|at| *at <= 300 && !rest[..*at].contains(char::is_whitespace))
        else {
            continue;
        };
        let host = rest[at + 1..].trim_start_matches('/');
        let offset = text.len() - host.len();
        let length = host.bytes().take(300).take_while(|b| is_name(*b)).count();
        let name = host[..host.floor_char_boundary(length)].trim_end_matches('.');
        if !name.is_empty() {
            super::bare::give(name, offset, Form::Url, sink);
        }
    }
}

/// `\\host\share`, also with each backslash doubled, as in a literal.
fn unc(text: &str, sink: &mut Sink<'_>) {
    let bytes = text.as_bytes();
    for start in memchr::memmem::find_iter(bytes, b"\\\\") {
        if start
            .checked_sub(1)
            .is_some_and(|at| bytes[at].is_ascii_alphanumeric() || b":\\/".contains(&bytes[at]))
        {
            continue;
        }
        let rest = &text[start + 2..];
        let (rest, doubled) = rest.strip_prefix("\\\\").map_or((rest, false), |rest| (rest, true));
        let rest = rest.strip_prefix("?\\UNC\\").or_else(|| rest.strip_prefix(".\\UNC\\")).unwrap_or(rest);
        let offset = text.len() - rest.len();
        // `\\host@SSL@443\share` asks over the web.
        let length = rest.bytes().take(300).take_while(|b| is_name(*b) || *b == b'@').count();
        let name = rest[..rest.floor_char_boundary(length)].split('@').next().unwrap_or("");
        let share = &rest.as_bytes()[length.min(rest.len())..];
        let share = if doubled { share.strip_prefix(b"\\").unwrap_or_default() } else { share };
        let shared =
            matches!(share, [b'\\' | b'/', next, ..] if next.is_ascii_alphanumeric() || *next == b'$');
        if name.is_empty() || !shared || !(start == 0 || name.contains('.')) {
            continue;
        }
        super::bare::give(name, offset, Form::Unc, sink);
    }
}

/// `@host/x` or `.host/x` where a path is expected: appended to a base address it makes another host.
fn continuation(text: &str, key: Key, sink: &mut Sink<'_>) {
    let value = text.trim();
    let Some(first) = value.chars().next().filter(|c| matches!(c, '@' | '.' | ':')) else { return };
    let authority = value.split(['/', '\\', '?', '#']).next().unwrap_or("");
    let rooted = authority.len() < value.len();
    let (Some(host), true) = (
        authority.rsplit('@').next().map(|host| host.trim_start_matches('.')),
        authority.len() <= 1024 && !authority.contains(char::is_whitespace),
    ) else {
        return;
    };
    let name = host.split(':').next().unwrap_or("");
    let plausible = name.contains('.') && name.rsplit('.').next().is_some_and(is_certain)
        || name.parse::<std::net::Ipv4Addr>().is_ok();
    let user = authority.contains('@') && (rooted || key.continues || key.trust > Trust::Nothing);
    let suffix =
        first == '.' && !authority.contains("..") && (key.continues || key.trust > Trust::Nothing) && rooted;
    if plausible && (user || suffix) {
        give_dotted(host, 0, Form::Continuation, &mut |mut found| {
            found.at = 0..text.len();
            sink(found);
        });
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_".contains(&byte) || byte >= 0x80
}
