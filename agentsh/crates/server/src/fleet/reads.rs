//! Queries of people. An answer has at most [`MAX_ROWS`] rows and [`MAX_BYTES`] of text.

use std::collections::BTreeMap;

use agentsh_database::{Connection, DbError, Row as Columns, Value};

use crate::fleet::calls::add_calls;
use crate::fleet::schema::LOW_BITS;
use crate::fleet::tally::indexed;
use agentsh_fleet::wire::{Host, Incident, Person, Row, Rows, SelfCheck, ServerRow, SessionRow};
use agentsh_store::severities_from;

pub(crate) const MAX_ROWS: i64 = 1000;
const MAX_BYTES: usize = 8 << 20;
/// Incidents that are shown of one host.
const MAX_INCIDENTS: i64 = 10;
/// How far the clock of a host may be ahead of when its events arrive, in microseconds: beyond five minutes nothing is taken.
const MAX_CLOCK_LEAD_US: i64 = 600_000_000;

const EVENT: &str = "id, host, session, seq, time, hash, body";

/// The filter of a query; None and empty select all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub kinds: Vec<String>,
    pub host: Option<String>,
    pub session: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub action: Option<String>,
    pub severity: Option<String>,
    pub since: Option<String>,
    pub before: Option<i64>,
    /// With the calls that verdicts are about.
    pub with_calls: bool,
    pub limit: i64,
}

/// A question that is put together.
struct Question {
    text: String,
    values: Vec<Value>,
}

impl Question {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), values: Vec::new() }
    }

    fn add_condition(&mut self, condition: &str, value: Value) {
        self.text.push_str(" AND ");
        self.text.push_str(condition);
        self.bind(value);
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn bind(&mut self, value: Value) {
        self.values.push(value);
        self.text.push_str(&format!("${}", self.values.len()));
    }

    fn one_of<'v>(&mut self, column: &str, values: impl Iterator<Item = &'v str>) {
        for (number, value) in values.enumerate() {
            self.push(&if number > 0 { ", ".to_owned() } else { format!(" AND {column} IN (") });
            self.bind(Value::text(value));
        }
        self.push(")");
    }

    fn ask(&self, db: &mut dyn Connection) -> Result<Vec<Columns>, DbError> {
        db.rows(&self.text, &self.values)
    }
}

/// The newest events that match, the newest first.
pub(crate) fn events(db: &mut dyn Connection, asked: &Filter) -> Result<Rows, DbError> {
    let host = match &asked.host {
        None => None,
        Some(named) => match host_ids(db, named)?.as_slice() {
            [] => return Ok(Rows::default()),
            ids => Some(ids.to_vec()),
        },
    };
    let limit = asked.limit.clamp(1, MAX_ROWS);
    let mut found = Vec::new();
    // One query for each type: each has an index in the order of the answer.
    let kinds: Vec<Option<&String>> =
        if asked.kinds.is_empty() { vec![None] } else { asked.kinds.iter().map(Some).collect() };
    for kind in kinds {
        let mut question = Question::new(&format!("SELECT {EVENT} FROM events WHERE TRUE"));
        let texts = [
            ("type = ", kind),
            ("session = ", asked.session.as_ref()),
            ("server_id = ", asked.server.as_ref()),
            ("tool_name = ", asked.tool.as_ref()),
            ("action = ", asked.action.as_ref()),
            ("time >= ", asked.since.as_ref()),
        ];
        for (condition, value) in texts {
            if let Some(value) = value {
                question.add_condition(condition, Value::Text(indexed(value)));
            }
        }
        if let Some(least) = &asked.severity {
            question.one_of("severity", severities_from(least));
        }
        if let Some(ids) = &host {
            question.one_of("host", ids.iter().map(String::as_str));
        }
        if let Some(before) = asked.before {
            question.add_condition("id < ", Value::Int(before));
        }
        // An event arrived after it was recorded, so older arrivals are skipped.
        if let Some(first) = asked.since.as_deref().and_then(arrived_since) {
            question.add_condition("id >= ", Value::Int(first));
        }
        // Within one session both orders are the same (`Places`), and this one has an index.
        question.push(if asked.session.is_some() {
            " ORDER BY seq DESC LIMIT "
        } else {
            " ORDER BY id DESC LIMIT "
        });
        question.bind(Value::Int(limit + 1));
        found.extend(question.ask(db)?.iter().filter_map(|row| event(row)));
    }
    found.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
    let mut rows = cut_page(found, usize::try_from(limit).unwrap_or(1));
    if asked.with_calls {
        add_calls(db, &mut rows)?;
    }
    Ok(rows)
}

/// The first place that an event of this time or later can have.
fn arrived_since(since: &str) -> Option<i64> {
    let time: jiff::Timestamp = since.parse().ok()?;
    time.as_microsecond().checked_sub(MAX_CLOCK_LEAD_US)?.checked_mul(1 << LOW_BITS)
}

/// A page of at most `limit` rows. One row always fits.
fn cut_page(found: Vec<(i64, Row)>, limit: usize) -> Rows {
    let mut taken = 0_usize;
    let mut rows = Rows::default();
    for (_, row) in found {
        taken = taken.saturating_add(row.body.len());
        if rows.rows.len() == limit || (taken > MAX_BYTES && !rows.rows.is_empty()) {
            rows.next = rows.rows.last().map(|last| last.at.clone());
            break;
        }
        rows.rows.push(row);
    }
    rows
}

pub(crate) fn event(row: &[Value]) -> Option<(i64, Row)> {
    let [id, host, session, seq, time, hash, body] = row else { return None };
    Some((
        id.as_int(),
        Row {
            at: id.as_int().to_string(),
            host: host.as_text().to_owned(),
            session: session.as_text().to_owned(),
            seq: u64::try_from(seq.as_int()).unwrap_or_default(),
            time: time.as_text().to_owned(),
            hash: hash.as_text().to_owned(),
            body: body.as_text().to_owned(),
        },
    ))
}

/// Ids of the hosts that go by a name or an id.
fn host_ids(db: &mut dyn Connection, named: &str) -> Result<Vec<String>, DbError> {
    let rows = db.rows("SELECT id FROM hosts WHERE id = $1 OR name = $1 LIMIT 100", &[Value::text(named)])?;
    Ok(rows.iter().filter_map(|row| Some(row.first()?.as_text().to_owned())).collect())
}

/// Events of one session after a place, in order.
pub(crate) fn of_session(db: &mut dyn Connection, session: &str, after: i64) -> Result<Rows, DbError> {
    let text = "SELECT id, host, session, seq, time, hash, body FROM events WHERE session = $1 AND seq > $2 \
                ORDER BY seq LIMIT $3";
    let values = [Value::text(session), Value::Int(after), Value::Int(MAX_ROWS + 1)];
    let found = db.rows(text, &values)?.iter().filter_map(|row| event(row)).collect();
    let mut rows = cut_page(found, usize::try_from(MAX_ROWS).unwrap_or(1));
    rows.next = rows.next.and_then(|_| rows.rows.last().map(|last| last.seq.to_string()));
    Ok(rows)
}

/// The newest sessions whose id begins like this.
pub(crate) fn sessions(
    db: &mut dyn Connection,
    begins: &str,
    host: Option<&str>,
    limit: i64,
) -> Result<Vec<SessionRow>, DbError> {
    let mut question = Question::new(
        "SELECT id, host, seq, first_at, last_at, verb, project, ended, first_link FROM sessions WHERE TRUE",
    );
    if !begins.is_empty() {
        question.add_condition("id >= ", Value::text(begins));
        question.add_condition("id < ", Value::text(format!("{begins}g")));
    }
    if let Some(host) = host {
        question.add_condition("host IN (SELECT id FROM hosts WHERE name = ", Value::text(host));
        question.push(" OR id = ");
        question.bind(Value::text(host));
        question.push(")");
    }
    question.push(" ORDER BY first_event DESC LIMIT ");
    question.bind(Value::Int(limit.clamp(1, MAX_ROWS)));
    let rows = question.ask(db)?;
    let session = |row: &Columns| {
        let [id, host, seq, first_at, last_at, verb, project, ended, first_link] = row.as_slice() else {
            return None;
        };
        let text = |value: &Value| value.as_text().to_owned();
        Some(SessionRow {
            session: text(id),
            host: text(host),
            events: seq.as_int(),
            first_at: text(first_at),
            last_at: text(last_at),
            verb: text(verb),
            project: text(project),
            ended: ended.as_int() != 0,
            first_link: text(first_link),
        })
    };
    Ok(rows.iter().filter_map(session).collect())
}

pub(crate) fn servers(db: &mut dyn Connection, asked: &Filter) -> Result<Vec<ServerRow>, DbError> {
    let mut question = Question::new(
        "SELECT host, server_id, last_status, last_at, calls, blocked + refusals, program, hash, project, last_session \
         FROM servers WHERE TRUE",
    );
    let texts = [
        ("server_id = ", asked.server.as_ref()),
        ("last_session = ", asked.session.as_ref()),
        ("last_at >= ", asked.since.as_ref()),
    ];
    for (condition, value) in texts {
        if let Some(value) = value {
            question.add_condition(condition, Value::Text(indexed(value)));
        }
    }
    if let Some(host) = &asked.host {
        question.add_condition("host IN (SELECT id FROM hosts WHERE name = ", Value::text(host.as_str()));
        question.push(" OR id = ");
        question.bind(Value::text(host.as_str()));
        question.push(")");
    }
    question.push(" ORDER BY server_id, host, id LIMIT ");
    question.bind(Value::Int(asked.limit.clamp(1, MAX_ROWS)));
    let rows = question.ask(db)?;
    let server = |row: &Columns| {
        let [host, server_id, status, at, calls, refused, program, hash, project, session] = row.as_slice()
        else {
            return None;
        };
        let text = |value: &Value| value.as_text().to_owned();
        Some(ServerRow {
            host: text(host),
            server_id: text(server_id),
            last_status: Some(text(status))
                .filter(|word| !word.is_empty())
                .unwrap_or_else(|| "seen".to_owned()),
            last_at: text(at),
            calls: calls.as_int(),
            refused: refused.as_int(),
            program: text(program),
            hash: text(hash),
            project: text(project),
            last_session: text(session),
        })
    };
    Ok(rows.iter().filter_map(server).collect())
}

/// Every host, by its name.
pub(crate) fn hosts(db: &mut dyn Connection) -> Result<Vec<Host>, DbError> {
    let rows = db.rows(
        "SELECT id, name, state, enrolled_at, seen_at, version, last_id, \
         (SELECT count(*) FROM sessions WHERE sessions.host = hosts.id) FROM hosts ORDER BY name, id",
        &[],
    )?;
    let mut incidents = incidents(db)?;
    let host = |row: &Columns| {
        let [id, name, state, enrolled_at, seen_at, version, events, sessions] = row.as_slice() else {
            return None;
        };
        let text = |value: &Value| value.as_text().to_owned();
        Some(Host {
            id: text(id),
            name: text(name),
            state: text(state),
            enrolled_at: text(enrolled_at),
            seen_at: text(seen_at),
            version: text(version),
            events: events.as_int(),
            sessions: sessions.as_int(),
            incidents: incidents.remove(id.as_text()).unwrap_or_default(),
        })
    };
    Ok(rows.iter().filter_map(host).collect())
}

/// Credentials of people, the newest first.
pub(crate) fn people(db: &mut dyn Connection) -> Result<Vec<Person>, DbError> {
    let text = "SELECT name, role, made_at, revoked_at FROM people ORDER BY made_at DESC LIMIT $1";
    let rows = db.rows(text, &[Value::Int(MAX_ROWS)])?;
    let person = |row: &Columns| {
        let [name, role, made_at, revoked_at] = row.as_slice() else { return None };
        let text = |value: &Value| value.as_text().to_owned();
        let revoked_at = revoked_at.as_option().map(str::to_owned);
        let (name, role, made_at) = (text(name), text(role), text(made_at));
        Some(Person { name, role, made_at, revoked_at, expires_at: None, subject: None })
    };
    let mut people: Vec<Person> = rows.iter().filter_map(person).collect();
    people.extend(crate::fleet::sign_ins::people(db, MAX_ROWS)?);
    people.sort_by(|one, other| other.made_at.cmp(&one.made_at));
    Ok(people)
}

fn incidents(db: &mut dyn Connection) -> Result<BTreeMap<String, Vec<Incident>>, DbError> {
    let mut by_host: BTreeMap<String, Vec<Incident>> = BTreeMap::new();
    let rows = db.rows(
        "SELECT host, at, kind, session, detail, accepted_by FROM incidents ORDER BY id DESC LIMIT $1",
        &[Value::Int(MAX_ROWS * MAX_INCIDENTS)],
    )?;
    for row in &rows {
        let [host, at, kind, session, detail, accepted_by] = row.as_slice() else { continue };
        let known = by_host.entry(host.as_text().to_owned()).or_default();
        if known.len() < usize::try_from(MAX_INCIDENTS).unwrap_or_default() {
            known.push(Incident {
                at: at.as_text().to_owned(),
                kind: kind.as_text().to_owned(),
                session: session.as_text().to_owned(),
                detail: detail.as_text().to_owned(),
                accepted_by: accepted_by.as_option().map(str::to_owned),
            });
        }
    }
    Ok(by_host)
}

/// Numbers of hosts by state.
pub(crate) fn states(db: &mut dyn Connection) -> Result<Vec<(String, i64)>, DbError> {
    let rows = db.rows("SELECT state, count(*) FROM hosts GROUP BY state ORDER BY state", &[])?;
    Ok(rows
        .iter()
        .filter_map(|row| match row.as_slice() {
            [state, count] => Some((state.as_text().to_owned(), count.as_int())),
            _ => None,
        })
        .collect())
}

/// The server's checks of itself and its database.
pub(crate) fn self_checks(db: &mut dyn Connection, silent_before: &str) -> Result<Vec<SelfCheck>, DbError> {
    let version = crate::fleet::schema::version(db)?;
    let kind = if db.is_postgres() { "PostgreSQL" } else { "SQLite" };
    let look = |ok, what: &str, detail: String| SelfCheck { ok, what: what.to_owned(), detail };
    let own = crate::fleet::schema::latest_version();
    let tables = match version {
        newer if newer > own => {
            format!(
                "{kind}, schema version {newer}: a newer server upgraded the tables; this server knows version {own} and continues"
            )
        }
        same => format!("{kind}, tables of version {same}"),
    };
    let mut looks = vec![look(true, "database", tables)];
    if db.is_postgres() {
        let days = crate::fleet::schema::days(db)?;
        let ahead = format!(
            "{} days, {} to {}",
            days.len(),
            days.first().map_or("none", |name| name),
            days.last().map_or("none", |name| name)
        );
        looks.push(look(days.len() > 2, "days", ahead));
    }
    for (state, count) in states(db)? {
        looks.push(look(state != "refused", "hosts", format!("{count} {state}")));
    }
    let silent = db.rows(
        "SELECT count(*) FROM hosts WHERE state = 'active' AND seen_at < $1",
        &[Value::text(silent_before)],
    )?;
    let silent = silent.first().and_then(|row| row.first()).map(Value::as_int).unwrap_or_default();
    looks.push(look(silent == 0, "silent", format!("{silent} hosts have not been seen for a day")));
    let open = db.rows("SELECT count(*) FROM incidents WHERE accepted_by IS NULL", &[])?;
    let open = open.first().and_then(|row| row.first()).map(Value::as_int).unwrap_or_default();
    looks.push(look(open == 0, "incidents", format!("{open} not accepted yet")));
    Ok(looks)
}
