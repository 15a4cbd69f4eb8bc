//! Policy files: parsed, merged and resolved.
//!
//! A file becomes a [`Policy`] in three steps: `yaml` keeps every value with its position, `read` checks each key into
//! `raw`, and `resolve` fills in the defaults. `narrow` limits a policy of the project to narrowing. [`load`] does all
//! of it and is the only function here that reads files.

use agentsh_base::{json, missing, types};

#[cfg(test)]
mod ask_tests;
pub mod builtin;
pub mod builtin_paths;
mod builtin_profiles;
pub mod bundle;
mod describe;
pub mod diagnostic;
mod documented_patterns;
pub mod domain;
#[cfg(test)]
mod domain_tests;
pub mod edit;
pub mod env;
pub mod explain;
#[cfg(test)]
mod file_tests;
pub mod flags;
mod foreign;
pub mod glob;
mod json_nodes;
pub mod keys;
#[cfg(test)]
mod layer_tests;
pub mod limits;
mod locks;
pub mod mcp;
#[cfg(test)]
mod mistake_tests;
mod model;
mod narrow;
#[cfg(test)]
mod narrow_tests;
mod network;
#[cfg(test)]
mod network_tests;
pub mod organisation;
pub mod path;
pub mod place;
pub mod profile;
#[cfg(test)]
mod profile_tests;
pub mod proxy_file;
#[cfg(test)]
mod proxy_file_tests;
mod read;
mod read_profile;
mod reader;
mod request;
mod resolve;
pub mod risk;
mod search;
#[cfg(test)]
mod search_tests;
mod section;
mod sections;
mod table;
pub mod tests;
mod texts;
pub mod toolchains;
mod units;
mod yaml;

pub use builtin::AGENTS;
pub use bundle::{Bundle, BundleError};
pub use describe::Line;
pub use diagnostic::{Diagnostic, PolicyError};
pub use documented_patterns::documented_patterns;
pub use explain::{
    Answer, allow_entry, allow_line, ask_connect, ask_file, beware, named_read_only, own_tool_entry,
};
pub use flags::Flags;
pub use locks::Locks;
pub use model::*;
pub use network::{HostRule, Precedence};
pub use organisation::{InForce, Organisation};
pub use path::PathContext;
pub use profile::ServerProfile;
pub use read::top_keys;
pub use request::MAX_FETCH_BODY;
pub use resolve::parse;
pub use search::{
    APPROVED_FILE, Loaded, Named, PROJECT_FILE, SYSTEM_FILE, Search, find, find_named, find_with, load,
};
pub use sections::advisories::{AdvisoryKind, AdvisoryPolicy, OnAdvisory, StatusFeed};
pub use sections::anomaly::{AnomalyPolicy, OnAnomaly};
pub use sections::approvals::{ApprovalPolicy, Approved};
pub use sections::classifier::{ClassifierFormat, ClassifierPolicy, OnUnavailable};
pub use sections::content::{ContentPolicy, GATEWAY, HiddenHtml, OnFinding};
pub use sections::credentials::{Credential, Source as CredentialSource, forge_of, is_github};
pub use sections::cross_server::{CrossServerPolicy, ToolKind};
pub use sections::detection::{CustomPattern, DetectionPolicy, OnRequest, Severity};
pub use sections::exec::ExecPolicy;
pub use sections::filesystem::FilesystemPolicy;
pub use sections::inspect::Inspected;
pub use sections::interface::{FLEET as FLEET_REGISTRY, InterfacePolicy, OnUnreachable, RegistryMode};
pub use sections::limits::Limits;
pub use sections::llm::{
    Budget, Credentials, LlmPolicy, OnLeak, OnSecret as OnModelSecret, Price, Sentences,
};
pub use sections::rules::{CallRule, Condition, ConditionPlace, RuleAction, Test};
pub use sections::secrets::{CREDENTIALS, CustomSecret, OnSecret, PERSONAL, SecretPolicy, kind_word};
pub use sections::ssh::{SshAccess, SshHost};
pub use sections::telemetry::{EventWebhook, OtlpProtocol, TelemetryPolicy};
pub use sections::{AgentPolicy, McpPolicy, Policy, ProcessPolicy, connect, tool};
pub use table::{Entries, One};

/// Why a section of a policy is not in force.
pub const NO_ENGINE: &str = "this version does not implement this section";
