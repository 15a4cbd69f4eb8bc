//! All decisions of one session.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use crate::checks::{ArgumentLength, CrossServer, Lists, Rates, Rules, ServerList};
use crate::decision::{
    Caller, Check, Decision, OffloadJob, PrecomputedFinding, PrecomputedFindings, Report, Subject,
    SubjectKind,
};
use crate::hidden::Hidden;
use crate::policy::McpPolicy;
use crate::types::{ServerId, ToolId};
use crate::verdict::Outcome;

/// How long an agent has for a call that its model asked for, before it counts as another one.
const ANNOUNCED_CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// Limit of remembered calls from model answers; further ones count twice.
const MAX_ANNOUNCED_CALLS: usize = 4096;

/// The checks of one session, in the order in which they are asked: cheap ones first.
#[derive(Debug)]
pub struct Guard {
    checks: Vec<Box<dyn Check>>,
    hidden: Hidden,
    turn: Option<u64>,
    audience: String,
    caller: Option<Rc<Caller>>,
    /// Calls in a model's answers, each of which was counted when it was let through, until the agent makes them.
    promised: BTreeMap<ToolId, VecDeque<Duration>>,
}

impl Guard {
    /// With the checks that need nothing but the policy.
    #[must_use]
    pub fn new(policy: &McpPolicy) -> Self {
        Self::of_declared(policy, &[])
    }

    /// Like `new`, for servers declared in this order: a name belongs to the server declared first, whichever answers first.
    #[must_use]
    pub fn of_declared(policy: &McpPolicy, order: &[ServerId]) -> Self {
        let mut guard = Self::in_order(policy, order);
        guard.checks.insert(0, Box::new(Lists::new(policy)));
        guard
    }

    /// Like `new`, without the lists of servers and tools, for callers that have checked those, such as `policy explain`.
    #[must_use]
    pub fn without_lists(policy: &McpPolicy) -> Self {
        Self::in_order(policy, &[])
    }

    fn in_order(policy: &McpPolicy, order: &[ServerId]) -> Self {
        Self {
            checks: vec![
                Box::new(ArgumentLength::new(policy)),
                Box::new(Rules::new(policy)),
                Box::new(CrossServer::new(&policy.cross_server, order)),
                Box::new(Rates::new(&policy.rate_limits)),
            ],
            hidden: Hidden::default(),
            turn: None,
            audience: String::new(),
            caller: None,
            promised: BTreeMap::new(),
        }
    }

    /// Like `new`, with the list of servers alone, for callers that need everything that a server offers.
    #[must_use]
    pub fn of_servers(policy: &McpPolicy) -> Self {
        let mut guard = Self::without_lists(policy);
        guard.checks.insert(0, Box::new(ServerList::new(policy)));
        guard
    }

    /// Adds a check after the others.
    pub fn add(&mut self, check: impl Check + 'static) {
        self.checks.push(Box::new(check));
    }

    /// The following subjects belong to this turn.
    pub fn in_turn(&mut self, turn: u64) {
        self.turn = Some(turn);
    }

    /// The following subjects are for this client (see [`Subject::audience`]).
    pub fn for_audience(&mut self, audience: &str) {
        if self.audience != audience {
            audience.clone_into(&mut self.audience);
        }
    }

    /// The following subjects come from this caller.
    pub fn for_caller(&mut self, caller: Option<Rc<Caller>>) {
        self.caller = caller;
    }

    /// Asks the checks until one blocks. What a listing hid is refused before any of them.
    pub fn decide(&mut self, server: &ServerId, matter: SubjectKind<'_>, now: Duration) -> Decision {
        self.decide_parts(server, &[(matter, &PrecomputedFindings::default())], now)
    }

    /// The work that another thread may do before [`Guard::decide_parts`] judges the same subject. None: there is none.
    pub fn offload_job(
        &mut self,
        server: &ServerId,
        matter: SubjectKind<'_>,
        now: Duration,
    ) -> Option<OffloadJob> {
        let (turn, audience, caller) = (self.turn, &*self.audience, self.caller.as_deref());
        let subject = Subject {
            server,
            matter,
            audience,
            caller,
            now,
            turn,
            is_promised: false,
            seen: PrecomputedFinding::NOTHING,
        };
        OffloadJob::new(&subject, &mut self.checks)
    }

    /// One decision about the parts of one message, each with its findings so far: the verdict of the first part, or of the
    /// strictest finding in another.
    pub fn decide_parts(
        &mut self,
        server: &ServerId,
        parts: &[(SubjectKind<'_>, &PrecomputedFindings)],
        now: Duration,
    ) -> Decision {
        let is_promised = parts.iter().any(|(matter, _)| self.was_promised(server, *matter, now));
        let (turn, audience, caller) = (self.turn, &*self.audience, self.caller.as_deref());
        let subject = |matter| Subject {
            server,
            matter,
            audience,
            caller,
            now,
            turn,
            is_promised,
            seen: PrecomputedFinding::NOTHING,
        };
        let mut all: Option<Decision> = None;
        for (matter, seen) in parts {
            let subject = subject(*matter);
            let mut report = Report::default();
            if let Some(found) = self.hidden.refusal(&subject) {
                report.find(found);
            }
            for check in &mut self.checks {
                if report.is_blocked() {
                    break;
                }
                check.judge(&Subject { seen: seen.of(check.key()), ..subject }, &mut report);
            }
            let decision = report.fold();
            self.hidden.note(&subject, &decision);
            match &mut all {
                Some(all) => decision.findings.into_iter().for_each(|found| all.add(found)),
                None => all = Some(decision),
            }
        }
        let decision = all.unwrap_or_else(|| Report::default().fold());
        if decision.verdict.outcome < Outcome::Block {
            for (matter, _) in parts {
                let subject = subject(*matter);
                self.checks.iter_mut().for_each(|check| check.record_passed(&subject));
            }
            if let [(SubjectKind::ModelCall { tool, .. }, _)] = parts {
                self.announce_call(ToolId { server: server.clone(), tool: (*tool).to_owned() }, now);
            }
        } else {
            for (matter, _) in parts {
                let subject = subject(*matter);
                self.checks.iter_mut().for_each(|check| check.record_refused(&subject));
            }
        }
        decision
    }

    fn announce_call(&mut self, tool: ToolId, now: Duration) {
        self.promised.retain(|_, calls| {
            calls.retain(|at| now.saturating_sub(*at) <= ANNOUNCED_CALL_TIMEOUT);
            !calls.is_empty()
        });
        if self.promised.values().map(VecDeque::len).sum::<usize>() < MAX_ANNOUNCED_CALLS {
            self.promised.entry(tool).or_default().push_back(now);
        }
    }

    /// Whether a call was counted when a model's answer asked for it. Each is made once.
    fn was_promised(&mut self, server: &ServerId, matter: SubjectKind<'_>, now: Duration) -> bool {
        let SubjectKind::Call { tool, .. } = matter else { return false };
        let tool = ToolId { server: server.clone(), tool: tool.to_owned() };
        let promised = self.promised.get_mut(&tool).and_then(VecDeque::pop_back);
        promised.is_some_and(|at| now.saturating_sub(at) <= ANNOUNCED_CALL_TIMEOUT)
    }

    /// Does work that checks put off. To be called when no caller waits for an answer, and again soon if it is false.
    pub fn catch_up(&mut self) -> bool {
        let mut done = true;
        self.checks.iter_mut().for_each(|check| done &= check.catch_up());
        done
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
