//! What comes out of one compressed stream, within a bound: also out of one that breaks off.

use std::io::Read;

use lzma_rust2::{Lzma2Reader, LzmaReader};
use miniz_oxide::inflate::{DecompressError, TINFLStatus, decompress_to_vec_with_limit};

/// How a stream is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Deflate,
    Bzip2,
    Xz,
    Lzma,
    Zstd,
}

/// Bytes that are read at once.
const BLOCK: usize = 16 * 1024;
/// Memory that a stream may ask for before anything came out of it, whatever it claims to need.
const MAX_WINDOW: usize = 8 << 20;
/// Smallest dictionary of LZMA.
const MIN_DICTIONARY: usize = 4096;

/// What comes out of `body`, at most `limit` bytes, and whether that cut it.
pub(super) fn unpacked(packing: Packing, body: &[u8], limit: usize) -> (Vec<u8>, bool) {
    match packing {
        Packing::Deflate => inflated(body, limit),
        Packing::Bzip2 => read(bzip2::read::MultiBzDecoder::new(body), limit),
        Packing::Xz => unxz(body, limit).unwrap_or_default(),
        Packing::Lzma => unlzma(body, limit).unwrap_or_default(),
        Packing::Zstd => unzstd(body, limit).unwrap_or_default(),
    }
}

/// As [`unpacked`], of deflate.
pub(super) fn inflated(body: &[u8], limit: usize) -> (Vec<u8>, bool) {
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

/// Whether the beginning of a stream of deflate is one: noise breaks off within its first blocks.
pub(super) fn may_inflate(body: &[u8]) -> bool {
    const HEAD: usize = 256;
    const OUTPUT: usize = 1024;
    /// So much comes out of noise before it breaks off, as a rule less.
    const ENOUGH: usize = 48;
    match decompress_to_vec_with_limit(&body[..body.len().min(HEAD)], OUTPUT) {
        Ok(_) => true,
        Err(DecompressError { status, output }) => {
            status != TINFLStatus::Failed || output.iter().rposition(|byte| *byte != 0) >= Some(ENOUGH)
        }
    }
}

/// Everything that can be read, at most `limit` bytes. An error ends it.
fn read(mut reader: impl Read, limit: usize) -> (Vec<u8>, bool) {
    let mut output = Vec::new();
    let mut block = vec![0; BLOCK.min(limit)];
    while output.len() < limit {
        let room = block.len().min(limit - output.len());
        match reader.read(&mut block[..room]) {
            Ok(0) | Err(_) => return (output, false),
            Ok(length) => output.extend_from_slice(&block[..length]),
        }
    }
    (output, true)
}

/// The first block of an xz file that is packed by LZMA2 and nothing else, as `xz` writes it.
fn unxz(body: &[u8], limit: usize) -> Option<(Vec<u8>, bool)> {
    const STREAM_HEADER: usize = 12;
    const LZMA2: u8 = 0x21;
    let header = body.get(STREAM_HEADER..)?;
    let length = usize::from(*header.first()?) * 4 + 4;
    let flags = *header.get(1)?;
    // One filter. Both sizes may stand in front of it, as numbers of seven bits a byte.
    let mut rest = header.get(2..length)?;
    for size in [0x40, 0x80] {
        if flags & size != 0 {
            let end = rest.iter().position(|byte| *byte < 0x80)?;
            rest = &rest[end + 1..];
        }
    }
    let [LZMA2, 1, code, ..] = rest else { return None };
    if flags & 3 != 0 || *code > 40 {
        return None;
    }
    let claimed = (2_u64 | u64::from(code & 1)) << (code / 2 + 11);
    let reader = Lzma2Reader::new(header.get(length..)?, dictionary(claimed, limit), None);
    Some(read(reader, limit))
}

/// A file of `lzma`, or an entry of a zip without its four bytes of version: properties, dictionary, size.
fn unlzma(body: &[u8], limit: usize) -> Option<(Vec<u8>, bool)> {
    let [properties, a, b, c, d, rest @ ..] = body else { return None };
    let claimed = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    let size = u64::from_le_bytes(*rest.first_chunk()?);
    let dictionary = dictionary(claimed, limit);
    let reader = LzmaReader::new_with_props(&rest[8..], size, *properties, dictionary, None).ok()?;
    Some(read(reader, limit))
}

/// What is behind a bound of the output needs no dictionary.
fn dictionary(claimed: u64, limit: usize) -> u32 {
    let most = limit.clamp(MIN_DICTIONARY, MAX_WINDOW);
    u32::try_from(usize::try_from(claimed).unwrap_or(most).clamp(MIN_DICTIONARY, most)).unwrap_or(4096)
}

fn unzstd(body: &[u8], limit: usize) -> Option<(Vec<u8>, bool)> {
    (window(body)? <= MAX_WINDOW as u64).then_some(())?;
    Some(read(ruzstd::decoding::StreamingDecoder::new(body).ok()?, limit))
}

/// The memory that a frame of zstd asks for.
fn window(frame: &[u8]) -> Option<u64> {
    let descriptor = *frame.get(4)?;
    if descriptor & 0x20 == 0 {
        let byte = *frame.get(5)?;
        let base = 1_u64 << (10 + (byte >> 3));
        return Some(base + base / 8 * u64::from(byte & 7));
    }
    // One segment: all of it at once.
    let start = 5 + [0, 1, 2, 4][usize::from(descriptor & 3)];
    let length = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let size = frame.get(start..start + length)?;
    Some(size.iter().rev().fold(0, |size, byte| size << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::io::Write;

    use super::*;

    const SAID: &str = "the orchard at Lindenau goes to the Brandt family in spring";
    /// `xz` and `lzma` of it.
    const XZ: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a301003a746865206f726368617264206174204c696e64656e\
         617520676f657320746f20746865204272616e64742066616d696c7920696e20737072696e6700003ecdcf759a3bbcb7\
         0001533b98521b001fb6f37d010000000004595a";
    const LZMA: &str = "5d00008000ffffffffffffffff003a1a08ce76b5d36f6baac0578f65784bbe644cb0c7d67c8b5d6915ba489ddae53178\
         0ccf81d507cfec75753497f49647f48f822a020ecb3f4fe293ffdd7b0000";

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn each_packing_is_undone_and_bounded() {
        for (packing, packed) in [
            (Packing::Bzip2, bzip2(SAID.as_bytes())),
            (Packing::Zstd, zstd(SAID.as_bytes())),
            (Packing::Xz, bytes(XZ)),
            (Packing::Lzma, bytes(LZMA)),
        ] {
            let (output, cut) = unpacked(packing, &packed, 4096);
            assert_eq!((String::from_utf8(output).unwrap().as_str(), cut), (SAID, false), "{packing:?}");
            let (output, cut) = unpacked(packing, &packed, 20);
            assert_eq!((output.as_slice(), cut), (&SAID.as_bytes()[..20], true), "{packing:?}");
            for end in 0..packed.len() {
                let _ = unpacked(packing, &packed[..end], 4096);
            }
        }
    }

    #[test]
    fn a_bomb_gives_no_more_than_its_bound() {
        let zeros = vec![0; 1 << 20];
        for (packing, packed) in [(Packing::Bzip2, bzip2(&zeros)), (Packing::Zstd, zstd(&zeros))] {
            assert!(packed.len() < 8192);
            let (output, cut) = unpacked(packing, &packed, 100_000);
            assert_eq!((output.len(), cut), (100_000, true), "{packing:?}");
        }
    }

    #[test]
    fn what_claims_to_need_much_memory_does_not_get_it() {
        assert_eq!(dictionary(u64::MAX, 100), 4096);
        assert_eq!(dictionary(3 << 30, usize::MAX), 8 << 20);
        // A window of 2 GiB.
        assert!(unpacked(Packing::Zstd, b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 4096).0.is_empty());
    }
}
