//! MCP between the client's end of a server connection and the sandboxed server.
//!
//! `framing` splits lines, [`crate::json`] and `jsonrpc` parse them, `from_client` and `from_server` decide, `outbox`
//! writes. `proxy` owns the streams and the server's life; `bridge` is what the agent starts.

use agentsh_base::{busy_poll, json, types};
use agentsh_guard as guard;
use agentsh_policy as policy;
use agentsh_registry as registry;
use agentsh_store as store;

pub mod aggregate;
pub mod audit;
pub mod bridge;
pub mod bridge_accept;
pub mod caller;
pub mod client_capabilities;
mod extra_members;
pub mod framing;
pub mod jsonrpc;
pub mod lazy_writer;
pub mod line_writer;
pub mod mcp_headers;
pub mod options;
pub mod proxy;
pub mod recover_id;
pub mod reject_connection;
pub mod shared_reader;
pub mod upstream;

mod advise;
mod approval_page;
mod classify;
mod client;
mod connection;
mod from_client;
mod from_server;
mod identify;
mod lifecycle;
mod listing;
pub mod local_server;
mod outbox;
pub mod pause;
mod pending;
mod record;
mod registry_check;
mod reject;
mod relist;
mod reply;
mod server_session;
mod tools_list;

pub use approval_page::Page;
pub use audit::{ApprovalSubject, Approve, AskedPerson, Audit, AuditResult, Question};
pub use classify::{Classified, Classify, ServerAnswer};
pub use options::{DisplacedToolSink, JudgesOffers, KnownTools, NoteSink, Options, Redaction, ResultNotice};
pub use pause::{Pause, PauseReceiver, PauseSender};
pub use proxy::{ConnectionEnd, serve};
pub use record::{action, of_model_call, severity};
pub use registry_check::{RegistryVerifier, VerificationOutcome, hashes};
pub use relist::ReleaseCounts;
pub use reply::{ErrorReply, INTERNAL_ERROR, INVALID_PARAMS};
pub use upstream::{ExitInfo, Running, StartError, Upstream};

#[cfg(test)]
mod tests;
