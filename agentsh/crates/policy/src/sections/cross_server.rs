//! `cross_server`: checks over the calls and names of several servers.

use std::collections::BTreeMap;
use std::time::Duration;

use agentsh_base::words;

use crate::describe::Lines;
use crate::glob;
use crate::keys::{Key, Kind, keys};
use crate::model::{OnFlow, Ruled};
use crate::narrow::Narrowing;
use crate::reader::{Fields, Reader};
use crate::section::{Section, merge_keys};
use crate::sections::McpPolicy;
use crate::types::RuleRef;

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

/// The policy in force. `None` is the default, which the methods return.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossServerPolicy {
    /// The place where the section was written. None: agentsh looks only for similar names.
    pub rule: Option<RuleRef>,
    pub enabled: Option<Ruled<bool>>,
    pub shadow: Option<Ruled<bool>>,
    pub similarity: Option<Ruled<bool>>,
    /// In thousandths.
    pub threshold: Option<Ruled<u64>>,
    pub read_then_send: Option<Ruled<bool>>,
    pub send_window_ms: Option<Ruled<u64>>,
    pub burst: Option<Ruled<bool>>,
    pub burst_calls: Option<Ruled<u64>>,
    pub burst_window_ms: Option<Ruled<u64>>,
    pub flow: Option<Ruled<bool>>,
    pub same_turn_only: Option<Ruled<bool>>,
    pub flow_window_ms: Option<Ruled<u64>>,
    pub on_flow: Option<Ruled<OnFlow>>,
    /// By pattern of `SERVER/TOOL`, or of a tool's name alone.
    pub kinds: BTreeMap<String, Ruled<ToolKind>>,
}

fn is_on(flag: Option<&Ruled<bool>>) -> bool {
    flag.is_none_or(|flag| flag.value)
}

fn window(written: Option<&Ruled<u64>>, default_s: u64) -> Duration {
    written.map_or(Duration::from_secs(default_s), |written| Duration::from_millis(written.value))
}

impl CrossServerPolicy {
    /// The section is written and not switched off.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.rule.is_some() && is_on(self.enabled.as_ref())
    }

    /// Tools of two servers with one name are refused, not just reported. What looks the same and is spelled in other
    /// letters always is.
    #[must_use]
    pub fn blocks_names(&self) -> bool {
        self.asked() && is_on(self.shadow.as_ref())
    }

    /// The similarity of server names that raises an alert, from 0 to 1. None: they are not compared.
    #[must_use]
    pub fn similarity(&self) -> Option<f64> {
        let wanted = is_on(self.enabled.as_ref()) && is_on(self.similarity.as_ref());
        #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
        let share = self.threshold.as_ref().map_or(0.85, |share| share.value as f64 / 1000.0);
        wanted.then_some(share)
    }

    /// How long a read counts against sends to other servers.
    #[must_use]
    pub fn send_window(&self) -> Option<Duration> {
        let wanted = self.asked() && is_on(self.read_then_send.as_ref());
        wanted.then(|| window(self.send_window_ms.as_ref(), 30))
    }

    /// How long a read counts against writes to other servers.
    #[must_use]
    pub fn flow_window(&self) -> Option<Duration> {
        let wanted = self.asked() && is_on(self.flow.as_ref());
        wanted.then(|| window(self.flow_window_ms.as_ref(), 30))
    }

    /// A read counts while the turn lasts, where turns are known.
    #[must_use]
    pub fn by_turn(&self) -> bool {
        is_on(self.same_turn_only.as_ref())
    }

    /// Calls of one server in a time.
    #[must_use]
    pub fn burst(&self) -> Option<(usize, Duration)> {
        let wanted = self.asked() && is_on(self.burst.as_ref());
        let calls = self.burst_calls.as_ref().map_or(10, |calls| calls.value);
        let calls = usize::try_from(calls).unwrap_or(usize::MAX);
        wanted.then(|| (calls, window(self.burst_window_ms.as_ref(), 5)))
    }

    /// The outcome of a call after a read elsewhere.
    #[must_use]
    pub fn on_flow(&self) -> OnFlow {
        self.on_flow.as_ref().map_or(OnFlow::Block, |on_flow| on_flow.value)
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

const SHADOW_TOOL: &[Key] = keys! {
    /// Whether this check is on.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// Whether similar names of servers are reported.
    "similarity_check": Kind::Flag, default: "true", example: "true";
    /// How much alike two names of servers are (Damerau-Levenshtein, 1 is the same).
    "similarity_threshold": Kind::Share, default: "0.85", example: "0.85";
};
const READ_THEN_SEND: &[Key] = keys! {
    /// Whether this check is on.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// How long a read counts.
    "window": Kind::Duration, default: "30s", example: "30s";
};
const BURST: &[Key] = keys! {
    /// Whether this check is on.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// Calls of one server in the window; blocked ones do not count.
    "max_calls": Kind::Number(1, u32::MAX as u64), default: "10", example: "10";
    /// How long a call counts.
    "window": Kind::Duration, default: "5s", example: "30s";
};
const CROSS_SERVER_FLOW: &[Key] = keys! {
    /// Whether this check is on.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// A read counts until the user's next message, however long that takes. Turns are known where the model's answers
    /// are checked (`llm`); elsewhere, and with `false`, the window decides.
    "same_turn_only": Kind::Flag, default: "true", example: "true";
    /// How long a read counts.
    "window": Kind::Duration, default: "30s", example: "30s";
};
const CROSS_SERVER: &[Key] = keys! {
    /// Whether this check is on.
    "enabled": Kind::Flag, default: "true", example: "true";
    /// A tool with the name of another server's: both are hidden and refused. Without the section, and with `enabled:
    /// false`, they are only reported. A name that looks the same but is spelled with other letters is always refused.
    "shadow_tool": Kind::Map(SHADOW_TOOL), default: "on";
    /// Something is read from one server and then sent with another: the send is refused.
    "read_then_send": Kind::Map(READ_THEN_SEND), default: "on with the section";
    /// Many calls of one server in a short time: further ones are refused.
    "burst": Kind::Map(BURST), default: "on with the section";
    /// Something is read from one server and then written, computed with or given to an unknown tool of another.
    "cross_server_flow": Kind::Map(CROSS_SERVER_FLOW), default: "on with the section";
    /// What happens to such a call if it contains no visible data of the read. `exfiltration` judges visible data,
    /// however old the read is.
    "on_flow": Kind::Word(&["block", "ask", "alert"]), default: "block", example: "ask";
    /// The kind of a tool, by name or `SERVER/TOOL`; `*` matches any text.
    "kinds": Kind::Names(&Kind::Word(&["read", "write", "send", "compute"])),
        default: "the verb in a tool's name, and what its annotations add",
        example: "{\"mail/compose\": send}";
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossServer {
    written: CrossServerPolicy,
}

impl Section<McpPolicy> for CrossServer {
    const KEYS: &'static [Key] = keys! {
        /// Checks that look at several servers together.
        "cross_server": Kind::Map(CROSS_SERVER), default: "similar names", example: "{enabled: true}";
    };

    fn read(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Self {
        let Some(here) = fields.find("cross_server") else { return Self::default() };
        let Some(fields) = reader.map(&here, CROSS_SERVER) else { return Self::default() };
        let mut written = CrossServerPolicy {
            rule: Some(reader.rule(&here)),
            enabled: reader.boolean(fields.find("enabled")),
            ..CrossServerPolicy::default()
        };
        if let Some(part) = reader.within(&fields, "shadow_tool", SHADOW_TOOL) {
            written.shadow = reader.boolean(part.find("enabled"));
            written.similarity = reader.boolean(part.find("similarity_check"));
            written.threshold = reader.share(part.find("similarity_threshold"));
        }
        if let Some(part) = reader.within(&fields, "read_then_send", READ_THEN_SEND) {
            written.read_then_send = reader.boolean(part.find("enabled"));
            written.send_window_ms = reader.duration(part.find("window"));
        }
        if let Some(part) = reader.within(&fields, "burst", BURST) {
            written.burst = reader.boolean(part.find("enabled"));
            written.burst_calls = reader.number(part.find("max_calls"), 1, u64::from(u32::MAX));
            written.burst_window_ms = reader.duration(part.find("window"));
        }
        if let Some(part) = reader.within(&fields, "cross_server_flow", CROSS_SERVER_FLOW) {
            written.flow = reader.boolean(part.find("enabled"));
            written.same_turn_only = reader.boolean(part.find("same_turn_only"));
            written.flow_window_ms = reader.duration(part.find("window"));
        }
        written.on_flow = reader.word(fields.find("on_flow"), &FLOWS);
        written.kinds =
            reader.named(fields.find("kinds"), |reader, here| reader.word(Some(here), ToolKind::WORDS));
        Self { written }
    }

    fn merge(&self, below: &mut McpPolicy) {
        let (own, below) = (&self.written, &mut below.cross_server);
        if own.rule.is_some() {
            below.rule.clone_from(&own.rule);
        }
        merge_keys!(own => below; enabled, shadow, similarity, threshold, read_then_send, send_window_ms, burst);
        merge_keys!(own => below; burst_calls, burst_window_ms, flow, same_turn_only, flow_window_ms, on_flow);
        below.kinds.extend(own.kinds.clone());
    }

    /// A project may turn the section on if no other layer did; a setting of another layer stays as it is.
    fn narrow(&self, base: &mut McpPolicy, narrowing: &mut Narrowing<'_>) {
        let Some(rule) = &self.written.rule else { return };
        let switches_off = self.written.enabled.as_ref().is_some_and(|enabled| !enabled.value);
        if switches_off || base.cross_server.rule.is_some() {
            narrowing.refuse(rule, "this file would change `cross_server`");
            return;
        }
        self.merge(base);
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
