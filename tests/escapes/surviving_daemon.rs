//! A process without a parent, in its own session, that wants to survive the run. Stopped by: the process namespace
//! ends with its first process.

use serde_json::json;

use crate::support::{Mode, Outcome, Peer, Place, eventually, processes};

fn mark(place: &Place, name: &str) -> String {
    format!("{}-{name}", place.path("x").parent().unwrap().file_name().unwrap().to_string_lossy())
}

#[test]
fn daemon_ends_with_the_agent() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "daemon");
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        command.arg(place.program("probe")).args([format!("daemon {mark}"), format!("see {mark}")]);
        // The first answer and the second: it was started, and it lived while the agent did.
        assert_eq!(Outcome::of(&mut command).stdout, "DONE\nDONE\n", "{mode:?}");
        assert!(eventually(|| processes::find(&mark).is_empty()), "{mode:?}: it survived");
    }
}

#[test]
fn daemon_ends_with_the_server() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mark = mark(&place, "daemon");
        let mut peer = Peer::ready(&place, &[]);
        assert_eq!(peer.text("try", json!({"line": format!("daemon {mark}")})), "DONE");
        assert!(eventually(|| processes::find(&mark).len() == 1), "{mode:?}");
        assert_eq!(peer.finish().0, 0);
        assert!(eventually(|| processes::find(&mark).is_empty()), "{mode:?}: it survived");
    }
}

#[test]
fn daemon_survives_without_a_sandbox() {
    let place = Place::new(Mode::Invoker);
    let mark = mark(&place, "daemon");
    assert_eq!(place.outside(&[&format!("daemon {mark}")]), ["DONE"]);
    assert!(eventually(|| processes::find(&mark).len() == 1));
    processes::end(&mark);
}
