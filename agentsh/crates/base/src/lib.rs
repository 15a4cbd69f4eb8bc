//! Plain values that every part of agentsh shares.

pub mod escape;
pub mod json;
pub mod look;
pub mod memory;
pub mod missing;
pub mod random;
pub mod site;
pub mod types;
