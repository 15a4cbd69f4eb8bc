//! What has left so far, for a later session: cells, places of secrets and grams of prose, as keyed hashes, in a record
//! after the results.
//!
//! `AGTSENT1`, the body, and 16 bytes of HMAC-SHA-256 over both. Numbers are little-endian.

use std::time::Duration;

use super::coverage::SecretCoverage;
use super::detector::Detector;
use super::judge::Judge;
use super::origin::OriginId;
use super::persist::{ImportError, Reader, clip, number, pairs};
use super::ranges::Ranges;
use crate::types::ServerId;

/// The first bytes of such a record.
pub const MAGIC: &[u8; 8] = b"AGTSENT1";

#[derive(Debug, Default)]
struct Sent {
    cells: Vec<u64>,
    pieces: Vec<u32>,
    secrets: Vec<SecretCoverage>,
}

impl Judge {
    /// Remembers again what [`super::memory::Stored::record`] or [`Judge::sent`] was, oldest first. None when its lifetime
    /// is over, and of what was sent.
    ///
    /// # Errors
    /// When a byte of it is not as it was written.
    pub fn import(&mut self, record: &[u8], now: Duration) -> Result<Option<OriginId>, ImportError> {
        if record.starts_with(MAGIC) {
            return self.restore_sent(record, now).map(|()| None);
        }
        let restored = self.memory.restore_result(record, now)?;
        Ok(restored.map(|(origin, print, until)| self.insert(origin, &print, until).0))
    }

    /// The parts of the last call that may not leave, for a later session. None: nothing.
    #[must_use]
    pub fn sent(&self, now: Duration) -> Option<Vec<u8>> {
        let sent = Sent {
            cells: self.all.cells.export(),
            pieces: self.all.pieces.export(),
            secrets: self.all.coverage.export(),
        };
        if sent.cells.is_empty() && sent.pieces.is_empty() && sent.secrets.is_empty() {
            return None;
        }
        let mut body = MAGIC.to_vec();
        body.extend(now.as_secs().to_le_bytes());
        number(&mut body, sent.cells.len());
        sent.cells.iter().for_each(|tag| body.extend(tag.to_le_bytes()));
        number(&mut body, sent.pieces.len());
        sent.pieces.iter().for_each(|tag| body.extend(tag.to_le_bytes()));
        number(&mut body, sent.secrets.len());
        for SecretCoverage { server, whole, covered } in &sent.secrets {
            let name = clip(&server.0);
            number(&mut body, name.len());
            body.extend(name);
            body.extend(whole.to_le_bytes());
            pairs(&mut body, &covered.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>());
        }
        Some(self.memory.seal_record(body))
    }

    /// Restores a record that [`Judge::sent`] returned. The results that it refers to must be restored first.
    fn restore_sent(&mut self, record: &[u8], now: Duration) -> Result<(), ImportError> {
        let body = self.memory.open_record(record, MAGIC)?;
        let mut reader = Reader(body);
        let time = u64::from_le_bytes(reader.array().ok_or(ImportError::NotARecord)?);
        let sent = read(&mut reader).ok_or(ImportError::NotARecord)?;
        if !reader.0.is_empty() {
            return Err(ImportError::Contradiction);
        }
        let time = Duration::from_secs(time);
        if time > now || time + self.memory.config.lifetime <= now {
            return Ok(());
        }
        self.all.cells.import(&self.memory, sent.cells);
        self.all.coverage.import(&self.memory, sent.secrets);
        self.all.pieces.import(&self.memory, sent.pieces);
        self.all.begin();
        Ok(())
    }
}

fn read(reader: &mut Reader<'_>) -> Option<Sent> {
    let mut sent = Sent::default();
    for _ in 0..reader.count(8)? {
        sent.cells.push(u64::from_le_bytes(reader.array()?));
    }
    for _ in 0..reader.count(4)? {
        sent.pieces.push(reader.number()?);
    }
    for _ in 0..reader.count(16)? {
        let length = reader.count(1)?;
        let server = ServerId(String::from_utf8(reader.take(length)?.to_vec()).ok()?);
        let whole = u64::from_le_bytes(reader.array()?);
        let mut covered = Ranges::default();
        reader.pairs()?.into_iter().for_each(|(start, end)| covered.add(start..end));
        sent.secrets.push(SecretCoverage { server, whole, covered });
    }
    Some(sent)
}
