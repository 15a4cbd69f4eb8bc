//! MCP on the wire: between the agent's end of one server connection and the sandboxed server.
//!
//! `framing` cuts lines, [`crate::json`] reads them, `jsonrpc` tells what they are, the phases in `from_client` and
//! `from_server` decide (`audit` lets a call wait for somebody outside), and `outbox` writes what was inspected. `proxy` owns the input and output and the life of the
//! server; `bridge` is what the agent starts in the server's place.

use agentsh_base::{busy_poll, json, types};
use agentsh_guard as guard;
use agentsh_policy as policy;
use agentsh_registry as registry;
use agentsh_store as store;

pub mod aggregate;
mod around;
pub mod audience;
pub mod audit;
pub mod bridge;
pub mod bridge_accept;
pub mod caller;
pub mod framing;
pub mod jsonrpc;
pub mod lazy_writer;
pub mod options;
pub mod proxy;
pub mod repeated;
pub mod salvage;
pub mod shared_reader;
pub mod turn_away;
pub mod upstream;
pub mod whole_lines;

mod advise;
mod classify;
mod client;
mod connection;
mod from_client;
mod from_server;
mod identify;
mod lifecycle;
mod listing;
mod outbox;
mod page;
pub mod pause;
mod pending;
mod record;
mod reject;
mod relist;
mod reply;
pub mod served;
mod server_session;
mod tools_list;
mod vouch;

pub use audit::{Approve, AskedPerson, Audit, AuditResult, Question, ToApprove};
pub use classify::{Classified, Classify, ServerAnswer};
pub use options::{DisplacedToolSink, HasReader, HasTrusted, KnownTools, NoteSink, Options, ResultNotice};
pub use page::Page;
pub use pause::{Pause, PauseReceiver, PauseSender};
pub use proxy::{ConnectionEnd, serve};
pub use record::{action, of_model_call, severity};
pub use relist::ReleaseCounts;
pub use reply::{ErrorReply, INTERNAL_ERROR, INVALID_PARAMS};
pub use upstream::{ExitInfo, Running, StartError, Upstream};
pub use vouch::{RegistryVerifier, VerificationOutcome, hashes};

#[cfg(test)]
mod tests;
