//! Sockets and files by a ring that no filter looks into.
//! Stopped by: the call does not exist, so programs take their older path.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no_with, yes};

#[test]
fn io_uring_does_not_exist() {
    everywhere(|sandbox| {
        sandbox.holds(&[no_with("io_uring", "REFUSED ENOSYS"), yes("native-call")]);
        outside_twin(&sandbox.place, "io_uring");
    });
}
