//! One connection to the database, with the same SQL text for both kinds.
//!
//! Placeholders are `$1`, `$2`, …; there are two types of column, TEXT and BIGINT.

mod postgres;
mod schema;
mod sqlite;

use std::path::PathBuf;

/// What a column holds, or a parameter gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Null,
}

pub(crate) type Row = Vec<Value>;

/// The database did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct DbError(pub(crate) String);

/// One connection. A thread owns it; none of its calls is made on an asynchronous thread.
pub(crate) trait Connection: Send {
    fn rows(&mut self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, DbError>;
    /// The number of rows that were changed.
    fn change(&mut self, sql: &'static str, values: &[Value]) -> Result<u64, DbError>;
    /// From here to [`Connection::commit`] no other writer changes anything, in this process or another.
    fn begin(&mut self) -> Result<(), DbError>;
    fn commit(&mut self) -> Result<(), DbError>;
    fn rollback(&mut self);
}

/// Where the registry is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    File(PathBuf),
    /// `postgres://…`, without TLS: a socket or this machine's loopback.
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

    /// Makes the tables where they are missing.
    pub(crate) fn prepare(&self) -> Result<(), DbError> {
        match self {
            Self::File(path) => sqlite::prepare(path),
            Self::Postgres(url) => postgres::prepare(url),
        }
    }

    pub(crate) fn connect(&self) -> Result<Box<dyn Connection>, DbError> {
        Ok(match self {
            Self::File(path) => Box::new(sqlite::Sqlite::open(path)?),
            Self::Postgres(url) => Box::new(postgres::Postgres::connect(url)?),
        })
    }
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn optional(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    /// The text of a column; empty for NULL.
    pub(crate) fn as_text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Int(_) | Self::Null => "",
        }
    }

    pub(crate) fn as_option(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Int(_) | Self::Null => None,
        }
    }

    /// 0 for everything that is no number.
    pub(crate) fn as_int(&self) -> i64 {
        match self {
            Self::Int(number) => *number,
            Self::Text(_) | Self::Null => 0,
        }
    }
}
