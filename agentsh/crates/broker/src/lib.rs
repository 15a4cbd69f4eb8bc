//! What the agent uses without seeing it: secrets on requests, keys of an ssh agent, and logins to servers behind a
//! URL.

pub mod credentials;
pub mod logins;
pub mod ssh;
