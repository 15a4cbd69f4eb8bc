//! A connection of its own that only reads: records, sessions, summaries, the check of the chain.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{QueryBuilder, Row, Sqlite};

use super::query::EventFilter;
use super::{Record, StoreError, Summary, Verification, database, verify};
use crate::types::SessionId;

/// Records read at a time when a whole session is added up.
const PAGE: i64 = 256;

#[derive(Debug)]
pub struct Reader {
    pub(super) connection: SqliteConnection,
}

impl Reader {
    /// None when nothing was ever recorded in `state_dir`.
    ///
    /// # Errors
    /// When there is a database that cannot be read.
    pub async fn open(state_dir: &Path) -> Result<Option<Self>, StoreError> {
        Ok(database::open_reader(state_dir).await?.map(|connection| Self { connection }))
    }

    /// The session that `which` names: `latest` (the one that started last), an id, or the beginning of one.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub async fn session(&mut self, which: &str) -> Result<SessionId, StoreError> {
        let found = if which == "latest" {
            let latest = "SELECT session FROM events WHERE id = (SELECT max(id) FROM events WHERE seq = 1)";
            self.sessions(latest, None).await?
        } else {
            let prefixed =
                "SELECT DISTINCT session FROM events WHERE session >= ?1 AND session < ?1 || 'g' LIMIT 2";
            let prefix = which.to_ascii_lowercase();
            self.sessions(prefixed, Some(&prefix)).await?
        };
        match found.as_slice() {
            [only] => only
                .parse()
                .map(SessionId)
                .map_err(|_| StoreError::Damaged { message: format!("`{only}` is not a session id") }),
            [] if which == "latest" => Err(StoreError::NoSession),
            [] => Err(StoreError::UnknownSession(which.to_owned())),
            _ => Err(StoreError::AmbiguousSession(which.to_owned())),
        }
    }

    /// The newest `filter.limit` events that match, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn events(&mut self, filter: &EventFilter) -> Result<Vec<Record>, StoreError> {
        let mut query = QueryBuilder::new("SELECT ");
        query.push(Record::COLUMNS).push(" FROM events WHERE 1");
        filter.push_to(&mut query, "");
        query.push(" ORDER BY id DESC LIMIT ").push_bind(filter.limit_i64());
        let mut records = self.records(query).await?;
        records.reverse();
        Ok(records)
    }

    /// Everything `session` did, added up. Reads the whole session, page by page.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn summary(&mut self, session: SessionId) -> Result<Summary, StoreError> {
        let mut summary = Summary::new(session);
        let mut after = 0;
        loop {
            let mut query = QueryBuilder::new("SELECT ");
            query.push(Record::COLUMNS).push(" FROM events WHERE session = ").push_bind(session.to_string());
            query.push(" AND seq > ").push_bind(after).push(" ORDER BY seq LIMIT ").push_bind(PAGE);
            let page = self.records(query).await?;
            let Some(last) = page.last() else { return Ok(summary) };
            after = i64::try_from(last.seq).unwrap_or(i64::MAX);
            page.iter().for_each(|record| summary.add_record(record));
        }
    }

    /// Checks the hash chain of every session and the structure of the database.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file cannot be walked to its end.
    pub async fn verify(&mut self) -> Result<Verification, StoreError> {
        verify::verify(&mut self.connection).await
    }

    pub(super) async fn records(
        &mut self,
        mut query: QueryBuilder<'_, Sqlite>,
    ) -> Result<Vec<Record>, StoreError> {
        let rows = query
            .build()
            .fetch_all(&mut self.connection)
            .await
            .map_err(|error| StoreError::sql("reading events", &error))?;
        rows.iter().map(Record::from_row).collect()
    }

    async fn sessions(&mut self, query: &str, argument: Option<&str>) -> Result<Vec<String>, StoreError> {
        let sql = |error: sqlx::Error| StoreError::sql("looking for a session", &error);
        let mut statement = sqlx::query(query);
        if let Some(argument) = argument {
            statement = statement.bind(argument.to_owned());
        }
        let rows = statement.fetch_all(&mut self.connection).await.map_err(sql)?;
        rows.iter().map(|row| row.try_get(0).map_err(sql)).collect()
    }
}
