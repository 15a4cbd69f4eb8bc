//! Pauses requests to an endpoint that does not answer.

use std::time::{Duration, Instant};

use super::endpoint::NoScore;

/// Failures in a row after which it is not asked.
const MAX_FAILURES: u32 = 3;
/// How long it is not asked. After that one request tries again, and one more failure stops it again.
const OPEN_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// The time from `now` until it is asked again.
    pub fn closed_for(&self, now: Instant) -> Option<Duration> {
        self.until?.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// An answer that is not a score is an answer: a text can bring it about, and closes nothing for others.
    pub fn record_answer(&mut self, said: &Result<f64, NoScore>, now: Instant) {
        match said {
            Err(NoScore::Away(_)) => self.record_failure(now),
            Ok(_) | Err(NoScore::Odd(_)) => *self = Self::default(),
        }
    }

    pub fn record_failure(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= MAX_FAILURES {
            self.until = Some(now + OPEN_TIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_paused_after_three_failures_and_retried_later() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        breaker.record_failure(start);
        breaker.record_failure(start);
        assert_eq!(breaker.closed_for(start), None);
        breaker.record_failure(start);
        assert_eq!(breaker.closed_for(start), Some(OPEN_TIME));
        let later = start + OPEN_TIME;
        assert_eq!(breaker.closed_for(later), None);
        breaker.record_failure(later);
        assert_eq!(breaker.closed_for(later), Some(OPEN_TIME));
        breaker.record_answer(&Ok(0.5), later);
        assert_eq!(breaker.closed_for(later), None);
    }

    #[test]
    fn malformed_answers_do_not_pause_the_endpoint_and_silence_does() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..MAX_FAILURES * 2 {
            breaker.record_answer(&Err(NoScore::Odd("its answer is not JSON".to_owned())), start);
        }
        assert_eq!(breaker.closed_for(start), None);
        for _ in 0..MAX_FAILURES {
            breaker.record_answer(&Err(NoScore::Away("no answer".to_owned())), start);
        }
        assert_eq!(breaker.closed_for(start), Some(OPEN_TIME));
    }
}
