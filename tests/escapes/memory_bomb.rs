//! Memory without end, in every shape: private, shared, in files that no process maps, in temporary directories.
//! Stopped by: a cgroup, or else by rlimits and a watchdog.

use crate::support::{everywhere, known_failing, no, yes};

const LIMIT: &str = "limits: {memory: 150MiB}";

fn contained(attempt: &str) {
    everywhere(|sandbox| {
        sandbox.policy(LIMIT);
        let answers = sandbox.answers(&[attempt]);
        let got_through = answers.iter().any(|answer| answer == "DONE");
        assert!(!got_through, "{attempt}: {:?} {:?}", sandbox.place.mode, sandbox.kind);
    });
}

#[test]
fn what_fits_is_given() {
    everywhere(|sandbox| {
        sandbox.policy(LIMIT);
        sandbox.holds(&[
            yes("memory 40"),
            yes("shared-memory 40"),
            yes("memory-file 40"),
            yes("fill-file 20 /tmp/a"),
        ]);
        assert_eq!(sandbox.place.outside(&["memory 400"]), ["DONE"]);
    });
}

#[test]
fn private_memory() {
    contained("memory 1200");
}

#[test]
fn shared_memory() {
    contained("shared-memory 1200");
}

#[test]
fn memory_that_nobody_maps() {
    known_failing("without a cgroup nobody counts pages of memory files that no process maps", || {
        contained("memory-file 1200");
    });
}

#[test]
fn temporary_files() {
    known_failing("without a cgroup nobody counts pages of private directories", || {
        contained("fill-file 600 /tmp/big");
    });
}

#[test]
fn a_private_directory_is_bounded() {
    everywhere(|sandbox| {
        let home = sandbox.place.home.display();
        sandbox.holds(&[yes(format!("fill-file 2 {home}/small")), no("fill-file 1100 /dev/shm/big")]);
    });
}
