//! Steer another process, even one's own child.
//! Stopped by: the system call filter.

use crate::support::{everywhere, no_with, yes};

#[test]
fn no_process_is_traced() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no_with("ptrace-child", "REFUSED EPERM"),
            no_with("ptrace 1", "REFUSED EPERM"),
            no_with("read-memory-of 1", "REFUSED EPERM"),
            no_with("take-descriptor-of 1", "REFUSED EPERM"),
            yes("fork"),
            yes("signal-self"),
        ]);
        assert_eq!(sandbox.place.outside(&["ptrace-child"]), ["DONE"]);
    });
}
