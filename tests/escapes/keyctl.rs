//! The kernel's keyrings of the user who started agentsh.
//! Stopped by: the system call filter.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no_with, yes};

#[test]
fn kernel_keyrings_are_not_reached() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no_with("add-key", "REFUSED EPERM"),
            no_with("join-keyring", "REFUSED EPERM"),
            yes("native-call"),
        ]);
        outside_twin(&sandbox.place, "add-key");
    });
}
