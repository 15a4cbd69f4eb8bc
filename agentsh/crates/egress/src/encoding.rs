//! Decompresses bodies piece by piece as they arrive, up to the reader's limit. The decompressed data is judged and forwarded.

use std::io::{self, Read, Write};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};
use hyper::body::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use ruzstd::decoding::StreamingDecoder;

/// Longest piece, in bytes.
const PIECE: usize = 64 << 10;
/// Maximum number of encodings of one body.
const MAX_ENCODINGS: usize = 4;

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

pub struct Decoder {
    /// In the order in which they are undone.
    stages: Vec<Stage>,
    ended: bool,
}

struct Stage {
    encoding: String,
    codec: Codec,
    input: Bytes,
}

enum Codec {
    Gzip(Box<GzDecoder<Vec<u8>>>),
    /// Two formats have this name; the first byte says which.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
    Brotli(Box<Brotli>),
    /// Decompressed when it is complete.
    Zstd(Vec<u8>),
    Frames(Box<dyn Read + Send>),
}

impl Decoder {
    /// Takes the encodings out of the headers of a body; None where it has none.
    ///
    /// # Errors
    /// Names an encoding that agentsh cannot undo. The headers stay as they are.
    pub fn take(headers: &mut HeaderMap) -> Result<Option<Self>, String> {
        let mut stages = Vec::new();
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
        for value in headers.get_all(CONTENT_ENCODING) {
            let text = value.to_str().map_err(|_| "its Content-Encoding cannot be read".to_owned())?;
            for encoding in text.split(',').map(|word| word.trim().to_ascii_lowercase()) {
                let codec = match encoding.as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => gzip(),
                    "deflate" => Codec::Deflate,
                    "br" => Codec::Brotli(Box::new(brotli())),
                    "zstd" if !is_stream => Codec::Zstd(Vec::new()),
                    "aes128gcm" | "compress" | "dcb" | "dcz" | "exi" | "pack200-gzip" | "snappy"
                    | "x-compress" | "zstd" => {
                        return Err(format!("the encoding `{encoding}` is not supported"));
                    }
                    // The name of no encoding, which clients ignore.
                    _ => continue,
                };
                stages.insert(0, Stage { encoding, codec, input: Bytes::new() });
            }
        }
        if stages.len() > MAX_ENCODINGS {
            return Err(format!("it is compressed more than {MAX_ENCODINGS} times"));
        }
        headers.remove(CONTENT_ENCODING);
        if stages.is_empty() {
            return Ok(None);
        }
        headers.remove(CONTENT_LENGTH);
        Ok(Some(Self { stages, ended: false }))
    }

    /// Takes the next received bytes, when [`Decoder::next_piece`] has no more text; None at the end. Truncated data
    /// ends where it breaks off, as it does for the clients.
    pub fn push(&mut self, bytes: Option<Bytes>) {
        self.ended = bytes.is_none();
        if let (Some(first), Some(bytes)) = (self.stages.first_mut(), bytes) {
            first.input = bytes;
        }
    }

    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The next piece of the text; None where more has to be pushed.
    ///
    /// # Errors
    /// Says what cannot be read; nothing after it can be read.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, String> {
        next(&mut self.stages, self.ended)
    }
}

/// Undoes the encodings that the headers name, and takes the header away.
///
/// # Errors
/// Says why it cannot be read: an encoding that agentsh cannot undo, broken data, or more than `most` bytes.
pub fn decode(headers: &mut HeaderMap, body: Bytes, most: usize) -> Result<Bytes, String> {
    let Some(mut decoder) = Decoder::take(headers)? else { return Ok(body) };
    let mut whole = Vec::new();
    for bytes in [Some(body), None] {
        decoder.push(bytes);
        while let Some(piece) = decoder.next_piece()? {
            whole.extend_from_slice(&piece);
            if whole.len() > most {
                return Err(format!("it decompresses to more than {most} bytes"));
            }
        }
    }
    Ok(whole.into())
}

fn next(stages: &mut [Stage], ended: bool) -> Result<Option<Bytes>, String> {
    let Some((last, before)) = stages.split_last_mut() else { return Ok(None) };
    let encoding = last.encoding.clone();
    let said = |error| format!("its {encoding} cannot be read: {error}");
    loop {
        let piece = last.step().map_err(said)?;
        if !piece.is_empty() {
            return Ok(Some(piece.into()));
        }
        if !last.input.is_empty() {
            continue;
        }
        match next(before, ended)? {
            Some(bytes) => last.input = bytes,
            None if ended && last.is_whole_now().map_err(said)? => {}
            None => return Ok(None),
        }
    }
}

impl Stage {
    /// Takes some of the input, and gives what comes of it.
    fn step(&mut self) -> io::Result<Vec<u8>> {
        if let (Codec::Deflate, Some(first)) = (&self.codec, self.input.first()) {
            let is_zlib = first & 0x0f == 8;
            self.codec = match is_zlib {
                true => Codec::Zlib(ZlibDecoder::new(Vec::new())),
                false => Codec::Raw(DeflateDecoder::new(Vec::new())),
            };
        }
        let input = &mut self.input;
        let out = match &mut self.codec {
            Codec::Gzip(decoder) => inflate(&mut **decoder, GzDecoder::get_mut, input)?,
            Codec::Zlib(decoder) => inflate(decoder, ZlibDecoder::get_mut, input)?,
            Codec::Raw(decoder) => inflate(decoder, DeflateDecoder::get_mut, input)?,
            Codec::Brotli(state) => {
                let mut out = vec![0; PIECE];
                let (mut left, mut read, mut room, mut written) = (input.len(), 0, PIECE, 0);
                let result = BrotliDecompressStream(
                    &mut left,
                    &mut read,
                    input,
                    &mut room,
                    &mut written,
                    &mut out,
                    &mut 0,
                    state,
                );
                match result {
                    BrotliResult::ResultFailure => return Err(io::Error::other("broken data")),
                    BrotliResult::ResultSuccess => input.clear(),
                    _ => drop(input.split_to(read)),
                }
                out.truncate(written);
                out
            }
            Codec::Zstd(held) => {
                held.extend_from_slice(input);
                Vec::new()
            }
            Codec::Frames(reader) => {
                let mut out = vec![0; PIECE];
                let read = reader.read(&mut out)?;
                out.truncate(read);
                out
            }
            Codec::Deflate => Vec::new(),
        };
        if out.is_empty() && matches!(self.codec, Codec::Gzip(_)) && input.starts_with(b"\x1f\x8b") {
            // Another one follows.
            self.codec = gzip();
        } else if out.is_empty() {
            // Bytes after the end are padding.
            input.clear();
        }
        Ok(out)
    }

    /// Whether what could not be read before the end can be read now.
    fn is_whole_now(&mut self) -> io::Result<bool> {
        let Codec::Zstd(held) = &mut self.codec else { return Ok(false) };
        let held = io::Cursor::new(std::mem::take(held));
        let reader = StreamingDecoder::new(held).map_err(io::Error::other)?;
        self.codec = Codec::Frames(Box::new(reader));
        Ok(true)
    }
}

fn gzip() -> Codec {
    Codec::Gzip(Box::new(GzDecoder::new(Vec::new())))
}

fn brotli() -> Brotli {
    BrotliState::new_strict(StandardAlloc::default(), StandardAlloc::default(), StandardAlloc::default())
}

/// Gives everything that comes of the input, or a piece of it. Empty, with input left: the data ended before that.
fn inflate<W: Write>(
    decoder: &mut W,
    sink: impl Fn(&mut W) -> &mut Vec<u8>,
    input: &mut Bytes,
) -> io::Result<Vec<u8>> {
    loop {
        let before = sink(decoder).len();
        // Gives what came of the write before, with nothing to write too.
        let read = decoder.write(input.as_ref())?;
        drop(input.split_to(read));
        let after = sink(decoder).len();
        if after >= PIECE || read == 0 && after == before {
            return Ok(std::mem::take(sink(decoder)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn read(encoding: &str, body: Vec<u8>, most: usize) -> Result<Bytes, String> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        let read = decode(&mut headers, body.into(), most);
        assert!(read.is_err() || !headers.contains_key(CONTENT_ENCODING));
        read
    }

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// `brotli` of `hello`, stored.
    const BROTLI: &[u8] = b"\x0b\x02\x80hello\x03";

    #[test]
    fn content_encodings_are_decoded() {
        let zstd =
            ruzstd::encoding::compress_to_vec(&b"hello"[..], ruzstd::encoding::CompressionLevel::Fastest);
        let padded = [gzipped(b"hel"), gzipped(b"lo"), vec![0; 9]].concat();
        for (encoding, body) in [
            ("gzip", gzipped(b"hello")),
            ("x-gzip", padded),
            ("deflate", zlib(b"hello")),
            ("deflate", zlib(b"hello")[2..].to_vec()),
            ("br", BROTLI.to_vec()),
            ("zstd", zstd),
            ("identity", b"hello".to_vec()),
            ("utf-8", b"hello".to_vec()),
            ("aws-chunked", b"hello".to_vec()),
            ("deflate, gzip", gzipped(&zlib(b"hello"))),
        ] {
            assert_eq!(read(encoding, body, 100).as_deref(), Ok(&b"hello"[..]), "{encoding}");
        }
    }

    #[test]
    fn compressed_body_that_cannot_be_read_is_an_error() {
        assert!(read("gzip", b"no, this is none".to_vec(), 100).is_err());
        assert!(read("zstd", b"no, this is none".to_vec(), 100).is_err());
        assert!(read("compress", b"no".to_vec(), 100).unwrap_err().contains("`compress`"));
        assert!(read("gzip", gzipped(&vec![0; 100_000]), 1000).unwrap_err().contains("more than 1000 bytes"));
        let broken: Vec<u8> = gzipped(b"hello").into_iter().map(|byte| byte ^ 0x40).collect();
        assert!(read("gzip", broken, 100).is_err());
        assert!(read("gzip, gzip, gzip, gzip, gzip", gzipped(b""), 100).unwrap_err().contains("more than 4"));
    }

    /// Flushed data is available at once, in pieces of bounded length.
    #[test]
    fn compressed_stream_is_decoded_as_it_arrives() {
        let text: Vec<u8> = (0..300_000_u32).flat_map(|number| number.to_string().into_bytes()).collect();
        let halves = text.split_at(text.len() / 2);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(halves.0).unwrap();
        encoder.flush().unwrap();
        let first = std::mem::take(encoder.get_mut());
        encoder.write_all(halves.1).unwrap();
        let second = encoder.finish().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "gzip".parse().unwrap());
        let mut decoder = Decoder::take(&mut headers).unwrap().unwrap();
        for (packed, plain) in [(first, halves.0), (second, halves.1)] {
            let mut read = Vec::new();
            for piece in packed.chunks(777) {
                decoder.push(Some(Bytes::copy_from_slice(piece)));
                while let Some(piece) = decoder.next_piece().unwrap() {
                    assert!(piece.len() <= 2 * PIECE, "{}", piece.len());
                    read.extend_from_slice(&piece);
                }
            }
            assert!(read == plain, "{} of {}", read.len(), plain.len());
        }
    }
}
