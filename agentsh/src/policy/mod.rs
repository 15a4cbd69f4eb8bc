//! What is allowed.
//!
//! A file becomes a [`Policy`] in three steps: `yaml` keeps every value with its place, `read` checks it key by
//! key into `raw`, `resolve` puts the defaults in. `narrow` lets a policy inside the project take away and never
//! give. [`load`] does all of it, and is the only function here that reads a file.

#[cfg(test)]
mod ask_tests;
pub mod builtin;
pub mod builtin_paths;
mod builtin_profiles;
mod describe;
pub mod diagnostic;
pub mod domain;
#[cfg(test)]
mod domain_tests;
pub mod env;
pub mod explain;
#[cfg(test)]
mod file_tests;
pub mod glob;
mod json_nodes;
pub mod limits;
pub mod mcp;
#[cfg(test)]
mod mistake_tests;
mod model;
mod narrow;
mod narrow_mcp;
#[cfg(test)]
mod narrow_tests;
mod network;
#[cfg(test)]
mod network_tests;
pub mod path;
pub mod place;
pub mod profile;
#[cfg(test)]
mod profile_tests;
pub mod proxy_file;
#[cfg(test)]
mod proxy_file_tests;
mod raw;
mod read;
mod read_exfiltration;
mod read_later;
mod read_mcp;
mod read_network;
mod read_profile;
mod read_questions;
mod reader;
mod request;
mod resolve;
mod search;
#[cfg(test)]
mod search_tests;
pub mod tests;
mod units;
mod yaml;

pub use builtin::AGENTS;
pub use describe::Line;
pub use diagnostic::{Diagnostic, PolicyError};
pub use explain::{Answer, allow_entry, allow_line, ask_connect};
pub use model::*;
pub use path::PathContext;
pub use profile::ServerProfile;
pub use read_questions::{connect, tool};
pub use resolve::parse;
pub use search::{Loaded, Named, PROJECT_FILE, Search, find, find_named, load};

/// Why a section of a policy is not in force.
pub const NO_ENGINE: &str = "this version has no engine for this section yet";
