//! A batch of a host: a header line with its position, then lines of the journal, compressed with gzip.

use std::io::{Read, Write};

use agentsh_store::raw::{MAX_BODY, Raw};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::keys;

/// Rows of one batch, at most.
pub const MAX_ROWS: u32 = 1000;
/// Bodies of one batch together, in bytes, when a host makes one; the last row may go beyond.
pub const USUAL_BYTES: usize = 1 << 20;
/// Longest batch as it is sent, in bytes.
pub const MAX_SENT: usize = 4 << 20;
/// Longest batch when it is unpacked, in bytes.
pub const MAX_UNPACKED: usize = 16 << 20;

/// Longest name of a session and longest time, in bytes.
const MAX_WORD: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// 0: before the first row.
    pub id: i64,
    /// The hash of the row there. None: the host has no such row.
    pub hash: Option<[u8; 32]>,
}

/// Rows after a place in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub after: JournalPosition,
    pub rows: Vec<Raw>,
}

/// Why a batch cannot be read. Nothing of it counts.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("the batch is not gzip, or is truncated")]
    NotGzip,
    #[error("the batch has more than {MAX_UNPACKED} bytes when it is unpacked")]
    TooLong,
    #[error("line {0} of the batch is not valid: {1}")]
    Line(usize, &'static str),
}

impl Batch {
    /// # Errors
    /// A row has a line break in its body, which no journal writes.
    pub fn to_gzip(&self) -> Result<Vec<u8>, Unreadable> {
        let mut text = String::new();
        let hash = self.after.hash.map_or_else(|| "-".to_owned(), |hash| agentsh_base::hex(&hash));
        text.push_str(&format!("{}\t{hash}\n", self.after.id));
        for (number, row) in self.rows.iter().enumerate() {
            let words = [&row.session, &row.time, &row.body];
            if words.iter().any(|word| word.contains(['\n', '\r', '\t'])) {
                return Err(Unreadable::Line(number + 2, "a row of the journal contains a line break"));
            }
            let hash = agentsh_base::hex(&row.hash);
            text.push_str(&format!(
                "{}\t{}\t{}\t{}\t{hash}\t{}\n",
                row.id, row.session, row.seq, row.time, row.body
            ));
        }
        pack(text.as_bytes())
    }

    /// # Errors
    /// Like [`Unreadable`] says.
    pub fn unpacked(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = unpack(bytes)?;
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let after = parse_position(head).ok_or(Unreadable::Line(1, "it is not a position"))?;
        let mut rows = Vec::new();
        for (line, number) in lines.zip(2..) {
            if rows.len() >= MAX_ROWS as usize {
                return Err(Unreadable::Line(number, "there are too many rows"));
            }
            rows.push(row(line).map_err(|why| Unreadable::Line(number, why))?);
        }
        let ids = rows.iter().map(|row| row.id);
        if ids.zip(after.id + 1..).any(|(id, expected)| id != expected) {
            return Err(Unreadable::Line(1, "the rows are not consecutive"));
        }
        Ok(Self { after, rows })
    }
}

fn parse_position(line: &str) -> Option<JournalPosition> {
    let (id, hash) = line.split_once('\t')?;
    let id: i64 = id.parse().ok().filter(|id| (0..i64::MAX / 2).contains(id))?;
    let hash = if hash == "-" { None } else { Some(keys::hash(hash)?) };
    Some(JournalPosition { id, hash })
}

fn row(line: &str) -> Result<Raw, &'static str> {
    let mut words = line.splitn(6, '\t');
    let mut next = || words.next().ok_or("a word is missing");
    let (id, session, seq, time, hash, body) = (next()?, next()?, next()?, next()?, next()?, next()?);
    if session.len() > MAX_WORD || time.len() > MAX_WORD || body.len() > MAX_BODY {
        return Err("it is too long");
    }
    // Only one spelling is accepted: another one would be another session.
    let known: uuid::Uuid = session.parse().map_err(|_| "that is not a session")?;
    if known.to_string() != session {
        return Err("that is not a session");
    }
    time.parse::<jiff::Timestamp>().map_err(|_| "that is not a time")?;
    Ok(Raw {
        id: id.parse().map_err(|_| "that is not a position")?,
        session: session.to_owned(),
        seq: seq.parse().ok().filter(|seq| (1..1 << 53).contains(seq)).ok_or("that is not a position")?,
        time: time.to_owned(),
        body: body.to_owned(),
        hash: keys::hash(hash).ok_or("that is not a hash")?,
    })
}

/// # Errors
/// None, as long as there is enough memory.
pub fn pack(text: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).and_then(|()| encoder.finish()).map_err(|_| Unreadable::NotGzip)
}

/// # Errors
/// The bytes are not gzipped text, or the text is too long.
pub fn unpack(bytes: &[u8]) -> Result<String, Unreadable> {
    let mut text = Vec::new();
    let mut rest = GzDecoder::new(bytes).take(MAX_UNPACKED as u64 + 1);
    rest.read_to_end(&mut text).map_err(|_| Unreadable::NotGzip)?;
    if text.len() > MAX_UNPACKED {
        return Err(Unreadable::TooLong);
    }
    String::from_utf8(text).map_err(|_| Unreadable::Line(1, "it is not text"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn one(id: i64) -> Raw {
        Raw {
            id,
            session: "01980000-0000-7000-8000-000000000001".to_owned(),
            seq: 3,
            time: "2026-01-02T03:04:05.000006Z".to_owned(),
            body: r#"{"type":"x","text":"a\tb\u0000é"}"#.to_owned(),
            hash: [7; 32],
        }
    }

    #[test]
    fn batch_round_trips() {
        let after = JournalPosition { id: 4, hash: Some([1; 32]) };
        let batch = Batch { after, rows: vec![one(5), one(6)] };
        assert_eq!(Batch::unpacked(&batch.to_gzip().unwrap()).unwrap(), batch);
        let none = Batch { after: JournalPosition { id: 4, hash: None }, rows: vec![] };
        assert_eq!(Batch::unpacked(&none.to_gzip().unwrap()).unwrap(), none);
    }

    #[test]
    fn malformed_batch_is_refused() {
        let text = |text: &str| Batch::unpacked(&pack(text.as_bytes()).unwrap());
        let whole = Batch { after: JournalPosition { id: 4, hash: Some([1; 32]) }, rows: vec![one(5)] };
        let packed = whole.to_gzip().unwrap();
        assert!(matches!(Batch::unpacked(&packed[..packed.len() - 9]), Err(Unreadable::NotGzip)));
        assert!(matches!(Batch::unpacked(b"plain"), Err(Unreadable::NotGzip)));
        let bomb = pack(&vec![b'a'; MAX_UNPACKED + 1]).unwrap();
        assert!(bomb.len() < 1 << 20 && matches!(Batch::unpacked(&bomb), Err(Unreadable::TooLong)));
        for wrong in ["", "x\t-\n", "-1\t-\n", "0\tzz\n", "0\t-\n1\tx\n", "9223372036854775807\t-\n"] {
            assert!(matches!(text(wrong), Err(Unreadable::Line(..))), "{wrong:?}");
        }
        let gap = Batch { rows: vec![one(6)], ..whole };
        assert!(matches!(Batch::unpacked(&gap.to_gzip().unwrap()), Err(Unreadable::Line(..))));
    }
}
