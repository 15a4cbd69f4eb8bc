//! Questions about hosts that no rule of the agent names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use agentsh_base::types::RuleRef;
use agentsh_guard::{Outcome, Reason};
use agentsh_net::ask::{Answer, Ask};
use agentsh_store::Journal;

use super::{Approvals, Item, Key};

/// A connection waits no longer, even if calls do.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// A yes to this once is one to what belongs together: a program connects more than once.
const ONE_TIME_WINDOW: Duration = Duration::from_secs(60);
/// Hosts that are asked about in one session; more are refused.
const MAX_COUNT: usize = 64;

/// How long an agent starts at least; then until it has opened a connection that a rule allows, to its model first of all.
const START_PERIOD: Duration = Duration::from_secs(20);

/// Hosts that the agent contacts by itself. They are refused without a question.
#[derive(Debug)]
pub struct BackgroundHosts {
    always: Vec<String>,
    /// Those for the user's work, too: only while the agent starts.
    at_start: Vec<String>,
    started: Instant,
}

impl Default for BackgroundHosts {
    fn default() -> Self {
        Self::new(&[], Vec::new())
    }
}

impl BackgroundHosts {
    /// The agent starts now.
    #[must_use]
    pub fn new(always: &[&str], at_start: Vec<String>) -> Self {
        let always = always.iter().map(|host| (*host).to_owned()).collect();
        Self { always, at_start, started: Instant::now() }
    }

    /// Whether a request for this host is the agent's own.
    #[must_use]
    pub fn has(&self, host: &str, journal: &Journal) -> bool {
        let contains = |hosts: &[String]| hosts.iter().any(|known| known == host);
        let has_connected = || journal.summary().connections.values().len() > 0;
        let is_starting = || self.started.elapsed() < START_PERIOD || !has_connected();
        contains(&self.always) || contains(&self.at_start) && is_starting()
    }
}

/// When a host was last decided about, and how.
type HostDecision = Option<(Instant, Result<(), agentsh_net::Reason>)>;

/// Asks about hosts, each once.
pub struct Hosts {
    approvals: Approvals,
    background: Rc<BackgroundHosts>,
    known: RefCell<BTreeMap<String, Rc<Mutex<HostDecision>>>>,
}

impl Hosts {
    #[must_use]
    pub fn new(approvals: Approvals, background: Rc<BackgroundHosts>) -> Self {
        Self { approvals, background, known: RefCell::default() }
    }

    fn decision_of_host(&self, host: &str) -> Option<Rc<Mutex<HostDecision>>> {
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_COUNT && !known.contains_key(host) {
            return None;
        }
        Some(Rc::clone(known.entry(host.to_owned()).or_default()))
    }

    async fn put(&self, host: &str, port: u16) -> Result<(), agentsh_net::Reason> {
        let Approvals(inner) = &self.approvals;
        let key = Key::Host(host.to_owned());
        let rule = RuleRef::default_rule("network.unknown");
        let patience = inner.session.facts.policy.mcp.approvals.wait().min(WAIT_TIMEOUT);
        let about = ("agent", format!("{host}:{port}"));
        let why = "no rule names this host".to_owned();
        let asked = self.approvals.ask_person(key, rule.clone(), patience, |id| Item {
            host: Some(host.to_owned()),
            ..Item::new(id, &inner.session, about, (&rule, why), patience)
        });
        let verdict = asked.await.ok_or(agentsh_net::Reason::NobodyToAsk)?;
        reason(verdict.outcome, verdict.reason)
    }
}

fn reason(outcome: Outcome, reason: Reason) -> Result<(), agentsh_net::Reason> {
    match (outcome, reason) {
        (Outcome::Allow, _) => Ok(()),
        (_, Reason::ApprovalTimedOut) => Err(agentsh_net::Reason::ApprovalTimedOut),
        _ => Err(agentsh_net::Reason::ApprovalDenied),
    }
}

impl Ask for Hosts {
    fn is_background(&self, host: &str) -> bool {
        let Approvals(inner) = &self.approvals;
        self.background.has(host, &inner.session.record.journal)
    }

    fn ask<'a>(&'a self, host: &'a str, port: u16) -> Answer<'a> {
        Box::pin(async move {
            let place = self.decision_of_host(host).ok_or(agentsh_net::Reason::NobodyToAsk)?;
            // Later callers wait for the same answer.
            let mut decided = place.lock().await;
            match &*decided {
                Some((_, Err(reason))) => return Err(*reason),
                Some((at, Ok(()))) if at.elapsed() < ONE_TIME_WINDOW => return Ok(()),
                _ => {}
            }
            let answer = self.put(host, port).await;
            *decided = Some((Instant::now(), answer));
            answer
        })
    }
}
