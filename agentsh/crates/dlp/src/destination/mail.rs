//! `user@host` in prose, and `user@host:path` as scp, rsync and git write it.

use super::bare::{give_dotted, is_certain};
use super::{Form, Sink};

/// Longest part before the `@`.
const MAX_USER: usize = 64;

/// Linear: from each `@` it reads only to the next one.
pub(super) fn find(text: &str, sink: &mut Sink<'_>) {
    let bytes = text.as_bytes();
    let mut last = 0;
    for at in memchr::memchr_iter(b'@', bytes) {
        let from = last.max(at.saturating_sub(MAX_USER));
        last = at + 1;
        let user = bytes[from..at].iter().rev().take_while(|byte| is_user(**byte)).count();
        let rest = &text[at + 1..];
        let length = rest.bytes().take(254).take_while(|byte| is_host(*byte)).count();
        let host = rest[..rest.floor_char_boundary(length)].trim_end_matches(['.', '-']);
        let after = rest.as_bytes().get(host.len()).copied();
        if user == 0 || host.is_empty() {
            continue;
        }
        let path = rest.as_bytes().get(host.len() + 1);
        let scp = after == Some(b':')
            && path.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"/~.".contains(byte));
        let port = scp && path.is_some_and(u8::is_ascii_digit);
        if scp && !port {
            give_dotted(host, at + 1, Form::Scp, sink);
        } else if host.contains('.') && host.rsplit('.').next().is_some_and(is_certain) {
            // Behind a scheme it is a user name, which the form of a URL takes care of.
            give_dotted(host, at + 1, if port { Form::Scp } else { Form::Mail }, sink);
        }
    }
}

fn is_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._%+-".contains(&byte)
}

fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_".contains(&byte) || byte >= 0x80
}
