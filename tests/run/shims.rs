//! `agentsh enable`: an agent is protected under its plain name.

use crate::support::{Mode, Outcome, Place};

/// An agent in a directory of PATH, outside of the project.
fn place(mode: Mode) -> Place {
    let place = Place::new(mode);
    let script = "#!/bin/sh\ntest -e /run/agentsh/agentsh && echo inside || echo outside\nprintf '[%s]' \"$@\"\ncat\nexit 7\n";
    place.script(place.home.join("tools/someagent"), script);
    place
}

fn shims(place: &Place) -> String {
    place.home.join(".local/share/agentsh/shims").display().to_string()
}

/// The name as a shell finds it.
fn typed(place: &Place, with_shims: bool, line: &str, off: bool) -> Outcome {
    let mut path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.home.join("tools").display());
    if with_shims {
        path = format!("{}:{path}", shims(place));
    }
    let mut command = place.command("sh");
    command.args(["-c", line]).env("PATH", path);
    if off {
        command.env("AGENTSH_SHIM", "off");
    }
    Outcome::with_input(&mut command, b"typed")
}

fn agentsh(place: &Place, words: &[&str], code: i32) -> Outcome {
    let path = format!("{}:{}:/usr/bin:/bin", shims(place), place.home.join("tools").display());
    Outcome::of(place.agentsh(words).env("PATH", path).env("SHELL", "/bin/bash")).expect_code(code)
}

#[test]
fn shim_protects_the_plain_agent_name_until_disabled() {
    for mode in Mode::all() {
        let place = place(mode);
        agentsh(&place, &["status"], 1);
        agentsh(&place, &["enable", "someagent"], 0);
        let line = "someagent 'a  b' --flag -- '*'";
        let outcome = typed(&place, true, line, false).expect_code(7);
        assert_eq!(outcome.stdout, "inside\n[a  b][--flag][--][*]typed", "{mode:?} {outcome}");
        let off = typed(&place, true, line, true).expect_code(7);
        assert_eq!(off.stdout, "outside\n[a  b][--flag][--][*]typed", "{off}");
        // agentsh itself means the program, and so does whatever runs inside.
        let binary = place.program("agentsh").display().to_string();
        let once = typed(&place, true, &format!("{binary} run --quiet -- someagent x"), false).expect_code(7);
        assert_eq!(once.stdout, "inside\n[x]typed", "{once}");
        assert!(agentsh(&place, &["status"], 0).stdout.contains("someagent\tprotected"));
        agentsh(&place, &["disable", "someagent"], 0);
        let after = typed(&place, true, line, false).expect_code(7);
        assert!(after.stdout.starts_with("outside"), "{after}");
        agentsh(&place, &["status"], 1);
    }
}

#[test]
fn shim_block_is_added_to_the_shell_file_once_and_removed_cleanly() {
    let place = place(Mode::Invoker);
    let file = place.write(place.home.join(".bashrc"), "alias l=ls\n");
    let without_path =
        |words: &[&str]| Outcome::of(place.agentsh(words).env("SHELL", "/bin/bash")).expect_code(0);
    assert!(without_path(&["enable", "someagent"]).stdout.contains("export PATH="));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "alias l=ls\n");
    for _ in 0..2 {
        without_path(&["enable", "--rc", "someagent", "claude"]);
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("export PATH=").count(), 1, "{text}");
    let sourced = typed(&place, false, ". ~/.bashrc; command -v claude", false).expect_code(0);
    assert_eq!(sourced.stdout.trim(), format!("{}/claude", shims(&place)));
    without_path(&["disable", "someagent"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "one is still enabled");
    without_path(&["disable", "--all"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "alias l=ls\n");
}

#[test]
fn shim_with_an_invalid_name_or_foreign_file_is_refused() {
    let place = place(Mode::Invoker);
    for name in ["../x", "a/b", "agentsh", "a b"] {
        agentsh(&place, &["enable", name], 2);
    }
    let own = place.write(format!("{}/codex", shims(&place)), "mine\n");
    let outcome = agentsh(&place, &["enable", "codex"], 125);
    assert!(outcome.stderr.contains("not agentsh's"), "{outcome}");
    agentsh(&place, &["disable", "codex"], 0);
    assert!(own.exists());
}
