//! The agent keeps the terminal from which agentsh was started.

use crate::support::{Mode, Outcome, Place, Pty};

#[test]
fn control_c_reaches_the_agent_and_its_answer_counts() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.05; done";
        let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
        terminal.expect("ready");
        terminal.write("\x03");
        terminal.expect("interrupted");
        assert_eq!(terminal.wait(), 7, "{mode:?}");
    }
}

#[test]
fn control_c_ends_an_agent_that_has_no_answer() {
    let place = Place::new(Mode::Invoker);
    let mut terminal =
        Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", "echo ready; exec sleep 30"]));
    terminal.expect("ready");
    terminal.write("\x03");
    assert_eq!(terminal.wait(), 130);
}

#[test]
fn the_size_of_the_window_and_its_changes_arrive() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "stty size; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done";
        let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
        terminal.expect("24 80");
        terminal.expect("ready");
        terminal.resize(33, 101);
        terminal.expect("33 101");
        assert_eq!(terminal.wait(), 0, "{mode:?}");
    }
}

#[test]
fn keys_arrive_one_by_one_in_raw_mode() {
    let place = Place::new(Mode::Invoker);
    let script = "stty raw -echo; echo ready; head -c 3 | od -An -tx1; stty sane";
    let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
    terminal.expect("ready");
    terminal.write("\x03\x1b\r");
    terminal.expect("03 1b 0d");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn an_interactive_shell_has_job_control() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut command = place.agentsh(&["run", "--quiet", "--", "bash", "--norc", "-i"]);
        command.env("PS1", "$ ");
        let mut terminal = Pty::start(command);
        terminal.write("echo be''gun\n");
        terminal.expect("begun");
        assert!(!terminal.text().contains("no job control"), "{mode:?} {}", terminal.text());
        terminal.write("sleep 100 &\n");
        terminal.expect("[1]");
        terminal.write("fg\n");
        terminal.expect("sleep 100");
        std::thread::sleep(std::time::Duration::from_millis(150));
        terminal.write("\x1a");
        terminal.expect("Stopped");
        // bash does not wait for a job that it still holds for stopped, nor exit beside one.
        terminal.write("bg\n");
        terminal.expect("sleep 100 &");
        terminal.write("kill %1; wait; echo fin''ished\n");
        terminal.expect("finished");
        terminal.write("exit 6\n");
        assert_eq!(terminal.wait(), 6, "{mode:?}");
    }
}

/// After the agent's end the terminal belongs to whoever started agentsh.
#[test]
fn the_terminal_is_given_back() {
    let place = Place::new(Mode::Invoker);
    let agentsh = place.program("agentsh");
    let line = format!(
        "{} run --quiet -- bash --norc -i -c 'echo inside; exit 0'; read word; echo got-$word",
        agentsh.display()
    );
    let mut command = place.command("bash");
    command.args(["--norc", "-i", "-c", &line]);
    let mut terminal = Pty::start(command);
    terminal.expect("inside");
    terminal.write("answer\n");
    terminal.expect("got-answer");
    assert_eq!(terminal.wait(), 0);
}

#[test]
fn notes_do_not_disturb_the_screen() {
    let place = Place::new(Mode::Invoker);
    place.write(".mcp.json", "{broken");
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(place.program("claude")).args(["-p", r#"[{"attempt": "native-call"}, {"exit": 0}]"#]);
    let mut terminal = Pty::start(command);
    assert_eq!(terminal.wait(), 0);
    terminal.expect("DONE");
    terminal.expect(".mcp.json");
    terminal.expect("session");
}

#[test]
fn programs_may_make_terminals_of_their_own() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut command = place.agentsh(&["run", "--quiet", "--"]);
        let outcome = Outcome::of(command.arg(place.program("probe")).arg("pseudo-terminal")).expect_code(0);
        assert_eq!(outcome.stdout, "DONE\n", "{mode:?} {outcome}");
    }
}
