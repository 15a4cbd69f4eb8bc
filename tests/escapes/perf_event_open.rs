//! Counters that look into other processes and the kernel.
//! Stopped by: the system call filter.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no_with, yes};

#[test]
fn perf_event_open_is_refused() {
    everywhere(|sandbox| {
        sandbox.holds(&[no_with("perf_event_open", "REFUSED EPERM"), yes("native-call")]);
        outside_twin(&sandbox.place, "perf_event_open");
    });
}
