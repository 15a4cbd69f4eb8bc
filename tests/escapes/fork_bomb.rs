//! Endless processes. Stopped by: a limit that the sandbox's user cannot lift.

use crate::support::{everywhere, no, no_with, yes};

#[test]
fn number_of_processes_is_limited() {
    everywhere(|sandbox| {
        sandbox.policy("limits: {pids: 60}");
        sandbox.holds(&[
            yes("many-processes 20"),
            no_with("many-processes 300", "REFUSED EAGAIN"),
            no("raise-limit"),
            // The remaining processes can continue.
            yes("many-processes 20"),
        ]);
        assert_eq!(sandbox.place.outside(&["many-processes 300"]), ["DONE"]);
    });
}

#[test]
fn number_of_open_files_is_limited() {
    everywhere(|sandbox| {
        sandbox.policy("limits: {open_files: 64}");
        sandbox.holds(&[yes("many-files 20"), no_with("many-files 300", "REFUSED EMFILE")]);
    });
}
