//! Programs and maps in the kernel.
//! Stopped by: the system call filter.

use crate::support::sandbox::outside_twin;
use crate::support::{everywhere, no_with, yes};

#[test]
fn bpf_call_is_refused() {
    everywhere(|sandbox| {
        sandbox.holds(&[no_with("bpf", "REFUSED EPERM"), yes("native-call")]);
        if sandbox.place.mode.is_root() {
            outside_twin(&sandbox.place, "bpf");
        }
    });
}
