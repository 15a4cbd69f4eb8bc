//! Server and tool lists: `server_policy`, `tool_policy`, `fail_closed`. Advisory if the policy is not enforced.
//! `policy::mcp` judges them, for `policy explain` as well.

use std::collections::BTreeMap;

use crate::decision::{Check, Report, Subject, SubjectKind};
use crate::policy::McpPolicy;
use crate::policy::mcp::{Definition, ListAnswer, ListReason, Tool};
use crate::types::{ServerId, ToolId};
use crate::verdict::{Outcome, Reason, Verdict};

/// Tools whose definitions are remembered. A call in a model's answer of any other one is judged without its hash.
const MAX_TOOLS: usize = 10_000;

#[derive(Clone, Debug)]
pub struct Lists {
    policy: McpPolicy,
    /// The hashes of listed tools, for calls in a model's answers. None: no rule has a hash.
    hashes: Option<BTreeMap<ToolId, String>>,
}

impl Lists {
    #[must_use]
    pub fn new(policy: &McpPolicy) -> Self {
        let mut rules = policy.allowed_tools.iter().chain(&policy.denied_tools);
        let hashes = rules.any(|rule| rule.value.content_hash.is_some()).then(BTreeMap::new);
        Self { policy: policy.clone(), hashes }
    }

    /// May the server be started?
    pub fn judge_server(&self, server: &ServerId) -> Verdict {
        verdict(self.policy.server_listed(server))
    }

    /// May the tool be seen and called, as far as the lists say? Server first, then tool.
    pub fn judge_tool(&self, tool: Tool<'_>) -> Verdict {
        verdict(self.policy.tool_listed(tool))
    }
}

impl Check for Lists {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        let server = subject.server;
        match subject.matter {
            SubjectKind::Server => report.rule(self.judge_server(server)),
            SubjectKind::Definition { name, hash, .. } => {
                if let Some(hashes) = &mut self.hashes {
                    let tool = ToolId { server: server.clone(), tool: name.to_owned() };
                    if hashes.len() < MAX_TOOLS || hashes.contains_key(&tool) {
                        hashes.insert(tool, hash.to_owned());
                    }
                }
                let definition = Definition::Hash(hash);
                report.rule(self.judge_tool(Tool { server, name, definition, listed: true }));
            }
            SubjectKind::Call { tool, hash, .. } => {
                let definition = hash.map_or(Definition::Unknown, Definition::Hash);
                let listed = hash.is_some();
                report.rule(self.judge_tool(Tool { server, name: tool, definition, listed }));
            }
            SubjectKind::ModelCall { tool, .. } => {
                let id = || ToolId { server: server.clone(), tool: tool.to_owned() };
                let known = self.hashes.as_ref().and_then(|hashes| hashes.get(&id()));
                let definition = known.map_or(Definition::Any, |hash| Definition::Hash(hash));
                report.rule(self.judge_tool(Tool { server, name: tool, definition, listed: true }));
            }
            _ => {}
        }
    }
}

/// Only the list of servers: an allowed server may show everything that it offers.
#[derive(Debug)]
pub struct ServerList(Lists);

impl ServerList {
    #[must_use]
    pub fn new(policy: &McpPolicy) -> Self {
        Self(Lists::new(policy))
    }
}

impl Check for ServerList {
    fn judge(&mut self, subject: &Subject<'_>, report: &mut Report) {
        if matches!(subject.matter, SubjectKind::Server) {
            self.0.judge(subject, report);
        }
    }
}

fn verdict(answer: ListAnswer) -> Verdict {
    let outcome = match (answer.allow, answer.enforced) {
        (true, _) => Outcome::Allow,
        (false, true) => Outcome::Block,
        (false, false) => Outcome::Alert,
    };
    let reason = match answer.reason {
        ListReason::NoRule => Reason::NoRule,
        ListReason::ServerAllowed => Reason::ServerAllowed,
        ListReason::ServerNotAllowlisted => Reason::ServerNotAllowlisted,
        ListReason::ServerDenied => Reason::ServerDenied,
        ListReason::ToolAllowed => Reason::ToolAllowed,
        ListReason::ToolNotAllowlisted => Reason::ToolNotAllowlisted,
        ListReason::ToolDenied => Reason::ToolDenied,
        ListReason::UnknownTool => Reason::UnknownTool,
    };
    Verdict::new(outcome, reason, answer.rule)
}
