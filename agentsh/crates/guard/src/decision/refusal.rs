//! The text of a refusal.

use agentsh_base::remedy::Allow;

use crate::types::ServerId;
use crate::verdict::{Reason, Verdict};

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
        let (found, verdict) = (found(decision), &decision.verdict);
        Self::worded(&format!("{what} of server '{server}'"), verdict, &found, &remedy(server, name, verdict))
    }

    /// Of what a server gave back for a call.
    #[must_use]
    pub fn of_result(server: &ServerId, name: &str, decision: &Decision) -> Self {
        let (found, verdict) = (found(decision), &decision.verdict);
        Self::worded(
            &format!("the result of '{name}' of server '{server}'"),
            verdict,
            &found,
            &verdict.remedy(),
        )
    }

    /// Of a server as such.
    #[must_use]
    pub fn of_server(server: &ServerId, verdict: &Verdict) -> Self {
        Self::worded(&format!("server '{server}'"), verdict, "", &verdict.remedy())
    }

    fn worded(subject: &str, verdict: &Verdict, found: &str, remedy: &str) -> Self {
        Self {
            message: format!("{subject} refused by {}{found}; {remedy}", verdict.rule),
            reason: verdict.reason.code(),
            rule: verdict.rule.to_string(),
        }
    }
}

fn found(decision: &Decision) -> String {
    decision.deciding().map(|found| format!(": {}", found.told())).unwrap_or_default()
}

/// What to do about a refused call: the command that puts the tool on the allow list, where that is all it takes.
#[must_use]
pub fn remedy(server: &ServerId, name: &str, verdict: &Verdict) -> String {
    let allow = Allow { tools: vec![format!("{server}/{name}")], ..Allow::default() };
    // Policies would read such a name as a pattern over other tools.
    let is_name = !name.contains(['*', '?', '[']);
    match allow.line().filter(|_| is_name && verdict.reason == Reason::ToolNotAllowlisted) {
        Some(command) => format!("to allow it: `{command}`"),
        None => verdict.remedy(),
    }
}
