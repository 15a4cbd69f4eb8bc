//! All connections that the session makes in its own name.
//!
//! [`target`] reads a URL and says whether it may be asked, [`resolve`] where its name leads, [`special_use`] and
//! [`special_names`] what is not public; [`dial`] connects to a vetted address, [`tls`] says which server is believed and
//! [`authorities`] whom the user trusts besides, [`proxy`] goes through the user's own proxy where the caller asks for it, and
//! [`client`] speaks HTTP, [`encoding`] undoes what a body is compressed with. Nothing here reads policy: the rules are parameters.

pub mod authorities;
pub mod base64;
pub mod client;
pub mod dial;
pub mod encoding;
mod error;
pub mod post;
pub mod proxy;
pub mod resolve;
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
