//! A fleet: the protocol between hosts and server, and the host's side of it.
//!
//! A host enrols once with a token, and forwards its journal from where the server says that it stands: `forward` (the journal
//! on disk is the queue) -> `batch` (what goes over the wire) -> `client`. The server is `agentsh-server`.

pub mod batch;
pub mod client;
pub mod forward;
pub mod heads;
pub mod keys;
pub mod place;
pub mod wire;

pub use client::{Client, ClientError, Signer};
