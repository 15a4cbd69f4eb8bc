//! Secrets that the session uses for the agent: credentials on requests, ssh keys, and logins to remote servers.

pub mod credentials;
pub mod logins;
pub mod ssh;
