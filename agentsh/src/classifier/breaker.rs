//! Leaves an endpoint alone that does not answer: who waits for it waits in vain.

use std::time::{Duration, Instant};

/// Failures in a row until it is left alone.
const FAILURES: u32 = 3;
/// How long; after that one question tries again, and one more failure closes it again.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// For how long it is still left alone.
    pub fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.until?.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    pub fn answered(&mut self) {
        *self = Self::default();
    }

    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES {
            self.until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_left_alone_after_three_failures_and_tried_again_later() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        breaker.failed(start);
        breaker.failed(start);
        assert_eq!(breaker.closed_for(start), None);
        breaker.failed(start);
        assert_eq!(breaker.closed_for(start), Some(PAUSE));
        let later = start + PAUSE;
        assert_eq!(breaker.closed_for(later), None);
        breaker.failed(later);
        assert_eq!(breaker.closed_for(later), Some(PAUSE));
        breaker.answered();
        assert_eq!(breaker.closed_for(later), None);
    }
}
