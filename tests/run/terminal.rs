//! The agent keeps the terminal from which agentsh was started.

use crate::support::{Mode, Outcome, Place, Pty, eventually, skip};

#[test]
fn control_c_reaches_the_agent_and_its_exit_status_counts() {
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

/// A shell ends a loop only if the program in it dies by the signal.
#[test]
fn control_c_ends_the_loop_around_the_agent() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        let agent = "agentsh run --quiet -- sh -c \"echo rea''dy; exec sleep 30\"";
        terminal.write(&format!("for turn in 1 2 3; do {agent}; done\n"));
        terminal.expect("ready");
        terminal.write("\x03");
        terminal.write("echo st''atus $? $turn\n");
        terminal.expect("status 130 1");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

#[test]
fn window_size_and_its_changes_reach_the_agent() {
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
        // bash does not wait for a job that it still holds for stopped, nor exit next to one.
        terminal.write("bg\n");
        terminal.expect("sleep 100 &");
        terminal.write("kill -9 %1; wait; echo fin''ished\n");
        terminal.expect("finished");
        terminal.write("exit 6\n");
        assert_eq!(terminal.wait(), 6, "{mode:?}");
    }
}

/// After the agent's end the terminal belongs to the process that started agentsh.
#[test]
fn terminal_is_returned_to_the_caller() {
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
fn notices_do_not_disturb_a_full_screen_agent() {
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

/// An interactive shell on the terminal, as after a login, with agentsh in its path.
fn login(place: &Place) -> Pty {
    let directory = place.program("agentsh").parent().unwrap().display().to_string();
    let mut command = place.command("bash");
    command.args(["--norc", "--noprofile", "-i"]).env("PS1", "@ ").env("TERM", "xterm-256color");
    command.env("PATH", format!("{directory}:/usr/local/bin:/usr/bin:/bin"));
    let mut terminal = Pty::start(command);
    terminal.expect("@ ");
    terminal
}

/// Says that it was suspended and resumed, as full-screen programs draw again then.
const COOKED: &str = "trap 'echo re''sumed' CONT; echo rea''dy; while :; do sleep 0.05; done";

#[test]
fn control_z_stops_the_job_and_fg_resumes_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        terminal.write(&format!("agentsh run --quiet -- bash -c \"{COOKED}\"\n"));
        terminal.expect("ready");
        for _ in 0..3 {
            terminal.write("\x1a");
            terminal.expect("Stopped");
            terminal.write("echo sh''ell $((40+2))\n");
            terminal.expect("shell 42");
            terminal.write("fg\n");
            terminal.expect("resumed");
        }
        terminal.write("\x03");
        terminal.write("echo st''atus $?\n");
        terminal.expect("status 130");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

/// After `bg` the job runs, so `fg` sends it no signal.
#[test]
fn keys_reach_an_agent_that_fg_takes_from_the_background() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        terminal.write(&format!("agentsh run --quiet -- bash -c \"{COOKED}\"\n"));
        terminal.expect("ready");
        for wait in [20, 300, 20, 300] {
            terminal.write("\x1a");
            terminal.expect("Stopped");
            terminal.write("bg\n");
            terminal.expect("resumed");
            terminal.write("fg\n");
            terminal.expect("agentsh run");
            // agentsh has not noticed it yet, or it has.
            std::thread::sleep(std::time::Duration::from_millis(wait));
        }
        terminal.write("\x03");
        terminal.write("echo st''atus $?\n");
        terminal.expect("status 130");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

/// As full-screen programs do: Ctrl-Z is an ordinary key to it, and it stops itself.
#[test]
fn a_program_that_stops_itself_gives_the_terminal_to_the_shell() {
    let raw = "stty raw -echo; echo rea''dy; head -c 1 >/dev/null; stty sane; kill -STOP \\$\\$; echo ba''ck; tty; exit 5";
    let group = "echo rea''dy; kill -TSTP 0; echo ba''ck; tty; exit 5";
    for (script, key) in [(raw, "\x1a"), (group, "")] {
        for mode in Mode::all() {
            let place = Place::new(mode);
            let mut terminal = login(&place);
            terminal.write(&format!("agentsh run --quiet -- bash -c \"{script}\"\n"));
            terminal.expect("ready");
            terminal.write(key);
            terminal.expect("Stopped");
            terminal.write("echo sh''ell $((40+2)); fg\n");
            terminal.expect("shell 42");
            terminal.expect("back");
            terminal.expect("/dev/console");
            terminal.write("echo st''atus $?\n");
            terminal.expect("status 5");
            terminal.write("exit 3\n");
            assert_eq!(terminal.wait(), 3, "{mode:?}");
        }
    }
}

/// A shell inside has job control of its own; its `suspend` reaches the shell outside.
#[test]
fn a_shell_inside_is_suspended_and_resumed() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        terminal.write("PS1='in> ' agentsh run --quiet -- bash --norc -i\n");
        terminal.write("echo ins''ide\n");
        terminal.expect("inside");
        terminal.write("suspend\n");
        terminal.expect("Stopped");
        terminal.write("echo out''side; fg\n");
        terminal.expect("outside");
        terminal.write("echo ag''ain; sleep 100\n");
        terminal.expect("again");
        std::thread::sleep(std::time::Duration::from_millis(150));
        terminal.write("\x1a");
        terminal.expect("Stopped");
        terminal.write("kill -9 %1; wait; echo still ins''ide\n");
        terminal.expect("still inside");
        terminal.write("exit 7\n");
        terminal.write("echo st''atus $?\n");
        terminal.expect("status 7");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

/// In the background, and without a shell around it, an agent continues.
#[test]
fn stopped_agent_continues_if_nobody_could_resume_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "echo ready; kill -STOP $$; echo went on; exit 4";
        let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "bash", "-c", script]));
        terminal.expect("went on");
        assert_eq!(terminal.wait(), 4, "{mode:?}");
    }
}

/// Outside, a program that stops itself stops nobody else. `timeout` begins a process group, as a shell does for a job.
#[test]
fn without_a_terminal_an_agent_that_stops_itself_stops_nobody_else() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let agent = place.agentsh(&["run", "--quiet", "--", "sh", "-c", "kill -STOP $$; sleep 60"]);
        let mut command = place.command("setsid");
        command.args(["--wait", "timeout", "2"]).arg(agent.get_program()).args(agent.get_args());
        Outcome::of(&mut command).expect_code(124);
    }
}

#[test]
fn background_agent_continues_and_can_come_to_the_foreground() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        terminal.write("agentsh run --quiet -- bash -c \"echo rea''dy; read word; echo got-\\$word\"\n");
        terminal.expect("ready");
        terminal.write("\x1a");
        terminal.expect("Stopped");
        terminal.write("bg\n");
        terminal.write("while [[ $(jobs) != *Stopp''ed* ]]; do sleep 0.05; done; jobs\n");
        // It reads from a terminal that is not its own.
        terminal.expect("Stopped");
        terminal.write("fg\n");
        terminal.expect("agentsh run");
        terminal.write("answer\n");
        terminal.expect("got-answer");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

/// Whose the terminal is, a job that was never in front does not touch: the shell would be told that its input is at an end.
#[test]
fn background_agent_leaves_the_terminal_to_the_shell() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        terminal.write("agentsh run --quiet -- sleep 0.3 & wait; echo al''ive; exit 3\n");
        terminal.expect("alive");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

#[test]
fn a_caller_that_ignores_its_children_gets_the_status() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut terminal = login(&place);
        terminal
            .write("sh -c \"trap '' CHLD; exec agentsh run --quiet -- sh -c 'exit 6'\"; echo st''atus $?\n");
        terminal.expect("status 6");
        terminal.write("agentsh run --quiet -- sh -c \"trap 'echo he''ard; exit 5' USR1; echo rea''dy; sleep 9 & wait\" & sleep 1; kill -USR1 $!; wait $!; echo st''atus $?\n");
        terminal.expect("heard");
        terminal.expect("status 5");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

/// In tmux the cursor of the main screen is the one that any earlier program saved (`less` does) until a program saves another.
#[test]
fn messages_at_the_end_are_below_earlier_output_in_tmux() {
    if !std::path::Path::new("/usr/bin/tmux").exists() {
        return skip("there is no tmux here");
    }
    let place = Place::new(Mode::Invoker);
    let program = place.program("agentsh");
    let less = "printf '\\033[?1049h\\033[?1049l'";
    let script = format!("{less}; seq 1 9; {} run -- false; echo the end; sleep 60", program.display());
    place.write("steps.sh", script);
    let socket = place.path("run/tmux");
    let tmux = |words: &[&str]| Outcome::of(place.command("tmux").arg("-S").arg(&socket).args(words));
    tmux(&["new-session", "-d", "-x", "80", "-y", "24", "sh steps.sh"]).expect_code(0);
    let screen = || tmux(&["capture-pane", "-p"]).stdout;
    let is_over = eventually(|| screen().contains("the end"));
    let screen = screen();
    tmux(&["kill-server"]);
    let numbers: Vec<&str> = screen.lines().take(9).collect();
    assert!(is_over && numbers == ["1", "2", "3", "4", "5", "6", "7", "8", "9"], "{screen}");
}

/// Raw mode, the other screen, mouse, paste: whatever ends the run, they are switched off.
#[test]
#[ignore = "takes long"]
fn terminal_is_restored_for_every_kind_of_end() {
    const MESS: &str =
        "stty raw -echo; printf '\\033[?1049h\\033[?1003h\\033[?2004h\\033[?25l'; echo rea''dy;";
    let ends =
        [("kill -9 $$", ""), ("exit 1", ""), ("exit 0", ""), ("sleep 100", "KILL"), ("sleep 100", "TERM")];
    for (end, signal) in ends {
        for mode in Mode::all() {
            let place = Place::new(mode);
            place.write("mess.sh", format!("{MESS} {end}\n"));
            // A script: no shell restores anything.
            place.write(
                "job.sh",
                "agentsh run --quiet -- bash mess.sh; sleep 0.2; stty -a >after; echo un''til here\n",
            );
            let mut terminal = login(&place);
            terminal.write("sh job.sh\n");
            terminal.expect("ready");
            if !signal.is_empty() {
                let pid = agentsh_below(terminal.child.id());
                std::process::Command::new("kill")
                    .args([format!("-{signal}"), pid.to_string()])
                    .status()
                    .unwrap();
            }
            for sequence in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1003l", "\x1b[?2004l", "\x1b[<"] {
                terminal.expect(sequence);
            }
            terminal.expect("until here");
            let after = std::fs::read_to_string(place.project.join("after")).unwrap();
            let modes: Vec<&str> = after.split_whitespace().collect();
            for word in ["icanon", "echo", "isig", "opost", "icrnl"] {
                assert!(modes.contains(&word), "{end} {signal} {mode:?}: no {word} in {after}");
            }
            terminal.write("exit 3\n");
            assert_eq!(terminal.wait(), 3, "{mode:?}");
        }
    }
}

/// The shell shares the open terminal: a flag that a program left there would end its own reading and writing.
#[test]
fn flags_of_the_open_terminal_are_given_back() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write(
            "job.sh",
            "grep flags /proc/self/fdinfo/2 >before\nagentsh run --quiet -- perl -e \
             'use Fcntl; fcntl(STDOUT, F_SETFL, fcntl(STDOUT, F_GETFL, 0) | O_NONBLOCK) or die; system(\"grep flags /proc/self/fdinfo/2 >during\")'\n\
             grep flags /proc/self/fdinfo/2 >after\necho un''til here\n",
        );
        let mut terminal = login(&place);
        terminal.write("sh job.sh\n");
        terminal.expect("until here");
        let read = |name: &str| std::fs::read_to_string(place.project.join(name)).unwrap();
        assert_ne!(read("before"), read("during"), "{mode:?}");
        assert_eq!(read("before"), read("after"), "{mode:?}");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

/// The session among the descendants of a process.
fn agentsh_below(pid: u32) -> u32 {
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split('\0');
        if words.next().is_some_and(|word| word.ends_with("agentsh")) && words.next() == Some("run") {
            return pid;
        }
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        open.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    panic!("no session below {pid}");
}

/// A program that ends well and left everything as it was: not one byte is added.
#[test]
fn terminal_gets_no_byte_after_a_good_end() {
    let place = Place::new(Mode::Invoker);
    let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "echo", "only this"]));
    assert_eq!(terminal.wait(), 0);
    terminal.expect("only this");
    assert_eq!(terminal.text(), "only this\r\n");
}

/// Clients show no more than that a server failed.
#[test]
fn server_whose_program_changed_is_told_while_the_agent_draws() {
    let place = Place::new(Mode::Invoker);
    let server = place.script(place.home.join("tools/server"), "#!/bin/sh\nexit 3\n");
    let servers = serde_json::json!({"mcpServers": {"tool": {"command": server, "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let script = "#!/bin/sh\n/run/agentsh/agentsh call tool any '{}'; sleep 0.5; echo drawn\n";
    let claude = place.script(place.project.join("bin/claude"), script);
    let run = || Pty::start(place.agentsh(&["run", "--", claude.to_str().unwrap()])).whole().1;
    assert!(!run().contains("was not started"));
    place.script(&server, "#!/bin/sh\nexit 4\n");
    let text = run();
    let notice =
        text.find("\x1b]9;agentsh: server 'tool' was not started: its program changed").expect(&text);
    assert!(notice < text.find("drawn").unwrap(), "{text:?}");
}

/// While the agent draws, a refusal is shown as a terminal notification, and in full when the agent has ended.
#[test]
fn refusal_is_reported_while_the_agent_draws() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("version: 1\nagent:\n  network: {unknown: deny}\n");
    let script = "getent hosts refused.example; sleep 0.5; echo drawn";
    let mut terminal = Pty::start(place.agentsh(&["run", "--", "sh", "-c", script]));
    let (code, text) = terminal.whole();
    assert_eq!(code, 0, "{text:?}");
    let notice = text.find("\x1b]9;agentsh: refused: the agent -> refused.example (").expect("told beside");
    assert!(notice < text.find("drawn").unwrap(), "{text:?}");
    let after = &text[text.find("drawn").unwrap()..];
    // Once: in the summary, or as a message if there is no summary.
    assert!(!after.contains("agentsh: refused: "), "{text:?}");
    assert!(after.contains(": the agent -> refused.example ("), "{text:?}");
    let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", script]));
    let (code, text) = terminal.whole();
    assert_eq!(code, 0, "{text:?}");
    let after = &text[text.find("drawn").unwrap()..];
    assert!(after.contains("agentsh: refused: the agent -> refused.example ("), "{text:?}");
}

/// Modes that an agent switches on, keys of the kitty protocol, reports of the mouse and pasted text go both ways as they
/// are, byte by byte.
#[test]
fn terminal_modes_and_input_of_full_screen_programs_pass() {
    /// What the program asks of the terminal: the other screen, mouse (SGR), paste, focus, kitty keyboard, title.
    const ASKED: &str =
        "\x1b[?1049h\x1b[?1003;1006h\x1b[?2004h\x1b[?1004h\x1b[>1u\x1b[?2026h\x1b[?2026l\x1b]0;a title\x07";
    /// What the terminal answers: pasted lines, a key of the protocol and its release, the mouse, focus, another letter.
    const TYPED: &str = "\x1b[200~rm -rf /\necho no\n\x1b[201~\x1b[97;5u\x1b[97;5:3u\x1b[<0;10;5M\x1b[<0;10;5m\x1b[<64;1;1M\x1b[I\x03\x1aé🦀";
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.write("asked", ASKED);
        let script =
            format!("stty raw -echo; cat asked; printf 'rea''dy'; head -c {} > typed; exit 4", TYPED.len());
        let mut terminal = Pty::start(place.agentsh(&["run", "--quiet", "--", "sh", "-c", &script]));
        terminal.expect("ready");
        let shown = terminal.text();
        assert!(shown.contains(ASKED), "{mode:?} {shown:?}");
        terminal.write(TYPED);
        assert_eq!(terminal.wait(), 4, "{mode:?}");
        assert_eq!(std::fs::read_to_string(place.project.join("typed")).unwrap(), TYPED, "{mode:?}");
    }
}

/// A window that changes its size while the program is stopped has it when the program continues.
#[test]
fn window_size_changed_while_stopped_reaches_the_agent() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = "trap 'stty size; exit 4' CONT; echo rea''dy; while :; do sleep 0.05; done";
        let mut terminal = login(&place);
        terminal.write(&format!("agentsh run --quiet -- bash -c \"{script}\"\n"));
        terminal.expect("ready");
        terminal.write("\x1a");
        terminal.expect("Stopped");
        terminal.resize(40, 132);
        terminal.write("fg\n");
        terminal.expect("40 132");
        terminal.write("echo st''atus $?\n");
        terminal.expect("status 4");
        terminal.write("exit 3\n");
        assert_eq!(terminal.wait(), 3, "{mode:?}");
    }
}

#[test]
fn terminal_stopped_by_the_program_accepts_later_output() {
    if !crate::day::has("python3") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    let mut terminal = login(&place);
    let stop = "python3 -c 'import termios; termios.tcflow(0, termios.TCOOFF)'";
    terminal.write(&format!("agentsh run --quiet -- {stop}\n"));
    terminal.write("echo st''atus $?\n");
    terminal.expect("status 0");
    terminal.write("exit 3\n");
    assert_eq!(terminal.wait(), 3);
}
