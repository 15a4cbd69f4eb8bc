//! Database queries that change nothing.

use jiff::Timestamp;

use crate::answer;
use crate::db::{Connection, DbError, Row, Value};
use crate::entry::Entry;

/// A page of a list ends when this many bytes of interfaces are on it, and has one row at least.
const PAGE_BYTES: i64 = 8 << 20;

/// Two statements about one page: how long its rows are, and the rows. Limit and offset are the last two parameters.
macro_rules! page_of {
    ($columns:expr, $table:literal, $filter:literal, $limit:literal, $offset:literal) => {
        (
            concat!(
                "SELECT size FROM ",
                $table,
                " WHERE ",
                $filter,
                " ORDER BY id DESC LIMIT ",
                $limit,
                " OFFSET ",
                $offset
            ),
            concat!(
                "SELECT ",
                $columns,
                " FROM ",
                $table,
                " WHERE ",
                $filter,
                " ORDER BY id DESC LIMIT ",
                $limit,
                " OFFSET ",
                $offset
            ),
        )
    };
}

macro_rules! server_columns {
    () => {
        "id, name, hash, interface, registered_at, summary, status, registered_by, expires_at"
    };
}

/// `$1` is now: a request without an answer in time has expired, even if that is not recorded yet.
macro_rules! approval_columns {
    () => {
        "id, name, recorded_hash, new_hash, new_interface, diff, CASE WHEN status = 'pending' AND expires_at <= $1 \
         THEN 'expired' ELSE status END, created_at, resolved_at, summary, submitted_diff, expires_at, resolved_by, reason"
    };
}

/// A metric with its help, and its value by status.
pub type StatusCounts = (&'static str, &'static str, Vec<(String, i64)>);

/// Numbers of registrations and requests by status. Statuses are words of this crate.
pub fn counts(db: &mut dyn Connection, now: &str) -> Result<Vec<StatusCounts>, DbError> {
    const OF: [(&str, &str, &str); 2] = [
        (
            "agentsh_registry_servers",
            "Registrations by status.",
            "SELECT CASE WHEN status = 'current' AND expires_at <= $1 THEN 'expired' ELSE status END, COUNT(*) FROM servers \
             GROUP BY 1 ORDER BY 1",
        ),
        (
            "agentsh_registry_approvals",
            "Requests for a decision by status.",
            "SELECT CASE WHEN status = 'pending' AND expires_at <= $1 THEN 'expired' ELSE status END, COUNT(*) FROM approvals \
             GROUP BY 1 ORDER BY 1",
        ),
    ];
    let mut counted = Vec::new();
    for (name, help, text) in OF {
        let rows = db.rows(text, &[Value::text(now)])?;
        let by_status = rows.iter().filter_map(|row| match row.as_slice() {
            [status, number] => Some((status.as_text().to_owned(), number.as_int())),
            _ => None,
        });
        counted.push((name, help, by_status.collect()));
    }
    Ok(counted)
}

/// Selects rows of a list, at most 100.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub limit: i64,
    pub offset: i64,
}

/// As many rows of a page as the limit allows.
fn page(
    db: &mut dyn Connection,
    (sizes, rows): (&'static str, &'static str),
    values: &[Value],
) -> Result<Vec<Row>, DbError> {
    let (mut count, mut bytes) = (0, 0);
    for size in db.rows(sizes, values)? {
        bytes += size.first().map_or(0, Value::as_int);
        if count > 0 && bytes > PAGE_BYTES {
            break;
        }
        count += 1;
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let mut values = values.to_vec();
    let limit = values.len().saturating_sub(2);
    if let Some(limit) = values.get_mut(limit) {
        *limit = Value::Int(count);
    }
    db.rows(rows, &values)
}

/// The record of one interface, in any state.
pub fn record(db: &mut dyn Connection, name: &str, hash: &str) -> Result<Option<Row>, DbError> {
    let sql = concat!("SELECT ", server_columns!(), " FROM servers WHERE name = $1 AND hash = $2");
    Ok(db.rows(sql, &[Value::text(name), Value::text(hash)])?.into_iter().next())
}

/// Whether a record may be trusted at that time.
pub fn is_current(row: &[Value], now: &str) -> bool {
    let [.., status, _, expires] = row else { return false };
    status.as_text() == "current" && expires.as_option().is_none_or(|expires| expires > now)
}

/// The records with this hash that may be trusted, or all of them.
pub fn by_hash(
    db: &mut dyn Connection,
    hash: &str,
    now: &str,
    all: bool,
    page: Page,
) -> Result<Vec<Row>, DbError> {
    let values = [Value::text(hash), Value::text(now), Value::Int(page.limit), Value::Int(page.offset)];
    if all {
        let sql = page_of!(server_columns!(), "servers", "hash = $1 AND $2 <> ''", "$3", "$4");
        return self::page(db, sql, &values);
    }
    let sql = page_of!(
        server_columns!(),
        "servers",
        "hash = $1 AND status = 'current' AND (expires_at IS NULL OR expires_at > $2)",
        "$3",
        "$4"
    );
    self::page(db, sql, &values)
}

/// A page of the servers, newest first, and how many there are. Without a name: of all names.
pub fn list(
    db: &mut dyn Connection,
    name: Option<&str>,
    now: &str,
    all: bool,
    page: Page,
) -> Result<(Vec<Row>, i64), DbError> {
    const TRUSTED: &str =
        "SELECT COUNT(*) FROM servers WHERE status = 'current' AND (expires_at IS NULL OR expires_at > $1)";
    let (limit, offset) = (Value::Int(page.limit), Value::Int(page.offset));
    let (rows, total) = match (name, all) {
        (None, false) => {
            let sql = page_of!(
                server_columns!(),
                "servers",
                "status = 'current' AND (expires_at IS NULL OR expires_at > $1)",
                "$2",
                "$3"
            );
            let now = Value::text(now);
            (self::page(db, sql, &[now.clone(), limit, offset])?, db.rows(TRUSTED, &[now])?)
        }
        (None, true) => {
            let sql = page_of!(server_columns!(), "servers", "id > 0", "$1", "$2");
            (self::page(db, sql, &[limit, offset])?, db.rows("SELECT COUNT(*) FROM servers", &[])?)
        }
        (Some(name), false) => {
            let sql = page_of!(
                server_columns!(),
                "servers",
                "name = $1 AND status = 'current' AND (expires_at IS NULL OR expires_at > $2)",
                "$3",
                "$4"
            );
            let values = [Value::text(name), Value::text(now)];
            let count = "SELECT COUNT(*) FROM servers WHERE name = $1 AND status = 'current' AND (expires_at IS NULL \
                         OR expires_at > $2)";
            let total = db.rows(count, &values)?;
            let [name, now] = values;
            (self::page(db, sql, &[name, now, limit, offset])?, total)
        }
        (Some(name), true) => {
            let sql = page_of!(server_columns!(), "servers", "name = $1", "$2", "$3");
            let name = Value::text(name);
            let total =
                db.rows("SELECT COUNT(*) FROM servers WHERE name = $1", std::slice::from_ref(&name))?;
            (self::page(db, sql, &[name, limit, offset])?, total)
        }
    };
    Ok((rows, first(&total)))
}

pub fn approval(db: &mut dyn Connection, id: i64, now: &str) -> Result<Option<Row>, DbError> {
    let sql = concat!("SELECT ", approval_columns!(), " FROM approvals WHERE id = $2");
    Ok(db.rows(sql, &[Value::text(now), Value::Int(id)])?.into_iter().next())
}

/// A page of the requests in one state, newest first, and how many there are.
pub fn approvals(
    db: &mut dyn Connection,
    status: &str,
    now: &str,
    page: Page,
) -> Result<(Vec<Row>, i64), DbError> {
    let (now, status) = (Value::text(now), Value::text(status));
    let sql = page_of!(
        approval_columns!(),
        "approvals",
        "status = $2 AND (status <> 'pending' OR expires_at > $1)",
        "$3",
        "$4"
    );
    let count =
        "SELECT COUNT(*) FROM approvals WHERE status = $1 AND (status <> 'pending' OR expires_at > $2)";
    let total = db.rows(count, &[status.clone(), now.clone()])?;
    let rows = self::page(db, sql, &[now, status, Value::Int(page.limit), Value::Int(page.offset)])?;
    Ok((rows, first(&total)))
}

/// The log behind an entry, oldest first.
pub fn log(db: &mut dyn Connection, after: i64, limit: i64) -> Result<Vec<(Entry, String)>, DbError> {
    let sql = "SELECT seq, at, actor, action, name, hash, detail, previous, digest FROM log WHERE seq > $1 \
               ORDER BY seq LIMIT $2";
    let rows = db.rows(sql, &[Value::Int(after), Value::Int(limit)])?;
    Ok(rows.iter().filter_map(|row| entry(row)).collect())
}

fn entry(row: &[Value]) -> Option<(Entry, String)> {
    let [seq, at, actor, action, name, hash, detail, previous, digest] = row else { return None };
    let text = |value: &Value| value.as_text().to_owned();
    let entry = Entry {
        seq: seq.as_int(),
        at: text(at),
        actor: text(actor),
        action: text(action),
        name: text(name),
        hash: text(hash),
        detail: text(detail),
        previous: text(previous),
    };
    Some((entry, text(digest)))
}

/// The one number of a count.
pub fn first(rows: &[Row]) -> i64 {
    rows.first().and_then(|row| row.first()).map_or(0, Value::as_int)
}

/// A record as it is answered.
pub fn record_json(row: &[Value]) -> String {
    let mut out = String::new();
    answer::server(row, &mut out);
    out
}

/// A time in kiji's spelling: `2026-07-28T12:00:00.000000+00:00`.
pub fn timestamp_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00").to_string()
}
