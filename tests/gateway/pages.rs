//! Web pages of listed origins, and other requests that reach an endpoint before the protocol starts.

use std::io::{BufRead, BufReader, Read};

use serde_json::json;

use super::{Gateway, OPEN, call, file};
use crate::support::http_server::{HttpServer, Reply, handshake};
use crate::support::{Mode, Outcome, Place};

const APP: (&str, &str) = ("Origin", "https://app.example.com");
const EVIL: (&str, &str) = ("Origin", "https://evil.example.com");

#[test]
fn page_of_a_listed_origin_sends_a_preflight_and_reads_answers() {
    let place = Place::new(Mode::Invoker);
    let text = file(&place, "origins: ['https://app.example.com']\n");
    let config = place.write("gateway.yaml", &text);
    let mut create =
        place.agentsh(&["gateway", "--config", config.to_str().unwrap(), "keys", "create", "page"]);
    let key = format!("Bearer {}", Outcome::of(&mut create).expect_code(0).stdout.trim());
    let gateway = Gateway::start(&place, &text);
    let asking = [
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type,mcp-protocol-version"),
        ("Sec-Fetch-Site", "cross-site"),
    ];
    // A browser shows no key with this.
    let may = gateway.ask("OPTIONS", "/mcp/fs", &[&asking[..], &[APP]].concat(), "");
    assert_eq!(may.status, 204, "{}", may.headers);
    assert_eq!(may.header("access-control-allow-origin"), Some("https://app.example.com"));
    let methods = may.header("access-control-allow-methods").unwrap();
    assert!(["get", "post", "delete"].iter().all(|method| methods.contains(method)), "{methods}");
    assert_eq!(
        may.header("access-control-allow-headers"),
        Some("authorization,content-type,mcp-protocol-version")
    );
    assert!(may.header("vary").unwrap().contains("origin"));
    let refused = gateway.ask("OPTIONS", "/mcp/fs", &[&asking[..], &[EVIL]].concat(), "");
    assert_eq!((refused.status, refused.code().as_str()), (403, "BLOCKED_ORIGIN"));
    assert_eq!(refused.header("access-control-allow-origin"), None);

    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}}});
    // The page may read why it is refused, and the answer with the name of its session.
    let keyless = gateway.post("/mcp/fs", &[APP], &hello);
    assert_eq!((keyless.status, keyless.code().as_str()), (401, "BLOCKED_AUTH"));
    let answer = gateway.post("/mcp/fs", &[APP, ("Authorization", &key)], &hello);
    for answer in [&keyless, &answer] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
        let exposed = answer.header("access-control-expose-headers").unwrap();
        let named: Vec<&str> = exposed.split(',').map(str::trim).collect();
        for name in ["mcp-session-id", "www-authenticate", "retry-after", "x-agentsh-code"] {
            assert!(named.contains(&name), "{exposed}");
        }
    }
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.header("mcp-session-id").is_some());
    assert_eq!(gateway.post("/mcp/fs", &[EVIL, ("Authorization", &key)], &hello).status, 403);
    // A client that is no web page gets no header about origins.
    let plain = gateway.post("/mcp/fs", &[("Authorization", &key)], &hello);
    assert_eq!((plain.status, plain.header("access-control-allow-origin")), (200, None));
}

#[test]
fn the_newest_stream_of_a_session_is_the_one_that_is_read() {
    let place = Place::new(Mode::Invoker);
    // Between the calls the server speaks when it is told to.
    let (say, feed) = std::sync::mpsc::channel();
    let feed = std::sync::Mutex::new(Some(feed));
    let server = HttpServer::start(move |asked| match asked.method.as_str() {
        "GET" => match feed.lock().unwrap().take() {
            Some(feed) => Reply::events(&[]).fed(feed),
            None => Reply::status(405),
        },
        _ => handshake(asked).unwrap_or_else(|| Reply::status(400)),
    });
    let text = format!("listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: far, url: \"{}\"}}]\n", server.url());
    let gateway = Gateway::start(&place, &text);
    let id = gateway.shake_hands("/mcp/far", &[]);
    let headers = [("Mcp-Session-Id", id.as_str()), ("Accept", "text/event-stream")];
    let listen = || {
        let mut reader = BufReader::new(gateway.send("GET", "/mcp/far", &headers, ""));
        let mut status = String::new();
        reader.read_line(&mut status).unwrap();
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        reader
    };
    let first = listen();
    let mut second = listen();
    // The first one ends, and its client need not wait for that.
    let mut rest = String::new();
    { first }.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("text/event-stream") && !rest.contains("changed"), "{rest}");
    say.send(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned()).unwrap();
    let mut line = String::new();
    while !line.contains("list_changed") {
        line.clear();
        assert!(second.read_line(&mut line).unwrap() > 0, "the newest stream ended");
    }
}

#[test]
fn trailing_slash_is_ignored_and_head_reports_liveness() {
    let place = Place::new(Mode::Invoker);
    let gateway = Gateway::start(&place, &file(&place, OPEN));
    let id = gateway.shake_hands("/mcp/fs/", &[]);
    let session = ("Mcp-Session-Id", id.as_str());
    // It is one endpoint and one session.
    for path in ["/mcp/fs", "/mcp/fs/"] {
        let answer = gateway.post(path, &[session], &call(1, "echo", json!({"text": path})));
        assert_eq!(answer.last()["result"]["content"][0]["text"], path);
    }
    assert_eq!(gateway.ask("DELETE", "/mcp/fs/", &[session], "").status, 204);
    assert_eq!(gateway.ask("GET", "/mcp/fs//", &[], "").status, 404);
    assert_eq!(gateway.ask("GET", "/healthz/", &[], "").body, "ok\n");
    for (path, status) in [("/mcp/fs", 200), ("/mcp/fs/", 200), ("/healthz", 200), ("/mcp/none", 404)] {
        let head = gateway.ask("HEAD", path, &[], "");
        assert_eq!((head.status, head.body.as_str()), (status, ""), "{path}");
    }
    let closed = Gateway::start(&place, &file(&place, ""));
    let head = closed.ask("HEAD", "/mcp/fs", &[], "");
    assert_eq!((head.status, head.body.as_str()), (401, ""));
    assert!(head.header("www-authenticate").is_some());
}
