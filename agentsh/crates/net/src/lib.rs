//! Connections out of a sandbox, whose network namespace has no route.
//!
//! Connections arrive at listeners inside, which the session serves. `judge` tests them: rules ([`allow`]), the name
//! behind an address ([`fake_ip_pool`]), the first bytes ([`protocol_detection`]), the real address ([`resolve`]).
//! [`relay`] dials, [`copy`] copies, [`reason`] lists all reasons.

use agentsh_base::{busy_poll, types};
use agentsh_egress::{dial, proxy, resolve, socket};
use agentsh_policy as policy;
use agentsh_store as store;

pub mod allow;
pub mod ask;
pub mod authority;
mod busy_poller;
mod carry;
pub mod channel;
mod closed_hosts;
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
pub mod response_secrets;
pub mod service;
pub mod tls_sni;
pub mod traffic;

pub use allow::Allowlist;
pub use connection_limit::ConnectionLimit;
pub use egress_context::{EgressContext, LazyResolver, OnRefusal, Origin, Refusal, Services};
pub use kernel::Kernel;
pub use reason::Reason;
pub use service::{Service, serve};
