//! One remembered result as bytes: origin, keyed hashes and positions. No text, and nothing that can be read back
//! without the key.
//!
//! `AGTAINT3`, the body, and 16 bytes of HMAC-SHA-256 over both. Numbers are little-endian. A record of an older version is
//! skipped: none is remembered for longer than a day.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::memory::TaintMemory;
use super::origin::Origin;
use super::print::{MAX_CELLS, MAX_FOLLOWED, MAX_SYMBOLS, Print};
use super::repeats;
use super::slices::Followed;
use crate::types::ServerId;
use agentsh_secrets::values::Kind;

/// The first bytes of every record.
pub const MAGIC: &[u8; 8] = b"AGTAINT3";
const OLDER: [&[u8]; 2] = [b"AGTAINT1", b"AGTAINT2"];
const MAC: usize = 16;
/// Longest name in a record, in bytes.
const MAX_NAME: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("a stored taint record is truncated or invalid")]
    NotARecord,
    #[error("a stored taint record was changed, or was written with another key")]
    WrongMac,
    #[error("a stored taint record is inconsistent")]
    Contradiction,
}

impl TaintMemory {
    /// Everything that a later session needs to find copies of a result.
    pub(super) fn export(&self, origin: &Origin, print: &Print) -> Vec<u8> {
        let mut body = MAGIC.to_vec();
        body.push(u8::from(origin.private));
        body.extend(origin.time.as_secs().to_le_bytes());
        for name in [&origin.server.0, &origin.tool, &origin.call] {
            let bytes = clip(name);
            number(&mut body, bytes.len());
            body.extend(bytes);
        }
        number(&mut body, print.shadow.len());
        body.extend(&print.shadow);
        number(&mut body, print.spans.len());
        for (start, end, kind) in &print.spans {
            body.extend(start.to_le_bytes());
            body.extend(end.to_le_bytes());
            body.push(*kind);
        }
        print.tags.iter().for_each(|tags| pairs(&mut body, tags));
        number(&mut body, print.followed.len());
        for Followed { kind, length, whole, pieces } in &print.followed {
            body.push(*kind as u8);
            body.extend(length.to_le_bytes());
            body.extend(whole.to_le_bytes());
            pairs(&mut body, pieces);
        }
        number(&mut body, print.cells.len());
        print.cells.iter().for_each(|tag| body.extend(tag.to_le_bytes()));
        self.seal_record(body)
    }

    /// Makes a record of its bytes with this memory's key.
    #[must_use]
    pub fn seal_record(&self, mut body: Vec<u8>) -> Vec<u8> {
        let mac = self.mac(&body);
        body.extend(mac);
        body
    }

    /// The content of a record after its magic number.
    pub(super) fn open_record<'r>(&self, record: &'r [u8], magic: &[u8]) -> Result<&'r [u8], ImportError> {
        let split = record.len().checked_sub(MAC).ok_or(ImportError::NotARecord)?;
        let (body, mac) = record.split_at(split);
        let rest = body.strip_prefix(magic).ok_or(ImportError::NotARecord)?;
        // Forging a MAC needs the key, so a timing leak in the comparison does not help.
        if self.mac(body) == mac { Ok(rest) } else { Err(ImportError::WrongMac) }
    }

    /// The result in a record, and until when it is remembered. None when its lifetime is over.
    pub(super) fn restore_result(
        &self,
        record: &[u8],
        now: Duration,
    ) -> Result<Option<(Origin, Print, Duration)>, ImportError> {
        if OLDER.iter().any(|magic| record.starts_with(magic)) {
            return Ok(None);
        }
        let mut reader = Reader(self.open_record(record, MAGIC)?);
        let (origin, print) = read(&mut reader).ok_or(ImportError::NotARecord)?;
        if !reader.0.is_empty() || !is_consistent(&print) {
            return Err(ImportError::Contradiction);
        }
        // Its own record does not say whether it was repeated.
        let until = origin.time + self.config.lifetime + repeats::REPEAT_WINDOW;
        // A time in the future would never end.
        let is_live = origin.time <= now && now < until;
        Ok(is_live.then_some((origin, print, until)))
    }

    /// HMAC-SHA-256 with the memory's key, cut to 16 bytes.
    fn mac(&self, body: &[u8]) -> [u8; MAC] {
        let pad = |byte: u8| self.mac_key.map(|key| key ^ byte);
        let inner =
            Sha256::new().chain_update(pad(0x36)).chain_update([0x36; 32]).chain_update(body).finalize();
        let outer =
            Sha256::new().chain_update(pad(0x5c)).chain_update([0x5c; 32]).chain_update(inner).finalize();
        let mut mac = [0; MAC];
        mac.copy_from_slice(&outer[..MAC]);
        mac
    }
}

fn read(reader: &mut Reader<'_>) -> Option<(Origin, Print)> {
    let private = reader.take(1)?[0] != 0;
    let time = Duration::from_secs(u64::from_le_bytes(reader.take(8)?.try_into().ok()?));
    let mut name = || {
        let length = reader.count(1)?;
        String::from_utf8(reader.take(length)?.to_vec()).ok()
    };
    let (server, tool, call) = (ServerId(name()?), name()?, name()?);
    let length = reader.count(1)?;
    let mut print = Print { shadow: reader.take(length)?.to_vec(), ..Print::default() };
    for _ in 0..reader.count(9)? {
        print.spans.push((reader.number()?, reader.number()?, reader.take(1)?[0]));
    }
    for tags in &mut print.tags {
        *tags = reader.pairs()?;
    }
    for _ in 0..reader.count(17)? {
        let kind = Kind::from_code(reader.take(1)?[0])?;
        let (length, whole) = (reader.number()?, u64::from_le_bytes(reader.array()?));
        let pieces = reader.pairs()?;
        print.followed.push(Followed { kind, length, whole, pieces });
    }
    for _ in 0..reader.count(8)? {
        print.cells.push(u64::from_le_bytes(reader.array()?));
    }
    Some((Origin { server, tool, call, time, private }, print))
}

/// Every position is inside the result, and the result is one that could have been remembered.
fn is_consistent(print: &Print) -> bool {
    let symbols = print.shadow.len() as u32;
    print.shadow.len() <= MAX_SYMBOLS
        && print.followed.len() <= MAX_FOLLOWED
        && print.followed.iter().all(Followed::is_possible)
        && print.cells.len() <= MAX_CELLS
        && print.spans.iter().all(|(start, end, _)| start < end && *end <= symbols)
        && print.spans.is_sorted_by_key(|span| span.0)
        && print.tags.iter().flatten().all(|(_, at)| *at <= symbols)
}

pub(super) fn clip(name: &str) -> &[u8] {
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    &name.as_bytes()[..end]
}

pub(super) fn number(body: &mut Vec<u8>, value: usize) {
    body.extend(u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
}

/// A number of pairs, and each of them.
pub(super) fn pairs(body: &mut Vec<u8>, pairs: &[(u32, u32)]) {
    number(body, pairs.len());
    for (one, other) in pairs {
        body.extend(one.to_le_bytes());
        body.extend(other.to_le_bytes());
    }
}

pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub fn pairs(&mut self) -> Option<Vec<(u32, u32)>> {
        (0..self.count(8)?).map(|_| Some((self.number()?, self.number()?))).collect()
    }

    /// A number of items of `size` bytes each; so many bytes must be left.
    pub fn count(&mut self, size: usize) -> Option<usize> {
        let count = self.number()? as usize;
        (count.checked_mul(size)? <= self.0.len()).then_some(count)
    }
}
