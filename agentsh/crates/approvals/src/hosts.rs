//! Questions about hosts that no rule of the agent names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use agentsh_base::types::RuleRef;
use agentsh_guard::{Outcome, Reason};
use agentsh_net::ask::{Answer, Ask};

use super::{Approvals, Item, Key};

/// A connection waits no longer, even if calls do.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// A yes to this once is one to what belongs together: a program connects more than once.
const ONCE: Duration = Duration::from_secs(60);
/// Hosts that are asked about in one session; more are refused.
const MAX_COUNT: usize = 64;

/// How long an agent starts at least; then until it has opened a connection that a rule allows, to its model first of all.
const START_PERIOD: Duration = Duration::from_secs(20);

/// Hosts that the agent contacts by itself: those for nothing else, and those for the user's work, too.
type Background = (&'static [&'static str], &'static [&'static str]);

/// When a host was last decided about, and how.
type HostDecision = Option<(Instant, Result<(), agentsh_net::Reason>)>;

/// Asks about hosts, each once.
pub struct Hosts {
    approvals: Approvals,
    /// Refused without a question: always, and while the agent starts.
    background: Background,
    started: Instant,
    known: RefCell<BTreeMap<String, Rc<Mutex<HostDecision>>>>,
}

impl Hosts {
    #[must_use]
    pub fn new(approvals: Approvals, background: Background) -> Self {
        Self { approvals, background, started: Instant::now(), known: RefCell::default() }
    }

    fn is_starting(&self) -> bool {
        let Approvals(inner) = &self.approvals;
        let has_connected = || inner.session.record.journal.summary().connections.values().len() > 0;
        self.started.elapsed() < START_PERIOD || !has_connected()
    }

    fn place(&self, host: &str) -> Option<Rc<Mutex<HostDecision>>> {
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
        let (always, at_start) = self.background;
        always.contains(&host) || (at_start.contains(&host) && self.is_starting())
    }

    fn ask<'a>(&'a self, host: &'a str, port: u16) -> Answer<'a> {
        Box::pin(async move {
            let place = self.place(host).ok_or(agentsh_net::Reason::NobodyToAsk)?;
            // Later callers wait for the same answer.
            let mut decided = place.lock().await;
            match &*decided {
                Some((_, Err(reason))) => return Err(*reason),
                Some((at, Ok(()))) if at.elapsed() < ONCE => return Ok(()),
                _ => {}
            }
            let answer = self.put(host, port).await;
            *decided = Some((Instant::now(), answer));
            answer
        })
    }
}
