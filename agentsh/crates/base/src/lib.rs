//! Plain values that every part of agentsh shares.

pub mod busy_poll;
pub mod json;
pub mod memory;
pub mod missing;
pub mod types;
