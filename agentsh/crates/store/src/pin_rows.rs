//! The tables of the pins.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior};

use super::StoreError;
use super::pins::{Candidate, Pin, PinState, TrustedBy};
use super::sql::Query;
use crate::types::ServerId;

/// Contents that no manifest names any more.
const FORGET_CONTENTS: &str = "DELETE FROM blobs WHERE hash NOT IN (
  SELECT replace(value, 'sha256:', '') FROM pins, json_each(pins.manifest)
  UNION SELECT replace(value, 'sha256:', '') FROM candidates, json_each(candidates.manifest))";

/// Content by hash.
type Contents = [(String, Vec<u8>)];

pub(super) fn pins(
    connection: &Connection,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<Vec<Pin>, StoreError> {
    rows(connection, "pins", server, scope, |row| {
        let by: String = row.get("trusted_by")?;
        let trusted_by = TrustedBy::named(&by).unwrap_or(TrustedBy::FirstUse);
        Ok(Pin { state: state(row)?, trusted_at: row.get("trusted_at")?, trusted_by })
    })
}

pub(super) fn candidates(
    connection: &Connection,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<Vec<Candidate>, StoreError> {
    rows(connection, "candidates", server, scope, |row| {
        Ok(Candidate { state: state(row)?, seen_at: row.get("seen_at")? })
    })
}

pub(super) fn write_pin(
    connection: &mut Connection,
    pin: &Pin,
    contents: &Contents,
) -> Result<(), StoreError> {
    change(connection, |connection| {
        put(
            connection,
            "pins (trusted_at, trusted_by, ",
            &[&pin.trusted_at, pin.trusted_by.as_str()],
            &pin.state,
        )?;
        delete(connection, "candidates", Some(&pin.state.server_id.0), Some(&pin.state.scope))?;
        put_contents(connection, contents)
    })
}

pub(super) fn write_candidate(
    connection: &mut Connection,
    candidate: &Candidate,
    contents: &Contents,
) -> Result<(), StoreError> {
    change(connection, |connection| {
        put(connection, "candidates (seen_at, ", &[&candidate.seen_at], &candidate.state)?;
        put_contents(connection, contents)
    })
}

/// Returns the number of removed pins.
pub(super) fn remove(
    connection: &mut Connection,
    server: Option<&str>,
    scope: Option<&str>,
) -> Result<u64, StoreError> {
    change(connection, |connection| {
        let pins = delete(connection, "pins", server, scope)?;
        delete(connection, "candidates", server, scope)?;
        Ok(pins as u64)
    })
}

pub(super) fn text(connection: &Connection, hash: &str) -> Result<Option<String>, StoreError> {
    let content: Option<Vec<u8>> = connection
        .query_row("SELECT content FROM blobs WHERE hash = $1", [hash], |row| row.get(0))
        .optional()
        .map_err(sql)?;
    Ok(content.and_then(|content| String::from_utf8(content).ok()))
}

fn rows<T>(
    connection: &Connection,
    table: &str,
    server: Option<&str>,
    scope: Option<&str>,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut query = Query::new(format!("SELECT * FROM {table} WHERE TRUE"));
    push_key(&mut query, server, scope);
    query.push(" ORDER BY server_id, scope");
    query.rows(connection, read).map_err(sql)
}

fn delete(
    connection: &Connection,
    table: &str,
    server: Option<&str>,
    scope: Option<&str>,
) -> rusqlite::Result<usize> {
    let mut query = Query::new(format!("DELETE FROM {table} WHERE TRUE"));
    push_key(&mut query, server, scope);
    query.execute(connection)
}

fn push_key(query: &mut Query, server: Option<&str>, scope: Option<&str>) {
    if let Some(server) = server {
        query.push(" AND server_id = ").bind(server.to_owned());
    }
    if let Some(scope) = scope {
        query.push(" AND scope = ").bind(scope.to_owned());
    }
}

/// `head` is the table and the columns that only it has, whose values are `own`.
fn put(connection: &Connection, head: &str, own: &[&str], state: &PinState) -> rusqlite::Result<usize> {
    let manifest = serde_json::to_string(&state.manifest)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let mut query = Query::new("INSERT OR REPLACE INTO ");
    query.push(head).push("server_id, scope, program, identity, digest, manifest) VALUES (");
    let values = own.iter().copied().chain([
        state.server_id.0.as_str(),
        &state.scope,
        &state.program,
        &state.identity,
        &state.digest,
        &manifest,
    ]);
    for (at, value) in values.enumerate() {
        query.push(if at == 0 { "" } else { ", " }).bind(value.to_owned());
    }
    query.push(")");
    query.execute(connection)
}

fn put_contents(connection: &Connection, contents: &Contents) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT OR IGNORE INTO blobs (hash, content) VALUES ($1, $2)")?;
    contents.iter().try_for_each(|(hash, content)| insert.execute((hash, content)).map(|_| ()))
}

/// Makes all changes or none, and removes contents that are no longer named. Survives a loss of power.
fn change<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let all = || {
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&transaction)?;
        transaction.execute_batch(FORGET_CONTENTS)?;
        transaction.commit().map(|()| done)
    };
    all().map_err(sql)
}

fn state(row: &Row<'_>) -> rusqlite::Result<PinState> {
    let manifest: String = row.get("manifest")?;
    let damaged = |error| {
        let why = format!("the manifest of a pin: {error}");
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, why.into())
    };
    let manifest: BTreeMap<String, String> =
        serde_json::from_str(&manifest).map_err(|error: serde_json::Error| damaged(error))?;
    Ok(PinState {
        server_id: ServerId(row.get("server_id")?),
        scope: row.get("scope")?,
        program: row.get("program")?,
        identity: row.get("identity")?,
        digest: row.get("digest")?,
        manifest,
    })
}

fn sql(error: rusqlite::Error) -> StoreError {
    StoreError::sql("using the pins", &error)
}
