//! A cache of file hashes. Losing it costs only time.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, Row, TransactionBehavior, params};

use super::StoreError;
use super::pins::PinStore;
use super::sql::Query;
use crate::types::FileKey;

/// Rows that are kept; the oldest go first.
const MAX_ROWS: i64 = 200_000;

/// Files in one question.
const FILES_IN_STATEMENT: usize = 500;

impl PinStore {
    /// The SHA-256 of every one of `files` that is known in exactly this state.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn digests(&self, files: &[FileKey]) -> Result<BTreeMap<FileKey, [u8; 32]>, StoreError> {
        let files = files.to_vec();
        self.ask(move |connection| {
            let asked: BTreeSet<FileKey> = files.iter().copied().collect();
            let mut known = BTreeMap::new();
            for part in files.chunks(FILES_IN_STATEMENT) {
                let mut query = Query::new("SELECT * FROM digest_cache WHERE (dev, ino) IN (VALUES ");
                for (at, file) in part.iter().enumerate() {
                    query.push(if at == 0 { "(" } else { ", (" });
                    query.bind(as_signed(file.dev)).push(", ").bind(as_signed(file.ino)).push(")");
                }
                query.push(")");
                known.extend(query.rows(connection, entry).map_err(sql)?.into_iter().flatten());
            }
            known.retain(|file, _| asked.contains(file));
            Ok(known)
        })
        .await
    }

    /// All digests, for a caller that does not know beforehand which files it will need.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn all_digests(&self) -> Result<BTreeMap<FileKey, [u8; 32]>, StoreError> {
        self.ask(|connection| {
            let all = Query::new("SELECT * FROM digest_cache").rows(connection, entry).map_err(sql)?;
            // An entry that cannot be read is one that is not known.
            Ok(all.into_iter().flatten().collect())
        })
        .await
    }

    /// Keeps the SHA-256 of `files`, and forgets what was known about them before.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn keep_digests(&self, files: &[(FileKey, [u8; 32])]) -> Result<(), StoreError> {
        let files = files.to_vec();
        self.ask(move |connection| write(connection, &files).map_err(sql)).await
    }
}

fn write(connection: &mut Connection, files: &[(FileKey, [u8; 32])]) -> rusqlite::Result<()> {
    // A lost cache entry is not a loss, so this one does not wait for the disk.
    connection.execute_batch("PRAGMA synchronous = NORMAL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut insert = transaction.prepare(
        "INSERT OR REPLACE INTO digest_cache (dev, ino, size, mtime_ns, ctime_ns, sha256) \
         VALUES ($1, $2, $3, $4, $5, $6)",
    )?;
    for (file, digest) in files {
        let (dev, ino, size) = (as_signed(file.dev), as_signed(file.ino), as_signed(file.size));
        insert.execute(params![dev, ino, size, file.mtime_ns, file.ctime_ns, digest])?;
    }
    drop(insert);
    let forget = "DELETE FROM digest_cache WHERE rowid <= (SELECT max(rowid) FROM digest_cache) - $1";
    transaction.execute(forget, [MAX_ROWS])?;
    transaction.commit()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Option<(FileKey, [u8; 32])>> {
    let number = |column: &str| row.get::<_, i64>(column);
    let file = FileKey {
        dev: number("dev")?.cast_unsigned(),
        ino: number("ino")?.cast_unsigned(),
        size: number("size")?.cast_unsigned(),
        mtime_ns: number("mtime_ns")?,
        ctime_ns: number("ctime_ns")?,
    };
    let digest: Vec<u8> = row.get("sha256")?;
    Ok(digest.try_into().ok().map(|digest| (file, digest)))
}

/// SQLite has signed integers only; the bits stay.
fn as_signed(number: u64) -> i64 {
    number.cast_signed()
}

fn sql(error: rusqlite::Error) -> StoreError {
    StoreError::sql("using the digest cache", &error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn file(ino: u64) -> FileKey {
        FileKey { dev: u64::MAX, ino, size: 10, mtime_ns: -5, ctime_ns: 7 }
    }

    #[tokio::test]
    async fn digest_cache_matches_only_the_same_file_state() {
        let dir = tempfile::tempdir().unwrap();
        let store = PinStore::new(dir.path());
        let files: Vec<_> = (0..1200).map(|ino| (file(ino), [ino as u8; 32])).collect();
        store.keep_digests(&files).await.unwrap();
        let keys: Vec<_> = files.iter().map(|(key, _)| *key).collect();
        assert_eq!(store.digests(&keys).await.unwrap().into_iter().collect::<Vec<_>>(), files);
        let touched = FileKey { ctime_ns: 8, ..file(3) };
        assert_eq!(store.all_digests().await.unwrap().into_iter().collect::<Vec<_>>(), files);
        assert!(store.digests(&[touched, file(5000)]).await.unwrap().is_empty());
        store.keep_digests(&[(touched, [9; 32])]).await.unwrap();
        assert_eq!(store.digests(&[touched, file(3)]).await.unwrap(), BTreeMap::from([(touched, [9; 32])]));
        assert!(store.digests(&[]).await.unwrap().is_empty());
        store.keep_digests(&[]).await.unwrap();
    }
}
