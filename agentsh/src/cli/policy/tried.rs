//! What a policy would have said to the calls and connections that a session has on record.

use crate::policy::{Answer, PathContext, Policy, Question};
use crate::store::SessionTally;
use crate::types::ServerId;

/// One kind of thing that a session did, or tried.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Tried {
    /// None: the agent.
    pub server: Option<ServerId>,
    /// In words.
    pub what: String,
    pub question: Question,
    pub times: u64,
    /// It went through then.
    pub passed: bool,
}

/// Every tool and host of a session, with what became of them.
pub(in crate::cli) fn of(tally: &SessionTally) -> Vec<Tried> {
    let mut list = Vec::new();
    let mut add = |server: Option<ServerId>, what: String, times: u64, passed: bool, question: Question| {
        list.push(Tried { server, what, question, times, passed });
    };
    for tool in &tally.tools {
        let passed = !matches!(tool.action.as_deref(), Some("block" | "ask"));
        let question = Question::Tool(tool.tool_name.clone());
        let server = Some(ServerId(tool.server_id.clone()));
        add(server, format!("call {}", tool.tool_name), tool.calls, passed, question);
    }
    for one in tally.summary.connections.values() {
        let question = Question::Connect(one.host.clone(), one.port);
        let what = format!("connect to {}:{}", one.host, one.port);
        add(one.server_id.clone(), what, one.closed + one.failed, true, question);
    }
    for one in tally.summary.refused_connections.values() {
        let port = if one.port == 0 { 443 } else { one.port };
        let question = Question::Connect(one.host.clone(), port);
        let what = format!("connect to {}:{port}", one.host);
        add(one.server_id.clone(), what, one.count, false, question);
    }
    list
}

impl Tried {
    /// What this policy says to it.
    pub fn ask(&self, policy: &Policy, context: &PathContext) -> Answer {
        policy.ask(self.server.as_ref(), &self.question, context)
    }
}
