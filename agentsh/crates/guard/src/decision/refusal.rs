//! How a refusal is worded, whoever carries it.

use crate::types::ServerId;
use crate::verdict::Verdict;

use super::Decision;

/// What the refused side is told: what, by which rule, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub reason: &'static str,
    /// The rule as `file:line (key)`.
    pub rule: String,
}

impl Refusal {
    /// Of a call or another request: `name` is the tool's name, or a method, which has a slash in it.
    #[must_use]
    pub fn of_call(server: &ServerId, name: &str, decision: &Decision) -> Self {
        let what = match decision.deciding() {
            Some(_) if name.contains('/') => format!("`{name}`"),
            _ => format!("tool '{name}'"),
        };
        Self::new(&format!("{what} of server '{server}'"), decision)
    }

    /// Of what a server gave back for a call.
    #[must_use]
    pub fn of_result(server: &ServerId, name: &str, decision: &Decision) -> Self {
        Self::new(&format!("the result of '{name}' of server '{server}'"), decision)
    }

    /// Of a server as such.
    #[must_use]
    pub fn of_server(server: &ServerId, verdict: &Verdict) -> Self {
        Self::worded(&format!("server '{server}'"), verdict, "")
    }

    fn new(subject: &str, decision: &Decision) -> Self {
        let found = decision.deciding().map(|found| format!(": {}", found.what)).unwrap_or_default();
        Self::worded(subject, &decision.verdict, &found)
    }

    fn worded(subject: &str, verdict: &Verdict, found: &str) -> Self {
        Self {
            message: format!("{subject} refused by {}{found}; {}", verdict.rule, verdict.remedy()),
            reason: verdict.reason.code(),
            rule: verdict.rule.to_string(),
        }
    }
}
