//! `tool_policy`, `allowed_tools`, `denied_tools`, `fail_closed`.

use crate::policy::{ListMode, McpPolicy, ToolRule};
use crate::types::{RuleRef, ServerId};

use super::verdict::{Outcome, Reason, Verdict};
use crate::policy::glob;

/// A tool as far as it is known when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Tool<'a> {
    pub server: &'a ServerId,
    pub name: &'a str,
    /// Hash of the definition that `tools/list` gave.
    pub hash: Option<&'a str>,
    /// Whether `tools/list` ever named it.
    pub listed: bool,
}

/// May this tool be called? The verdict of an enforced policy; the caller turns it into an alert when the policy is
/// not enforced.
pub fn judge(policy: &McpPolicy, tool: Tool<'_>) -> Verdict {
    let by_list = judge_lists(policy, tool);
    // A list that already refuses names a more exact rule.
    if policy.fail_closed && !by_list.is_block() && !(tool.listed && is_allowed_by_name(policy, tool)) {
        return Verdict::new(Outcome::Block, Reason::UnknownTool, policy.place_of("fail_closed"));
    }
    by_list
}

fn judge_lists(policy: &McpPolicy, tool: Tool<'_>) -> Verdict {
    let mode_rule =
        || policy.tool_policy_rule.clone().unwrap_or(RuleRef::default_rule("sandbox.mcp.tool_policy"));
    match policy.tool_policy {
        ListMode::None => Verdict::new(Outcome::Allow, Reason::NoRule, mode_rule()),
        ListMode::Allowlist => match policy.allowed_tools.iter().find(|entry| allows(&entry.value, tool)) {
            Some(entry) => Verdict::new(Outcome::Allow, Reason::ToolAllowed, entry.rule.clone()),
            None => Verdict::new(Outcome::Block, Reason::ToolNotAllowlisted, mode_rule()),
        },
        ListMode::Denylist => match policy.denied_tools.iter().find(|entry| denies(&entry.value, tool)) {
            Some(entry) => Verdict::new(Outcome::Block, Reason::ToolDenied, entry.rule.clone()),
            None => Verdict::new(Outcome::Allow, Reason::NoRule, mode_rule()),
        },
    }
}

fn is_allowed_by_name(policy: &McpPolicy, tool: Tool<'_>) -> bool {
    policy.allowed_tools.iter().any(|entry| allows(&entry.value, tool))
}

/// A hash that is not known yet allows nothing.
fn allows(rule: &ToolRule, tool: Tool<'_>) -> bool {
    names(rule, tool)
        && pinned_hash(rule).is_none_or(|wanted| tool.hash.is_some_and(|hash| same_hash(wanted, hash)))
}

/// A hash that is not known yet cannot take a tool off the denylist: otherwise a client that skips `tools/list`
/// would pass.
fn denies(rule: &ToolRule, tool: Tool<'_>) -> bool {
    names(rule, tool)
        && pinned_hash(rule).is_none_or(|wanted| tool.hash.is_none_or(|hash| same_hash(wanted, hash)))
}

fn names(rule: &ToolRule, tool: Tool<'_>) -> bool {
    glob::matches(&rule.server, &tool.server.0) && glob::matches(&rule.tool, tool.name)
}

fn pinned_hash(rule: &ToolRule) -> Option<&str> {
    rule.content_hash.as_deref().filter(|hash| !hash.is_empty())
}

/// With or without the `sha256:` in front.
fn same_hash(left: &str, right: &str) -> bool {
    let digits = |hash: &str| hash.strip_prefix("sha256:").unwrap_or(hash).to_ascii_lowercase();
    digits(left) == digits(right)
}
