//! Hashes of files that have not changed since they were hashed. A cache: losing it costs time only.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row};

use super::pins::PinStore;
use super::{StoreError, database};
use crate::types::FileKey;

/// Rows that are kept; the oldest go first.
const MAX_ROWS: i64 = 200_000;

/// Files in one statement.
const FILES_IN_STATEMENT: usize = 500;

impl PinStore {
    /// The SHA-256 of every one of `files` that is known in exactly this state.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn digests(&self, files: &[FileKey]) -> Result<BTreeMap<FileKey, [u8; 32]>, StoreError> {
        let mut open = self.connection().await?;
        let asked: BTreeSet<FileKey> = files.iter().copied().collect();
        let mut known = BTreeMap::new();
        for part in files.chunks(FILES_IN_STATEMENT) {
            let mut query = QueryBuilder::new("SELECT * FROM digest_cache WHERE (dev, ino) IN (");
            query.push_values(part, |mut values, file| {
                values.push_bind(signed(file.dev)).push_bind(signed(file.ino));
            });
            query.push(")");
            let rows = query.build().fetch_all(open.get()?).await.map_err(|error| sql(&error))?;
            for row in &rows {
                known.extend(entry(row).map_err(|error| sql(&error))?);
            }
        }
        known.retain(|file, _| asked.contains(file));
        Ok(known)
    }

    /// Everything that is known, for a caller that cannot tell beforehand which files it will meet.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn all_digests(&self) -> Result<BTreeMap<FileKey, [u8; 32]>, StoreError> {
        // As one value: row by row the hand-over between threads would cost more than the reading.
        const ALL: &str = "SELECT group_concat(dev || ',' || ino || ',' || size || ',' || mtime_ns || ',' || \
                           ctime_ns || ',' || hex(sha256), ';') AS everything FROM digest_cache";
        let mut open = self.connection().await?;
        let row = sqlx::query(ALL).fetch_one(open.get()?).await.map_err(|error| sql(&error))?;
        let text: Option<String> = row.try_get("everything").map_err(|error| sql(&error))?;
        // An entry that cannot be read is one that is not known.
        Ok(text.unwrap_or_default().split(';').filter_map(parse_entry).collect())
    }

    /// Keeps the SHA-256 of `files`, and forgets what was known about them before.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn keep_digests(&self, files: &[(FileKey, [u8; 32])]) -> Result<(), StoreError> {
        let mut open = self.connection().await?;
        let connection = open.get()?;
        // A lost cache entry is no loss, so this one does not wait for the disk.
        for statement in ["PRAGMA synchronous = NORMAL", "BEGIN IMMEDIATE"] {
            database::execute(connection, statement).await.map_err(|error| sql(&error))?;
        }
        let written = write(connection, files).await;
        let last = if written.is_ok() { "COMMIT" } else { "ROLLBACK" };
        written.and(database::execute(connection, last).await).map_err(|error| sql(&error))
    }
}

async fn write(connection: &mut SqliteConnection, files: &[(FileKey, [u8; 32])]) -> Result<(), sqlx::Error> {
    for part in files.chunks(FILES_IN_STATEMENT) {
        let mut query = QueryBuilder::new(
            "INSERT OR REPLACE INTO digest_cache (dev, ino, size, mtime_ns, ctime_ns, sha256) ",
        );
        query.push_values(part, |mut values, (file, digest)| {
            for number in
                [signed(file.dev), signed(file.ino), signed(file.size), file.mtime_ns, file.ctime_ns]
            {
                values.push_bind(number);
            }
            values.push_bind(digest.to_vec());
        });
        query.build().execute(&mut *connection).await?;
    }
    sqlx::query("DELETE FROM digest_cache WHERE rowid <= (SELECT max(rowid) FROM digest_cache) - ?")
        .bind(MAX_ROWS)
        .execute(connection)
        .await?;
    Ok(())
}

fn entry(row: &SqliteRow) -> Result<Option<(FileKey, [u8; 32])>, sqlx::Error> {
    let number = |column: &str| row.try_get::<i64, _>(column);
    let file = FileKey {
        dev: number("dev")?.cast_unsigned(),
        ino: number("ino")?.cast_unsigned(),
        size: number("size")?.cast_unsigned(),
        mtime_ns: number("mtime_ns")?,
        ctime_ns: number("ctime_ns")?,
    };
    let digest: Vec<u8> = row.try_get("sha256")?;
    Ok(digest.try_into().ok().map(|digest| (file, digest)))
}

/// `dev,ino,size,mtime,ctime,HEX`
fn parse_entry(text: &str) -> Option<(FileKey, [u8; 32])> {
    let mut parts = text.split(',');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (dev, ino, size) = (number()?.cast_unsigned(), number()?.cast_unsigned(), number()?.cast_unsigned());
    let (mtime_ns, ctime_ns) = (number()?, number()?);
    let hex = parts.next()?;
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some((FileKey { dev, ino, size, mtime_ns, ctime_ns }, digest))
}

/// SQLite has signed integers only; the bits stay.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn sql(error: &sqlx::Error) -> StoreError {
    StoreError::sql("using the digest cache", error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn file(ino: u64) -> FileKey {
        FileKey { dev: u64::MAX, ino, size: 10, mtime_ns: -5, ctime_ns: 7 }
    }

    #[tokio::test]
    async fn only_the_same_state_of_a_file_is_known() {
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
