//! Bad input on the wire: the waiting side gets an error, an event is recorded, and the connection continues.

use serde_json::{Value, json};

use crate::support::{Mode, Peer, Place};

/// Mistakes of a client, and the code of the answer.
const FROM_CLIENT: [(&[u8], i64); 10] = [
    (b"{\"jsonrpc\":\"2.0\",\"id\":901,\"method\":\"ping\"", -32700),
    (b"nonsense", -32700),
    (b"{\"jsonrpc\":\"2.0\",\"id\":902,\"method\":\"ping\",\"params\":{\"a\":1,\"a\":2}}", -32700),
    (b"{\"jsonrpc\":\"2.0\",\"id\":903,\"method\":\"ping\",\"params\":{\"a\":NaN}}", -32700),
    (b"{\"jsonrpc\":\"2.0\",\"id\":904,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}", -32700),
    (b"[{\"jsonrpc\":\"2.0\",\"id\":905,\"method\":\"ping\"}]", -32600),
    (b"{\"jsonrpc\":\"1.0\",\"id\":906,\"method\":\"ping\"}", -32600),
    (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32600),
    (b"{\"jsonrpc\":\"2.0\",\"id\":907,\"method\":5}", -32600),
    (b"42", -32600),
];

#[test]
fn bad_input_of_the_client_is_answered_and_recorded() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    for (line, code) in FROM_CLIENT {
        peer.send_line(line);
        let answer = peer.next();
        let shown = String::from_utf8_lossy(line);
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
        assert_eq!(peer.text("echo", json!({"text": "goes on"})), "goes on", "{shown}");
    }
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":908,\"method\":\"ping\",\"params\":{}{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    peer.send_line(deep.as_bytes());
    assert_eq!(peer.next()["error"]["code"], -32700);
    // An answer to nothing is dropped without an answer.
    peer.send_line(b"{\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}");
    assert_eq!(peer.text("echo", json!({"text": "goes on"})), "goes on");
    peer.finish();
    assert_eq!(place.events("mcp_message_rejected").len(), FROM_CLIENT.len() + 2);
}

#[test]
fn bad_input_of_the_server_is_recorded() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    let lines = [
        "nonsense".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{\"unasked\":true}}".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"a\":1,\"a\":2}}".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"a\":NaN}}".to_owned(),
        "[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}]".to_owned(),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{}1{}}}",
            "[".repeat(130),
            "]".repeat(130)
        ),
    ];
    for line in &lines {
        // The call that was under way may be the one that gets the error: nothing distinguishes them.
        let answer = peer.call("say", json!({"line": line}));
        let said = answer["result"]["content"][0]["text"] == "said";
        assert!(said || answer["error"]["code"] == -32003, "{line}: {answer}");
        assert_eq!(peer.text("echo", json!({"text": "goes on"})), "goes on");
    }
    peer.call("say_bytes", json!({"hex": "7b226a736f6e727063223a22322e30222c226d6574686f64223a22ff227d"}));
    assert_eq!(peer.text("echo", json!({"text": "goes on"})), "goes on");
    for message in &peer.aside {
        let text = message.to_string();
        assert!(!text.contains("unasked") && !text.contains("notifications/message"), "{text}");
    }
    peer.finish();
    let events = place.events("mcp_message_rejected");
    let reasons: Vec<&str> = events.iter().filter_map(|event| reason(event)).collect();
    for expected in ["unasked-response", "duplicate-key", "batch", "invalid-utf8"] {
        assert!(reasons.contains(&expected), "{reasons:?}");
    }
    assert!(events.len() > lines.len(), "{reasons:?}");
}

fn reason(event: &Value) -> Option<&str> {
    event["event"]["reason"].as_str().or_else(|| event["reason"].as_str())
}

#[test]
fn line_longer_than_the_policy_allows_is_refused() {
    let place = Place::new(Mode::Invoker);
    place.policy("sandbox: {mcp: {max_line_bytes: 100000}}\n");
    let mut peer = Peer::ready(&place, &[]);
    let id = peer.ask("tools/call", json!({"name": "echo", "arguments": {"text": "x".repeat(150_000)}}));
    let answer = peer.answer(&id);
    assert_eq!(answer["error"]["data"]["reason"], "oversized-line", "{answer}");
    let answer = peer.call("big", json!({"bytes": 150_000}));
    assert_eq!(answer["error"]["data"]["reason"], "oversized-line", "{answer}");
    peer.call("say_much", json!({"bytes": 5_000_000}));
    assert_eq!(peer.text("echo", json!({"text": "goes on"})), "goes on");
    assert_eq!(peer.text("big", json!({"bytes": 90_000})).len(), 90_000);
    assert!(peer.aside.is_empty(), "{:?}", peer.aside.len());
}

#[test]
fn request_with_an_id_in_use_is_refused() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    let slow = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": {"name": "slow", "arguments": {"ms": 300}}});
    peer.send(&slow);
    peer.send(&slow);
    let first = peer.next();
    assert!(first["error"].is_object(), "{first}");
    let second = peer.next();
    assert_eq!(second["result"]["content"][0]["text"], "slept", "{second}");
}

#[test]
fn a_cancelled_call_is_given_up_and_its_late_answer_dropped() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    let id = peer.ask("tools/call", json!({"name": "slow", "arguments": {"ms": 100}}));
    peer.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    assert_eq!(peer.text("echo", json!({"text": "goes on"})), "goes on");
}

/// Text of a server on the stream of messages is reported, up to a limit.
#[test]
fn server_output_that_is_no_message_is_reported() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    for _ in 0..20 {
        peer.call("say", json!({"line": "Server is listening"}));
    }
    peer.call("say", json!({"line": "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}"}));
    let (_, errors) = peer.finish();
    assert!(errors.contains("a message of server 'fixture' was not forwarded (invalid-json)"), "{errors}");
    assert_eq!(errors.matches("was not forwarded").count(), 3, "{errors}");
    assert!(errors.contains("agentsh mcp events --type mcp_message_rejected"), "{errors}");
}

/// A client that leaves while a call is running is not reported as a server crash.
#[test]
fn client_exit_during_a_call_is_no_server_crash() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    // It ends with its input, and does not answer before.
    let id = peer.ask("tools/call", json!({"name": "hang", "arguments": {}}));
    peer.close();
    let answer = peer.answer(&id);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("when the client closed its input") && !message.contains("again"), "{message}");
    peer.finish();
    assert_eq!(place.events("mcp_server_crashed").len(), 0);
}

/// A number alone says little.
#[test]
fn server_killed_by_a_signal_is_reported_with_the_signal() {
    let place = Place::new(Mode::Invoker);
    let script = place.script("dies", "#!/bin/sh\nread line\nkill -ABRT $$\n");
    let mut command = place.agentsh(&["mcp", "run", "--id", "dies", "--"]);
    let mut peer = Peer::start(command.arg(script));
    let answer = peer.request("ping", json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("ended with exit code 134 (SIGABRT)"), "{message}");
    peer.finish();
    let report = crate::support::Outcome::of(&mut place.agentsh(&["report"])).expect_code(0).stdout;
    assert!(report.contains("last exit status 134 (SIGABRT)"), "{report}");
}
