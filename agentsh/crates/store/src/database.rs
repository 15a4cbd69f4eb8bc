//! Connections and the schema.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::error::{describe, is_busy, is_full};
use super::{StoreError, paths};

/// The `user_version` of a database that went through all of [`SCHEMAS`].
const SCHEMA_VERSION: i64 = 4;

/// How long one process waits for another one's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The migrations from each version to the next, beginning with an empty file.
const SCHEMAS: [&str; 4] = [SCHEMA_1, SCHEMA_2, SCHEMA_3, SCHEMA_4];

/// `body` is the event as JSON and the only thing the chain covers next to `session`, `seq` and `time`; the columns
/// after `hash` are copies of it for the indices, and `events verify` checks that they agree.
const SCHEMA_1: &str = "
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

/// Columns that queries filter on and that version 1 did not have. Virtual: an old journal has them at once, what an
/// older agentsh that still runs writes has them too, and they cannot disagree with the body (decision 56).
const EXTRACTED: [(&str, &str); 3] = [
    ("jsonrpc_id", "CASE WHEN json_valid(body) THEN body -> '$.jsonrpc_id' END"),
    ("verb", "CASE WHEN type = 'session_started' AND json_valid(body) THEN body ->> '$.verb' END"),
    ("project", "CASE WHEN type = 'session_started' AND json_valid(body) THEN body ->> '$.project' END"),
];

/// `newest` holds the highest id that was ever given out: rows that are gone from the end are missed.
const SCHEMA_2: &str = "
CREATE TABLE newest (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  id  INTEGER NOT NULL
);
INSERT INTO newest (one, id) SELECT 1, seq FROM sqlite_sequence WHERE name = 'events';

PRAGMA user_version = 2;
";

/// The trusted interfaces of servers, and what they offered instead.
const SCHEMA_3: &str = "
CREATE TABLE interface_pins (
  server_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  basis      TEXT NOT NULL,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  hash       TEXT NOT NULL,
  definition TEXT,
  at         TEXT NOT NULL,
  trusted_by TEXT NOT NULL,
  PRIMARY KEY (server_id, scope, kind, name)
);
CREATE TABLE interface_changes (
  server_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  basis      TEXT NOT NULL,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  hash       TEXT NOT NULL,
  definition TEXT,
  at         TEXT NOT NULL,
  trusted_by TEXT NOT NULL,
  PRIMARY KEY (server_id, scope, kind, name)
);

PRAGMA user_version = 3;
";

/// Servers offer more to clients that can do more: which client it was is part of what names an entry. An
/// older agentsh that still runs does not say it.
const SCHEMA_4: &str = "
ALTER TABLE interface_pins RENAME TO interface_pins_3;
CREATE TABLE interface_pins (
  server_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  basis      TEXT NOT NULL,
  audience   TEXT NOT NULL DEFAULT '',
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  hash       TEXT NOT NULL,
  definition TEXT,
  at         TEXT NOT NULL,
  trusted_by TEXT NOT NULL,
  PRIMARY KEY (server_id, scope, kind, name, audience)
);
INSERT INTO interface_pins
  SELECT server_id, scope, basis, '', kind, name, hash, definition, at, trusted_by FROM interface_pins_3;
DROP TABLE interface_pins_3;
ALTER TABLE interface_changes RENAME TO interface_changes_3;
CREATE TABLE interface_changes (
  server_id  TEXT NOT NULL,
  scope      TEXT NOT NULL,
  basis      TEXT NOT NULL,
  audience   TEXT NOT NULL DEFAULT '',
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  hash       TEXT NOT NULL,
  definition TEXT,
  at         TEXT NOT NULL,
  trusted_by TEXT NOT NULL,
  PRIMARY KEY (server_id, scope, kind, name, audience)
);
INSERT INTO interface_changes
  SELECT server_id, scope, basis, '', kind, name, hash, definition, at, trusted_by FROM interface_changes_3;
DROP TABLE interface_changes_3;

PRAGMA user_version = 4;
";

/// A connection that may write; makes directory, file and schema where they are missing, and brings an older schema up
/// to date.
pub(crate) fn open_writer(state_dir: &Path) -> Result<Connection, StoreError> {
    paths::prepare(state_dir)?;
    let path = paths::database_file(state_dir);
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if schema_version(&connection, &path)? < SCHEMA_VERSION {
        migrate(&mut connection, &path)?;
    }
    Ok(connection)
}

/// A connection that cannot write. None when nothing was ever recorded.
pub(crate) fn open_reader(state_dir: &Path) -> Result<Option<Connection>, StoreError> {
    let path = paths::database_file(state_dir);
    match path.metadata() {
        Ok(found) if found.len() > 0 => {}
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::Open { path, message: error.to_string() }),
    }
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    match schema_version(&connection, &path)? {
        0 => return Ok(None),
        1 => view_as_current(&connection).map_err(|error| open_error(&path, &error))?,
        _ => {}
    }
    Ok(Some(connection))
}

/// Like [`open_writer`], for events: makes a write without effect, so that a read-only store is noticed before anything runs.
pub(crate) fn open_for_events(state_dir: &Path) -> Result<Connection, StoreError> {
    paths::prepare(state_dir)?;
    let path = paths::database_file(state_dir);
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    begin_first(&connection, &path)?;
    if schema_version(&connection, &path)? < SCHEMA_VERSION {
        connection.execute_batch("ROLLBACK").map_err(|error| open_error(&path, &error))?;
        migrate(&mut connection, &path)?;
        begin_first(&connection, &path)?;
    }
    let write =
        "INSERT INTO newest (one, id) VALUES (1, 0) ON CONFLICT (one) DO UPDATE SET id = newest.id; COMMIT";
    connection.execute_batch(write).map_err(|error| first_error(&path, &error))?;
    Ok(connection)
}

fn begin_first(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| first_error(path, &error))
}

fn first_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    match StoreError::sql("writing for the first time", error) {
        StoreError::Sql { doing, message } if is_busy(error) => {
            let message = format!("{message}: another program has it locked; end that program first");
            StoreError::Sql { doing, message }
        }
        StoreError::Damaged { .. } => open_error(path, error),
        other => other,
    }
}

pub(crate) fn connect(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let open = || {
        let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.execute_batch("PRAGMA synchronous = NORMAL")?;
        Ok(connection)
    };
    open().map_err(|error| open_error(path, &error))
}

fn schema_version(connection: &Connection, path: &Path) -> Result<i64, StoreError> {
    let found: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|error| open_error(path, &error))?;
    if found > SCHEMA_VERSION {
        return Err(StoreError::NewerSchema { path: path.to_owned(), found, known: SCHEMA_VERSION });
    }
    Ok(found)
}

/// Two processes may get here at once: the second finds the first one's schema inside its own transaction.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| open_error(path, &error);
    switch_to_wal(connection).map_err(failed)?;
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(failed)?;
    let found = usize::try_from(schema_version(&transaction, path)?).unwrap_or_default();
    for (step, schema) in SCHEMAS.iter().enumerate().skip(found) {
        if step == 1 {
            for (name, value) in EXTRACTED {
                let add = format!(
                    "ALTER TABLE events ADD COLUMN {name} TEXT GENERATED ALWAYS AS ({value}) VIRTUAL"
                );
                transaction.execute_batch(&add).map_err(failed)?;
            }
        }
        transaction.execute_batch(schema).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    // SQLite is built without syncs of the directory (`.cargo/config.toml`): the names of the new files are made safe here.
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let synced = directory.map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all());
    synced.map_err(|error| StoreError::Sql { doing: "syncing the directory", message: error.to_string() })
}

/// A reader changes nothing on disk: temporary views show a journal of version 1 like the current one.
fn view_as_current(connection: &Connection) -> Result<(), rusqlite::Error> {
    let extracted: Vec<String> = EXTRACTED.iter().map(|(name, value)| format!("{value} AS {name}")).collect();
    connection.execute_batch(&format!(
        "CREATE TEMP VIEW events AS SELECT *, {} FROM main.events;
         CREATE TEMP VIEW newest AS SELECT 1 AS one, seq AS id FROM main.sqlite_sequence WHERE name = 'events';",
        extracted.join(", ")
    ))
}

/// SQLite does not wait for locks while it changes the journal mode, so this does.
pub(crate) fn switch_to_wal(connection: &Connection) -> Result<(), rusqlite::Error> {
    let mut waited = Duration::ZERO;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            Err(error) if is_busy(&error) && waited < BUSY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
                waited += Duration::from_millis(10);
            }
            other => return other,
        }
    }
}

/// A connection for callers on a thread that must not wait for a disk: its work is done on another one, in order.
#[derive(Clone, Debug)]
pub(crate) struct Offloaded(Arc<Mutex<Connection>>);

impl Offloaded {
    pub(crate) fn new(connection: Connection) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = Arc::clone(&self.0);
        offload(move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))).await
    }
}

/// Does `work` on a thread that may wait.
pub(crate) async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let answer = Arc::new(Mutex::new(None));
    let place = Arc::clone(&answer);
    let done = on_a_thread(Box::new(move || {
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(work());
    }));
    let said = match done.await {
        Ok(()) => answer.lock().unwrap_or_else(PoisonError::into_inner).take(),
        Err(error) => Some(Err(StoreError::Broken(format!("its thread ended: {error}")))),
    };
    said.unwrap_or_else(|| Err(StoreError::Broken("its thread gave no answer".to_owned())))
}

/// The same type of work for all queries, so that tokio's part is compiled only once.
fn on_a_thread(work: Box<dyn FnOnce() + Send>) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(work)
}

fn open_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    match StoreError::sql("opening", error) {
        StoreError::Damaged { message } => {
            StoreError::Damaged { message: format!("{}: {message}", path.display()) }
        }
        _ if is_full(error) && paths::has_no_room(path) => {
            let message = "no space left on its disk; free some, or set XDG_STATE_HOME to another directory";
            StoreError::Open { path: path.to_owned(), message: message.to_owned() }
        }
        _ => StoreError::Open { path: path.to_owned(), message: describe(error) },
    }
}
