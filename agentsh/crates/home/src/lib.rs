//! The agent's own files in the user's home: the copy that the agent sees, what is kept after the run, and the agent
//! settings that a project contains.

pub mod changed_settings;
pub mod files;
pub mod logins;
pub mod memory;
pub mod remember;
