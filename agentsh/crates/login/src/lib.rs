//! Logins to servers behind a URL: OAuth 2.1, as the Model Context Protocol specifies.
//!
//! [`challenge`] reads what a server says when it wants a login, [`metadata`] what it and its authorization server say about
//! themselves; both are pure. [`discovery`] asks for that, [`registration`] makes a client known, [`flow`] sends the user to the
//! authorization server and trades the code that [`callback`] hears for tokens, and [`grant`] is what comes of it: kept by
//! somebody else, renewed and revoked here. [`provider`] is the same for pages of our own: an identity in place of access. Every request goes through `egress`, with the client that the caller gives for its
//! URL.

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
