//! Questions about hosts without a rule. A connection waits after its first bytes have confirmed the host, before any
//! byte leaves.

use std::future::Future;
use std::pin::Pin;

use super::reason::Reason;

/// The rule and reason of a refusal.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Reason>> + 'a>>;

/// Asks a person.
pub trait Ask {
    /// Whether a host and port may be reached. Answers within a bounded time.
    fn ask<'a>(&'a self, host: &'a str, port: u16) -> Answer<'a>;

    /// Whether the program contacts a host by itself, for telemetry or updates: then nobody is asked.
    fn is_background(&self, _host: &str) -> bool {
        false
    }
}
