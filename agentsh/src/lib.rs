//! agentsh runs AI agents and MCP servers that are not trusted.
//!
//! The rooms stand on floors, and an arrow never goes up:
//! `cli` > `session` > `agent mcp net sandbox pin` > `guard store` > `policy` > [`types`] and [`json`].
//! Rooms on one floor do not import each other. `docs/ARCHITECTURE.md` draws the picture.

pub mod agent;
pub mod auditor;
pub mod cli;
#[cfg(test)]
mod corpora_tests;
pub mod guard;
pub mod http;
pub mod json;
pub mod look;
pub mod mcp;
pub mod memory;
pub mod net;
pub mod pin;
pub mod policy;
pub mod sandbox;
pub mod session;
pub mod store;
pub mod telemetry;
pub mod types;
