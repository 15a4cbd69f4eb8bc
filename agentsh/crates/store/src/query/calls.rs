//! What `agentsh mcp calls` lists.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde::Serialize;
use serde_json::Value;

use super::super::reader::{records, select};
use super::super::record::text_of;
use super::super::{Event, Reader, Record, StoreError};
use super::EventFilter;
use crate::types::{RuleRef, SessionId};

/// A verdict is within this many events of its call in the same session.
const VERDICT_DISTANCE: i64 = 1024;

/// A value of [`EventFilter::action`] in addition to those of events.
const UNDELIVERED: &str = "undelivered";

/// A tool call and what was decided about it. A call without a verdict was under way when agentsh died.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    pub session: SessionId,
    pub time: String,
    pub server_id: String,
    pub tool_name: String,
    pub jsonrpc_id: Value,
    pub input: Option<Value>,
    pub action: Option<String>,
    pub reason: Option<String>,
    pub rule: Option<RuleRef>,
    pub tool_hash: Option<String>,
    /// Why a call that was allowed never reached its server; null for one that did, or that was refused.
    pub undelivered: Option<String>,
}

/// Session, server and id of a call.
type Key = (SessionId, String, String);

impl Reader {
    /// The newest calls, oldest first. With `action`, only calls with that verdict; `undelivered`: only those that were
    /// allowed and did not reach their server, which are then not among the allowed ones.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn calls(&mut self, filter: &EventFilter) -> Result<Vec<Call>, StoreError> {
        let filter = filter.clone();
        self.ask(move |connection| calls(connection, &filter)).await
    }
}

fn calls(connection: &Connection, filter: &EventFilter) -> Result<Vec<Call>, StoreError> {
    let wanted = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    let scope = EventFilter { kind: None, action: None, ..filter.clone() };
    let mut calls = Vec::new();
    let mut paired = BTreeSet::new();
    let mut lost = BTreeMap::new();
    let mut before = i64::MAX;
    while calls.len() < wanted {
        // Types are distinguished below: in the query they would make the database collect and sort every call.
        let mut query = select();
        query.push(" WHERE jsonrpc_id IS NOT NULL AND id < ").bind(before);
        scope.push_to(&mut query);
        if let Some(action) = filter.action.as_deref().filter(|action| *action != UNDELIVERED) {
            query.push(" AND (action = ").bind(action.to_owned()).push(" OR action IS NULL)");
        }
        query.push(" ORDER BY id DESC LIMIT 256");
        let page = records(connection, query)?;
        let Some(last) = page.last() else { break };
        before = last.id;
        for record in page {
            if calls.len() == wanted {
                break;
            }
            let found = match &record.event {
                Some(Event::McpServerUnavailable { detail, .. }) => {
                    lost.extend(key(&record).map(|key| (key, detail.clone())));
                    continue;
                }
                Some(Event::McpToolCallIntercepted { .. }) => {
                    let called = call_of(connection, &record)?;
                    paired.extend(called.as_ref().map(|called| called.id));
                    let undelivered = key(&record).and_then(|key| lost.remove(&key));
                    Call::of(called.as_ref(), Some(&record), undelivered)
                }
                Some(Event::McpToolCalled { .. }) if !paired.remove(&record.id) => {
                    Call::of(Some(&record), None, None)
                }
                _ => continue,
            };
            calls
                .extend(found.filter(|call| filter.action.is_none() || filter.action == call.outcome_word()));
        }
    }
    calls.reverse();
    Ok(calls)
}

/// The call that a verdict is about: the nearest one before it with the same server, tool and id.
pub(super) fn call_of(connection: &Connection, verdict: &Record) -> Result<Option<Record>, StoreError> {
    let seq = i64::try_from(verdict.seq).unwrap_or(i64::MAX);
    let mut query = select();
    query.push(" WHERE session = ").bind(verdict.session.to_string());
    query.push(" AND seq < ").bind(seq).push(" AND seq >= ").bind(seq.saturating_sub(VERDICT_DISTANCE));
    // A comparison of three columns: only the index of the chain fits, and there the verdict is nearby.
    query.push(" AND (type, server_id, tool_name, jsonrpc_id) = ");
    query.push("(SELECT 'mcp_tool_called', server_id, tool_name, jsonrpc_id FROM events WHERE id = ");
    query.bind(verdict.id).push(") ORDER BY seq DESC LIMIT 1");
    Ok(records(connection, query)?.pop())
}

impl Call {
    /// The word for people: the verdict, unless the call got nowhere.
    #[must_use]
    pub fn outcome_word(&self) -> Option<String> {
        match &self.undelivered {
            Some(_) => Some(UNDELIVERED.to_owned()),
            None => self.action.clone(),
        }
    }

    fn of(called: Option<&Record>, verdict: Option<&Record>, undelivered: Option<String>) -> Option<Self> {
        let first = called.or(verdict)?;
        let text = |record: Option<&Record>, field: &str| {
            record.and_then(|record| record.body.get(field)).and_then(Value::as_str).map(str::to_owned)
        };
        Some(Self {
            session: first.session,
            time: text_of(first.time),
            server_id: text(Some(first), "server_id")?,
            tool_name: text(Some(first), "tool_name")?,
            jsonrpc_id: first.body.get("jsonrpc_id").cloned().unwrap_or_default(),
            input: called.and_then(|record| record.body.get("input").cloned()),
            action: text(verdict, "action"),
            reason: text(verdict, "reason"),
            rule: match verdict.and_then(|record| record.event.as_ref()) {
                Some(Event::McpToolCallIntercepted { rule, .. }) => Some(rule.clone()),
                _ => None,
            },
            tool_hash: text(verdict, "tool_hash"),
            undelivered,
        })
    }
}

/// None for events about a server and not about one call.
fn key(record: &Record) -> Option<Key> {
    let server = record.body.get("server_id")?.as_str()?;
    Some((record.session, server.to_owned(), record.body.get("jsonrpc_id")?.to_string()))
}
