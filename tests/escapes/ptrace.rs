//! Trace a foreign process: pid 1 of the sandbox, or one of another sandbox. Stopped by: pid 1 is not dumpable and
//! outside the program's Landlock domain; processes of other sandboxes have no pid here.

use serde_json::json;

use crate::support::sandbox::{attempt, script};
use crate::support::{Mode, Place, everywhere, no, no_with, yes};

#[test]
fn ptrace_reaches_only_processes_of_the_sandbox() {
    everywhere(|sandbox| {
        let own = std::process::id();
        sandbox.holds(&[
            no_with("ptrace 1", "REFUSED EPERM"),
            no_with("read-memory-of 1", "REFUSED EPERM"),
            no_with("take-descriptor-of 1", "REFUSED EPERM"),
            no(format!("ptrace {own}")),
            no(format!("read-memory-of {own}")),
            // What debuggers and sanitizers do.
            yes("ptrace-child"),
            yes("steer-child"),
            yes("fork"),
            yes("signal-self"),
        ]);
        assert_eq!(sandbox.place.outside(&["ptrace-child", "steer-child"]), ["DONE", "DONE"]);
    });
}

/// Whoever is traced may be given other system calls by its tracer: the filter looks at those.
#[test]
fn system_call_filter_applies_to_traced_processes() {
    everywhere(|sandbox| {
        sandbox.holds(&[
            yes("steer-child"),
            no("unshare user"),
            no("int80"),
            no_with("ptrace 1", "REFUSED EPERM"),
        ]);
    });
}

#[test]
fn processes_of_other_sandboxes_are_not_traced() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let server = place.program("fixture_server");
        let entry = json!({"command": server, "args": []});
        place.write(
            place.home.join(".claude.json"),
            json!({"mcpServers": {"one": entry, "two": entry}}).to_string(),
        );
        let numbers = || (2..40).map(|pid| attempt("two", &format!("see-and-trace {pid} marked-child")));
        let mut steps =
            vec![json!({"server": "one", "tool": "spawn", "arguments": {"mark": "marked-child"}})];
        steps.extend(numbers());
        steps.push(attempt("two", "steer-child"));
        let answers = script(&place, &json!(steps));
        for at in 1..steps.len() - 1 {
            assert_ne!(answers.text(at), "DONE", "{mode:?} {at}: {}", answers.outcome);
        }
        assert_eq!(answers.text(steps.len() - 1), "DONE", "{mode:?} {}", answers.outcome);
    }
}
