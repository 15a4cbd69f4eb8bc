//! MCP servers behind a URL, with the interface of a local server: lines in, lines out, an exit, a kill.
//!
//! [`sse`] cuts a stream into events, `headers` says what stands beside a message, `exchange` posts one message and takes its
//! answer, `streams` reads events and takes up a stream that broke off, `driver` is the life of one connection. A message is
//! never read into types: what arrives is written on as it was spelled.

use agentsh_base::{escape, json};
use agentsh_egress as egress;
use agentsh_mcp as mcp;

mod cookies;
mod credentials;
mod driver;
mod exchange;
mod failure;
mod headers;
mod message;
mod renew;
pub mod sse;
mod streams;

pub use credentials::{CredentialFuture, Credentials};
pub use driver::{FailedRequest, Settings, connect};
