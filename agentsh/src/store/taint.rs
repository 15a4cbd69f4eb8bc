//! Remembered results on disk: keyed hashes, never a text. A database of its own, so that damage here never stops the
//! record of what happened; the key stands beside it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use tokio::sync::{Notify, oneshot};

use super::StoreError;
use super::database::execute;

const KEY: usize = 32;
/// What is queued is on its way to the disk at latest this much later.
const FLUSH_AFTER: Duration = Duration::from_millis(50);
/// Bytes that wait; what comes beyond is not stored, and [`TaintStore::dropped`] counts it.
const MAX_QUEUED: usize = 16 << 20;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS results (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  expires INTEGER NOT NULL,
  record  BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS results_expires ON results (expires);
PRAGMA user_version = 1;
";

/// Cheap to clone. What is queued when the last one goes is written if the runtime lives that long;
/// [`TaintStore::flush`] waits for it.
#[derive(Clone, Debug)]
pub struct TaintStore {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    queued: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    /// Seconds since 1970 at which the record ends, and the record.
    records: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
    broken: Option<StoreError>,
    closed: bool,
}

/// Why the database that stood there was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    pub reason: String,
    /// Where it stands now, for whoever wants to look at it.
    pub moved_to: PathBuf,
}

/// What was stored, oldest first.
#[derive(Debug)]
pub struct Opened {
    pub store: TaintStore,
    pub records: Vec<Vec<u8>>,
    /// The database was damaged: it was moved away and an empty one was begun.
    pub set_aside: Option<SetAside>,
}

/// Where the key of a database stands.
#[must_use]
pub fn key_file(database: &Path) -> PathBuf {
    database.with_extension("key")
}

/// The key of all hashes, in a file of its own. `fresh`: 32 random bytes, which become the key when there is none.
///
/// # Errors
/// When the file cannot be read or made, or is not a key.
pub fn key(path: &Path, fresh: &[u8; KEY]) -> Result<[u8; KEY], StoreError> {
    let failed =
        |error: std::io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
    make_directory(path).map_err(failed)?;
    // Written under another name first: a key that was cut by a crash would look like damage for ever.
    let draft = path.with_extension(format!("key.{}", std::process::id()));
    if !path.exists() {
        let _ = fs::remove_file(&draft);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
        file.write_all(fresh).and_then(|()| file.sync_all()).map_err(failed)?;
        let linked = fs::hard_link(&draft, path);
        let _ = fs::remove_file(&draft);
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
    }
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    file.take(KEY as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    bytes
        .try_into()
        .map_err(|_| StoreError::Damaged { message: format!("{} is not a key of 32 bytes", path.display()) })
}

impl TaintStore {
    /// Opens (or makes) the database, forgets what ended before `now` (since 1970), and starts the writer on the current
    /// runtime.
    ///
    /// # Errors
    /// When the directory or the database cannot be used. A damaged database is no error: see [`Opened::set_aside`].
    pub async fn open(path: &Path, now: Duration) -> Result<Opened, StoreError> {
        let (set_aside, (connection, records)) = match load(path, now).await {
            Err(StoreError::Damaged { message }) => {
                let aside = set_aside(path, message, now)?;
                (Some(aside), load(path, now).await?)
            }
            other => (None, other?),
        };
        let shared = Arc::new(Shared::default());
        tokio::spawn(write_until_closed(connection, Arc::clone(&shared)));
        Ok(Opened { store: Self { shared }, records, set_aside })
    }

    /// Queues a record that is of no use after `expires` (since 1970). Never blocks.
    pub fn remember(&self, record: Vec<u8>, expires: Duration) {
        let mut queue = self.shared.lock();
        if queue.broken.is_some() || queue.bytes + record.len() > MAX_QUEUED {
            queue.dropped += 1;
            return;
        }
        queue.bytes += record.len();
        queue.records.push((expires.as_secs(), record));
        drop(queue);
        self.shared.queued.notify_one();
    }

    /// Records that were not stored because the disk was too slow or failed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// Returns when everything queued is on disk.
    ///
    /// # Errors
    /// What the database said when it could not be written.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        {
            let mut queue = self.shared.lock();
            if let Some(error) = &queue.broken {
                return Err(error.clone());
            }
            queue.waiters.push(done);
        }
        self.shared.queued.notify_one();
        written.await.unwrap_or_else(|_| Err(StoreError::Broken("the writer stopped".to_owned())))
    }

    /// Writes what is queued and stops the writer.
    ///
    /// # Errors
    /// As [`TaintStore::flush`].
    pub async fn close(self) -> Result<(), StoreError> {
        let flushed = self.flush().await;
        self.shared.lock().closed = true;
        self.shared.queued.notify_one();
        flushed
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the directory of a file. One that is there stays as it is: it may be the user's.
fn make_directory(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.is_dir()) {
        Some(directory) => fs::DirBuilder::new().recursive(true).mode(0o700).create(directory),
        None => Ok(()),
    }
}

async fn load(path: &Path, now: Duration) -> Result<(SqliteConnection, Vec<Vec<u8>>), StoreError> {
    let failed =
        |error: std::io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
    make_directory(path).map_err(failed)?;
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let sql = |error: &sqlx::Error| StoreError::sql("reading remembered results", error);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
        .pragma("synchronous", "NORMAL")
        // What is forgotten leaves no trace in free pages.
        .pragma("secure_delete", "ON")
        .disable_statement_logging();
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(|error| sql(&error))?;
    execute(&mut connection, SCHEMA).await.map_err(|error| sql(&error))?;
    forget(&mut connection, now).await.map_err(|error| sql(&error))?;
    let rows = sqlx::query("SELECT record FROM results ORDER BY id")
        .fetch_all(&mut connection)
        .await
        .map_err(|error| sql(&error))?;
    let records =
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>().map_err(|error| sql(&error))?;
    Ok((connection, records))
}

/// Keeps a damaged database for whoever wants to look at it. It holds no text.
fn set_aside(path: &Path, reason: String, now: Duration) -> Result<SetAside, StoreError> {
    let moved_to = path.with_extension(format!("damaged.{}", now.as_secs()));
    fs::rename(path, &moved_to)
        .map_err(|error| StoreError::Open { path: path.to_owned(), message: error.to_string() })?;
    for ending in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        let _ = fs::remove_file(PathBuf::from(name));
    }
    Ok(SetAside { reason, moved_to })
}

async fn forget(connection: &mut SqliteConnection, now: Duration) -> Result<(), sqlx::Error> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    sqlx::query("DELETE FROM results WHERE expires <= ?").bind(now).execute(connection).await.map(|_| ())
}

/// One transaction for everything that gathered meanwhile.
async fn write_until_closed(mut connection: SqliteConnection, shared: Arc<Shared>) {
    loop {
        shared.queued.notified().await;
        if shared.lock().waiters.is_empty() {
            tokio::time::sleep(FLUSH_AFTER).await;
        }
        let (records, waiters, closed) = {
            let mut queue = shared.lock();
            queue.bytes = 0;
            (std::mem::take(&mut queue.records), std::mem::take(&mut queue.waiters), queue.closed)
        };
        let written =
            write(&mut connection, records).await.map_err(|error| StoreError::sql("storing results", &error));
        if let Err(error) = &written {
            shared.lock().broken = Some(error.clone());
        }
        for waiter in waiters {
            let _ = waiter.send(written.clone());
        }
        // The last handle is this task's own.
        if closed || written.is_err() || Arc::strong_count(&shared) == 1 {
            break;
        }
    }
    let _ = connection.close().await;
}

async fn write(connection: &mut SqliteConnection, records: Vec<(u64, Vec<u8>)>) -> Result<(), sqlx::Error> {
    if records.is_empty() {
        return Ok(());
    }
    execute(connection, "BEGIN IMMEDIATE").await?;
    for (expires, record) in records {
        let expires = i64::try_from(expires).unwrap_or(i64::MAX);
        sqlx::query("INSERT INTO results (expires, record) VALUES (?, ?)")
            .bind(expires)
            .bind(record)
            .execute(&mut *connection)
            .await?;
    }
    execute(connection, "COMMIT").await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn records_come_back_until_they_end() {
        let state = tempfile::tempdir().unwrap();
        let opened = TaintStore::open(&state.path().join("taint.db"), seconds(10)).await.unwrap();
        assert_eq!((opened.records.len(), opened.set_aside), (0, None));
        opened.store.remember(vec![1, 2], seconds(100));
        opened.store.remember(vec![3], seconds(50));
        opened.store.close().await.unwrap();
        assert_eq!(mode(&state.path().join("taint.db")), 0o600);
        let again = TaintStore::open(&state.path().join("taint.db"), seconds(60)).await.unwrap();
        assert_eq!(again.records, [vec![1, 2]]);
        again.store.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_damaged_database_is_set_aside_with_a_reason() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("taint.db"), "this is no database, and it is long enough to be read")
            .unwrap();
        let opened = TaintStore::open(&state.path().join("taint.db"), seconds(10)).await.unwrap();
        let aside = opened.set_aside.unwrap();
        assert!(aside.moved_to.exists() && !aside.reason.is_empty());
        opened.store.remember(vec![1], seconds(100));
        opened.store.flush().await.unwrap();
        assert_eq!(opened.store.dropped(), 0);
    }

    #[test]
    fn the_key_is_made_once_and_closed_to_others() {
        let state = tempfile::tempdir().unwrap();
        let path = key_file(&state.path().join("taint.db"));
        assert_eq!(key(&path, &[1; 32]).unwrap(), [1; 32]);
        assert_eq!(key(&path, &[2; 32]).unwrap(), [1; 32]);
        assert_eq!(mode(&path), 0o600);
        fs::write(&path, "short").unwrap();
        assert!(matches!(key(&path, &[2; 32]), Err(StoreError::Damaged { .. })));
    }
}
