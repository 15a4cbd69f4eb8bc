//! Two sandboxes see one directory: one passes the other a descriptor there, such as a connection that only the first
//! may have. Stopped by: no process inside can make a socket in a directory of the host, and no sandbox sees another
//! one's private directories.

use serde_json::json;

use crate::support::sandbox::{attempt, script};
use crate::support::{Mode, Place};

#[test]
fn descriptors_do_not_pass_between_sandboxes() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let server = place.program("fixture_server");
        // Both are given the project, as their argument says.
        let entry = json!({"command": server, "args": [place.project]});
        place.write(
            place.home.join(".claude.json"),
            json!({"mcpServers": {"one": entry, "two": entry}}).to_string(),
        );
        let meet = place.project.join("meet.sock").display().to_string();
        let steps = [
            attempt("one", &format!("create {}", place.project.join("from-one").display())),
            attempt("two", &format!("read {} probe", place.project.join("from-one").display())),
            attempt("one", &format!("unix-own {meet}")),
            attempt("one", &format!("give-descriptor {meet}")),
            json!({"attempt": format!("unix-own {meet}")}),
            attempt("one", "unix-own-kept /dev/shm/kept.sock"),
            attempt("one", &format!("symlink /dev/shm/kept.sock {meet}")),
            attempt("one", &format!("link /dev/shm/kept.sock {meet}2")),
            attempt("one", &format!("rename /dev/shm/kept.sock {meet}3")),
            attempt("two", &format!("unix {meet}")),
            // A socket of one's own works.
            attempt("one", "unix-own /dev/shm/own-too.sock"),
            attempt("one", "unix-own /dev/shm/own.sock"),
            json!({"attempt": "unix-own /dev/shm/own-too.sock"}),
        ];
        let answers = script(&place, &json!(steps));
        let done = |at: usize| match answers.json[at].as_str() {
            Some(text) => text == "DONE",
            None => answers.text(at) == "DONE",
        };
        for at in [0, 1, 5, 6, 10, 11, 12] {
            assert!(done(at), "{mode:?} {at}: {}", answers.outcome);
        }
        for at in [2, 3, 4, 7, 8, 9] {
            assert!(!done(at), "{mode:?} {at}: {}", answers.outcome);
        }
    }
}

/// An agent that shares its project with no server makes its sockets where it likes.
#[test]
fn agent_without_servers_can_make_sockets_in_its_project() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let outcome = crate::support::Outcome::of(
            place.agentsh(&["run", "--quiet", "--"]).arg(place.program("probe")).arg("unix-own own.sock"),
        );
        assert_eq!(outcome.stdout, "DONE\n", "{mode:?} {outcome}");
    }
}

/// The same hand-over between two processes without a sandbox.
#[test]
fn descriptor_passes_between_processes_without_a_sandbox() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let meet = place.project.join("meet.sock").display().to_string();
        std::thread::scope(|threads| {
            let giving = threads.spawn(|| place.outside(&[&format!("give-descriptor {meet}")]));
            assert_eq!(place.outside(&[&format!("take-descriptor {meet}")]), ["DONE"]);
            assert_eq!(giving.join().unwrap(), ["DONE"]);
        });
    }
}
