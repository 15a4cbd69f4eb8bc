//! What the server and tool lists decide about a name. The guard asks about real calls, `policy explain` about
//! hypothetical ones.

use std::collections::BTreeSet;

use super::glob;
use super::model::{ListMode, Ruled, ToolRule};
use super::sections::McpPolicy;
use super::sections::content::OnFinding;
use crate::types::{RuleRef, ServerId};
use agentsh_base::words;
use unicode_normalization::UnicodeNormalization;

/// What is known of a tool when it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Tool<'a> {
    pub server: &'a ServerId,
    pub name: &'a str,
    pub definition: Definition<'a>,
    /// Whether `tools/list` ever named it.
    pub listed: bool,
}

/// The known definition of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition<'a> {
    /// The hash of what `tools/list` gave.
    Hash(&'a str),
    /// It was never listed. A rule with a hash then allows nothing, but still denies: otherwise a client that skips
    /// `tools/list` would pass.
    Unknown,
    /// Ignores the conditions of rules: only names are compared.
    Any,
}

words! {
    /// The reason for the verdict of the lists.
    pub enum ListReason: text {
        NoRule = "no list names it",
        ServerAllowed = "its server is in allowed_servers",
        ServerNotAllowlisted = "its server is not in allowed_servers",
        ServerDenied = "its server is in denied_servers",
        ToolAllowed = "it is in allowed_tools",
        ToolNotAllowlisted = "it is not in allowed_tools",
        ToolDenied = "it is in denied_tools",
        /// `fail_closed`, and no rule knows the tool.
        UnknownTool = "fail_closed refuses a tool that no rule allows",
    }
}

/// The verdict of the lists. `allow` ignores whether they are enforced: if `enforced` is false, a denial only raises an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAnswer {
    pub allow: bool,
    pub enforced: bool,
    pub reason: ListReason,
    pub rule: RuleRef,
}

/// The server in rules about the agent's own tools.
pub const AGENT: &str = "agent";

/// Whether an entry names the agent as such: its own tools, and no server's.
pub(crate) fn is_own(rule: &ToolRule) -> bool {
    rule.server == AGENT
}

/// A name as compared by models, and by agents that correct their models' spelling.
fn folded(name: &str) -> String {
    let seen = name.nfkc().filter(|letter| letter.is_alphanumeric() || letter.is_ascii_graphic());
    seen.flat_map(char::to_lowercase).collect()
}

impl McpPolicy {
    /// Whether the definition of a tool decides about its calls: what was pinned, what it says, its risk.
    #[must_use]
    pub fn judges_by_definition(&self) -> bool {
        self.pinning.enabled
            || self.content.definitions() != OnFinding::Off
            || self.rules.iter().any(|rule| rule.value.risk.is_some())
    }

    /// Whether the lists let the server run.
    #[must_use]
    pub fn server_listed(&self, server: &ServerId) -> ListAnswer {
        self.strictest(|lists| lists.own_server(server))
    }

    /// Whether the lists let the tool be seen and called. Server first, then tool.
    #[must_use]
    pub fn tool_listed(&self, tool: Tool<'_>) -> ListAnswer {
        self.strictest(|lists| {
            let server = lists.own_server(tool.server);
            if !server.allow {
                return server;
            }
            let answer = lists.own_tool(tool);
            // The rule that names something is the one to show.
            let is_by_server =
                answer.reason == ListReason::NoRule && server.reason == ListReason::ServerAllowed;
            if is_by_server { server } else { answer }
        })
    }

    /// Whether a rule denies a tool that is the agent's own: it names the server `agent` as such. A pattern over all servers
    /// means MCP servers. Case and invisible characters do not count: agents mend the names that their models write.
    #[must_use]
    pub fn own_tool_denied(&self, name: &str) -> Option<ListAnswer> {
        let name = folded(name);
        self.own_denied(|tool| glob::matches(&folded(tool), &name))
    }

    /// Whether a rule refuses any tool that is the agent's own.
    #[must_use]
    pub fn denies_own_tools(&self) -> bool {
        self.own_denied(|_| true).is_some_and(|answer| answer.enforced)
    }

    /// Like [`Self::own_tool_denied`], for a call of a name that is none of those `offered` to the model: an agent may know it as
    /// another name of a tool that is denied, so the first rule that denies any of its tools decides.
    #[must_use]
    pub fn unoffered_denied(&self, name: &str, offered: &BTreeSet<String>) -> Option<ListAnswer> {
        let name = folded(name);
        let is_offered = offered.iter().any(|offered| folded(offered) == name);
        if is_offered { None } else { self.own_denied(|_| true) }
    }

    fn own_denied(&self, is_meant: impl Fn(&str) -> bool) -> Option<ListAnswer> {
        std::iter::successors(Some(self), |lists| lists.narrowed_by.as_deref()).find_map(|lists| {
            let mut denied = lists.denied_tools.iter().filter(|_| lists.tool_policy != ListMode::None);
            let entry = denied.find(|entry| is_own(&entry.value) && is_meant(&entry.value.tool))?;
            Some(lists.answer(false, ListReason::ToolDenied, entry.rule.clone()))
        })
    }

    /// The rule that allows a tool of the agent's own by name, whatever it reaches. A project's file allows nothing.
    #[must_use]
    pub fn own_tool_allowed(&self, name: &str) -> Option<&RuleRef> {
        let named = |entry: &&Ruled<ToolRule>| is_own(&entry.value) && glob::matches(&entry.value.tool, name);
        self.allowed_tools.iter().find(named).map(|entry| &entry.rule)
    }

    /// Whether an allow list in force has an entry for this server, other than one for all servers.
    #[must_use]
    pub fn allows_by_name(&self, server: &ServerId) -> bool {
        let names =
            |pattern: &str| !pattern.bytes().all(|byte| byte == b'*') && glob::matches(pattern, &server.0);
        let servers = self.allowed_servers.iter().map(|entry| entry.value.as_str());
        let tools = self.allowed_tools.iter().map(|entry| entry.value.server.as_str());
        (self.server_policy == ListMode::Allowlist && servers.into_iter().any(names))
            || (self.tool_policy == ListMode::Allowlist && tools.into_iter().any(names))
    }

    /// The place where a key with a single value was written, or its default.
    #[must_use]
    pub fn place_of(&self, key: &str) -> RuleRef {
        let default = || RuleRef::default_rule(&format!("sandbox.mcp.{key}"));
        self.written.get(key).cloned().unwrap_or_else(default)
    }

    pub(crate) fn note(&mut self, key: &str, rule: &RuleRef) {
        self.written.insert(key.to_owned(), rule.clone());
    }

    /// The strictest answer of these lists and of every narrowing layer: a refusal wins, before it an enforced one;
    /// of two equal answers the first.
    fn strictest(&self, ask: impl Fn(&Self) -> ListAnswer) -> ListAnswer {
        let weight = |answer: &ListAnswer| match (answer.allow, answer.enforced) {
            (false, true) => 2,
            (false, false) => 1,
            (true, _) => 0,
        };
        let mut strictest = ask(self);
        let mut layer = self.narrowed_by.as_deref();
        while let Some(lists) = layer {
            let narrowed = ask(lists);
            if weight(&narrowed) > weight(&strictest) {
                strictest = narrowed;
            }
            layer = lists.narrowed_by.as_deref();
        }
        strictest
    }

    fn own_server(&self, server: &ServerId) -> ListAnswer {
        let named = |list: &[Ruled<String>]| {
            let entry = list.iter().find(|entry| glob::matches(&entry.value, &server.0));
            entry.map(|entry| entry.rule.clone())
        };
        let mode_rule = || {
            let rule = self.server_policy_rule.clone();
            rule.unwrap_or_else(|| RuleRef::default_rule("sandbox.mcp.server_policy"))
        };
        // With any list in force, what is denied is denied.
        let denied = || named(&self.denied_servers).filter(|_| self.server_policy != ListMode::None);
        match (self.server_policy, denied()) {
            (_, Some(rule)) => self.answer(false, ListReason::ServerDenied, rule),
            (ListMode::Allowlist, None) => match named(&self.allowed_servers) {
                Some(rule) => self.answer(true, ListReason::ServerAllowed, rule),
                None => self.answer(false, ListReason::ServerNotAllowlisted, mode_rule()),
            },
            (ListMode::None | ListMode::Denylist, None) => self.answer(true, ListReason::NoRule, mode_rule()),
        }
    }

    fn own_tool(&self, tool: Tool<'_>) -> ListAnswer {
        let mode_rule = || {
            let rule = self.tool_policy_rule.clone();
            rule.unwrap_or_else(|| RuleRef::default_rule("sandbox.mcp.tool_policy"))
        };
        let allowed = self.allowed_tools.iter().find(|entry| allows(&entry.value, tool));
        let denied = self.denied_tools.iter().find(|entry| denies(&entry.value, tool));
        let denied = denied.filter(|_| self.tool_policy != ListMode::None);
        let by_list = match (self.tool_policy, denied, allowed) {
            (_, Some(entry), _) => self.answer(false, ListReason::ToolDenied, entry.rule.clone()),
            (ListMode::Allowlist, None, Some(entry)) => {
                self.answer(true, ListReason::ToolAllowed, entry.rule.clone())
            }
            (ListMode::Allowlist, None, None) => {
                self.answer(false, ListReason::ToolNotAllowlisted, mode_rule())
            }
            (ListMode::None | ListMode::Denylist, None, _) => {
                self.answer(true, ListReason::NoRule, mode_rule())
            }
        };
        // A list that already refuses names a more exact rule.
        if self.fail_closed && by_list.allow && !(tool.listed && allowed.is_some()) {
            return self.answer(false, ListReason::UnknownTool, self.place_of("fail_closed"));
        }
        by_list
    }

    fn answer(&self, allow: bool, reason: ListReason, rule: RuleRef) -> ListAnswer {
        ListAnswer { allow, enforced: self.enforce, reason, rule }
    }
}

fn allows(rule: &ToolRule, tool: Tool<'_>) -> bool {
    glob::matches(&rule.server, &tool.server.0)
        && glob::matches(&rule.tool, tool.name)
        && pinned_hash(rule).is_none_or(|wanted| match tool.definition {
            Definition::Hash(hash) => same_hash(wanted, hash),
            Definition::Unknown => false,
            Definition::Any => true,
        })
}

/// A server chooses the names of its tools, and models take some for the same that differ.
fn denies(rule: &ToolRule, tool: Tool<'_>) -> bool {
    glob::matches(&rule.server, &tool.server.0)
        && glob::matches(&folded(&rule.tool), &folded(tool.name))
        && pinned_hash(rule).is_none_or(|wanted| match tool.definition {
            Definition::Hash(hash) => same_hash(wanted, hash),
            Definition::Unknown | Definition::Any => true,
        })
}

fn pinned_hash(rule: &ToolRule) -> Option<&str> {
    rule.content_hash.as_deref().filter(|hash| !hash.is_empty())
}

/// With or without the `sha256:` in front.
fn same_hash(left: &str, right: &str) -> bool {
    let digits = |hash: &str| hash.strip_prefix("sha256:").unwrap_or(hash).to_ascii_lowercase();
    digits(left) == digits(right)
}
