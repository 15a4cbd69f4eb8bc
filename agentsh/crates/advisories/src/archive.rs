//! Files of a zip archive, such as the `all.zip` of an ecosystem. Reads the central directory, then one file after the
//! other: only one file is in memory at a time.

use std::io::{self, Read as _};

use flate2::read::DeflateDecoder;

use super::source::{Source, read_exactly_at};

/// Largest file inside, in bytes.
pub const MAX_ENTRY: usize = 4 << 20;
/// All files inside together, in bytes: a small archive can hold any number of copies of a large file.
pub const MAX_WHOLE: u64 = 8 << 30;
const END_OF_DIRECTORY_SIGNATURE: &[u8] = b"PK\x05\x06";
const DIRECTORY_ENTRY_SIGNATURE: &[u8] = b"PK\x01\x02";
const LOCAL_HEADER_SIGNATURE: &[u8] = b"PK\x03\x04";
/// Length of a directory entry, before its name.
const ENTRY: usize = 46;
/// Length of the head of a file, before its name.
const HEAD: usize = 30;
/// Bytes of the directory in memory at once: more than one entry can have.
const WINDOW: usize = 512 << 10;

/// Whether the bytes begin like an archive.
#[must_use]
pub fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(LOCAL_HEADER_SIGNATURE)
}

fn damaged_archive() -> String {
    "it is not a valid zip archive".to_owned()
}

fn unreadable(error: &io::Error) -> String {
    format!("it cannot be read: {error}")
}

/// A buffered part of the source that moves with the reads.
struct BufferedWindow<'s, S> {
    source: &'s S,
    bytes: Vec<u8>,
    start: u64,
}

impl<S: Source> BufferedWindow<'_, S> {
    /// So many bytes at an offset, at most [`WINDOW`]; None if the source ends before.
    fn at(&mut self, place: u64, size: usize) -> Result<Option<&[u8]>, String> {
        let held = |window: &Self| {
            let from = usize::try_from(place.checked_sub(window.start)?).ok()?;
            window.bytes.get(from..from.checked_add(size)?).map(|_| from)
        };
        if held(self).is_none() {
            let mut bytes = vec![0; WINDOW];
            let mut done = 0;
            while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
                match self.source.read_at(rest, place.saturating_add(done as u64)) {
                    Ok(0) => break,
                    Ok(some) => done += some,
                    Err(error) => return Err(unreadable(&error)),
                }
            }
            bytes.truncate(done);
            (self.bytes, self.start) = (bytes, place);
        }
        Ok(held(self).and_then(|from| self.bytes.get(from..from + size)))
    }
}

/// Hands every file to `take`, with its name, until they and their names are more than `most` bytes together.
///
/// # Errors
/// The archive is invalid, or `take` failed. Archives of more than 4 GiB are not read.
pub fn for_each_file(
    source: &impl Source,
    most: u64,
    take: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    each_named(source, most, |_| true, take)
}

/// Like [`for_each_file`], for files with selected names; the others are not unpacked.
///
/// # Errors
/// Like [`for_each_file`].
pub fn each_named(
    source: &impl Source,
    most: u64,
    wanted: impl Fn(&str) -> bool,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut budget = most;
    let mut spend = |size: usize| {
        budget = budget
            .checked_sub(size as u64)
            .ok_or_else(|| format!("its content is larger than {} MiB", most >> 20))?;
        Ok::<_, String>(())
    };
    let length = source.length().map_err(|error| unreadable(&error))?;
    let (count, mut at) = directory(source, length)?;
    let mut entries = BufferedWindow { source, bytes: Vec::new(), start: 0 };
    // If the count does not fit, the entries themselves show where they end.
    let mut left = if count == 0xffff { u64::MAX } else { count };
    while left > 0 {
        let Some(entry) = entries.at(at, ENTRY)?.filter(|entry| entry.starts_with(DIRECTORY_ENTRY_SIGNATURE))
        else {
            break;
        };
        let field = |offset: usize, size: usize| number(entry, offset, size).ok_or_else(damaged_archive);
        let (method, packed, whole) = (field(10, 2)?, field(20, 4)?, field(24, 4)?);
        let (name_length, extra, comment, local) =
            (field(28, 2)?, field(30, 2)?, field(32, 2)?, field(42, 4)?);
        let name =
            entries.at(at + ENTRY as u64, usize::try_from(name_length).map_err(|_| damaged_archive())?)?;
        let name = String::from_utf8_lossy(name.ok_or_else(damaged_archive)?).into_owned();
        at += ENTRY as u64 + name_length + extra + comment;
        left -= 1;
        if name.ends_with('/') || !wanted(&name) {
            continue;
        }
        let too_large = || format!("'{name}' in it is larger than {} MiB", MAX_ENTRY >> 20);
        // Compressed data may be a little longer than the original.
        if whole > MAX_ENTRY as u64 || packed > MAX_ENTRY as u64 + (64 << 10) {
            return Err(too_large());
        }
        let data = data(source, local, usize::try_from(packed).map_err(|_| damaged_archive())?)?;
        match method {
            0 => {
                spend(data.len() + name.len())?;
                take(&name, &data)?;
            }
            8 => {
                let mut text = Vec::new();
                let read =
                    DeflateDecoder::new(data.as_slice()).take(MAX_ENTRY as u64 + 1).read_to_end(&mut text);
                read.map_err(|error| format!("'{name}' in it: {error}"))?;
                if text.len() > MAX_ENTRY {
                    return Err(too_large());
                }
                spend(text.len() + name.len())?;
                take(&name, &text)?;
            }
            other => return Err(format!("'{name}' in it uses an unsupported compression method ({other})")),
        }
    }
    Ok(())
}

/// The number of files, and the offset of the first directory entry.
fn directory(source: &impl Source, length: u64) -> Result<(u64, u64), String> {
    // A comment may follow, of at most 64 KiB.
    let tail = length.saturating_sub(22 + (64 << 10));
    let size = usize::try_from(length - tail).map_err(|_| damaged_archive())?;
    let bytes = read_exactly_at(source, tail, size)
        .map_err(|error| unreadable(&error))?
        .ok_or_else(damaged_archive)?;
    let end =
        bytes.windows(4).rposition(|four| four == END_OF_DIRECTORY_SIGNATURE).ok_or_else(damaged_archive)?;
    let field = |offset: usize, size: usize| number(&bytes, end + offset, size).ok_or_else(damaged_archive);
    Ok((field(10, 2)?, field(16, 4)?))
}

/// The data after the head of a file.
fn data(source: &impl Source, local: u64, packed: usize) -> Result<Vec<u8>, String> {
    let read = |offset: u64, size: usize| {
        read_exactly_at(source, offset, size).map_err(|error| unreadable(&error))?.ok_or_else(damaged_archive)
    };
    let head = read(local, HEAD)?;
    let field = |offset: usize| number(&head, offset, 2).ok_or_else(damaged_archive);
    read(local + HEAD as u64 + field(26)? + field(28)?, packed)
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
