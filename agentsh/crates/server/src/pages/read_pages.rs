//! Read-only pages.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::{Answer, App, PageFailure, Person, Shared, page};
use crate::fleet::Role;
use agentsh::cli::server::{RowContext, of_fleet, question, waiting};
use agentsh_fleet::wire::{Host, Person as Credential, ServerRow, SessionRow};
use agentsh_store::{EventFilter, Page as Records, Reader, StoreError, shown_time};
use agentsh_web::{
    self as web, FleetNow, Frame, HostLine, Href, Listed, PersonLine, Place, Question, Row, ServerOfHost,
    Sessions, Tone, Word, fleet_approvals, fleet_hosts, fleet_now, fleet_people, fleet_server, fleet_servers,
};

/// Lines of a page.
const LINES: u32 = 50;
const REFUSED: u32 = 20;
const LAST_EVENTS: u32 = 10;
/// Sessions and servers of a list.
const PAGE_SIZE: u32 = 500;

pub(super) async fn now(State(app): Shared, headers: HeaderMap) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let hosts = person.hosts().await?;
    let names = names(&hosts);
    let blocked =
        EventFilter { action: Some("block".to_owned()), limit: u64::from(REFUSED), ..EventFilter::default() };
    let (mut reader, _) = person.fleet.journal(&["mcp_tool_call_intercepted"], &blocked, None).await?;
    let refused = app.rows(&mut reader, &["mcp_tool_call_intercepted"], REFUSED).await?;
    let last = person.list_sessions(None, LAST_EVENTS, &names).await?;
    let unwell = hosts.iter().filter(|host| host.state == "refused").map(|host| line(host, &person));
    let shown = FleetNow { hosts: unwell.collect(), refused, last };
    Ok(page(fleet_now(&person.frame("Now", Place::Now), &shown)))
}

pub(super) async fn hosts(State(app): Shared, headers: HeaderMap) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let lines: Vec<HostLine> = person.hosts().await?.iter().map(|host| line(host, &person)).collect();
    Ok(page(fleet_hosts(&person.frame("Hosts", Place::Hosts), &lines)))
}

#[derive(Default, Deserialize)]
pub(super) struct Part {
    host: Option<String>,
    before: Option<String>,
}

pub(super) async fn sessions(State(app): Shared, headers: HeaderMap, Query(part): Query<Part>) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let names = names(&person.hosts().await?);
    let sessions = person.list_sessions(part.host.as_deref(), PAGE_SIZE, &names).await?;
    let shown = Sessions { sessions, search: None, hides_demo: false, first: None, older: None };
    Ok(page(web::sessions(&person.frame("Sessions", Place::Sessions), &shown)))
}

pub(super) async fn session(State(app): Shared, headers: HeaderMap, Path(word): Path<String>) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let mut copied = person.fleet.copy_session(&word).await?;
    let mut whole = of_fleet(&mut copied.reader, copied.id, &app.place).await?;
    let chain = match (copied.problems, copied.forgotten) {
        (0, 0) => "the hash chain is intact".to_owned(),
        (0, forgotten) => {
            format!("the hash chain is intact; its first {forgotten} events have been deleted here")
        }
        (problems, _) => format!("the hash chain is broken at {problems} events: the record was changed"),
    };
    whole.facts.insert(0, ("host", copied.host.clone()));
    whole.facts.push(("chain", chain));
    let title = format!("Session on {}", copied.host);
    Ok(page(web::session(&person.frame(title, Place::Sessions), &whole)))
}

pub(super) async fn servers(State(app): Shared, headers: HeaderMap) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let names = names(&person.hosts().await?);
    let found: Vec<ServerRow> = person.fleet.client().get(&format!("/v1/servers?limit={PAGE_SIZE}")).await?;
    let lines: Vec<ServerOfHost> = found
        .into_iter()
        .map(|one| ServerOfHost {
            host: names.get(&one.host).cloned().unwrap_or(one.host),
            server: one.server_id,
            status: one.last_status,
            last: shown_time(&one.last_at),
            calls: u64::try_from(one.calls).unwrap_or_default(),
            refused: u64::try_from(one.refused).unwrap_or_default(),
            program: one.program,
            session: one.last_session,
        })
        .collect();
    Ok(page(fleet_servers(&person.frame("Servers", Place::Servers), &lines)))
}

pub(super) async fn server(
    State(app): Shared,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(part): Query<Part>,
) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let before = part.before.filter(|before| before.bytes().all(|byte| byte.is_ascii_digit()));
    let filter = EventFilter { server: Some(id.clone()), limit: u64::from(LINES), ..EventFilter::default() };
    let (mut reader, next) = person.fleet.journal(&[], &filter, before.as_deref()).await?;
    let history = app.rows(&mut reader, &[], LINES).await?;
    if history.is_empty() {
        return Err(PageFailure::Other(StatusCode::NOT_FOUND, "no such server".to_owned()));
    }
    let older = next.map(|next| Href::to(&["server", &id]).with("before", &next));
    let frame = person.frame(format!("Server {id}"), Place::Servers);
    Ok(page(fleet_server(&frame, &history, older.as_ref())))
}

pub(super) async fn approvals(State(app): Shared, headers: HeaderMap) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let waiting = waiting(person.fleet.client()).await?;
    let may_answer = person.role >= Role::Approver;
    let shown: Vec<Question> = waiting
        .into_iter()
        .map(|one| Question {
            id: one.waiting.id,
            bound: one.waiting.bound,
            line: None,
            on: Some(one.waiting.host_name),
            may_answer,
            ..question(&one.item)
        })
        .collect();
    let frame = Frame { waiting: shown.len(), ..person.frame("Approvals", Place::Approvals) };
    Ok(page(fleet_approvals(&frame, &shown)))
}

pub(super) async fn people(State(app): Shared, headers: HeaderMap) -> Answer {
    let person = app.signed_in_person(&headers).await?;
    let found: Vec<Credential> = person.fleet.client().get("/v1/people").await?;
    let lines: Vec<PersonLine> = found
        .into_iter()
        .map(|one| PersonLine {
            made: shown_time(&one.made_at),
            state: match (&one.revoked_at, &one.expires_at) {
                (Some(at), _) => Word::new(format!("revoked {}", shown_time(at)), Tone::Quiet),
                (None, Some(at)) if is_over(at) => Word::new("over", Tone::Quiet),
                (None, Some(at)) => Word::new(format!("valid until {}", shown_time(at)), Tone::Good),
                (None, None) => Word::new("counts", Tone::Good),
            },
            may_revoke: one.revoked_at.is_none() && !one.expires_at.as_deref().is_some_and(is_over),
            known_as: one.on_record(),
            name: one.name,
            role: one.role,
            subject: one.subject.unwrap_or_default(),
        })
        .collect();
    Ok(page(fleet_people(&person.frame("People", Place::People), &lines)))
}

fn is_over(at: &str) -> bool {
    at.parse::<jiff::Timestamp>().is_ok_and(|at| at <= jiff::Timestamp::now())
}

impl Person {
    async fn hosts(&self) -> Result<Vec<Host>, PageFailure> {
        Ok(self.fleet.client().get("/v1/hosts").await?)
    }

    async fn list_sessions(
        &self,
        host: Option<&str>,
        most: u32,
        names: &BTreeMap<String, String>,
    ) -> Result<Vec<Listed>, PageFailure> {
        let path = {
            let mut query = Serializer::new(String::new());
            query.append_pair("limit", &most.to_string());
            query.extend_pairs(host.iter().map(|host| ("host", host)));
            format!("/v1/sessions?{}", query.finish())
        };
        let found: Vec<SessionRow> = self.fleet.client().get(&path).await?;
        let listed = found.into_iter().map(|one| Listed {
            id: one.session,
            started: shown_time(&one.first_at),
            state: if one.ended {
                Word::new("ended", Tone::Quiet)
            } else {
                Word::new("not ended", Tone::Warn)
            },
            verb: one.verb,
            agent: names.get(&one.host).cloned().unwrap_or(one.host),
            project: one.project,
            events: u64::try_from(one.events).unwrap_or_default(),
        });
        Ok(listed.collect())
    }
}

impl App {
    /// The newest records of a journal as lines.
    async fn rows(
        &self,
        reader: &mut Reader,
        kinds: &'static [&'static str],
        limit: u32,
    ) -> Result<Vec<Row>, StoreError> {
        let records = reader.page(&Records { kinds, limit, ..Records::default() }).await?;
        let verdicts = records.iter().filter(|record| record.kind == "mcp_tool_call_intercepted").cloned();
        let inputs = reader.inputs(verdicts.collect()).await?;
        let context = self.place.context();
        let making = RowContext {
            inputs: &inputs,
            policy: None,
            context: &context,
            known: &BTreeMap::new(),
            names_session: true,
        };
        Ok(making.rows(&records))
    }
}

fn names(hosts: &[Host]) -> BTreeMap<String, String> {
    hosts.iter().map(|host| (host.id.clone(), host.name.clone())).collect()
}

fn line(host: &Host, person: &Person) -> HostLine {
    let found = host.incidents.iter().map(|one| {
        let session =
            if one.session.is_empty() { String::new() } else { format!(" session {}:", one.session) };
        let accepted = one.accepted_by.as_ref().map(|by| format!(" (accepted by {by})")).unwrap_or_default();
        format!("{} {}:{session} {}{accepted}", shown_time(&one.at), one.kind, one.detail)
    });
    let tone = match host.state.as_str() {
        "active" => Tone::Good,
        "refused" => Tone::Bad,
        _ => Tone::Quiet,
    };
    HostLine {
        id: host.id.clone(),
        name: host.name.clone(),
        state: Word::new(host.state.clone(), tone),
        seen: shown_time(&host.seen_at),
        version: host.version.clone(),
        events: u64::try_from(host.events).unwrap_or_default(),
        sessions: u64::try_from(host.sessions).unwrap_or_default(),
        found: found.collect(),
        may_accept: host.state == "refused" && person.role >= Role::Approver,
        may_revoke: host.state != "revoked" && person.role >= Role::Admin,
    }
}
