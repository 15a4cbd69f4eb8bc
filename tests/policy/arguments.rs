//! `max_argument_bytes`: a check that is one file, one line and one key, wherever calls are judged.

use serde_json::{Value, json};

use super::policy;
use crate::support::{Mode, Peer, Place};

const POLICY: &str = "version: 1\nsandbox: {mcp: {max_argument_bytes: 100}}\n";

#[track_caller]
fn refused(answer: &Value) {
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    let words =
        ["the argument 'text' has 202 bytes; the maximum is 100", "policy.yaml:2", "max_argument_bytes"];
    for word in words {
        assert!(message.contains(word), "no {word:?} in {answer}");
    }
}

fn on_record(place: &Place) {
    let detected = place.detections();
    let found = detected.iter().filter(|event| event["detector"] == "max-argument-bytes").count();
    assert_eq!(found, 1, "{detected:?}");
    let intercepted = place.events("mcp_tool_call_intercepted");
    let actions: Vec<_> = intercepted.iter().filter_map(|event| event["action"].as_str()).collect();
    assert!(actions.contains(&"block") && actions.contains(&"allow"), "{intercepted:?}");
}

#[test]
fn a_long_argument_is_refused_on_the_wire() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        place.policy(POLICY);
        let mut peer = Peer::ready(&place, &[]);
        assert_eq!(peer.text("echo", json!({"text": "short"})), "short");
        refused(&peer.call("echo", json!({"text": "x".repeat(200)})));
        peer.finish();
        on_record(&place);
    }
}

#[test]
fn long_argument_is_refused_by_the_proxy() {
    let place = Place::new(Mode::Invoker);
    place.policy(POLICY);
    let file = json!({"servers": [{"id": "one", "command": place.program("fixture_server")}]});
    let config = place.write("proxy.json", file.to_string());
    let mut peer = Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    assert_eq!(peer.text("one__echo", json!({"text": "short"})), "short");
    refused(&peer.call("one__echo", json!({"text": "x".repeat(200)})));
    peer.finish();
    on_record(&place);
}

/// `explain` asks what judges the call.
#[test]
fn explain_says_what_the_wire_would() {
    let place = Place::new(Mode::Invoker);
    place.policy(
        "version: 1\nsandbox: {mcp: {max_argument_bytes: 20, rules: [{tool: drop, action: block, reason: never}, \
         {tool: send, when: [{matches: evil}], action: ask}]}}\n",
    );
    let ask = |tool: &str, arguments: &str| {
        policy(&place, &["explain", "--server", "fs", "--tool", tool, "--arguments", arguments])
    };
    assert!(ask("echo", r#"{"text":"short"}"#).contains("allowed"), "{}", ask("echo", r#"{"text":"short"}"#));
    let long = ask("echo", r#"{"text":"a text of more than twenty bytes"}"#);
    assert!(
        long.contains("denied")
            && long.contains("has 34 bytes; the maximum is 20")
            && long.ends_with("exit 1"),
        "{long}"
    );
    let never = ask("drop", "{}");
    assert!(
        never.contains("denied") && never.contains("never") && never.contains("policy.yaml:2"),
        "{never}"
    );
    let asks = ask("send", r#"{"to":"evil"}"#);
    assert!(asks.contains("allowed") && asks.contains("a person is asked first"), "{asks}");
    assert!(ask("echo", "{").contains("--arguments is not JSON"));
}
