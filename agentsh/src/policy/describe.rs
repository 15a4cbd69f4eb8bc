//! A policy as flat lines: every part, its value, and the rule that says it.

use super::limits::{limits_for_agent, limits_for_server};
use super::model::{
    DataSink, DataSource, ExfiltrationPolicy, Limits, ListMode, MarkerPlace, McpPolicy, OnChange, Policy,
    ProcessPolicy, Rate, Ruled, ToolRule,
};
use super::units;
use crate::types::RuleRef;

/// One part of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is about: `agent.network.allow`, `servers.github.limits.memory`.
    pub key: String,
    pub value: String,
    pub rule: RuleRef,
}

type Show<'f> = &'f dyn Fn(u64) -> String;

#[derive(Default)]
struct Lines(Vec<Line>);

impl Policy {
    /// Everything that is in force, defaults included, in a stable order.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Lines::default();
        lines.process("agent", &self.agent, limits_for_agent());
        if let Some(config) = &self.agent_mcp_config {
            lines.add("agent.mcp_config", &config.value, &config.rule);
        }
        lines.mcp("mcp", &self.mcp);
        let has_rules = |lists: &&McpPolicy| {
            lists.server_policy != ListMode::None || lists.tool_policy != ListMode::None || lists.fail_closed
        };
        if let Some(project) = self.mcp.narrowed_by.as_deref().filter(has_rules) {
            lines.lists("mcp.project", project);
        }
        for (id, server) in &self.mcp.servers {
            let name = format!("servers.{id}");
            if let Some(command) = &server.command {
                let whole = [std::slice::from_ref(command), &server.args].concat().join(" ");
                lines.add(&format!("{name}.command"), whole, &server.rule);
            }
            for variable in server.env.keys() {
                lines.add(&format!("{name}.env"), variable, &server.rule);
            }
            if let Some(source) = &server.source {
                let word = if source.value == DataSource::Public { "public" } else { "private" };
                lines.add(&format!("{name}.flow.source"), word, &source.rule);
            }
            if let Some(sink) = &server.sink {
                let word = if sink.value == DataSink::Local { "local" } else { "external" };
                lines.add(&format!("{name}.flow.sink"), word, &sink.rule);
            }
            lines.process(&name, &server.process, limits_for_server());
        }
        lines.0
    }
}

impl Lines {
    fn add(&mut self, key: &str, value: impl Into<String>, rule: &RuleRef) {
        self.0.push(Line { key: key.to_owned(), value: value.into(), rule: rule.clone() });
    }

    fn list<T>(&mut self, key: &str, list: &[Ruled<T>], show: impl Fn(&T) -> String) {
        for entry in list {
            self.add(key, show(&entry.value), &entry.rule);
        }
    }

    fn process(&mut self, name: &str, process: &ProcessPolicy, defaults: Limits) {
        let key = |part: &str| format!("{name}.{part}");
        self.list(&key("network.allow"), &process.network.allow, ToString::to_string);
        self.list(&key("network.loopback"), &process.network.loopback, ToString::to_string);
        self.list(&key("filesystem.read"), &process.filesystem.read, Clone::clone);
        self.list(&key("filesystem.write"), &process.filesystem.write, Clone::clone);
        self.list(&key("filesystem.deny"), &process.filesystem.deny, Clone::clone);
        self.list(&key("filesystem.unmask"), &process.filesystem.unmask, Clone::clone);
        self.list(&key("env_allow"), &process.env.allow, Clone::clone);
        self.list(&key("env_deny"), &process.env.deny, Clone::clone);
        self.list(&key("env_never"), &process.env.never, Clone::clone);
        if process.env.inherit_all {
            let default = || RuleRef::default_rule(&key("env_inherit"));
            self.add(&key("env_inherit"), "all", &process.env.inherit_rule.clone().unwrap_or_else(default));
        }
        let limits = process.limits.clone().or(defaults);
        let percent = |value: u64| format!("{value}%");
        let plain = |value: u64| value.to_string();
        let shown: [(&str, &Option<Ruled<u64>>, Show<'_>); 4] = [
            ("limits.memory", &limits.memory, &units::show_bytes),
            ("limits.pids", &limits.pids, &plain),
            ("limits.open_files", &limits.open_files, &plain),
            ("limits.cpu", &limits.cpu_percent, &percent),
        ];
        for (part, limit, show) in shown {
            if let Some(limit) = limit {
                self.add(&key(part), show(limit.value), &limit.rule);
            }
        }
        self.list(&key("exec.allow"), &process.exec.allow, Clone::clone);
    }

    fn mcp(&mut self, name: &str, mcp: &McpPolicy) {
        self.lists(name, mcp);
        let pinning = &mcp.pinning;
        let on_change = show_action(pinning.on_change);
        let text = format!(
            "enabled={} on_change={on_change} auto_trust_first={} pin_binary={}",
            pinning.enabled, pinning.auto_trust_first, pinning.pin_binary
        );
        self.add(&format!("{name}.version_pinning"), text, &pinning.rule);
        let rate = |rate: &Rate| format!("{} calls a minute, burst {}", rate.calls_per_minute, rate.burst);
        if let Some(default) = &mcp.rate_limits.default {
            self.add(&format!("{name}.rate_limits"), rate(&default.value), &default.rule);
        }
        for (id, limit) in &mcp.rate_limits.per_server {
            self.add(&format!("{name}.rate_limits.{id}"), rate(&limit.value), &limit.rule);
        }
        self.add(
            &format!("{name}.max_line_bytes"),
            units::show_bytes(mcp.max_line_bytes),
            &mcp.place_of("max_line_bytes"),
        );
        if let Some(seconds) = mcp.request_timeout_s {
            self.add(
                &format!("{name}.request_timeout"),
                format!("{seconds}s"),
                &mcp.place_of("request_timeout"),
            );
        }
        self.exfiltration(&format!("{name}.exfiltration"), &mcp.exfiltration);
        for rule in &mcp.not_enforced {
            self.add(&format!("{name}.not_enforced"), &rule.id, rule);
        }
    }

    fn exfiltration(&mut self, name: &str, policy: &ExfiltrationPolicy) {
        let marker = match policy.marker {
            None => "off",
            Some(MarkerPlace::Suffix) => "suffix",
            Some(MarkerPlace::Prefix) => "prefix",
            Some(MarkerPlace::Both) => "both",
            Some(MarkerPlace::Between) => "random_word_boundary",
        };
        let text = format!(
            "enabled={} on_detection={} marker={marker}",
            policy.enabled,
            show_action(policy.on_detection)
        );
        self.add(name, text, &policy.rule);
        if let Some(domains) = &policy.allowed_domains {
            self.list(&format!("{name}.allowed_domains"), &domains.value, ToString::to_string);
        }
    }

    fn lists(&mut self, name: &str, mcp: &McpPolicy) {
        let default = |key: &str| RuleRef::default_rule(&format!("sandbox.mcp.{key}"));
        let mode = |mode: ListMode| match mode {
            ListMode::None => "none",
            ListMode::Allowlist => "allowlist",
            ListMode::Denylist => "denylist",
        };
        self.add(&format!("{name}.enforce_policy"), mcp.enforce.to_string(), &mcp.place_of("enforce_policy"));
        self.add(&format!("{name}.fail_closed"), mcp.fail_closed.to_string(), &mcp.place_of("fail_closed"));
        let rule = mcp.server_policy_rule.clone().unwrap_or_else(|| default("server_policy"));
        self.add(&format!("{name}.server_policy"), mode(mcp.server_policy), &rule);
        self.list(&format!("{name}.allowed_servers"), &mcp.allowed_servers, Clone::clone);
        self.list(&format!("{name}.denied_servers"), &mcp.denied_servers, Clone::clone);
        let rule = mcp.tool_policy_rule.clone().unwrap_or_else(|| default("tool_policy"));
        self.add(&format!("{name}.tool_policy"), mode(mcp.tool_policy), &rule);
        self.list(&format!("{name}.allowed_tools"), &mcp.allowed_tools, show_tool);
        self.list(&format!("{name}.denied_tools"), &mcp.denied_tools, show_tool);
    }
}

fn show_action(action: OnChange) -> &'static str {
    match action {
        OnChange::Block => "block",
        OnChange::Alert => "alert",
        OnChange::Allow => "allow",
    }
}

fn show_tool(rule: &ToolRule) -> String {
    match &rule.content_hash {
        Some(hash) => format!("{}/{} with {hash}", rule.server, rule.tool),
        None => format!("{}/{}", rule.server, rule.tool),
    }
}
