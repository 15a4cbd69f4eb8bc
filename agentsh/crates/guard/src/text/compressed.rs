//! Containers in decoded bytes: gzip, zlib, zip, and raw deflate and brotli, which carry no sign. No inflation
//! produces more than what is left of the visit's bound.

use miniz_oxide::inflate::{DecompressError, TINFLStatus, decompress_to_vec_with_limit};

use super::Step;
use super::readable::readable;
use super::views::Walk;

/// Fewer bytes hold no secret, and nearly every byte string begins like some deflate stream.
const SHORTEST_BLIND: usize = 16;
const MAX_BLIND_OUTPUT: usize = 256 * 1024;
/// What of a stream without a sign is tried first, and how much may come out of that.
const HEAD: usize = 512;
const HEAD_OUTPUT: usize = 4096;
/// Bytes in front of a container: what a misaligned or prefixed encoding puts there.
const MAX_PREFIX: usize = 48;

/// `clean`: the bytes are text as they stand.
pub(super) fn decode(bytes: &[u8], clean: bool, walk: &mut Walk<'_>) {
    if is_opaque(bytes) {
        walk.saw_opaque();
    }
    let head = &bytes[..bytes.len().min(MAX_PREFIX)];
    if let Some(at) = memchr::memmem::find(head, &[0x1f, 0x8b, 8])
        && let Some(body) = gzip_body(&bytes[at..])
    {
        inflate(Step::Gzip, body, walk);
        return;
    }
    if let Some(at) = memchr::memmem::find(head, b"PK\x03\x04")
        && let Some(body) = zip_body(&bytes[at..])
    {
        inflate(Step::Zip, body, walk);
        return;
    }
    for at in 0..4.min(bytes.len()) {
        if let [method, flags, body @ ..] = &bytes[at..]
            && method & 0x0f == 8
            && method >> 4 <= 7
            && flags & 0x20 == 0
            && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0
            && inflate(Step::Zlib, body, walk)
        {
            return;
        }
    }
    if bytes.len() >= SHORTEST_BLIND && !clean && walk.may_guess() {
        blindly(bytes, walk);
    }
}

fn inflate(step: Step, body: &[u8], walk: &mut Walk<'_>) -> bool {
    let (output, full) = inflated(body, walk.room());
    if full {
        walk.cut();
    }
    walk.spend(output.len());
    // The first bytes of a stream that is none can look like one.
    let useful = output.len() >= 4;
    if useful {
        walk.found_bytes(step, &output, 0..0);
    }
    useful
}

/// What comes out, also of a stream that breaks off, and whether `limit` cut it.
fn inflated(body: &[u8], limit: usize) -> (Vec<u8>, bool) {
    match decompress_to_vec_with_limit(body, limit) {
        Ok(output) => (output, false),
        Err(DecompressError { status, mut output }) => {
            let full = status == TINFLStatus::HasMoreOutput;
            if !full {
                // The buffer grows in advance: what was not written is zero.
                while output.last() == Some(&0) {
                    output.pop();
                }
            }
            (output, full)
        }
    }
}

/// From bytes and a limit in bytes to what comes out.
type Decoder = fn(&[u8], usize) -> Vec<u8>;

fn blindly(bytes: &[u8], walk: &mut Walk<'_>) {
    // Noise fails within its first bytes: only what begins as text is read whole.
    let head = &bytes[..bytes.len().min(HEAD)];
    let limit = walk.room().min(MAX_BLIND_OUTPUT).min(bytes.len().saturating_mul(64));
    let decoders: [(Step, Decoder); 2] =
        [(Step::Deflate, |bytes, limit| inflated(bytes, limit).0), (Step::Brotli, unbrotlied)];
    for (step, decoder) in decoders {
        let first = decoder(head, HEAD_OUTPUT);
        walk.work(HEAD);
        if !reads(&first) {
            continue;
        }
        let output = if head.len() == bytes.len() && first.len() < HEAD_OUTPUT {
            first
        } else {
            decoder(bytes, limit)
        };
        walk.spend(output.len());
        walk.found_bytes(step, &output, 0..0);
        return;
    }
}

fn unbrotlied(bytes: &[u8], limit: usize) -> Vec<u8> {
    let mut output = vec![0; limit];
    let done = brotli_decompressor::brotli_decode(bytes, &mut output);
    output.truncate(done.decoded_size);
    output
}

fn reads(output: &[u8]) -> bool {
    output.len() >= 12 && readable(output).is_some_and(|found| found.clean)
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

/// The first file of an archive: what a small archive is made for.
fn zip_body(bytes: &[u8]) -> Option<&[u8]> {
    let short = |at: usize| Some(usize::from(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let (flags, method) = (short(6)?, short(8)?);
    let body = bytes.get(30 + short(26)? + short(28)?..)?;
    (flags & 1 == 0 && method == 8).then_some(body)
}

fn is_opaque(bytes: &[u8]) -> bool {
    const SIGNS: [&[u8]; 6] = [
        b"\x28\xb5\x2f\xfd",
        b"\xfd7zXZ",
        b"BZh91AY&SY",
        b"7z\xbc\xaf\x27\x1c",
        b"Rar!\x1a\x07",
        b"\x04\x22\x4d\x18",
    ];
    (0..4.min(bytes.len())).any(|at| SIGNS.iter().any(|sign| bytes[at..].starts_with(sign)))
}
