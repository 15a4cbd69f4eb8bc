//! Connections out of a sandbox.
//!
//! Until network enforcement by name is wired into sessions, a sandbox reaches only the [`endpoint`]s that agentsh itself opens
//! for the agent: its model. Everything else ends at a network namespace without a route.

pub mod allow;
#[cfg(test)]
mod corpora_tests;
pub mod dial;
pub mod dns;
pub mod dns_server;
pub mod endpoint;
mod http_head;
pub mod http_host;
pub mod pool;
pub mod resolve;
pub mod tls_sni;
pub mod vet;

pub use endpoint::{Endpoint, Opened, plan, relay};
