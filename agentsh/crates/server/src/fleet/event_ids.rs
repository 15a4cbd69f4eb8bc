//! Event ids: arrival times from servers whose clocks may differ.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentsh_database::DbError;
use jiff::Timestamp;

use crate::fleet::schema::LOW_BITS;
use crate::fleet::serve::OperatorLog;

/// How far a place may be ahead of the clock of this server, in microseconds. A server whose clock is wrong by more
/// is not followed, because its events would be kept until that time.
const MAX_AHEAD: i64 = 3_600_000_000;
/// Between two messages about a clock.
const CLOCK_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Gives every event its id: the microsecond of its arrival, later than every one before, with bits of this server. Servers
/// with slow clocks follow the fastest one, up to [`MAX_AHEAD`], so that the events of a host are in one order.
pub(crate) struct Places {
    last: Mutex<i64>,
    low: i64,
    tell: OperatorLog,
    told: Mutex<Option<Instant>>,
}

impl Places {
    pub fn new(low: u16, tell: OperatorLog) -> Self {
        let low = i64::from(low) & ((1 << LOW_BITS) - 1);
        Self { last: Mutex::new(0), low, tell, told: Mutex::new(None) }
    }

    /// # Errors
    /// Like [`Places::next_id_after`].
    pub fn next(&self) -> Result<i64, DbError> {
        self.next_id_after(0, Timestamp::now())
    }

    /// An id larger than `place`, which another server may have given, unless that is too far ahead.
    ///
    /// # Errors
    /// When the time of this server's clock does not fit into an id.
    pub fn next_id_after(&self, place: i64, now: Timestamp) -> Result<i64, DbError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now.as_microsecond();
        // The clock of this server may have been set back.
        let followed =
            [*last, place >> LOW_BITS].into_iter().filter(|at| *at <= now.saturating_add(MAX_AHEAD));
        let next = followed.map(|at| at + 1).fold(now, i64::max);
        let place = next.checked_mul(1 << LOW_BITS).filter(|place| *place >= 0);
        let why = "the clock of this server is wrong: no event can have its time";
        let place = place.ok_or_else(|| DbError(why.to_owned()))?;
        *last = next;
        Ok(place | self.low)
    }

    /// Says that a host has an event of a time that is far ahead.
    pub fn watch(&self, host: &str, place: i64, now: Timestamp) {
        let ahead = (place >> LOW_BITS).saturating_sub(now.as_microsecond());
        if ahead <= MAX_AHEAD {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= CLOCK_WARNING_INTERVAL) {
            *told = Some(Instant::now());
            (self.tell)(&format!(
                "the newest event of host {host} is {} hours ahead of this server's clock and is ignored: the clock \
                 of a server was or is wrong; set it right (such events stay until their time comes, whatever --keep says)",
                ahead / MAX_AHEAD
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::sync::Arc;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn place_of(time: Timestamp) -> i64 {
        time.as_microsecond() << LOW_BITS
    }

    #[test]
    fn a_clock_that_is_a_little_ahead_is_followed_and_a_wrong_one_is_not() {
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let tell = Arc::clone(&said);
        let places = Places::new(3, Arc::new(move |text: &str| tell.lock().unwrap().push(text.to_owned())));
        let now = at("2026-05-01T12:00:00Z");
        let near = place_of(at("2026-05-01T12:59:00Z"));
        assert!(places.next_id_after(near, now).unwrap() > near);
        places.watch("h", near, now);
        assert!(said.lock().unwrap().is_empty());
        let places = Places::new(3, places.tell);
        for wrong in ["2026-05-01T13:01:00Z", "2100-01-01T00:00:00Z", "2112-01-01T00:00:00Z"] {
            let wrong = place_of(at(wrong));
            let (first, second) =
                (places.next_id_after(wrong, now).unwrap(), places.next_id_after(wrong, now).unwrap());
            assert!(first >= place_of(now) && second > first && second < near, "{first} {second}");
            places.watch("h", wrong, now);
        }
        assert_eq!(places.next_id_after(i64::MAX, now).unwrap() & 0x7ff, 3);
        let said = said.lock().unwrap();
        assert!(said.len() == 1 && said[0].contains("host h is 1 hours ahead"), "{said:?}");
    }

    #[test]
    fn the_own_clock_may_be_set_right_and_has_an_end() {
        let places = Places::new(0, Arc::new(|_: &str| {}));
        let (now, later) = (at("2026-05-01T12:00:00Z"), at("2050-01-01T00:00:00Z"));
        assert!(places.next_id_after(0, later).unwrap() >= place_of(later));
        assert!(places.next_id_after(0, now).unwrap() < place_of(later));
        let why = places.next_id_after(0, at("2200-01-01T00:00:00Z")).unwrap_err().to_string();
        assert!(why.contains("clock of this server is wrong"), "{why}");
        assert!(places.next_id_after(0, at("1960-01-01T00:00:00Z")).is_err());
        assert!(places.next_id_after(0, now).unwrap() > 0);
    }
}
