//! Sizes and combinations that the table of `vectors` does not cover.

use serde_json::json;

use super::bare;
use crate::support::{Mode, Peer, Place};

#[test]
fn white_space_inside_strings_is_kept() {
    assert_eq!(bare(br#"{ "a b" : " \" c" }"#), br#"{"a b":" \" c"}"#);
}

#[test]
#[ignore = "takes long"]
fn messages_of_every_size_pass() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    for length in [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1_000_000, 8_000_000] {
        let text = "ä".repeat(length / 2) + if length % 2 == 1 { "x" } else { "" };
        assert_eq!(peer.text("echo", json!({"text": text})), text, "{length}");
    }
}

#[test]
fn many_calls_in_flight_are_all_answered() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    for number in 0..500 {
        let params = json!({"name": "echo", "arguments": {"text": format!("call {number}")}});
        peer.send(
            &json!({"jsonrpc": "2.0", "id": format!("c{number}"), "method": "tools/call", "params": params}),
        );
    }
    for number in 0..500 {
        let answer = peer.next();
        assert_eq!(answer["id"], format!("c{number}"));
        assert_eq!(answer["result"]["content"][0]["text"], format!("call {number}"));
    }
}

/// Empty lines and a carriage return before the end of a line are passed over.
#[test]
fn blank_lines_are_ignored() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    peer.send_line(b"");
    peer.send_line(b"\r");
    peer.send_line(b"{\"jsonrpc\":\"2.0\",\"id\":1000,\"method\":\"ping\"}\r");
    assert_eq!(peer.next(), json!({"jsonrpc": "2.0", "id": 1000, "result": {}}));
}

/// A byte order mark is not JSON: the request is answered by its id, and the next one is served.
#[test]
fn a_byte_order_mark_is_answered() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::ready(&place, &[]);
    peer.send_line(b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}");
    let answer = peer.next();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32700)), "{answer}");
    peer.send_line(b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\"}");
    assert_eq!(peer.next(), json!({"jsonrpc": "2.0", "id": 8, "result": {}}));
}
