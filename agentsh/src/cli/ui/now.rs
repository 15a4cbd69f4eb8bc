//! What happens now, and the list of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use serde::Deserialize;

use super::app::{Answer, App, Page};
use super::approvals::question;
use super::rows::Making;
use super::session::{in_force, started, state_word};
use crate::store::query::ListedSession;
use crate::store::{Event, Page as Records, Reader, Record, StoreError, running};
use crate::web::{self, Href, Listed, Now, Place, Sessions};

/// Refusals on the page.
const REFUSED: u32 = 20;
/// Sessions on the page.
const LAST: u32 = 5;
/// Sessions on a page of the list.
const LISTED: u32 = 50;
/// Sessions among which those that run are looked for.
const RUNNING: u32 = 200;

pub(super) async fn now(State(app): State<Arc<App>>) -> Answer {
    let (waiting, _) = app.waiting().await;
    let requested = app.requested().await.0;
    let count = waiting.len() + requested.len();
    let mut page =
        Now { running: Vec::new(), waiting: Vec::new(), requested, refused: Vec::new(), last: Vec::new() };
    let mut newest = 0;
    if let Some(mut reader) = app.reader().await? {
        newest = reader.newest().await?;
        let runs = running::running(&app.state_dir);
        let wanted = if runs.is_empty() { LAST } else { RUNNING };
        let listed = reader.list_sessions(None, wanted).await?;
        let of = |one: &&ListedSession| runs.contains(&one.first.session);
        page.running = listed.iter().filter(of).map(|one| line(&app, one)).collect();
        page.last = listed.iter().take(LAST as usize).map(|one| line(&app, one)).collect();
        page.refused = refused(&app, &mut reader).await?;
    }
    page.waiting = waiting.iter().map(|(_, item)| question(item)).collect();
    Ok(Page(web::now(&app.frame("Now", Place::Now, count, Some(newest)), &page)))
}

/// The last refusals of all sessions, by the two indices that know them.
async fn refused(app: &App, reader: &mut Reader) -> Result<Vec<web::Row>, StoreError> {
    let blocked = Records { action: Some("block"), limit: REFUSED, ..Records::default() };
    let servers = Records { kinds: &["mcp_server_refused"], limit: REFUSED, ..Records::default() };
    let mut records: Vec<Record> = reader.page(&blocked).await?;
    records.extend(reader.page(&servers).await?);
    records.sort_by_key(|record| std::cmp::Reverse(record.id));
    records.truncate(REFUSED as usize);
    let verdicts = records.iter().filter(|record| record.kind == "mcp_tool_call_intercepted").cloned();
    let inputs: BTreeMap<_, _> = reader.inputs(verdicts.collect()).await?;
    let (policy, context) = (in_force(&app.place), app.place.context());
    let making = Making { inputs: &inputs, policy: policy.as_ref(), context: &context, names_session: true };
    Ok(making.rows(&records))
}

fn line(app: &App, listed: &ListedSession) -> Listed {
    let (verb, agent, project) = match &listed.first.event {
        Some(Event::SessionStarted { verb, agent, project, .. }) => {
            (verb.clone(), agent.join(" "), project.clone())
        }
        _ => Default::default(),
    };
    let exit_code = match &listed.last.event {
        Some(Event::SessionEnded { exit_code, .. }) => Some(*exit_code),
        _ => None,
    };
    let id = listed.first.session;
    Listed {
        id: id.to_string(),
        started: started(listed.first.time),
        state: state_word(exit_code, exit_code.is_none() && running::is_running(&app.state_dir, id)),
        verb,
        agent,
        project,
        events: listed.last.seq,
    }
}

#[derive(Deserialize)]
pub(super) struct From {
    before: Option<i64>,
}

pub(super) async fn sessions(State(app): State<Arc<App>>, Query(from): Query<From>) -> Answer {
    let waiting = app.waits().await;
    let mut page = Sessions { sessions: Vec::new(), first: None, older: None };
    let mut newest = 0;
    if let Some(mut reader) = app.reader().await? {
        newest = reader.newest().await?;
        let listed = reader.list_sessions(from.before, LISTED + 1).await?;
        let shown = listed.get(..LISTED as usize).unwrap_or(&listed);
        page.sessions = shown.iter().map(|one| line(&app, one)).collect();
        if listed.len() > LISTED as usize {
            let last = shown.last().map(|one| one.first.id.to_string());
            page.older = last.map(|last| Href::to(&["sessions"]).with("before", &last));
        }
        page.first = from.before.map(|_| Href::to(&["sessions"]));
    }
    let live = from.before.is_none().then_some(newest);
    Ok(Page(web::sessions(&app.frame("Sessions", Place::Sessions, waiting, live), &page)))
}
