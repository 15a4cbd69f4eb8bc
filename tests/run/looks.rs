//! What people see: colour where it is wanted, examples, exit statuses as a shell gives them.

use crate::support::{Mode, Outcome, Place, Pty, eventually, without_colour};

fn in_terminal(place: &Place, words: &[&str], columns: u16) -> String {
    place.set("TERM", "xterm-256color");
    let mut pty = Pty::sized(place.agentsh(words), columns);
    pty.wait();
    // What was written may still be on its way.
    let settled = || {
        let before = pty.text();
        std::thread::sleep(std::time::Duration::from_millis(20));
        !before.trim().is_empty() && pty.text() == before
    };
    assert!(eventually(settled), "{words:?}");
    pty.text()
}

#[test]
fn colour_is_for_terminals_and_says_nothing_that_words_do_not() {
    let place = Place::new(Mode::Invoker);
    place.shell("exit 3").expect_code(3);
    let shown = in_terminal(&place, &["sessions"], 120);
    assert!(shown.contains("\x1b["), "{shown}");
    let piped = Outcome::of(&mut place.agentsh(&["sessions"])).expect_code(0);
    assert!(!piped.stdout.contains('\x1b') && piped.stdout.contains('\t'), "{piped}");
    place.set("NO_COLOR", "1");
    let plain = in_terminal(&place, &["sessions"], 120);
    assert!(!plain.contains("\x1b["), "{plain}");
    assert_eq!(without_colour(&shown), plain);
}

#[test]
fn nothing_is_wider_than_the_terminal() {
    let place = Place::new(Mode::Invoker);
    let server = place.program("fixture_server");
    let server = server.to_str().unwrap();
    Outcome::of(&mut place.agentsh(&["mcp", "run", "--id", "a-server-with-a-long-name", "--", server]));
    place.shell("true").expect_code(0);
    for words in [&["sessions"][..], &["mcp", "servers"], &["mcp", "events"]] {
        for columns in [40, 80, 120] {
            let text = without_colour(&in_terminal(&place, words, columns));
            let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
            assert!(widest <= usize::from(columns), "{words:?} {columns}: {text}");
            assert!(!text.trim().is_empty(), "{words:?}");
        }
    }
}

#[test]
fn every_help_ends_with_examples() {
    let place = Place::new(Mode::Invoker);
    for words in [
        &["run", "--help"][..],
        &["mcp", "--help"],
        &["registry", "serve", "--help"],
        &["ui", "--help"],
        &["--help"],
    ] {
        let help = Outcome::of(&mut place.agentsh(words)).expect_code(0);
        assert!(help.stdout.contains("Examples:\n  agentsh "), "{help}");
    }
    // Which build it is.
    let version = Outcome::of(&mut place.agentsh(&["--version"])).expect_code(0);
    assert!(version.stdout.starts_with("agentsh "), "{version}");
}

#[test]
fn a_program_that_is_not_there_is_127_and_one_that_cannot_be_executed_126() {
    let place = Place::new(Mode::Invoker);
    let run = |words: &[&str]| Outcome::of(&mut place.agentsh(words));
    // The `--` is needed for nobody.
    assert_eq!(run(&["run", "--quiet", "nosuchprogram-anywhere"]).code, 127);
    assert_eq!(run(&["run", "--quiet", "true"]).code, 0);
    assert_eq!(run(&["mcp", "run", "--", "nosuchprogram-anywhere"]).code, 127);
    let file = place.write("plain.txt", "no program");
    assert_eq!(run(&["mcp", "run", "--", file.to_str().unwrap()]).code, 126);
}

#[test]
fn shells_complete_command_lines() {
    let place = Place::new(Mode::Invoker);
    for shell in ["bash", "zsh", "fish"] {
        let script = Outcome::of(&mut place.agentsh(&["completions", shell])).expect_code(0).stdout;
        assert!(script.contains("registry") && !script.contains("bridge ID"), "{shell}");
    }
    let script = Outcome::of(&mut place.agentsh(&["completions", "bash"])).stdout;
    let file = place.write("completions.bash", script);
    let ask = format!(
        ". {}; COMP_WORDS=(agentsh registry ver); COMP_CWORD=2; _agentsh agentsh ver registry; echo ${{COMPREPLY[*]}}",
        file.display()
    );
    let answer = Outcome::of(place.command("bash").args(["-c", &ask])).expect_code(0);
    assert_eq!(answer.stdout.trim(), "verify", "{answer}");
}
