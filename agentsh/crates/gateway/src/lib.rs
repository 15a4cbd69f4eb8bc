//! MCP servers over HTTP, for clients on other machines.
//!
//! [`config`] is what `gateway.yaml` says, [`keys`] who may come in, `door` refuses what must not reach a server, `post` and
//! `listen` speak Streamable HTTP, `client` is one client's session (`names`: ids where several clients share a connection), `stream` its events, kept until they are read. Behind a
//! session stands a [`Connector`]: lines in, lines out, where every message is judged. Nothing here looks into arguments or
//! results.

use agentsh_base::json;
use agentsh_egress as egress;
use agentsh_mcp as mcp;

mod client;
mod codes;
pub mod config;
mod door;
pub mod era;
mod files;
pub mod keys;
mod listen;
pub mod message;
mod metrics;
mod names;
mod pages;
mod post;
mod reply;
mod server;
mod sessions;
mod shared;
pub mod signers;
mod stream;
mod tls;
pub mod token;

pub use client::ServerWire;
pub use codes::Code;
pub use door::Refusal;
pub use hyper::header::{HeaderMap, HeaderName};
pub use reply::Served;
pub use server::{Connector, Gateway, GatewayError, ResponseContext};
