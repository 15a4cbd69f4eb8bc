//! The same by `clone`, and by `clone3`, whose flags no filter can see.
//! Stopped by: the filter looks at `clone`'s flags, and `clone3` does not exist, so libraries use `clone`.

use crate::support::{everywhere, no_with, yes};

#[test]
fn clone_and_clone3_make_no_namespace() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no_with("clone user", "REFUSED EPERM"),
            no_with("clone mount", "REFUSED EPERM"),
            no_with("clone network", "REFUSED EPERM"),
            no_with("clone3 user", "REFUSED ENOSYS"),
            no_with("clone3", "REFUSED ENOSYS"),
            yes("fork"),
        ]);
        assert_eq!(sandbox.place.outside(&["clone user", "clone3 user", "clone3"]), ["DONE", "DONE", "DONE"]);
    });
}
