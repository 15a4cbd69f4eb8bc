//! What a start weighs, counted: it does not depend on the speed of the machine.

use crate::support::{Mode, Outcome, Place};

/// Disks and large files of `/etc` differ between machines: each is a mount.
const MAX_MOUNTS: usize = 45;

#[test]
fn a_sandbox_has_few_mounts() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let git = place.command("git").args(["init", "-q"]).status().unwrap();
        assert!(git.success());
        let script = "grep -vc ' /sys/devices/' /proc/self/mountinfo";
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
        let count: usize = outcome.stdout.trim().parse().unwrap();
        assert!(count <= MAX_MOUNTS, "{mode:?} {count}: {outcome}");
    }
}

/// The name of an agent where a command stands starts it in a sandbox, with its own options.
#[test]
fn the_name_of_an_agent_starts_it() {
    let place = Place::new(Mode::Invoker);
    place.script(place.path("bin/claude"), "#!/bin/sh\necho \"started $*\"\n");
    place.set("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
    let outcome = Outcome::of(&mut place.agentsh(&["claude", "--help"])).expect_code(0);
    assert!(outcome.stdout.starts_with("started ") && outcome.stdout.contains("--help"), "{outcome}");
    assert_eq!(place.events("session_started").len(), 1);
    Outcome::of(&mut place.agentsh(&["cluade"])).expect_code(125);
}
