//! Calls that differ from those of earlier sessions.

use serde_json::{Value, json};

use crate::support::{Mode, Outcome, Peer, Place};

fn unusual(place: &Place) -> Vec<Value> {
    place.detections().into_iter().filter(|found| found["detector"] == "unusual").collect()
}

fn inventory(place: &Place) -> Vec<Value> {
    let outcome = Outcome::of(&mut place.agentsh(&["mcp", "inventory", "--server", "fixture", "--json"]));
    serde_json::from_str(&outcome.expect_code(0).stdout).unwrap()
}

fn of<'v>(tools: &'v [Value], name: &str) -> &'v Value {
    tools.iter().find(|tool| tool["tool"] == name).unwrap_or_else(|| panic!("{tools:?}"))
}

#[test]
#[ignore = "takes long"]
fn baseline_of_one_session_makes_a_call_of_the_next_unusual() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    peer.request("tools/list", json!({}));
    for number in 0..260 {
        peer.text("echo", json!({"text": format!("call {number}")}));
    }
    // While a tool is learned nothing about it is news.
    peer.text("add", json!({"a": 1, "b": 2}));
    peer.finish();
    assert_eq!(unusual(&place), Vec::<Value>::new());
    let tools = inventory(&place);
    assert_eq!(
        (of(&tools, "echo")["calls"].clone(), of(&tools, "echo")["state"].clone()),
        (json!(260), json!("watched"))
    );
    assert_eq!(of(&tools, "add")["state"], "learned");
    assert!(of(&tools, "big")["first_seen"].is_string(), "listed, and never called: {tools:?}");

    let mut peer = Peer::ready(&place, &[]);
    assert_eq!(peer.text("echo", json!({"text": "call 1"})), "call 1");
    let long = "all that there is to say ".repeat(40_000);
    // An alert by default: it goes through.
    assert_eq!(peer.text("echo", json!({"text": long})), long);
    peer.finish();
    let found = unusual(&place);
    assert!(
        found.iter().any(|found| found["action"] == "alert" && found["tool_name"] == "echo"),
        "{found:?}"
    );
    let tools = inventory(&place);
    assert_eq!(of(&tools, "echo")["calls"], 262);
    assert!(of(&tools, "echo")["unusual"].as_u64().unwrap() >= 1, "{tools:?}");
    // Another server of the same project has its own.
    let all = Outcome::of(&mut place.agentsh(&["mcp", "inventory"])).expect_code(0);
    assert!(all.stdout.contains("echo") && all.stdout.contains("watched"), "{all}");

    place.user_policy("version: 1\nsandbox: {mcp: {anomaly: {on_detection: off}}}\n");
    let before = unusual(&place).len();
    let mut peer = Peer::ready(&place, &[]);
    peer.text("echo", json!({"text": long}));
    peer.finish();
    assert_eq!(unusual(&place).len(), before);
}
