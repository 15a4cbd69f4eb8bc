//! The text of a refusal.

use agentsh_base::remedy::Allow;

use crate::policy::GATEWAY;
use crate::types::ServerId;
use crate::verdict::{Reason, Verdict};

use super::Decision;

/// The text for the refused side: what was refused, by which rule, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub message: String,
    pub reason: &'static str,
    /// The rule as `file:line (key)`.
    pub rule: String,
}

impl Refusal {
    /// The refusal of a call or another request: `name` is the tool's name, or a method, which contains a slash.
    #[must_use]
    pub fn of_call(server: &ServerId, name: &str, decision: &Decision) -> Self {
        let what = match decision.deciding_finding() {
            Some(_) if name.contains('/') => format!("`{name}`"),
            _ => format!("tool '{name}'"),
        };
        let (found, verdict) = (finding_text(decision), &decision.verdict);
        Self::compose(
            &format!("{what} of server '{server}'"),
            verdict,
            &found,
            &remedy(server, name, verdict),
        )
    }

    /// The refusal of a server's answer to a call.
    #[must_use]
    pub fn of_result(server: &ServerId, name: &str, decision: &Decision) -> Self {
        let (found, verdict) = (finding_text(decision), &decision.verdict);
        Self::compose(
            &format!("the result of '{name}' of server '{server}'"),
            verdict,
            &found,
            &verdict.remedy(),
        )
    }

    /// The refusal of a whole server.
    #[must_use]
    pub fn of_server(server: &ServerId, verdict: &Verdict) -> Self {
        Self::compose(&format!("server '{server}'"), verdict, "", &verdict.remedy())
    }

    fn compose(subject: &str, verdict: &Verdict, found: &str, remedy: &str) -> Self {
        Self {
            message: format!("{}{subject} refused by {}{found}; {remedy}", sentence(verdict), verdict.rule),
            reason: verdict.reason.code(),
            rule: verdict.rule.to_string(),
        }
    }
}

/// How the pages of other products begin such a refusal: their users search for it.
fn sentence(verdict: &Verdict) -> &'static str {
    match verdict.reason {
        Reason::DestinationNotAllowed => "Outbound domain not in allowed_domains list: ",
        Reason::ContentSuspicious if verdict.rule.file == GATEWAY => "Malicious command detected: ",
        _ => "",
    }
}

fn finding_text(decision: &Decision) -> String {
    decision.deciding_finding().map(|found| format!(": {}", found.with_remedies())).unwrap_or_default()
}

/// How to allow a refused call: the command that adds the tool to the allow list, or its place in a file of the proxy.
#[must_use]
pub fn remedy(server: &ServerId, name: &str, verdict: &Verdict) -> String {
    // Policies would read such a name as a pattern over other tools.
    if verdict.reason != Reason::ToolNotAllowlisted || name.contains(['*', '?', '[']) {
        return verdict.remedy();
    }
    // A policy's keys are deeper: it is the list of `proxy.json`.
    if verdict.rule.id == "allowed_tools" {
        return format!("to allow it, add {:?} to {}", format!("{server}__{name}"), verdict.rule);
    }
    let allow = Allow { tools: vec![format!("{server}/{name}")], ..Allow::default() };
    match allow.against(&verdict.rule).line() {
        Some(command) => format!("to allow it: `{command}`"),
        None => verdict.remedy(),
    }
}
