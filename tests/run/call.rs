//! `agentsh call`: a tool of a server, called by a program of the agent.

use serde_json::json;

use crate::support::{Mode, Outcome, Place};

/// What a shell does as the agent, with the server `fixture`.
fn as_agent(place: &Place, script: &str) -> Outcome {
    let servers =
        json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let script = format!("#!/bin/sh\ncall() {{ /run/agentsh/agentsh call \"$@\"; }}\n{script}\n");
    let claude = place.script(place.project.join("bin/claude"), &script);
    Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude))
}

#[test]
fn a_tool_is_called_judged_and_recorded() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.user_policy(
            "version: 1\nsandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}\n",
        );
        let script = "call fixture --list | grep -q '^echo\t' && echo listed\n\
            call fixture echo '{\"text\": \"hello from code\"}'\n\
            echo '{\"a\": 2, \"b\": 40}' | call fixture add - --json\n\
            call fixture crash; echo \"refused $?\"";
        let outcome = as_agent(&place, script).expect_code(0);
        let lines: Vec<&str> = outcome.stdout.lines().collect();
        assert_eq!(lines[..2], ["listed", "hello from code"], "{mode:?} {outcome}");
        assert!(lines[2].contains(r#""structuredContent":{"sum":42}"#), "{outcome}");
        assert_eq!(lines[3], "refused 1", "{outcome}");
        assert!(
            outcome.stderr.contains("refused by ") && outcome.stderr.contains("policy.yaml:2"),
            "{outcome}"
        );
        let calls = place.listed(&["mcp", "calls", "--json"]);
        let seen: Vec<_> =
            calls.iter().map(|call| (call["tool_name"].clone(), call["action"].clone())).collect();
        assert_eq!(seen.len(), 3, "{calls:?}");
        assert!(
            seen.contains(&(json!("crash"), json!("block")))
                && seen.contains(&(json!("echo"), json!("allow"))),
            "{calls:?}"
        );
    }
}

/// Lines of a server's log come before its answer, more of them than one message may be long.
#[test]
#[ignore = "takes long"]
fn call_waits_for_the_answer_of_a_server_that_logs_a_lot() {
    let place = Place::new(Mode::Invoker);
    let outcome = as_agent(&place, "call fixture notify '{\"megabytes\": 70}'").expect_code(0);
    assert_eq!(outcome.stdout, "notified\n", "{outcome}");
}

#[test]
fn call_of_an_unknown_server_or_tool_says_why() {
    let place = Place::new(Mode::Invoker);
    let script = "call nobody x; echo $?\ncall fixture no_such_tool; echo $?\ncall fixture echo '[1]'; echo $?\n\
        call fixture echo 'x'; echo $?\ncall fixture; echo $?";
    let outcome = as_agent(&place, script).expect_code(0);
    assert_eq!(outcome.stdout, "1\n1\n2\n2\n2\n", "{outcome}");
    assert!(outcome.stderr.contains("does not know this server"), "{outcome}");
    // Outside there is no session that could be asked.
    let outside = Outcome::of(&mut place.agentsh(&["call", "fixture", "echo"]));
    assert_eq!(outside.code, 125, "{outside}");
}
