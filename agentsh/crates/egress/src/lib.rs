//! Connections that agentsh makes itself. Policy rules are parameters.
//!
//! [`target`] parses a URL, [`resolve`] resolves its host, [`special_use`] and [`special_names`] list what is not
//! public, [`dial`] connects to a checked address, [`tls`] verifies the server with [`authorities`], [`proxy`] uses the
//! user's proxy, [`client`] speaks HTTP, and [`encoding`] decompresses bodies.

pub mod authorities;
pub mod client;
pub mod dial;
pub mod encoding;
mod error;
pub mod post;
pub mod proxy;
pub mod resolve;
pub mod secret_search;
pub mod socket;
pub mod special_names;
pub mod special_use;
pub mod target;
pub mod tls;

mod connect;

pub use client::Client;
pub use error::HttpError;
pub use post::{Answer, Post};

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
