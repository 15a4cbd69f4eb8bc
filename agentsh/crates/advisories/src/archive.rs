//! Files of a zip archive, such as the `all.zip` of an ecosystem. Reads what the directory at its end lists.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// Largest file inside, in bytes.
pub const MAX_ENTRY: usize = 4 << 20;
/// All files inside together, in bytes: a small archive can hold any number of copies of a large file.
pub const MAX_WHOLE: usize = 512 << 20;
const END: &[u8] = b"PK\x05\x06";
const LISTED: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// Whether it looks like one.
#[must_use]
pub fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(LOCAL)
}

/// Hands every file to `take`, with its name, until they are more than `most` bytes together.
///
/// # Errors
/// What is wrong with the archive. Archives of more than 4 GiB are not read.
pub fn each(bytes: &[u8], most: usize, mut take: impl FnMut(&str, &[u8])) -> Result<(), String> {
    let damaged = || "it is no whole zip archive".to_owned();
    let mut budget = most;
    let mut spend = |size: usize| {
        budget = budget
            .checked_sub(size)
            .ok_or_else(|| format!("what is in it is larger than {} MiB together", most >> 20))?;
        Ok::<_, String>(())
    };
    // A comment may follow, of at most 64 KiB.
    let tail = bytes.len().saturating_sub(22 + (64 << 10));
    let end = bytes.get(tail..).unwrap_or_default().windows(4).rposition(|four| four == END);
    let end = end.map(|at| at + tail).ok_or_else(damaged)?;
    let count = number(bytes, end + 10, 2).ok_or_else(damaged)?;
    let mut at = number(bytes, end + 16, 4).ok_or_else(damaged)?;
    // Where the count does not fit, the entries tell where they end.
    let mut left = if count == 0xffff { usize::MAX } else { count };
    while left > 0 && bytes.get(at..at + 4) == Some(LISTED) {
        let field = |offset: usize, size: usize| number(bytes, at + offset, size).ok_or_else(damaged);
        let (method, packed, whole) = (field(10, 2)?, field(20, 4)?, field(24, 4)?);
        let (name_length, extra, comment, local) =
            (field(28, 2)?, field(30, 2)?, field(32, 2)?, field(42, 4)?);
        let name = bytes.get(at + 46..at + 46 + name_length).ok_or_else(damaged)?;
        let name = String::from_utf8_lossy(name).into_owned();
        at += 46 + name_length + extra + comment;
        left -= 1;
        if name.ends_with('/') {
            continue;
        }
        if whole > MAX_ENTRY {
            return Err(format!("'{name}' in it is larger than {} MiB", MAX_ENTRY >> 20));
        }
        let start = local
            + 30
            + number(bytes, local + 26, 2).ok_or_else(damaged)?
            + number(bytes, local + 28, 2).ok_or_else(damaged)?;
        let data = bytes.get(start..start.saturating_add(packed)).ok_or_else(damaged)?;
        match method {
            0 => {
                spend(data.len())?;
                take(&name, data);
            }
            8 => {
                let mut text = Vec::new();
                let read = DeflateDecoder::new(data).take(MAX_ENTRY as u64 + 1).read_to_end(&mut text);
                read.map_err(|error| format!("'{name}' in it: {error}"))?;
                if text.len() > MAX_ENTRY {
                    return Err(format!("'{name}' in it is larger than {} MiB", MAX_ENTRY >> 20));
                }
                spend(text.len())?;
                take(&name, &text);
            }
            other => return Err(format!("'{name}' in it is packed in a way that is not known ({other})")),
        }
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}
