//! OAuth 2.1 logins to remote MCP servers, as the Model Context Protocol specifies.
//!
//! [`challenge`] and [`metadata`] parse what servers announce, [`discovery`] fetches it, [`registration`] registers the
//! client, [`flow`] runs the authorization code flow, for which [`callback`] receives the code, and [`grant`] renews
//! and revokes tokens. [`provider`] is the OpenID Connect sign-in of agentsh's own pages. Requests use the caller's
//! `egress` client for their URL.

use agentsh_base::{escape, random};
use agentsh_egress as egress;

mod ask;
pub mod callback;
pub mod challenge;
pub mod discovery;
mod error;
pub mod flow;
pub mod grant;
pub mod metadata;
mod pkce;
pub mod provider;
pub mod registration;

pub use ask::Clients;
pub use error::LoginError;
pub use url::Url;
