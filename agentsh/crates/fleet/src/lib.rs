//! Client of a fleet server: the protocol and the host's side of it. The server is `agentsh-server`.
//!
//! A host enrols once with a token and forwards its journal from the server's position: `forward` (the journal is the
//! queue) -> `batch` (wire format) -> `client`.

pub mod batch;
pub mod client;
pub mod forward;
pub mod heads;
pub mod key_files;
pub mod keys;
pub mod wire;

pub use client::{Client, ClientError, Signer};
