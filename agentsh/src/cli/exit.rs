//! Exit codes. `run` and `mcp run` give back the program's own; these are agentsh's.

/// The answer is no: a policy test failed, the chain is broken, something was denied.
pub const NO: u8 = 1;
/// agentsh itself failed, or refused to start because a layer could not be had.
pub const FAILED: u8 = 125;
