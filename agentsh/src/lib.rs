//! agentsh runs AI agents and MCP servers that are not trusted.
//!
//! The rooms stand on floors, and an arrow never goes up: `docs/ARCHITECTURE.md` draws them. The lower floors are
//! crates below `agentsh/crates/`, so that each manifest says what a room may touch.

pub mod cli;
#[cfg(test)]
mod corpora_tests;
pub mod session;

pub use agentsh_advisories as advisories;
pub use agentsh_agents as agent;
pub use agentsh_auditor as auditor;
pub use agentsh_auditor::classifier;
pub use agentsh_base as base;
pub use agentsh_base::{busy_poll, json, memory, missing, remedy, types};
pub use agentsh_dlp as dlp;
pub use agentsh_egress as egress;
pub use agentsh_fleet as fleet;
pub use agentsh_gateway as gateway;
pub use agentsh_guard as guard;
pub use agentsh_llm as llm;
pub use agentsh_login as login;
pub use agentsh_mcp as mcp;
pub use agentsh_net as net;
pub use agentsh_pin as pin;
pub use agentsh_policy as policy;
pub use agentsh_receipt as receipt;
pub use agentsh_registrar as registrar;
pub use agentsh_registry as registry;
pub use agentsh_remote as remote;
pub use agentsh_sandbox as sandbox;
pub use agentsh_scan as scan;
pub use agentsh_secrets as secrets;
pub use agentsh_store as store;
pub use agentsh_telemetry as telemetry;
pub use agentsh_web as web;
