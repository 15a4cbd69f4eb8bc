//! The memory, descriptors and root directory of the sandbox's first process, which was agentsh a moment ago.
//! Stopped by: it is not dumpable, has no capability, and the session's own process is in no list.

use crate::support::{everywhere, no, skip, yes};

#[test]
fn memory_of_pid_1_is_not_accessible() {
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
#[ignore = "takes long"]
fn session_process_is_not_visible() {
    everywhere(|sandbox| {
        sandbox.holds(&[no("see --quiet"), no("see mcp"), yes("see __init")]);
        let place = &sandbox.place;
        let own = std::process::id();
        assert_eq!(place.outside(&[&format!("see {}", "suite")]), ["DONE"]);
        sandbox.holds(&[no(format!("signal {own}")), yes("signal-self")]);
        if landlock_scopes_signals() {
            sandbox.holds(&[no("signal 1")]);
        } else {
            // The kernel itself throws deadly signals from inside away; it only does not say so.
            skip("this kernel's Landlock does not scope signals (before 6.12)");
        }
    });
}

/// From version 6 on (Linux 6.12).
fn landlock_scopes_signals() -> bool {
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 12)
}
