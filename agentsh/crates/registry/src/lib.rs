//! The interface of an MCP server: its tools, prompts, resources and instructions as components, the `kiji1` hash
//! over them, and the difference between two interfaces.
//!
//! `kiji1` is the hash that kiji-safeguard computes, byte for byte, so that both can use one registry. It leaves out
//! titles, annotations and metadata; what is enforced on the wire is the hash of the whole object (`guard`).

mod canonical;
mod component;
mod difference;
mod listing;
mod submitted;

pub use agentsh_base::json;
pub use canonical::canonical;
pub use component::{Component, Interface, Kind};
pub use difference::difference;
pub use listing::{Captured, InterfaceError, MAX_COMPONENTS, read};
pub use submitted::{ComponentError, read_components};

/// Schemas may be nested this deep.
pub const MAX_DEPTH: usize = 512;

/// 64 lower-case hex digits over what components are, in whatever order they come.
#[must_use]
pub fn hash<'a>(canonical: impl IntoIterator<Item = &'a str>) -> String {
    let mut digests: Vec<String> = canonical.into_iter().map(|text| hex(text.as_bytes())).collect();
    digests.sort_unstable();
    hex(digests.concat().as_bytes())
}

/// SHA-256 as lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    agentsh_base::hex(&Sha256::digest(bytes))
}
