//! The registry over HTTP: `routes` -> `agentsh-registrar` (strict parsing, queries) -> `agentsh-database`.
//!
//! Paths, bodies and status codes are those of kiji-safeguard 0.3.0, so that its client works unchanged; where they
//! differ, `docs/registry.md` says why.

mod pages;
mod routes;
mod serve;
mod writer;

pub(crate) use routes::{Caller, CallerRight};
pub(crate) use serve::{Mounted, Options, Server};
