//! Changes, each in a transaction without other writers, so that the first of two concurrent changes is the first for
//! everybody.

use agentsh_registry::difference;

use crate::body::{ApprovalRequest, Registration, Submission};
use crate::db::{Connection, DbError, Row, Value};
use crate::entry::{Entry, GENESIS};
use crate::names::skeleton;
use crate::reads;
use crate::refusal::Refusal;

/// Requests that wait for a person, in all and for one name.
const MAX_PENDING: i64 = 1_000;
const MAX_PENDING_PER_NAME: i64 = 20;

/// The author of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    Operator(String),
    /// A host of a fleet: it may do what anyone may.
    Host(String),
    /// A client without a token, on an open registry.
    Anyone,
}

/// When, and until when what is registered now holds.
#[derive(Clone, Debug)]
pub struct Times {
    pub now: String,
    pub expires: Option<String>,
    /// The deadline of a request for approval.
    pub answer_by: String,
}

/// The database during a transaction, and what the transaction knows of it.
pub struct Ledger<'a> {
    db: &'a mut dyn Connection,
    /// The highest id in `servers`: rows are never deleted, so it counts them.
    last_server: Option<i64>,
    /// Number and digest of the last entry of the log.
    tip: Option<(i64, String)>,
}

impl Requester {
    pub fn name(&self) -> &str {
        match self {
            Self::Operator(name) | Self::Host(name) => name,
            Self::Anyone => "anyone",
        }
    }
}

impl<'a> Ledger<'a> {
    pub fn new(db: &'a mut dyn Connection) -> Self {
        Self { db, last_server: None, tip: None }
    }

    /// Adds an entry to the log.
    fn note(
        &mut self,
        who: &Requester,
        times: &Times,
        action: &str,
        one: (&str, &str),
        detail: &str,
    ) -> Result<(), DbError> {
        let tip = match self.tip.take() {
            Some(tip) => tip,
            None => {
                let last = self.db.rows("SELECT seq, digest FROM log ORDER BY seq DESC LIMIT 1", &[])?;
                match last.first().map(Vec::as_slice) {
                    Some([seq, digest]) => (seq.as_int(), digest.as_text().to_owned()),
                    _ => (0, GENESIS.to_owned()),
                }
            }
        };
        let entry = Entry {
            seq: tip.0 + 1,
            at: times.now.clone(),
            actor: who.name().to_owned(),
            action: action.to_owned(),
            name: one.0.to_owned(),
            hash: one.1.to_owned(),
            detail: detail.to_owned(),
            previous: tip.1,
        };
        let digest = entry.digest();
        self.db.change(
            "INSERT INTO log (seq, at, actor, action, name, hash, detail, previous, digest) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &[
                Value::Int(entry.seq),
                Value::Text(entry.at),
                Value::Text(entry.actor),
                Value::Text(entry.action),
                Value::Text(entry.name),
                Value::Text(entry.hash),
                Value::Text(entry.detail),
                Value::Text(entry.previous),
                Value::text(&digest),
            ],
        )?;
        self.tip = Some((entry.seq, digest));
        Ok(())
    }

    fn next_server(&mut self) -> Result<i64, DbError> {
        let last = match self.last_server {
            Some(last) => last,
            None => reads::first(&self.db.rows("SELECT COALESCE(MAX(id), 0) FROM servers", &[])?),
        };
        self.last_server = Some(last + 1);
        Ok(last + 1)
    }
}

/// Registers an interface under its name, and returns its record. Without an operator only a free name can be registered.
pub fn register(
    ledger: &mut Ledger<'_>,
    registration: &Registration,
    who: &Requester,
    times: &Times,
    most: i64,
) -> Result<Row, Refusal> {
    let Registration { submission, keep } = registration;
    let known = reads::record(ledger.db, &submission.name, &submission.hash)?;
    if let Some(row) = &known
        && reads::is_current(row, &times.now)
    {
        return Ok(row.clone());
    }
    if !matches!(who, Requester::Operator(_)) {
        may_be_first(ledger, submission)?;
        let last = reads::first(&ledger.db.rows("SELECT COALESCE(MAX(id), 0) FROM servers", &[])?);
        if last >= most {
            return Err(Refusal::TooMany("the registry is full"));
        }
    }
    put_in_force(ledger, submission, who, times, "")?;
    if !keep {
        supersede_others(ledger, submission, who, times)?;
    }
    compare_again(ledger, &submission.name, None)?;
    require_row(reads::record(ledger.db, &submission.name, &submission.hash)?)
}

/// Why this may not be registered without a token, if so.
fn may_be_first(ledger: &mut Ledger<'_>, submission: &Submission) -> Result<(), Refusal> {
    let alike = "SELECT name, hash, status FROM servers WHERE skeleton = $1 ORDER BY id DESC LIMIT 1";
    let found = ledger.db.rows(alike, &[Value::text(skeleton(&submission.name))])?;
    if let Some([name, hash, status]) = found.first().map(Vec::as_slice) {
        let (name, hash, status) = (name.as_text(), hash.as_text(), status.as_text());
        return Err(Refusal::Conflict(if name != submission.name {
            format!(
                "'{}' looks like '{name}', which is registered: only an operator can register it",
                submission.name
            )
        } else if hash == submission.hash {
            format!("this interface of '{name}' is {status} or has expired: only an operator can register it")
        } else {
            format!("'{name}' is registered with another interface (hash {hash}): request an approval")
        }));
    }
    let refused =
        "SELECT id FROM approvals WHERE name = $1 AND new_hash = $2 AND status = 'rejected' LIMIT 1";
    let values = [Value::text(&submission.name), Value::text(&submission.hash)];
    if !ledger.db.rows(refused, &values)?.is_empty() {
        return Err(Refusal::Conflict(format!("this interface of '{}' was rejected", submission.name)));
    }
    Ok(())
}

fn put_in_force(
    ledger: &mut Ledger<'_>,
    submission: &Submission,
    who: &Requester,
    times: &Times,
    detail: &str,
) -> Result<(), DbError> {
    let changed = ledger.db.change(
        "UPDATE servers SET status = 'current', registered_at = $1, registered_by = $2, expires_at = $3 \
         WHERE name = $4 AND hash = $5",
        &[
            Value::text(&times.now),
            Value::text(who.name()),
            Value::optional(times.expires.as_deref()),
            Value::text(&submission.name),
            Value::text(&submission.hash),
        ],
    )?;
    if changed == 0 {
        let id = ledger.next_server()?;
        ledger.db.change(
            "INSERT INTO servers (id, name, skeleton, hash, interface, summary, size, status, registered_at, \
             registered_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 'current', $8, $9, $10)",
            &[
                Value::Int(id),
                Value::text(&submission.name),
                Value::text(skeleton(&submission.name)),
                Value::text(&submission.hash),
                Value::text(&submission.interface),
                Value::text(&submission.summary),
                Value::Int(length(&submission.interface)),
                Value::text(&times.now),
                Value::text(who.name()),
                Value::optional(times.expires.as_deref()),
            ],
        )?;
    }
    ledger.note(who, times, "registered", (&submission.name, &submission.hash), detail)
}

/// Takes the other interfaces of the name out of force: an old one that is known to be bad must not come back.
fn supersede_others(
    ledger: &mut Ledger<'_>,
    submission: &Submission,
    who: &Requester,
    times: &Times,
) -> Result<(), DbError> {
    let values = [Value::text(&submission.name), Value::text(&submission.hash)];
    let others = "SELECT hash FROM servers WHERE name = $1 AND hash <> $2 AND status = 'current'";
    let others = ledger.db.rows(others, &values)?;
    if others.is_empty() {
        return Ok(());
    }
    let sql =
        "UPDATE servers SET status = 'superseded' WHERE name = $1 AND hash <> $2 AND status = 'current'";
    ledger.db.change(sql, &values)?;
    for other in &others {
        let hash = other.first().map_or("", Value::as_text);
        ledger.note(who, times, "superseded", (&submission.name, hash), &submission.hash)?;
    }
    Ok(())
}

/// Opens a request for approval, or gives the one that there is: the same request twice is one, and what a person
/// rejected stays rejected.
pub fn request(
    ledger: &mut Ledger<'_>,
    request: &ApprovalRequest,
    who: &Requester,
    times: &Times,
) -> Result<Row, Refusal> {
    let submission = &request.submission;
    let (name, hash) = (Value::text(&submission.name), Value::text(&submission.hash));
    ledger.db.change(
        "UPDATE approvals SET status = 'expired', resolved_at = $1 WHERE status = 'pending' AND expires_at <= $1",
        &[Value::text(&times.now)],
    )?;
    let known = "SELECT id, status FROM approvals WHERE name = $1 AND new_hash = $2 ORDER BY id DESC LIMIT 1";
    let known = ledger.db.rows(known, &[name.clone(), hash.clone()])?;
    if let Some([id, status]) = known.first().map(Vec::as_slice) {
        let record = reads::record(ledger.db, &submission.name, &submission.hash)?;
        let in_force = record.is_some_and(|row| reads::is_current(&row, &times.now));
        if matches!(status.as_text(), "pending" | "rejected") || (status.as_text() == "approved" && in_force)
        {
            return require_row(reads::approval(ledger.db, id.as_int(), &times.now)?);
        }
    }
    let of_name = "SELECT COUNT(*) FROM approvals WHERE status = 'pending' AND name = $1";
    if reads::first(&ledger.db.rows("SELECT COUNT(*) FROM approvals WHERE status = 'pending'", &[])?)
        >= MAX_PENDING
        || reads::first(&ledger.db.rows(of_name, std::slice::from_ref(&name))?) >= MAX_PENDING_PER_NAME
    {
        return Err(Refusal::TooMany("too many pending approval requests"));
    }
    let id = reads::first(&ledger.db.rows("SELECT COALESCE(MAX(id), 0) FROM approvals", &[])?) + 1;
    ledger.db.change(
        "INSERT INTO approvals (id, name, recorded_hash, new_hash, new_interface, summary, size, diff, submitted_diff, \
         status, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 'pending', $10, $11)",
        &[
            Value::Int(id),
            name,
            Value::optional(request.recorded.as_deref()),
            hash,
            Value::text(&submission.interface),
            Value::text(&submission.summary),
            Value::Int(length(&submission.interface)),
            Value::text(""),
            Value::text(&request.diff),
            Value::text(&times.now),
            Value::text(&times.answer_by),
        ],
    )?;
    ledger.note(who, times, "asked", (&submission.name, &submission.hash), &format!("approval {id}"))?;
    compare_again(ledger, &submission.name, Some(id))?;
    require_row(reads::approval(ledger.db, id, &times.now)?)
}

/// Compares the requests that wait for a person, or `only` this one, with what is in force now, whatever their authors said
/// of it.
fn compare_again(ledger: &mut Ledger<'_>, name: &str, only: Option<i64>) -> Result<(), DbError> {
    let current =
        "SELECT hash, interface FROM servers WHERE name = $1 AND status = 'current' ORDER BY id DESC LIMIT 1";
    let current = ledger.db.rows(current, &[Value::text(name)])?;
    let [hash, interface] = [0, 1].map(|at| current.first().and_then(|row| row.get(at)).map(Value::as_text));
    let before = components(interface.unwrap_or_default());
    let waiting = "SELECT id, new_interface FROM approvals WHERE name = $1 AND status = 'pending'";
    for row in ledger.db.rows(waiting, &[Value::text(name)])? {
        let [id, wanted] = row.as_slice() else { continue };
        if only.is_some_and(|only| only != id.as_int()) {
            continue;
        }
        let diff = difference(&before, &components(wanted.as_text()));
        ledger.db.change(
            "UPDATE approvals SET recorded_hash = COALESCE($1, recorded_hash), diff = $2 WHERE id = $3",
            &[Value::optional(hash), Value::text(diff), id.clone()],
        )?;
    }
    Ok(())
}

/// The canonical texts in a stored interface.
fn components(interface: &str) -> Vec<String> {
    let tree = agentsh_base::json::read_to_depth(interface.as_bytes(), agentsh_registry::MAX_DEPTH);
    let items = tree.as_ref().ok().and_then(|tree| tree.as_array()).unwrap_or_default();
    items.iter().map(agentsh_registry::canonical).collect()
}

/// Approves or rejects a request. One that was decided, or has expired, stays as it is and is given back.
pub fn decide(
    ledger: &mut Ledger<'_>,
    id: i64,
    approve: bool,
    remark: &crate::body::DecisionNote,
    who: &Requester,
    times: &Times,
) -> Result<Row, Refusal> {
    let status = if approve { "approved" } else { "rejected" };
    let changed = ledger.db.change(
        "UPDATE approvals SET status = $1, resolved_at = $2, resolved_by = $3, reason = $4 \
         WHERE id = $5 AND status = 'pending' AND expires_at > $2",
        &[
            Value::text(status),
            Value::text(&times.now),
            Value::text(who.name()),
            Value::text(&remark.reason),
            Value::Int(id),
        ],
    )?;
    let row = reads::approval(ledger.db, id, &times.now)?;
    let row = row.ok_or(Refusal::Missing("no approval request with this id"))?;
    if changed == 0 {
        return Ok(row);
    }
    let asked = ledger.db.rows(
        "SELECT name, new_hash, new_interface, summary FROM approvals WHERE id = $1",
        &[Value::Int(id)],
    )?;
    let Some([name, hash, interface, summary]) = asked.first().map(Vec::as_slice) else { return Ok(row) };
    let text = |value: &Value| value.as_text().to_owned();
    let submission = Submission {
        name: text(name),
        hash: text(hash),
        interface: text(interface),
        components: Vec::new(),
        summary: text(summary),
    };
    ledger.note(who, times, status, (&submission.name, &submission.hash), &remark.reason)?;
    if approve {
        put_in_force(ledger, &submission, who, times, &format!("approval {id}"))?;
        if !remark.keep {
            supersede_others(ledger, &submission, who, times)?;
        }
        compare_again(ledger, &submission.name, None)?;
    }
    Ok(row)
}

/// Takes an interface out of force, under one name or all, and gives the records.
pub fn revoke(
    ledger: &mut Ledger<'_>,
    hash: &str,
    remark: &crate::body::DecisionNote,
    who: &Requester,
    times: &Times,
) -> Result<Vec<Row>, Refusal> {
    let found = "SELECT name FROM servers WHERE hash = $1 AND status <> 'revoked'";
    let found = ledger.db.rows(found, &[Value::text(hash)])?;
    let mut revoked = Vec::new();
    for row in &found {
        let name = row.first().map_or("", Value::as_text);
        if remark.name.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        ledger.db.change(
            "UPDATE servers SET status = 'revoked' WHERE name = $1 AND hash = $2",
            &[Value::text(name), Value::text(hash)],
        )?;
        ledger.note(who, times, "revoked", (name, hash), &remark.reason)?;
        compare_again(ledger, name, None)?;
        revoked.extend(reads::record(ledger.db, name, hash)?);
    }
    if revoked.is_empty() {
        Err(Refusal::Missing("no server registered with this hash"))
    } else {
        Ok(revoked)
    }
}

fn require_row(row: Option<Row>) -> Result<Row, Refusal> {
    row.ok_or_else(|| Refusal::Unavailable("cannot read back a row that was just written".into()))
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}
