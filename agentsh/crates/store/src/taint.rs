//! Remembered results on disk: keyed hashes, never a text. A separate database, so that damage here never stops the
//! journal; the key is next to it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tokio::sync::oneshot;

use super::journal::Journal;
use super::sql::Query;
use super::{StoreError, database};

const KEY: usize = 32;
/// Maximum number of queued bytes. Beyond it results are not stored, and [`TaintStore::dropped_count`] counts them.
const MAX_QUEUED: usize = 16 << 20;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS results (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  expires INTEGER NOT NULL,
  record  BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS results_expires ON results (expires);
PRAGMA user_version = 1;
";

/// Cheap to clone. What is queued is written on the journal's thread; [`TaintStore::flush`] waits for it.
#[derive(Clone, Debug)]
pub struct TaintStore {
    shared: Arc<Shared>,
    journal: Journal,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Used on the journal's thread alone.
    connection: Mutex<Connection>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Seconds since 1970 at which the record ends, and the record.
    records: Vec<(u64, Vec<u8>)>,
    bytes: usize,
    dropped: u64,
    waiters: Vec<oneshot::Sender<Result<(), StoreError>>>,
    broken: Option<StoreError>,
}

/// Why the database that was there was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    pub reason: String,
    /// The new path of the damaged file.
    pub moved_to: PathBuf,
}

/// The stored records, oldest first.
#[derive(Debug)]
pub struct OpenedTaintStore {
    pub store: TaintStore,
    pub records: Vec<Vec<u8>>,
    /// The database was damaged: it was moved away and an empty one was begun.
    pub set_aside: Option<SetAside>,
}

/// The file of a database's key.
#[must_use]
pub fn key_file(database: &Path) -> PathBuf {
    let beside = database.with_extension("key");
    // Not the database itself.
    if beside == database { database.with_added_extension("key") } else { beside }
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
    /// Opens (or makes) the database and forgets what ended before `now` (since 1970). It is written on the thread of
    /// `journal`.
    ///
    /// # Errors
    /// When the directory or the database cannot be used. A damaged database is not an error: see [`OpenedTaintStore::set_aside`].
    pub async fn open(path: &Path, now: Duration, journal: &Journal) -> Result<OpenedTaintStore, StoreError> {
        let path = path.to_owned();
        let open = move || match load(&path, now) {
            Err(StoreError::Damaged { message }) => {
                let aside = set_aside(&path, message, now)?;
                Ok((Some(aside), load(&path, now)?))
            }
            other => Ok((None, other?)),
        };
        let (set_aside, (connection, records)) = database::offload(open).await?;
        let shared = Arc::new(Shared { queue: Mutex::default(), connection: Mutex::new(connection) });
        Ok(OpenedTaintStore { store: Self { shared, journal: journal.clone() }, records, set_aside })
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
        let is_first = queue.records.len() == 1;
        drop(queue);
        if is_first {
            self.write_soon();
        }
    }

    fn write_soon(&self) {
        let shared = Arc::clone(&self.shared);
        self.journal.run_after_batch(Box::new(move || shared.write()));
    }

    /// Records that were not stored because the disk was too slow or failed.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// Returns when everything queued is on disk.
    ///
    /// # Errors
    /// The database's error when it could not be written.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (done, written) = oneshot::channel();
        {
            let mut queue = self.shared.lock();
            if let Some(error) = &queue.broken {
                return Err(error.clone());
            }
            queue.waiters.push(done);
        }
        self.write_soon();
        self.journal.flush_now();
        written.await.unwrap_or_else(|_| Err(StoreError::Broken("the writer stopped".to_owned())))
    }

    /// Writes what is queued.
    ///
    /// # Errors
    /// Like [`TaintStore::flush`].
    pub async fn close(self) -> Result<(), StoreError> {
        self.flush().await
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes everything that is queued, in one transaction.
    fn write(&self) {
        let (records, waiters) = {
            let mut queue = self.lock();
            queue.bytes = 0;
            (std::mem::take(&mut queue.records), std::mem::take(&mut queue.waiters))
        };
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let written =
            write(&mut connection, records).map_err(|error| StoreError::sql("storing results", &error));
        if let Err(error) = &written {
            self.lock().broken = Some(error.clone());
        }
        for waiter in waiters {
            // A waiter that is gone does not need the answer.
            let _ = waiter.send(written.clone());
        }
    }
}

/// Makes the directory of a file. One that is there stays as it is: it may be the user's.
fn make_directory(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.is_dir()) {
        Some(directory) => fs::DirBuilder::new().recursive(true).mode(0o700).create(directory),
        None => Ok(()),
    }
}

fn load(path: &Path, now: Duration) -> Result<(Connection, Vec<Vec<u8>>), StoreError> {
    let failed =
        |error: std::io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
    make_directory(path).map_err(failed)?;
    agentsh_base::small_file::open_own(path, false).map_err(failed)?;
    let connection = database::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let records = || -> rusqlite::Result<Vec<Vec<u8>>> {
        database::switch_to_wal(&connection)?;
        // Deleted data leaves no trace in free pages.
        connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        connection.execute_batch(SCHEMA)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        connection.execute("DELETE FROM results WHERE expires <= $1", [now])?;
        connection
            .prepare("SELECT record FROM results ORDER BY id")?
            .query_map([], |row| row.get(0))?
            .collect()
    };
    let records = records().map_err(|error| match StoreError::sql("reading remembered results", &error) {
        // Its text names the journal.
        StoreError::Sql { message, .. } => StoreError::Open { path: path.to_owned(), message },
        damaged => damaged,
    })?;
    Ok((connection, records))
}

/// Keeps a damaged database for inspection. It contains no text.
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

/// Values that one statement binds: far below what SQLite takes.
const ROWS_IN_STATEMENT: usize = 500;

fn write(connection: &mut Connection, records: Vec<(u64, Vec<u8>)>) -> rusqlite::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut records = records.into_iter().peekable();
    while records.peek().is_some() {
        let mut insert = Query::new("INSERT INTO results (expires, record) VALUES ");
        for (at, (expires, record)) in records.by_ref().take(ROWS_IN_STATEMENT).enumerate() {
            insert.push(if at == 0 { "(" } else { ", (" });
            insert.bind(i64::try_from(expires).unwrap_or(i64::MAX)).push(", ").bind(record).push(")");
        }
        insert.execute(&transaction)?;
    }
    transaction.commit()
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

    async fn open(state: &Path, now: Duration) -> OpenedTaintStore {
        let session = crate::testing::session(1);
        let journal = Journal::open(&state.join("agentsh"), session).await.unwrap();
        TaintStore::open(&state.join("taint.db"), now, &journal).await.unwrap()
    }

    #[tokio::test]
    async fn stored_records_are_returned_until_they_expire() {
        let state = tempfile::tempdir().unwrap();
        let opened = open(state.path(), seconds(10)).await;
        assert_eq!((opened.records.len(), opened.set_aside), (0, None));
        opened.store.remember(vec![1, 2], seconds(100));
        opened.store.remember(vec![3], seconds(50));
        opened.store.close().await.unwrap();
        assert_eq!(mode(&state.path().join("taint.db")), 0o600);
        let again = open(state.path(), seconds(60)).await;
        assert_eq!(again.records, [vec![1, 2]]);
        again.store.close().await.unwrap();
    }

    #[tokio::test]
    async fn stored_records_are_returned_in_order() {
        let state = tempfile::tempdir().unwrap();
        let opened = open(state.path(), seconds(10)).await;
        let many: Vec<Vec<u8>> =
            (0..2 * ROWS_IN_STATEMENT as u32 + 1).map(|at| at.to_be_bytes().to_vec()).collect();
        many.iter().for_each(|record| opened.store.remember(record.clone(), seconds(100)));
        opened.store.close().await.unwrap();
        let again = open(state.path(), seconds(60)).await;
        assert_eq!(again.records, many);
        again.store.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_damaged_database_is_set_aside_with_a_reason() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("taint.db"), "this is not a database, and it is long enough to be read")
            .unwrap();
        let opened = open(state.path(), seconds(10)).await;
        let aside = opened.set_aside.unwrap();
        assert!(aside.moved_to.exists() && !aside.reason.is_empty());
        opened.store.remember(vec![1], seconds(100));
        opened.store.flush().await.unwrap();
        assert_eq!(opened.store.dropped_count(), 0);
    }

    #[test]
    fn taint_key_is_made_once_and_unreadable_for_others() {
        let state = tempfile::tempdir().unwrap();
        let path = key_file(&state.path().join("taint.db"));
        assert_eq!(key(&path, &[1; 32]).unwrap(), [1; 32]);
        assert_eq!(key(&path, &[2; 32]).unwrap(), [1; 32]);
        assert_eq!(mode(&path), 0o600);
        fs::write(&path, "short").unwrap();
        assert!(matches!(key(&path, &[2; 32]), Err(StoreError::Damaged { .. })));
    }
}
