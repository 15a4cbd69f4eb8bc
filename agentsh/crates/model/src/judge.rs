//! Checks the calls in a model's answer with the same checks and events as calls on the wire. Contents of arguments,
//! and approvals, are left to the wire.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::Value;
use tokio::time::Instant;

use agentsh_base::json;
use agentsh_base::types::ServerId;
use agentsh_guard::{Decision, Guard, Outcome, Reason, Report, SubjectKind, Verdict};
use agentsh_host::{Facts, Record};
use agentsh_llm::{Call, EngineEvent, Judge, Provider, Ruling};
use agentsh_mcp::of_model_call;
use agentsh_policy::mcp::AGENT;
use agentsh_store::Event;
use agentsh_store::words::{ModelProvider, ReplacedReason};

/// How agents begin the names of tools of MCP servers.
const PREFIX: &str = "mcp__";
const SEPARATOR: &str = "__";

/// The guard of the MCP connection, and its clock. A call that passes in an answer is counted here, and not again when the
/// agent makes it.
pub type Wire = (Rc<RefCell<Guard>>, Instant);

pub(super) struct SessionJudge {
    facts: Rc<Facts>,
    record: Rc<Record>,
    servers: Rc<BTreeSet<String>>,
    wire: Wire,
    /// The names of the tools in the question, if it is known.
    offered: Option<BTreeSet<String>>,
    /// Refused calls that are not recorded yet.
    refused: Vec<(Call, ServerId, String, Decision)>,
}

pub(super) fn policy_provider(provider: Provider) -> ModelProvider {
    match provider {
        Provider::Anthropic => ModelProvider::Anthropic,
        Provider::OpenAiChat => ModelProvider::OpenAiChat,
        Provider::OpenAiResponses => ModelProvider::OpenAiResponses,
        Provider::Google => ModelProvider::Google,
        Provider::Ollama => ModelProvider::Ollama,
    }
}

/// A server's id as agents write it in tool names.
fn server_in_tool_name(id: &str) -> String {
    id.chars()
        .map(|one| if one.is_ascii_alphanumeric() || matches!(one, '_' | '-') { one } else { '_' })
        .collect()
}

/// The server and the tool of a call. None: a tool of the agent's own.
fn identify(servers: &BTreeSet<String>, call: &Call) -> Option<(ServerId, String)> {
    let whole = match &call.namespace {
        // A server that the provider asks itself.
        Some(namespace) if call.at_provider => return Some((ServerId(namespace.clone()), call.name.clone())),
        Some(namespace) => format!("{}{SEPARATOR}{}", namespace.trim_end_matches('_'), call.name),
        None => call.name.clone(),
    };
    let rest = whole.strip_prefix(PREFIX)?;
    let known = servers.iter().filter_map(|id| {
        let tool = rest.strip_prefix(&server_in_tool_name(id))?.strip_prefix(SEPARATOR)?;
        Some((id.clone(), tool.to_owned()))
    });
    // An id may begin with another one.
    let longest = known.max_by_key(|(id, _)| id.len());
    let (server, tool) =
        longest.or_else(|| rest.split_once(SEPARATOR).map(|(id, tool)| (id.to_owned(), tool.to_owned())))?;
    Some((ServerId(server), tool))
}

impl SessionJudge {
    pub(super) fn new(
        (facts, record): (Rc<Facts>, Rc<Record>),
        servers: Rc<BTreeSet<String>>,
        wire: Wire,
        offered: Option<BTreeSet<String>>,
    ) -> Self {
        Self { facts, record, servers, wire, offered, refused: Vec::new() }
    }

    /// Writes down what happened, before the agent gets it. False: it cannot be written.
    pub(super) async fn record(&mut self, provider: Provider, told: &[EngineEvent]) -> bool {
        let events = self.events(provider, told);
        if events.is_empty() {
            return true;
        }
        for event in events {
            self.record.journal.record(event);
        }
        self.record.journal.flush().await.is_ok()
    }

    /// Like the above, without waiting: refused calls are not forwarded either way.
    pub(super) fn note(&mut self, provider: Provider, told: &[EngineEvent]) {
        for event in self.events(provider, told) {
            self.record.journal.record(event);
        }
    }

    /// A stream that is withheld.
    pub(super) fn record_withheld(&self, provider: Provider, why: &str) {
        self.record.journal.record(Event::ModelAnswerWithheld {
            provider: policy_provider(provider),
            reason: why.to_owned(),
        });
    }

    fn events(&mut self, provider: Provider, told: &[EngineEvent]) -> Vec<Event> {
        let mut events = Vec::new();
        for (call, server, tool, decision) in self.refused.drain(..) {
            let input = json::read(call.arguments.as_bytes()).map(|tree| tree.to_value()).unwrap_or_default();
            let jsonrpc_id = Value::String(call.id);
            events.push(Event::McpToolCalled {
                server_id: server.clone(),
                tool_name: tool.clone(),
                jsonrpc_id: jsonrpc_id.clone(),
                input: agentsh_content::recorded_arguments(&self.facts.policy.mcp.secrets, input),
            });
            events.extend(of_model_call(&server, &tool, &jsonrpc_id, &decision));
        }
        if told.iter().any(super::is_leak) {
            events.push(Event::OutputMessageReplaced {
                provider: policy_provider(provider),
                reason_code: ReplacedReason::SystemPromptLeak,
            });
        }
        events
    }
}

impl Judge for SessionJudge {
    fn judge(&mut self, call: &Call) -> Ruling {
        let mut is_unoffered = false;
        let (server, tool, decision) = match identify(&self.servers, call) {
            Some((server, tool)) => {
                let arguments = json::read(call.arguments.as_bytes()).ok();
                let matter = SubjectKind::ModelCall { tool: &tool, arguments: arguments.as_ref() };
                let (guard, epoch) = &self.wire;
                let decision = guard.borrow_mut().decide(&server, matter, epoch.elapsed());
                (server, tool, decision)
            }
            None => {
                let policy = &self.facts.policy.mcp;
                let offered =
                    self.offered.as_ref().filter(|offered| !call.at_provider && !offered.is_empty());
                // A tool that the policy allows by its name needs no offer: agents keep some back until they are searched for.
                let offered = offered.filter(|_| policy.own_tool_allowed(&call.name).is_none());
                let by_name = policy.own_tool_denied(&call.name);
                is_unoffered = by_name.is_none();
                let denied = by_name
                    .or_else(|| offered.and_then(|offered| policy.unoffered_denied(&call.name, offered)));
                let Some(denied) = denied.filter(|answer| answer.enforced) else { return Ruling::Allow };
                let mut report = Report::default();
                report.rule(Verdict::new(Outcome::Block, Reason::ToolDenied, denied.rule));
                (ServerId(AGENT.to_owned()), call.name.clone(), report.fold())
            }
        };
        // Questions to a person are asked on the MCP connection.
        if decision.verdict.outcome != Outcome::Block {
            return Ruling::Allow;
        }
        let remedy = match server.0.as_str() {
            AGENT if is_unoffered => format!(
                "the request did not offer this tool to the model, and a tool of the agent is denied; the user can allow it: \
                 `agentsh policy allow {AGENT}/{tool}`"
            ),
            AGENT => "the user can remove the rule".to_owned(),
            _ => agentsh_guard::remedy(&server, &tool, &decision.verdict),
        };
        let what = decision
            .deciding_finding()
            .map(|found| format!("{}; ", found.with_remedies()))
            .unwrap_or_default();
        let said = format!("{}; {what}{remedy}", decision.verdict.rule);
        self.refused.push((call.clone(), server, tool, decision));
        Ruling::Block(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_tool_names_are_mapped_to_servers() {
        let servers: BTreeSet<String> = ["fs", "fs__deep", "my server"].map(str::to_owned).into();
        let named = |namespace: Option<&str>, name: &str| {
            let call = Call {
                id: String::new(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                arguments: String::new(),
                at_provider: false,
            };
            identify(&servers, &call).map(|(server, tool)| format!("{server}/{tool}"))
        };
        assert_eq!(named(None, "mcp__fs__read").as_deref(), Some("fs/read"));
        assert_eq!(named(None, "mcp__fs__deep__read").as_deref(), Some("fs__deep/read"));
        assert_eq!(named(None, "mcp__my_server__a__b").as_deref(), Some("my server/a__b"));
        assert_eq!(named(Some("mcp__fs"), "read").as_deref(), Some("fs/read"));
        assert_eq!(named(Some("mcp__fs__"), "read").as_deref(), Some("fs/read"));
        assert_eq!(named(None, "mcp__new__read").as_deref(), Some("new/read"));
        assert_eq!(named(None, "Bash"), None);
    }
}
