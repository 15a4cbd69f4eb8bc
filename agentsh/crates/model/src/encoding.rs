//! Compressed bodies, read whole and within a bound. What is forwarded is what was read.

use std::io::{self, Read};

use brotli_decompressor::Decompressor;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, HeaderMap};

/// Undoes the encodings that the headers name, and takes the header away.
///
/// # Errors
/// Says why it cannot be read: an encoding that nobody here knows, broken data, or more than `most` bytes.
pub(super) fn decode(headers: &mut HeaderMap, body: Bytes, most: usize) -> Result<Bytes, String> {
    let mut encodings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = value.to_str().map_err(|_| "its Content-Encoding cannot be read".to_owned())?;
        encodings.extend(text.split(',').map(|word| word.trim().to_ascii_lowercase()));
    }
    let mut body = body;
    for encoding in encodings.iter().rev().filter(|encoding| !matches!(encoding.as_str(), "" | "identity")) {
        body = undo(encoding, &body, most)?;
    }
    headers.remove(CONTENT_ENCODING);
    Ok(body)
}

fn undo(encoding: &str, body: &[u8], most: usize) -> Result<Bytes, String> {
    let read = match encoding {
        "gzip" | "x-gzip" => whole(MultiGzDecoder::new(body), most),
        // Both are found under this name.
        "deflate" => whole(ZlibDecoder::new(body), most).or_else(|_| whole(DeflateDecoder::new(body), most)),
        "br" => whole(Decompressor::new(body, 4096), most),
        "zstd" => ruzstd::decoding::StreamingDecoder::new(body)
            .map_err(io::Error::other)
            .and_then(|decoder| whole(decoder, most)),
        _ => return Err(format!("the encoding `{}` is not supported", encoding.escape_default())),
    };
    read.map_err(|error| format!("its {encoding} cannot be read: {error}"))
}

fn whole(reader: impl Read, most: usize) -> io::Result<Bytes> {
    let mut out = Vec::new();
    let bound = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(bound).read_to_end(&mut out)?;
    if out.len() > most {
        return Err(io::Error::other(format!("it gives more than {most} bytes")));
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::io::Write;

    use super::*;

    fn read(encoding: &str, body: Vec<u8>, most: usize) -> Result<Bytes, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        let read = decode(&mut headers, body.into(), most);
        assert_eq!(headers.contains_key(CONTENT_ENCODING), read.is_err());
        read
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_encoding_is_undone() {
        let zstd =
            ruzstd::encoding::compress_to_vec(&b"hello"[..], ruzstd::encoding::CompressionLevel::Fastest);
        // `brotli` of the same text, stored.
        let brotli = b"\x0b\x02\x80hello\x03".to_vec();
        for (encoding, body) in [
            ("gzip", gzip(b"hello")),
            ("deflate", zlib(b"hello")),
            ("br", brotli),
            ("zstd", zstd),
            ("identity", b"hello".to_vec()),
            ("deflate, gzip", gzip(&zlib(b"hello"))),
        ] {
            assert_eq!(read(encoding, body, 100).as_deref(), Ok(&b"hello"[..]), "{encoding}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        assert!(read("gzip", b"no".to_vec(), 100).is_err());
        assert!(read("snappy", b"no".to_vec(), 100).unwrap_err().contains("`snappy`"));
        assert!(read("gzip", gzip(&vec![0; 100_000]), 1000).unwrap_err().contains("more than 1000 bytes"));
        let cut = gzip(b"hello");
        assert!(read("gzip", cut[..cut.len() - 9].to_vec(), 100).is_err());
    }
}
