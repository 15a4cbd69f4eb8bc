//! Connections out of a sandbox.
//!
//! Until network enforcement by name is built, a sandbox reaches only the [`endpoint`]s that agentsh itself opens
//! for the agent: its model. Everything else ends at a network namespace without a route.

pub mod ebpf;
pub mod endpoint;

pub use endpoint::{Endpoint, Opened, plan, relay};
