//! Exit codes of agentsh. `run` and `mcp run` return the program's own.

/// Success, and the answer is yes.
pub const OK: u8 = 0;
/// The answer is no: a policy test failed, the chain is broken, something was denied, there is nothing to trust.
pub const NO: u8 = 1;
/// The question cannot be asked like this.
pub const USAGE: u8 = 2;
/// agentsh itself failed, or refused to start because a layer could not be had.
pub const FAILED: u8 = 125;
