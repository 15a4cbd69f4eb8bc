//! Rows of the journal as stored, for copies that have to be verified.

use std::collections::BTreeMap;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Deserialize;

use super::chain;
use super::database::{self, Offloaded};
use super::text_limits::MAX_BODY_BYTES;
use super::writer::{self, INSERT};
use super::{Event, Reader, StoreError};
use crate::types::SessionId;

/// Rows of a copy are at most this long, in bytes of the body.
pub const MAX_BODY: usize = MAX_BODY_BYTES;

/// The previous hash of the first row of a journal.
pub const FIRST_LINK: [u8; 32] = chain::ZERO;

/// One row, with everything that the chain covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// Place in the whole journal, from 1, without gaps.
    pub id: i64,
    pub session: String,
    /// Place in the session, from 1.
    pub seq: u64,
    pub time: String,
    /// The event as JSON, as it was written.
    pub body: String,
    pub hash: [u8; 32],
}

/// The fields of a body that queries filter on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct IndexedFields {
    #[serde(rename = "type")]
    pub kind: String,
    pub server_id: Option<String>,
    pub tool_name: Option<String>,
    pub action: Option<String>,
    pub severity: Option<String>,
}

impl Raw {
    /// The hash that it must have after a row with the hash `prev`.
    #[must_use]
    pub fn hash_behind(&self, prev: &[u8; 32]) -> [u8; 32] {
        chain::hash(prev, &self.session, self.seq, &self.time, &self.body)
    }

    /// None: this version does not know it.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        serde_json::from_str(&self.body).ok()
    }

    /// None: the body is not an event.
    #[must_use]
    pub fn indexed_fields(&self) -> Option<IndexedFields> {
        serde_json::from_str(&self.body).ok()
    }
}

impl Reader {
    /// The rows after the place `after`: at most `rows`, and no more once their bodies have `bytes` together.
    ///
    /// # Errors
    /// When the database cannot be read, or holds rows that no journal writes.
    pub async fn raw_after(&mut self, after: i64, rows: u32, bytes: usize) -> Result<Vec<Raw>, StoreError> {
        self.ask(move |connection| {
            let sql = |error: rusqlite::Error| StoreError::sql("reading rows", &error);
            let text =
                "SELECT id, session, seq, time, body, hash FROM events WHERE id > $1 ORDER BY id LIMIT $2";
            let mut statement = connection.prepare_cached(text).map_err(sql)?;
            let (mut found, mut taken) = (Vec::new(), 0_usize);
            for row in statement.query_map(params![after, rows], read).map_err(sql)? {
                let row = row.map_err(sql)?;
                taken = taken.saturating_add(row.body.len());
                found.push(row);
                if taken >= bytes {
                    break;
                }
            }
            Ok(found)
        })
        .await
    }

    /// What the first row of each session was chained to.
    ///
    /// # Errors
    /// When the database cannot be read, or holds rows that no journal writes.
    pub async fn first_links(&mut self) -> Result<BTreeMap<String, [u8; 32]>, StoreError> {
        self.ask(move |connection| {
            let sql = |error: rusqlite::Error| StoreError::sql("reading rows", &error);
            let text = "SELECT session, prev FROM events WHERE seq = 1";
            let mut statement = connection.prepare_cached(text).map_err(sql)?;
            let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(sql)?;
            found.collect::<Result<_, _>>().map_err(sql)
        })
        .await
    }

    /// The rows of a session behind its row `after`, at most `rows`.
    ///
    /// # Errors
    /// When the database cannot be read, or holds rows that no journal writes.
    pub async fn raw_of(
        &mut self,
        session: SessionId,
        after: u64,
        rows: u32,
    ) -> Result<Vec<Raw>, StoreError> {
        self.ask(move |connection| {
            let sql = |error: rusqlite::Error| StoreError::sql("reading rows", &error);
            let text = "SELECT id, session, seq, time, body, hash FROM events \
                 WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3";
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(text).map_err(sql)?;
            let found = statement.query_map(params![session.to_string(), after, rows], read).map_err(sql)?;
            found.map(|row| row.map_err(sql)).collect()
        })
        .await
    }

    /// The hash of the row at a place; None where there is none.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hash_at(&mut self, id: i64) -> Result<Option<[u8; 32]>, StoreError> {
        self.ask(move |connection| {
            let text = "SELECT id, session, seq, time, body, hash FROM events WHERE id = $1";
            let found = connection.query_row(text, [id], read).optional();
            Ok(found.map_err(|error| StoreError::sql("reading a row", &error))?.map(|row| row.hash))
        })
        .await
    }

    /// An in-memory journal with these rows, which may come from many journals, so that all queries work on them.
    /// Their positions in it are their order; the chain is not that of a whole journal.
    ///
    /// # Errors
    /// When two rows have the same place in one session.
    pub fn from_rows(rows: &[Raw]) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let opened = Connection::open_with_flags(":memory:", flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let mut connection = opened.map_err(|error| StoreError::sql("opening a copy", &error))?;
        database::migrate(&mut connection, std::path::Path::new(":memory:"))?;
        fill(&mut connection, rows)?;
        Ok(Self::from_connection(Offloaded::new(connection)))
    }
}

fn fill(connection: &mut Connection, rows: &[Raw]) -> Result<(), StoreError> {
    let sql = |error: rusqlite::Error| StoreError::sql("copying rows", &error);
    let transaction = connection.transaction().map_err(sql)?;
    {
        let mut statement = transaction.prepare(INSERT).map_err(sql)?;
        let mut prev = FIRST_LINK;
        for row in rows {
            writer::insert_row(
                &mut statement,
                &row.session,
                row.seq,
                &row.time,
                &row.body,
                &prev,
                &row.hash,
            )?;
            prev = row.hash;
        }
    }
    transaction.commit().map_err(sql)
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Raw> {
    let hash: Vec<u8> = row.get(5)?;
    let damaged = |what: &str| {
        rusqlite::Error::FromSqlConversionFailure(5, rusqlite::types::Type::Blob, what.to_owned().into())
    };
    Ok(Raw {
        id: row.get(0)?,
        session: row.get(1)?,
        seq: row.get::<_, i64>(2)?.try_into().map_err(|_| damaged("a negative position"))?,
        time: row.get(3)?,
        body: row.get(4)?,
        hash: hash.try_into().map_err(|_| damaged("an incomplete hash"))?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::EventFilter;
    use crate::testing::{events, one_session, session, write};

    #[tokio::test]
    async fn a_copy_answers_as_the_journal_does_and_its_chain_can_be_checked() {
        let dir = one_session().await;
        write(dir.path(), session(2), events()).await;
        let mut journal = Reader::open(dir.path()).await.unwrap().unwrap();
        let first = journal.raw_after(0, 5, usize::MAX).await.unwrap();
        assert_eq!((first.len(), first[4].id), (5, 5));
        assert_eq!(journal.raw_after(5, 100, 1).await.unwrap().len(), 1);
        let rows = journal.raw_after(0, 1000, usize::MAX).await.unwrap();
        let mut prev = FIRST_LINK;
        for row in &rows {
            assert_eq!(row.hash_behind(&prev), row.hash);
            assert!(row.indexed_fields().is_some());
            prev = row.hash;
        }
        assert_eq!(journal.hash_at(3).await.unwrap(), Some(rows[2].hash));
        let mut copy = Reader::from_rows(&rows).unwrap();
        let all = EventFilter::default();
        assert_eq!(copy.calls(&all).await.unwrap(), journal.calls(&all).await.unwrap());
        assert_eq!(copy.summary(session(2)).await.unwrap(), journal.summary(session(2)).await.unwrap());
    }
}
