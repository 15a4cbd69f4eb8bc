//! A read-only connection: records, sessions, summaries, verification of the chain.

use std::path::Path;

use rusqlite::Connection;

use super::database::{Offloaded, offload};
use super::query::EventFilter;
use super::sql::Query;
use super::{Record, StoreError, Summary, Verification, database, verify};
use crate::types::SessionId;

/// Records read at a time when a whole session is added up.
const PAGE: i64 = 256;

/// A clone asks over the same connection.
#[derive(Clone, Debug)]
pub struct Reader {
    connection: Offloaded,
}

impl Reader {
    /// None when nothing was ever recorded in `state_dir`.
    ///
    /// # Errors
    /// A database exists, but cannot be read.
    pub async fn open(state_dir: &Path) -> Result<Option<Self>, StoreError> {
        let state_dir = state_dir.to_owned();
        let opened = offload(move || database::open_reader(&state_dir)).await?;
        Ok(opened.map(|connection| Self { connection: Offloaded::new(connection) }))
    }

    pub(super) fn from_connection(connection: Offloaded) -> Self {
        Self { connection }
    }

    /// The session that `which` names: `latest` (the one that started last), an id, or the beginning of one.
    ///
    /// # Errors
    /// When no session fits, or more than one.
    pub async fn session(&mut self, which: &str) -> Result<SessionId, StoreError> {
        let mut query;
        if which == "latest" {
            query = Query::new(
                "SELECT session FROM events WHERE id = (SELECT max(id) FROM events WHERE seq = 1)",
            );
        } else {
            let prefix = which.to_ascii_lowercase();
            query = Query::new("SELECT DISTINCT session FROM events WHERE session >= ");
            query.bind(prefix.clone()).push(" AND session < ").bind(prefix + "g").push(" LIMIT 2");
        }
        match self.texts(query).await?.as_slice() {
            [only] => only
                .parse()
                .map(SessionId)
                .map_err(|_| StoreError::Damaged { message: format!("`{only}` is not a session id") }),
            [] if which == "latest" => Err(StoreError::NoSession),
            [] => Err(StoreError::UnknownSession(which.to_owned())),
            _ => Err(StoreError::AmbiguousSession(which.to_owned())),
        }
    }

    /// The session that started last in `directory`, or in the nearest one above it in which one did.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn newest_session_in(&mut self, directory: &Path) -> Result<Option<SessionId>, StoreError> {
        let mut query = Query::new("SELECT session FROM events WHERE seq = 1 AND json_valid(body)");
        query.push(" AND json_extract(body, '$.project') IN (SELECT value FROM json_each(");
        let above: Vec<String> = directory.ancestors().map(|path| path.display().to_string()).collect();
        let above = serde_json::to_string(&above).unwrap_or_default();
        query.bind(above).push(")) ORDER BY length(json_extract(body, '$.project')) DESC, id DESC LIMIT 1");
        let newest = self.texts(query).await?;
        Ok(newest.first().and_then(|session| session.parse().ok()).map(SessionId))
    }

    /// The newest `filter.limit` events that match, oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn events(&mut self, filter: &EventFilter) -> Result<Vec<Record>, StoreError> {
        let mut query = select();
        query.push(" WHERE id IN (SELECT id FROM events WHERE TRUE");
        filter.push_to(&mut query);
        query.push(" ORDER BY id DESC LIMIT ").bind(filter.limit_i64()).push(") ORDER BY id");
        self.ask(move |connection| records(connection, query)).await
    }

    /// Every server that an event names, in order.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn server_ids(&mut self) -> Result<Vec<String>, StoreError> {
        let ids = "SELECT DISTINCT server_id FROM events WHERE server_id IS NOT NULL ORDER BY 1";
        self.texts(Query::new(ids)).await
    }

    /// The types of the events on record, also those of other versions.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn kinds(&mut self) -> Result<Vec<String>, StoreError> {
        self.texts(Query::new("SELECT DISTINCT type FROM events ORDER BY 1")).await
    }

    /// Everything `session` did, added up. Reads the whole session, page by page.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn summary(&mut self, session: SessionId) -> Result<Summary, StoreError> {
        self.ask(move |connection| {
            let mut summary = Summary::new(session);
            let mut after = 0;
            loop {
                let mut query = select();
                query.push(" WHERE session = ").bind(session.to_string());
                query.push(" AND seq > ").bind(after).push(" ORDER BY seq LIMIT ").bind(PAGE);
                let page = records(connection, query)?;
                let Some(last) = page.last() else { return Ok(summary) };
                after = i64::try_from(last.seq).unwrap_or(i64::MAX);
                page.iter().for_each(|record| summary.add_record(record));
            }
        })
        .await
    }

    /// Checks the hash chain of every session and the structure of the database.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the file cannot be walked to its end.
    pub async fn verify(&mut self) -> Result<Verification, StoreError> {
        self.ask(verify::verify).await
    }

    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.connection.run(|connection| question(connection)).await
    }

    /// The first column of the rows of `query`.
    async fn texts(&mut self, query: Query) -> Result<Vec<String>, StoreError> {
        let sql = |error: rusqlite::Error| StoreError::sql("looking for a name", &error);
        self.ask(move |connection| query.rows(connection, |row| row.get(0)).map_err(sql)).await
    }
}

/// Records, for a condition to be appended.
pub(super) fn select() -> Query {
    let mut query = Query::new("SELECT ");
    query.push(Record::COLUMNS).push(" FROM events");
    query
}

pub(super) fn records(connection: &Connection, query: Query) -> Result<Vec<Record>, StoreError> {
    query.rows(connection, Record::from_row).map_err(|error| StoreError::sql("reading events", &error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::testing::{events, one_session, session, write, write_bodies};

    #[tokio::test]
    async fn events_of_another_version_are_kept_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let future =
            r#"{"type":"mcp_detection","server_id":"fs","severity":"high","big":123456789012345678}"#;
        let wider = r#"{"type":"mcp_tools_list_changed","server_id":"fs","extra":[1]}"#;
        write_bodies(dir.path(), session(1), vec![future.to_owned(), wider.to_owned()]).await;
        let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
        let least = |word: &str| EventFilter { severity: Some(word.to_owned()), ..EventFilter::default() };
        assert_eq!(reader.events(&least("critical")).await.unwrap().len(), 0);
        assert_eq!(reader.events(&least("low")).await.unwrap().len(), 1);
        let found = reader.events(&least("high")).await.unwrap();
        assert_eq!(
            (found.len(), found[0].event.is_none(), found[0].body.to_string()),
            (1, true, future.to_owned())
        );
        let all = reader.events(&EventFilter::default()).await.unwrap();
        assert!(all[1].event.is_some() && all[1].to_json()["extra"][0] == 1, "{all:?}");
        let summary = reader.summary(session(1)).await.unwrap();
        assert_eq!((summary.events, summary.unknown_events), (2, 1));
        assert!(reader.verify().await.unwrap().ok);
    }

    #[tokio::test]
    async fn sessions_are_found_by_word_and_by_beginning() {
        let dir = one_session().await;
        write(dir.path(), session(0x12), events()).await;
        let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
        assert_eq!(reader.session("latest").await.unwrap(), session(0x12));
        assert_eq!(reader.session(&session(1).to_string().to_uppercase()).await.unwrap(), session(1));
        assert!(matches!(reader.session("0198").await, Err(StoreError::AmbiguousSession(_))));
        for unknown in ["zz", "%", "0198'--"] {
            assert!(matches!(reader.session(unknown).await, Err(StoreError::UnknownSession(_))), "{unknown}");
        }
        for (directory, found) in [
            ("/project", Some(session(0x12))),
            ("/project/deep/er", Some(session(0x12))),
            ("/projects", None),
            ("/", None),
        ] {
            assert_eq!(reader.newest_session_in(Path::new(directory)).await.unwrap(), found, "{directory}");
        }
    }

    #[tokio::test]
    async fn a_summary_is_the_same_live_and_read_back() {
        let dir = one_session().await;
        let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
        let records = reader.events(&EventFilter::default()).await.unwrap();
        let mut live = Summary::new(session(1));
        for record in &records {
            live.add(record.time, record.event.as_ref().unwrap());
        }
        assert_eq!(reader.summary(session(1)).await.unwrap(), live);
        for (number, expected) in [(1, live), (2, Summary::new(session(2)))] {
            let mut read = Summary::new(session(number));
            records.iter().for_each(|record| read.add_record(record));
            assert_eq!(read, expected);
        }
    }
}
