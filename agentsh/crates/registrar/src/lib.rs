//! The registry of MCP interfaces: tables, queries and client. The HTTP server is `agentsh-server`.
//!
//! `body` (strict parsing) -> `reads` or `changes` (queries) -> `agentsh-database` (SQLite or PostgreSQL with the same
//! SQL).

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
