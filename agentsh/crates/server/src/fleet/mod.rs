//! The fleet server: `routes` (HTTP) -> `access` (authentication) -> `arrival` (a batch, in one transaction) or
//! `reads` (queries) -> `agentsh-database`. The server verifies the chain of every session on arrival and stores its
//! last hash, so that a later change on the host is found.

mod access;
mod arrival;
mod asks;
mod bundles;
mod calls;
mod enrolment;
mod event_ids;
mod gate;
mod heads;
mod metrics;
mod reads;
mod refusal;
mod routes;
mod schema;
mod serve;
mod sign_ins;
mod tally;
mod tls;

pub(crate) use access::Role;
pub(crate) use enrolment::make_token;
pub(crate) use gate::{Gate, Identity};
pub(crate) use serve::{Options, Server};
pub(crate) use sign_ins::SignIn;
