//! An agent with several servers, as Claude Code has them.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::sandbox::{Answers, script, script_with};
use crate::support::{Mode, Outcome, Place};

/// Three servers from three places: the user, the user for this project, and the project.
fn three_servers(place: &Place) {
    let entry =
        |word: &str| json!({"command": place.program("fixture_server"), "args": [], "env": {"WORD": word}});
    let user = json!({
        "mcpServers": {"alpha": entry("alpha")},
        "projects": {place.project.to_str().unwrap(): {"mcpServers": {"beta": entry("beta")}}},
    });
    place.write(place.home.join(".claude.json"), user.to_string());
    place.write(".mcp.json", json!({"mcpServers": {"gamma": entry("gamma")}}).to_string());
}

fn call(server: &str, tool: &str, arguments: Value) -> Value {
    json!({"server": server, "tool": tool, "arguments": arguments})
}

fn list(server: &str) -> Value {
    json!({"server": server, "call": "tools/list", "params": {}})
}

fn names(answers: &Answers, step: usize) -> Vec<&str> {
    let tools = answers.json[step]["result"]["tools"].as_array();
    tools
        .unwrap_or_else(|| panic!("{}", answers.outcome))
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}

#[test]
fn agent_sees_its_servers_names_and_calls_are_recorded() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        three_servers(&place);
        let mut steps = vec![json!({"servers": true})];
        for server in ["alpha", "beta", "gamma"] {
            steps.push(list(server));
            steps.push(call(server, "env", json!({"name": "WORD"})));
            steps.push(call(server, "add", json!({"a": 2, "b": 40})));
        }
        steps.push(json!({"exit": 3}));
        let answers = script(&place, &Value::from(steps));
        assert_eq!(answers.outcome.code, 3, "{}", answers.outcome);
        assert_eq!(answers.json[0], json!(["alpha", "beta", "gamma"]), "{}", answers.outcome);
        for (index, server) in ["alpha", "beta", "gamma"].iter().enumerate() {
            assert!(names(&answers, 1 + 3 * index).contains(&"write_file"));
            assert_eq!(answers.text(2 + 3 * index), *server);
            assert_eq!(answers.json[3 + 3 * index]["result"]["structuredContent"], json!({"sum": 42}));
        }
        let recorded = Outcome::of(&mut place.agentsh(&["mcp", "calls", "--json"])).expect_code(0);
        let recorded: Vec<Value> = serde_json::from_str(&recorded.stdout).unwrap();
        assert_eq!(recorded.len(), 6, "{mode:?}");
        for server in ["alpha", "beta", "gamma"] {
            let of: Vec<_> = recorded.iter().filter(|call| call["server_id"] == server).collect();
            assert_eq!(of.len(), 2);
            // The first one after another server's answer is reported.
            let first = if server == "alpha" { "allow" } else { "alert" };
            assert_eq!((&of[0]["action"], &of[1]["action"]), (&json!(first), &json!("allow")), "{of:?}");
            assert!(of.iter().all(|call| call["tool_hash"].is_string()), "{of:?}");
            assert_eq!(of[1]["input"], json!({"a": 2, "b": 40}));
        }
    }
}

#[test]
fn a_denied_tool_is_invisible_and_refused_with_its_rule() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        three_servers(&place);
        let policy = place.policy(
            "sandbox:\n  mcp:\n    enforce_policy: true\n    tool_policy: denylist\n    denied_tools:\n      \
             - {server: alpha, tool: \"write_*\"}\n",
        );
        let target = place.project.join("made");
        let answers = script(
            &place,
            &json!([
                list("alpha"),
                call("alpha", "write_file", json!({"path": target, "text": "x"})),
                call("alpha", "echo", json!({"text": "fine"})),
                list("beta"),
            ]),
        );
        assert!(!names(&answers, 0).contains(&"write_file") && names(&answers, 0).contains(&"echo"));
        let rule = format!("{}:6", policy.display());
        assert!(answers.error(1).contains(&rule), "{mode:?} {}", answers.error(1));
        assert_eq!(answers.text(2), "fine");
        assert!(names(&answers, 3).contains(&"write_file"), "another server's tool of the same name");
        assert!(!target.exists());
        let blocked =
            Outcome::of(&mut place.agentsh(&["mcp", "calls", "--action", "block", "--json"])).expect_code(0);
        let blocked: Vec<Value> = serde_json::from_str(&blocked.stdout).unwrap();
        assert_eq!(blocked.len(), 1, "{blocked:?}");
        assert_eq!(
            (&blocked[0]["tool_name"], &blocked[0]["rule"]["line"]),
            (&json!("write_file"), &json!(6))
        );
    }
}

#[test]
fn a_denied_server_does_not_start() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    let entry = json!({"mcpServers": {"delta": {"command": "true"}}});
    place.write(".mcp.json", entry.to_string());
    for (lists, starts) in [
        ("server_policy: allowlist, allowed_servers: [{id: \"alph?\"}]", false),
        ("server_policy: denylist, denied_servers: [{id: \"del*\"}]", false),
        ("server_policy: none, denied_servers: [{id: \"del*\"}]", true),
    ] {
        place.policy(&format!("sandbox: {{mcp: {{enforce_policy: true, {lists}}}}}\n"));
        let answers =
            script_with(&place, &[], &json!([list("delta"), call("alpha", "echo", json!({"text": "fine"}))]));
        assert!(
            answers.json[0].get("broken").is_some() || answers.json[0].get("error").is_some(),
            "{}",
            answers.outcome
        );
        assert_eq!(answers.text(1), "fine");
        let started =
            place.listed(&["mcp", "events", "--session", "latest", "--type", "process_started", "--json"]);
        assert_eq!(started.iter().any(|event| event["server_id"] == "delta"), starts, "{lists} {started:?}");
        assert!(starts || answers.outcome.stderr.contains("delta"), "{}", answers.outcome);
    }
}

#[test]
fn calls_above_the_rate_are_refused() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    place.policy("sandbox: {mcp: {rate_limits: {enabled: true, default_rpm: 1, default_burst: 2}}}\n");
    let step = || call("alpha", "echo", json!({"text": "x"}));
    let answers =
        script(&place, &json!([step(), step(), step(), call("beta", "echo", json!({"text": "x"}))]));
    assert_eq!((answers.text(0), answers.text(1), answers.text(3)), ("x", "x", "x"));
    assert_eq!(answers.json[2]["error"]["data"]["reason"], "rate-limited", "{}", answers.outcome);
    assert!(answers.error(2).contains("policy.yaml:1"), "{}", answers.error(2));
}

#[test]
fn closed_policies_refuse_tools_that_were_never_listed() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    place.policy("sandbox: {mcp: {enforce_policy: true, fail_closed: true, tool_policy: allowlist, allowed_tools: [{server: alpha, tool: echo}]}}\n");
    // agentsh lists the tools before the first call, whether or not the client does.
    let step = || call("alpha", "echo", json!({"text": "x"}));
    let answers =
        script(&place, &json!([call("alpha", "unheard-of", json!({})), step(), list("alpha"), step()]));
    assert!(answers.json[0].get("error").is_some(), "{}", answers.outcome);
    assert_eq!((answers.text(1), answers.text(3)), ("x", "x"));
}

#[test]
fn server_crash_is_reported_and_the_next_call_restarts_it() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        three_servers(&place);
        let answers = script_with(
            &place,
            &[],
            &json!([
                call("alpha", "crash", json!({"code": 33})),
                call("alpha", "echo", json!({"text": "again"})),
                call("beta", "echo", json!({"text": "untouched"})),
            ]),
        );
        assert!(answers.error(0).contains("exit code 33"), "{}", answers.error(0));
        assert_eq!((answers.text(1), answers.text(2)), ("again", "untouched"));
        assert!(answers.outcome.stderr.contains("crashed"), "{mode:?} {}", answers.outcome);
    }
}

#[test]
fn hanging_server_is_given_up_after_the_timeout_of_the_policy() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    place.policy("sandbox: {mcp: {request_timeout: 1s}}\n");
    let start = Instant::now();
    let answers = script(
        &place,
        &json!([call("alpha", "hang", json!({})), call("alpha", "echo", json!({"text": "x"}))]),
    );
    assert!(start.elapsed().as_millis() >= 1000);
    assert_eq!(answers.json[0]["error"]["data"]["reason"], "timed-out", "{}", answers.outcome);
    assert!(answers.error(0).contains("request_timeout"), "{}", answers.error(0));
    assert_eq!(answers.text(1), "x");
}

/// The path of a unix socket has room for 107 bytes; a home directory may be longer.
#[test]
fn home_with_a_long_path_works() {
    let place = Place::below(Mode::Invoker, &"d".repeat(120));
    three_servers(&place);
    let answers = script(&place, &json!([call("alpha", "echo", json!({"text": "fine"}))]));
    assert_eq!(answers.text(0), "fine");
}

/// A server that cannot be found is reported to the agent; the others work.
#[test]
fn missing_server_program_is_reported_to_the_agent() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    place.write(".mcp.json", json!({"mcpServers": {"gone": {"command": "no-such-server-here"}}}).to_string());
    let answers = script(&place, &json!([list("gone"), call("alpha", "echo", json!({"text": "fine"}))]));
    let told = answers.json[0].to_string();
    assert!(told.contains("no-such-server-here"), "{}", answers.outcome);
    assert_eq!(answers.text(1), "fine");
    assert!(answers.outcome.stderr.contains("cannot start server 'gone'"), "{}", answers.outcome);
    let words = ["mcp", "events", "--type", "mcp_server_refused", "--json"];
    let events = Outcome::of(&mut place.agentsh(&words)).expect_code(0).stdout;
    let events: Value = serde_json::from_str(&events).unwrap();
    assert_eq!(events[0]["reason"], "start-failed", "{events}");
    assert_eq!(events[0]["server_id"], "gone", "{events}");
}

#[test]
fn agent_configuration_cannot_be_changed_from_inside() {
    let place = Place::new(Mode::Invoker);
    three_servers(&place);
    let before = std::fs::read(place.home.join(".claude.json")).unwrap();
    let attempts = json!([
        {"attempt": format!("append {}/.claude.json", place.home.display())},
        {"attempt": format!("append {}/.mcp.json", place.project.display())},
        {"attempt": "append /run/agentsh/mcp.json"},
        {"attempt": format!("create {}/.claude/settings.json", place.project.display())},
    ]);
    let answers = script(&place, &attempts);
    assert_eq!(std::fs::read(place.home.join(".claude.json")).unwrap(), before);
    assert_ne!(answers.json[1], "DONE", "{}", answers.outcome);
    // Files that it makes next to its own settings are set aside, and do not reach the project.
    assert!(!place.project.join(".claude").exists(), "{}", answers.outcome);
}
