//! A policy as flat lines: each value with its rule.

use super::limits::limits_for_agent;
use super::model::Ruled;
use super::sections::Policy;
use super::sections::limits::Limits;
use crate::types::RuleRef;

/// One part of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The key: `agent.network.allow`, `servers.github.limits.memory`.
    pub key: String,
    pub value: String,
    pub rule: RuleRef,
}

/// Lines so far.
pub struct Lines {
    lines: Vec<Line>,
    /// The default limits of the process that is shown.
    pub limits: Limits,
}

impl Policy {
    /// Everything that is in force, defaults included, in a stable order.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Lines { lines: Vec::new(), limits: limits_for_agent() };
        self.agent.describe("agent", &mut lines);
        self.agent_only.describe("agent", &mut lines);
        self.mcp.describe("mcp", &mut lines);
        self.describe("", &mut lines);
        lines.lines
    }
}

impl Lines {
    pub fn add(&mut self, key: &str, value: impl Into<String>, rule: &RuleRef) {
        self.lines.push(Line { key: key.to_owned(), value: value.into(), rule: rule.clone() });
    }

    /// A line for each value: of a list, or of a key that may not be written.
    pub fn list<'l, T: 'l, S: Into<String>>(
        &mut self,
        key: &str,
        list: impl IntoIterator<Item = &'l Ruled<T>>,
        show: impl Fn(&T) -> S,
    ) {
        for entry in list {
            self.add(key, show(&entry.value), &entry.rule);
        }
    }
}
