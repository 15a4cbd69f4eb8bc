//! The registry of MCP interfaces: which interface belongs to a server's name, and decisions about changes. Tables,
//! queries and the client; the HTTP server is `agentsh-server`.
//!
//! `body` (strict reading) -> `reads` or `changes` (what is asked of the database) -> `agentsh-database` (SQLite or PostgreSQL,
//! with the same SQL). Operators with tokens, revocation, expiry, a hash-chained log, and limits on everything.

pub mod access;
pub mod answer;
pub mod body;
pub mod catalogue;
pub mod changes;
mod client;
mod entry;
pub mod names;
pub mod reads;
pub mod refusal;
pub mod schema;
pub mod shown;

use agentsh_database as db;

pub use access::{Operators, TokenError};
pub use catalogue::{Catalogue, PendingApproval, Registered};
pub use client::{Approval, Client, ClientError, Sign, Verdict};
pub use db::{Database, DbError};
pub use entry::{Entry, GENESIS};
