//! Running sessions, and the list of sessions.

use std::collections::{BTreeMap, BTreeSet};

use super::app::{Answer, App, Fields, Page};
use super::approvals::questions;
use super::rows::{RowContext, SessionOwner, with_age};
use super::session::{in_force, state_word};
use agentsh_base::types::SessionId;
use agentsh_store::query::{ListedSession, REFUSALS};
use agentsh_store::words::GuardChange;
use agentsh_store::{Event, Page as Records, Reader, Record, StoreError, running};
use agentsh_web::{Href, Listed, Now, Place, Row, Sessions, merge_equal_rows};

/// Refusals on the page, and records among which they are looked for.
const REFUSED: usize = 20;
const REFUSED_READ: u32 = 200;
/// Sessions on the page.
const LAST: usize = 5;
/// Sessions on a page of the list.
const PAGE_SIZE: usize = 50;
/// Sessions among which those that run, and those of the demo, are looked for.
const RUNNING: u32 = 200;
/// Most reads of so many for one page of the list.
const MAX_READS: usize = 10;
/// The verb whose sessions are shown only to who searches for them.
const DEMO: &str = "demo";

pub(super) async fn now(app: &App) -> Answer {
    let (waiting, _) = app.waiting().await;
    let requested = app.pending_requests().await.0;
    let count = waiting.len() + requested.len();
    let mut page = Now { requested, ..Now::default() };
    let mut newest = 0;
    if let Some(mut reader) = app.reader().await? {
        newest = reader.newest().await?;
        let runs = running::running(&app.state_dir);
        let listed = reader.list_sessions(None, RUNNING).await?;
        let of = |one: &&ListedSession| runs.contains(&one.first.session);
        page.running = listed.iter().filter(of).map(|one| line(app, one)).collect();
        let (demo, own): (Vec<_>, Vec<_>) = listed.iter().partition(|one| beginning(one).0 == DEMO);
        page.last = own.iter().take(LAST).map(|one| line(app, one)).collect();
        let demo = demo.iter().map(|one| one.first.session).collect();
        page.refused = last_refusals(app, &mut reader, &demo).await?;
    }
    page.waiting = questions(app, &waiting).await?;
    Ok(Page(agentsh_web::now(&app.frame("Now", Place::Now, count, Some(newest)), &page)))
}

/// The last refusals of all sessions, by the indices that know them: each thing once.
async fn last_refusals(
    app: &App,
    reader: &mut Reader,
    demo: &BTreeSet<SessionId>,
) -> Result<Vec<Row>, StoreError> {
    let blocked = Records { action: Some("block"), limit: REFUSED_READ, ..Records::default() };
    let files = Records { kinds: &["guard_changed"], limit: REFUSED_READ, ..Records::default() };
    let others = Records { kinds: &REFUSALS, limit: REFUSED_READ, ..Records::default() };
    let mut records: Vec<Record> = reader.page(&blocked).await?;
    records.extend(reader.page(&others).await?);
    let is_refused = |record: &Record| {
        matches!(record.event, Some(Event::GuardChanged { what: GuardChange::Refused, .. }))
    };
    records.extend(reader.page(&files).await?.into_iter().filter(is_refused));
    records.retain(|record| !demo.contains(&record.session));
    records.sort_by_key(|record| std::cmp::Reverse(record.id));
    records.truncate(REFUSED_READ as usize);
    let verdicts = records.iter().filter(|record| record.kind == "mcp_tool_call_intercepted").cloned();
    let inputs: BTreeMap<_, _> = reader.inputs(verdicts.collect()).await?;
    let (policy, context) = (in_force(&app.place), app.place.context());
    let making = RowContext {
        inputs: &inputs,
        policy: policy.as_ref(),
        context: &context,
        known: &SessionOwner::newest_sessions(reader).await?,
        names_session: true,
    };
    let mut rows = merge_equal_rows(making.rows(&records), false, Row::is_alike);
    rows.truncate(REFUSED);
    Ok(rows)
}

/// What a session was begun as: the verb, the command and the project. Empty where its first event says nothing of that.
fn beginning(listed: &ListedSession) -> (&str, &[String], &str) {
    match &listed.first.event {
        Some(Event::SessionStarted { verb, agent, project, .. }) => (verb, agent, project),
        _ => ("", &[], ""),
    }
}

/// Whether a session is shown to who searches for a text; sessions of the demo only where it says so.
fn is_meant(listed: &ListedSession, text: &str) -> bool {
    let (verb, agent, project) = beginning(listed);
    let has = |value: &str| value.to_lowercase().contains(text);
    match text {
        "" => verb != DEMO,
        _ => has(&listed.first.session.to_string()) || has(verb) || has(&agent.join(" ")) || has(project),
    }
}

fn line(app: &App, listed: &ListedSession) -> Listed {
    let (verb, agent, project) = beginning(listed);
    let exit_code = match &listed.last.event {
        Some(Event::SessionEnded { exit_code, .. }) => Some(*exit_code),
        _ => None,
    };
    let id = listed.first.session;
    Listed {
        id: id.to_string(),
        started: with_age(listed.first.time),
        state: state_word(exit_code, exit_code.is_none() && running::is_running(&app.state_dir, id)),
        verb: verb.to_owned(),
        agent: agent.join(" "),
        project: project.to_owned(),
        events: listed.last.seq,
    }
}

pub(super) async fn sessions(app: &App, query: &Fields) -> Answer {
    let (wanted, from) = (query.text("q"), query.number("before")?);
    let waiting = app.waits().await;
    let text = wanted.trim().to_lowercase();
    let to =
        || if text.is_empty() { Href::to(&["sessions"]) } else { Href::to(&["sessions"]).with("q", &text) };
    let mut page = Sessions { search: Some(wanted.to_owned()), ..Sessions::default() };
    let mut newest = 0;
    if let Some(mut reader) = app.reader().await? {
        newest = reader.newest().await?;
        let (mut before, mut is_end) = (from, false);
        let mut found: Vec<ListedSession> = Vec::new();
        for _ in 0..MAX_READS {
            let listed = reader.list_sessions(before, RUNNING).await?;
            is_end = listed.len() < RUNNING as usize;
            before = listed.last().map(|one| one.first.id).or(before);
            for one in listed {
                let is_meant = is_meant(&one, &text);
                page.hides_demo |= !is_meant && text.is_empty();
                found.extend(is_meant.then_some(one));
            }
            if is_end || found.len() > PAGE_SIZE {
                break;
            }
        }
        let shown = found.get(..PAGE_SIZE).unwrap_or(&found);
        page.sessions = shown.iter().map(|one| line(app, one)).collect();
        let older = match found.len() > PAGE_SIZE {
            true => shown.last().map(|one| one.first.id),
            false => before.filter(|_| !is_end),
        };
        page.older = older.map(|last| to().with("before", &last.to_string()));
        page.first = from.map(|_| to());
    }
    let live = from.is_none().then_some(newest);
    Ok(Page(agentsh_web::sessions(&app.frame("Sessions", Place::Sessions, waiting, live), &page)))
}
