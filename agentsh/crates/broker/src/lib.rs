//! What the user holds and the agent uses without seeing it: secrets that go on requests, keys of an ssh agent, and logins to
//! servers behind a URL.

pub mod credentials;
pub mod logins;
pub mod ssh;
