//! Join another namespace by its file in /proc.
//! Stopped by: the system call filter; files of the session's processes are not there.

use crate::support::{everywhere, no, no_with, yes};

#[test]
fn setns_is_refused() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no_with("setns /proc/self/ns/net", "REFUSED EPERM"),
            no_with("setns /proc/self/ns/mnt", "REFUSED EPERM"),
            no("setns /proc/1/ns/user"),
            no(format!("setns /proc/{}/ns/net", std::process::id())),
            yes("list /proc/self/ns net"),
        ]);
        if sandbox.place.mode.is_root() {
            assert_eq!(sandbox.place.outside(&["setns /proc/self/ns/net"]), ["DONE"]);
        }
    });
}
