//! Patterns of the policy's own, looked for in every string of a value.

use crate::guard::{Finding, Outcome, Reason, Subject, Verdict};
use crate::json::{Json, unescape};
use crate::policy::{CustomPattern, Level, OnFinding, Ruled};
use crate::types::RuleRef;

use agentsh_scan::{Action, Severity};

#[derive(Debug)]
pub(super) struct Custom {
    patterns: Vec<Ruled<CustomPattern>>,
}

/// A pattern that fits, once for each value.
pub(super) struct Found<'p> {
    pattern: &'p CustomPattern,
    pub severity: Severity,
    pointer: String,
}

impl Custom {
    pub fn new(patterns: &[Ruled<CustomPattern>]) -> Self {
        Self { patterns: patterns.to_vec() }
    }

    pub fn find(&self, value: &Json<'_>) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        if self.patterns.is_empty() {
            return found;
        }
        let mut missing: Vec<&CustomPattern> = self.patterns.iter().map(|pattern| &pattern.value).collect();
        texts(value, &mut String::new(), &mut |pointer, text| {
            missing.retain(|pattern| {
                let fits = pattern.pattern.0.is_match(text);
                if fits {
                    let severity = severity(pattern.severity);
                    found.push(Found { pattern, severity, pointer: pointer.to_owned() });
                }
                !fits
            });
        });
        found
    }
}

impl Found<'_> {
    pub fn tell(&self, subject: &Subject<'_>, action: OnFinding, rule: RuleRef, what: &str) -> Finding {
        // What somebody wrote down as that bad is no guess.
        let verdict = if self.severity >= Severity::High { Action::Block } else { Action::Alert };
        let outcome = super::outcome(verdict, action).unwrap_or(Outcome::Allow);
        Finding {
            verdict: Verdict::new(outcome, Reason::ContentSuspicious, rule),
            category: Some(self.pattern.category.clone()),
            detector: self.pattern.name.clone(),
            severity: super::severity(self.severity),
            source: Some(super::source(subject)),
            destination: None,
            context: String::new(),
            pointer: self.pointer.clone(),
            decoded: Vec::new(),
            what: format!("{what} fits the pattern '{}'", self.pattern.name),
        }
    }
}

pub(super) fn level(severity: Severity) -> Level {
    match severity {
        Severity::Low => Level::Low,
        Severity::Medium => Level::Medium,
        Severity::High => Level::High,
        Severity::Critical => Level::Critical,
    }
}

fn severity(level: Level) -> Severity {
    match level {
        Level::Low => Severity::Low,
        Level::Medium => Severity::Medium,
        Level::High => Severity::High,
        Level::Critical => Severity::Critical,
    }
}

/// Every string and every name of a member, with its JSON pointer. The depth is bounded by the reader.
pub(super) fn texts(value: &Json<'_>, pointer: &mut String, see: &mut dyn FnMut(&str, &str)) {
    let length = pointer.len();
    match value {
        Json::String(_) => {
            if let Some(text) = value.as_text() {
                see(pointer, &text);
            }
        }
        Json::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{at}"));
                texts(item, pointer, see);
                pointer.truncate(length);
            }
        }
        Json::Object(members) => {
            for (raw, member) in members {
                let name = unescape(raw);
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
                see(pointer, &name);
                texts(member, pointer, see);
                pointer.truncate(length);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
