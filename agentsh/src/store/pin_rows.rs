//! The tables of the pins: rows in, rows out.

use std::collections::BTreeMap;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row, Sqlite};

use super::pins::{Candidate, Pin, PinState, TrustedBy};
use super::{StoreError, database};
use crate::types::ServerId;

/// Contents that no manifest names any more.
const FORGET_CONTENTS: &str = "DELETE FROM blobs WHERE hash NOT IN (
  SELECT replace(value, 'sha256:', '') FROM pins, json_each(pins.manifest)
  UNION SELECT replace(value, 'sha256:', '') FROM candidates, json_each(candidates.manifest))";

type Contents<'a> = [(&'a str, &'a [u8])];

pub(super) async fn pins(
    connection: &mut SqliteConnection,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<Vec<Pin>, StoreError> {
    rows(connection, "pins", server, scope)
        .await?
        .iter()
        .map(|row| {
            let by: String = row.try_get("trusted_by").map_err(|error| sql(&error))?;
            Ok(Pin {
                state: state(row)?,
                trusted_at: row.try_get("trusted_at").map_err(|error| sql(&error))?,
                trusted_by: if by == "user" { TrustedBy::User } else { TrustedBy::FirstUse },
            })
        })
        .collect()
}

pub(super) async fn candidates(
    connection: &mut SqliteConnection,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<Vec<Candidate>, StoreError> {
    rows(connection, "candidates", server, scope)
        .await?
        .iter()
        .map(|row| {
            let seen_at = row.try_get("seen_at").map_err(|error| sql(&error))?;
            Ok(Candidate { state: state(row)?, seen_at })
        })
        .collect()
}

pub(super) async fn write_pin(
    connection: &mut SqliteConnection,
    pin: &Pin,
    contents: &Contents<'_>,
) -> Result<(), StoreError> {
    let by = match pin.trusted_by {
        TrustedBy::User => "user",
        TrustedBy::FirstUse => "first-use",
    };
    begin(connection).await?;
    let written = async {
        put(connection, "pins (trusted_at, trusted_by, ", &[&pin.trusted_at, by], &pin.state).await?;
        delete(connection, "candidates", Some(&pin.state.server_id.0), Some(&pin.state.scope)).await?;
        put_contents(connection, contents).await?;
        database::execute(connection, FORGET_CONTENTS).await.map_err(|error| sql(&error))
    }
    .await;
    end(connection, written).await
}

pub(super) async fn write_candidate(
    connection: &mut SqliteConnection,
    candidate: &Candidate,
    contents: &Contents<'_>,
) -> Result<(), StoreError> {
    begin(connection).await?;
    let written = async {
        put(connection, "candidates (seen_at, ", &[&candidate.seen_at], &candidate.state).await?;
        put_contents(connection, contents).await?;
        database::execute(connection, FORGET_CONTENTS).await.map_err(|error| sql(&error))
    }
    .await;
    end(connection, written).await
}

/// How many pins were removed.
pub(super) async fn remove(
    connection: &mut SqliteConnection,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<u64, StoreError> {
    begin(connection).await?;
    let removed = async {
        let pins = delete(connection, "pins", server, scope).await?;
        delete(connection, "candidates", server, scope).await?;
        database::execute(connection, FORGET_CONTENTS).await.map_err(|error| sql(&error))?;
        Ok(pins)
    }
    .await;
    end(connection, removed).await
}

pub(super) async fn text(
    connection: &mut SqliteConnection,
    hash: &str,
) -> Result<Option<String>, StoreError> {
    let row = sqlx::query("SELECT content FROM blobs WHERE hash = ?")
        .bind(hash.to_owned())
        .fetch_optional(connection)
        .await
        .map_err(|error| sql(&error))?;
    let content: Option<Vec<u8>> = row.map(|row| row.try_get(0)).transpose().map_err(|error| sql(&error))?;
    Ok(content.and_then(|content| String::from_utf8(content).ok()))
}

async fn rows(
    connection: &mut SqliteConnection,
    table: &str,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<Vec<SqliteRow>, StoreError> {
    let mut query = QueryBuilder::new(format!("SELECT * FROM {table} WHERE 1"));
    push_key(&mut query, server, scope);
    query.push(" ORDER BY server_id, scope");
    query.build().fetch_all(connection).await.map_err(|error| sql(&error))
}

async fn delete(
    connection: &mut SqliteConnection,
    table: &str,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<u64, StoreError> {
    let mut query = QueryBuilder::new(format!("DELETE FROM {table} WHERE 1"));
    push_key(&mut query, server, scope);
    let done = query.build().execute(connection).await.map_err(|error| sql(&error))?;
    Ok(done.rows_affected())
}

fn push_key(query: &mut QueryBuilder<'_, Sqlite>, server: Option<&str>, scope: Option<&str>) {
    if let Some(server) = server {
        query.push(" AND server_id = ").push_bind(server.to_owned());
    }
    if let Some(scope) = scope {
        query.push(" AND scope = ").push_bind(scope.to_owned());
    }
}

/// `head` is the table and the columns that only it has, whose values are `own`.
async fn put(
    connection: &mut SqliteConnection,
    head: &str,
    own: &[&str],
    state: &PinState,
) -> Result<(), StoreError> {
    let manifest = serde_json::to_string(&state.manifest)
        .map_err(|error| StoreError::Sql { doing: "encoding a manifest", message: error.to_string() })?;
    let mut query = QueryBuilder::new("INSERT OR REPLACE INTO ");
    query.push(head).push("server_id, scope, program, identity, digest, manifest) VALUES (");
    let mut values = query.separated(", ");
    for value in own.iter().copied().chain([
        state.server_id.0.as_str(),
        &state.scope,
        &state.program,
        &state.identity,
        &state.digest,
        &manifest,
    ]) {
        values.push_bind(value.to_owned());
    }
    query.push(")");
    query.build().execute(connection).await.map(|_| ()).map_err(|error| sql(&error))
}

async fn put_contents(connection: &mut SqliteConnection, contents: &Contents<'_>) -> Result<(), StoreError> {
    for (hash, content) in contents {
        sqlx::query("INSERT OR IGNORE INTO blobs (hash, content) VALUES (?, ?)")
            .bind((*hash).to_owned())
            .bind(content.to_vec())
            .execute(&mut *connection)
            .await
            .map_err(|error| sql(&error))?;
    }
    Ok(())
}

async fn begin(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    for statement in ["PRAGMA synchronous = FULL", "BEGIN IMMEDIATE"] {
        database::execute(connection, statement).await.map_err(|error| sql(&error))?;
    }
    Ok(())
}

/// Commits what was done, or takes it back.
async fn end<T>(connection: &mut SqliteConnection, done: Result<T, StoreError>) -> Result<T, StoreError> {
    let committed = match done {
        Ok(value) => {
            database::execute(connection, "COMMIT").await.map(|()| value).map_err(|error| sql(&error))
        }
        Err(error) => Err(error),
    };
    if committed.is_err() {
        // The first error is the one to report.
        let _ = database::execute(connection, "ROLLBACK").await;
    }
    committed
}

fn state(row: &SqliteRow) -> Result<PinState, StoreError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(|error| sql(&error));
    let manifest: BTreeMap<String, String> = serde_json::from_str(&text("manifest")?)
        .map_err(|error| StoreError::Damaged { message: format!("the manifest of a pin: {error}") })?;
    Ok(PinState {
        server_id: ServerId(text("server_id")?),
        scope: text("scope")?,
        program: text("program")?,
        identity: text("identity")?,
        digest: text("digest")?,
        manifest,
    })
}

fn sql(error: &sqlx::Error) -> StoreError {
    StoreError::sql("using the pins", error)
}
