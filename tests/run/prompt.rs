//! Questions on the terminal from which agentsh was started, where the agent leaves it alone.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Place, Pty, eventually};

const POLICY: &str = "version: 1\nsandbox:\n  mcp:\n    approvals: {wait: 60s}\n    rules:\n      \
    - {name: sums, tool: add, when: [{path: /b, equals: \"40\"}], action: ask, reason: sums of forty are delicate}\n";

/// A shell as Claude Code, with the server `fixture`.
fn agent(place: &Place, script: &str, words: &[&str]) -> Command {
    let servers =
        json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    place.user_policy(POLICY);
    let script = format!("#!/bin/sh\ncall() {{ /run/agentsh/agentsh call \"$@\"; }}\n{script}\n");
    let claude = place.script(place.project.join("bin/claude"), &script);
    let mut command = place.agentsh(&["run", "--"]);
    command.arg(claude).args(words);
    command
}

fn add(a: u32) -> String {
    format!("call fixture add '{{\"a\": {a}, \"b\": 40}}'; echo \"status $?\"")
}

fn decided(place: &Place) -> Vec<(Value, Value, Value)> {
    let events = place.events("approval_decided");
    events.iter().map(|event| (event["word"].clone(), event["scope"].clone(), event["by"].clone())).collect()
}

#[test]
fn agent_for_one_task_waits_for_an_answer_on_the_terminal() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = [add(2), add(2), add(3), add(4), add(4)].join("\n");
        let mut terminal = Pty::start(agent(&place, &script, &["-p", "task"]));
        let question = |terminal: &mut Pty| {
            terminal.expect("'add' of server 'fixture' waits for your answer: sums of forty are delicate");
            terminal.expect("policy.yaml:6");
            terminal.expect("\"b\": 40");
            terminal
                .expect("always would write: - {server: \"fixture\", tool: \"add\", arguments: \"sha256:");
            terminal.expect("n (no)? ");
        };
        question(&mut terminal);
        // Enter alone is not an answer.
        terminal.write("\n");
        terminal.expect("n (no)? ");
        terminal.write("y\n");
        terminal.expect("42");
        terminal.expect("status 0");
        // Once was once.
        question(&mut terminal);
        terminal.write("n\n");
        terminal.expect("the user said no");
        terminal.expect("status 1");
        question(&mut terminal);
        terminal.write("a\n");
        terminal.expect("approved.yaml: - {server: \"fixture\", tool: \"add\", arguments: \"sha256:");
        terminal.expect("status 0");
        question(&mut terminal);
        terminal.write("session\n");
        terminal.expect("status 0");
        terminal.expect("status 0");
        assert_eq!(terminal.wait(), 0, "{mode:?} {}", terminal.text());
        let on = |word: &str, scope: Value| (json!(word), scope, json!("the terminal"));
        let expected = [
            on("approved", json!("once")),
            on("denied", Value::Null),
            on("approved", json!("always")),
            on("approved", json!("session")),
        ];
        assert_eq!(decided(&place), expected, "{mode:?}");
        let show = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0);
        assert!(show.stdout.contains("approved.yaml:5"), "{show}");
    }
}

/// Background processes of the agent read no answer and draw over no question, and keys typed before a question do
/// not answer it.
#[test]
fn agent_processes_cannot_answer_or_hide_a_question() {
    let place = Place::new(Mode::Invoker);
    let script = format!(
        "while read -r line </dev/tty; do echo \"stolen $line\"; done &\n\
         while :; do echo tick; sleep 0.05; done &\n\
         echo ready; {}; kill %1 %2; kill $(jobs -p); exit 0",
        add(2)
    );
    let mut terminal = Pty::start(agent(&place, &script, &["-p", "task"]));
    terminal.expect("tick");
    terminal.write("y\n");
    terminal.expect("n (no)? ");
    let before = terminal.text().matches("tick").count();
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert_eq!(terminal.text().matches("tick").count(), before, "the agent is stopped");
    assert!(decided(&place).is_empty(), "typed before");
    terminal.write("s\n");
    terminal.expect("status 0");
    terminal.wait();
    assert!(!terminal.text().contains("stolen s"), "{}", terminal.text());
    assert_eq!(decided(&place).len(), 1);
}

/// With a person at its keys, or in control of them, an agent keeps its terminal.
#[test]
fn an_agent_that_uses_its_terminal_is_not_disturbed() {
    let place = Place::new(Mode::Invoker);
    let read = "read word; echo \"read $word\"";
    for (words, script) in [
        (&["task"][..], format!("({}) & {read}; wait", add(2))),
        (
            &["-p", "task"][..],
            format!("stty raw -echo; ({}) & head -c 2 | od -An -c; stty sane; wait", add(2)),
        ),
    ] {
        let mut terminal = Pty::start(agent(&place, &script, words));
        terminal.expect("waits for your answer");
        let id = || {
            let listed = Outcome::of(&mut place.agentsh(&["approvals", "list", "--json"])).expect_code(0);
            let items: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
            items.first().map(|item| item["id"].as_str().unwrap().to_owned())
        };
        assert!(eventually(|| id().is_some()));
        terminal.write("y\n");
        terminal.expect(if words.len() == 1 { "read y" } else { "y" });
        let id = id().expect("still there");
        Outcome::of(&mut place.agentsh(&["approvals", "deny", &id])).expect_code(0);
        terminal.expect("status 1");
        terminal.wait();
        assert!(!terminal.text().contains("n (no)?"), "{}", terminal.text());
    }
}

/// The question is answered elsewhere, or Ctrl-C gives it up: the agent continues.
#[test]
fn answered_question_releases_the_terminal() {
    let place = Place::new(Mode::Invoker);
    let mut terminal = Pty::start(agent(&place, &add(2), &["-p", "task"]));
    terminal.expect("n (no)? ");
    let listed = Outcome::of(&mut place.agentsh(&["approvals", "list", "--json"])).expect_code(0);
    let items: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    Outcome::of(&mut place.agentsh(&["approvals", "approve", items[0]["id"].as_str().unwrap()]))
        .expect_code(0);
    terminal.expect("that question has expired");
    terminal.expect("status 0");
    assert_eq!(terminal.wait(), 0);
    let mut terminal = Pty::start(agent(&place, &add(2), &["-p", "task"]));
    terminal.expect("n (no)? ");
    terminal.write("\x03");
    assert_eq!(terminal.wait(), 130, "{}", terminal.text());
    assert_eq!(decided(&place).last().unwrap().0, "withdrawn");
}

/// A program that cannot be stopped: its first thread is gone, and a timer wakes it whenever it is stopped.
const RESTLESS: &str = r#"
import ctypes, sys, threading, time
def tick():
    while True:
        print("tick", flush=True)
        time.sleep(0.02)
libc = ctypes.CDLL(None)
if sys.argv[1] == "wakes":
    event = (ctypes.c_int * 16)(0, 0, 18, 0)
    timer = ctypes.c_void_p()
    every = (ctypes.c_long * 4)(0, 100_000_000, 0, 100_000_000)
    # Handled, or some kernels send it once only.
    libc.signal(18, libc.abs)
    assert libc.timer_create(1, event, ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, every, None) == 0
threading.Thread(target=tick).start()
libc.syscall(60, 0)
"#;

/// A process of which the first thread has ended is stopped as any other; where one can wake itself, no answer counts.
#[test]
#[ignore = "takes long"]
fn answer_does_not_count_if_a_process_cannot_be_stopped() {
    for mode in Mode::all() {
        for how in ["sleeps", "wakes"] {
            let place = Place::new(mode);
            place.write("restless.py", RESTLESS);
            let script = format!(
                "printf '\\033[8m\\033(0\\033]0;'\npython3 restless.py {how} & sleep 0.5; {}; kill -9 %1; exit 0",
                add(2)
            );
            let mut command = agent(&place, &script, &["-p", "task"]);
            command.env("TERM", "xterm");
            let mut terminal = Pty::start(command);
            terminal.expect("tick");
            // Modes that the agent switched on are off before the question.
            terminal.expect("\x1b\\\x1b7");
            terminal.expect("\x1b[0m\x1b(B");
            terminal.expect("n (no)? ");
            let ticks = |terminal: &Pty| terminal.text().matches("tick").count();
            let before = ticks(&terminal);
            std::thread::sleep(std::time::Duration::from_millis(500));
            let has_run = ticks(&terminal) != before;
            assert!(how == "wakes" || !has_run, "{mode:?} {}", terminal.text());
            terminal.write("s\n");
            if has_run {
                terminal.expect("this answer does not count");
                assert!(decided(&place).is_empty(), "{mode:?}");
                let listed = Outcome::of(&mut place.agentsh(&["approvals", "list", "--json"])).expect_code(0);
                let items: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
                let id = items[0]["id"].as_str().unwrap();
                Outcome::of(&mut place.agentsh(&["approvals", "deny", id])).expect_code(0);
                terminal.expect("status 1");
            } else {
                terminal.expect("status 0");
            }
            terminal.wait();
        }
    }
}

/// Output that the agent stopped, or directions that it reversed, do not make a question unreadable.
#[test]
fn question_is_shown_on_a_stopped_terminal() {
    if !crate::day::has("python3") {
        return;
    }
    let place = Place::new(Mode::Invoker);
    place.set("TERM", "xterm-256color");
    let stop = "python3 -c 'import termios; termios.tcflow(0, termios.TCOOFF)'";
    let script = format!("printf '\\033[?69h\\033[5;6s'; {stop}; {}", add(2));
    let mut terminal = Pty::start(agent(&place, &script, &["-p", "task"]));
    for order in ["\x1b<", "\x1b[?69l", "\x1b[?2501l", "\x1b_Ga=d"] {
        terminal.expect(order);
    }
    terminal.expect("n (no)? ");
    terminal.write("y\n");
    terminal.expect("status 0");
    assert_eq!(terminal.wait(), 0, "{}", terminal.text());
}

/// The terminal modes that an agent sets apply to the agent: a question gets the modes from before the run, and the
/// agent gets its own back.
#[test]
fn question_uses_the_terminal_modes_from_before_the_run() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.set("TERM", "xterm-256color");
        let script = format!(
            "stty -opost -icrnl intr y eol s; printf '\\033[8m\\033[?1049h\\033[?25l'; {}; stty -a >after",
            add(2)
        );
        let mut terminal = Pty::start(agent(&place, &script, &["-p", "task"]));
        terminal.expect("\x1b[?25l");
        for order in ["\x1b[#{", "\x1b[?1049l", "\x1b[0m", "\x1b[?25h", "\r\n  rule: ", "n (no)? "] {
            terminal.expect(order);
        }
        terminal.write("y\r");
        for order in ["r\x1b[#}", "status 0"] {
            terminal.expect(order);
        }
        assert_eq!(terminal.wait(), 0, "{mode:?} {}", terminal.text());
        let after = std::fs::read_to_string(place.project.join("after")).unwrap();
        for word in ["-opost", "-icrnl", "intr = y;", "eol = s;"] {
            assert!(after.contains(word), "{mode:?}: no {word} in {after}");
        }
    }
}
