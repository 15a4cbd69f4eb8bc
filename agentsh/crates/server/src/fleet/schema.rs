//! The tables, their versions, and the daily partitions of events.
//!
//! A migration only adds: a server of the previous version keeps working beside it. One that removes something raises
//! `oldest`, once no older server runs; an older server then reports this instead of guessing.

use agentsh_database::{Connection, Database, DbError, Value};
use jiff::Timestamp;

/// The lock for changing tables.
pub(crate) const KEY: i64 = 7_452_382;

/// The migrations from each version to the next, and the oldest server that can use the result.
const VERSIONS: &[(i64, &[&str])] = &[(1, V1), (1, V2), (1, V3), (1, V4), (1, V5)];

/// Days whose tables are created in advance: an idle server, or one that cannot change tables, can continue this
/// long.
const DAYS_AHEAD: i64 = 7;
/// An id is the microsecond of arrival, followed by bits that distinguish servers.
pub(crate) const LOW_BITS: u32 = 11;
const MICROS_A_DAY: i64 = 86_400_000_000;

const MAKE_VERSIONS: &str = "CREATE TABLE IF NOT EXISTS fleet_schema (
    version BIGINT PRIMARY KEY, oldest BIGINT NOT NULL, at TEXT NOT NULL)";

/// `events.id`: see [`LOW_BITS`]. `hosts.last_id` and `last_hash`: how far its journal is here. `sessions.hash`: the end of
/// the chain that is here. `servers.id` is a digest of server and project: both can be longer than an index takes.
const V1: &[&str] = &[
    "CREATE TABLE hosts (
       id TEXT PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, version TEXT NOT NULL,
       enrolled_at TEXT NOT NULL, seen_at TEXT NOT NULL, last_id BIGINT NOT NULL, last_hash TEXT NOT NULL)",
    "CREATE TABLE sessions (
       id TEXT PRIMARY KEY, host TEXT NOT NULL, seq BIGINT NOT NULL, hash TEXT NOT NULL, first_link TEXT NOT NULL,
       first_event BIGINT NOT NULL, first_at TEXT NOT NULL, last_at TEXT NOT NULL, verb TEXT NOT NULL,
       project TEXT NOT NULL, ended BIGINT NOT NULL)",
    "CREATE INDEX sessions_host ON sessions (host, first_event)",
    "CREATE INDEX sessions_newest ON sessions (first_event)",
    "CREATE TABLE events (
       id BIGINT NOT NULL PRIMARY KEY, host TEXT NOT NULL, session TEXT NOT NULL, seq BIGINT NOT NULL,
       time TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL, server_id TEXT,
       tool_name TEXT, action TEXT, severity TEXT, call TEXT) /*PARTITIONED*/",
    "CREATE INDEX events_session ON events (session, seq)",
    "CREATE INDEX events_type ON events (type, id)",
    "CREATE INDEX events_action ON events (type, action, id)",
    "CREATE INDEX events_host ON events (host, id)",
    "CREATE INDEX events_server ON events (server_id, id)",
    "CREATE TABLE servers (
       host TEXT NOT NULL, id TEXT NOT NULL, server_id TEXT NOT NULL, project TEXT NOT NULL, calls BIGINT NOT NULL,
       blocked BIGINT NOT NULL, refusals BIGINT NOT NULL, last_status TEXT NOT NULL, last_at TEXT NOT NULL,
       last_session TEXT NOT NULL, program TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (host, id))",
    "CREATE TABLE incidents (
       id BIGINT PRIMARY KEY, host TEXT NOT NULL, at TEXT NOT NULL, kind TEXT NOT NULL, session TEXT NOT NULL,
       detail TEXT NOT NULL, found TEXT NOT NULL, accepted_by TEXT)",
    "CREATE INDEX incidents_host ON incidents (host, id)",
    "CREATE TABLE tokens (
       digest TEXT PRIMARY KEY, role TEXT NOT NULL, name TEXT NOT NULL, again TEXT, made_by TEXT NOT NULL,
       made_at TEXT NOT NULL, expires_at TEXT NOT NULL, used_at TEXT, used_for TEXT)",
    "CREATE TABLE people (
       digest TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, made_at TEXT NOT NULL, revoked_at TEXT)",
];

/// `asks.body` is the question as its host wrote it, `digest` what an answer is bound to; `heard_at` and `expires_at` are seconds
/// since 1970.
const V2: &[&str] = &[
    "CREATE TABLE asks (
       id TEXT PRIMARY KEY, host TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL, state TEXT NOT NULL,
       asked_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, heard_at BIGINT NOT NULL, scope TEXT, answered_by TEXT,
       answered_at TEXT)",
    "CREATE INDEX asks_state ON asks (state, asked_at)",
    "CREATE INDEX asks_host ON asks (host, state)",
];

/// `sign_ins.expires_at`: seconds since 1970.
const V3: &[&str] = &[
    "CREATE TABLE sign_ins (
       digest TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, issuer TEXT NOT NULL, subject TEXT NOT NULL,
       made_at TEXT NOT NULL, expires_at BIGINT NOT NULL, revoked_at TEXT)",
    "CREATE INDEX sign_ins_name ON sign_ins (name)",
    "CREATE INDEX sign_ins_made ON sign_ins (made_at)",
];

/// Existing days get theirs by [`complete`], so that no writer waits for it.
const V4: &[&str] = &[
    "CREATE INDEX events_tool ON /*ONLY*/ events (tool_name, id)",
    "CREATE INDEX events_severity ON /*ONLY*/ events (severity, id) WHERE severity IS NOT NULL",
    "CREATE INDEX events_stopped ON /*ONLY*/ events (action, id) WHERE action <> 'allow'",
];
/// The largest id among the events of a host.
const V5: &[&str] = &["ALTER TABLE hosts ADD COLUMN last_event BIGINT NOT NULL DEFAULT 0"];
/// Indexes of `events` that came later than the table, and what they are of.
const LATER_INDEXES: &[(&str, &str)] = &[
    ("events_tool", "(tool_name, id)"),
    ("events_severity", "(severity, id) WHERE severity IS NOT NULL"),
    ("events_stopped", "(action, id) WHERE action <> 'allow'"),
];
/// The lock for building indexes.
const COMPLETING: i64 = 7_452_384;
/// Maximum time that a change of tables waits for users of the tables, because others wait behind it.
const LOCKS: &str = "SET LOCAL lock_timeout = '5s'";
/// Maximum time that a change of days waits for users of the table, because batches wait behind it.
const DAYS_LOCKS: &str = "SET LOCAL lock_timeout = '200ms'";

/// Brings the tables up to date, one server at a time.
pub(crate) fn prepare(database: &Database) -> Result<(), DbError> {
    let mut db = database.connect(Some(KEY))?;
    // Both have a table `servers`, of other columns.
    if db.rows("SELECT skeleton FROM servers LIMIT 1", &[]).is_ok() {
        let why = "this database belongs to a registry; give the fleet server its own with --database";
        return Err(DbError(why.to_owned()));
    }
    database.prepare(KEY, &[MAKE_VERSIONS])?;
    if db.is_postgres() {
        let encoding = db.rows("SELECT current_setting('server_encoding')", &[])?;
        let encoding = encoding.first().and_then(|row| row.first()).map(Value::as_text).unwrap_or_default();
        if encoding != "UTF8" {
            let why = format!("the database is in {encoding}; create one with ENCODING 'UTF8'");
            return Err(DbError(why));
        }
    }
    db.begin()?;
    let result = migrate(db.as_mut(), VERSIONS);
    match result {
        Ok(()) => db.commit()?,
        Err(error) => {
            db.rollback();
            return Err(error);
        }
    }
    let now = Timestamp::now();
    match make_days(db.as_mut(), now) {
        // Days ahead can wait.
        Err(_)
            if name_of(day_of(now))
                .is_some_and(|today| days(db.as_mut()).is_ok_and(|days| days.contains(&today))) =>
        {
            Ok(())
        }
        made => made,
    }
}

fn migrate(db: &mut dyn Connection, versions: &[(i64, &[&str])]) -> Result<(), DbError> {
    let rows =
        db.rows("SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM fleet_schema", &[])?;
    let (found, oldest) = match rows.first().map(Vec::as_slice) {
        Some([version, oldest]) => (version.as_int(), oldest.as_int()),
        _ => (0, 0),
    };
    let own = i64::try_from(versions.len()).unwrap_or(i64::MAX);
    if oldest > own {
        return Err(DbError(format!(
            "the tables have version {found}, which needs a server that knows version {oldest}; this one knows {own}: \
             use a newer agentsh"
        )));
    }
    if db.is_postgres() && found < own {
        db.run(LOCKS)?;
    }
    for (version, (oldest, statements)) in (1..).zip(versions).filter(|(version, _)| *version > found) {
        for statement in *statements {
            let (partitioned, only) =
                if db.is_postgres() { ("PARTITION BY RANGE (id)", "ONLY") } else { ("", "") };
            db.run(&statement.replace("/*PARTITIONED*/", partitioned).replace("/*ONLY*/", only))?;
        }
        let now = Value::text(Timestamp::now().to_string());
        db.change(
            "INSERT INTO fleet_schema (version, oldest, at) VALUES ($1, $2, $3)",
            &[Value::Int(version), Value::Int(*oldest), now],
        )?;
    }
    Ok(())
}

pub(crate) fn latest_version() -> i64 {
    i64::try_from(VERSIONS.len()).unwrap_or(i64::MAX)
}

/// Version of the tables, as the database says it.
pub(crate) fn version(db: &mut dyn Connection) -> Result<i64, DbError> {
    let rows = db.rows("SELECT coalesce(max(version), 0) FROM fleet_schema", &[])?;
    Ok(rows.first().and_then(|row| row.first()).map(Value::as_int).unwrap_or_default())
}

/// The first id of a day; None where no id reaches.
fn first_of(day: i64) -> Option<i64> {
    day.checked_mul(MICROS_A_DAY)?.checked_mul(1 << LOW_BITS)
}

fn day_of(time: Timestamp) -> i64 {
    time.as_microsecond().div_euclid(MICROS_A_DAY)
}

fn name_of(day: i64) -> Option<String> {
    let time = Timestamp::from_microsecond(day.checked_mul(MICROS_A_DAY)?).ok()?;
    Some(format!("events_{}", time.strftime("%Y%m%d")))
}

/// Tables for yesterday, today and the days to come, where they are missing. SQLite has one for all.
pub(crate) fn make_days(db: &mut dyn Connection, now: Timestamp) -> Result<(), DbError> {
    if !db.is_postgres() {
        return Ok(());
    }
    let today = day_of(now);
    let known = days(db)?;
    for day in today - 1..=today + DAYS_AHEAD {
        let Some(name) = name_of(day).filter(|name| !known.contains(name)) else { continue };
        let (Some(from), Some(to)) = (first_of(day), first_of(day + 1)) else { continue };
        let make = format!(
            "CREATE TABLE IF NOT EXISTS {name} PARTITION OF events FOR VALUES FROM ({from}) TO ({to})"
        );
        of_days(db, &make)?;
    }
    Ok(())
}

/// Adds or drops days. It needs the whole table for a moment: if another connection holds it longer, such as a
/// backup, nothing changes and no batch waits.
fn of_days(db: &mut dyn Connection, change: &str) -> Result<(), DbError> {
    db.begin()?;
    let done = db.run(DAYS_LOCKS).and_then(|()| db.run(change)).and_then(|()| db.commit());
    if done.is_err() {
        db.rollback();
    }
    done
}

/// Builds missing indexes of days, one after the other, while others read and write. If another server does it already,
/// nothing happens. Must not be called inside a transaction.
pub(crate) fn complete(db: &mut dyn Connection) -> Result<u64, DbError> {
    let mut made = 0;
    if !db.is_postgres() {
        return Ok(made);
    }
    let held = db.rows(&format!("SELECT CAST(pg_try_advisory_lock({COMPLETING}) AS TEXT)"), &[])?;
    if held.first().and_then(|row| row.first()).map(Value::as_text) != Some("true") {
        return Ok(made);
    }
    let mut result = Ok(());
    'all: for (index, of) in LATER_INDEXES {
        for day in days_without_index(db, index)? {
            let own = format!("{day}_{}", index.trim_start_matches("events_"));
            // An unfinished index is invalid.
            result = db
                .run(&format!("DROP INDEX IF EXISTS {own}"))
                .and_then(|()| db.run(&format!("CREATE INDEX CONCURRENTLY {own} ON {day} {of}")))
                .and_then(|()| db.run(&format!("ALTER INDEX {index} ATTACH PARTITION {own}")));
            if result.is_err() {
                break 'all;
            }
            made += 1;
        }
    }
    db.rows(&format!("SELECT CAST(pg_advisory_unlock({COMPLETING}) AS TEXT)"), &[])?;
    result.map(|()| made)
}

/// Days without their part of an index.
fn days_without_index(db: &mut dyn Connection, index: &str) -> Result<Vec<String>, DbError> {
    let text = format!(
        "SELECT CAST(c.relname AS TEXT) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = 'events'::regclass AND NOT EXISTS (SELECT 1 FROM pg_index x JOIN pg_inherits y \
         ON y.inhrelid = x.indexrelid WHERE x.indrelid = c.oid AND y.inhparent = '{index}'::regclass) ORDER BY 1"
    );
    Ok(db.rows(&text, &[])?.iter().filter_map(|row| Some(row.first()?.as_text().to_owned())).collect())
}

/// The tables of days, the oldest first.
pub(crate) fn days(db: &mut dyn Connection) -> Result<Vec<String>, DbError> {
    let text = "SELECT CAST(c.relname AS TEXT) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
                WHERE i.inhparent = 'events'::regclass ORDER BY 1";
    Ok(db.rows(text, &[])?.iter().filter_map(|row| Some(row.first()?.as_text().to_owned())).collect())
}

/// Takes away what arrived more than `keep` days ago. Ends of chains stay: what was here does not come again. Gives the
/// number of days, or with SQLite of events, that went. A day that is in use stays until the next round.
pub(crate) fn forget(db: &mut dyn Connection, now: Timestamp, keep: u32) -> Result<u64, DbError> {
    let oldest = day_of(now) - i64::from(keep);
    if !db.is_postgres() {
        // The limit is before every id: no row is removed.
        let Some(first) = first_of(oldest) else { return Ok(0) };
        return db.change("DELETE FROM events WHERE id < $1", &[Value::Int(first)]);
    }
    let Some(first) = name_of(oldest) else { return Ok(0) };
    let mut gone = 0;
    // Their names sort as their days do.
    for name in days(db)?.into_iter().filter(|name| name.starts_with("events_") && *name < first) {
        of_days(db, &format!("DROP TABLE {name}"))?;
        gone += 1;
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn older_server_keeps_working_until_a_migration_forbids_it() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::File(dir.path().join("fleet.db"));
        prepare(&database).unwrap();
        prepare(&database).unwrap();
        let mut db = database.connect(None).unwrap();
        let own = i64::try_from(VERSIONS.len()).unwrap();
        let more: [(i64, &[&str]); 2] =
            [(1, &["ALTER TABLE hosts ADD COLUMN label TEXT"]), (own + 2, &["DROP TABLE people"])];
        let newer: Vec<_> = VERSIONS.iter().copied().chain(more).collect();
        migrate(db.as_mut(), &newer[..VERSIONS.len() + 1]).unwrap();
        assert_eq!(version(db.as_mut()).unwrap(), own + 1);
        // The previous server keeps working.
        prepare(&database).unwrap();
        migrate(db.as_mut(), &newer).unwrap();
        let why = prepare(&database).unwrap_err().to_string();
        assert!(why.contains(&format!("needs a server that knows version {}", own + 2)), "{why}");
    }

    #[test]
    fn event_ids_fit_dates_until_2100() {
        let late: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
        assert!(first_of(day_of(late)).unwrap() > 0);
        assert_eq!(name_of(day_of(late)).unwrap(), "events_21000101");
    }

    #[test]
    fn retention_of_any_length_keeps_new_days() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::File(dir.path().join("fleet.db"));
        prepare(&database).unwrap();
        let mut db = database.connect(None).unwrap();
        let now = Timestamp::now();
        let id = first_of(day_of(now)).unwrap() + 1;
        db.change(
            "INSERT INTO events (id, host, session, seq, time, type, body, hash) VALUES ($1, '', '', 1, '', '', '', '')",
            &[Value::Int(id)],
        )
        .unwrap();
        for keep in [1, 36_500, 73_000, 120_000, 3_000_000, u32::MAX] {
            assert_eq!(forget(db.as_mut(), now, keep).unwrap(), 0, "{keep}");
        }
        assert_eq!(
            forget(db.as_mut(), now.checked_add(jiff::SignedDuration::from_hours(72)).unwrap(), 1).unwrap(),
            1
        );
    }
}
