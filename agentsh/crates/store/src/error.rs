//! Errors of the journal and the pins.

use std::path::PathBuf;

/// Cloneable, because everyone who waited gets the error of a failed transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("no state directory: neither XDG_STATE_HOME nor HOME is an absolute path; set one of them")]
    NoHome,
    #[error("cannot prepare the state directory {path}: {message}")]
    StateDir { path: PathBuf, message: String },
    #[error("cannot open the event store {path}: {message}")]
    Open { path: PathBuf, message: String },
    #[error(
        "{path} was written by a newer agentsh (schema {found}, this one knows {known}): use that version, or set \
         XDG_STATE_HOME to another directory"
    )]
    NewerSchema { path: PathBuf, found: i64, known: i64 },
    #[error("the event store is damaged: {message}; move it away to start a new one")]
    Damaged { message: String },
    #[error(
        "the event store (agentsh.db in ~/.local/state/agentsh, or below XDG_STATE_HOME) failed while {doing}: {message}"
    )]
    Sql { doing: &'static str, message: String },
    #[error("the event store {path} was removed or replaced while it was in use")]
    Moved { path: PathBuf },
    #[error("cannot write the event journal any more: {0}")]
    Broken(String),
    #[error("no session is recorded")]
    NoSession,
    #[error("no session `{0}` is recorded; `latest` names the newest")]
    UnknownSession(String),
    #[error("more than one session begins with `{0}`: type more characters")]
    AmbiguousSession(String),
    #[error("nothing of the server `{0}` waits to be trusted: it was trusted since, or never refused")]
    NoCandidate(String),
    #[error(
        "the refused state of the server `{server}` has the digest {found}, not {asked}: inspect it again"
    )]
    OtherDigest { server: String, found: String, asked: String },
}

impl StoreError {
    /// Keeps apart a file that is damaged from an operation that failed.
    pub(crate) fn sql(doing: &'static str, error: &rusqlite::Error) -> Self {
        if is_damage(error) {
            return Self::Damaged { message: describe(error) };
        }
        Self::Sql { doing, message: describe(error) }
    }
}

/// The database's own words, without the code.
pub(crate) fn describe(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}

/// SQLITE_BUSY (5) in any of its extended forms.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    primary_code(error) == Some(5)
}

/// SQLITE_FULL (13), or SQLITE_IOERR (10), which a full disk can look like.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    matches!(primary_code(error), Some(10 | 13))
}

/// SQLITE_CORRUPT (11) or SQLITE_NOTADB (26), or a column of an unexpected type.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    matches!(primary_code(error), Some(11 | 26))
        || matches!(error, FromSqlConversionFailure(..) | InvalidColumnType(..) | IntegralValueOutOfRange(..))
}

fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code & 0xff)
}
