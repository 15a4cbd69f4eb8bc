//! Busy polling for the next connection, which also delays clean-up while a program waits: closing a connection takes
//! as long as opening one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::busy_poll;

/// Maximum gap between connections of a busy program.
const MAX_IDLE_GAP: Duration = Duration::from_micros(30);

/// Keeps the serving thread awake.
#[derive(Debug)]
pub struct BusyPoller {
    until: Cell<Instant>,
    awake: Cell<bool>,
    /// Connections without a response yet.
    expected: Cell<usize>,
    /// The number of answered connections.
    answered: Cell<u64>,
    useful: bool,
    /// Maximum time of busy polling and of delayed clean-up.
    moment: Duration,
}

/// A program waits for the response on its new connection.
#[derive(Debug)]
pub struct BusyPollGuard(Rc<BusyPoller>);

impl BusyPoller {
    pub fn new() -> Self {
        Self {
            until: Cell::new(Instant::now()),
            awake: Cell::new(false),
            expected: Cell::new(0),
            answered: Cell::new(0),
            useful: busy_poll::is_useful(),
            moment: busy_poll::POLL_DURATION,
        }
    }

    /// Starts polling, because an event is expected soon. Call inside a `LocalSet`.
    pub fn start_polling(self: &Rc<Self>) {
        self.until.set(Instant::now() + self.moment);
        if !self.useful || self.awake.replace(true) {
            return;
        }
        let own = Rc::clone(self);
        agentsh_base::task::spawn_local(async move {
            busy_poll::poll(|| own.until.get()).await;
            own.awake.set(false);
        });
    }

    /// Delays clean-up until dropped.
    pub fn expect(self: &Rc<Self>) -> BusyPollGuard {
        self.expected.set(self.expected.get() + 1);
        BusyPollGuard(Rc::clone(self))
    }

    /// Returns when no program waits and none has opened a connection recently, at the latest after `moment`.
    pub async fn wait_until_idle(&self) {
        let start = Instant::now();
        while self.awake.get() {
            let answered = self.answered.get();
            // A program with a new response may connect again, which is seen first.
            tokio::task::yield_now().await;
            let waited = start.elapsed();
            let is_quiet = self.expected.get() == 0 && self.answered.get() == answered;
            if waited > self.moment || (is_quiet && waited >= MAX_IDLE_GAP) {
                return;
            }
        }
    }
}

impl Drop for BusyPollGuard {
    fn drop(&mut self) {
        self.0.expected.set(self.0.expected.get().saturating_sub(1));
        self.0.answered.set(self.0.answered.get().wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looking_for(moment: Duration) -> Rc<BusyPoller> {
        Rc::new(BusyPoller { useful: true, moment, ..BusyPoller::new() })
    }

    #[tokio::test]
    async fn clean_up_waits_for_expected_answers() {
        let wakeful = looking_for(Duration::from_secs(60));
        let work = async {
            wakeful.start_polling();
            let expected = wakeful.expect();
            let late = Rc::new(Cell::new(false));
            let (own, done) = (Rc::clone(&wakeful), Rc::clone(&late));
            let waiting = tokio::task::spawn_local(async move {
                own.wait_until_idle().await;
                done.set(true);
            });
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            assert!(!late.get(), "an answer is expected");
            drop(expected);
            waiting.await
        };
        assert!(tokio::task::LocalSet::new().run_until(work).await.is_ok());
    }

    #[tokio::test]
    async fn busy_polling_ends_after_its_time() {
        let wakeful = looking_for(Duration::from_millis(1));
        let work = async {
            let _expected = wakeful.expect();
            wakeful.wait_until_idle().await;
            wakeful.start_polling();
            wakeful.wait_until_idle().await;
        };
        tokio::task::LocalSet::new().run_until(work).await;
    }
}
