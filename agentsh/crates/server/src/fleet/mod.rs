//! The records of many hosts: `routes` (HTTP) -> `access` (who asks) -> `arrival` (a batch, in one transaction) or `reads`
//! (questions) -> `agentsh-database`. The server follows the chain of every session on arrival and keeps its end: what a host
//! changes later does not fit any more.

mod access;
mod arrival;
mod asks;
mod bundles;
mod calls;
mod enrolment;
mod gate;
mod heads;
mod metrics;
mod places;
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
