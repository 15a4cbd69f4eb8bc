//! Connections out of a sandbox.
//!
//! Every sandbox has a network namespace of its own without a route to the outside. What its program connects to
//! arrives at listeners that were born inside and are served here, by the session: `judge` makes every test in a
//! stated order: what policy says ([`allow`]), which name an address stands for ([`fake_ip_pool`]), whether the first bytes
//! name the same ([`protocol_detection`]), where the name really leads ([`resolve`]). [`relay`] dials and [`copy`] carries
//! the bytes; [`reason`] lists why something is refused.

use agentsh_base::{busy_poll, types};
use agentsh_egress::{dial, proxy, resolve, socket};
use agentsh_policy as policy;
use agentsh_store as store;

pub mod allow;
pub mod answers;
pub mod ask;
pub mod authority;
mod carry;
pub mod channel;
mod connection_limit;
pub mod copy;
pub mod credentials;
pub mod dns;
pub mod dns_server;
pub mod ebpf;
pub mod egress_context;
pub mod fake_ip_pool;
mod hello_retry_request;
mod http_head;
pub mod http_host;
pub mod inspect;
mod judge;
pub mod kernel;
mod permit;
pub mod protocol_detection;
pub mod reason;
pub mod refuse;
pub mod relay;
pub mod requests;
pub mod service;
mod shut;
pub mod tls_sni;
pub mod traffic;
mod wakeful;

pub use allow::Allowlist;
pub use connection_limit::ConnectionLimit;
pub use egress_context::{EgressContext, LazyResolver, OnRefusal, Origin, Refusal, Services};
pub use kernel::Kernel;
pub use reason::Reason;
pub use service::{Service, serve};
