//! Names that no rule names: who is asked about them, and when. A connection waits after its first bytes said the same name as
//! the program did, and before anything of it leaves.

use std::future::Future;
use std::pin::Pin;

use super::reason::Reason;

/// Why it is refused.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Reason>> + 'a>>;

/// Whoever can ask a person.
pub trait Ask {
    /// Whether a host may be reached on a port. The answer comes within a bounded time.
    fn ask<'a>(&'a self, host: &'a str, port: u16) -> Answer<'a>;
}
