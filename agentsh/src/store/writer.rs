//! From the queue to the disk: rows in batches, one transaction for each batch.

use std::path::PathBuf;
use std::sync::LazyLock;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::chain::{self, Columns};
use super::place::{self, Identity};
use super::{StoreError, database};
use crate::types::SessionId;

/// Rows in one INSERT: sqlx costs about as much for a statement as SQLite does for fifty rows. What is left over
/// goes in smaller statements, each at most once, and only so many texts are ever prepared.
const ROWS_IN_STATEMENT: [usize; 7] = [64, 32, 16, 8, 4, 2, 1];

const COLUMNS: usize = 11;

static INSERTS: LazyLock<[(usize, String); ROWS_IN_STATEMENT.len()]> =
    LazyLock::new(|| ROWS_IN_STATEMENT.map(|rows| (rows, insert_statement(rows))));

/// An event that waits for its place in the chain.
#[derive(Debug)]
pub(crate) struct Pending {
    pub time: Timestamp,
    pub body: String,
    /// It is the end of its session.
    pub ends: bool,
}

/// The one connection of a process that appends to the journal, and the end of its session's chain.
#[derive(Debug)]
pub(crate) struct Writer {
    connection: SqliteConnection,
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

struct Link {
    seq: u64,
    time: String,
    body: String,
    prev: [u8; 32],
    hash: [u8; 32],
}

impl Writer {
    pub(crate) async fn open(state_dir: &std::path::Path, session: SessionId) -> Result<Self, StoreError> {
        let connection = database::open_writer(state_dir).await?;
        let path = place::database_file(state_dir);
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

    /// Appends all of `batch` or nothing of it. With `durable` it survives a loss of power as soon as this
    /// returns; without, the death of this process.
    pub(crate) async fn append(&mut self, batch: Vec<Pending>, durable: bool) -> Result<(), StoreError> {
        if durable && !self.synchronous_full {
            self.run("setting synchronous", "PRAGMA synchronous = FULL").await?;
            self.synchronous_full = true;
        }
        self.run("beginning a transaction", "BEGIN IMMEDIATE").await?;
        if let Err(error) = self.insert_and_commit(batch).await {
            // The first error is the one to report; without COMMIT nothing of the batch stays in any case.
            let _ = self.run("rolling back", "ROLLBACK").await;
            return Err(error);
        }
        self.check_files()
    }

    pub(crate) async fn close(self) -> Result<(), StoreError> {
        use sqlx::Connection;
        self.connection.close().await.map_err(|error| StoreError::sql("closing", &error))
    }

    /// Makes the disk as small as 160 KiB.
    #[cfg(test)]
    pub(crate) async fn make_disk_small(&mut self) -> Result<(), StoreError> {
        self.run("limiting", "PRAGMA max_page_count = 40").await
    }

    async fn run(&mut self, doing: &'static str, statement: &'static str) -> Result<(), StoreError> {
        sqlx::query(statement)
            .execute(&mut self.connection)
            .await
            .map(|_| ())
            .map_err(|error| StoreError::sql(doing, &error))
    }

    async fn insert_and_commit(&mut self, batch: Vec<Pending>) -> Result<(), StoreError> {
        let (seq, prev) = self.insert(batch).await?;
        self.run("committing", "COMMIT").await?;
        (self.seq, self.prev) = (seq, Some(prev));
        Ok(())
    }

    async fn insert(&mut self, batch: Vec<Pending>) -> Result<(u64, [u8; 32]), StoreError> {
        let mut prev = match self.prev {
            Some(prev) => prev,
            None => self.newest_hash().await?,
        };
        let mut seq = self.seq;
        let mut ending = None;
        let mut rows = Vec::with_capacity(batch.len().min(ROWS_IN_STATEMENT[0]));
        for Pending { time, body, ends } in batch {
            seq += 1;
            let time = super::record::text_of(time);
            let hash = chain::hash(&prev, &self.session, seq, &time, &body);
            if ends {
                ending = Some((seq, hash));
            }
            rows.push(Link { seq, time, body, prev, hash });
            prev = hash;
            if rows.len() == ROWS_IN_STATEMENT[0] {
                insert_rows(&mut self.connection, &self.session, &mut rows).await?;
            }
        }
        insert_rows(&mut self.connection, &self.session, &mut rows).await?;
        if let Some((seq, hash)) = ending {
            sqlx::query("INSERT OR REPLACE INTO endings (session, seq, hash) VALUES (?, ?, ?)")
                .bind(self.session.clone())
                .bind(as_i64(seq))
                .bind(hash.to_vec())
                .execute(&mut self.connection)
                .await
                .map_err(|error| StoreError::sql("recording the end of the session", &error))?;
        }
        Ok((seq, prev))
    }

    /// What the session links to: read inside the transaction that writes its first row, so that it is exactly
    /// the row before.
    async fn newest_hash(&mut self) -> Result<[u8; 32], StoreError> {
        let row = sqlx::query("SELECT hash FROM events ORDER BY id DESC LIMIT 1")
            .fetch_optional(&mut self.connection)
            .await
            .map_err(|error| StoreError::sql("reading the newest event", &error))?;
        let Some(row) = row else { return Ok(chain::ZERO) };
        let hash: Vec<u8> =
            row.try_get(0).map_err(|error| StoreError::sql("reading the newest event", &error))?;
        hash.try_into()
            .map_err(|_| StoreError::Damaged { message: "the newest event has no whole hash".to_owned() })
    }

    fn check_files(&mut self) -> Result<(), StoreError> {
        let mut wal_path = self.path.clone().into_os_string();
        wal_path.push("-wal");
        let wal = Identity::of(wal_path.as_ref());
        let known = self.wal.get_or_insert_with(|| wal.clone());
        if *known != wal || self.database != Identity::of(&self.path) || !wal.exists() {
            return Err(StoreError::Moved { path: self.path.clone() });
        }
        Ok(())
    }
}

/// Empties `rows` into the database.
async fn insert_rows(
    connection: &mut SqliteConnection,
    session: &str,
    rows: &mut Vec<Link>,
) -> Result<(), StoreError> {
    for (size, statement) in INSERTS.iter() {
        while rows.len() >= *size {
            insert_some(connection, session, statement, rows.drain(..*size)).await?;
        }
    }
    Ok(())
}

/// As many rows as the statement has room for.
async fn insert_some(
    connection: &mut SqliteConnection,
    session: &str,
    statement: &'static str,
    rows: std::vec::Drain<'_, Link>,
) -> Result<(), StoreError> {
    let mut query = sqlx::query(statement);
    for row in rows {
        let columns = Columns::of(&row.body)
            .map_err(|error| StoreError::Sql { doing: "encoding an event", message: error.to_string() })?;
        let owned = |field: Option<std::borrow::Cow<'_, str>>| field.map(std::borrow::Cow::into_owned);
        query = query
            .bind(session.to_owned())
            .bind(as_i64(row.seq))
            .bind(row.time)
            .bind(columns.kind.into_owned())
            .bind(row.prev.to_vec())
            .bind(row.hash.to_vec())
            .bind(owned(columns.server_id))
            .bind(owned(columns.tool_name))
            .bind(owned(columns.action))
            .bind(owned(columns.severity))
            .bind(row.body);
    }
    query.execute(connection).await.map_err(|error| StoreError::sql("appending events", &error))?;
    Ok(())
}

fn insert_statement(rows: usize) -> String {
    let mut statement = String::with_capacity(160 + rows * (2 * COLUMNS + 2));
    statement.push_str(
        "INSERT INTO events (session, seq, time, type, prev, hash, server_id, tool_name, action, severity, body) VALUES ",
    );
    for row in 0..rows {
        statement.push_str(if row == 0 { "(" } else { ",(" });
        statement.push_str("?,".repeat(COLUMNS - 1).as_str());
        statement.push_str("?)");
    }
    statement
}

/// SQLite has signed integers only; a session never reaches 2^63 events.
fn as_i64(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
