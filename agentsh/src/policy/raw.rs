//! One policy file as it was written: checked, but without defaults. None means that the key is not there.

use std::collections::BTreeMap;

use super::model::{
    DataSink, DataSource, Limits, ListMode, MarkerPlace, NetworkRule, OnChange, PolicyTest, Rate, Ruled,
    ToolRule,
};
use super::reader::List;
use crate::types::{RuleRef, ServerId};

#[derive(Clone, Debug, Default)]
pub struct RawPolicy {
    pub agent: RawProcess,
    pub agent_mcp_config: Option<Ruled<String>>,
    pub mcp: RawMcp,
    pub tests: Vec<PolicyTest>,
    pub warnings: Vec<Ruled<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawProcess {
    pub network_allow: List<NetworkRule>,
    pub loopback: List<u16>,
    pub read: List<String>,
    pub write: List<String>,
    pub deny: List<String>,
    pub unmask: List<String>,
    pub env_allow: List<String>,
    pub env_deny: List<String>,
    /// True: `env_inherit: all`.
    pub env_inherit: Option<Ruled<bool>>,
    pub limits: Limits,
    pub exec_allow: List<String>,
}

/// `sandbox.mcp` and `mcp_rules`, merged.
#[derive(Clone, Debug, Default)]
pub struct RawMcp {
    pub enforce_policy: Option<Ruled<bool>>,
    pub fail_closed: Option<Ruled<bool>>,
    pub server_policy: Option<Ruled<ListMode>>,
    pub allowed_servers: List<String>,
    pub denied_servers: List<String>,
    pub tool_policy: Option<Ruled<ListMode>>,
    pub allowed_tools: List<ToolRule>,
    pub denied_tools: List<ToolRule>,
    pub pinning: Option<RawPinning>,
    pub rate_limits: Option<RawRates>,
    pub max_line_bytes: Option<Ruled<u64>>,
    /// Milliseconds.
    pub request_timeout: Option<Ruled<u64>>,
    pub exfiltration: Option<RawExfiltration>,
    pub servers: BTreeMap<ServerId, RawServer>,
    /// Documented sections without an engine, unless they are switched off anyway.
    pub not_enforced: Vec<RuleRef>,
}

#[derive(Clone, Debug)]
pub struct RawPinning {
    pub rule: RuleRef,
    pub enabled: Option<Ruled<bool>>,
    pub on_change: Option<Ruled<OnChange>>,
    pub auto_trust_first: Option<Ruled<bool>>,
    pub pin_binary: Option<Ruled<bool>>,
}

#[derive(Clone, Debug)]
pub struct RawExfiltration {
    pub rule: RuleRef,
    pub enabled: Option<Ruled<bool>>,
    pub on_detection: Option<Ruled<OnChange>>,
    /// Inner None: no marker is made.
    pub marker: Option<Ruled<Option<MarkerPlace>>>,
    pub allowed_domains: Option<Ruled<Vec<Ruled<NetworkRule>>>>,
}

#[derive(Clone, Debug)]
pub struct RawRates {
    pub rule: RuleRef,
    pub enabled: Option<Ruled<bool>>,
    pub default_rpm: Option<Ruled<u64>>,
    pub default_burst: Option<Ruled<u64>>,
    pub per_server: BTreeMap<ServerId, Ruled<Rate>>,
}

#[derive(Clone, Debug)]
pub struct RawServer {
    pub rule: RuleRef,
    pub command: Option<Ruled<String>>,
    pub args: List<String>,
    pub url: Option<Ruled<String>>,
    pub env: Option<Ruled<BTreeMap<String, String>>>,
    /// True: `install_scripts: allow`.
    pub install_scripts: Option<Ruled<bool>>,
    pub source: Option<Ruled<DataSource>>,
    pub sink: Option<Ruled<DataSink>>,
    pub process: RawProcess,
}

impl RawProcess {
    /// The keys that are there.
    pub fn written(&self) -> std::collections::BTreeSet<&'static str> {
        let env = self.env_allow.is_some() || self.env_deny.is_some() || self.env_inherit.is_some();
        let keys = [
            ("network.allow", self.network_allow.is_some()),
            ("network.loopback", self.loopback.is_some()),
            ("filesystem.read", self.read.is_some()),
            ("filesystem.write", self.write.is_some()),
            ("filesystem.deny", self.deny.is_some()),
            ("filesystem.unmask", self.unmask.is_some()),
            ("env", env),
            ("exec.allow", self.exec_allow.is_some()),
        ];
        keys.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key).collect()
    }
}
