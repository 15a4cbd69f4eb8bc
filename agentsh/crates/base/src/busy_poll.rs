//! Busy polling: checks for the next event instead of sleeping.
//!
//! Programs that answer each other within microseconds lose more by sleeping: it takes ten to thirty of them to wake an
//! idle processor of a virtual machine, and the program that wakes it loses as much again.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How long at most, each time: this much of one otherwise idle processor is lost by it. Long enough for all
/// the steps of a local program, and next to nothing compared with other work.
pub const POLL_DURATION: Duration = Duration::from_micros(200);

/// With one processor, looking would keep the others from answering.
static USEFUL: LazyLock<bool> =
    LazyLock::new(|| rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()) > 1);

/// Whether looking can help at all.
#[must_use]
pub fn is_useful() -> bool {
    *USEFUL
}

/// Keeps the thread's runtime from sleeping until then. The time is asked for again and again, so it may move.
pub async fn poll(until: impl Fn() -> Instant) {
    while Instant::now() < until() {
        // Other programs that want this processor go first.
        std::thread::yield_now();
        tokio::task::yield_now().await;
    }
}
