//! Exit codes: the agent's own, and those of agentsh.

use crate::support::{Mode, Outcome, Place, commands};

#[test]
fn exit_status_of_the_agent_is_passed_on() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        for code in [0, 3, 125, 255] {
            let outcome = place.shell(&format!("exit {code}"));
            assert_eq!(outcome.code, code, "{mode:?} {outcome}");
        }
        for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
            assert_eq!(place.shell(&format!("kill -{signal} $$")).code, code, "{mode:?} {signal}");
        }
    }
}

#[test]
fn exit_status_of_a_missing_or_unexecutable_program() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("data.txt", "no program");
        let code = |words: &[&str]| {
            let outcome = Outcome::of(place.agentsh(&["run", "--"]).args(words));
            assert!(outcome.stderr.starts_with("error: "), "{outcome}");
            assert_eq!(outcome.stdout, "", "{outcome}");
            outcome.code
        };
        assert_eq!(code(&["no-such-program-here"]), 127);
        assert_eq!(code(&["./missing"]), 127);
        assert_eq!(code(&["/nonexistent/program"]), 127);
        assert_eq!(code(&["env", "-C", "missing", "true"]), 125, "{mode:?}");
        assert_eq!(code(&["env", "-C", "/etc/passwd", "true"]), 125, "{mode:?}");
        assert_eq!(code(&["./data.txt"]), 126);
        assert_eq!(code(&["/usr"]), 126);
        let foreign = place.script("foreign", "\x7fELF of another machine");
        assert_eq!(code(&[foreign.to_str().unwrap()]), 126);
    }
}

/// A text without `#!` is the shell's, as for every shell and for `execvp`; what is a program of another machine is not.
#[test]
fn script_without_an_interpreter_line_runs_in_the_shell() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.script("plain", "echo \"$1\"; exit 3\n");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "./plain", "a b"]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (3, "a b\n"), "{outcome}");
        let foreign = place.script("foreign", "MZ\0of another machine");
        let outcome = Outcome::of(&mut place.agentsh(&["run", "--", foreign.to_str().unwrap()]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (126, ""), "{outcome}");
    }
}

#[test]
fn exit_status_of_a_missing_interpreter() {
    let place = Place::new(Mode::Invoker);
    place.script("tool", "#!/nonexistent/interpreter\n");
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "./tool"]));
    let code = outcome.code;
    assert!(code == 126 || code == 127, "{code}");
    assert!(outcome.stderr.contains("/tool: its #! line names /nonexistent/interpreter"), "{outcome}");
    place.script("dos", "#!/bin/sh\r\necho ran\r\n");
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "./dos"])).expect_code(127);
    assert!(outcome.stderr.contains("names /bin/sh\\r, which does not exist"), "{outcome}");
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", ""])).expect_code(127);
    assert!(outcome.stderr.contains("the command is empty"), "{outcome}");
}

#[test]
fn exit_status_of_a_failure_of_agentsh_is_125() {
    let place = Place::new(Mode::Invoker);
    place.write("broken.yaml", "agent: [");
    for words in [
        &["run", "--policy", "no-such-policy", "--", "true"][..],
        &["run", "--policy", "broken.yaml", "--", "true"],
        &["mcp", "run", "--policy", "broken.yaml", "--", "cat"],
    ] {
        let outcome = Outcome::of(&mut place.agentsh(words));
        assert_eq!(outcome.code, 125, "{words:?} {outcome}");
        assert!(outcome.stderr.starts_with("error: "), "{outcome}");
    }
    let outcome = Outcome::of(place.agentsh(&["run", "--", "true"]).env_remove("HOME"));
    assert_eq!(outcome.code, 125, "{outcome}");
    let remedy = outcome.stderr.split('`').nth(1).expect(&outcome.stderr);
    // It is the account's; the user of a test may have none.
    let script =
        format!("unset HOME; {remedy}; test \"$HOME\" = \"$(getent passwd $(id -u) | cut -d: -f6)\"");
    Outcome::of(place.command("sh").args(["-c", &script])).expect_code(0);
}

/// 2 is what many programs say, so a wrong command line must be distinguished from them.
#[test]
fn exit_status_of_a_wrong_run_command_line_is_125() {
    let place = Place::new(Mode::Invoker);
    for words in [
        &["run"][..],
        &["run", "--nonsense", "--", "true"],
        &["run", "--network", "none", "--", "true"],
        &["mcp", "run"],
    ] {
        let outcome = Outcome::of(&mut place.agentsh(words));
        assert_eq!(outcome.code, 125, "{words:?} {outcome}");
    }
}

#[test]
fn error_message_contains_error_once() {
    let place = Place::new(Mode::Invoker);
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--policy", "no-such-policy", "--", "true"]));
    assert_eq!(outcome.stderr.matches("error: ").count(), 1, "{outcome}");
}

/// A state directory that cannot be written: nothing runs without a record.
#[test]
fn run_without_a_writable_state_directory_is_refused() {
    let place = Place::new(Mode::Invoker);
    let file = place.write("a-file", "");
    let outcome = Outcome::of(place.agentsh(&["run", "--", "echo", "ran"]).env("XDG_STATE_HOME", file));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome}");
}

/// A database that is locked, or that cannot be written: neither an agent nor a server starts. The twin runs when it
/// can.
#[test]
#[ignore = "takes long"]
fn unwritable_database_prevents_the_start() {
    let run = ["run", "--quiet", "--", "touch", "ran"];
    let serve = ["mcp", "run", "--", "touch", "ran"];
    for mode in Mode::all() {
        let place = Place::new(mode);
        Outcome::of(&mut place.agentsh(&["run", "--quiet", "--", "true"])).expect_code(0);
        let database = place.home.join(".local/state/agentsh/agentsh.db");
        let nothing_runs = |why: &str| {
            for words in [&run[..], &serve] {
                let outcome = Outcome::of(&mut place.agentsh(words)).expect_code(125);
                assert!(outcome.stderr.contains(why), "{mode:?} {outcome}");
                assert!(!place.project.join("ran").exists(), "{mode:?} {outcome}");
            }
        };
        let holder = rusqlite::Connection::open(&database).unwrap();
        holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
        nothing_runs("database is locked: another program has it locked");
        holder.execute_batch("ROLLBACK").unwrap();
        drop(holder);
        if mode == Mode::User {
            let permissions = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&database, permissions(0o400)).unwrap();
            nothing_runs("attempt to write a readonly database");
            // SQLite's further files have the mode of the database.
            for entry in std::fs::read_dir(database.parent().unwrap()).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with("agentsh.db") {
                    std::fs::set_permissions(entry.path(), permissions(0o600)).unwrap();
                }
            }
        }
        Outcome::of(&mut place.agentsh(&run)).expect_code(0);
        assert!(place.project.join("ran").exists());
    }
}

/// Signals that come from no terminal: of a supervisor, `timeout`, a script.
#[test]
#[allow(
    unsafe_code,
    reason = "the session and the signals of a script's background are left between fork and exec"
)]
fn a_signal_to_agentsh_reaches_the_agent() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let answers = "trap 'exit 9' INT; trap 'exit 11' QUIT; echo ready; while :; do sleep 0.05; done";
    let ignores = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    for (script, signals, code) in [
        (answers, &[Signal::SIGINT][..], 9),
        (answers, &[Signal::SIGQUIT], 11),
        (ignores, &[Signal::SIGTERM, Signal::SIGTERM, Signal::SIGTERM], 137),
    ] {
        let place = Place::new(Mode::Invoker);
        let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]);
        command.stdout(std::process::Stdio::piped());
        // SAFETY: only calls that may be made between fork and exec. A script's background ignores these signals.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                for signal in [Signal::SIGINT, Signal::SIGQUIT] {
                    nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl)?;
                }
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        for signal in signals {
            kill(pid, *signal).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signals:?}");
    }
}

/// A disk without room is named as such, with what can be done.
#[test]
fn full_disk_is_reported_as_such() {
    let place = Place::new(Mode::Invoker);
    if !crate::support::is_root() {
        return crate::support::skip("a small disk: the tests are not run by root");
    }
    let state = place.path("full");
    place.make_directory(&state);
    let agentsh = place.agentsh(&["run", "--", "true"]).get_program().to_owned();
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" || exit 99; mkdir \"$1/agentsh\"
        head -c 40960 /dev/zero >\"$1/filler\"; XDG_STATE_HOME=$1 \"$2\" run -- true";
    let mut command = place.command("/usr/bin/unshare");
    command.args(["-m", "/bin/sh", "-c", script, "sh"]).arg(&state).arg(agentsh);
    let outcome = Outcome::of(&mut command);
    if outcome.code == 99 {
        return crate::support::skip("a small disk: nothing can be mounted here");
    }
    assert_eq!(outcome.code, 125, "{outcome}");
    assert!(outcome.stderr.contains("no space left on its disk; free some"), "{outcome}");
    assert_eq!(outcome.stderr.matches("cannot open the event store").count(), 1, "{outcome}");
}

/// An answer that nobody got is not a success.
#[test]
fn exit_status_of_unwritable_output_is_125() {
    let place = Place::new(Mode::Invoker);
    for words in [&["mcp", "calls", "--json"][..], &["policy", "show"], &["doctor"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = place.agentsh(words).stdout(full).stderr(std::process::Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(125), "{words:?}");
    }
}

/// A command line that cannot be read: 2 of the verbs that the document names, 125 of every other one.
#[test]
fn exit_status_of_a_wrong_command_line_is_as_documented() {
    const DOCUMENT: &str = include_str!("../../docs/exit-statuses.md");
    let place = Place::new(Mode::Invoker);
    let named = DOCUMENT.split("exit with 2 for an invalid command line").nth(1).unwrap();
    let named: Vec<&str> =
        named.split('`').skip(1).step_by(2).filter(|word| !word.contains(' ') && *word != "2").collect();
    let help = Outcome::of(&mut place.agentsh(&["--help"])).expect_code(0).stdout;
    let verbs = commands(&help);
    let verbs: Vec<&str> = verbs.iter().map(String::as_str).collect();
    assert!(verbs.len() >= 30, "{help}");
    for verb in &named {
        assert!(verbs.contains(verb), "the document names `{verb}`, which is not a verb");
    }
    for verb in verbs {
        let outcome = Outcome::of(&mut place.agentsh(&[verb, "--no-such-option"]));
        let expected = if named.contains(&verb) { 2 } else { 125 };
        assert_eq!(outcome.code, expected, "{verb} {outcome}");
    }
    assert_eq!(Outcome::of(&mut place.agentsh(&["mcp", "run", "--no-such-option"])).code, 125);
}

/// A missing layer of a review means `no` (exit status 1), not an error.
#[test]
fn exit_status_is_1_without_anything_to_review_or_undo() {
    let place = Place::new(Mode::Invoker);
    place.write("kept.txt", "as it is");
    for words in [&["review"][..], &["review", "0123"], &["undo", "kept.txt"]] {
        let outcome = Outcome::of(&mut place.agentsh(words)).expect_code(1);
        assert!(outcome.stderr.starts_with("error: ") && outcome.stdout.is_empty(), "{outcome}");
    }
}

/// Servers use it for something else where no terminal has a size.
#[test]
fn a_resize_signal_reaches_a_program_without_a_terminal() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "trap 'echo heard; exit 5' WINCH; echo ready; while :; do sleep 0.05; done";
        let mut command = place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]);
        let mut child = command.process_group(0).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready", "{mode:?}");
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGWINCH).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "heard", "{mode:?}");
        assert_eq!(child.wait().unwrap().code(), Some(5), "{mode:?}");
    }
}
