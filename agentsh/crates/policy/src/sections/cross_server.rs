//! `cross_server`: checks over the calls and names of several servers.

use std::time::Duration;

use super::prelude::*;
use crate::glob;
use crate::model::OnFlow;

words! {
    /// The kind of a tool.
    pub enum ToolKind {
        Read = "read",
        Write = "write",
        Send = "send",
        Compute = "compute",
    }
}

/// The words for calls that only a written section judges.
const FLOWS: [(&str, OnFlow); 3] = [("alert", OnFlow::Alert), ("ask", OnFlow::Ask), ("block", OnFlow::Block)];

word_values!(ToolKind);

fn is_on(flag: &One<bool>) -> bool {
    in_force(flag, true)
}

fn window(written: &One<u64>, default_s: u64) -> Duration {
    Duration::from_millis(in_force(written, default_s * 1000))
}

impl CrossServerPolicy {
    /// The section is written and not switched off.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.rule.is_some() && is_on(&self.enabled)
    }

    /// Tools of two servers with one name are refused, not just reported. What looks the same and is spelled in other
    /// letters always is.
    #[must_use]
    pub fn blocks_names(&self) -> bool {
        self.asked() && is_on(&self.shadow_tool.enabled)
    }

    /// The similarity of server names that raises an alert, from 0 to 1. None: they are not compared.
    #[must_use]
    pub fn similarity(&self) -> Option<f64> {
        let wanted = is_on(&self.enabled) && is_on(&self.shadow_tool.similarity_check);
        wanted.then(|| share(in_force(&self.shadow_tool.similarity_threshold, 850)))
    }

    /// How long a read counts against sends to other servers.
    #[must_use]
    pub fn send_window(&self) -> Option<Duration> {
        let wanted = self.asked() && is_on(&self.read_then_send.enabled);
        wanted.then(|| window(&self.read_then_send.window, 30))
    }

    /// How long a read counts against writes to other servers.
    #[must_use]
    pub fn flow_window(&self) -> Option<Duration> {
        let wanted = self.asked() && is_on(&self.cross_server_flow.enabled);
        wanted.then(|| window(&self.cross_server_flow.window, 30))
    }

    /// A read counts while the turn lasts, where turns are known.
    #[must_use]
    pub fn by_turn(&self) -> bool {
        is_on(&self.cross_server_flow.same_turn_only)
    }

    /// Calls of one server in a time.
    #[must_use]
    pub fn burst(&self) -> Option<(usize, Duration)> {
        let wanted = self.asked() && is_on(&self.burst.enabled);
        let calls = in_force(&self.burst.max_calls, 10);
        let calls = usize::try_from(calls).unwrap_or(usize::MAX);
        wanted.then(|| (calls, window(&self.burst.window, 5)))
    }

    /// The outcome of a call after a read elsewhere.
    #[must_use]
    pub fn on_flow(&self) -> OnFlow {
        in_force(&self.on_flow, OnFlow::Block)
    }

    /// The kind of a tool according to the policy.
    #[must_use]
    pub fn kind(&self, server: &str, tool: &str) -> Option<ToolKind> {
        let whole = format!("{server}/{tool}");
        let fits = |pattern: &str| glob::matches(pattern, if pattern.contains('/') { &whole } else { tool });
        self.kinds.iter().find(|(pattern, _)| fits(pattern)).map(|(_, kind)| kind.value)
    }

    /// The place where a part was written, or its default.
    #[must_use]
    pub fn place(&self, key: &str) -> RuleRef {
        let id = format!("sandbox.mcp.cross_server.{key}");
        match &self.rule {
            Some(rule) => RuleRef { id, ..rule.clone() },
            None => RuleRef::default_rule(&id),
        }
    }
}

table! {
    struct ShadowTool;

    /// Whether this check is on.
    pub enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// Whether similar names of servers are reported.
    pub similarity_check: One<bool> = Kind::Flag, default: "true", example: "true";
    /// How much alike two names of servers are (Levenshtein, 1 is the same).
    pub similarity_threshold: One<u64> = Kind::Share, default: "0.85", example: "0.85";
}
table! {
    struct ReadThenSend;

    /// Whether this check is on.
    pub enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// How long a read counts.
    pub window: One<u64> = Kind::Duration, default: "30s", example: "30s";
}
table! {
    struct Burst;

    /// Whether this check is on.
    pub enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// Calls of one server in the window; blocked ones do not count.
    pub max_calls: One<u64> = Kind::Number(1, u32::MAX as u64), default: "10", example: "10";
    /// How long a call counts.
    pub window: One<u64> = Kind::Duration, default: "5s", example: "30s";
}
table! {
    struct CrossServerFlow;

    /// Whether this check is on.
    pub enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// A read counts until the user's next message, however long that takes. Turns are known where the model's answers
    /// are checked (`llm`); elsewhere, and with `false`, the window decides.
    pub same_turn_only: One<bool> = Kind::Flag, default: "true", example: "true";
    /// How long a read counts.
    pub window: One<u64> = Kind::Duration, default: "30s", example: "30s";
}
table! {
    /// The policy in force, each key with its place if it was written. Without the section agentsh looks only for similar names.
    struct CrossServerPolicy with rule;

    /// Whether this check is on.
    pub enabled: One<bool> = Kind::Flag, default: "true", example: "true";
    /// A tool with the name of another server's: both are hidden and refused. Without the section, and with `enabled:
    /// false`, they are only reported. A name that looks the same but is spelled with other letters is always refused.
    pub shadow_tool: ShadowTool = Kind::Map(ShadowTool::TABLE), default: "on";
    /// Something is read from one server and then sent with another: the send is refused.
    pub read_then_send: ReadThenSend = Kind::Map(ReadThenSend::TABLE), default: "on with the section";
    /// Many calls of one server in a short time: further ones are refused.
    pub burst: Burst = Kind::Map(Burst::TABLE), default: "on with the section";
    /// Something is read from one server and then written, computed with or given to an unknown tool of another.
    pub cross_server_flow: CrossServerFlow = Kind::Map(CrossServerFlow::TABLE), default: "on with the section";
    /// What happens to such a call if it contains no visible data of the read. `exfiltration` judges visible data,
    /// however old the read is.
    pub on_flow: One<OnFlow> = Kind::Word(&["block", "ask", "alert"]), default: "block", example: "ask"
        => words FLOWS;
    /// The kind of a tool, by name or `SERVER/TOOL`; `*` matches any text.
    pub kinds: Named<ToolKind> = Kind::Names(&Kind::Word(&["read", "write", "send", "compute"])),
        default: "the verb in a tool's name, and what its annotations add",
        example: "{\"mail/compose\": send}";
}

impl Section<McpPolicy> for CrossServerPolicy {
    const KEYS: &'static [Key] = keys! {
        /// Checks that look at several servers together.
        "cross_server": Kind::Map(Self::TABLE), default: "similar names", example: "{enabled: true}";
    };

    in_table! { McpPolicy (cross_server): read merge }

    /// A project may turn the section on if no other layer did; a setting of another layer stays as it is.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let Some(rule) = &self.rule else { return };
        if !is_on(&self.enabled) || base.cross_server.rule.is_some() {
            narrowing.refuse(rule, "this file would change `cross_server`");
            return;
        }
        Section::merge(self, base);
    }

    fn describe(policy: &McpPolicy, name: &str, lines: &mut Lines) {
        let policy = &policy.cross_server;
        let Some(rule) = &policy.rule else { return };
        let name = format!("{name}.cross_server");
        if !policy.asked() {
            lines.add(&name, "off", rule);
            return;
        }
        let seconds = |time: Duration| format!("{} s", time.as_secs_f64());
        let parts = [
            policy.blocks_names().then(|| "tools with one name".to_owned()),
            policy.similarity().map(|share| format!("servers whose names are alike ({share})")),
            policy.send_window().map(|time| format!("sends within {} of a read", seconds(time))),
            policy.flow_window().map(|time| format!("writes within {} of a read", seconds(time))),
            (policy.on_flow() != OnFlow::Block).then(|| format!("these {}", policy.on_flow().as_str())),
            (!policy.kinds.is_empty()).then(|| format!("{} entries in `kinds`", policy.kinds.len())),
            policy.burst().map(|(calls, time)| format!("more than {calls} calls in {}", seconds(time))),
        ];
        lines.add(&name, parts.into_iter().flatten().collect::<Vec<_>>().join(", "), rule);
    }
}
