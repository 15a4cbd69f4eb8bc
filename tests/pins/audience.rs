//! Servers list more for clients that support more: that is not a change, and the pins of one kind of client are not
//! compared with the listing of another.

use serde_json::{Value, json};

use super::interface::{pins, tool};
use crate::support::{Mode, Peer, Place};

/// Lists what is in `plain`, or in `capable` for a client that can sample.
const SERVER: &str = r#"#!/bin/sh
file=plain
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*)
      case $line in *'"sampling"'*) file=capable ;; esac
      result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) result='{"tools":'"$(cat $file)"'}' ;;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"ran"}]}' ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// Names of the tools that a client with these capabilities sees, whether a call of `read` runs, and the messages to the user.
fn seen(place: &Place, capabilities: Value) -> (Vec<String>, bool, String) {
    let server = place.script(place.home.join("server"), SERVER);
    let mut peer = Peer::start(place.agentsh(&["mcp", "run", "--id", "s", "--"]).arg(server));
    peer.request(
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}),
    );
    peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let listed = peer.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed} {}", peer.errors()));
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    let ran = peer.call("read", json!({}))["error"].is_null();
    (names, ran, peer.finish().1)
}

#[test]
#[ignore = "takes long"]
fn additional_tools_for_a_capable_client_are_no_change() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let offer = |file: &str, tools: Value| place.write(place.project.join(file), tools.to_string());
        let plain = || seen(&place, json!({}));
        let capable = || seen(&place, json!({"sampling": {}, "roots": {"listChanged": true}}));
        offer("plain", json!([tool("read", "Reads.")]));
        offer("capable", json!([tool("read", "Reads."), tool("sample", "Asks.")]));
        for _ in 0..2 {
            let (names, ran, errors) = plain();
            assert_eq!((names, ran), (vec!["read".to_owned()], true), "{mode:?} {errors}");
            let (names, ran, errors) = capable();
            assert_eq!((names, ran), (vec!["read".to_owned(), "sample".to_owned()], true), "{errors}");
        }
        assert!(place.events("mcp_tool_changed").is_empty());
        // Another text for the same tool is a change until a person has trusted it.
        offer("capable", json!([tool("read", "Reads, and asks.")]));
        let (names, ran, errors) = capable();
        assert!(names.is_empty() && !ran, "{names:?} {errors}");
        assert!(errors.contains("never listed to a client with this capability"), "{errors}");
        let shown = pins(&place, &["diff", "--server", "s"]).expect_code(0);
        for part in ["-Reads.", "+Reads, and asks.", "client    roots roots.listChanged sampling"] {
            assert!(shown.stdout.contains(part), "{part}: {shown}");
        }
        pins(&place, &["trust", "--server", "s", "--tool", "read"]).expect_code(0);
        // Trusted for that client, and the other one keeps its own.
        for _ in 0..2 {
            let (names, ran, errors) = capable();
            assert_eq!((names, ran), (vec!["read".to_owned()], true), "{errors}");
            let (names, ran, errors) = plain();
            assert_eq!((names, ran), (vec!["read".to_owned()], true), "{errors}");
        }
        offer("plain", json!([tool("read", "Reads, and asks.")]));
        let (names, ran, errors) = plain();
        assert!(names.is_empty() && !ran, "{names:?} {errors}");
    }
}
