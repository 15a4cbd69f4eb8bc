//! Connections and the schema.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};

use super::error::{describe, is_busy, is_full};
use super::{StoreError, place};

/// The `user_version` that stands at the end of [`SCHEMA`]. Raise both with every change, and migrate from each
/// older one.
const SCHEMA_VERSION: i64 = 1;

/// How long one process waits for another one's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// `body` is the event as JSON and the only thing the chain covers beside `session`, `seq` and `time`; the columns
/// after `hash` are copies of it for the indices, and `events verify` checks that they agree.
const SCHEMA: &str = "
CREATE TABLE events (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  session   TEXT NOT NULL,
  seq       INTEGER NOT NULL,
  time      TEXT NOT NULL,
  type      TEXT NOT NULL,
  body      TEXT NOT NULL,
  prev      BLOB NOT NULL,
  hash      BLOB NOT NULL,
  server_id TEXT,
  tool_name TEXT,
  action    TEXT,
  severity  TEXT
);
CREATE UNIQUE INDEX events_chain ON events (session, seq);
CREATE INDEX events_type ON events (type, server_id, tool_name, action);
CREATE INDEX events_server ON events (server_id, tool_name) WHERE server_id IS NOT NULL;
CREATE INDEX events_action ON events (action) WHERE action IS NOT NULL;
CREATE TRIGGER events_no_update BEFORE UPDATE ON events
  BEGIN SELECT RAISE(ABORT, 'the event journal is append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
  BEGIN SELECT RAISE(ABORT, 'the event journal is append-only'); END;

CREATE TABLE endings (
  session TEXT PRIMARY KEY,
  seq     INTEGER NOT NULL,
  hash    BLOB NOT NULL
);

CREATE TABLE pins (
  server_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  program    TEXT NOT NULL,
  identity   TEXT NOT NULL,
  digest     TEXT NOT NULL,
  manifest   TEXT NOT NULL,
  trusted_at TEXT NOT NULL,
  trusted_by TEXT NOT NULL,
  PRIMARY KEY (server_id, scope)
);
CREATE TABLE candidates (
  server_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  program    TEXT NOT NULL,
  identity   TEXT NOT NULL,
  digest     TEXT NOT NULL,
  manifest   TEXT NOT NULL,
  seen_at    TEXT NOT NULL,
  PRIMARY KEY (server_id, scope)
);
CREATE TABLE blobs (
  hash    TEXT PRIMARY KEY,
  content BLOB NOT NULL
);

CREATE TABLE digest_cache (
  dev      INTEGER NOT NULL,
  ino      INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  ctime_ns INTEGER NOT NULL,
  sha256   BLOB NOT NULL
);
CREATE UNIQUE INDEX digest_cache_file ON digest_cache (dev, ino);

PRAGMA user_version = 1;
";

/// A connection that may write; makes directory, file and schema where they are missing.
pub(crate) async fn open_writer(state_dir: &Path) -> Result<SqliteConnection, StoreError> {
    place::prepare(state_dir)?;
    let path = place::database_file(state_dir);
    let mut connection = connect(&path, options(&path)).await?;
    if schema_version(&mut connection, &path).await? == 0 {
        create_schema(&mut connection, &path).await?;
    }
    Ok(connection)
}

/// A connection that cannot write. None when nothing was ever recorded.
pub(crate) async fn open_reader(state_dir: &Path) -> Result<Option<SqliteConnection>, StoreError> {
    let path = place::database_file(state_dir);
    match path.metadata() {
        Ok(found) if found.len() > 0 => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::Open { path, message: error.to_string() }),
    }
    let mut connection = connect(&path, options(&path).read_only(true)).await?;
    let version = schema_version(&mut connection, &path).await?;
    Ok((version != 0).then_some(connection))
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .foreign_keys(false)
        .pragma("synchronous", "NORMAL")
        .disable_statement_logging()
}

async fn connect(path: &Path, options: SqliteConnectOptions) -> Result<SqliteConnection, StoreError> {
    SqliteConnection::connect_with(&options).await.map_err(|error| open_error(path, &error))
}

async fn schema_version(connection: &mut SqliteConnection, path: &Path) -> Result<i64, StoreError> {
    let row = sqlx::query("PRAGMA user_version")
        .fetch_one(connection)
        .await
        .map_err(|error| open_error(path, &error))?;
    let found: i64 = row.try_get(0).map_err(|error| open_error(path, &error))?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    Ok(found)
}

/// Two processes may get here at once: the second finds the first one's schema inside its own transaction.
async fn create_schema(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    switch_to_wal(connection).await.map_err(|error| open_error(path, &error))?;
    execute(connection, "BEGIN IMMEDIATE").await.map_err(|error| open_error(path, &error))?;
    if schema_version(connection, path).await? == 0 {
        execute(connection, SCHEMA).await.map_err(|error| open_error(path, &error))?;
    }
    execute(connection, "COMMIT").await.map_err(|error| open_error(path, &error))
}

/// SQLite does not wait for locks while it changes the journal mode, so this does.
async fn switch_to_wal(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut waited = Duration::ZERO;
    loop {
        match execute(connection, "PRAGMA journal_mode = WAL").await {
            Err(error) if is_busy(&error) && waited < BUSY_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                waited += Duration::from_millis(10);
            }
            other => return other,
        }
    }
}

/// Runs one or more statements without parameters. Not `raw_sql`: its future cannot be sent between threads.
pub(crate) async fn execute(
    connection: &mut SqliteConnection,
    script: &'static str,
) -> Result<(), sqlx::Error> {
    sqlx::query(script).execute(connection).await.map(|_| ())
}

fn open_error(path: &Path, error: &sqlx::Error) -> StoreError {
    match StoreError::sql("opening", error) {
        StoreError::Damaged { message } => {
            StoreError::Damaged { message: format!("{}: {message}", path.display()) }
        }
        _ if is_full(error) && place::has_no_room(path) => {
            let message =
                "no space is left on its disk; free some, or set XDG_STATE_HOME to another directory";
            StoreError::Open { path: path.to_owned(), message: message.to_owned() }
        }
        _ => StoreError::Open { path: path.to_owned(), message: describe(error) },
    }
}
