//! Database connections of the servers: SQLite and PostgreSQL with the same SQL text.
//!
//! Placeholders are `$1`, `$2`, …; column types are TEXT and BIGINT.

mod pool;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_tls;
mod sqlite;

use std::path::PathBuf;

pub use pool::Pool;

/// The value of a column or parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Int(i64),
    Null,
}

pub type Row = Vec<Value>;

/// The database did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DbError(pub String);

/// One connection. A thread owns it; none of its calls is made on an asynchronous thread.
pub trait Connection: Send {
    /// # Errors
    /// What the database says.
    fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DbError>;
    /// The number of rows that were changed.
    ///
    /// # Errors
    /// What the database says.
    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, DbError>;
    /// Statements without values and without an answer.
    ///
    /// # Errors
    /// What the database says.
    fn run(&mut self, sql: &str) -> Result<(), DbError>;
    /// Begins a transaction. Where the connection was made with the key of a lock, no other writer with this key changes
    /// anything until [`Connection::commit`], in this process or another.
    ///
    /// # Errors
    /// What the database says.
    fn begin(&mut self) -> Result<(), DbError>;
    /// # Errors
    /// What the database says; then it is not known whether anything was changed.
    fn commit(&mut self) -> Result<(), DbError>;
    fn rollback(&mut self);
    fn is_postgres(&self) -> bool;
}

/// The database that keeps the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    File(PathBuf),
    /// `postgres://…`; with `sslmode=verify-full` under TLS.
    Postgres(String),
}

impl Database {
    /// `postgres://…` and `postgresql://…` are PostgreSQL; everything else is the path of a file.
    #[must_use]
    pub fn named(text: &str) -> Self {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Self::Postgres(text.to_owned())
        } else {
            Self::File(PathBuf::from(text))
        }
    }

    /// Makes the file (0600) where it is missing, and what `statements` make in one transaction: one server at a time, by
    /// the lock `key`.
    ///
    /// # Errors
    /// What the database says.
    pub fn prepare(&self, key: i64, statements: &[&str]) -> Result<(), DbError> {
        if let Self::File(path) = self {
            sqlite::prepare(path)?;
        }
        let mut connection = self.connect(Some(key))?;
        connection.begin()?;
        for statement in statements {
            connection.run(statement)?;
        }
        connection.commit()
    }

    /// `key`: of the lock that every transaction takes, where there is only one writer at a time.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub fn connect(&self, key: Option<i64>) -> Result<Box<dyn Connection>, DbError> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::Sqlite::open(path)?),
            #[cfg(feature = "postgres")]
            Self::Postgres(url) => Box::new(postgres::Postgres::connect(url, key)?),
            #[cfg(not(feature = "postgres"))]
            Self::Postgres(_) => {
                let _ = key;
                return Err(DbError("this program supports only SQLite files, not PostgreSQL".to_owned()));
            }
        })
    }
}

impl Value {
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    #[must_use]
    pub fn optional(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    /// The text of a column; empty for NULL.
    #[must_use]
    pub fn as_text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Int(_) | Self::Null => "",
        }
    }

    #[must_use]
    pub fn as_option(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Int(_) | Self::Null => None,
        }
    }

    /// 0 for everything that is not a number.
    #[must_use]
    pub fn as_int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Text(_) | Self::Null => 0,
        }
    }
}
