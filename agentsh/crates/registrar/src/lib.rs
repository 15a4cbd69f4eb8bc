//! The registry of MCP interfaces: an HTTP server that remembers which interface a server's name stood for, and what
//! people decided about changed ones.
//!
//! Paths, bodies and status codes are those of kiji-safeguard 0.3.0, so that its client works unchanged; where they
//! differ, `docs/registry.md` says why. On top of that: operators with tokens, revocation, expiry, a hash-chained log,
//! and limits on everything.
//!
//! `routes` (HTTP) -> `body` (strict reading) -> `reads` or `changes` (what is asked of the database) -> `agentsh-database`
//! (SQLite or PostgreSQL, with the same SQL).

mod access;
mod answer;
mod body;
mod catalogue;
mod changes;
mod client;
mod entry;
mod names;
mod pages;
mod reads;
mod refusal;
mod routes;
mod schema;
mod serve;
pub mod shown;
mod writer;

use agentsh_database as db;

pub use access::{Operators, TokenError};
pub use catalogue::{Catalogue, PendingApproval, Registered};
pub use client::{Approval, Client, ClientError, Sign, Verdict};
pub use db::{Database, DbError};
pub use entry::{Entry, GENESIS};
pub use routes::{Caller, May};
pub use serve::{Mounted, Options, ServeError, Server};
