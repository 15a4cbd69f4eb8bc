//! The same messages to and from a server behind a URL.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::same;
use super::vectors::{Message, TO_CLIENT, TO_SERVER};
use crate::support::http_server::{HttpServer, Reply};
use crate::support::{Mode, Peer, Place, eventually};

const TRIGGER: &str = r#"{"jsonrpc":"2.0","id":"trigger","method":"vendor/trigger"}"#;
const TRIGGERED: &str = r#"{"jsonrpc":"2.0","id":"trigger","result":{}}"#;
const NOTHING: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#;

fn event(line: &str) -> String {
    format!("data: {line}\n\n")
}

#[test]
fn messages_over_http_are_forwarded_unchanged() {
    let place = Place::new(Mode::Invoker);
    place.without_definitions();
    let say: Arc<Mutex<VecDeque<Vec<String>>>> = Arc::default();
    let said = Arc::clone(&say);
    let server = HttpServer::start(move |asked| match asked.message() {
        message
            if asked.method == "POST"
                && message["id"] != serde_json::Value::Null
                && !asked.rpc().is_empty() =>
        {
            let lines = said.lock().unwrap().pop_front().unwrap_or_default();
            let pieces: Vec<String> = lines.iter().map(|line| event(line)).collect();
            Reply::events(&pieces.iter().map(String::as_str).collect::<Vec<_>>())
        }
        _ if asked.method == "POST" => Reply::status(202),
        _ => Reply::status(405),
    });
    let mut peer = Peer::start(&mut place.agentsh(&["mcp", "run", "--id", "far", "--url", &server.url()]));
    let plan = |lines: &[&str]| {
        say.lock().unwrap().push_back(lines.iter().map(|line| (*line).to_owned()).collect());
    };
    for Message { before, line } in TO_CLIENT {
        match before {
            Some(request) => {
                plan(&[line]);
                peer.send_line(request.as_bytes());
                same(line, &peer.next_line());
            }
            None => {
                plan(&[line, TRIGGERED]);
                peer.send_line(TRIGGER.as_bytes());
                same(line, &peer.next_line());
                same(TRIGGERED, &peer.next_line());
            }
        }
    }
    let arrived = |line: &str| {
        let is_there = || {
            server
                .asked()
                .iter()
                .any(|asked| super::bare(asked.body.as_bytes()) == super::bare(line.as_bytes()))
        };
        assert!(eventually(is_there), "{line}: {:?}", server.asked().last());
    };
    for Message { before, line } in TO_SERVER {
        if let Some(request) = before {
            plan(&[request, TRIGGERED]);
            peer.send_line(TRIGGER.as_bytes());
            same(request, &peer.next_line());
            same(TRIGGERED, &peer.next_line());
            peer.send_line(line.as_bytes());
            arrived(line);
            continue;
        }
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        if message["id"].is_null() {
            peer.send_line(line.as_bytes());
            arrived(line);
        } else {
            let answer = NOTHING.replace("ID", &message["id"].to_string());
            plan(&[&answer]);
            peer.send_line(line.as_bytes());
            peer.next_line();
            arrived(line);
        }
    }
    peer.finish();
}
