//! SQLite in a file: one writer at a time, and concurrent readers (write-ahead log).

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;

use super::{Connection, DbError, Row, Value};

/// How long one process waits for the transaction of another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Sqlite {
    connection: rusqlite::Connection,
}

/// Makes the file (0600).
pub(super) fn prepare(path: &Path) -> Result<(), DbError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(|error| DbError(format!("cannot open '{}': {error}", path.display())))?;
    let connection = Sqlite::open(path)?.connection;
    // With write-ahead logging readers continue next to the writer.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    Ok(())
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self, DbError> {
        let connection = rusqlite::Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // A change that was answered with 201 survives a power cut.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Self { connection })
    }

    fn prepare_cached(&self, sql: &str, values: &[Value]) -> Result<rusqlite::CachedStatement<'_>, DbError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        for (number, value) in values.iter().enumerate() {
            // SQLite numbers `$n` by where it first is in the text.
            let name = format!("${}", number + 1);
            let Some(index) = statement.parameter_index(&name)? else { continue };
            match value {
                Value::Text(text) => statement.raw_bind_parameter(index, text)?,
                Value::Int(number) => statement.raw_bind_parameter(index, number)?,
                Value::Null => statement.raw_bind_parameter(index, rusqlite::types::Null)?,
            }
        }
        Ok(statement)
    }
}

impl Connection for Sqlite {
    fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError> {
        let mut statement = self.prepare_cached(sql, values)?;
        let columns = statement.column_count();
        let (mut found, mut rows) = (Vec::new(), statement.raw_query());
        while let Some(row) = rows.next()? {
            let mut values = Vec::with_capacity(columns);
            for column in 0..columns {
                values.push(match row.get_ref(column)? {
                    ValueRef::Integer(number) => Value::Int(number),
                    ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Value::Null,
                });
            }
            found.push(values);
        }
        Ok(found)
    }

    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError> {
        let mut statement = self.prepare_cached(sql, values)?;
        Ok(u64::try_from(statement.raw_execute()?).unwrap_or_default())
    }

    fn begin(&mut self) -> Result<(), DbError> {
        Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?)
    }

    fn run(&mut self, sql: &str) -> Result<(), DbError> {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn is_postgres(&self) -> bool {
        false
    }

    fn commit(&mut self) -> Result<(), DbError> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn rollback(&mut self) {
        // Without an open transaction there is nothing to undo.
        let _undone = self.connection.execute_batch("ROLLBACK");
    }
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        Self(error.to_string())
    }
}
