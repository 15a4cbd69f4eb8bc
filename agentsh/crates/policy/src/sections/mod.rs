//! The sections of a policy, each in a file of its own. A new one is a file here and a line in one of the lists.

pub(crate) mod advisories;
pub(crate) mod anomaly;
pub(crate) mod approvals;
mod arguments;
mod briefing;
pub(crate) mod classifier;
pub(crate) mod content;
pub(crate) mod credentials;
pub(crate) mod cross_server;
pub(crate) mod detection;
mod env;
pub(crate) mod exec;
mod exfiltration;
pub(crate) mod filesystem;
pub(crate) mod inspect;
pub(crate) mod interface;
mod later;
pub(crate) mod limits;
mod lists;
pub(crate) mod llm;
mod mcp_config;
mod network;
mod pinning;
mod publish;
mod questions;
mod rates;
mod risk_names;
pub(crate) mod rules;
pub(crate) mod secrets;
mod servers;
pub(crate) mod ssh;
pub(crate) mod telemetry;
mod wire;

/// What most sections need.
mod prelude {
    pub(crate) use std::collections::BTreeMap;

    pub(crate) use agentsh_base::words;

    pub(crate) use crate::describe::Lines;
    pub(crate) use crate::keys::{KEY, Key, Kind, keys};
    pub(crate) use crate::model::Ruled;
    pub(crate) use crate::narrow::Narrowing;
    pub(crate) use crate::reader::{Fields, Here, List, Listed, Reader};
    pub(crate) use crate::section::{Section, merge_key, merge_keys, rules_of, set_key};
    pub(crate) use crate::sections::{AgentPolicy, McpPolicy, Policy, ProcessPolicy};
    pub(crate) use crate::table::{
        Entries, Named, One, Table, Whole, in_force, in_table, share, table, word_values,
    };
    pub(crate) use crate::texts::texts;
    pub(crate) use crate::types::{RuleRef, ServerId};
    pub(crate) use crate::yaml::Value;
}

pub use env::variable;
pub use exfiltration::{allowed_domain, flow};
pub use filesystem::{denied_pattern, path_pattern, writable_pattern};
pub use network::{network_map, port};
pub use questions::{connect, tests, tool};
pub use servers::{SCRIPTS, headers, judge_url};

use std::collections::BTreeMap;

use crate::model::{
    EnvPolicy, ExfiltrationPolicy, ListMode, NetworkPolicy, Pinning, PolicyTest, RateLimits, Ruled,
    ServerPolicy, ToolRule, WrittenLayer,
};
use crate::organisation::InForce;
use crate::risk::Names;
use crate::section::sections;
use crate::table::Entries;
use crate::types::{RuleRef, ServerId};

sections! {
    /// One file's content for one process tree.
    RawProcess;
    /// The rights of one process tree (the agent, or one server).
    ProcessPolicy {}
    network: network::Network => { network: NetworkPolicy }
    filesystem: filesystem::FilesystemPolicy => { filesystem: filesystem::FilesystemPolicy }
    env: env::Env => { env: EnvPolicy }
    limits: limits::Limits => { limits: limits::Limits }
    exec: exec::ExecPolicy => { exec: exec::ExecPolicy }
}

sections! {
    /// One file's content for the agent alone, besides its process.
    RawAgent;
    /// The policy of the agent that applies to no server.
    AgentPolicy {}
    mcp_config: mcp_config::McpConfig => {
        /// The file in which an agent without an adapter of its own keeps its MCP servers. `~` and a leading `.` (the
        /// project) are still unexpanded.
        mcp_config: Option<Ruled<String>>
    }
    publish: publish::Publish => {
        /// Ports of the sandbox that are reachable from this machine.
        publish: Entries<u16>
    }
    credentials: credentials::Credentials => {
        /// Secrets that the session puts on requests.
        credentials: Entries<credentials::Credential>
    }
    ssh: ssh::Ssh => {
        /// Keys that sign for the agent.
        ssh: Entries<ssh::SshAccess>
    }
    tell_sandbox: briefing::Briefing => {
        /// The agent is told about its sandbox, unless this is false.
        tell_sandbox: Option<Ruled<bool>>
    }
}

sections! {
    /// One file's content under `sandbox.mcp`, or under `mcp_rules`.
    RawMcp;
    /// `sandbox.mcp` and `mcp_rules`, as documented for agentsh.
    McpPolicy {
        /// Server and tool lists of a narrowing layer; its other fields are not used. A server or a call has to pass
        /// these as well as the lists here, each with its own `enforce` and `fail_closed`.
        narrowed_by: Option<Box<McpPolicy>>,
        /// The places where the keys with a single value were written, by the name of the key.
        written: BTreeMap<String, RuleRef>,
    }
    lists: lists::Lists => {
        /// Without it the lists below are only evaluated, and what would be refused is recorded as an alert.
        enforce: bool,
        fail_closed: bool,
        server_policy: ListMode,
        server_policy_rule: Option<RuleRef>,
        allowed_servers: Entries<String>,
        denied_servers: Entries<String>,
        tool_policy: ListMode,
        tool_policy_rule: Option<RuleRef>,
        allowed_tools: Entries<ToolRule>,
        denied_tools: Entries<ToolRule>,
    }
    pinning: pinning::PinningKeys => { pinning: Pinning }
    rates: rates::Rates => { rate_limits: RateLimits }
    wire: wire::WireSettings => {
        /// Longest line on the wire, in bytes.
        max_line_bytes: u64,
        /// Seconds a request may stay unanswered before it is cancelled; None leaves it to the client.
        request_timeout_s: Option<u64>,
    }
    arguments: arguments::Arguments => {
        /// Longest argument of a tool call, in bytes of its JSON.
        max_argument_bytes: Option<Ruled<u64>>
    }
    exfiltration: exfiltration::Exfiltration => { exfiltration: ExfiltrationPolicy }
    detection: detection::Detection => { detection: detection::DetectionPolicy }
    output_inspection: detection::OutputInspection => {}
    sampling: detection::Sampling => {}
    secrets: secrets::SecretPolicy => { secrets: secrets::SecretPolicy }
    content: content::ContentPolicy => { content: content::ContentPolicy }
    classifier: classifier::ClassifierPolicy => { classifier: classifier::ClassifierPolicy }
    advisories: advisories::AdvisoryPolicy => { advisories: advisories::AdvisoryPolicy }
    rules: rules::Rules => {
        /// Rules about the content of calls.
        rules: Entries<rules::CallRule>
    }
    risk_names: risk_names::RiskNames => {
        /// How their risk is read from names of tools; `None`: as words.
        risk_names: Option<Ruled<Names>>
    }
    approvals: approvals::Approvals => {
        approvals: approvals::ApprovalPolicy,
        approved: Entries<approvals::Approved>,
    }
    anomaly: anomaly::AnomalyPolicy => { anomaly: anomaly::AnomalyPolicy }
    cross_server: cross_server::CrossServerPolicy => { cross_server: cross_server::CrossServerPolicy }
    later: later::UnenforcedKeys => {
        /// Sections that are not implemented are parsed and kept, so that a documented file loads unchanged; this names them,
        /// and every session reports them.
        not_enforced: Vec<RuleRef>
    }
    servers: servers::Servers => { servers: BTreeMap<ServerId, ServerPolicy> }
}

sections! {
    /// One file's content at the top, besides `agent` and `sandbox`.
    RawRoot;
    /// Everything one session obeys.
    Policy {
        /// The files and built-in policies that it is made of, for people.
        source: String,
        agent: ProcessPolicy,
        /// The policy of the agent that applies to no server.
        agent_only: AgentPolicy,
        mcp: McpPolicy,
        /// The signed policy of an organisation that is one of the layers.
        organisation: Option<InForce>,
        /// The layers, by their files.
        layers: BTreeMap<String, WrittenLayer>,
        /// Warnings about probable mistakes.
        warnings: Vec<Ruled<String>>,
    }
    tests: questions::Tests => { tests: Vec<PolicyTest> }
    llm: llm::LlmPolicy => { llm: llm::LlmPolicy }
    telemetry: telemetry::TelemetryPolicy => { telemetry: telemetry::TelemetryPolicy }
    interface: interface::InterfacePolicy => { interface: interface::InterfacePolicy }
}
