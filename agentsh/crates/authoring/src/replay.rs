//! What a policy would have decided about the recorded calls and connections of a session.

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_policy::{Answer, PathContext, Policy, Question};
use agentsh_store::SessionTally;

/// Types of the events that [`replayed_items`] goes by.
pub const KINDS: [&str; 5] = [
    "session_started",
    "mcp_tool_called",
    "mcp_tool_call_intercepted",
    "mcp_network_connection",
    "net_connect_blocked",
];

/// One kind of action of a session.
#[derive(Clone, Debug)]
pub struct ReplayedItem {
    /// None: the agent.
    pub server: Option<ServerId>,
    /// In words.
    pub what: String,
    pub question: Question,
    pub times: u64,
    /// It was allowed at that time.
    pub passed: bool,
    /// The rule by which a connection did.
    pub by: Option<RuleRef>,
}

/// Every tool and host of a session, with what became of them.
pub fn replayed_items(tally: &SessionTally) -> Vec<ReplayedItem> {
    let mut list = Vec::new();
    let mut add = |server: Option<ServerId>, what: String, times: u64, passed: bool, question: Question| {
        list.push(ReplayedItem { server, what, question, times, passed, by: None });
    };
    for tool in &tally.tools {
        let passed = !matches!(tool.action.as_deref(), Some("block" | "ask"));
        let question = Question::Tool(tool.tool_name.clone());
        let server = Some(ServerId(tool.server_id.clone()));
        add(server, format!("call {}", tool.tool_name), tool.calls, passed, question);
    }
    for one in tally.summary.refused_connections.values() {
        let port = if one.port == 0 { 443 } else { one.port };
        let question = Question::Connect(one.host.clone(), port);
        let what = format!("connect to {}:{port}", one.host);
        add(one.server_id.clone(), what, one.count, false, question);
    }
    for one in tally.summary.connections.values() {
        list.push(ReplayedItem {
            server: one.server_id.clone(),
            what: format!("connect to {}:{}", one.host, one.port),
            question: Question::Connect(one.host.clone(), one.port),
            times: one.closed + one.failed,
            passed: true,
            by: Some(one.rule.clone()),
        });
    }
    list
}

impl ReplayedItem {
    /// The verdict of this policy.
    pub fn ask(&self, policy: &Policy, context: &PathContext) -> Answer {
        policy.ask(self.server.as_ref(), &self.question, context)
    }
}
