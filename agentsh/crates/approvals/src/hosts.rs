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

/// When a host was last decided about, and how.
type HostDecision = Option<(Instant, Result<(), agentsh_net::Reason>)>;

/// Asks about hosts, each once.
pub struct Hosts {
    approvals: Approvals,
    /// Refused without a question: what the agent contacts by itself, for telemetry and updates.
    background: &'static [&'static str],
    known: RefCell<BTreeMap<String, Rc<Mutex<HostDecision>>>>,
}

impl Hosts {
    #[must_use]
    pub fn new(approvals: Approvals, background: &'static [&'static str]) -> Self {
        Self { approvals, background, known: RefCell::default() }
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
    fn ask<'a>(&'a self, host: &'a str, port: u16) -> Answer<'a> {
        Box::pin(async move {
            if self.background.contains(&host) {
                return Err(agentsh_net::Reason::TelemetryOrUpdate);
            }
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
