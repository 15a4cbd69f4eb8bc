//! A new user namespace, in which every capability comes back.
//! Stopped by: the system call filter looks at the flags.

use crate::support::{everywhere, no_with, yes};

#[test]
fn unshare_makes_no_namespace() {
    everywhere(|sandbox| {
        let kinds = ["user", "mount", "network", "pid", "ipc", "uts", "cgroup", "time"];
        let mut expected: Vec<_> =
            kinds.iter().map(|kind| no_with(format!("unshare {kind}"), "REFUSED EPERM")).collect();
        expected.push(yes("unshare files"));
        sandbox.holds(&expected);
        assert_eq!(sandbox.place.outside(&["unshare user"]), ["DONE"]);
    });
}
