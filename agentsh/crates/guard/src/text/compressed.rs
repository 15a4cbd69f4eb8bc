//! What is compressed in decoded bytes: streams with a sign ([`streams`]), and raw deflate, which carries none. No
//! inflation produces more than what is left of the visit's bound.

use super::readable::readable;
use super::unpacked::inflated;
use super::views::Walk;
use super::{Step, streams};

/// Fewer bytes hold no secret, and nearly every byte string begins like some deflate stream.
const MIN_BLIND: usize = 16;
const MAX_BLIND_OUTPUT: usize = 256 * 1024;
/// What of a stream without a sign is tried first, and how much may come out of that.
const HEAD: usize = 512;
const HEAD_OUTPUT: usize = 4096;

/// `clean`: the bytes are text as they stand.
pub(super) fn decode(bytes: &[u8], clean: bool, walk: &mut Walk<'_>) {
    if is_opaque(bytes) {
        walk.saw_opaque();
    }
    if streams::decode(bytes, walk) {
        return;
    }
    if bytes.len() >= MIN_BLIND && !clean && walk.may_guess() {
        blindly(bytes, walk);
    }
}

fn blindly(bytes: &[u8], walk: &mut Walk<'_>) {
    // Noise fails within its first bytes: only what begins as text is read whole.
    let head = &bytes[..bytes.len().min(HEAD)];
    let limit = walk.room().min(MAX_BLIND_OUTPUT).min(bytes.len().saturating_mul(64));
    let first = inflated(head, HEAD_OUTPUT).0;
    walk.work(HEAD);
    if !reads(&first) {
        return;
    }
    let is_whole = head.len() == bytes.len() && first.len() < HEAD_OUTPUT;
    let output = if is_whole { first } else { inflated(bytes, limit).0 };
    walk.spend(output.len());
    walk.found_bytes(Step::Deflate, &output, 0..0);
}

fn reads(output: &[u8]) -> bool {
    output.len() >= 12 && readable(output).is_some_and(|found| found.clean)
}

fn is_opaque(bytes: &[u8]) -> bool {
    const SIGNS: [&[u8]; 3] = [b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\x04\x22\x4d\x18"];
    (0..4.min(bytes.len())).any(|at| SIGNS.iter().any(|sign| bytes[at..].starts_with(sign)))
}
