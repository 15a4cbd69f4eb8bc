//! `cross_server` of a generated policy: the rules that the session would not have broken, even if it ran faster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::quoted;
use agentsh_base::json::{self, Json};
use agentsh_base::types::{RuleRef, ServerId, ToolId};
use agentsh_guard::checks::name_skeleton;
use agentsh_guard::{Guard, Reason, SubjectKind};
use agentsh_policy::{McpPolicy, Ruled};

/// Calls that every session may make within the burst window.
const MIN_BURST: u64 = 10;

/// How a session used several servers.
#[derive(Debug, Default)]
pub(super) struct CrossServerUse {
    /// Calls that went through, in order; the same one again and again is one.
    calls: Vec<ToolId>,
    counts: BTreeMap<ServerId, u64>,
    listed: BTreeSet<ToolId>,
    /// Definitions of tools, whose annotations say more of them than their names.
    pub definitions: BTreeMap<ToolId, String>,
}

impl CrossServerUse {
    pub fn list(&mut self, tool: ToolId) {
        self.listed.insert(tool);
    }

    pub fn call(&mut self, tool: ToolId) {
        *self.counts.entry(tool.server.clone()).or_default() += 1;
        self.listed.insert(tool.clone());
        if self.calls.last() != Some(&tool) {
            self.calls.push(tool);
        }
    }

    /// The section, as lines of a policy.
    pub fn section(&self) -> String {
        let mut text = "    cross_server:\n      enabled: true\n".to_owned();
        let mut line = |key: &str, broken: Option<String>| {
            let (flag, why) = match broken {
                None => (true, String::new()),
                Some(why) => (false, format!("  # {why}")),
            };
            text.push_str(&format!("      {key}: {{enabled: {flag}}}{why}\n"));
        };
        line("shadow_tool", self.shadowing_note());
        let mut policy = McpPolicy::default();
        let rule = RuleRef::default_rule("cross_server");
        let off = || Some(Ruled { value: false, rule: rule.clone() });
        policy.cross_server.rule = Some(rule.clone());
        policy.cross_server.shadow_tool.enabled = off();
        policy.cross_server.burst.enabled = off();
        // Nothing but the rule that is tried may refuse a call: what is refused does not count as read.
        policy.cross_server.cross_server_flow.enabled = off();
        let send = self.broken(&policy, Reason::ReadThenSend);
        policy.cross_server.cross_server_flow.enabled = None;
        policy.cross_server.read_then_send.enabled = send.as_ref().and_then(|_| off());
        line("read_then_send", send);
        line("cross_server_flow", self.broken(&policy, Reason::CrossServerFlow));
        let busiest = self.counts.iter().max_by_key(|(_, count)| **count);
        if let Some((server, count)) = busiest.filter(|(_, count)| **count > MIN_BURST) {
            let server = quoted(&server.0);
            text.push_str(&format!("      burst: {{max_calls: {count}}}  # all calls of server {server}\n"));
        }
        text
    }

    /// Two servers with tools that look alike, one of which was called.
    fn shadowing_note(&self) -> Option<String> {
        let mut first: BTreeMap<String, Vec<&ToolId>> = BTreeMap::new();
        for tool in &self.listed {
            first.entry(name_skeleton(&tool.tool)).or_default().push(tool);
        }
        let called: BTreeSet<&ToolId> = self.calls.iter().collect();
        let alike = first.into_values().find(|tools| {
            tools.iter().any(|tool| tool.server != tools[0].server)
                && tools.iter().any(|tool| called.contains(tool))
        })?;
        let servers: Vec<String> = alike.iter().map(|tool| quoted(&tool.server.0)).collect();
        Some(format!("{} is a tool of {}", quoted(&alike[0].tool), servers.join(" and ")))
    }

    /// The first call that a rule would refuse, if all came in the same moment.
    fn broken(&self, policy: &McpPolicy, reason: Reason) -> Option<String> {
        let mut guard = Guard::without_lists(policy);
        for (tool, definition) in &self.definitions {
            let Ok(definition) = json::read(definition.as_bytes()) else { continue };
            let matter = SubjectKind::Definition { name: &tool.tool, hash: "", definition: &definition };
            let _only_remembered = guard.decide(&tool.server, matter, Duration::ZERO);
        }
        let arguments = Json::Object(Vec::new());
        for call in &self.calls {
            let matter = SubjectKind::Call {
                tool: &call.tool,
                hash: None,
                unlisted: false,
                arguments: Some(&arguments),
            };
            let decision = guard.decide(&call.server, matter, Duration::ZERO);
            if decision.verdict.reason == reason {
                let from = decision.deciding_finding().and_then(|found| found.source.clone())?;
                return Some(format!(
                    "the session called {} of {} after {} of {}",
                    quoted(&call.tool),
                    quoted(&call.server.0),
                    quoted(&from.tool),
                    quoted(&from.server.0)
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that the flow rule would refuse count as reads once the flow rule is off.
    #[test]
    fn generated_rules_are_tested_without_calls_other_rules_refuse() {
        let tool =
            |server: &str, tool: &str| ToolId { server: ServerId(server.to_owned()), tool: tool.to_owned() };
        let query = tool("beta", "run_query");
        let mut together = CrossServerUse::default();
        let definition = r#"{"name":"run_query","annotations":{"readOnlyHint":true}}"#.to_owned();
        together.definitions.insert(query.clone(), definition);
        for call in [tool("alpha", "get_item"), query, tool("alpha", "send_report")] {
            together.call(call);
        }
        let text = together.section();
        for line in [
            "read_then_send: {enabled: false}  # the session called \"send_report\" of \"alpha\" after \"run_query\"",
            "cross_server_flow: {enabled: false}  # the session called \"run_query\" of \"beta\" after \"get_item\"",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
