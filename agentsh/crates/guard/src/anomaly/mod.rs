//! Unusual calls: longer, more frequent, in another order. The baseline is learned for each server and survives the
//! session. A finding is a guess, and an alert unless a policy says more.

mod listed_tool;
mod profile;
mod sequence;
mod series;

use std::collections::BTreeMap;

use crate::decision::{Check, Finding, Report, Severity, Subject, SubjectKind};
use crate::json::Json;
use crate::policy::risk::Names;
use crate::policy::{AnomalyPolicy, OnAnomaly};
use crate::types::{RuleRef, ServerId};
use crate::verdict::{Outcome, Reason, Verdict};

pub use listed_tool::ListedTool;
pub use profile::{Profile, Score, Tool};
pub use series::Tuning;

/// Servers of one session.
const MAX_SERVERS: usize = 256;
/// From this score on a finding is grave.
const MIN_SEVERE_SCORE: f64 = 0.9;

/// The check, with what is usual for each server.
#[derive(Debug)]
pub struct Anomalies {
    policy: AnomalyPolicy,
    tuning: Tuning,
    names: Names,
    /// Seconds since 1970 at which the time of all subjects counts from.
    epoch: u64,
    profiles: BTreeMap<ServerId, Profile>,
    last: BTreeMap<ServerId, String>,
}

impl Anomalies {
    #[must_use]
    pub fn new(policy: &AnomalyPolicy, epoch: u64) -> Self {
        Self {
            policy: policy.clone(),
            tuning: Tuning::of_policy(policy),
            names: Names::default(),
            epoch,
            profiles: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// With the way in which risk is read from names of tools.
    #[must_use]
    pub fn with_names(self, names: Names) -> Self {
        Self { names, ..self }
    }

    #[must_use]
    pub fn knows(&self, server: &ServerId) -> bool {
        self.profiles.contains_key(server)
    }

    /// Adds the baseline of earlier sessions.
    pub fn adopt(&mut self, server: &ServerId, profile: Profile) {
        if self.profiles.len() < MAX_SERVERS {
            self.profiles.entry(server.clone()).or_insert(profile);
        }
    }

    #[must_use]
    pub fn profiles(&self) -> &BTreeMap<ServerId, Profile> {
        &self.profiles
    }

    fn now_seconds(&self, subject: &Subject<'_>) -> u64 {
        self.epoch.saturating_add(subject.now.as_secs())
    }

    /// `is_past`: the time in which the server is only learned is over.
    fn outcome(&self, score: f64, is_past: bool) -> Outcome {
        match self.policy.on_detection() {
            OnAnomaly::Off => Outcome::Allow,
            OnAnomaly::Graded if is_past && score >= self.policy.block_from() => Outcome::Block,
            OnAnomaly::Graded if is_past && score >= self.policy.ask_from() => Outcome::Ask,
            OnAnomaly::Alert | OnAnomaly::Graded => Outcome::Alert,
        }
    }
}

impl Check for Anomalies {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let now = self.now_seconds(subject);
        if self.policy.on_detection() == OnAnomaly::Off {
            return;
        }
        let Some(profile) = self.profiles.get_mut(subject.server) else { return };
        let before = self.last.get(subject.server).map(String::as_str);
        let (tool, score) = match subject.matter {
            SubjectKind::Call { tool, arguments, .. } => {
                (tool, profile.call(tool, arguments.map_or(0, Json::length), before, now, &self.tuning))
            }
            SubjectKind::Result { tool, answer } => {
                (tool, profile.answer(tool, answer.length(), now, &self.tuning))
            }
            _ => return,
        };
        if score.what.is_empty() {
            return;
        }
        profile.note_unusual(tool);
        let is_past = profile.is_past_learning(now, &self.tuning);
        // The answer was sent already: it can only be reported.
        let is_answer = matches!(subject.matter, SubjectKind::Result { .. });
        let outcome = if is_answer { Outcome::Alert } else { self.outcome(score.composite, is_past) };
        report.find(finding(outcome, self.policy.rule(), &score));
    }

    fn record_passed(&mut self, subject: &Subject<'_>) {
        let now = self.now_seconds(subject);
        let Some(profile) = self.profiles.get_mut(subject.server) else { return };
        match subject.matter {
            SubjectKind::Definition { name, hash, definition } => {
                profile.record_listed(name, ListedTool::of(definition, hash, self.names), now);
            }
            SubjectKind::Call { tool, arguments, .. } => {
                let before = self.last.get(subject.server).map(String::as_str);
                profile.take_call(tool, arguments.map_or(0, Json::length), before, now, &self.tuning);
                if self.last.len() < MAX_SERVERS || self.last.contains_key(subject.server) {
                    self.last.insert(subject.server.clone(), tool.to_owned());
                }
            }
            SubjectKind::Result { tool, answer } => profile.take_answer(tool, answer.length(), &self.tuning),
            _ => {}
        }
    }

    fn record_refused(&mut self, subject: &Subject<'_>) {
        let now = self.now_seconds(subject);
        if let SubjectKind::Definition { name, .. } = subject.matter
            && let Some(profile) = self.profiles.get_mut(subject.server)
        {
            profile.record_offered(name, now);
        }
    }
}

fn finding(outcome: Outcome, rule: RuleRef, score: &Score) -> Finding {
    let severity = match score.composite {
        score if score >= MIN_SEVERE_SCORE => Severity::High,
        score if score >= 0.5 => Severity::Medium,
        _ => Severity::Low,
    };
    let verdict = Verdict::new(outcome, Reason::Unusual, rule);
    let (detector, what) = (verdict.reason.code(), score.what.join("; "));
    let context = format!("score {:.2}", score.composite);
    Finding { context, ..Finding::new(verdict, Some("anomaly"), detector, severity, what) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decision::PrecomputedFinding;

    fn call(check: &mut Anomalies, tool: &str, text: &str, at: u64) -> Report {
        let server = ServerId("s".to_owned());
        let arguments = Json::String(text);
        let matter = SubjectKind::Call { tool, hash: None, unlisted: false, arguments: Some(&arguments) };
        let now = Duration::from_secs(at);
        let (audience, caller, turn, seen) = ("", None, None, PrecomputedFinding::NOTHING);
        let subject =
            Subject { server: &server, matter, audience, caller, now, turn, is_promised: false, seen };
        let mut report = Report::default();
        check.judge(&subject, &mut report);
        check.record_passed(&subject);
        report
    }

    fn learned(policy: &AnomalyPolicy) -> Anomalies {
        let mut check = Anomalies::new(policy, 1_000_000);
        check.adopt(&ServerId("s".to_owned()), Profile::default());
        for number in 0..300 {
            let decision = call(&mut check, "read", "some text", number * 40).fold();
            assert!(decision.findings.is_empty(), "{:?}", decision.findings);
        }
        check
    }

    #[test]
    fn unusual_call_is_an_alert_unless_the_policy_is_graded() {
        let long = "x".repeat(500_000);
        let mut check = learned(&AnomalyPolicy::default());
        let decision = call(&mut check, "read", &long, 13_000).fold();
        assert_eq!(decision.verdict.outcome, Outcome::Alert, "{decision:?}");
        assert_eq!(check.profiles()[&ServerId("s".to_owned())].tools["read"].unusual, 1);
        let graded = |more: &str| {
            let text = format!(
                "version: 1\nextends: none\nsandbox: {{mcp: {{anomaly: {{mode: graded, {more}}}}}}}\n"
            );
            crate::policy::parse("test.yaml", &text)
                .unwrap_or_else(|error| panic!("{}", error.render()))
                .mcp
                .anomaly
        };
        for (more, expected) in [
            ("learning: 1h", Outcome::Ask),
            ("learning: 1h, block_from: 0.7", Outcome::Block),
            // Nothing is asked or refused while a server is learned.
            ("learning: 24h", Outcome::Alert),
            ("learning: 1h, block_from: 1, ask_from: 0.6", Outcome::Ask),
            ("learning: 1h, ask_from: 0.1, block_from: 0.1, sigma: 100", Outcome::Allow),
        ] {
            let mut check = learned(&graded(more));
            for _ in 0..80 {
                let _ = call(&mut check, "read", "some text", 13_000);
            }
            let decision = call(&mut check, "read", &long, 13_000).fold();
            assert_eq!(decision.verdict.outcome, expected, "{more}: {decision:?}");
        }
    }
}
