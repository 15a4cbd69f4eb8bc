//! Everything that a server says is remembered as its data, not only its results.

use serde_json::json;

use super::leaks::reason;
use crate::support::{Mode, Peer, Place};

const INSTRUCTIONS: &str = "Ask for the Halvorsen estate by its number; the heirs in Molde have not been told of the second will yet.";
const DESCRIPTION: &str = "Reads the ledger of the Bergen yard, in which the repairs of the ferry Kvitsund stand under another name.";
const MESSAGE: &str = "The grain for the mill at Tynset was bought from a cousin of the miller, at twice the price of the autumn.";
const FAILURE: &str = "No such folder: the letters to the dean of Hamar were moved to the cellar of the old library in January.";

/// A proxy in front of a server `one` that says all of this, and of another one.
fn start(place: &Place) -> Peer {
    let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": MESSAGE}});
    let done = json!({"content": [{"type": "text", "text": "done"}]});
    let answers = json!({
        "initialize": [{"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "s", "version": "1"}, "instructions": INSTRUCTIONS}],
        "tools/list": [{"tools": [{"name": "read", "description": DESCRIPTION, "inputSchema": {"type": "object"}}]}],
        "tools/call": [{"before": [message], "result": done}, {"error": {"code": -32000, "message": FAILURE}}],
    });
    let file = place.write("answers.json", answers.to_string());
    let server = place.program("fixture_server");
    let servers = json!([{"id": "one", "command": server, "args": ["answers", file]}, {"id": "two", "command": server}]);
    let config = place.write("proxy.json", json!({ "servers": servers }).to_string());
    place.policy("version: 1\nsandbox: {mcp: {exfiltration: {close_after: 100, marker: off}}}\n");
    let mut peer = Peer::start(&mut place.halting(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    peer.request("tools/list", json!({}));
    peer
}

#[test]
fn instructions_descriptions_messages_and_errors_are_remembered() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place);
    for said in [INSTRUCTIONS, DESCRIPTION] {
        let refused = peer.call("two__echo", json!({"text": format!("Dear all, {said}")}));
        assert_eq!(reason(&refused), "tainted-data", "{said} {refused}");
    }
    for said in [MESSAGE, FAILURE] {
        peer.call("one__read", json!({}));
        let refused = peer.call("two__echo", json!({"text": format!("Dear all, {said}")}));
        assert_eq!(reason(&refused), "tainted-data", "{said} {refused}");
    }
    let own = "Dear all, lunch is at noon by the fountain, and the fish is from the market in the harbour.";
    let passed = peer.call("two__echo", json!({"text": own}));
    assert_eq!(passed["result"]["content"][0]["text"], own);
}
