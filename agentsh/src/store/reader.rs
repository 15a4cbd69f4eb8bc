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
            self.texts(latest, None).await?
        } else {
            let prefixed =
                "SELECT DISTINCT session FROM events WHERE session >= ?1 AND session < ?1 || 'g' LIMIT 2";
            let prefix = which.to_ascii_lowercase();
            self.texts(prefixed, Some(&prefix)).await?
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
        query.push(Record::COLUMNS).push(" FROM events WHERE id IN (SELECT id FROM events WHERE 1");
        filter.push_to(&mut query);
        query.push(" ORDER BY id DESC LIMIT ").push_bind(filter.limit_i64()).push(") ORDER BY id");
        self.records(query).await
    }

    /// Every server that an event names, in order.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn server_ids(&mut self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT DISTINCT server_id FROM events WHERE server_id IS NOT NULL ORDER BY 1", None).await
    }

    /// The types of the events on record, also those of other versions.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn kinds(&mut self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT DISTINCT type FROM events ORDER BY 1", None).await
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

    /// The first column of what `query` finds.
    async fn texts(&mut self, query: &str, argument: Option<&str>) -> Result<Vec<String>, StoreError> {
        let sql = |error: sqlx::Error| StoreError::sql("looking for a name", &error);
        let mut statement = sqlx::query(query);
        if let Some(argument) = argument {
            statement = statement.bind(argument.to_owned());
        }
        let rows = statement.fetch_all(&mut self.connection).await.map_err(sql)?;
        rows.iter().map(|row| row.try_get(0).map_err(sql)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::store::testing::{events, one_session, session, write, write_bodies};

    #[tokio::test]
    async fn events_of_another_version_are_kept_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let future =
            r#"{"type":"mcp_detection","server_id":"fs","severity":"high","big":123456789012345678}"#;
        let wider = r#"{"type":"mcp_tools_list_changed","server_id":"fs","extra":[1]}"#;
        write_bodies(dir.path(), session(1), vec![future.to_owned(), wider.to_owned()]).await;
        let mut reader = Reader::open(dir.path()).await.unwrap().unwrap();
        let high = EventFilter { severity: Some("high".to_owned()), ..EventFilter::default() };
        let found = reader.events(&high).await.unwrap();
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
        assert_eq!(Summary::from_records(session(1), &records), live);
        assert_eq!(Summary::from_records(session(2), &records).events, 0);
    }
}
