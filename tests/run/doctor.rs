//! `agentsh doctor` and `agentsh demo`: they really try what they report.

use serde_json::Value;

use crate::support::{Mode, Outcome, Place, Pty};

#[test]
fn doctor_tries_every_layer_and_each_holds() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let outcome = Outcome::of(&mut place.agentsh(&["doctor", "--json"]));
        // 1 where this host gives less than everything.
        assert!(outcome.code == 0 || outcome.code == 1, "{outcome}");
        let layers: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap();
        let state = |name: &str| {
            let layer = layers.iter().find(|layer| layer["layer"] == name);
            layer.unwrap_or_else(|| panic!("no {name}: {outcome}"))["state"].as_str().unwrap().to_owned()
        };
        for name in [
            "user-namespace",
            "mount-tree",
            "process-namespaces",
            "network-namespace",
            "seccomp",
            "capabilities",
            "no-new-privs",
            "terminal-injection",
            "process-limit",
            "pinned-execution",
            "parent-death",
            "event-store",
        ] {
            assert_eq!(state(name), "enforced", "{mode:?} {name} {outcome}");
        }
        if mode == Mode::User {
            assert_eq!(state("memory-limit"), "degraded", "what is less than asked for is said");
        }
        assert_eq!(std::fs::read_dir(&place.project).unwrap().count(), 0, "{mode:?}");
    }
}

/// In a pipe people read it too: lines of a page, and programs that are not there in one of them.
#[test]
fn doctor_is_readable_in_a_pipe() {
    let place = Place::new(Mode::Invoker);
    let outcome = Outcome::of(&mut place.agentsh(&["doctor"]));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100 && !line.contains(['\t', '\u{1b}'])),
        "{outcome}"
    );
    assert!(lines.iter().any(|line| line.starts_with("enforced    user-namespace      ")), "{outcome}");
    assert!(lines.iter().filter(|line| line.starts_with("not found ")).count() <= 1, "{outcome}");
}

#[test]
fn demo_attacks_are_refused_and_ordinary_work_succeeds() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let outcome = Outcome::of(&mut place.agentsh(&["demo"])).expect_code(0);
        assert!(outcome.stdout.contains("attacks refused"), "{mode:?} {outcome}");
        assert!(!outcome.stdout.contains("GOT THROUGH"), "{mode:?} {outcome}");
        Outcome::of(&mut place.agentsh(&["events", "verify"])).expect_code(0);
    }
}

/// Its servers change their programs on purpose: what was pinned in one demo must not stop the next.
#[test]
#[ignore = "takes long"]
fn the_demo_can_be_run_again() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for _ in 0..2 {
            let outcome = Outcome::of(&mut place.agentsh(&["demo"])).expect_code(0);
            assert!(outcome.stdout.contains("36 attacks refused"), "{mode:?} {outcome}");
        }
    }
}

/// A person sits at the terminal and could be asked.
#[test]
fn demo_on_a_terminal_is_refused_as_much() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = Pty::start(place.agentsh(&["demo"]));
        terminal.expect("36 attacks refused");
        assert_eq!(terminal.wait(), 0, "{mode:?} {}", terminal.text());
    }
}
