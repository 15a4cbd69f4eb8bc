//! The program of a server is the pinned one, or it does not start.

mod asked;
mod audience;
mod interface;
mod race;
mod released;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place};

/// A server that is a script: a copy of the shell as its interpreter, so that this test may change it too.
struct Script {
    interpreter: PathBuf,
    entry: PathBuf,
}

const GREETING: &str = "echo hello-from-the-script >&2";
/// Answers one request and waits for the end.
const ANSWER: &str =
    "read -r line\nprintf '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\\n'\ncat >/dev/null\n";

impl Script {
    fn new(place: &Place) -> Self {
        let interpreter = place.home.join("tools/shell");
        place.script(&interpreter, "");
        std::fs::copy("/bin/sh", &interpreter).unwrap();
        place.own(&interpreter);
        let entry = place.home.join("tools/server");
        let text = format!("#!{}\n{GREETING}\n{ANSWER}", interpreter.display());
        place.script(&entry, &text);
        Self { interpreter, entry }
    }
}

/// Starts the server, sends it a request, and returns its standard error and its answer.
fn start(place: &Place, entry: &Path) -> (String, Option<Value>) {
    let mut command = place.agentsh(&["mcp", "run", "--id", "pinned", "--"]);
    let mut peer = Peer::start(command.arg(entry));
    peer.ask("ping", json!({}));
    let answer = peer.line_within(crate::support::patience(std::time::Duration::from_secs(10)));
    let answer = answer.map(|line| serde_json::from_slice(&line).unwrap());
    (peer.finish().1, answer)
}

#[track_caller]
fn runs(place: &Place, entry: &Path) {
    let (errors, answer) = start(place, entry);
    assert!(errors.contains("hello-from-the-script"), "{:?} {errors} {answer:?}", place.mode);
}

#[track_caller]
fn refused(place: &Place, entry: &Path, names: &Path) -> String {
    let (errors, answer) = start(place, entry);
    assert!(!errors.contains("hello-from-the-script"), "{:?} it ran: {errors}", place.mode);
    let answer = answer.unwrap_or_else(|| panic!("{:?} no answer: {errors}", place.mode));
    let message = answer["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(&names.display().to_string()), "{:?} {message}", place.mode);
    assert!(message.contains("agentsh mcp pins trust --server pinned"), "{message}");
    message
}

fn agentsh(place: &Place, words: &[&str]) -> Outcome {
    Outcome::of(&mut place.agentsh(words))
}

#[test]
#[ignore = "takes long"]
fn the_first_use_pins_and_a_change_of_the_entry_is_refused() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = Script::new(&place);
        runs(&place, &script.entry);
        runs(&place, &script.entry);
        let listed = agentsh(&place, &["mcp", "pins", "list", "--json"]).expect_code(0);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        assert_eq!(
            (&listed[0]["server_id"], &listed[0]["trusted_by"]),
            (&json!("pinned"), &json!("first-use"))
        );

        let text = std::fs::read_to_string(&script.entry).unwrap();
        place.script(&script.entry, &text.replace("cat >", "touch added-by-the-attacker\ncat >"));
        refused(&place, &script.entry, &script.entry);
        refused(&place, &script.entry, &script.entry);

        let diff = agentsh(&place, &["mcp", "pins", "diff", "--server", "pinned"]);
        assert!(diff.stdout.contains("+touch added-by-the-attacker"), "{diff}");
        assert!(!diff.stdout.contains("+cat"), "{diff}");
        agentsh(&place, &["mcp", "pins", "trust", "--server", "pinned"]).expect_code(0);
        runs(&place, &script.entry);
        let events = agentsh(&place, &["mcp", "events", "--type", "mcp_server_binary_mismatch", "--json"])
            .expect_code(0);
        let events: Vec<Value> = serde_json::from_str(&events.stdout).unwrap();
        assert_eq!(events.len(), 2, "{events:?}");
        for name in ["binaryPath", "expectedHash", "actualHash"] {
            assert!(events[0][name].is_string(), "{name} {events:?}");
        }
        assert_eq!(events[0]["binaryPath"], json!(script.entry), "{events:?}");
        agentsh(&place, &["events", "verify"]).expect_code(0);
    }
}

#[test]
fn a_change_of_the_interpreter_is_refused() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = Script::new(&place);
        runs(&place, &script.entry);
        let mut bytes = std::fs::read(&script.interpreter).unwrap();
        bytes.push(0);
        std::fs::write(&script.interpreter, bytes).unwrap();
        refused(&place, &script.entry, &script.interpreter);
    }
}

#[test]
fn a_change_of_a_file_in_the_tree_is_refused() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        if !Path::new("/usr/bin/node").exists() {
            return crate::support::skip("node is not installed");
        }
        let package = place.home.join("tools/package");
        place.write(package.join("package.json"), r#"{"name": "p", "version": "1.0.0", "main": "index.js"}"#);
        let library = place
            .write(package.join("node_modules/dep/index.js"), "module.exports = 'hello-from-the-script';\n");
        place.write(package.join("node_modules/dep/package.json"), r#"{"name": "dep", "version": "1.0.0"}"#);
        let entry =
            place.write(package.join("index.js"), "console.error(require('dep')); console.log('{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}'); process.stdin.resume();\n");
        let start = || {
            let mut command = place.agentsh(&["mcp", "run", "--id", "pinned", "--", "node"]);
            let mut peer = Peer::start(command.arg(&entry));
            peer.ask("ping", json!({}));
            let answer = peer.line_within(crate::support::patience(std::time::Duration::from_secs(10)));
            (peer.finish().1, String::from_utf8_lossy(&answer.unwrap_or_default()).into_owned())
        };
        let (errors, answer) = start();
        assert!(errors.contains("hello-from-the-script"), "{mode:?} {errors} {answer}");
        place.write(&library, "module.exports = 'evil-bytes';\n");
        let (errors, answer) = start();
        assert!(!errors.contains("evil-bytes"), "{mode:?} {errors}");
        assert!(answer.contains("node_modules/dep/index.js"), "{mode:?} {errors} {answer}");
    }
}

#[test]
fn another_program_under_the_same_name_is_refused() {
    let place = Place::new(Mode::Invoker);
    let script = Script::new(&place);
    runs(&place, &script.entry);
    let other = place.script(place.home.join("tools/other"), &format!("#!/bin/sh\n{GREETING}\n{ANSWER}"));
    refused(&place, &other, &other);
}

/// A server that the user started without a name is the file, not the file's name.
#[test]
fn servers_of_two_projects_with_the_same_file_name_have_a_pin_each() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let start = |project: &str, words: &[&str]| {
            let mut command = place.agentsh(&["mcp", "run"]);
            let mut peer = Peer::start(command.args(words).current_dir(place.home.join(project)));
            peer.ask("ping", json!({}));
            peer.line_within(crate::support::patience(std::time::Duration::from_secs(10)));
            peer.finish().1
        };
        let write = |project: &str, said: &str| {
            let file = place.home.join(project).join("server");
            place.script(file, &format!("#!/bin/sh\necho said-{said} >&2\n{ANSWER}"));
        };
        let (typed, by_shell, named): (&[&str], &[&str], &[&str]) =
            (&["--", "./server"], &["--", "sh", "server"], &["--id", "server", "--", "./server"]);
        for project in ["old", "one", "two"] {
            write(project, project);
        }
        // As an earlier version pinned it.
        assert!(start("old", named).contains("said-old"), "{mode:?}");
        for project in ["one", "two", "old", "one", "two"] {
            for words in [typed, by_shell] {
                let errors = start(project, words);
                assert!(errors.contains(&format!("said-{project}")), "{mode:?} {project} {errors}");
            }
        }
        for project in ["two", "old"] {
            write(project, "evil");
            let errors = start(project, typed);
            assert!(!errors.contains("said-evil"), "{mode:?} {project} {errors}");
            assert!(errors.contains("differs from its pin"), "{mode:?} {project} {errors}");
        }
        assert!(start("one", typed).contains("said-one"), "{mode:?}");
        let directory = place.home.join("two").display().to_string();
        agentsh(&place, &["mcp", "pins", "trust", "--server", "server", "--scope", &directory])
            .expect_code(0);
        assert!(start("two", typed).contains("said-evil"), "{mode:?}");
        assert!(!start("one", named).contains("said-one"), "{mode:?}: a given name is one server");
    }
}

/// The same for a program of a project's own virtual environment.
/// What is kept of a server for a later difference is bounded; packages do not take the room of its own files.
#[test]
fn the_difference_of_an_own_file_is_shown_beside_many_packages() {
    if !Path::new("/usr/bin/node").exists() {
        return crate::support::skip("node is not installed");
    }
    let place = Place::new(Mode::Invoker);
    let package = place.home.join("tools/package");
    place.write(package.join("package.json"), r#"{"name": "p", "version": "1.0.0"}"#);
    for number in 0..40 {
        place.write(package.join(format!("node_modules/dep{number}/index.js")), "x".repeat(200_000));
    }
    let own = place.write(package.join("src/table.js"), "exports.greeting = 'before';\n");
    let entry = place.write(package.join("server.js"), "require('./src/table'); process.stdin.resume();\n");
    let start = || {
        let mut command = place.agentsh(&["mcp", "run", "--id", "pinned", "--", "node"]);
        Outcome::of(command.arg(&entry).stdin(std::process::Stdio::null()))
    };
    start();
    place.write(&own, "exports.greeting = 'after';\n");
    start();
    let diff = agentsh(&place, &["mcp", "pins", "diff", "--server", "pinned"]);
    assert!(diff.stdout.contains("+exports.greeting = 'after';"), "{diff}");
}

#[test]
fn programs_of_two_virtual_environments_have_a_pin_each() {
    if !Path::new("/usr/bin/python3").exists() {
        return crate::support::skip("python3 is not installed");
    }
    let place = Place::new(Mode::Invoker);
    let make = "for name in one two; do mkdir -p ~/$name; cd ~/$name; python3 -m venv --without-pip .venv
        at=.venv/lib/python3.$(python3 -c 'import sys; print(sys.version_info[1])')/site-packages/$name-0.1.dist-info
        mkdir -p $at; echo '../../../bin/server,,' >$at/RECORD; printf 'Name: %s\nVersion: 0.1\n' $name >$at/METADATA
        printf '#!%s/.venv/bin/python3\nimport sys; print(\"said-%s\", file=sys.stderr); input()\n' $PWD $name >.venv/bin/server
        chmod +x .venv/bin/server; done";
    Outcome::of(place.command("sh").args(["-ec", make])).expect_code(0);
    for project in ["one", "two", "one"] {
        let mut command = place.agentsh(&["mcp", "run", "--", ".venv/bin/server"]);
        let mut peer = Peer::start(command.current_dir(place.home.join(project)));
        peer.ask("ping", json!({}));
        peer.line_within(crate::support::patience(std::time::Duration::from_secs(10)));
        let errors = peer.finish().1;
        assert!(errors.contains(&format!("said-{project}")), "{project} {errors}");
    }
    let listed = agentsh(&place, &["mcp", "pins", "list", "--json"]).expect_code(0).stdout;
    assert!(listed.contains("pypi:one@0.1") && listed.contains("pypi:two@0.1"), "{listed}");
}

#[test]
fn on_change_alert_starts_a_changed_program_with_a_report_and_allow_without() {
    for (word, said) in [("alert", true), ("allow", false)] {
        let place = Place::new(Mode::Invoker);
        let script = Script::new(&place);
        place.policy(&format!(
            "sandbox: {{mcp: {{version_pinning: {{enabled: true, on_change: {word}}}}}}}\n"
        ));
        runs(&place, &script.entry);
        let text = std::fs::read_to_string(&script.entry).unwrap();
        place.script(&script.entry, &(text + "# changed\n"));
        let (errors, _) = start(&place, &script.entry);
        assert!(errors.contains("hello-from-the-script"), "{word} {errors}");
        assert_eq!(errors.contains("differs from its pin (1 file changed)"), said, "{word} {errors}");
        let events =
            agentsh(&place, &["mcp", "events", "--type", "mcp_server_binary_mismatch"]).expect_code(0);
        assert!(events.stdout.contains(word), "{events}");
    }
}

#[test]
fn auto_trust_first_false_refuses_a_server_without_a_pin() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let script = Script::new(&place);
        // `on_change` decides.
        place.policy(
            "sandbox: {mcp: {version_pinning: {enabled: true, auto_trust_first: false, on_change: alert}}}\n",
        );
        runs(&place, &script.entry);
        assert_eq!(place.events("mcp_server_binary_not_pinned")[0]["action"], "alert");
        place.policy("sandbox: {mcp: {version_pinning: {enabled: true, auto_trust_first: false}}}\n");
        let (errors, answer) = start(&place, &script.entry);
        assert!(!errors.contains("hello-from-the-script"), "{errors}");
        let message = answer.unwrap()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("is not pinned") && message.contains("policy.yaml:1"), "{message}");
        agentsh(&place, &["mcp", "pins", "trust", "--server", "pinned"]).expect_code(0);
        runs(&place, &script.entry);
    }
}

#[test]
fn pins_trust_applies_to_what_was_shown() {
    let place = Place::new(Mode::Invoker);
    let script = Script::new(&place);
    runs(&place, &script.entry);
    let text = std::fs::read_to_string(&script.entry).unwrap();
    place.script(&script.entry, &(text.clone() + "# first change\n"));
    refused(&place, &script.entry, &script.entry);
    let wrong = agentsh(&place, &["mcp", "pins", "trust", "--server", "pinned", "--hash", "sha256:00"]);
    assert_ne!(wrong.code, 0, "{wrong}");
    agentsh(&place, &["mcp", "pins", "trust", "--server", "pinned"]).expect_code(0);
    // The refused program was trusted, not whatever is there at the next start.
    place.script(&script.entry, &(text + "# second change\n"));
    refused(&place, &script.entry, &script.entry);
}

#[test]
fn pins_reset_removes_the_pin() {
    let place = Place::new(Mode::Invoker);
    let script = Script::new(&place);
    runs(&place, &script.entry);
    let text = std::fs::read_to_string(&script.entry).unwrap();
    place.script(&script.entry, &(text + "# changed\n"));
    refused(&place, &script.entry, &script.entry);
    agentsh(&place, &["mcp", "pins", "reset", "--server", "pinned"]).expect_code(0);
    runs(&place, &script.entry);
}

/// A server of one project is not the server of the same name in another.
#[test]
fn pins_of_project_servers_hold_in_that_project() {
    use crate::support::sandbox::script;
    let place = Place::new(Mode::Invoker);
    let tool = place
        .script("server", &format!("#!/bin/sh\nexec {} \"$@\"\n", place.program("fixture_server").display()));
    let config = json!({"mcpServers": {"same": {"command": place.program("fixture_server")}}});
    place.write(".mcp.json", config.to_string());
    let echo = json!([{"server": "same", "tool": "echo", "arguments": {"text": "x"}}]);
    assert_eq!(script(&place, &echo).text(0), "x");
    drop(tool);
    let listed = agentsh(&place, &["mcp", "pins", "list", "--json"]).expect_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["scope"], place.project.to_str().unwrap(), "{listed}");
}
