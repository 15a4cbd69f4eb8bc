//! Traffic counters of one connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::busy_poller::{BusyPollGuard, BusyPoller};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the program.
    Up,
    /// From the server.
    Down,
}

/// Bytes that went through one connection.
#[derive(Debug)]
pub struct Traffic {
    sent: Cell<u64>,
    received: Cell<u64>,
    last: Cell<Instant>,
    /// Until the server has sent something.
    expected: RefCell<Option<BusyPollGuard>>,
    /// One direction has ended.
    half_closed: Cell<bool>,
    wakeful: Rc<BusyPoller>,
}

impl Traffic {
    #[must_use]
    pub fn new(wakeful: Rc<BusyPoller>, expected: BusyPollGuard) -> Self {
        Self {
            sent: Cell::new(0),
            received: Cell::new(0),
            last: Cell::new(Instant::now()),
            expected: RefCell::new(Some(expected)),
            half_closed: Cell::new(false),
            wakeful,
        }
    }

    /// Bytes until now.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counter(direction).get()
    }

    pub(super) fn count_bytes(&self, direction: Direction, bytes: usize) {
        let counter = self.counter(direction);
        counter.set(counter.get() + bytes as u64);
        self.last.set(Instant::now());
        if direction == Direction::Down {
            self.expected.take();
        }
    }

    fn counter(&self, direction: Direction) -> &Cell<u64> {
        match direction {
            Direction::Up => &self.sent,
            Direction::Down => &self.received,
        }
    }

    /// Returns when nothing moved for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let left = limit.saturating_sub(self.last.get().elapsed());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Returns when the end of this direction is to be passed on; false if the other one ended first, because then
    /// both are closed.
    pub(super) async fn ends(&self, direction: Direction) -> bool {
        let is_first = !self.half_closed.replace(true);
        match direction {
            // Programs often open the next connection after one ends.
            Direction::Up => self.wakeful.wait_until_idle().await,
            Direction::Down => tokio::task::yield_now().await,
        }
        is_first
    }

    /// Returns when no program waits for work that this connection's clean-up would delay.
    pub(super) async fn wait_until_quiet(&self) {
        self.expected.take();
        self.wakeful.wait_until_idle().await;
    }
}

#[cfg(test)]
impl Default for Traffic {
    fn default() -> Self {
        let wakeful = Rc::new(BusyPoller::new());
        let expected = wakeful.expect();
        Self::new(wakeful, expected)
    }
}
