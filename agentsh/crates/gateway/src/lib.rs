//! MCP servers over HTTP, for clients on other machines.
//!
//! [`config`] reads `gateway.yaml`, [`keys`] has the client keys, `admission` checks requests, `post` and `event_streams` speak
//! Streamable HTTP, `client` is one client session (`id_mapping` maps ids on shared connections), `stream` keeps its events
//! until they are read. A [`Connector`] connects a session to a proxy, which judges every message. The gateway does not
//! look into arguments or results.

use agentsh_base::json;
use agentsh_egress as egress;
use agentsh_mcp as mcp;

mod admission;
mod client;
mod codes;
pub mod config;
mod cors;
mod event_streams;
mod files;
mod id_mapping;
pub mod key_sets;
pub mod keys;
pub mod message;
mod metrics;
mod post;
mod reply;
mod server;
mod sessions;
mod shared_session;
mod stream;
mod tls;
pub mod token;
pub mod translation;

pub use admission::Refusal;
pub use client::ServerWire;
pub use codes::Code;
pub use hyper::header::{HeaderMap, HeaderName};
pub use reply::Served;
pub use server::{Connector, Gateway, GatewayError, ResponseContext};
