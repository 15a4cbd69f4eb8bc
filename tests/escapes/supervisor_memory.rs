//! The memory, descriptors and root directory of the sandbox's first process, which was agentsh a moment ago.
//! Stopped by: it is not dumpable, has no capability, and the session's own process is in no list.

use crate::support::{everywhere, no, yes};

#[test]
fn the_first_process_is_closed() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            no("memory-of 1"),
            no("write-memory-of 1"),
            no("descriptors-of 1"),
            no("environment-of 1"),
            no("root-of 1"),
            yes("memory-of-self"),
            yes("descriptors-of self"),
        ]);
    });
}

#[test]
fn the_session_cannot_be_seen() {
    everywhere(|sandbox| {
        sandbox.holds(&[no("see --quiet"), no("see mcp"), yes("see __init")]);
        let place = &sandbox.place;
        let own = std::process::id();
        assert_eq!(place.outside(&[&format!("see {}", "suite")]), ["DONE"]);
        sandbox.holds(&[no(format!("signal {own}")), no("signal 1"), yes("signal-self")]);
    });
}
