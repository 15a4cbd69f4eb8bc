//! The result that data came from.

use std::time::Duration;

use crate::types::ServerId;

/// Counts results; never used twice in one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u64);

/// The origin of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub server: ServerId,
    pub tool: String,
    /// The id of the call, as on the wire.
    pub call: String,
    /// Since 1970.
    pub time: Duration,
    /// Whether the server is a private source.
    pub private: bool,
}
