//! The agent's own files of the user's home: as it gets them, what is kept of them after the run, and what a project brings for
//! agents.

pub mod brings;
pub mod files;
pub mod remember;
