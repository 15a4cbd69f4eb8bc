//! The built-in policies.

use crate::texts::files;

/// Name and text of each.
pub const POLICIES: &[(&str, &str)] = files! { "": "default" "claude" "codex" "strict" "observe" "gateway" };

/// The text of a built-in policy.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Agents that a policy is built in for, and `default` for all others.
pub const AGENTS: [&str; 3] = ["default", "claude", "codex"];

/// The built-in policy of an agent: its own, or `default`.
#[must_use]
pub fn for_agent(agent: &str) -> &'static str {
    match agent {
        "claude" => "claude",
        "codex" => "codex",
        // No agent, but clients on other machines.
        "gateway" => "gateway",
        _ => "default",
    }
}
