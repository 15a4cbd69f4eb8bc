//! What one server said does not reach another one through an agent that agentsh started, where the policy asks for it.

use serde_json::{Value, json};

use crate::support::sandbox::script;
use crate::support::{Mode, Peer, Place};

const MEMO: &str = "Minutes of the harvest council: the orchard at Lindenau goes to the Brandt family before winter, \
                    the price of 310 thousand crowns was agreed orally, and nobody in the village knows of it yet.";

fn two_servers(place: &Place) -> String {
    let entry = json!({"command": place.program("fixture_server"), "args": []});
    place.write(
        place.home.join(".claude.json"),
        json!({"mcpServers": {"files": entry, "mail": entry}}).to_string(),
    );
    place.write("memo.txt", MEMO).to_str().unwrap().to_owned()
}

fn call(server: &str, tool: &str, arguments: Value) -> Value {
    json!({"server": server, "tool": tool, "arguments": arguments})
}

#[test]
fn what_one_server_said_does_not_reach_another() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let memo = two_servers(&place);
        let steps = json!([
            call("files", "read_file", json!({"path": memo})),
            call("mail", "echo", json!({"text": MEMO[30..140].to_uppercase()})),
            call("files", "echo", json!({"text": MEMO})),
            call("mail", "echo", json!({"text": "see https://collect.example.net/x"})),
            call("mail", "echo", json!({"text": "see https://api.example.com/x"})),
        ]);
        place.policy(
            "version: 1\nsandbox:\n  mcp:\n    exfiltration:\n      marker: off\n      \
             allowed_domains: [api.example.com]\n",
        );
        let answers = script(&place, &steps);
        assert_eq!(answers.text(0), MEMO, "{mode:?}");
        assert!(
            answers.error(1).contains("'read_file' of server 'files'")
                && answers.error(1).contains("to allow it"),
            "{}",
            answers.error(1)
        );
        assert_eq!(answers.text(2), MEMO);
        assert!(
            answers.error(3).contains("policy.yaml:6 (sandbox.mcp.exfiltration.allowed_domains)"),
            "{}",
            answers.error(3)
        );
        assert_eq!(answers.text(4), "see https://api.example.com/x");
        let found = place.detections();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(!json!(found).to_string().contains("Lindenau"));
        assert_eq!((&found[0]["source_server"], &found[0]["action"]), (&json!("files"), &json!("block")));
        // Said as it is: where nobody asks for it, nothing is looked into.
        place.policy("version: 1\n");
        assert_eq!(script(&place, &steps).text(1), MEMO[30..140].to_uppercase());
        // Where it is only to be recorded, it goes on.
        place.policy("version: 1\nsandbox: {mcp: {exfiltration: {on_detection: alert, marker: off}}}\n");
        assert_eq!(script(&place, &steps).text(1), MEMO[30..140].to_uppercase());
        assert_eq!(place.detections().last().unwrap()["action"], "alert");
    }
}

#[test]
fn labels_of_the_policy_decide() {
    let place = Place::new(Mode::Invoker);
    let memo = two_servers(&place);
    let steps = json!([
        call("files", "read_file", json!({"path": memo})),
        call("mail", "echo", json!({"text": MEMO})),
    ]);
    for labels in ["{id: files, flow: {source: public}}", "{id: mail, flow: {sink: local}}"] {
        place.policy(&format!(
            "version: 1\nsandbox: {{mcp: {{exfiltration: {{marker: off}}, servers: [{labels}]}}}}\n"
        ));
        assert_eq!(script(&place, &steps).text(1), MEMO, "{labels}");
    }
}

#[test]
fn one_server_alone_is_looked_into_as_well() {
    let place = Place::new(Mode::Invoker);
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {allowed_domains: [api.example.com]}}}\n");
    let mut peer = Peer::ready(&place, &[]);
    let refused = peer.call("echo", json!({"text": "https://collect.example.net/x"}));
    assert_eq!(refused["error"]["data"]["reason"], "destination-not-allowed", "{refused}");
    assert_eq!(peer.text("echo", json!({"text": "https://api.example.com/x"})), "https://api.example.com/x");
}

#[test]
fn a_project_vouches_for_nobody() {
    let place = Place::new(Mode::Invoker);
    two_servers(&place);
    for text in [
        "version: 1\nsandbox: {mcp: {exfiltration: {enabled: false}}}\n",
        "version: 1\nsandbox: {mcp: {servers: [{id: mail, flow: {sink: local}}]}}\n",
    ] {
        place.write(".agentsh.yaml", text);
        let outcome = place.shell("true");
        assert_eq!(outcome.code, 125, "{outcome}");
        assert!(outcome.stderr.contains("inside the project cannot"), "{outcome}");
    }
}
