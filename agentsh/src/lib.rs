//! agentsh runs AI agents and MCP servers that are not trusted.
//!
//! The rooms are on floors, and an arrow never goes up: `docs/ARCHITECTURE.md` draws them. The lower floors are
//! crates below `agentsh/crates/`, so that each manifest says what a room may touch.

pub mod cli;
#[cfg(test)]
mod corpora_tests;
pub mod session;
