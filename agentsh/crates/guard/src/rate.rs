//! A token bucket in integers, so that rounding neither adds nor loses a call.

use std::time::Duration;

use crate::policy::Rate;

/// The cost of one call, in the bucket's unit: calls per minute times nanoseconds.
const CALL: u128 = 60_000_000_000;

/// Starts full, holds at most the burst, and fills at the rate.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Rate,
    level: u128,
    /// When `level` was true.
    at: Duration,
}

impl Bucket {
    /// `now` is time since any fixed moment, the same one for all calls.
    #[must_use]
    pub fn new(rate: Rate, now: Duration) -> Self {
        Self { rate, level: capacity(rate), at: now }
    }

    /// Takes one call.
    ///
    /// # Errors
    /// The time until a call would be allowed (None: never). A refused call costs nothing.
    pub fn take(&mut self, now: Duration) -> Result<(), Option<Duration>> {
        let elapsed = now.saturating_sub(self.at).as_nanos();
        self.at = self.at.max(now);
        self.level = capacity(self.rate)
            .min(self.level.saturating_add(elapsed.saturating_mul(u128::from(self.rate.calls_per_minute))));
        if self.level >= CALL {
            self.level -= CALL;
            return Ok(());
        }
        if self.rate.calls_per_minute == 0 {
            return Err(None);
        }
        let wait = (CALL - self.level).div_ceil(u128::from(self.rate.calls_per_minute));
        Err(Some(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))))
    }
}

/// A rate without a burst still has to let single calls through.
fn capacity(rate: Rate) -> u128 {
    let burst = if rate.calls_per_minute > 0 { rate.burst.max(1) } else { rate.burst };
    u128::from(burst) * CALL
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(calls_per_minute: u32, burst: u32) -> Bucket {
        Bucket::new(Rate { calls_per_minute, burst }, Duration::ZERO)
    }

    #[test]
    fn token_bucket_starts_full_and_refills_at_its_rate() {
        let mut bucket = bucket(60, 3);
        for _ in 0..3 {
            assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        }
        assert_eq!(bucket.take(Duration::ZERO), Err(Some(Duration::from_secs(1))));
        assert_eq!(bucket.take(Duration::from_millis(400)), Err(Some(Duration::from_millis(600))));
        assert_eq!(bucket.take(Duration::from_secs(1)), Ok(()));
        assert_eq!(bucket.take(Duration::from_secs(1)), Err(Some(Duration::from_secs(1))));
    }

    #[test]
    fn token_bucket_is_capped_at_the_burst() {
        let mut bucket = bucket(6000, 2);
        let late = Duration::from_secs(1_000_000);
        assert_eq!(bucket.take(late), Ok(()));
        assert_eq!(bucket.take(late), Ok(()));
        assert!(bucket.take(late).is_err());
    }

    #[test]
    fn refused_calls_cost_nothing_and_the_hint_is_exact() {
        let mut bucket = bucket(7, 1);
        assert_eq!(bucket.take(Duration::ZERO), Ok(()));
        let Err(Some(wait)) = bucket.take(Duration::ZERO) else { unreachable!("the bucket is empty") };
        for _ in 0..100 {
            assert_eq!(bucket.take(Duration::ZERO), Err(Some(wait)));
        }
        assert!(bucket.take(wait - Duration::from_nanos(1)).is_err());
        assert_eq!(bucket.take(wait), Ok(()));
    }

    #[test]
    fn token_bucket_ignores_a_clock_that_goes_back() {
        let mut bucket = Bucket::new(Rate { calls_per_minute: 60, burst: 1 }, Duration::from_secs(10));
        assert_eq!(bucket.take(Duration::from_secs(10)), Ok(()));
        assert!(bucket.take(Duration::ZERO).is_err());
        assert!(bucket.take(Duration::from_millis(10_900)).is_err());
        assert_eq!(bucket.take(Duration::from_secs(11)), Ok(()));
    }

    #[test]
    fn token_bucket_of_rate_zero_never_refills_and_burst_is_at_least_one() {
        let mut none = bucket(0, 1);
        assert_eq!(none.take(Duration::ZERO), Ok(()));
        assert_eq!(none.take(Duration::from_secs(u64::MAX)), Err(None));
        assert_eq!(bucket(0, 0).take(Duration::ZERO), Err(None));
        assert_eq!(bucket(60, 0).take(Duration::ZERO), Ok(()));
    }
}
