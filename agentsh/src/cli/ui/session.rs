//! The page of a session: one of the pages, and the file that `agentsh report --format html` writes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::app::{Answer, App, Fields, Page};
use super::flow;
use super::rows::{LEFT_OUT, RowContext, SessionOwner, recorded_time};
use agentsh_authoring::CommandContext;
use agentsh_base::types::SessionId;
use agentsh_policy::Policy;
use agentsh_store::words::LayerState;
use agentsh_store::{Event, Page as Records, Reader, SessionTally, StoreError, running, shown_time};
use agentsh_web::{Href, Layer, Place, Process, Session, Timeline, Tone, Word, session};

/// Lines of a timeline on a page.
const LINES: u32 = 100;
/// Lines of the timeline of a report.
const ALL_LINES: u32 = 2000;
/// Layers of sandboxes that are listed.
const LAYERS: u32 = 500;

/// The view that shows refusals of every type.
const REFUSED: &str = "refused";

/// What can be shown of a timeline: as the address says it, as people read it, and the types; none: all.
const VIEWS: [(&str, &str, &[&str]); 5] = [
    ("", "Everything", &[]),
    (
        "calls",
        "Calls",
        &[
            "mcp_tool_call_intercepted",
            "mcp_tool_call_audited",
            "mcp_exfil_detected",
            "mcp_content_detected",
            "approval_requested",
            "approval_decided",
        ],
    ),
    (
        "network",
        "Network",
        &["mcp_network_connection", "net_connect_blocked", "dns_blocked", "ssh_key_used", "ssh_key_refused"],
    ),
    ("files", "Files", &["file_refused", "guard_changed", "files_granted"]),
    (REFUSED, "Refused", &[]),
];

/// Which part of a timeline.
#[derive(Debug, Default)]
struct Part {
    /// Only before this place in the session.
    before: Option<i64>,
    after: Option<i64>,
    show: String,
}

pub(super) async fn page(app: &App, word: &str, query: &Fields) -> Answer {
    let (before, after) = (query.number("before")?, query.number("after")?);
    let part = Part { before, after, show: query.text("show").to_owned() };
    let mut reader = app.reader().await?.ok_or(StoreError::NoSession)?;
    let id = reader.session(word).await?;
    let newest = reader.newest().await?;
    let policy = in_force(&app.place);
    let look = SessionView { reader: &mut reader, id, policy: policy.as_ref(), place: &app.place };
    let (whole, who) =
        look.full_session(&part, LINES, running::is_running(&app.state_dir, id), recorded_time).await?;
    let waiting = app.waits().await;
    // A page from further back shows what does not change any more.
    let live = (before.is_none() && after.is_none()).then_some(newest);
    let title = who.display_text(&app.place.context().home);
    Ok(Page(session(&app.frame(title, Place::Sessions, waiting, live), &whole)))
}

/// The page as one file, with the lines of `more` sections below.
pub(in crate::cli) async fn standalone_page(
    reader: &mut Reader,
    id: SessionId,
    is_running: bool,
    place: &CommandContext,
    more: Vec<(String, Vec<String>)>,
) -> Result<String, StoreError> {
    let policy = in_force(place);
    let look = SessionView { reader, id, policy: policy.as_ref(), place };
    let (mut whole, _) = look.full_session(&Part::default(), ALL_LINES, is_running, shown_time).await?;
    whole.sections.extend(more);
    Ok(agentsh_web::standalone_page(&format!("agentsh session {id}"), &whole) + "\n")
}

/// A session of a host of a fleet, whose policy is not here.
pub async fn of_fleet(
    reader: &mut Reader,
    id: SessionId,
    place: &CommandContext,
) -> Result<Session, StoreError> {
    let look = SessionView { reader, id, policy: None, place };
    let (mut whole, _) = look.full_session(&Part::default(), ALL_LINES, false, shown_time).await?;
    (whole.asks_policy, whole.has_receipt) = (false, false);
    whole.timeline = Timeline { older: None, newer: None, views: Vec::new(), ..whole.timeline };
    Ok(whole)
}

/// The policy in force here; None: it cannot be read, and `agentsh policy check` says why.
pub(super) fn in_force(place: &CommandContext) -> Option<Policy> {
    place.in_force().ok()
}

/// A session that is looked at.
struct SessionView<'a> {
    reader: &'a mut Reader,
    id: SessionId,
    policy: Option<&'a Policy>,
    place: &'a CommandContext,
}

impl SessionView<'_> {
    /// With times as `written` writes them.
    async fn full_session(
        mut self,
        part: &Part,
        lines: u32,
        is_running: bool,
        written: fn(&str) -> String,
    ) -> Result<(Session, SessionOwner), StoreError> {
        let tally = self.reader.tally(self.id).await?;
        let summary = &tally.summary;
        let (verb, project) = (summary.verb.as_deref(), summary.project.as_deref());
        let who = SessionOwner::of(verb.unwrap_or_default(), &summary.agent, project.unwrap_or_default());
        let known = BTreeMap::from([(self.id, who)]);
        let timeline = self.timeline(part, lines, &known).await?;
        let who = known.into_values().next().unwrap_or_else(|| SessionOwner::of("", &[], ""));
        let session = Session {
            id: self.id.to_string(),
            agent: who.agent.clone(),
            state: state_word(tally.summary.exit_code, is_running),
            asks_policy: true,
            has_receipt: tally.summary.exit_code.is_some(),
            facts: facts(&tally, written),
            flow: flow::of(&tally),
            timeline,
            processes: processes(&tally),
            layers: self.layers().await?,
            sections: stripped_variables(&tally, &who.agent),
        };
        Ok((session, who))
    }

    async fn timeline(
        &mut self,
        part: &Part,
        lines: u32,
        known: &BTreeMap<SessionId, SessionOwner>,
    ) -> Result<Timeline, StoreError> {
        let (show, _, kinds) = VIEWS.into_iter().find(|(show, ..)| *show == part.show).unwrap_or(VIEWS[0]);
        let wanted = Records {
            session: Some(self.id),
            kinds,
            without: &LEFT_OUT,
            refused: show == REFUSED,
            before_seq: part.before,
            after_seq: part.after,
            limit: lines.saturating_add(1),
            ..Records::default()
        };
        let mut records = self.reader.page(&wanted).await?;
        let is_more = records.len() > lines as usize;
        if is_more && part.after.is_some() {
            records.remove(0);
        } else {
            records.truncate(lines as usize);
        }
        let verdicts = records.iter().filter(|record| record.kind == "mcp_tool_call_intercepted").cloned();
        let inputs = self.reader.inputs(verdicts.collect()).await?;
        let context = self.place.context();
        let making = RowContext {
            inputs: &inputs,
            policy: self.policy,
            context: &context,
            known,
            names_session: false,
        };
        let shown = |show: &str| {
            let to = Href::to(&["session", &self.id.to_string()]);
            if show.is_empty() { to } else { to.with("show", show) }
        };
        let to = || shown(show);
        let place = |record: Option<&agentsh_store::Record>| record.map(|record| record.seq.to_string());
        let (newest, oldest) = (place(records.first()), place(records.last()));
        let has_older = if part.after.is_some() { true } else { is_more };
        let has_newer = if part.after.is_some() { is_more } else { part.before.is_some() };
        Ok(Timeline {
            rows: making.rows(&records),
            newer: newest.filter(|_| has_newer).map(|seq| to().with("after", &seq)),
            older: oldest.filter(|_| has_older).map(|seq| to().with("before", &seq)),
            note: (lines == ALL_LINES && is_more)
                .then(|| format!("The session was long: these are its last {ALL_LINES} events.")),
            views: VIEWS.into_iter().map(|(view, name, _)| (name, shown(view), view == show)).collect(),
        })
    }

    async fn layers(&mut self) -> Result<Vec<Layer>, StoreError> {
        let wanted =
            Records { session: Some(self.id), kinds: &["enforcement"], limit: LAYERS, ..Records::default() };
        let mut layers = Vec::new();
        for record in self.reader.page(&wanted).await? {
            if let Some(Event::Enforcement { server_id, layer, asked, got, state, why }) = record.event {
                let word = match state {
                    LayerState::Enforced => Word::new("enforced", Tone::Good),
                    LayerState::Degraded => Word::new("in part", Tone::Warn),
                    LayerState::Absent => Word::new("not enforced", Tone::Bad),
                };
                let server = server_id.map(|id| id.0);
                layers.push((
                    state == LayerState::Enforced,
                    Layer { server, layer, state: word, asked, got, why },
                ));
            }
        }
        // Missing things come first, then the order of the reports.
        layers.reverse();
        layers.sort_by_key(|(is_whole, _)| *is_whole);
        Ok(layers.into_iter().map(|(_, layer)| layer).collect())
    }
}

pub(super) fn state_word(exit_code: Option<u8>, is_running: bool) -> Word {
    match (exit_code, is_running) {
        (Some(0), _) => Word::new("ended", Tone::Quiet),
        (Some(code), _) => Word::new(format!("ended with {code}"), Tone::Warn),
        (None, true) => Word::new("runs", Tone::Good),
        (None, false) => Word::new("broken off", Tone::Bad),
    }
}

fn facts(tally: &SessionTally, written: fn(&str) -> String) -> Vec<(&'static str, String)> {
    let summary = &tally.summary;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (mut passed, mut refused) = (0, 0);
    for tool in &tally.tools {
        match tool.action.as_deref() {
            Some("block" | "ask") => refused += tool.calls,
            _ => passed += tool.calls,
        }
    }
    let connections: u64 = summary.refused_connections.values().map(|one| one.count).sum();
    let duration = summary.duration_ms.map(|ms| format!("{:.1} s", Duration::from_millis(ms).as_secs_f64()));
    vec![
        ("started", summary.started_at.as_deref().map(written).unwrap_or_default()),
        ("command", summary.agent.join(" ")),
        ("project", text(&summary.project)),
        ("calls", format!("{passed} passed, {refused} refused")),
        ("connections and names refused", connections.to_string()),
        ("duration", duration.unwrap_or_default()),
        ("ended with", summary.exit_code.map(|code| format!("exit status {code}")).unwrap_or_default()),
        ("policy", text(&summary.policy)),
        ("started by", summary.verb.as_ref().map(|verb| format!("agentsh {verb}")).unwrap_or_default()),
        ("events", tally.events.to_string()),
        ("version", text(&summary.version)),
        ("kernel", text(&summary.kernel)),
        ("user", summary.uid.map(|uid| format!("uid {uid}")).unwrap_or_default()),
        ("session", summary.session.to_string()),
    ]
}

fn processes(tally: &SessionTally) -> Vec<Process> {
    let list = tally.summary.processes.values().map(|process| Process {
        server: process.server_id.as_ref().map(|id| id.0.clone()),
        program: process.program.clone(),
        hash: process.hash.clone(),
        starts: process.starts,
        ended: match (process.last_exit_code, process.last_cause) {
            (Some(code), Some(cause)) => format!("{cause}, {code}"),
            _ => "runs, or its end is not on record".to_owned(),
        },
    });
    list.collect()
}

fn stripped_variables(tally: &SessionTally, agent: &str) -> Vec<(String, Vec<String>)> {
    let lines = tally.summary.env_stripped.values().map(|stripped| {
        let who = stripped.server_id.as_ref().map_or(agent.to_owned(), |id| format!("server {id}"));
        let names: Vec<&str> = stripped.names.iter().map(String::as_str).collect();
        format!("{who}: {}", names.join(", "))
    });
    let mut sections = vec![("Variables that were not passed on".to_owned(), lines.collect())];
    for (section, title) in [
        ("data", "What went from where to where"),
        ("model's answers", "What the model answered, and its cost"),
    ] {
        let found = tally.summary.sections().into_iter().find(|(name, _)| *name == section);
        sections.extend(found.map(|(_, lines)| (title.to_owned(), lines)));
    }
    if tally.summary.not_listed > 0 {
        let text =
            format!("{} different entries of this session are not in the lists", tally.summary.not_listed);
        sections.push(("Left out".to_owned(), vec![text]));
    }
    sections
}
