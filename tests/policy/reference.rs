//! `docs/policy.md`, its schema and the starter file say what the code reads.

use std::path::Path;

use super::policy;
use crate::support::{Mode, Outcome, Place};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

fn printed(place: &Place, verb: &str) -> String {
    Outcome::of(&mut place.agentsh(&["policy", verb])).expect_code(0).stdout
}

#[test]
fn the_reference_and_the_schema_are_current() {
    let place = Place::new(Mode::Invoker);
    let how = "write it anew: `agentsh policy reference > docs/policy.md`, `agentsh policy schema > docs/policy.schema.json`";
    assert!(printed(&place, "reference") == document("policy.md"), "docs/policy.md is not current; {how}");
    assert!(printed(&place, "schema") == document("policy.schema.json"), "the schema is not current; {how}");
}

/// Every example of the reference, as it is there.
#[test]
fn every_example_of_the_reference_is_good() {
    let place = Place::new(Mode::Invoker);
    let text = document("policy.md");
    let examples: Vec<&str> =
        text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() > 40, "{}", examples.len());
    let mut words = vec!["check".to_owned()];
    for (at, example) in examples.iter().enumerate() {
        place.write(format!("example{at}.yaml"), example);
        words.push(format!("example{at}.yaml"));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let answer = policy(&place, &words);
    assert!(answer.ends_with("exit 0"), "{answer}");
    assert_eq!(answer.matches(".yaml: ok").count(), examples.len(), "{answer}");
}

/// The keys of the schema are those that the reader takes: one that it does not know is refused.
#[test]
fn the_schema_has_every_key_of_the_examples() {
    let schema: serde_json::Value = serde_json::from_str(&document("policy.schema.json")).unwrap();
    let process = &schema["properties"]["agent"]["properties"];
    for key in ["network", "filesystem", "env_allow", "allowed_env", "limits", "exec", "mcp_config"] {
        assert!(process[key].is_object(), "{key}");
    }
    let read = &process["filesystem"]["properties"]["read"]["anyOf"];
    assert_eq!(read[0]["type"], "array");
    assert_eq!(read[1]["required"][0], "replace");
    let mcp = &schema["properties"]["sandbox"]["properties"]["mcp"]["properties"];
    assert!(mcp["servers"]["items"]["properties"]["network"].is_object());
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn the_starter_file_is_good_as_it_is_and_with_its_examples() {
    let place = Place::new(Mode::Invoker);
    let file = place.home.join(".config/agentsh/policy.yaml");
    let next = "next: edit it, then `agentsh policy check` and `agentsh policy show`";
    assert_eq!(policy(&place, &["init"]), format!("ROOT/home/.config/agentsh/policy.yaml\n{next}\nexit 0"));
    assert!(policy(&place, &["check"]).contains("policy.yaml: ok"), "{}", policy(&place, &["check"]));
    assert!(policy(&place, &["init"]).contains("already exists and is unchanged"));
    let text = std::fs::read_to_string(&file).unwrap();
    let is_example =
        |line: &str| line.starts_with('#') && (!line.starts_with("# ") || line.starts_with("#  "));
    assert!(text.lines().filter(|line| is_example(line)).count() > 20);
    let open = |line: &str| if is_example(line) { line[1..].to_owned() } else { line.to_owned() };
    let lines: Vec<String> = text.lines().map(open).collect();
    place.write("opened.yaml", lines.join("\n"));
    let answer = policy(&place, &["check", "opened.yaml"]);
    assert!(answer.starts_with("opened.yaml: ok, 2 tests") && answer.ends_with("exit 0"), "{answer}");
}

#[test]
fn check_says_what_the_first_run_would_leave_out() {
    let place = Place::new(Mode::Invoker);
    place.write(place.home.join(".ssh/id"), "KEY");
    place.make_directory(&place.home.join("here"));
    place.write(
        "a.yaml",
        "agent:\n  filesystem:\n    read:\n      - ~/.ssh\n      - ~/gone\n      - ~/here\n      - \"~/gone/**\"\n",
    );
    let answer = policy(&place, &["check", "a.yaml"]);
    for line in [
        "warning: a.yaml:4 (agent.filesystem.read[0]): `~/.ssh` grants nothing: `~/.ssh` is never visible: SSH keys",
        "warning: a.yaml:5 (agent.filesystem.read[1]): `~/gone` does not exist here, so it grants nothing",
    ] {
        assert!(answer.contains(line), "{answer}");
    }
    let pattern =
        "warning: a.yaml:7 (agent.filesystem.read[3]): `~/gone/**` does not exist here, so it grants nothing";
    assert!(answer.contains(pattern), "{answer}");
    assert!(!answer.contains("~/here") && answer.matches("warning").count() == 3, "{answer}");
    place.write(
        "c.yaml",
        "agent:\n  filesystem:\n    write: [\"~/.ssh/**\", \"~/here/**\", \"~/gone/*/x\", \"~/here/*.txt\"]\n  \
         exec:\n    allow: [/nosuch/program, \"/usr/**\", \"/nosuch/*/bin\", \"**/run.sh\"]\nsandbox:\n  mcp:\n    servers:\n      \
         - {id: s, command: nosuchprogram}\n      - {id: t, command: ~/here/server}\n      - {id: u, command: sh}\n",
    );
    let answer = policy(&place, &["check", "c.yaml"]);
    for (at, text) in [
        ("3 (agent.filesystem.write[0])", "`~/.ssh/**` grants nothing: `~/.ssh` is never visible: SSH keys"),
        ("3 (agent.filesystem.write[2])", "`~/gone/*/x` grants nothing: ROOT/home/gone does not exist here"),
        (
            "5 (agent.exec.allow[0])",
            "`/nosuch/program` allows nothing to run: /nosuch/program does not exist here",
        ),
        ("5 (agent.exec.allow[2])", "`/nosuch/*/bin` allows nothing to run: /nosuch does not exist here"),
        (
            "9 (sandbox.mcp.servers[0])",
            "server `s` cannot be started here: there is no program `nosuchprogram`",
        ),
        (
            "10 (sandbox.mcp.servers[1])",
            "server `t` cannot be started here: there is no program `~/here/server`",
        ),
    ] {
        assert!(answer.contains(&format!("warning: c.yaml:{at}: {text}\n")), "{at} {text}: {answer}");
    }
    assert!(answer.matches("warning").count() == 6, "{answer}");
    place.write("b.yaml", "agent: {filesystem: {read: [\"$HOME/x\"]}}\n");
    let answer = policy(&place, &["check", "b.yaml"]);
    assert!(answer.contains("variables are not expanded in a policy; `~` is the home"), "{answer}");
    assert!(answer.ends_with("exit 1"), "{answer}");
}

#[test]
fn explain_says_what_a_start_does() {
    let place = Place::new(Mode::Invoker);
    let ask = |words: &[&str]| policy(&place, &[&["explain"], words].concat());
    place.user_policy("extends: none\n");
    let model = ask(&["--agent", "claude", "--connect", "api.anthropic.com:443"]);
    assert!(model.starts_with("allowed: "), "{model}");
    assert!(ask(&["--connect", "api.anthropic.com:443"]).starts_with("denied: "));
    place.set("ANTHROPIC_BASE_URL", "https://models.example:8443");
    let other = ask(&["--agent", "claude", "--connect", "models.example:8443"]);
    assert!(other.starts_with("allowed: "), "{other}");
    let tracer = ask(&["--exec", "/usr/bin/strace"]);
    assert!(
        tracer.starts_with("allowed") && tracer.contains("reaches only processes of its own sandbox"),
        "{tracer}"
    );
    // The suggested line works.
    let climbing = ask(&["--write", "../x"]);
    assert!(climbing.contains("allow --write ~/x\n") && !climbing.contains("../x"), "{climbing}");
    for (words, warning) in [
        (["--write", "/var/run/docker.sock"], "gives away the whole machine"),
        (["--read", "~/.ssh/id_ed25519"], "`~/.ssh` contains SSH keys"),
        (
            ["--write", ".git/hooks/pre-commit"],
            "takes effect outside of the sandbox, in every project: git runs",
        ),
        (["--write", "~/.bashrc"], "takes effect outside of the sandbox: runs in every shell"),
        (["--env", "LD_PRELOAD"], "decides what programs load"),
    ] {
        let answer = ask(&words);
        assert!(answer.contains("  beware: ") && answer.contains(warning), "{answer}");
    }
    assert!(!ask(&["--read", "~/Documents/x"]).contains("beware"));
}
