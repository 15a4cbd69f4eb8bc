//! Unlimited memory, of every kind: private, shared, in files that no process maps, in temporary directories. Stopped
//! by: a cgroup, or else by rlimits and a watchdog.

use crate::support::{Mode, Outcome, Place, everywhere, no, yes};

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
#[ignore = "takes long"]
fn memory_within_the_limit_can_be_used() {
    everywhere(|sandbox| {
        sandbox.policy(LIMIT);
        sandbox.holds(&[
            yes("memory 20"),
            yes("shared-memory 20"),
            yes("memory-file 5"),
            yes("page-tables 10"),
            yes("socket-buffers 20"),
            yes("fill-file 5 /tmp/a"),
        ]);
    });
    assert_eq!(Place::new(Mode::Invoker).outside(&["memory 600"]), ["DONE"]);
}

#[test]
fn private_memory_is_limited() {
    contained("memory 600");
}

#[test]
fn shared_memory_is_limited() {
    contained("shared-memory 600");
}

#[test]
fn unmapped_memfd_memory_is_limited() {
    contained("memory-file 600");
}

#[test]
fn page_table_memory_is_limited() {
    contained("page-tables 400");
}

#[test]
fn socket_buffer_memory_is_limited() {
    contained("socket-buffers 480");
}

#[test]
fn temporary_files_are_limited() {
    contained("fill-file 500 /tmp/big");
}

#[test]
fn private_directories_are_bounded() {
    everywhere(|sandbox| {
        let home = sandbox.place.home.display();
        sandbox.holds(&[
            yes("space 100 /tmp"),
            yes(format!("space 100 {home}")),
            no("space 1025 /tmp"),
            no("space 1025 /dev/shm"),
            no("space 1025 /var/tmp"),
            no(format!("space 1025 {home}")),
        ]);
    });
}

/// The end says why.
#[test]
fn memory_limit_is_named_when_it_ends_the_agent() {
    for mode in Mode::all().into_iter().filter(|mode| mode.is_root()) {
        let place = Place::new(mode);
        place.policy(&format!("agent: {{{LIMIT}}}\n"));
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "tail", "/dev/zero"]));
        if outcome.code == 137 {
            assert!(outcome.stderr.contains("used more memory than agent.limits.memory allows"), "{outcome}");
            assert!(place.events("process_exited").iter().any(|event| event["cause"] == "memory-limit"));
        }
    }
}
