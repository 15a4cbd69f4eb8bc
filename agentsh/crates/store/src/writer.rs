//! Writes queued events to disk: batches of rows, one transaction for each.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::chain::{self, Columns};
use super::paths::{self, Identity};
use super::{StoreError, database};
use crate::types::SessionId;

pub(crate) const INSERT: &str = "INSERT INTO events \
    (session, seq, time, type, body, prev, hash, server_id, tool_name, action, severity) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// How long a running session waits for another process's transaction, because failing ends it: a process that ends holds the
/// lock until a busy disk has synced.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// An event that waits for its place in the chain.
#[derive(Debug)]
pub(crate) struct Pending {
    pub time: Timestamp,
    pub body: String,
    /// Whether it is the last event of its session.
    pub ends: bool,
}

/// The one connection of a process that appends to the journal, and the end of its session's chain.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: Connection,
    path: PathBuf,
    database: Identity,
    /// Known from the first commit on: SQLite makes the file when it writes.
    wal: Option<Identity>,
    session: String,
    seq: u64,
    /// None: the session has no row yet.
    prev: Option<[u8; 32]>,
    synchronous_full: bool,
}

impl Writer {
    /// # Errors
    /// When nothing can be written there.
    pub(crate) fn open(state_dir: &std::path::Path, session: SessionId) -> Result<Self, StoreError> {
        let connection = database::open_for_events(state_dir)?;
        let waits = connection.busy_timeout(WRITE_TIMEOUT);
        waits.map_err(|error| StoreError::sql("setting a timeout", &error))?;
        let path = paths::database_file(state_dir);
        Ok(Self {
            connection,
            database: Identity::of(&path),
            path,
            wal: None,
            session: session.to_string(),
            seq: 0,
            prev: None,
            synchronous_full: false,
        })
    }

    /// Events of this session that are on disk.
    pub(crate) fn written_count(&self) -> u64 {
        self.seq
    }

    /// Appends all of `batch` or nothing of it. With `durable` it survives a loss of power as soon as this
    /// returns; without, the death of this process.
    pub(crate) fn append(&mut self, batch: &[Pending], durable: bool) -> Result<(), StoreError> {
        if durable && !self.synchronous_full {
            self.run("setting synchronous", "PRAGMA synchronous = FULL")?;
            self.synchronous_full = true;
        }
        if self.seq == 0 && !durable && paths::keeps_order(&self.path) {
            self.run("setting synchronous", "PRAGMA synchronous = OFF")?;
            self.begin()?;
            // Under the lock nobody else extends it. A log that is not empty may be restarted, which requires a sync.
            if paths::log_file(&self.path).metadata().is_ok_and(|log| log.len() > 0) {
                self.run("rolling back", "ROLLBACK")?;
                self.run("setting synchronous", "PRAGMA synchronous = NORMAL")?;
                self.begin()?;
            }
        } else {
            self.begin()?;
        }
        if let Err(error) = self.insert_and_commit(batch) {
            // The first error is the one to report; without COMMIT nothing of the batch stays in any case.
            let _ = self.run("rolling back", "ROLLBACK");
            return Err(error);
        }
        if !self.synchronous_full {
            self.run("setting synchronous", "PRAGMA synchronous = NORMAL")?;
        }
        self.check_files()
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.run("beginning a transaction", "BEGIN IMMEDIATE")
    }

    /// Everything survives a loss of power when this returns: it is in the database, or, where another process uses
    /// the database, in its write-ahead log. The log is left empty, not removed: for a new one the directory would
    /// have to be synced.
    pub(crate) fn close(self) -> Result<(), StoreError> {
        let closing = |error: rusqlite::Error| StoreError::sql("closing", &error);
        self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(closing)?;
        self.connection.busy_timeout(Duration::ZERO).map_err(closing)?;
        let emptied =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        if !matches!(emptied, Ok(0)) {
            let synced = File::open(paths::log_file(&self.path)).and_then(|log| log.sync_all());
            synced.map_err(|error| StoreError::Sql { doing: "closing", message: error.to_string() })?;
        }
        self.connection.close().map_err(|(_, error)| closing(error))
    }

    /// Makes the disk as small as 160 KiB.
    #[cfg(test)]
    pub(crate) fn make_disk_small(&mut self) -> Result<(), StoreError> {
        self.connection
            .query_row("PRAGMA max_page_count = 40", [], |_| Ok(()))
            .map_err(|error| StoreError::sql("limiting", &error))
    }

    fn run(&mut self, doing: &'static str, statement: &'static str) -> Result<(), StoreError> {
        self.connection.execute_batch(statement).map_err(|error| StoreError::sql(doing, &error))
    }

    fn insert_and_commit(&mut self, batch: &[Pending]) -> Result<(), StoreError> {
        let (seq, prev) = self.insert(batch)?;
        self.run("committing", "COMMIT")?;
        (self.seq, self.prev) = (seq, Some(prev));
        Ok(())
    }

    fn insert(&mut self, batch: &[Pending]) -> Result<(u64, [u8; 32]), StoreError> {
        let failed = |error: rusqlite::Error| StoreError::sql("appending events", &error);
        let mut prev = match self.prev {
            Some(prev) => prev,
            None => self.newest_hash()?,
        };
        let mut seq = self.seq;
        let mut ending = None;
        let mut statement = self.connection.prepare(INSERT).map_err(failed)?;
        for Pending { time, body, ends } in batch {
            seq += 1;
            let time = super::record::text_of(*time);
            let hash = chain::hash(&prev, &self.session, seq, &time, body);
            if *ends {
                ending = Some((seq, hash));
            }
            insert_row(&mut statement, &self.session, seq, &time, body, &prev, &hash)?;
            prev = hash;
        }
        drop(statement);
        let newest = self.connection.last_insert_rowid();
        let keep =
            "INSERT INTO newest (one, id) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET id = excluded.id";
        self.connection.execute(keep, [newest]).map_err(failed)?;
        if let Some((seq, hash)) = ending {
            let end = "INSERT INTO endings (session, seq, hash) VALUES ($1, $2, $3) \
                       ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, hash = excluded.hash";
            self.connection
                .execute(end, params![self.session, as_i64(seq), hash])
                .map_err(|error| StoreError::sql("recording the end of the session", &error))?;
        }
        Ok((seq, prev))
    }

    /// The hash that the session links to: read inside the transaction that writes its first row, so that it is exactly that
    /// of the row before.
    fn newest_hash(&mut self) -> Result<[u8; 32], StoreError> {
        let newest = "SELECT hash FROM events ORDER BY id DESC LIMIT 1";
        let hash: Option<Vec<u8>> = self
            .connection
            .query_row(newest, [], |row| row.get(0))
            .optional()
            .map_err(|error| StoreError::sql("reading the newest event", &error))?;
        let Some(hash) = hash else { return Ok(chain::ZERO) };
        hash.try_into()
            .map_err(|_| StoreError::Damaged { message: "the newest event has no valid hash".to_owned() })
    }

    fn check_files(&mut self) -> Result<(), StoreError> {
        let wal = Identity::of(&paths::log_file(&self.path));
        let known = self.wal.get_or_insert_with(|| wal.clone());
        if *known != wal || self.database != Identity::of(&self.path) || !wal.exists() {
            return Err(StoreError::Moved { path: self.path.clone() });
        }
        Ok(())
    }
}

pub(crate) fn insert_row(
    statement: &mut Statement<'_>,
    session: &str,
    seq: u64,
    time: &str,
    body: &str,
    prev: &[u8; 32],
    hash: &[u8; 32],
) -> Result<(), StoreError> {
    let columns = Columns::of(body)
        .map_err(|error| StoreError::Sql { doing: "encoding an event", message: error.to_string() })?;
    let values = params![
        session,
        as_i64(seq),
        time,
        columns.kind,
        body,
        prev,
        hash,
        columns.server_id,
        columns.tool_name,
        columns.action,
        columns.severity,
    ];
    statement.execute(values).map(|_| ()).map_err(|error| StoreError::sql("appending events", &error))
}

/// SQLite has signed integers only; a session never reaches 2^63 events.
fn as_i64(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
