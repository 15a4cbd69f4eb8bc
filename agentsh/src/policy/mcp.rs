//! What the server and tool lists say about a name. The guard decides about real calls; this answers questions
//! about the policy, by the same rules.

use super::glob;
use super::model::{ListMode, McpPolicy, Ruled, ToolRule};
use crate::types::{RuleRef, ServerId};

/// What the lists say. `allow` is the word of the lists alone: when `enforced` is false it only leads to an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAnswer {
    pub allow: bool,
    pub enforced: bool,
    pub why: String,
    pub rule: RuleRef,
}

impl McpPolicy {
    /// Whether the lists let the server run.
    #[must_use]
    pub fn server_listed(&self, server: &ServerId) -> ListAnswer {
        self.strictest(|lists| {
            let find = |list: &[Ruled<String>]| {
                list.iter()
                    .find(|entry| glob::matches(&entry.value, &server.0))
                    .map(|entry| entry.rule.clone())
            };
            let allowed = find(&lists.allowed_servers);
            let denied = find(&lists.denied_servers);
            lists.answer("server", lists.server_policy, lists.server_policy_rule.as_ref(), allowed, denied)
        })
    }

    /// Whether the lists let the tool be called. A rule with a content hash counts as if the hash fitted.
    #[must_use]
    pub fn tool_listed(&self, server: &ServerId, tool: &str) -> ListAnswer {
        let by_server = self.server_listed(server);
        if !by_server.allow && by_server.enforced {
            return by_server;
        }
        let by_tool = self.strictest(|lists| {
            let matching = |entry: &&Ruled<ToolRule>| {
                glob::matches(&entry.value.server, &server.0) && glob::matches(&entry.value.tool, tool)
            };
            let find = |list: &[Ruled<ToolRule>]| list.iter().find(matching).map(|entry| entry.rule.clone());
            let (allowed, denied) = (find(&lists.allowed_tools), find(&lists.denied_tools));
            let is_known = allowed.is_some();
            let answer =
                lists.answer("tool", lists.tool_policy, lists.tool_policy_rule.as_ref(), allowed, denied);
            if answer.allow && lists.fail_closed && !is_known {
                let why = "fail_closed refuses a tool that no rule allows".to_owned();
                let rule = lists.place_of("fail_closed");
                return ListAnswer { allow: false, why, rule, ..answer };
            }
            answer
        });
        if by_tool.allow && !by_server.allow { by_server } else { by_tool }
    }

    /// Where a key with a single value was written; its default when it was not.
    #[must_use]
    pub fn place_of(&self, key: &str) -> RuleRef {
        let default = || RuleRef::default_rule(&format!("sandbox.mcp.{key}"));
        self.written.get(key).cloned().unwrap_or_else(default)
    }

    /// The answer of these lists and of the project's: a refusal wins, an enforced one first.
    fn strictest(&self, ask: impl Fn(&Self) -> ListAnswer) -> ListAnswer {
        let own = ask(self);
        let Some(project) = &self.narrowed_by else { return own };
        let narrowed = ask(project);
        let weight = |answer: &ListAnswer| match (answer.allow, answer.enforced) {
            (false, true) => 2,
            (false, false) => 1,
            (true, _) => 0,
        };
        if weight(&narrowed) > weight(&own) { narrowed } else { own }
    }

    fn answer(
        &self,
        what: &str,
        mode: ListMode,
        mode_rule: Option<&RuleRef>,
        allowed: Option<RuleRef>,
        denied: Option<RuleRef>,
    ) -> ListAnswer {
        let mode_rule = || {
            let default = || RuleRef::default_rule(&format!("sandbox.mcp.{what}_policy"));
            mode_rule.cloned().unwrap_or_else(default)
        };
        let (allow, why, rule) = match (mode, allowed, denied) {
            (ListMode::None, ..) => (true, format!("no {what} list is in use"), mode_rule()),
            (ListMode::Allowlist, Some(rule), _) => (true, format!("it is in allowed_{what}s"), rule),
            (ListMode::Allowlist, None, _) => (false, format!("it is not in allowed_{what}s"), mode_rule()),
            (ListMode::Denylist, _, Some(rule)) => (false, format!("it is in denied_{what}s"), rule),
            (ListMode::Denylist, _, None) => (true, format!("it is not in denied_{what}s"), mode_rule()),
        };
        ListAnswer { allow, enforced: self.enforce, why, rule }
    }
}
