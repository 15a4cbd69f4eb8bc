//! Search of registrations and pending requests. Reads an existing database and creates none.

use std::path::{Path, PathBuf};

use agentsh_base::json::{self, Json};
use agentsh_registry::{difference, hash};
use jiff::Timestamp;

use crate::body::DecisionNote;
use crate::changes::{self, Ledger, Requester, Times};
use crate::db::{Connection, Database, DbError, Row, Value};
use crate::reads::{Page, timestamp_text};
use crate::refusal::Refusal;
use crate::{names, reads, schema};

#[derive(Clone, Debug)]
pub struct Registered {
    pub id: i64,
    pub name: String,
    /// The ASCII lookalike of a name that is not ASCII.
    pub reads_like: Option<String>,
    pub hash: String,
    /// Whether the interface on record has that hash, computed now.
    pub is_right: bool,
    pub status: String,
    pub registered_at: String,
    pub registered_by: String,
    pub expires_at: Option<String>,
    /// Each component as canonical JSON.
    pub components: Vec<String>,
}

/// A changed interface that waits for a decision.
#[derive(Clone, Debug)]
pub struct PendingApproval {
    pub id: i64,
    pub name: String,
    /// Like [`Registered`].
    pub reads_like: Option<String>,
    /// The hash that the requester has stored.
    pub recorded: Option<String>,
    pub hash: String,
    /// From what is in force, computed when it was asked.
    pub diff: String,
    pub created_at: String,
    pub expires_at: String,
}

/// A database that is looked into. Its calls wait for the disk.
pub struct Catalogue(Box<dyn Connection>, PathBuf);

impl Catalogue {
    /// None: nothing was ever registered there.
    ///
    /// # Errors
    /// When the database cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>, DbError> {
        if !path.exists() {
            return Ok(None);
        }
        Database::File(path.to_owned())
            .connect(None)
            .map(|connection| Some(Self(connection, path.to_owned())))
    }

    /// See [`search`].
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn search(&mut self, text: &str, before: i64, limit: i64) -> Result<(Vec<Registered>, i64), DbError> {
        search(self.0.as_mut(), text, before, limit)
    }

    /// See [`registration`].
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn registration(&mut self, id: i64) -> Result<Option<(Registered, Option<String>)>, DbError> {
        registration(self.0.as_mut(), id)
    }

    /// The pending requests, the newest first, 100 at most.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn pending_requests(&mut self) -> Result<Vec<PendingApproval>, DbError> {
        pending_requests(self.0.as_mut(), &timestamp_text(Timestamp::now()))
    }

    /// The number of pending requests.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn count_requested(&mut self) -> Result<usize, DbError> {
        let none = Page { limit: 0, offset: 0 };
        let (_, count) =
            reads::approvals(self.0.as_mut(), "pending", &timestamp_text(Timestamp::now()), none)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Approves or rejects a request in the name of an operator, and returns its status: not the requested one if another
    /// person was first, or if it has expired. None: there is no such request. The new interface is valid as long as the one
    /// that it replaces.
    ///
    /// # Errors
    /// When the database cannot be written; nothing was changed then.
    pub fn decide(
        &self,
        id: i64,
        approve: bool,
        reason: &str,
        operator: &str,
    ) -> Result<Option<String>, DbError> {
        let mut db = Database::File(self.1.clone()).connect(Some(schema::WRITERS))?;
        let now = Timestamp::now();
        db.begin()?;
        let decided = expiry(db.as_mut(), id, now).and_then(|expires| {
            let times = Times { now: timestamp_text(now), expires, answer_by: String::new() };
            let remark = DecisionNote { reason: reason.to_owned(), ..DecisionNote::default() };
            let who = Requester::Operator(operator.to_owned());
            match changes::decide(&mut Ledger::new(db.as_mut()), id, approve, &remark, &who, &times) {
                Ok(row) => Ok(Some(row.get(6).map_or("", Value::as_text).to_owned())),
                Err(Refusal::Missing(_)) => Ok(None),
                Err(Refusal::Unavailable(why)) => Err(DbError(why)),
                Err(other) => Err(DbError(format!("{other:?}"))),
            }
        });
        match decided {
            Ok(status) => db.commit().map(|()| status),
            Err(error) => {
                db.rollback();
                Err(error)
            }
        }
    }
}

/// The expiry of the newest registration of the name that a request is about.
fn expiry(db: &mut dyn Connection, id: i64, now: Timestamp) -> Result<Option<String>, DbError> {
    const NEWEST: &str = "SELECT registered_at, expires_at FROM servers WHERE name = (SELECT name FROM approvals WHERE id = $1) \
        ORDER BY id DESC LIMIT 1";
    let rows = db.rows(NEWEST, &[Value::Int(id)])?;
    let Some([at, expires]) = rows.first().map(Vec::as_slice) else { return Ok(None) };
    let time = |value: &Value| value.as_option()?.parse::<Timestamp>().ok();
    let (Some(at), Some(expires)) = (time(at), time(expires)) else { return Ok(None) };
    Ok(now.checked_add(expires.duration_since(at)).ok().map(timestamp_text))
}

/// Registrations whose name has `text` in it, whose hash begins with it, or that offer a tool of that name: those before
/// `before`, the newest first, and how many there are in all.
pub fn search(
    db: &mut dyn Connection,
    text: &str,
    before: i64,
    limit: i64,
) -> Result<(Vec<Registered>, i64), DbError> {
    // Replacing a text changes its length: both kinds of database can do that, so it serves as the search.
    const ROWS: &str = "SELECT id, name, hash, interface, registered_at, summary, status, registered_by, expires_at \
        FROM servers WHERE ($1 = '' OR replace(lower(name), $1, '') <> lower(name) OR substr(hash, 1, length($2)) = $2 OR \
        replace(interface, $3, '') <> interface) AND id < $4 ORDER BY id DESC LIMIT $5";
    const COUNT: &str = "SELECT COUNT(*) FROM servers WHERE $1 = '' OR replace(lower(name), $1, '') <> lower(name) OR \
        substr(hash, 1, length($2)) = $2 OR replace(interface, $3, '') <> interface";
    let text = text.trim();
    let digits =
        ["sha256:", "kiji1:", "mcp:"].iter().find_map(|start| text.strip_prefix(start)).unwrap_or(text);
    // The text as a component spells it.
    let tool = format!("\"name\":\"{}\"", json::escape_text(text));
    let mut values =
        vec![Value::text(text.to_lowercase()), Value::text(digits.to_lowercase()), Value::text(tool)];
    let total = reads::first(&db.rows(COUNT, &values)?);
    values.extend([Value::Int(before), Value::Int(limit)]);
    let rows = db.rows(ROWS, &values)?;
    Ok((rows.iter().filter_map(parse_registered).collect(), total))
}

/// One registration, and the changes since the one of the same name before it.
pub fn registration(
    db: &mut dyn Connection,
    id: i64,
) -> Result<Option<(Registered, Option<String>)>, DbError> {
    const ONE: &str = "SELECT id, name, hash, interface, registered_at, summary, status, registered_by, expires_at \
        FROM servers WHERE id = $1";
    const BEFORE: &str = "SELECT id, name, hash, interface, registered_at, summary, status, registered_by, expires_at \
        FROM servers WHERE name = $1 AND id < $2 ORDER BY id DESC LIMIT 1";
    let rows = db.rows(ONE, &[Value::Int(id)])?;
    let Some(found) = rows.first().and_then(parse_registered) else { return Ok(None) };
    let rows = db.rows(BEFORE, &[Value::text(found.name.clone()), Value::Int(id)])?;
    let before = rows.first().and_then(parse_registered);
    let changed = before.map(|before| difference(&before.components, &found.components));
    Ok(Some((found, changed)))
}

/// The requests that are pending at that time, the newest first.
pub fn pending_requests(db: &mut dyn Connection, now: &str) -> Result<Vec<PendingApproval>, DbError> {
    let (rows, _) = reads::approvals(db, "pending", now, Page { limit: 100, offset: 0 })?;
    Ok(rows.iter().filter_map(pending_approval).collect())
}

fn pending_approval(row: &Row) -> Option<PendingApproval> {
    let [id, name, recorded, hash, _, diff, _, created, _, _, _, expires, _, _] = row.as_slice() else {
        return None;
    };
    let text = |value: &Value| value.as_text().to_owned();
    Some(PendingApproval {
        id: id.as_int(),
        reads_like: reads_like(name.as_text()),
        name: text(name),
        recorded: recorded.as_option().map(str::to_owned),
        hash: text(hash),
        diff: text(diff),
        created_at: text(created),
        expires_at: text(expires),
    })
}

fn reads_like(name: &str) -> Option<String> {
    (!name.is_ascii()).then(|| names::reading(name))
}

fn parse_registered(row: &Row) -> Option<Registered> {
    let [id, name, hash, interface, at, _, status, by, expires] = row.as_slice() else { return None };
    let components = components(interface.as_text());
    let name = name.as_text().to_owned();
    Some(Registered {
        id: id.as_int(),
        reads_like: reads_like(&name),
        name,
        is_right: self::hash(components.iter().map(String::as_str)) == hash.as_text(),
        hash: hash.as_text().to_owned(),
        status: status.as_text().to_owned(),
        registered_at: at.as_text().to_owned(),
        registered_by: by.as_text().to_owned(),
        expires_at: expires.as_option().map(str::to_owned),
        components,
    })
}

/// The components of an interface as it was registered, each in its canonical spelling.
fn components(interface: &str) -> Vec<String> {
    let read = json::read_to_depth(interface.as_bytes(), agentsh_registry::MAX_DEPTH);
    match read {
        Ok(Json::Array(items)) => items.iter().map(agentsh_registry::canonical).collect(),
        _ => Vec::new(),
    }
}
