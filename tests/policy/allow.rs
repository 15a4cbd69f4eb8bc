//! `agentsh policy allow`: the rule is written to the right file, and the next run uses it.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::policy;
use crate::support::{Mode, Outcome, Peer, Place};

fn allow(place: &Place, words: &[&str]) -> String {
    policy(place, &[&["allow"], words].concat())
}

fn file_of(place: &Place) -> String {
    std::fs::read_to_string(place.home.join(".config/agentsh/policy.yaml")).unwrap_or_default()
}

#[test]
fn policy_allow_adds_to_the_right_list_once() {
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join("library/x"), "LIBRARY");
    place.write(place.home.join("notes/x"), "NOTES");
    place.set("MY_TOKEN", "mine");
    let words: [(&[&str], &str); 8] = [
        (&["api.test", "https://db.test:5432/x"], "- \"api.test\"\n      - \"db.test:5432\"\n"),
        (&["*.wide.test", "10.1.0.0/16"], "- \"*.wide.test\"\n      - \"10.1.0.0/16\"\n"),
        (&["localhost:5433"], "loopback:\n      - 5433\n"),
        (&["~/library"], "read:\n      - \"~/library\"\n"),
        (&["--write", "~/notes"], "write:\n      - \"~/notes\"\n"),
        (&["--env", "MY_TOKEN"], "env_allow:\n    - \"MY_TOKEN\"\n"),
        (&["--write", ".envrc"], "unmask:\n      - \".envrc\"\n"),
        (&["--server", "tracker", "tracker.test"], "- id: tracker\n        network:\n"),
    ];
    for (words, written) in words {
        let said = allow(&place, words);
        assert!(said.contains("\n+++ ROOT/home/.config/agentsh/policy.yaml\n"), "{words:?} {said}");
        assert!(
            said.contains("ROOT/home/.config/agentsh/policy.yaml:") && said.ends_with("exit 0"),
            "{said}"
        );
        let text = file_of(&place);
        assert!(text.contains(written), "{words:?} {said}\n{text}");
        let again = allow(&place, words);
        assert!(again.contains(" already: ") && again.ends_with("exit 0"), "{words:?} {again}");
        assert_eq!(file_of(&place), text, "{words:?}");
    }
    assert!(policy(&place, &["check"]).contains(": ok"), "{}", file_of(&place));
    // It is what a run has.
    let seen =
        place.shell("cat ~/library/x ~/notes/x; echo more > ~/notes/x; echo $MY_TOKEN; echo x > .envrc");
    assert_eq!(seen.stdout, "LIBRARYNOTESmine\n", "{seen}");
    assert_eq!(std::fs::read_to_string(place.home.join("notes/x")).unwrap(), "more\n");
    assert!(place.project.join(".envrc").exists());
    assert!(policy(&place, &["explain", "--connect", "a.wide.test:443"]).starts_with("allowed"));
    assert!(policy(&place, &["explain", "--connect", "tracker.test:443"]).starts_with("denied"));
    let of_server = policy(&place, &["explain", "--server", "tracker", "--connect", "tracker.test:443"]);
    assert!(of_server.starts_with("allowed"), "{of_server}");
    let mode = place.home.join(".config/agentsh/policy.yaml").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn policy_allow_adds_a_tool_and_keeps_comments() {
    let place = Place::new(Mode::Invoker);
    let before = "# mine\nsandbox:\n  mcp:\n    enforce_policy: true\n    tool_policy: allowlist # strict\n    allowed_tools:\n      \
                  - {server: fs, tool: read_file}  # needed\n      # later: write_file\n    rate_limits: {enabled: false}\n";
    place.user_policy(before);
    assert!(policy(&place, &["explain", "--tool", "fs/write_file"]).contains("allow --tool fs/write_file"));
    let said = allow(&place, &["fs/write_file"]);
    assert!(
        said.contains("fs/write_file may be called: ROOT/home/.config/agentsh/policy.yaml:8\n"),
        "{said}"
    );
    let line = "      - {server: fs, tool: write_file}\n";
    assert_eq!(file_of(&place), before.replace("      # later", &format!("{line}      # later")));
    assert!(policy(&place, &["explain", "--tool", "fs/write_file"]).starts_with("allowed"));
    assert!(policy(&place, &["explain", "--tool", "fs/other"]).starts_with("denied"));
}

/// What the model's provider does for the agent is refused unless a rule names it; no other rule forbids it.
#[test]
fn policy_allow_names_a_tool_of_the_agent() {
    let place = Place::new(Mode::Invoker);
    assert!(allow(&place, &["agent/web_search"]).contains("agent/web_search may be called: ROOT/"));
    assert!(file_of(&place).contains("{server: agent, tool: web_search}"), "{}", file_of(&place));
    assert!(allow(&place, &["agent/web_search"]).contains("may be called already"));
}

/// The refusal that an agent gets names the command, and the command is enough.
#[test]
fn a_refused_tool_names_the_command_that_allows_it() {
    let list = "sandbox: {mcp: {enforce_policy: true, tool_policy: allowlist, allowed_tools: [{server: fixture, tool: echo}]}}\n";
    for of_project in [false, true] {
        let place = Place::new(Mode::Invoker);
        let file = place.project.join(".agentsh.yaml").display().to_string();
        let mut words = vec!["--tool", "fixture/add"];
        if of_project {
            place.write(&file, list);
            words.splice(..0, ["--file", &file]);
            // The user's own list would not help.
            let own = Outcome::of(&mut place.agentsh(&["policy", "allow", "--tool", "fixture/add"]));
            assert!(own.expect_code(1).stderr.contains(&format!("add `--file {file}`")));
        } else {
            place.user_policy(list);
        }
        let call = || {
            let mut peer = Peer::ready(&place, &[]);
            let answer = peer.call("add", json!({"a": 1, "b": 2}));
            peer.finish();
            answer
        };
        let refused = call();
        let message = refused["error"]["message"].as_str().unwrap();
        let remedy = format!("agentsh policy allow {}", words.join(" "));
        assert!(message.ends_with(&format!("; to allow it: `{remedy}`")), "{message}");
        let explained = policy(&place, &["explain", "--tool", "fixture/add"]);
        assert_eq!(explained.contains(".agentsh.yaml --tool fixture/add"), of_project, "{explained}");
        allow(&place, &words);
        assert!(call()["error"].is_null());
    }
}

#[test]
fn policy_allow_merges_two_remedies_into_one_map() {
    let place = Place::new(Mode::Invoker);
    place.user_policy("agent: {network: {allow: [one.test]}} # flow\n");
    allow(&place, &["two.test"]);
    allow(&place, &["--env", "CI_RUN"]);
    assert_eq!(
        file_of(&place),
        "agent: {network: {allow: [one.test, \"two.test\"]}, env_allow: [\"CI_RUN\"]} # flow\n"
    );
}

#[test]
fn policy_allow_print_writes_nothing() {
    let place = Place::new(Mode::Invoker);
    for option in ["--print", "--dry-run"] {
        let said = allow(&place, &[option, "one.test"]);
        assert!(
            said.contains("+      - \"one.test\"") && said.ends_with("nothing was written\nexit 0"),
            "{said}"
        );
        assert!(!place.home.join(".config/agentsh").exists());
    }
}

#[test]
fn policy_allow_of_a_closed_path_says_why_and_writes_nothing() {
    let place = Place::new(Mode::Invoker);
    place.write("secret/x", "");
    place.write("docs/x", "");
    let before = "agent: {filesystem: {deny: [secret]}}\n";
    place.user_policy(before);
    for (words, why) in [
        (&["./secret/x"][..], "by ROOT/home/.config/agentsh/policy.yaml:1 (agent.filesystem.deny[0])"),
        (&["~/.local/state/agentsh"], "no sandbox ever sees it"),
        (&["~/nowhere"], "there is no ~/nowhere"),
    ] {
        let said = allow(&place, words);
        assert!(said.contains(why) && said.ends_with("exit 1"), "{words:?} {said}");
        assert_eq!(file_of(&place), before);
    }
    for (words, why) in [
        (&["docs"][..], "'docs' is a path: write ./docs"),
        (&["nonsense"], "is not a host, path or SERVER/TOOL"),
        (&["localhost"], "write localhost:PORT"),
        (&["a b.test"], "is not a host, path or SERVER/TOOL"),
        (&["*"], "is not a host, path or SERVER/TOOL"),
        (&["one.test:99999"], "is not a host, path or SERVER/TOOL"),
        (&["--env", "A=B"], "is not a variable name"),
        (&["--tool", "fs"], "write SERVER/TOOL"),
    ] {
        let said = allow(&place, words);
        assert!(said.contains(why) && !said.ends_with("exit 0"), "{words:?} {said}");
        assert_eq!(file_of(&place), before);
    }
    // A file that says something else, or nothing that can be read, stays as it is.
    for broken in ["agent: [\n", "agent: {}\nagent: {}\n"] {
        place.user_policy(broken);
        let said = allow(&place, &["one.test"]);
        assert!(said.contains("policy.yaml") && said.ends_with("exit 125"), "{said}");
        assert_eq!(file_of(&place), broken);
    }
    // So does one whose own tests would fail: no run would start.
    let tested = "tests: [{connect: \"one.test:443\", expect: deny}]\n";
    place.user_policy(tested);
    let said = allow(&place, &["one.test"]);
    assert!(said.contains("nothing was written") && said.ends_with("exit 1"), "{said}");
    assert_eq!(file_of(&place), tested);
}

#[test]
fn policy_allow_names_a_project_policy_that_narrows() {
    let place = Place::new(Mode::Invoker);
    place.write(".agentsh.yaml", "agent: {network: {allow: []}}\n");
    let said = allow(&place, &["one.test"]);
    assert!(
        said.contains("add `--file ROOT/home/project/.agentsh.yaml`") && said.ends_with("exit 1"),
        "{said}"
    );
    assert_eq!(file_of(&place), "");
    // It can only give what the user gives.
    let said = allow(&place, &["--file", ".agentsh.yaml", "one.test"]);
    assert!(said.contains("can only narrow") && said.ends_with("exit 1"), "{said}");
    place.user_policy("agent: {network: {allow: [one.test]}}\n");
    let said = allow(&place, &["--file", ".agentsh.yaml", "one.test"]);
    assert!(said.ends_with("exit 0"), "{said}");
    assert!(policy(&place, &["explain", "--connect", "one.test:443"]).starts_with("allowed"), "{said}");
    // A file for `--policy`.
    let said = allow(&place, &["--file", "more.yaml", "--env", "MORE"]);
    assert!(said.ends_with("exit 0"), "{said}");
    let text = std::fs::read_to_string(place.project.join("more.yaml")).unwrap();
    assert_eq!(text, "version: 1\nagent:\n  env_allow:\n    - \"MORE\"\n");
}

/// Nobody inside widens his own sandbox.
#[test]
fn policy_allow_inside_a_sandbox_writes_nothing() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let inside = place.shell("/run/agentsh/agentsh policy allow one.test; echo $?");
        assert!(!inside.stdout.ends_with("\n0\n") || file_of(&place).is_empty(), "{inside}");
        assert_eq!(file_of(&place), "", "{mode:?} {inside}");
        Outcome::of(&mut place.agentsh(&["policy", "allow", "one.test"])).expect_code(0);
        assert!(file_of(&place).contains("one.test"), "the twin");
    }
}
