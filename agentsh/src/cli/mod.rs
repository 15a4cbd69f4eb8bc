//! One file for each verb.

pub mod events;
pub mod mcp_query;
mod output;
pub mod pins;
pub mod report;
