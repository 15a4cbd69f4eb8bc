//! Searches arguments and results during a session: the flow of data between servers, and the destinations that
//! arguments name. The guard decides; the clock, the journal and the disk are here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use agentsh_base::json::Json;
use agentsh_base::types::ServerId;
use agentsh_dlp::Views;
use agentsh_dlp::flow::{self, Annotations, Flow, Labels};
use agentsh_dlp::taint;
use agentsh_guard::content::{marker_rewrites, unmarked_params};
use agentsh_guard::{Check, Outcome, PrecomputeJob, Report, Subject, SubjectKind};
use agentsh_policy::OnFlow;
use agentsh_store::taint::{OpenedTaintStore, SetAside};
use agentsh_store::words::ForgotReason;
use agentsh_store::{Journal, StoreError, TaintStore};

mod deferred_results;
mod files;
mod judge_outgoing;
mod leak_budget;
mod offload;
mod pairs;
pub(super) mod random;
mod report;
mod result_memory;
mod settings;
mod standalone;

use deferred_results::DeferredResults;
pub use files::{FILES, secret_lines};
use judge_outgoing::{apply_rewrites, names_places};
use leak_budget::LeakBudget;
use pairs::Pairs;
pub use pairs::{CLOSED_PAIR, LABEL_FLOW};
use random::Random;
use report::{Declared, record_name};
use result_memory::hints_open_world;
pub use settings::{Destinations, LIFETIME, Settings, action_taken};
pub use standalone::{MarkedText, Searched};

/// Requests of the protocol that a client sends by itself. An agent may choose the content of all others.
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

pub struct Content {
    settings: Settings,
    flow: Flow,
    views: Views,
    journal: Journal,
    store: Option<TaintStore>,
    found: VecDeque<Value>,
    found_count: u64,
    evicted: u64,
    /// What the agent declared about texts that it passed, and what earlier sessions wrote about theirs.
    declared: BTreeMap<taint::OriginId, Declared>,
    /// Annotations of servers that raise suspicion against their own tools.
    suspected: BTreeMap<ServerId, Annotations>,
    random: Random,
    /// Of the ids that clients see.
    token_seed: [u8; 32],
    later: DeferredResults,
    pairs: Pairs,
    little: LeakBudget,
    /// Definitions that were remembered, each with its server.
    listed: BTreeSet<(ServerId, String)>,
    /// For each server, how many messages to it were judged.
    judged: BTreeMap<ServerId, u64>,
    /// The content checks allow the item judged last, but it is not known yet whether it is forwarded.
    undecided: bool,
}

impl Content {
    /// Nothing is remembered beyond the session.
    ///
    /// # Errors
    /// When the system gives no random key.
    pub fn new(settings: Settings, journal: Journal) -> std::io::Result<Self> {
        let key = agentsh_base::random::bytes()?;
        Ok(Self::with(settings, journal, &key, seeds()?, None))
    }

    /// The memory is stored at `path` as keyed hashes, and includes that of earlier sessions. Also a damaged file that was set aside.
    ///
    /// # Errors
    /// When the file or its key cannot be used.
    pub async fn persistent(
        settings: Settings,
        journal: Journal,
        path: &Path,
    ) -> Result<(Self, Option<SetAside>), StoreError> {
        let no_key =
            |error: std::io::Error| StoreError::Open { path: path.to_owned(), message: error.to_string() };
        let key = agentsh_store::taint::key(
            &agentsh_store::taint::key_file(path),
            &agentsh_base::random::bytes().map_err(no_key)?,
        )?;
        let OpenedTaintStore { store, records, set_aside } =
            TaintStore::open(path, since_1970(), &journal).await?;
        let seeds = seeds().map_err(no_key)?;
        let mut content = Self::with(settings, journal, &key, seeds, Some(store));
        if let Some(aside) = &set_aside {
            let detail = format!("{}; the old file is {}", aside.reason, aside.moved_to.display());
            content.record_forgotten(None, ForgotReason::StoreDamaged, 0, detail);
        }
        let mut refused = 0;
        let mut why = String::new();
        let mut known = BTreeMap::new();
        for record in records {
            if let Ok(said) = serde_json::from_slice(&record) {
                match Declared::read(&said) {
                    Some((name, declared)) => {
                        content.declared.extend(known.get(name).map(|id| (*id, declared)));
                    }
                    None => content.add_event(said),
                }
                continue;
            }
            match content.flow.import(&record, since_1970()) {
                Ok(id) => known.extend(id.map(|id| (record_name(&record), id))),
                Err(error) => {
                    refused += 1;
                    why = error.to_string();
                }
            }
        }
        if refused > 0 {
            content.record_forgotten(None, ForgotReason::StoreRefused, refused, why);
        }
        Ok((content, set_aside))
    }

    fn with(
        settings: Settings,
        journal: Journal,
        key: &[u8; 32],
        (random, token_seed): (Random, [u8; 32]),
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
            declared: BTreeMap::new(),
            suspected: BTreeMap::new(),
            random,
            token_seed,
            later: DeferredResults::default(),
            pairs: Pairs::default(),
            little: LeakBudget::default(),
            listed: BTreeSet::new(),
            judged: BTreeMap::new(),
            undecided: false,
        }
    }

    fn labels(&self, server: &ServerId) -> Labels {
        let labels = self.settings.labels.borrow().get(server).copied().unwrap_or_default();
        labels.with_annotations(self.suspected.get(server).copied().unwrap_or_default())
    }

    /// The outcome of a call with a finding.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        outcome_of(self.settings.mode)
    }

    /// The remembered data and the findings, without any value: `tracking`, `tokens`, `leakage_events`.
    pub fn report(&mut self) -> Value {
        self.catch_up_now();
        self.state_json()
    }

    /// Waits until what is remembered is on disk.
    pub async fn flush(store: Option<TaintStore>) {
        if let Some(store) = store {
            // Results that could not be written are not found later; nothing else depends on it.
            let _ = store.flush().await;
        }
    }

    #[must_use]
    pub fn store(&self) -> Option<TaintStore> {
        self.store.clone()
    }
}

impl Check for Content {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        self.settle_sent();
        let server = subject.server;
        match subject.matter {
            SubjectKind::Definition { name, definition, hash } => {
                self.little.declare(server, definition);
                if !name.is_empty() && hints_open_world(definition) {
                    self.note_tool(server, name, Annotations { open_world: true });
                }
                self.remember_definition(server, name, hash, definition);
            }
            SubjectKind::Offer { name, definition, hash, .. } => {
                self.remember_definition(server, name, hash, definition);
            }
            SubjectKind::Call { arguments, .. } => {
                let before = report.rewrites().to_vec();
                let carried = &*apply_rewrites(arguments.unwrap_or(&Json::Null), &before);
                let markers = marker_rewrites(carried, |text| self.flow.without_markers(text));
                self.judge_carried(subject, carried, markers, report);
            }
            SubjectKind::Request { method, params } => {
                let params = params.unwrap_or(&Json::Null);
                let before = report.rewrites().to_vec();
                let params = &*apply_rewrites(params, &before);
                let markers = unmarked_params(params, |text| self.flow.without_markers(text));
                if OF_PROTOCOL.contains(&method) {
                    self.judge_copies(subject, method, params, report);
                    report.rewrite(markers);
                } else {
                    self.judge_carried(subject, params, markers, report);
                }
            }
            SubjectKind::Around { name, rest } => self.judge_copies(subject, name, rest, report),
            SubjectKind::Answer { method, result } => self.judge_answer(subject, method, result, report),
            SubjectKind::Result { tool, answer } => {
                let before = report.rewrites().to_vec();
                let passed = apply_rewrites(answer, &before);
                report.rewrite(self.remember_result(server, tool, &passed));
            }
            SubjectKind::Notification { method, params: Some(params) }
            | SubjectKind::ServerRequest { method, params: Some(params) } => {
                self.remember_said(server, method, params)
            }
            SubjectKind::OwnRead { tool, lines } => self.remember_own(tool, lines),
            // The arguments of a call in a model's answer are searched when the call goes to its server.
            SubjectKind::ModelCall { .. }
            | SubjectKind::Server
            | SubjectKind::ServerRequest { params: None, .. }
            | SubjectKind::Notification { params: None, .. } => {}
        }
    }

    fn record_passed(&mut self, _: &Subject<'_>) {
        self.sent();
    }

    fn precompute_job(&mut self, subject: &Subject<'_>) -> Option<Box<dyn PrecomputeJob>> {
        self.search_ahead(subject)
    }

    fn catch_up(&mut self) -> bool {
        self.remember_later(false);
        self.later.len() == 0
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Of markers, and of the ids of tokens.
fn seeds() -> std::io::Result<(Random, [u8; 32])> {
    Ok((Random::new()?, agentsh_base::random::bytes()?))
}

/// The outcome of a flow according to the policy.
#[must_use]
pub fn outcome_of(action: OnFlow) -> Outcome {
    match action {
        OnFlow::Allow => Outcome::Allow,
        OnFlow::Alert => Outcome::Alert,
        OnFlow::Ask => Outcome::Ask,
        OnFlow::Block => Outcome::Block,
    }
}

#[must_use]
pub fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
