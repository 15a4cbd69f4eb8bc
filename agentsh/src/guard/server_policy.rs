//! `server_policy`, `allowed_servers`, `denied_servers`.

use crate::policy::{self, ListMode, McpPolicy, Ruled};
use crate::types::{RuleRef, ServerId};

use super::verdict::{Outcome, Reason, Verdict};

/// May this server run at all? The verdict of an enforced policy; the caller turns it into an alert when the policy
/// is not enforced.
pub fn judge(policy: &McpPolicy, server: &ServerId) -> Verdict {
    let named = |list: &[Ruled<String>]| {
        list.iter()
            .find(|entry| policy::glob::matches(&entry.value, &server.0))
            .map(|entry| entry.rule.clone())
    };
    let mode_rule =
        || policy.server_policy_rule.clone().unwrap_or(RuleRef::default_rule("sandbox.mcp.server_policy"));
    match policy.server_policy {
        ListMode::None => Verdict::new(Outcome::Allow, Reason::NoRule, mode_rule()),
        ListMode::Allowlist => match named(&policy.allowed_servers) {
            Some(rule) => Verdict::new(Outcome::Allow, Reason::ServerAllowed, rule),
            None => Verdict::new(Outcome::Block, Reason::ServerNotAllowlisted, mode_rule()),
        },
        ListMode::Denylist => match named(&policy.denied_servers) {
            Some(rule) => Verdict::new(Outcome::Block, Reason::ServerDenied, rule),
            None => Verdict::new(Outcome::Allow, Reason::NoRule, mode_rule()),
        },
    }
}
