//! Encoded words of mail headers: `=?utf-8?b?aGVsbG8=?= =?utf-8?q?=20you?=`. Decoded one by one and joined.

use agentsh_base::radix;

use super::Step;
use super::profile::Profile;
use super::walk::Walk;

/// Longest name of a character set.
const MAX_SET: usize = 40;

pub(super) fn decode(text: &str, profile: &Profile, walk: &mut Walk<'_>) {
    if profile.count(b'?') < 4 || profile.count(b'=') < 2 {
        return;
    }
    walk.work(text.len());
    let bytes = text.as_bytes();
    let (mut out, mut part, mut from) = (Vec::new(), Vec::new(), 0);
    let mut place: Option<std::ops::Range<usize>> = None;
    while let Some(start) = memchr::memmem::find(&bytes[from..], b"=?").map(|at| from + at) {
        from = start + 2;
        let Some((letter, data, end)) = parse_encoded_word(bytes, from) else { continue };
        if letter == b'b' {
            part = radix::base64(data);
        } else {
            decode_quoted(data, &mut part);
        }
        out.append(&mut part);
        place.get_or_insert(start..end).end = end;
        from = end;
    }
    if let Some(at) = place {
        walk.found_bytes(Step::EncodedWords, &out, at);
    }
}

/// How a word that begins at `from` is encoded, what it holds, and where it ends.
fn parse_encoded_word(bytes: &[u8], from: usize) -> Option<(u8, &[u8], usize)> {
    let set = bytes[from..].iter().take(MAX_SET).position(|byte| *byte == b'?')?;
    let [letter, b'?', rest @ ..] = bytes.get(from + set + 1..)? else { return None };
    let letter = letter.to_ascii_lowercase();
    let length = rest.iter().position(|byte| *byte == b'?')?;
    let end = from + set + 3 + length + 2;
    (matches!(letter, b'b' | b'q') && rest.get(length + 1) == Some(&b'='))
        .then(|| (letter, &rest[..length], end))
}

fn decode_quoted(data: &[u8], out: &mut Vec<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut at = 0;
    while let Some(&byte) = data.get(at) {
        let escaped = match &data[at..] {
            [b'=', high, low, ..] => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escaped.and_then(|value| u8::try_from(value).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(if byte == b'_' { b' ' } else { byte });
                at += 1;
            }
        }
    }
}
