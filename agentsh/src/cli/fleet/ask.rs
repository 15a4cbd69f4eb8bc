//! Queries of `agentsh mcp` and `agentsh report` to a fleet: it downloads the rows and queries them like a local
//! journal.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use url::form_urlencoded::Serializer;

use super::super::mcp_query::{Listed, Query};
use super::people::{FleetTarget, failure};
use agentsh_base::types::SessionId;
use agentsh_fleet::Client;
use agentsh_fleet::keys;
use agentsh_fleet::wire::{Host, Row, Rows, ServerRow, SessionRow};
use agentsh_store::raw::Raw;
use agentsh_store::verify::SessionState;
use agentsh_store::{EventFilter, Reader, StoreError};
use agentsh_terminal::output::{Context, Failure};

/// Rows of one page.
const PAGE: u64 = 1000;
/// Rows that are looked through for calls that an index does not find.
const MAX_LOOKED: usize = 50_000;
/// Maximum number of sessions whose beginning is fetched one by one.
const MAX_BEGINNINGS: usize = 2000;
/// Events of a session that is reported.
const MAX_REPORTED: usize = 200_000;

const CALLS: [&str; 3] = ["mcp_tool_called", "mcp_tool_call_intercepted", "mcp_server_unavailable"];
const DETECTIONS: [&str; 2] = ["mcp_exfil_detected", "mcp_content_detected"];

/// A fleet server, and which host of it is meant.
pub struct Fleet {
    client: Client,
    host: Option<String>,
}

/// A session as stored by the server.
pub struct Copied {
    pub id: SessionId,
    pub host: String,
    pub reader: Reader,
    pub state: SessionState,
    pub problems: u64,
    /// Events at its beginning that the server has forgotten.
    pub forgotten: u64,
}

impl Fleet {
    pub(in crate::cli) fn at(url: &str, host: Option<&str>, context: &Context) -> Result<Self, Failure> {
        let client = FleetTarget { fleet: Some(url.to_owned()) }.client(context)?;
        Ok(Self { client, host: host.map(str::to_owned) })
    }

    /// Every host, for a caller who is authenticated already.
    pub fn of(client: Client) -> Self {
        Self { client, host: None }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The newest events of these types that the filter lets through, as a journal.
    pub async fn journal(
        &self,
        kinds: &[&str],
        filter: &EventFilter,
        before: Option<&str>,
    ) -> Result<(Reader, Option<String>), Failure> {
        let page = self.page(kinds, filter, before, filter.limit).await?;
        Ok((reader(&page.rows)?, page.next))
    }

    /// The session that a word names: `latest`, an id, or the beginning of one.
    pub async fn session(&self, which: &str) -> Result<SessionRow, Failure> {
        let is_latest = which == "latest";
        let begins = which.to_ascii_lowercase();
        if !is_latest && !begins.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(StoreError::UnknownSession(which.to_owned()).into());
        }
        let path = {
            let mut query = Serializer::new(String::new());
            query.append_pair("limit", if is_latest { "1" } else { "2" });
            if !is_latest {
                query.append_pair("session", &begins);
            }
            if let Some(host) = &self.host {
                query.append_pair("host", host);
            }
            format!("/v1/sessions?{}", query.finish())
        };
        let mut found: Vec<SessionRow> = self.client.get(&path).await.map_err(failure)?;
        match (found.len(), is_latest) {
            (1, _) => found.pop().ok_or_else(|| StoreError::NoSession.into()),
            (0, true) => Err(StoreError::NoSession.into()),
            (0, false) => Err(StoreError::UnknownSession(which.to_owned()).into()),
            _ => Err(StoreError::AmbiguousSession(which.to_owned()).into()),
        }
    }

    /// The answer to a question of `agentsh mcp`, with the host of each row in front.
    pub(in crate::cli) async fn list_events(
        &self,
        query: &Query,
        wide: bool,
        filter: &EventFilter,
        context: &Context,
    ) -> Result<Listed, Failure> {
        let names = self.names().await?;
        let (listed, hosts) = match query {
            Query::Tools(_) => {
                let why = "a fleet does not answer `mcp tools`: run it on the host; it answers servers, calls, events and detections";
                return Err(Failure::Usage(why.to_owned()));
            }
            Query::Servers(_) => self.servers(query, filter, context).await?,
            Query::Calls(_) => {
                let rows = self.calls(filter).await?;
                let mut reader = reader(&rows)?;
                (
                    super::super::mcp_query::list_events(query, wide, filter, context, &mut reader).await?,
                    hosts_of(&rows),
                )
            }
            Query::Events(_) | Query::Detections(_) => {
                let mut rows = Vec::new();
                if matches!(query, Query::Detections(_)) {
                    for kind in DETECTIONS {
                        rows.extend(self.newest(&[kind], filter, filter.limit).await?);
                    }
                } else if let Some(kinds) = filter.kind.as_deref().and_then(super::super::mcp_query::held_in)
                {
                    // Which of them are meant, their fields say.
                    rows = self.newest(kinds, filter, MAX_LOOKED as u64).await?;
                } else {
                    let kinds: Vec<&str> = filter.kind.as_deref().into_iter().collect();
                    rows = self.newest(&kinds, filter, filter.limit).await?;
                }
                let mut reader = reader(&rows)?;
                (
                    super::super::mcp_query::list_events(query, wide, filter, context, &mut reader).await?,
                    hosts_of(&rows),
                )
            }
        };
        Ok(with_hosts(listed, &hosts, &names))
    }

    /// One session with all its events, its chain followed.
    pub async fn copy_session(&self, which: &str) -> Result<Copied, Failure> {
        let session = self.session(which).await?;
        let names = self.names().await?;
        let mut rows: Vec<Row> = Vec::new();
        let mut after = 0_u64;
        loop {
            let path = format!("/v1/sessions/{}/events?after={after}", session.session);
            let page: Rows = self.client.get(&path).await.map_err(failure)?;
            rows.extend(page.rows);
            match page.next.and_then(|next| next.parse().ok()) {
                Some(next) if rows.len() < MAX_REPORTED && next > after => after = next,
                Some(_) => {
                    let why = format!("the session has more than {MAX_REPORTED} events: ask its host");
                    return Err(Failure::No(why));
                }
                None => break,
            }
        }
        let raws = raw_rows(&rows)?;
        // If no event is left, all were removed.
        let events = u64::try_from(session.events).unwrap_or_default();
        let forgotten = raws.first().map_or(events, |first| first.seq.saturating_sub(1));
        let mut problems = 0;
        let mut before = if forgotten == 0 { keys::hash(&session.first_link) } else { None };
        let mut seq = forgotten;
        for raw in &raws {
            let fits = raw.seq == seq + 1 && before.is_none_or(|before| raw.hash_behind(&before) == raw.hash);
            problems += u64::from(!fits);
            (before, seq) = (Some(raw.hash), raw.seq);
        }
        let is_whole = i64::try_from(seq).is_ok_and(|seq| seq == session.events);
        problems += u64::from(!is_whole);
        let state = match (problems, session.ended) {
            (0, true) => SessionState::Ended,
            (0, false) => SessionState::OpenOrKilled,
            _ => SessionState::Broken,
        };
        let id = session.session.parse().map(SessionId);
        Ok(Copied {
            id: id.map_err(|_| Failure::Failed("the server's answer names no session".to_owned()))?,
            host: names.get(&session.host).cloned().unwrap_or(session.host),
            reader: Reader::from_rows(&raws)?,
            state,
            problems,
            forgotten,
        })
    }

    /// Ids and names of the hosts that are meant.
    pub(in crate::cli) async fn host_names(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut names = self.names().await?;
        if let Some(wanted) = &self.host {
            names.retain(|id, name| id == wanted || name == wanted);
        }
        Ok(names)
    }

    /// From here on one host is meant, by its id.
    pub(in crate::cli) fn narrow(&mut self, host: &str) {
        self.host = Some(host.to_owned());
    }

    /// Events of these types that were recorded since then, as a journal; the newest ones of each, and whether there
    /// are more. A session may have begun earlier, so the beginning of each one is included.
    pub(in crate::cli) async fn events_since(
        &self,
        since: jiff::Timestamp,
        kinds: &[&str],
    ) -> Result<(Reader, bool), Failure> {
        let (mut rows, mut is_cut) = (Vec::new(), false);
        for kind in kinds {
            let filter = EventFilter { since: Some(since), ..EventFilter::default() };
            let (found, has_more) = self.newest_of(&[kind], &filter, MAX_LOOKED as u64).await?;
            is_cut |= has_more;
            rows.extend(found);
        }
        let begun: BTreeSet<&str> =
            rows.iter().filter(|row| row.seq == 1).map(|row| row.session.as_str()).collect();
        let others: BTreeSet<&str> =
            rows.iter().map(|row| row.session.as_str()).filter(|session| !begun.contains(session)).collect();
        is_cut |= others.len() > MAX_BEGINNINGS;
        let mut beginnings = Vec::new();
        for session in others.into_iter().take(MAX_BEGINNINGS) {
            let session = session.parse().ok().map(SessionId);
            let filter = EventFilter { session, ..EventFilter::default() };
            let found = self.newest(&["session_started"], &filter, 1).await?;
            // The server may have forgotten it.
            is_cut |= found.is_empty();
            beginnings.extend(found);
        }
        rows.extend(beginnings);
        Ok((reader(&rows)?, is_cut))
    }

    async fn names(&self) -> Result<BTreeMap<String, String>, Failure> {
        let hosts: Vec<Host> = self.client.get("/v1/hosts").await.map_err(failure)?;
        if let Some(wanted) = &self.host
            && !hosts.iter().any(|host| host.id == *wanted || host.name == *wanted)
        {
            return Err(Failure::No(format!(
                "no host '{wanted}' is enrolled; `agentsh fleet hosts` lists them"
            )));
        }
        Ok(hosts.into_iter().map(|host| (host.id, host.name)).collect())
    }

    /// The newest events of these types that the filter lets through.
    async fn newest(&self, kinds: &[&str], filter: &EventFilter, most: u64) -> Result<Vec<Row>, Failure> {
        Ok(self.newest_of(kinds, filter, most).await?.0)
    }

    /// Like [`Fleet::newest`], and whether there are more.
    async fn newest_of(
        &self,
        kinds: &[&str],
        filter: &EventFilter,
        most: u64,
    ) -> Result<(Vec<Row>, bool), Failure> {
        let mut rows = Vec::new();
        let mut before = None;
        while (rows.len() as u64) < most {
            let limit = (most - rows.len() as u64).min(PAGE);
            let page = self.page(kinds, filter, before.as_deref(), limit).await?;
            rows.extend(page.rows);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok((rows, before.is_some()))
    }

    async fn page(
        &self,
        kinds: &[&str],
        filter: &EventFilter,
        before: Option<&str>,
        limit: u64,
    ) -> Result<Rows, Failure> {
        let path = self.path(kinds, filter, before, limit);
        self.client.get(&path).await.map_err(failure)
    }

    fn path(&self, kinds: &[&str], filter: &EventFilter, before: Option<&str>, limit: u64) -> String {
        let mut query = self.query(filter);
        for kind in kinds {
            query.append_pair("kind", kind);
        }
        for (name, value) in
            [("tool", &filter.tool), ("action", &filter.action), ("severity", &filter.severity)]
        {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        if let Some(before) = before {
            query.append_pair("before", before);
        }
        if kinds.iter().any(|kind| CALLS.contains(kind)) {
            query.append_pair("with_calls", "true");
        }
        query.append_pair("limit", &limit.to_string());
        format!("/v1/events?{}", query.finish())
    }

    /// The filter that every query accepts.
    fn query(&self, filter: &EventFilter) -> Serializer<'static, String> {
        let mut query = Serializer::new(String::new());
        let session = filter.session.map(|session| session.to_string());
        let since = filter.since.map(|since| format!("{since:.6}"));
        let pairs =
            [("host", &self.host), ("session", &session), ("server", &filter.server), ("since", &since)];
        for (name, value) in pairs {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query
    }

    /// Enough rows for the requested calls. Refused ones and alerts have an index; for others the newest are looked
    /// through.
    async fn calls(&self, filter: &EventFilter) -> Result<Vec<Row>, Failure> {
        if matches!(filter.action.as_deref(), Some("block" | "alert")) {
            return self.newest(&CALLS[1..2], filter, filter.limit).await;
        }
        let every = EventFilter { action: None, ..filter.clone() };
        let wanted = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let mut rows: Vec<Row> = Vec::new();
        let mut before: Option<String> = None;
        loop {
            let page = self.page(&CALLS, &every, before.as_deref(), PAGE).await?;
            let known: BTreeSet<String> = rows.iter().map(|row| row.at.clone()).collect();
            rows.extend(page.rows.into_iter().filter(|row| !known.contains(&row.at)));
            before = page.next;
            if before.is_none() || rows.len() >= MAX_LOOKED {
                return Ok(rows);
            }
            if reader(&rows)?.calls(filter).await?.len() >= wanted {
                return Ok(rows);
            }
        }
    }

    async fn servers(
        &self,
        query: &Query,
        filter: &EventFilter,
        context: &Context,
    ) -> Result<(Listed, Vec<String>), Failure> {
        let mut asked = self.query(filter);
        asked.append_pair("limit", &filter.limit.min(PAGE).to_string());
        let found: Vec<ServerRow> =
            self.client.get(&format!("/v1/servers?{}", asked.finish())).await.map_err(failure)?;
        let hosts = found.iter().map(|server| server.host.clone()).collect();
        let listed = Listed::new(super::super::mcp_query::head(query), found, |server| {
            vec![
                server.server_id,
                server.last_status,
                context.time(&server.last_at),
                server.calls.to_string(),
                server.refused.to_string(),
                // Not kept there.
                String::new(),
                server.program,
                context.hash(Some(&server.hash)),
                server.project,
            ]
        })?;
        Ok((listed, hosts))
    }
}

fn raw_rows(rows: &[Row]) -> Result<Vec<Raw>, Failure> {
    let raw = |row: &Row| {
        Some(Raw {
            id: row.at.parse().ok()?,
            session: row.session.clone(),
            seq: row.seq,
            time: row.time.clone(),
            body: row.body.clone(),
            hash: keys::hash(&row.hash)?,
        })
    };
    let read: Option<Vec<Raw>> = rows.iter().map(raw).collect();
    let mut raws = read.ok_or_else(|| Failure::Failed("the server's answer has invalid rows".to_owned()))?;
    raws.sort_by_key(|raw| raw.id);
    raws.dedup_by_key(|raw| raw.id);
    Ok(raws)
}

fn reader(rows: &[Row]) -> Result<Reader, Failure> {
    Ok(Reader::from_rows(&raw_rows(rows)?)?)
}

/// Hosts by session; the answer lists sessions.
fn hosts_of(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| format!("{} {}", row.session, row.host)).collect()
}

/// `hosts`: the host of each row, or lines of session and host.
fn with_hosts(listed: Listed, hosts: &[String], names: &BTreeMap<String, String>) -> Listed {
    let by_session: BTreeMap<&str, &str> = hosts.iter().filter_map(|line| line.split_once(' ')).collect();
    let named = |id: &str| names.get(id).cloned().unwrap_or_else(|| id.to_owned());
    let Listed { head, mut rows, mut json } = listed;
    let items = json.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    for (number, (row, item)) in rows.iter_mut().zip(items).enumerate() {
        let session = item.get("session").and_then(Value::as_str);
        let id = session.and_then(|session| by_session.get(session).copied());
        let host = named(id.or_else(|| hosts.get(number).map(String::as_str)).unwrap_or_default());
        row.insert(0, host.clone());
        if let Some(fields) = item.as_object_mut() {
            fields.insert("host".to_owned(), host.into());
        }
    }
    let head = std::iter::once("host").chain(head).collect();
    Listed { head, rows, json }
}
