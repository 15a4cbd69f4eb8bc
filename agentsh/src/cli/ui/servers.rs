//! The list of servers, and a page for each with its interface, changes and calls.

use std::collections::BTreeMap;

use serde_json::Value;

use super::app::{Answer, App, Fields, Page, PageError};
use super::rows::{AGENT, RowContext, SessionOwner, action_word, bytes, host, recorded_time, refused_word};
use super::session::in_force;
use crate::cli::inventory::{state, time};
use crate::cli::pins::offered::Change as Changed;
use crate::session::inventory::all;
use agentsh_base::json::Json;
use agentsh_base::types::ServerId;
use agentsh_policy::risk::{self, Names, Risk};
use agentsh_store::{
    Event, EventFilter, InterfacePin, Page as Records, Reader, StoreError, Tool, TrustedBy, WhichInterface,
};
use agentsh_web::{Change, Field, Href, Offer, Place, Server, ServerLine, Servers, Tone, ToolRow, Word};

/// Servers on a page of the list.
const PAGE_SIZE: u32 = 50;
/// Offers on a page of a server.
const OFFERS: usize = 100;
/// Lines of the history.
const HISTORY: u32 = 50;
/// Connections that are added up.
const CONNECTIONS: u32 = 2000;
/// Characters of a description in the table; the definition has all of it.
const DESCRIPTION: usize = 400;

/// Types of which the history of a server is made: few, however many calls there are.
const HISTORY_TYPES: [&str; 18] = [
    "mcp_interface_checked",
    "process_started",
    "process_exited",
    "mcp_server_binary_mismatch",
    "mcp_server_binary_not_pinned",
    "mcp_server_binary_pinned",
    "mcp_server_crashed",
    "mcp_server_refused",
    "mcp_server_suspected",
    "mcp_advisory",
    "mcp_classifier_unavailable",
    "mcp_tool_changed",
    "mcp_tools_list_changed",
    "mcp_content_detected",
    "mcp_exfil_detected",
    "mcp_message_rejected",
    "approval_decided",
    "mcp_request_timed_out",
];

pub(super) async fn list(app: &App, after: Option<&str>) -> Answer {
    let mut page = Servers { servers: Vec::new(), trees: Vec::new(), first: None, next: None };
    let mut newest = 0;
    if let Some(mut reader) = app.reader().await? {
        newest = reader.newest().await?;
        let counts = match app.pins() {
            Some(pins) => pins.interface_counts().await?,
            None => BTreeMap::new(),
        };
        let mut known = reader.known_servers(after.map(str::to_owned), PAGE_SIZE + 1).await?;
        let is_more = known.len() > PAGE_SIZE as usize;
        known.truncate(PAGE_SIZE as usize);
        if let Some(last) = known.last().filter(|_| is_more) {
            page.next = Some(Href::to(&["servers"]).with("after", &last.server_id));
        }
        page.first = after.map(|_| Href::to(&["servers"]));
        let is_tree = |line: &ServerLine| ["skill:", "plugin:"].iter().any(|kind| line.id.starts_with(kind));
        (page.trees, page.servers) = known
            .into_iter()
            // Questions about the agent itself are recorded under this name.
            .filter(|one| one.server_id != AGENT || one.tools + one.calls > 0)
            .map(|one| {
                let (pinned, changed) = counts.get(&one.server_id).copied().unwrap_or_default();
                let (tools, calls, refused) = (one.tools, one.calls, one.blocked);
                ServerLine { id: one.server_id, tools, calls, refused, changed, pinned }
            })
            .partition(is_tree);
    }
    let waiting = app.waits().await;
    Ok(Page(agentsh_web::servers(&app.frame("Servers", Place::Servers, waiting, Some(newest)), &page)))
}

/// With the events `before` one of them, and without the offers that `skip` passes over.
pub(super) async fn one(app: &App, id: &str, query: &Fields) -> Answer {
    let (before, skip) = (query.number("before")?, query.number("skip")?.unwrap_or_default());
    let mut reader = app.reader().await?.ok_or(StoreError::NoSession)?;
    let newest = reader.newest().await?;
    let (pins, changed, programs) = match app.pins() {
        Some(store) => {
            let which = WhichInterface { server: Some(id.to_owned()), ..WhichInterface::default() };
            let (pins, changed) = store.interfaces(which).await?;
            (pins, changed, store.of_server(&ServerId(id.to_owned())).await?)
        }
        None => Default::default(),
    };
    let filter = EventFilter { server: Some(id.to_owned()), limit: 2000, ..EventFilter::default() };
    let seen = reader.tools(&filter).await?;
    let (history, older) = history(app, &mut reader, id, before).await?;
    if seen.is_empty() && pins.is_empty() && programs.is_empty() && history.is_empty() {
        return Err(PageError::missing("no such server is on record"));
    }
    let mut facts = Vec::new();
    for pin in programs {
        let by = if pin.trusted_by == TrustedBy::User { "by you" } else { "at first use" };
        facts.push(("program", pin.state.program));
        facts.push(("package", pin.state.identity));
        facts.push(("pin", format!("{}, {by}, {}", pin.state.digest, recorded_time(&pin.trusted_at))));
        facts.push((
            "pinned for",
            if pin.state.scope.is_empty() { "you".to_owned() } else { pin.state.scope },
        ));
    }
    let (offers, next) = offers(&pins, &seen, id, skip);
    let page = Server {
        facts,
        advisories: advisories(app, id).await,
        changes: Changed::between_all(&pins, &changed).into_iter().map(change).collect(),
        offers,
        next,
        inventory: inventory(app, id),
        network: network(&mut reader, id).await?,
        history,
        older: older.map(|oldest| Href::to(&["server", id]).with("before", &oldest.to_string())),
        id: id.to_owned(),
    };
    let waiting = app.waits().await;
    let live = (before.is_none() && skip == 0).then_some(newest);
    Ok(Page(agentsh_web::server(&app.frame(format!("Server {id}"), Place::Servers, waiting, live), &page)))
}

/// Current advisories, the worst first, for the server's components at its last start.
async fn advisories(app: &App, id: &str) -> Vec<(Word, String)> {
    let Ok(policy) = app.place.in_force() else { return Vec::new() };
    let found = crate::cli::advisories::of_server(&app.place, &policy.mcp.advisories, id).await;
    match found {
        Ok(found) => found
            .iter()
            .map(|one| {
                let tone =
                    if one.severity >= agentsh_policy::Severity::High { Tone::Bad } else { Tone::Warn };
                (Word::new(one.severity.as_str(), tone), crate::cli::advisories::line(one))
            })
            .collect(),
        Err(why) => vec![(Word::new("unknown", Tone::Warn), why)],
    }
}

/// What is known of its tools over all sessions, the most used first.
fn inventory(app: &App, id: &str) -> Vec<ToolRow> {
    let now = jiff::Timestamp::now().as_second();
    let now = u64::try_from(now).unwrap_or_default();
    let kept = all(&app.state_dir).into_iter().filter(|kept| kept.server == id);
    // Each tool once, even if several projects use it.
    let mut tools: BTreeMap<String, (ToolRow, [u64; 2])> = BTreeMap::new();
    for kept in kept {
        for (name, tool) in kept.profile.tools {
            let word = Word::new(state(&tool, now, kept.learning_s), Tone::Quiet);
            let (row, seen) = tools.entry(name.clone()).or_insert_with(|| {
                let row = ToolRow {
                    name,
                    projects: Vec::new(),
                    first: String::new(),
                    last: String::new(),
                    calls: 0,
                    unusual: 0,
                    state: word.clone(),
                };
                (row, [tool.first_seen, tool.last_seen])
            });
            *seen = [seen[0].min(tool.first_seen), seen[1].max(tool.last_seen)];
            row.projects.push(kept.project.clone());
            (row.calls, row.unusual) = (row.calls + tool.calls, row.unusual + tool.unusual);
            if row.state != word {
                row.state = Word::new("different in each project", Tone::Quiet);
            }
        }
    }
    let shown = tools.into_values().map(|(row, [first, last])| ToolRow {
        first: recorded_time(&time(first)),
        last: recorded_time(&time(last)),
        ..row
    });
    let mut known: Vec<ToolRow> = shown.collect();
    known.sort_by_key(|tool| std::cmp::Reverse(tool.calls));
    known.truncate(OFFERS);
    known
}

fn change(change: Changed) -> Change {
    Change {
        accept: change.accept(),
        kind: change.kind,
        seen: recorded_time(&change.refused_at),
        before: change.pinned_hash,
        after: change.hash,
        fields: change.fields.into_iter().map(|field| Field { name: field.name, diff: field.diff }).collect(),
        name: change.name,
    }
}

/// What is pinned, and what was seen next to it.
fn offers(pins: &[InterfacePin], seen: &[Tool], id: &str, skip: usize) -> (Vec<Offer>, Option<Href>) {
    let counts: BTreeMap<&str, &Tool> = seen.iter().map(|tool| (tool.tool_name.as_str(), tool)).collect();
    let mut all: Vec<Offer> = pins.iter().map(|pin| pinned_offer(pin, &counts)).collect();
    let is_pinned =
        |tool: &Tool| pins.iter().any(|pin| pin.kind.as_str() == "tool" && pin.name == tool.tool_name);
    all.extend(seen.iter().filter(|tool| !is_pinned(tool)).map(|tool| Offer {
        kind: "tool",
        name: tool.tool_name.clone(),
        description: shorten(tool.description.as_deref().unwrap_or_default()),
        hash: tool.tool_hash.clone().unwrap_or_default(),
        trusted: None,
        risk: risk_word(risk::of_name(&tool.tool_name, Names::Words)),
        calls: tool.calls,
        refused: tool.blocked,
        definition: None,
    }));
    let next = (all.len() > skip + OFFERS)
        .then(|| Href::to(&["server", id]).with("skip", &(skip + OFFERS).to_string()));
    (all.into_iter().skip(skip).take(OFFERS).collect(), next)
}

fn pinned_offer(pin: &InterfacePin, counts: &BTreeMap<&str, &Tool>) -> Offer {
    let is_tool = pin.kind.as_str() == "tool";
    let counted = counts.get(pin.name.as_str()).filter(|_| is_tool);
    let text = pin.definition.as_deref().unwrap_or_default();
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let description = match &value {
        Value::String(text) => text.as_str(),
        other => other.get("description").and_then(Value::as_str).unwrap_or_default(),
    };
    let by = if pin.trusted_by == Some(TrustedBy::User) { "by you" } else { "at first sight" };
    let risk = if is_tool {
        risk_word(agentsh_base::json::read(text.as_bytes()).map_or_else(
            |_| risk::of_name(&pin.name, Names::Words),
            |definition: Json<'_>| risk::risk(&definition, Names::Words),
        ))
    } else {
        Word::new("none", Tone::Quiet)
    };
    Offer {
        kind: pin.kind.as_str(),
        name: pin.name.clone(),
        description: shorten(description),
        hash: pin.hash.clone(),
        trusted: Some(format!("{}, {by}", recorded_time(&pin.at))),
        risk,
        calls: counted.map_or(0, |tool| tool.calls),
        refused: counted.map_or(0, |tool| tool.blocked),
        definition: serde_json::to_string_pretty(&value).ok().filter(|_| !text.is_empty()),
    }
}

fn shorten(text: &str) -> String {
    agentsh_store::escape::shorten(text, DESCRIPTION).into_owned()
}

fn risk_word(risk: Risk) -> Word {
    match risk {
        Risk::Low => Word::new("low", Tone::Good),
        Risk::Medium => Word::new("medium", Tone::Warn),
        Risk::High => Word::new("high", Tone::Bad),
    }
}

async fn history(
    app: &App,
    reader: &mut Reader,
    id: &str,
    before: Option<i64>,
) -> Result<(Vec<agentsh_web::Row>, Option<i64>), StoreError> {
    let wanted = Records {
        server: Some(id.to_owned()),
        kinds: &HISTORY_TYPES,
        before,
        limit: HISTORY + 1,
        ..Records::default()
    };
    let mut records = reader.page(&wanted).await?;
    let is_more = records.len() > HISTORY as usize;
    records.truncate(HISTORY as usize);
    let older = records.last().map(|record| record.id).filter(|_| is_more);
    let (policy, context) = (in_force(&app.place), app.place.context());
    let inputs = BTreeMap::new();
    let making = RowContext {
        inputs: &inputs,
        policy: policy.as_ref(),
        context: &context,
        known: &SessionOwner::newest_sessions(reader).await?,
        names_session: true,
    };
    Ok((making.rows(&records), older))
}

/// Hosts that it reached or was refused, with the traffic.
async fn network(reader: &mut Reader, id: &str) -> Result<Vec<(String, String, Word)>, StoreError> {
    let wanted = Records {
        server: Some(id.to_owned()),
        kinds: &["mcp_network_connection", "net_connect_blocked", "dns_blocked"],
        limit: CONNECTIONS,
        ..Records::default()
    };
    let mut hosts: BTreeMap<(String, bool), (u64, u64, u64)> = BTreeMap::new();
    for record in reader.page(&wanted).await? {
        let (key, added) = match record.event {
            Some(Event::McpNetworkConnection { name, address, port, bytes_sent, bytes_received, .. }) => {
                ((host(name.as_ref(), address.as_ref(), port), true), (1, bytes_sent, bytes_received))
            }
            Some(Event::NetConnectBlocked { name, address, port, count, .. }) => {
                ((host(name.as_ref(), address.as_ref(), port), false), (count, 0, 0))
            }
            Some(Event::DnsBlocked { name, count, .. }) => ((name, false), (count, 0, 0)),
            _ => continue,
        };
        let sum = hosts.entry(key).or_default();
        *sum = (sum.0 + added.0, sum.1 + added.1, sum.2 + added.2);
    }
    let lines = hosts.into_iter().map(|((host, passed), (times, sent, received))| {
        if passed {
            let what = format!("{}, {} sent, {} received", times_text(times), bytes(sent), bytes(received));
            (host, what, action_word(agentsh_store::words::Action::Allow))
        } else {
            (host, times_text(times), refused_word())
        }
    });
    Ok(lines.collect())
}

fn times_text(times: u64) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}
