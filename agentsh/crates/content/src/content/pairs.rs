//! The labels of two servers: whether data may go from one to the other, even if no copy was found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agentsh_base::json::Json;
use agentsh_base::types::{RuleRef, ServerId, ToolId};
use agentsh_dlp::flow::{FlowFinding, Sink};
use agentsh_dlp::taint::Leaves;
use agentsh_guard::{Finding, Outcome, Reason, Severity, Verdict};
use agentsh_policy::{CLOSE_AFTER, ExfiltrationPolicy, OnFlow};
use agentsh_store::escape;

use super::leak_budget::{BudgetVerdict, OF_ANSWERS};
use super::settings::AfterReadAction;
use super::{Content, since_1970};

/// Servers whose reads are remembered: more than any session has.
const MAX_SERVERS: usize = 1024;

/// Source and target server.
type Pair = (ServerId, ServerId);

/// The flows between servers so far.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// The last private result of each server: its tool, and when it came.
    reads: BTreeMap<ServerId, (String, Duration)>,
    refused: BTreeMap<Pair, u64>,
    told: BTreeSet<Pair>,
}

impl Pairs {
    pub fn read(&mut self, server: &ServerId, tool: &str, now: Duration) {
        if self.reads.len() < MAX_SERVERS || self.reads.contains_key(server) {
            self.reads.insert(server.clone(), (tool.to_owned(), now));
        }
    }
}

/// The name of a finding of this module in the journal: something was read, or a pair of servers is closed.
pub const LABEL_FLOW: &str = "label-flow";
pub const CLOSED_PAIR: &str = "closed-pair";

/// A server from which private data was read, and the outcome of a call to another one.
struct Source {
    server: ServerId,
    tool: String,
    when: Duration,
    outcome: Outcome,
    rule: RuleRef,
}

impl Content {
    /// Whether a copy may go to `server` anyway.
    pub(super) fn may_flow(&self, flowed: &FlowFinding, server: &ServerId) -> bool {
        let from = &flowed.origin.server;
        // Prose may be shared; a value (a key, a card, an address) may not.
        let is_prose = is_prose(flowed.finding.category);
        self.settings.policy.allows(&from.0, &server.0).is_some()
            || is_prose && self.labels(from).shares_with(self.labels(server))
    }

    /// A copy was refused, or a person is asked about it.
    pub(super) fn note_refused(&mut self, found: &Finding, server: &ServerId) {
        let is_copy = found.verdict.reason == Reason::Tainted && found.verdict.outcome >= Outcome::Ask;
        if let Some(source) = found.source.as_ref().filter(|_| is_copy) {
            let pair = (source.server.clone(), server.clone());
            if self.pairs.refused.len() < MAX_SERVERS || self.pairs.refused.contains_key(&pair) {
                *self.pairs.refused.entry(pair).or_default() += 1;
            }
        }
    }

    /// The outcome because of reads from other servers, with or without a copy in the call.
    pub(super) fn judge_pair(
        &mut self,
        server: &ServerId,
        tool: &str,
        arguments: &Json<'_>,
    ) -> Option<Finding> {
        if self.labels(server).sink == Sink::Local {
            return None;
        }
        let now = since_1970();
        if let Some(closed) = self.closed_pair(server, now) {
            return Some(closed);
        }
        let sources = self.sources(server, now);
        let strictest = sources.iter().map(|source| source.outcome).max()?;
        // Of several sources, the last one is the one that a person remembers.
        let source = sources.into_iter().rev().find(|source| source.outcome == strictest)?;
        let policy = &self.settings.policy;
        let values = policy.values(&source.server.0, &server.0);
        let says = self.little.charge_call(server, tool, arguments, values);
        if says == BudgetVerdict::Within {
            return None;
        }
        let call = (tool, Leaves::of_call("", arguments).length());
        let found = flow_finding(policy, &source, server, call, now, says == BudgetVerdict::UsedUp);
        if self.pairs.told.len() < MAX_SERVERS {
            self.pairs.told.insert((source.server, server.clone()));
        }
        Some(found)
    }

    /// Whether anything becomes of a call because something was read before it.
    pub(super) fn judges_pairs(&self) -> bool {
        let policy = &self.settings.policy;
        self.settings.unwritten.is_some()
            || policy.on_private_to_external.is_some()
            || policy.pairs.iter().any(|entry| entry.value.action.is_some())
    }

    /// Servers of which something was read that is still remembered, and that no rule lets flow to `server`; the one
    /// that was read last comes last.
    fn sources(&self, server: &ServerId, now: Duration) -> Vec<Source> {
        let mut found: Vec<Source> = self
            .open_reads(server, now)
            .filter_map(|(source, tool, when)| {
                let (outcome, rule) = self.on_flow(source, server)?;
                Some(Source { server: source.clone(), tool: tool.to_owned(), when, outcome, rule })
            })
            .collect();
        found.sort_by_key(|source| source.when);
        found
    }

    fn open_reads(
        &self,
        server: &ServerId,
        now: Duration,
    ) -> impl Iterator<Item = (&ServerId, &str, Duration)> {
        let labels = self.labels(server);
        self.pairs.reads.iter().filter_map(move |(source, (tool, when))| {
            let is_open = source != server
                && now.saturating_sub(*when) < self.settings.lifetime
                && self.settings.policy.allows(&source.0, &server.0).is_none()
                && !self.labels(source).shares_with(labels);
            is_open.then_some((source, tool.as_str(), *when))
        })
    }

    /// The policy's outcome, else the default. None: the call passes.
    fn on_flow(&self, source: &ServerId, server: &ServerId) -> Option<(Outcome, RuleRef)> {
        let policy = &self.settings.policy;
        if let Some((action, rule)) = policy.on_flow(&source.0, &server.0) {
            let outcome = match action {
                OnFlow::Block => Outcome::Block,
                OnFlow::Ask => Outcome::Ask,
                OnFlow::Alert => Outcome::Alert,
                OnFlow::Allow => return None,
            };
            return Some((outcome, rule.clone()));
        }
        let outcome = match self.settings.unwritten? {
            AfterReadAction::Ask => Outcome::Ask,
            AfterReadAction::TellOnce if self.pairs.told.contains(&(source.clone(), server.clone())) => {
                return None;
            }
            AfterReadAction::TellOnce => Outcome::Alert,
        };
        Some((outcome, part_of(&policy.rule, "on_private_to_external")))
    }

    /// The pair that was closed after too many refusals, if it would be used.
    fn closed_pair(&self, server: &ServerId, now: Duration) -> Option<Finding> {
        let policy = &self.settings.policy;
        let close_after = policy.close_after.as_ref().map_or(CLOSE_AFTER, |count| count.value);
        let count = |source: &ServerId| {
            self.pairs.refused.get(&(source.clone(), server.clone())).copied().unwrap_or_default()
        };
        let (source, tool, _) =
            self.open_reads(server, now).find(|(source, ..)| count(source) >= close_after)?;
        let what = format!(
            "{} calls to '{server}' with data of '{source}' were refused: nothing from '{source}' may reach \
             '{server}' any more in this session, unless the user allows it",
            count(source),
        );
        let rule = policy.close_after.as_ref().map(|count| count.rule.clone());
        let rule = rule.unwrap_or_else(|| part_of(&policy.rule, "close_after"));
        let ways = allow_lines(policy, source, server);
        Some(Finding { ways, ..finding(CLOSED_PAIR, Outcome::Ask, rule, (source, tool), server, what) })
    }
}

/// A copy of text, and no value.
pub(super) fn is_prose(category: &str) -> bool {
    matches!(category, "passage" | "near-copy" | "marker")
}

fn flow_finding(
    policy: &ExfiltrationPolicy,
    source: &Source,
    server: &ServerId,
    (called, length): (&str, usize),
    now: Duration,
    is_used_up: bool,
) -> Finding {
    let Source { server: from, tool, when, outcome, rule } = source;
    let (told, values) = match is_used_up {
        true => (
            format!(
                " and already received {OF_ANSWERS} bits in small answers (yes, no, numbers), the limit of one \
                 session"
            ),
            format!(
                ", `exfiltration: {{pairs: [{{from: {from}, to: {server}, values: [WORD, WORD]}}]}}` lets these words go"
            ),
        ),
        false => (String::new(), String::new()),
    };
    let what = format!(
        "'{}' of server '{from}' returned private data {} s ago, and '{}' would send {length} bytes to server \
         '{server}', \
         which leaves this machine{told}",
        escape::line(tool),
        now.saturating_sub(*when).as_secs(),
        escape::line(called),
    );
    let ways = allow_lines(policy, from, server) + &values;
    Finding { ways, ..finding(LABEL_FLOW, *outcome, rule.clone(), (from, tool), server, what) }
}

/// The lines of policy that let a value (a key, a card) pass as well, and the file that they go into.
pub(super) fn way_of_value(policy: &ExfiltrationPolicy, from: &ServerId, to: &ServerId) -> String {
    let file = file_of(policy);
    format!(
        "in {file} below `sandbox: mcp:`, `exfiltration: {{allow: [{{from: {from}, to: {to}}}]}}` lets everything go to '{to}'"
    )
}

fn file_of(policy: &ExfiltrationPolicy) -> &str {
    if policy.is_written() { &policy.rule.file } else { "~/.config/agentsh/policy.yaml" }
}

/// The lines of policy that let a flow pass, the narrowest first, and the file that they go into.
pub(super) fn allow_lines(policy: &ExfiltrationPolicy, from: &ServerId, to: &ServerId) -> String {
    let file = file_of(policy);
    format!(
        "in {file} below `sandbox: mcp:`, `servers: [{{id: {from}, flow: {{source: shareable}}}}]` lets \
         its prose and code go, `exfiltration: {{allow: [{{from: {from}, to: {to}}}]}}` lets everything go to '{to}'"
    )
}

/// A key of the section that is in force by default.
pub(super) fn part_of(section: &RuleRef, key: &str) -> RuleRef {
    RuleRef { id: format!("sandbox.mcp.exfiltration.{key}"), ..section.clone() }
}

fn finding(
    detector: &str,
    outcome: Outcome,
    rule: RuleRef,
    (source, tool): (&ServerId, &str),
    server: &ServerId,
    what: String,
) -> Finding {
    let severity = if outcome >= Outcome::Ask { Severity::Medium } else { Severity::Low };
    let verdict = Verdict::new(outcome, Reason::PrivateToExternal, rule);
    Finding {
        source: Some(ToolId { server: source.clone(), tool: tool.to_owned() }),
        destination: Some(server.0.clone()),
        ..Finding::new(verdict, None, detector, severity, what)
    }
}
