//! Several runs in one project, and what a run leaves behind.

use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::support::outcome::wait;
use crate::support::{Mode, Outcome, Place, eventually};

const STAND_INS: [&str; 4] = [".zed", ".cursor", ".vscode", ".claude"];

/// Directories that show that their programs are in use.
const SIGNS: [&str; 4] = [".config/zed", ".cursor", ".vscode", ".claude"];

fn place_with_signs(mode: Mode) -> Place {
    let place = Place::new(mode);
    SIGNS.iter().for_each(|sign| place.make_directory(&place.home.join(sign)));
    place
}

/// A run that waits for the file `go-NAME`.
fn start(place: &Place, name: &str) -> Child {
    let script =
        format!(": > ready-{name}; while [ ! -e go-{name} ]; do sleep 0.02; done; rm ready-{name}; exit 4");
    let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", &script]);
    let child = command.stdin(Stdio::null()).spawn().unwrap();
    assert!(eventually(|| place.project.join(format!("ready-{name}")).exists()));
    child
}

fn present(place: &Place) -> usize {
    STAND_INS.iter().filter(|name| place.project.join(name).exists()).count()
}

#[test]
fn last_run_removes_the_stubs() {
    for mode in Mode::all() {
        let place = place_with_signs(mode);
        let (mut one, mut two) = (start(&place, "one"), start(&place, "two"));
        assert_eq!(present(&place), STAND_INS.len(), "{mode:?}");
        place.write("go-one", "");
        assert_eq!(wait(&mut one), 4);
        assert_eq!(present(&place), STAND_INS.len(), "{mode:?}: the other run still needs them");
        // Still read-only for the one that is left.
        assert!(place.project.join("ready-two").exists());
        place.write("go-two", "");
        assert_eq!(wait(&mut two), 4);
        assert_eq!(present(&place), 0, "{mode:?}: {:?}", list(&place));
    }
}

#[test]
fn stubs_of_a_killed_run_are_removed_by_the_next_run() {
    for mode in Mode::all() {
        let place = place_with_signs(mode);
        let mut child = start(&place, "one");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
        wait(&mut child);
        // The process that starts sandboxes outlives it by a moment and removes what it can; the next run the rest.
        place.shell("true").expect_code(0);
        assert_eq!(present(&place), 0, "{mode:?}: {:?}", list(&place));
        let run = std::fs::read_dir(place.path("run")).unwrap().count();
        assert!(run <= 1, "{mode:?}: sockets of {run} sessions were left");
    }
}

/// A file that the user makes during a run is not removed with the stub.
#[test]
fn stub_filled_by_the_user_stays() {
    let place = place_with_signs(Mode::Invoker);
    let mut child = start(&place, "one");
    // Renames are attributed once names are watched, some milliseconds after the start; before that, a file that
    // replaces a stub is set aside.
    std::thread::sleep(std::time::Duration::from_millis(500));
    // While lost stubs are made again their directory may be gone for a moment; an editor makes it then.
    let settings = place.project.join(".vscode");
    let saved = || {
        let _there = std::fs::create_dir(&settings);
        std::fs::write(settings.join("tasks.json"), "{}").is_ok()
    };
    assert!(eventually(saved));
    place.write("go-one", "");
    assert_eq!(wait(&mut child), 4);
    assert!(place.project.join(".vscode/tasks.json").exists() && !place.project.join(".zed").exists());
}

/// Sockets and cgroups too.
#[test]
fn sockets_and_cgroups_are_removed_after_a_run() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let before = list(&place);
        place.shell("true").expect_code(0);
        assert_eq!(list(&place), before, "{mode:?}");
        assert_eq!(std::fs::read_dir(place.path("run/agentsh")).unwrap().count(), 0, "{mode:?}");
    }
}

fn list(place: &Place) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        std::fs::read_dir(&place.project).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn many_runs_at_once_share_one_record() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        std::thread::scope(|scope| {
            for code in 0..6 {
                let place = &place;
                scope.spawn(move || place.shell(&format!("exit {code}")).expect_code(code));
            }
        });
        let outcome = Outcome::of(&mut place.agentsh(&["events", "verify"])).expect_code(0);
        assert!(outcome.stdout.contains("6 sessions (6 ended"), "{outcome}");
        assert_eq!(present(&place), 0, "{mode:?}: {:?}", list(&place));
    }
}

/// With what an agent was started is in the record, but for what is secret.
#[test]
fn agent_arguments_are_recorded_without_secrets() {
    let place = Place::new(Mode::Invoker);
    let words = ["run", "--quiet", "--", "sh", "-c", "exit 0", "--token", "hunter2", "--verbose"];
    Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    let started = place.events("process_started");
    assert_eq!(
        started[0]["args"],
        json!(["-c", "exit 0", "--token", "[redacted]", "--verbose"]),
        "{started:?}"
    );
}

/// Whoever reaches them may call the servers of another session.
#[test]
fn sockets_of_other_sessions_are_hidden_where_their_directory_is_shown() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut child = start(&place, "one");
        let run = place.path("run");
        assert!(eventually(|| std::fs::read_dir(run.join("agentsh")).is_ok_and(|found| found.count() > 0)));
        std::fs::write(run.join("shown"), "").unwrap();
        let words = ["run", "--quiet", "--read", run.to_str().unwrap(), "--", "find", run.to_str().unwrap()];
        let outcome = Outcome::of(&mut place.agentsh(&words));
        assert!(outcome.stdout.contains("shown") && !outcome.stdout.contains("bridge"), "{mode:?} {outcome}");
        place.write("go-one", "");
        wait(&mut child);
    }
}
