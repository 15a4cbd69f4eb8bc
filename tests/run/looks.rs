//! The output that people see: colours where wanted, examples, exit statuses like those of a shell.

use crate::support::{Mode, Outcome, Peer, Place, Pty, eventually, without_colour};

fn in_terminal(place: &Place, words: &[&str], columns: u16) -> String {
    place.set("TERM", "xterm-256color");
    let mut pty = Pty::sized(place.agentsh(words), columns);
    pty.wait();
    // Events may not be on disk yet.
    let settled = || {
        let before = pty.text();
        std::thread::sleep(std::time::Duration::from_millis(20));
        !before.trim().is_empty() && pty.text() == before
    };
    assert!(eventually(settled), "{words:?}");
    pty.text()
}

#[test]
fn colour_is_for_terminals_and_repeats_the_words() {
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
fn tables_are_not_wider_than_the_terminal() {
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

/// Empty lists say so: in a terminal, in a pipe, at any width.
#[test]
fn empty_lists_are_reported_as_empty() {
    let place = Place::new(Mode::Invoker);
    for (words, nothing) in [
        (&["sessions"][..], "no session is recorded"),
        (&["report", "list"], "no session is recorded"),
        (&["report"], "error: no session is recorded"),
        (&["mcp", "servers"], "nothing is recorded"),
        (&["mcp", "tools"], "nothing is recorded"),
        (&["mcp", "events"], "nothing is recorded"),
        (&["mcp", "calls"], "nothing is recorded"),
        (&["mcp", "detections"], "no detections recorded; "),
        (&["mcp", "pins", "list"], "nothing is pinned; "),
        (&["mcp", "inventory"], "no tools recorded yet"),
        (&["approvals", "list"], "no pending approvals"),
        (&["review", "--list"], "no session has a layer"),
        (&["profile", "list"], "no profiles; to make one: `agentsh profile add NAME -- CMD`"),
        (&["status"], "no agent is enabled; to protect one: `agentsh enable claude`"),
        (&["advisories", "list"], "no server has been started yet"),
        (&["events", "verify"], "ok: 0 events in 0 sessions"),
    ] {
        let piped = Outcome::of(&mut place.agentsh(words));
        let all = format!("{}{}", piped.stdout, piped.stderr);
        assert!(all.contains(nothing), "{words:?} {piped}");
        assert!(!all.contains('\x1b'), "{words:?} {piped}");
        for columns in [80, 120] {
            let shown = without_colour(&in_terminal(&place, words, columns));
            assert!(shown.contains(nothing), "{words:?} {columns}: {shown}");
            let widest = shown.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= usize::from(columns) + 10, "{words:?} {columns}: {shown}");
        }
    }
}

/// With something on record: at both widths, in colour and without, the same words, and none of them broken.
#[test]
fn lists_say_the_same_at_every_width_and_break_no_word() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    peer.text("echo", serde_json::json!({"text": "x"}));
    peer.finish();
    place.shell("getent hosts one.example.com; getent hosts two.example.com; exit 3");
    let verbs =
        [&["sessions"][..], &["report"], &["mcp", "servers"], &["mcp", "events"], &["mcp", "pins", "list"]];
    let coloured: Vec<Vec<String>> = verbs
        .iter()
        .map(|words| [80, 120].map(|columns| in_terminal(&place, words, columns)).to_vec())
        .collect();
    place.set("NO_COLOR", "1");
    for (words, coloured) in verbs.iter().zip(coloured) {
        for (columns, coloured) in [80, 120].into_iter().zip(coloured) {
            let plain = in_terminal(&place, words, columns);
            assert!(!plain.contains('\x1b') && coloured.contains("\x1b["), "{words:?} {columns}: {coloured}");
            assert_eq!(without_colour(&coloured), plain, "{words:?} {columns}");
            let widest = plain.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
            assert!(widest <= usize::from(columns), "{words:?} {columns}: {plain}");
        }
    }
    // A reason is deep in a cell that is wrapped.
    let refused = place.events("dns_blocked").len();
    assert!(refused >= 2);
    for columns in [80, 120] {
        let shown = in_terminal(&place, &["mcp", "events", "--type", "dns_blocked"], columns);
        assert_eq!(shown.matches("name-not-allowed").count(), refused, "{columns}: {shown}");
    }
}

/// A program asks for one name again and again: the list counts hosts, as the summary after the run does.
#[test]
fn refused_hosts_are_counted_and_not_questions() {
    let place = Place::new(Mode::Invoker);
    let script =
        "getent hosts one.example.com; getent hosts one.example.com; getent hosts two.example.com; true";
    let outcome = Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script])).expect_code(0);
    assert!(outcome.stderr.contains(": 2 hosts refused"), "{outcome}");
    // Both kinds of address are one question, and a name is looked up as it is written.
    let line = "refused: the agent -> one.example.com, two.example.com (name not allowed, by";
    assert!(outcome.stderr.contains(line), "{outcome}");
    assert_eq!(place.events("dns_blocked").len(), 3);
    let session = &place.listed(&["sessions", "--json"])[0];
    assert_eq!((&session["refused"], &session["hosts_refused"]), (&0.into(), &2.into()), "{session}");
}

#[test]
fn help_texts_end_with_examples() {
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
fn exit_status_is_127_for_a_missing_program_and_126_for_an_unexecutable_one() {
    let place = Place::new(Mode::Invoker);
    let run = |words: &[&str]| Outcome::of(&mut place.agentsh(words));
    // The `--` is optional.
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
