//! agentsh runs AI agents and MCP servers that are not trusted.
//!
//! `cli` uses `session`, and `session` the crates below `agentsh/crates/`. `docs/ARCHITECTURE.md` shows their order,
//! which the manifests enforce.

pub mod cli;
#[cfg(test)]
mod corpora_tests;
pub mod session;
