//! The records of many hosts on one server.
//!
//! A host enrols once with a token, and forwards its journal from where the server says that it stands. The server follows
//! the chain of every session on arrival and keeps its end: what a host changes later does not fit any more.
//!
//! Server: `routes` (HTTP) -> `access` (who asks) -> `arrival` (a batch, in one transaction) or `reads` (questions) ->
//! `agentsh-database`. Host: `forward` (the journal on disk is the queue) -> `batch` (what goes over the wire) -> `client`.

mod access;
mod arrival;
mod asks;
pub mod batch;
mod bundles;
mod calls;
pub mod client;
mod enrolment;
pub mod forward;
mod gate;
mod heads;
pub mod keys;
mod metrics;
pub mod place;
mod places;
mod reads;
mod refusal;
mod routes;
mod schema;
mod serve;
mod sign_ins;
mod tally;
mod tls;
pub mod wire;

pub use access::Role;
pub use client::{Client, ClientError, Signer};
pub use enrolment::{NewToken, make_token};
pub use gate::{Gate, Known};
pub use serve::{Options, ServeError, Server, Tell};
pub use sign_ins::SignIn;
