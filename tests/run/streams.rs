//! Standard input, output and error are the agent's own.

use std::process::Stdio;

use crate::support::{Mode, Outcome, Place};

#[test]
fn streams_pass_every_byte_both_ways() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let input: Vec<u8> = (0..300_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut command =
            place.agentsh(&["run", "--quiet", "--", "sh", "-c", "cat | cksum; echo warned >&2"]);
        let inside = Outcome::with_input(&mut command, &input).expect_code(0);
        let outside = Outcome::with_input(&mut place.command("cksum"), &input);
        assert_eq!(inside.stdout, outside.stdout, "{mode:?}");
        assert_eq!(inside.stderr, "warned\n");
    }
}

#[test]
fn standard_output_has_nothing_but_the_agents_words() {
    let place = Place::new(Mode::Invoker);
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "printf", "abc"])).expect_code(0);
    assert_eq!(outcome.stdout, "abc");
    assert!(outcome.stderr.starts_with("agentsh: session "), "{outcome}");
}

#[test]
fn closed_standard_streams_are_accepted() {
    let place = Place::new(Mode::Invoker);
    let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", "cat; exit 7"]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(7));
    let file = std::fs::File::create(place.path("out")).unwrap();
    let mut command = place.agentsh(&["run", "--quiet", "--", "echo", "into a file"]);
    assert!(command.stdin(Stdio::null()).stdout(file).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(place.path("out")).unwrap(), "into a file\n");
}

/// A reader that goes away ends the writer, as in any pipe.
#[test]
fn a_broken_pipe_ends_the_agent() {
    let place = Place::new(Mode::Invoker);
    let agentsh = place.program("agentsh");
    let line = format!("{} run --quiet -- yes | head -n 1", agentsh.display());
    let outcome = Outcome::of(place.command("sh").args(["-c", &line])).expect_code(0);
    assert_eq!(outcome.stdout, "y\n");
}

#[test]
fn signals_to_agentsh_reach_the_agent() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "trap 'echo got-term; exit 9' TERM; : > ready; while :; do sleep 0.05; done";
        let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        assert!(crate::support::eventually(|| place.project.join("ready").exists()));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert_eq!(crate::support::outcome::wait(&mut child), 9, "{mode:?}");
        let mut said = String::new();
        std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(said, "got-term\n");
    }
}
