//! Page faults handled by the attacker, the timer of many kernel exploits.
//! Stopped by: the system call filter.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no_with, yes};

#[test]
fn userfaultfd_is_refused() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no_with("userfaultfd", "REFUSED EPERM"),
            no_with("read /dev/userfaultfd x", "REFUSED ENOENT"),
            yes("native-call"),
        ]);
        outside_twin(&sandbox.place, "userfaultfd");
    });
}
