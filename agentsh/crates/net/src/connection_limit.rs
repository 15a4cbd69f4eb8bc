//! The number of connections of a session: a semaphore without waiting.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;

/// The connection limit of a session, and the next connection's number.
#[derive(Debug)]
pub struct ConnectionLimit {
    pub most: usize,
    live: Cell<usize>,
    next: Cell<u64>,
    is_closing: Cell<bool>,
    closing: Notify,
}

/// More connections are refused, even with enough descriptors.
const MAX_CONNECTIONS: usize = 10_000;
/// Descriptors for everything else.
const KEPT_DESCRIPTORS: u64 = 256;
/// Enough for all of them.
const DESCRIPTORS: u64 = 2 * MAX_CONNECTIONS as u64 + KEPT_DESCRIPTORS;

impl ConnectionLimit {
    /// As many as the descriptor limit allows, after raising it.
    #[must_use]
    pub fn new() -> Self {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let raise = |soft, hard| setrlimit(Resource::RLIMIT_NOFILE, soft, hard).is_ok();
        let descriptors = match getrlimit(Resource::RLIMIT_NOFILE) {
            // Root may raise the hard limit.
            Ok((_, hard)) if hard < DESCRIPTORS && raise(DESCRIPTORS, DESCRIPTORS) => DESCRIPTORS,
            Ok((soft, hard)) if soft < hard && raise(hard, hard) => hard,
            Ok((soft, _)) => soft,
            Err(_) => 1024,
        };
        // Each has two ends.
        let most = usize::try_from(descriptors.saturating_sub(KEPT_DESCRIPTORS) / 2).unwrap_or(usize::MAX);
        Self { most: most.clamp(16, MAX_CONNECTIONS), ..Self::empty() }
    }

    fn empty() -> Self {
        let (live, next, is_closing) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Self { most: 0, live, next, is_closing, closing: Notify::new() }
    }

    /// Ends all connections, and returns when they are recorded.
    pub async fn close(&self, limit: Duration) {
        self.is_closing.set(true);
        self.closing.notify_waiters();
        let empty = async {
            while self.live.get() > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let _ = tokio::time::timeout(limit, empty).await;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.get()
    }

    /// Returns when the session closes.
    pub(super) async fn closes(&self) {
        // Check and wait are on one thread, so nothing comes between.
        if !self.is_closing.get() {
            self.closing.notified().await;
        }
    }

    /// A slot for a sandbox with `own` connections: at most half of those that others leave free, so that no sandbox
    /// takes all.
    pub(super) fn take(self: &Rc<Self>, own: &Rc<Cell<usize>>) -> Option<ConnectionSlot> {
        let others = self.live.get().saturating_sub(own.get());
        if own.get() >= self.most.saturating_sub(others).div_ceil(2) {
            return None;
        }
        own.set(own.get() + 1);
        self.live.set(self.live.get() + 1);
        self.next.set(self.next.get() + 1);
        Some(ConnectionSlot { limit: Rc::clone(self), own: Rc::clone(own), number: self.next.get() })
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new()
    }
}

/// One connection of a [`ConnectionLimit`].
pub(super) struct ConnectionSlot {
    limit: Rc<ConnectionLimit>,
    own: Rc<Cell<usize>>,
    pub number: u64,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limit.live.set(self.limit.live.get().saturating_sub(1));
        self.own.set(self.own.get().saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(limit: &Rc<ConnectionLimit>, own: &Rc<Cell<usize>>) -> Vec<ConnectionSlot> {
        std::iter::from_fn(|| limit.take(own)).collect()
    }

    /// However many sandboxes use connections, the next one still gets some.
    #[test]
    fn no_sandbox_gets_more_than_half_of_what_is_left() {
        let limit = Rc::new(ConnectionLimit { most: 100, ..ConnectionLimit::empty() });
        let sandboxes: [Rc<Cell<usize>>; 5] = std::array::from_fn(|_| Rc::default());
        let taken = sandboxes.each_ref().map(|own| all_of(&limit, own));
        assert_eq!(taken.each_ref().map(Vec::len), [50, 25, 13, 6, 3]);
        // What one sandbox releases is free for all others, again up to half of it.
        let [first, ..] = taken;
        drop(first);
        assert_eq!((sandboxes[0].get(), all_of(&limit, &sandboxes[4]).len()), (0, 25));
    }
}
