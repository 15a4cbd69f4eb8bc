//! A server that can be restarted, as the proxy sees it.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// Starts and restarts the server of one connection.
pub trait Upstream {
    type Stdin: AsyncWrite + Unpin;
    type Stdout: AsyncRead + Unpin;

    /// Starts the server in its sandbox. Dropping the future must stop what it started.
    ///
    /// # Errors
    /// For the user; see [`StartError`].
    fn start(&mut self) -> impl Future<Output = Result<Running<Self::Stdin, Self::Stdout>, StartError>>;
}

/// A server that was started.
pub struct Running<I, O> {
    pub stdin: I,
    pub stdout: O,
    /// Resolves when the server's processes are gone.
    pub exit: Pin<Box<dyn Future<Output = ExitInfo>>>,
    /// Ends the server at once. Also after its end.
    pub kill: Box<dyn FnMut()>,
    /// Set if its input was closed because no request will follow: then any end is normal.
    pub told: Rc<Cell<bool>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitInfo {
    /// 128+n for signal n.
    pub code: u8,
    /// `exited`, `killed`, `memory-limit`, or how a remote server ended.
    pub cause: String,
}

/// The server did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// For agent and user: what, by which rule, what to do.
    pub message: String,
    /// A retry cannot help (a pin mismatch, a missing program).
    pub permanent: bool,
    /// An own event has the reason.
    pub recorded: bool,
    /// The status of a shell: 127 for a missing program, 126 for one that cannot be executed.
    pub status: u8,
    /// Stable code, for clients that wait for the server.
    pub reason: &'static str,
}

impl StartError {
    /// The status of other failures.
    pub const FAILED: u8 = 125;
    /// The reason of other failures.
    pub const NOT_STARTED: &str = "server-not-started";

    /// A failure that a retry cannot help, without an event.
    #[must_use]
    pub fn permanent(message: String) -> Self {
        let (status, reason) = (Self::FAILED, Self::NOT_STARTED);
        Self { message, permanent: true, recorded: false, status, reason }
    }
}

/// The delay before a restart.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    pub const FIRST_BACKOFF: Duration = Duration::from_millis(250);
    pub const MAX_WAIT: Duration = Duration::from_secs(30);
    /// After this time a server counts as healthy.
    pub const MIN_HEALTHY_UPTIME: Duration = Duration::from_secs(60);

    /// The delay after a server that ran from `started` to `ended`.
    pub fn delay_after(&mut self, started: Instant, ended: Instant) -> Duration {
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
        let waits: Vec<u128> = (0..9).map(|_| backoff.delay_after(now, short).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert_eq!(backoff.delay_after(now, now + Backoff::MIN_HEALTHY_UPTIME), Backoff::FIRST_BACKOFF);
        assert_eq!(backoff.delay_after(now, short), Backoff::FIRST_BACKOFF * 2);
    }
}
