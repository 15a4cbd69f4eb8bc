//! The sandboxed server as the proxy sees it: something that can be started again.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// Starts the server of one connection, and starts it again after it ended.
pub trait Upstream {
    type Stdin: AsyncWrite + Unpin;
    type Stdout: AsyncRead + Unpin;

    /// Starts the server in its sandbox. Dropping the future must stop whatever it started.
    ///
    /// # Errors
    /// What the user has to know; see [`StartError`].
    fn start(&mut self) -> impl Future<Output = Result<Running<Self::Stdin, Self::Stdout>, StartError>>;
}

/// A server that was started.
pub struct Running<I, O> {
    pub stdin: I,
    pub stdout: O,
    /// Resolves when the server's processes are gone.
    pub exit: Pin<Box<dyn Future<Output = ExitInfo>>>,
    /// Ends the server at once. May be called after it ended.
    pub kill: Box<dyn FnMut()>,
    /// Set when its input was closed because nobody will ask it anything: however it ends then, it does as it was told.
    pub told: Rc<Cell<bool>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitInfo {
    /// 128+n for signal n.
    pub code: u8,
    /// `exited`, `killed`, `memory-limit`, or how a server elsewhere went.
    pub cause: String,
}

/// The server did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// Shown to the agent and the user: what, by which rule, what to do.
    pub message: String,
    /// Trying again cannot help (a pin that does not match, a program that does not exist).
    pub permanent: bool,
    /// The reason stands in the record already, as an event of its own.
    pub recorded: bool,
    /// As a shell would tell of it: 127 for a program that is not there, 126 for one that cannot be executed.
    pub status: u8,
    /// Stable code, for whoever waits for the server.
    pub reason: &'static str,
}

impl StartError {
    /// The status of everything that is not a fault of the program.
    pub const FAILED: u8 = 125;
    /// The reason of everything that has none of its own.
    pub const NOT_STARTED: &str = "server-not-started";

    /// Trying again cannot help, and nothing of it is on record.
    #[must_use]
    pub fn permanent(message: String) -> Self {
        let (status, reason) = (Self::FAILED, Self::NOT_STARTED);
        Self { message, permanent: true, recorded: false, status, reason }
    }
}

/// How long to wait before a server that ended is started again.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub const FIRST_BACKOFF: Duration = Duration::from_millis(250);
    pub const MAX_WAIT: Duration = Duration::from_secs(30);
    /// A server that ran this long counts as healthy.
    pub const MIN_HEALTHY_UPTIME: Duration = Duration::from_secs(60);

    /// The wait after a server that ran from `started` ended at `ended`.
    pub fn after(&mut self, started: Instant, ended: Instant) -> Duration {
        if ended.saturating_duration_since(started) >= Self::MIN_HEALTHY_UPTIME {
            self.next = Self::FIRST_BACKOFF;
        }
        let wait = self.next;
        self.next = (wait * 2).min(Self::MAX_WAIT);
        wait
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: Self::FIRST_BACKOFF }
    }
}

impl<I, O> fmt::Debug for Running<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_and_a_healthy_run_starts_over() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        let short = now + Duration::from_secs(59);
        let waits: Vec<u128> = (0..9).map(|_| backoff.after(now, short).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(backoff.after(now, now + Backoff::MIN_HEALTHY_UPTIME), Backoff::FIRST_BACKOFF);
        assert_eq!(backoff.after(now, short), Backoff::FIRST_BACKOFF * 2);
    }
}
