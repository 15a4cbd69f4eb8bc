//! The agent's own files of the user's home: as the agent sees them, what is kept after the run, and which agent
//! settings a project contains.

pub mod brings;
pub mod files;
pub mod remember;
