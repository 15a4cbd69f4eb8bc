//! What the labels of two servers decide: whether anything may go from one to the other, whatever a search for copies finds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::guard::flow::{Flowed, Sink, Source};
use crate::guard::{Finding, Outcome, Reason, Severity, Verdict};
use crate::json::Json;
use crate::policy::{CLOSE_AFTER, OnFlow};
use crate::types::{RuleRef, ServerId, ToolId};

use super::{Content, escape, since_1970};

/// Servers whose reads are remembered: more than any session has.
const MOST_SERVERS: usize = 1024;

/// From whom to whom.
type Pair = (ServerId, ServerId);

/// What happened between servers so far.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// The last private result of each server: its tool, and when it came.
    reads: BTreeMap<ServerId, (String, Duration)>,
    refused: BTreeMap<Pair, u64>,
    told: BTreeSet<Pair>,
}

impl Pairs {
    pub fn read(&mut self, server: &ServerId, tool: &str, now: Duration) {
        if self.reads.len() < MOST_SERVERS || self.reads.contains_key(server) {
            self.reads.insert(server.clone(), (tool.to_owned(), now));
        }
    }
}

impl Content {
    /// Whether a copy may go to `server` all the same.
    pub(super) fn may_flow(&self, flowed: &Flowed, server: &ServerId) -> bool {
        let from = &flowed.origin.server;
        // What has no meaning of its own may be shared; a value (a key, a card, an address) may not.
        let is_prose = matches!(flowed.finding.category, "passage" | "near-copy" | "marker");
        self.settings.policy.allows(&from.0, &server.0).is_some()
            || is_prose && self.labels(from).source == Source::Shareable
    }

    /// A copy was refused, or a person is asked about it.
    pub(super) fn note_refused(&mut self, found: &Finding, server: &ServerId) {
        if let Some(source) = found.source.as_ref().filter(|_| found.verdict.outcome >= Outcome::Ask) {
            let pair = (source.server.clone(), server.clone());
            if self.pairs.refused.len() < MOST_SERVERS || self.pairs.refused.contains_key(&pair) {
                *self.pairs.refused.entry(pair).or_default() += 1;
            }
        }
    }

    /// What follows from what was read from other servers, with or without a copy of it in the call.
    pub(super) fn judge_pair(&mut self, server: &ServerId, arguments: &Json<'_>) -> Option<Finding> {
        if self.labels(server).sink == Sink::Local || says_little(arguments) {
            return None;
        }
        let policy = &self.settings.policy;
        let close_after = policy.close_after.as_ref().map_or(CLOSE_AFTER, |count| count.value);
        let now = since_1970();
        let mut sources: Vec<(&ServerId, &(String, Duration))> = self
            .pairs
            .reads
            .iter()
            .filter(|(source, (_, when))| {
                *source != server
                    && now.saturating_sub(*when) < self.settings.lifetime
                    && policy.allows(&source.0, &server.0).is_none()
                    && self.labels(source).source != Source::Shareable
            })
            .collect();
        // The last one that was read is the one that a person remembers.
        sources.sort_by_key(|(_, (_, when))| std::cmp::Reverse(*when));
        let count = |source: &ServerId| {
            self.pairs.refused.get(&(source.clone(), server.clone())).copied().unwrap_or_default()
        };
        if let Some((source, (tool, _))) = sources.iter().find(|(source, _)| count(source) >= close_after) {
            let what = format!(
                "{} calls to '{server}' with something out of '{source}' were refused: nothing goes from one to the other \
                 any more in this session",
                count(source)
            );
            let rule = policy.close_after.as_ref().map(|count| count.rule.clone());
            let rule = rule.unwrap_or_else(|| part_of(&policy.rule, "close_after"));
            return Some(finding(Outcome::Ask, rule, source, tool, server, what));
        }
        let (source, (tool, when)) = *sources.first()?;
        let pair = (source.clone(), server.clone());
        let outcome = match policy.on_private_to_external.as_ref().map(|action| action.value) {
            Some(OnFlow::Block) => Outcome::Block,
            Some(OnFlow::Ask) => Outcome::Ask,
            Some(OnFlow::Alert) => Outcome::Alert,
            None if self.settings.tells_pairs && !self.pairs.told.contains(&pair) => Outcome::Alert,
            Some(OnFlow::Allow) | None => return None,
        };
        let rule = policy.on_private_to_external.as_ref().map(|action| action.rule.clone());
        let rule = rule.unwrap_or_else(|| part_of(&policy.rule, "on_private_to_external"));
        let what = format!(
            "'{}' of server '{source}' gave something private {} s ago, and '{server}' leaves this machine; \
             `exfiltration: {{allow: [{{from: {source}, to: {server}}}]}}` under sandbox.mcp lets that pass",
            escape::line(tool),
            now.saturating_sub(*when).as_secs()
        );
        let found = finding(outcome, rule, source, tool, server, what);
        if self.pairs.told.len() < MOST_SERVERS {
            self.pairs.told.insert(pair);
        }
        Some(found)
    }
}

/// A declassifier: what is one of a few possible values carries no text away.
fn says_little(arguments: &Json<'_>) -> bool {
    match arguments {
        Json::Null | Json::Bool(_) => true,
        Json::Number(raw) => raw.len() <= 6,
        Json::String(raw) => {
            matches!(*raw, "" | "yes" | "no" | "true" | "false" | "on" | "off" | "asc" | "desc")
        }
        Json::Array(items) => items.len() <= 4 && items.iter().all(says_little),
        Json::Object(members) => members.len() <= 8 && members.iter().all(|(_, value)| says_little(value)),
    }
}

fn part_of(section: &RuleRef, key: &str) -> RuleRef {
    RuleRef { id: format!("sandbox.mcp.exfiltration.{key}"), ..section.clone() }
}

fn finding(
    outcome: Outcome,
    rule: RuleRef,
    source: &ServerId,
    tool: &str,
    server: &ServerId,
    what: String,
) -> Finding {
    Finding {
        verdict: Verdict::new(outcome, Reason::PrivateToExternal, rule),
        category: None,
        detector: "label-flow".to_owned(),
        severity: if outcome >= Outcome::Ask { Severity::Medium } else { Severity::Low },
        source: Some(ToolId { server: source.clone(), tool: tool.to_owned() }),
        destination: Some(server.0.clone()),
        context: String::new(),
        pointer: String::new(),
        decoded: Vec::new(),
        what,
    }
}
