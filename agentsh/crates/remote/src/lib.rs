//! Remote MCP servers, with the interface of a local server: lines in, lines out, an exit, a kill.
//!
//! [`sse`] splits a stream into events, `headers` makes the headers of a message, `exchange` posts a message and reads
//! its answer, `streams` reads and resumes streams, and `driver` runs one connection. Messages are forwarded as they
//! were written.

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
