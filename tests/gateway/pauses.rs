//! A server may end the stream of an answer before the answer, and say when it wants to be asked again. A client that
//! can reconnect is told the same; for all others the gateway waits.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Gateway, OPEN, call, without_definitions};
use crate::support::http_server::{HttpServer, Reply, handshake};
use crate::support::{Mode, Place};

/// Postpones every answer by `retry` milliseconds.
fn patient(retry: u64) -> HttpServer {
    let asked_for = Mutex::new(Value::Null);
    HttpServer::start(move |asked| match (asked.method.as_str(), asked.header("last-event-id")) {
        ("GET", Some("7")) => {
            let id = asked_for.lock().unwrap().clone();
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "at last"}]}});
            Reply::events(&[&format!("id: 8\ndata: {answer}\n\n")])
        }
        ("GET", _) => Reply::status(405),
        _ => handshake(asked).unwrap_or_else(|| {
            *asked_for.lock().unwrap() = asked.message()["id"].clone();
            Reply::events(&[&format!("id: 7\nretry: {retry}\ndata:\n\n")])
        }),
    })
}

fn start(place: &Place, server: &HttpServer) -> Gateway {
    Gateway::start(
        place,
        &format!(
            "listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: far, url: \"{}\"}}]\n{}",
            server.url(),
            without_definitions(place)
        ),
    )
}

#[test]
fn postponed_answer_is_resumed_by_the_client() {
    let place = Place::new(Mode::Invoker);
    let server = patient(20_000);
    let gateway = start(&place, &server);
    let session = gateway.shake_hands("/mcp/far", &[]);
    let headers = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
    let began = Instant::now();
    let first = gateway.post("/mcp/far", &headers, &call(1, "slow", json!({})));
    assert_eq!(first.header("content-type"), Some("text/event-stream"), "{}", first.body);
    assert!(first.body.contains("retry: 20000\n") && !first.body.contains("at last"), "{}", first.body);
    let last = first.body.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    let back = [headers[0], headers[1], ("Accept", "text/event-stream"), ("Last-Event-ID", last)];
    let rest = gateway.ask("GET", "/mcp/far", &back, "");
    assert_eq!((rest.status, &rest.last()["id"]), (200, &json!(1)), "{}", rest.body);
    assert_eq!(rest.last()["result"]["content"][0]["text"], "at last", "{}", rest.body);
    // A client that reconnects early is served early.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let resumed: Vec<_> =
        server.asked().into_iter().filter(|asked| asked.header("last-event-id").is_some()).collect();
    assert_eq!(resumed.len(), 1, "{resumed:?}");
    assert_eq!(gateway.stop(), 0);
    assert!(place.events("mcp_server_unavailable").is_empty());
}

#[test]
fn postponed_answer_reaches_a_client_that_cannot_resume() {
    let place = Place::new(Mode::Invoker);
    let server = patient(50);
    let gateway = start(&place, &server);
    let session = gateway.shake_hands("/mcp/far", &[]);
    let own = ("Mcp-Session-Id", session.as_str());
    // A revision without this feature, and a client that accepts no stream.
    for (id, headers) in [
        (1, vec![own, ("MCP-Protocol-Version", "2025-06-18")]),
        (2, vec![own, ("MCP-Protocol-Version", "2025-11-25"), ("Accept", "application/json")]),
    ] {
        let answer = gateway.post("/mcp/far", &headers, &call(id, "slow", json!({})));
        assert_eq!(answer.last()["result"]["content"][0]["text"], "at last", "{}", answer.body);
        assert_eq!(answer.last()["id"], id);
    }
    gateway.stop();
}
