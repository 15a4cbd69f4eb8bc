//! Compressed streams with a sign, wherever they begin: every entry of a zip, every member of a gzip file, the zlib
//! streams of a PDF, a PNG or anything else.

use super::Step;
use super::unpacked::{inflated, may_inflate};
use super::walk::Walk;

/// Streams that are unpacked in one byte string: each attempt may read all of it.
const MAX_STREAMS: usize = 32;
/// What looks like the beginning of one and is none costs little, and there is one in so many bytes of noise.
const MIN_GUESSES: usize = 64;
const BYTES_OF_A_GUESS: usize = 512;
/// Less comes out of bytes that are no stream.
const MIN_OUTPUT: usize = 4;
/// The same inside a byte string, where two bytes of noise look like the start of a stream more often.
const MIN_OUTPUT_INSIDE: usize = 12;
/// At most so many bytes from the start a stream may be a short one: what a misaligned or prefixed encoding puts there.
const MAX_PREFIX: usize = 4;

pub(super) fn decode(bytes: &[u8], walk: &mut Walk<'_>) {
    if is_opaque(bytes) {
        walk.saw_opaque();
    }
    let (mut tries, mut guesses) = (0, MIN_GUESSES + bytes.len() / BYTES_OF_A_GUESS);
    let mut at = 0;
    walk.work(bytes.len());
    while let Some(found) = next(bytes, at) {
        at = found + 1;
        let Some((step, body)) = stream(&bytes[found..], walk) else { continue };
        if body.len() > BYTES_OF_A_GUESS {
            if guesses == 0 {
                walk.cut();
                break;
            }
            guesses -= 1;
            walk.work(BYTES_OF_A_GUESS);
            if !may_inflate(body) {
                continue;
            }
        }
        if tries >= MAX_STREAMS {
            walk.cut();
            break;
        }
        tries += 1;
        walk.work(body.len());
        let (output, full) = inflated(body, walk.room());
        if full {
            walk.cut();
        }
        walk.spend(output.len());
        let least = if step == Step::Zlib && found >= MAX_PREFIX { MIN_OUTPUT_INSIDE } else { MIN_OUTPUT };
        if output.len() >= least {
            walk.found_bytes(step, &output, 0..0);
        }
    }
}

fn is_opaque(bytes: &[u8]) -> bool {
    const SIGNS: [&[u8]; 3] = [b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x04\x22\x4d\x18"];
    (0..4.min(bytes.len())).any(|at| SIGNS.iter().any(|sign| bytes[at..].starts_with(sign)))
}

/// Where the next stream may begin.
fn next(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let is_sign = |pair: &[u8]| match pair {
        [0x1f, 0x8b] | [b'P', b'K'] => true,
        [method, flags] => is_zlib(*method, *flags),
        _ => false,
    };
    rest.windows(2).position(is_sign).map(|at| from + at)
}

/// As RFC 1950 has it, without a dictionary.
fn is_zlib(method: u8, flags: u8) -> bool {
    method & 0x0f == 8
        && method >> 4 <= 7
        && flags & 0x20 == 0
        && (u16::from(method) << 8 | u16::from(flags)) % 31 == 0
}

/// What a stream at the start is, and its deflated bytes.
fn stream<'b>(bytes: &'b [u8], walk: &mut Walk<'_>) -> Option<(Step, &'b [u8])> {
    match bytes {
        [0x1f, 0x8b, 8, ..] => gzip_body(bytes).map(|body| (Step::Gzip, body)),
        [b'P', b'K', 3, 4, ..] => zip_body(bytes, walk).map(|body| (Step::Zip, body)),
        // The body must not begin with the one kind of block that there is none of.
        [method, flags, first, ..] if is_zlib(*method, *flags) && first & 6 != 6 => {
            Some((Step::Zlib, &bytes[2..]))
        }
        _ => None,
    }
}

fn gzip_body(bytes: &[u8]) -> Option<&[u8]> {
    let flags = *bytes.get(3)?;
    let mut rest = bytes.get(10..)?;
    if flags & 4 != 0 {
        let length = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]));
        rest = rest.get(2 + length..)?;
    }
    for flag in [8, 16] {
        if flags & flag != 0 {
            let end = memchr::memchr(0, rest)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & 2 != 0 { rest.get(2..) } else { Some(rest) }
}

/// The deflated bytes of one entry of an archive. A stored entry is among the readable bytes; one that is encrypted or
/// compressed in another way makes the whole opaque.
fn zip_body<'b>(bytes: &'b [u8], walk: &mut Walk<'_>) -> Option<&'b [u8]> {
    let short = |at: usize| Some(usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let (flags, method) = (short(6)?, short(8)?);
    let body = bytes.get(30 + short(26)? + short(28)?..)?;
    const STORED: usize = 0;
    const DEFLATED: usize = 8;
    match method {
        _ if flags & 1 != 0 => walk.saw_opaque(),
        DEFLATED => return Some(body),
        STORED => {}
        _ => walk.saw_opaque(),
    }
    None
}

#[cfg(test)]
mod tests {
    use miniz_oxide::deflate::{compress_to_vec, compress_to_vec_zlib};

    use crate::text::{Limits, visit};

    const SAID: &str = "the orchard at Lindenau goes to the Brandt family in spring";

    fn sees(bytes: &[u8]) -> bool {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut seen = false;
        let _ = visit(&hex, &Limits::default(), &mut |view| seen |= view.text.contains(SAID));
        seen
    }

    fn entry(name: &str, text: &str) -> Vec<u8> {
        let body = compress_to_vec(text.as_bytes(), 6);
        let mut entry = b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0".to_vec();
        entry.extend((body.len() as u32).to_le_bytes());
        entry.extend((text.len() as u32).to_le_bytes());
        entry.extend((name.len() as u16).to_le_bytes());
        entry.extend([0, 0]);
        entry.extend(name.as_bytes());
        entry.extend(body);
        entry
    }

    fn member(text: &str) -> Vec<u8> {
        let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        member.extend(compress_to_vec(text.as_bytes(), 6));
        member.extend([0; 8]);
        member
    }

    #[test]
    fn every_entry_of_a_zip_is_opened() {
        let archive = [entry("README", "nothing to see here, move on"), entry("a", "x"), entry("b", SAID)];
        assert!(sees(&archive.concat()));
    }

    #[test]
    fn what_is_compressed_in_another_way_is_opaque() {
        let mut state = 7_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let noise: Vec<u8> = (0..400).map(|_| byte()).collect();
        for sign in [&b"BZh91AY&SY"[..], b"\xfd7zXZ\0\0\x04", b"\x28\xb5\x2f\xfd\x04\x58"] {
            let hex: String = sign.iter().chain(&noise).map(|byte| format!("{byte:02x}")).collect();
            assert!(visit(&hex, &Limits::default(), &mut |_| {}).opaque, "{}", sign.escape_ascii());
        }
    }

    #[test]
    fn guesses_do_not_use_up_what_a_stream_needs() {
        let mut state = 5_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let noise: Vec<u8> = (0..90_000).map(|_| byte()).collect();
        assert!(
            noise.windows(2).filter(|pair| super::is_zlib(pair[0], pair[1])).count() > super::MAX_STREAMS
        );
        let signs = [0x78, 0x9c, 0x05, 0xff].repeat(100);
        assert!(sees(&[signs.as_slice(), &noise, &compress_to_vec_zlib(SAID.as_bytes(), 6)].concat()));
    }

    #[test]
    fn members_after_the_first_are_opened() {
        assert!(sees(&[member("nothing to see here, move on"), member(SAID)].concat()));
    }

    #[test]
    fn streams_in_documents_and_pictures_are_opened() {
        let zlib = compress_to_vec_zlib(SAID.as_bytes(), 6);
        let pdf =
            [b"%PDF-1.4\n1 0 obj\n<< /Filter /FlateDecode >>\nstream\n".as_slice(), &zlib, b"\nendstream"];
        let before = [0x89_u8, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0, 0, 60];
        let png = [before.as_slice(), b"zTXtComment\0\0", &zlib];
        let plain = [before.as_slice(), b"tEXtComment\0", SAID.as_bytes(), &[0xde, 0xad, 0, 1]];
        for file in [pdf.concat(), png.concat(), plain.concat()] {
            assert!(sees(&file), "{}", file.escape_ascii());
        }
    }

    #[test]
    fn work_is_in_proportion_to_the_bytes() {
        let work = |length: usize| {
            let hex = "789c".repeat(length);
            visit(&hex, &Limits::default(), &mut |_| {}).work
        };
        assert!(work(20_000) < 14 * work(2_000), "{} {}", work(20_000), work(2_000));
    }
}
