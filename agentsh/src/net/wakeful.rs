//! Looks for what comes next instead of sleeping, for a moment.
//!
//! A connection is opened in small steps of three programs that answer each other within microseconds. Sleeping and
//! being woken takes longer than the steps themselves, on an idle processor of a virtual machine ten times as long.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long after a new connection; it costs no more of the processor than this. Long enough for all the steps of one
/// whose server is near.
const MOMENT: Duration = Duration::from_micros(200);

/// Keeps the thread that serves connections from sleeping.
#[derive(Debug)]
pub struct Wakeful {
    until: Cell<Instant>,
    awake: Cell<bool>,
    /// With one processor, looking would keep the others from answering.
    useful: bool,
}

impl Wakeful {
    pub fn new() -> Self {
        let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
        Self { until: Cell::new(Instant::now()), awake: Cell::new(false), useful: processors > 1 }
    }

    /// Somebody is about to want something. Must be called inside a `LocalSet`.
    pub fn stir(self: &Rc<Self>) {
        self.until.set(Instant::now() + MOMENT);
        if !self.useful || self.awake.replace(true) {
            return;
        }
        let own = Rc::clone(self);
        tokio::task::spawn_local(async move {
            while Instant::now() < own.until.get() {
                // Whoever else wants this processor goes first.
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
            own.awake.set(false);
        });
    }
}
