//! Who looks into arguments and results during a session: the flow of data between servers and the destinations that
//! arguments name. The decisions are the guard's; here are the clock, the record and the disk.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::guard::content::{Forbidden, Views, forbidden, mark_of, markable, unmarked, unmarked_params};
use crate::guard::flow::{self, Annotations, Flow, Flowed, Judged, Labels};
use crate::guard::taint::{self, Leaves, Origin, OriginId, Stored, repeats};
use crate::guard::threads::side_by_side;
use crate::guard::{
    Ahead, Check, Finding, Matter, Outcome, Reason, Report, Rewrite, Severity, Subject, Verdict,
};
use crate::json::Json;
use crate::policy::OnFlow;
use crate::store::taint::Opened;
use crate::store::words::ForgotReason;
use crate::store::{Event, Journal, StoreError, TaintStore, escape};
use crate::types::{RuleRef, ServerId, ToolId};

mod ahead;
mod files;
mod later;
mod little;
mod own;
mod pairs;
pub(super) mod random;
mod report;
mod settings;

use ahead::Searched;
pub use files::{FILES, secret_lines};
use later::Later;
use little::Little;
pub use own::Wrapped;
pub use pairs::{CLOSED_PAIR, LABEL_FLOW};
use pairs::{Pairs, way_of_value, ways};
use random::Random;
pub(super) use random::bytes as random_bytes;
pub use report::token_id;
pub use settings::{Destinations, LIFETIME, Settings, action_taken};

/// Requests of the protocol itself, which a client sends whatever its agent wants. In all others an agent may choose what
/// stands there.
const OF_PROTOCOL: [&str; 10] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/unsubscribe",
    "logging/setLevel",
    "subscriptions/listen",
];
/// Definitions that are remembered once for all listings.
const MOST_DEFINITIONS: usize = 16_384;

/// A result that leaves so many bytes of freed memory behind that the kernel gets them back.
const LONG: usize = 256 << 10;
/// Evicted results until the record hears of them again.
const EVICTED: u64 = 1000;

pub struct Content {
    settings: Settings,
    flow: Flow,
    views: Views,
    journal: Journal,
    store: Option<TaintStore>,
    found: VecDeque<Value>,
    found_count: u64,
    evicted: u64,
    /// What servers said of their own tools that speaks against them.
    suspected: BTreeMap<ServerId, Annotations>,
    random: Random,
    later: Later,
    pairs: Pairs,
    little: Little,
    /// Definitions that were remembered, each with its server.
    listed: BTreeSet<(ServerId, String)>,
    /// How often was judged what goes to each server.
    judged: BTreeMap<ServerId, u64>,
    /// To whom what was judged last goes, when nothing here refuses it.
    undecided: Option<ServerId>,
}

impl Content {
    /// Nothing is remembered beyond the session.
    ///
    /// # Errors
    /// When the system gives no random key.
    pub fn new(settings: Settings, journal: Journal) -> std::io::Result<Self> {
        let key = random::bytes()?;
        Ok(Self::with(settings, journal, &key, Random::new()?, None))
    }

    /// What is remembered lies at `path` as keyed hashes, and what an earlier session left there is found again.
    ///
    /// # Errors
    /// When the file or its key cannot be used.
    pub async fn persistent(settings: Settings, journal: Journal, path: &Path) -> Result<Self, StoreError> {
        let no_key =
            |error: std::io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
        let key = crate::store::taint::key(
            &crate::store::taint::key_file(path),
            &random::bytes().map_err(no_key)?,
        )?;
        let Opened { store, records, set_aside } = TaintStore::open(path, since_1970(), &journal).await?;
        let random = Random::new().map_err(no_key)?;
        let mut content = Self::with(settings, journal, &key, random, Some(store));
        if let Some(aside) = set_aside {
            let detail = format!("{}; the old file is {}", aside.reason, aside.moved_to.display());
            content.forgotten(None, ForgotReason::StoreDamaged, 0, detail);
        }
        let mut refused = 0;
        let mut why = String::new();
        for record in records {
            if let Err(error) = content.flow.import(&record, since_1970()) {
                refused += 1;
                why = error.to_string();
            }
        }
        if refused > 0 {
            content.forgotten(None, ForgotReason::StoreRefused, refused, why);
        }
        Ok(content)
    }

    fn with(
        settings: Settings,
        journal: Journal,
        key: &[u8; 32],
        random: Random,
        store: Option<TaintStore>,
    ) -> Self {
        let taint = taint::Config {
            lifetime: settings.lifetime,
            record: store.is_some(),
            ..taint::Config::default()
        };
        Self {
            flow: Flow::new(flow::Config { taint }, key).permitting(&settings.policy.allow),
            views: Views::default(),
            settings,
            journal,
            store,
            found: VecDeque::new(),
            found_count: 0,
            evicted: 0,
            suspected: BTreeMap::new(),
            random,
            later: Later::default(),
            pairs: Pairs::default(),
            little: Little::default(),
            listed: BTreeSet::new(),
            judged: BTreeMap::new(),
            undecided: None,
        }
    }

    fn labels(&self, server: &ServerId) -> Labels {
        let labels = self.settings.labels.borrow().get(server).copied().unwrap_or_default();
        labels.suspect(self.suspected.get(server).copied().unwrap_or_default())
    }

    /// What becomes of a call in which something was found.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        outcome_of(self.settings.mode)
    }

    /// What of it leaves: a copy, else bytes that may be one.
    fn leak_of(&self, judged: Judged, server: &ServerId) -> Option<Finding> {
        let mut findings = judged.findings.into_iter().filter(|flowed| !self.may_flow(flowed, server));
        let mut opaque = None;
        let leak = findings.find(|flowed| {
            if flowed.finding.rule == taint::OPAQUE {
                opaque.get_or_insert_with(|| flowed.clone());
            }
            flowed.refused
        });
        match leak {
            Some(leak) => Some(self.of_flow(leak, server)),
            None => self.of_opaque(opaque?, server),
        }
    }

    fn of_opaque(&self, flowed: Flowed, server: &ServerId) -> Option<Finding> {
        let policy = &self.settings.policy;
        let written = policy.on_opaque.as_ref();
        let action = written.map_or(OnFlow::Alert, |action| action.value);
        let rule = written.map(|action| action.rule.clone());
        let rule = rule.unwrap_or_else(|| pairs::part_of(&policy.rule, "on_opaque"));
        let source = &flowed.origin.server;
        let what = format!(
            "it carries bytes that nobody can read, after '{}' of server '{source}' gave something private; {}, and \
             `exfiltration: {{on_opaque: allow}}` lets such bytes go everywhere",
            escape::line(&flowed.origin.tool),
            way_of_value(policy, source, server)
        );
        let found = self.of_flow(flowed, server);
        let verdict = Verdict::new(outcome_of(action), Reason::PrivateToExternal, rule);
        (action != OnFlow::Allow).then_some(Finding { verdict, what, ..found })
    }

    fn of_place(&self, forbidden: Forbidden, rule: RuleRef) -> Finding {
        let host = escape::line(&forbidden.host).into_owned();
        Finding {
            verdict: Verdict::new(self.outcome(), Reason::DestinationNotAllowed, rule),
            category: None,
            detector: "destination".to_owned(),
            severity: Severity::High,
            source: None,
            context: format!("[{} in {}]", forbidden.form.as_str(), forbidden.pointer),
            what: format!("it names '{host}', which is not listed there"),
            destination: Some(host),
            pointer: forbidden.pointer,
            decoded: Vec::new(),
        }
    }

    fn of_flow(&self, flowed: Flowed, server: &ServerId) -> Finding {
        let Flowed { finding, origin, .. } = flowed;
        let policy = &self.settings.policy;
        let written = policy.written.get("on_detection").cloned();
        let rule = written.unwrap_or_else(|| pairs::part_of(&policy.rule, "on_detection"));
        Finding {
            verdict: Verdict::new(self.outcome(), Reason::Tainted, rule),
            category: None,
            detector: finding.rule.to_owned(),
            severity: finding.severity,
            // How it was found and decoded is for the record: who is refused would learn how to hide it better.
            what: format!(
                "it carries something out of a result of '{}' of server '{}'; {}",
                escape::line(&origin.tool),
                origin.server,
                match pairs::is_prose(finding.category) {
                    true => ways(policy, &origin.server, server),
                    false => way_of_value(policy, &origin.server, server),
                }
            ),
            source: Some(ToolId { server: origin.server, tool: origin.tool }),
            destination: Some(server.0.clone()),
            context: finding.context,
            pointer: finding.pointer,
            decoded: finding.chain,
        }
    }

    /// Remembers one result, after all that came before it.
    fn remember(&mut self, origin: Origin, leaves: &Leaves<'_>) -> OriginId {
        let (server, time) = (origin.server.clone(), origin.time);
        let stored = self.flow.remember(origin, leaves, &self.views);
        self.note_stored(server, time, stored)
    }

    /// Takes down on disk and on record what remembering a result did.
    fn note_stored(&mut self, server: ServerId, time: Duration, stored: Stored) -> OriginId {
        let Stored { id, evicted, truncated, record, .. } = stored;
        if let (Some(store), Some(record)) = (&self.store, record) {
            store.remember(record, time + self.settings.lifetime + repeats::WITHIN);
        }
        if let Some(evicted) = evicted {
            let before = self.evicted;
            self.evicted += evicted.results;
            if before == 0 || before / EVICTED != self.evicted / EVICTED {
                let kept = if evicted.kept > 0 { "; of some the secrets are" } else { "" };
                let whose: Vec<String> =
                    evicted.by_server.keys().map(|server| format!("'{server}'")).collect();
                let detail = format!(
                    "{} results are remembered, older ones of {} are not{kept}",
                    self.flow.load().0,
                    whose.join(", ")
                );
                self.forgotten(None, ForgotReason::MemoryFull, self.evicted, detail);
            }
        }
        if truncated {
            let detail = "the end of a result is not remembered".to_owned();
            self.forgotten(Some(server), ForgotReason::TooLong, 1, detail);
        }
        id
    }

    fn forgotten(&self, server_id: Option<ServerId>, reason: ForgotReason, results: u64, detail: String) {
        self.journal.record(Event::McpResultsForgotten { server_id, reason, results, detail });
    }

    /// Waits until what is remembered is on disk.
    pub async fn flush(store: Option<TaintStore>) {
        if let Some(store) = store {
            // What could not be written is not found again; nothing else depends on it.
            let _ = store.flush().await;
        }
    }

    #[must_use]
    pub fn store(&self) -> Option<TaintStore> {
        self.store.clone()
    }
}

impl Content {
    /// What goes out with something that is sent, if anything: what came out of another server's results, and, where it
    /// `may_name` places, a place that is not listed. `seen`: what was found in it on another thread.
    fn carried_out(
        &mut self,
        server: &ServerId,
        tool: &str,
        arguments: &Json<'_>,
        may_name: bool,
        seen: Option<Searched>,
    ) -> Option<Finding> {
        self.catch_up();
        let labels = self.labels(server);
        let list = self.settings.destinations.as_ref();
        let list = list.filter(|_| may_name && names_places(tool, arguments));
        let calls = self.judged.entry(server.clone()).or_default();
        let seen = seen.filter(|seen| seen.labels == labels && seen.calls == *calls);
        *calls += 1;
        let (searched, place) = seen.map_or((None, None), |seen| (seen.flow, Some(seen.place)));
        let (judged, place) = match (searched, place) {
            (Some((judged, flow)), Some(place)) => {
                self.flow.adopt(server, flow);
                (judged, place)
            }
            (_, place) => {
                let call = Leaves::of_call(tool, arguments);
                let (allowed, limits) = (list.map(|list| list.allowed.as_slice()), self.views.limits);
                side_by_side(
                    call.length(),
                    || self.flow.judge(server, labels, &call, since_1970(), &self.views),
                    || place.unwrap_or_else(|| forbidden(&call, allowed?, &limits)),
                )
            }
        };
        let rule = list.map(|list| list.rule.clone());
        self.leak_of(judged, server).or_else(|| Some(self.of_place(place?, rule?)))
    }

    /// What is handed to a server: judged as it is and as it is passed on. A marker that is taken out may have hidden
    /// what stood around it.
    fn judge_carried(
        &mut self,
        subject: &Subject<'_>,
        carried: &Json<'_>,
        markers: Vec<Rewrite>,
        report: &mut Report,
    ) {
        let (server, name) = (subject.server, subject.matter.name());
        let mut found = self.carried_out(server, name, carried, true, subject.seen.take());
        if !markers.is_empty() && !found.as_ref().is_some_and(|found| found.verdict.is_block()) {
            let mut clean = carried.clone();
            Rewrite::apply(&markers, &mut clean);
            // What was judged is not what is going to be sent.
            self.flow.not_sent(server);
            found = self.carried_out(server, name, &clean, true, None).or(found);
        }
        let outcome = found.as_ref().map_or(Outcome::Allow, |found| found.verdict.outcome);
        // A copy that was found says more than that something was read.
        let by_label = self.judge_pair(server, carried).filter(|label| label.verdict.outcome > outcome);
        let found: Vec<Finding> = found.into_iter().chain(by_label).collect();
        self.note_sent(server, &found);
        for found in found {
            self.note_refused(&found, server);
            self.keep(&found, server, name);
            report.find(found);
        }
        report.rewrite(markers);
    }

    /// What was judged last is not sent when it is refused, or a person is asked about the copy in it. Whoever agreed to a
    /// pair of servers is asked no more, so that what goes is counted; what other checks say is known when it passed.
    fn note_sent(&mut self, server: &ServerId, found: &[Finding]) {
        let is_kept = |found: &Finding| match found.verdict.outcome {
            Outcome::Block => true,
            Outcome::Ask => found.verdict.reason == Reason::Tainted,
            _ => false,
        };
        if found.iter().any(is_kept) {
            self.flow.not_sent(server);
        } else {
            self.undecided = Some(server.clone());
        }
    }

    /// What was judged last did not pass.
    fn settle_sent(&mut self) {
        if let Some(server) = self.undecided.take() {
            self.flow.not_sent(&server);
        }
    }

    /// What was judged last is sent.
    fn sent(&mut self) {
        let now = since_1970();
        if self.undecided.take().is_some()
            && let Some((store, record)) = self.store.as_ref().zip(self.flow.sent(now))
        {
            store.remember(record, now + self.settings.lifetime);
        }
    }

    /// Hosts in an answer are text, and no order to go anywhere.
    fn judge_answer(&mut self, subject: &Subject<'_>, method: &str, result: &Json<'_>, report: &mut Report) {
        let markers = unmarked(result, |text| self.flow.unmarked(text));
        self.judge_copies(subject, method, result, report);
        report.rewrite(markers);
    }

    /// What no agent chose as an argument: only what came out of another server's results counts there.
    fn judge_copies(&mut self, subject: &Subject<'_>, name: &str, said: &Json<'_>, report: &mut Report) {
        let found = self.carried_out(subject.server, name, said, false, subject.seen.take());
        self.note_sent(subject.server, found.as_slice());
        if let Some(found) = found {
            self.note_refused(&found, subject.server);
            self.keep(&found, subject.server, name);
            report.find(found);
        }
    }

    /// Takes in what a server said of itself, or without being asked.
    fn remember_said(&mut self, server: &ServerId, name: &str, said: &Json<'_>) {
        if !has_text(said) {
            return;
        }
        let origin = Origin {
            server: server.clone(),
            tool: name.to_owned(),
            call: String::new(),
            time: since_1970(),
            private: Origin::is_private(self.labels(server)),
        };
        self.later.push(origin, said);
        if self.later.is_full() {
            self.catch_up();
        }
    }

    fn remember_definition(&mut self, server: &ServerId, name: &str, hash: &str, definition: &Json<'_>) {
        if self.listed.len() < MOST_DEFINITIONS && self.listed.insert((server.clone(), hash.to_owned())) {
            self.remember_said(server, name, definition);
        }
    }

    /// Takes in what a call brought, and marks it. It counts in everything that is judged from now on; the work may
    /// wait until nobody waits for an answer.
    fn remember_result(&mut self, server: &ServerId, tool: &str, answer: &Json<'_>) -> Option<Rewrite> {
        let said = answer.member("result").or_else(|| answer.member("error"))?;
        let call = match answer.member("id") {
            Some(Json::String(raw) | Json::Number(raw)) => (*raw).to_owned(),
            _ => String::new(),
        };
        let is_private = Origin::is_private(self.labels(server));
        if is_private {
            self.pairs.read(server, tool, since_1970());
        } else {
            self.little.publish(said);
        }
        let origin = Origin {
            server: server.clone(),
            tool: tool.to_owned(),
            call,
            time: since_1970(),
            private: is_private,
        };
        let id = self.flow.next_id(self.later.len());
        let marked = self.settings.marker.and_then(|position| {
            let (item, text) = markable(said)?;
            let text = self.flow.mark(id, &text, position, self.random.next())?;
            mark_of(answer, item, &text)
        });
        self.later.push(origin, said);
        if self.later.is_full() {
            self.catch_up();
        }
        marked
    }

    /// Hears what a server says about one of its tools.
    fn note_tool(&mut self, server: &ServerId, tool: &str, says: Annotations) {
        let before = self.labels(server);
        let known = self.suspected.entry(server.clone()).or_default();
        known.open_world |= says.open_world;
        if self.labels(server) != before {
            self.journal.record(Event::McpServerSuspected {
                server_id: server.clone(),
                tool_name: tool.to_owned(),
                hint: "openWorldHint".to_owned(),
                detail: "what this server is told counts as leaving, though it was labelled local".to_owned(),
            });
        }
    }

    /// What is remembered and what was found, without any value: `tracking`, `tokens`, `leakage_events`.
    pub fn report(&mut self) -> Value {
        self.catch_up();
        self.shown()
    }
}

impl Check for Content {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        self.settle_sent();
        let server = subject.server;
        match subject.matter {
            Matter::Definition { name, definition, hash } => {
                self.little.declare(server, definition);
                if !name.is_empty() && hints_open_world(definition) {
                    self.note_tool(server, name, Annotations { open_world: true });
                }
                self.remember_definition(server, name, hash, definition);
            }
            Matter::Offer { name, definition, hash, .. } => {
                self.remember_definition(server, name, hash, definition);
            }
            Matter::Call { arguments, .. } => {
                let before = report.rewrites().to_vec();
                let carried = &*replaced(arguments.unwrap_or(&Json::Null), &before);
                let markers = unmarked(carried, |text| self.flow.unmarked(text));
                self.judge_carried(subject, carried, markers, report);
            }
            Matter::Request { method, params } => {
                let params = params.unwrap_or(&Json::Null);
                let before = report.rewrites().to_vec();
                let params = &*replaced(params, &before);
                let markers = unmarked_params(params, |text| self.flow.unmarked(text));
                if OF_PROTOCOL.contains(&method) {
                    self.judge_copies(subject, method, params, report);
                    report.rewrite(markers);
                } else {
                    self.judge_carried(subject, params, markers, report);
                }
            }
            Matter::Around { name, rest } => self.judge_copies(subject, name, rest, report),
            Matter::Answer { method, result } => self.judge_answer(subject, method, result, report),
            Matter::Result { tool, answer } => {
                let before = report.rewrites().to_vec();
                let passed = replaced(answer, &before);
                report.rewrite(self.remember_result(server, tool, &passed));
            }
            Matter::Notification { method, params: Some(params) }
            | Matter::ServerRequest { method, params: Some(params) } => {
                self.remember_said(server, method, params)
            }
            Matter::OwnRead { tool, lines } => self.remember_own(tool, lines),
            // What a model's call carries is searched when it goes to its server.
            Matter::ModelCall { .. }
            | Matter::Server
            | Matter::ServerRequest { params: None, .. }
            | Matter::Notification { params: None, .. } => {}
        }
    }

    fn passed(&mut self, _: &Subject<'_>) {
        self.sent();
    }

    fn ahead(&mut self, subject: &Subject<'_>) -> Option<Box<dyn Ahead>> {
        self.search_ahead(subject)
    }

    fn catch_up(&mut self) {
        self.catch_up_now();
    }
}

impl Content {
    fn catch_up_now(&mut self) {
        self.flow.settle();
        let mut longest = 0;
        for (origin, said) in self.later.take() {
            let (server, time) = (origin.server.clone(), origin.time);
            // It was read before it was written down.
            if let Ok(stored) = self.flow.remember_json(origin, &said, &self.views) {
                longest = longest.max(if stored.repeated { 0 } else { said.len() });
                self.note_stored(server, time, stored);
            }
        }
        if longest >= LONG {
            crate::memory::trim_heap();
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn outcome_of(action: OnFlow) -> Outcome {
    match action {
        OnFlow::Allow => Outcome::Allow,
        OnFlow::Alert => Outcome::Alert,
        OnFlow::Ask => Outcome::Ask,
        OnFlow::Block => Outcome::Block,
    }
}

/// The address of a resource is a name that its server made up, unless it is one of the web.
fn names_places(tool: &str, arguments: &Json<'_>) -> bool {
    if !tool.starts_with("resources/") {
        return true;
    }
    let uri = arguments.member("uri").and_then(Json::as_text);
    uri.is_none_or(|uri| {
        let uri = uri.trim_start().to_ascii_lowercase();
        ["http:", "https:", "ws:", "wss:", "ftp:", "ftps:", "sftp:", "//"]
            .iter()
            .any(|start| uri.starts_with(start))
    })
}

/// The value as it is passed on.
fn replaced<'v>(value: &'v Json<'v>, rewrites: &'v [Rewrite]) -> Cow<'v, Json<'v>> {
    if rewrites.is_empty() {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    Rewrite::apply(rewrites, &mut value);
    Cow::Owned(value)
}

/// Whether anything in it is long enough to be somebody's.
fn has_text(value: &Json<'_>) -> bool {
    const SHORTEST: usize = 8;
    match value {
        Json::Null | Json::Bool(_) => false,
        Json::Number(raw) | Json::String(raw) => raw.len() >= SHORTEST,
        Json::Array(items) => items.iter().any(has_text),
        Json::Object(members) => {
            members.iter().any(|(name, value)| name.len() >= SHORTEST || has_text(value))
        }
    }
}

fn hints_open_world(definition: &Json<'_>) -> bool {
    let hint = definition.member("annotations").and_then(|annotations| annotations.member("openWorldHint"));
    hint == Some(&Json::Bool(true))
}

#[must_use]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
