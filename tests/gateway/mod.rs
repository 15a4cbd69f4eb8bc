//! `agentsh gateway`: servers over HTTP, as clients on other machines see them.

mod approvals;
mod chain;
mod eras;
mod faults;
mod pages;
mod patterns;
mod pauses;
mod secure;
mod steps;
mod tokens;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::http_server::{End, HttpServer, Reply, handshake};
use crate::support::outcome::wait;
use crate::support::{Mode, Outcome, Place};

pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: String,
}

/// One answer: status, headers in lower case, body.
struct Answer {
    status: u16,
    headers: String,
    body: String,
}

impl Gateway {
    pub(crate) fn start(place: &Place, file: &str) -> Self {
        let config = place.write("gateway.yaml", file);
        let mut command = place.agentsh(&["gateway", "--config", config.to_str().unwrap()]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0, "{said}");
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split(',').next().unwrap().to_owned();
            }
            said.push_str(&line);
        };
        // Later output must not block it.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self { child, address }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        let names: Vec<String> = headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        for (name, value) in [("Host", "localhost"), ("Content-Type", "application/json")] {
            if !names.contains(&name.to_ascii_lowercase()) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut text = Vec::new();
        self.send(method, path, headers, body).read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body =
            if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
        Answer { status, headers: head, body }
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], message: &Value) -> Answer {
        self.ask("POST", path, headers, &message.to_string())
    }

    /// A session; gives its id.
    fn shake_hands(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let answer = self.post(path, headers, &initialize());
        assert_eq!(answer.status, 200, "{}", answer.body);
        let id = answer.header("mcp-session-id").unwrap().to_owned();
        let session = ("Mcp-Session-Id", id.as_str());
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(path, &[headers, &[session]].concat(), &ready).status, 202);
        id
    }

    fn reload(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGHUP).unwrap();
    }

    pub(crate) fn stop(mut self) -> i32 {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).unwrap();
        wait(&mut self.child)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let line = self.headers.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }

    /// The messages in it, of a stream or alone.
    fn messages(&self) -> Vec<Value> {
        if self.header("content-type") == Some("application/json") {
            return vec![serde_json::from_str(&self.body).unwrap()];
        }
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    fn last(&self) -> Value {
        self.messages().pop().unwrap()
    }

    fn code(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"]["data"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        out += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    out
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}})
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

/// The fixture server at `/mcp/fs`.
fn file(place: &Place, more: &str) -> String {
    let server = place.program("fixture_server");
    format!(
        "listen: 127.0.0.1:0\nendpoints: [{{id: fs, command: {}, env: {{WHO: gate}}}}]\n{more}",
        server.display()
    )
}

const OPEN: &str = "auth: {open: true}\n";

/// The line of a configuration by which agentsh lists no tools itself: for servers that answer a fixed sequence.
fn without_definitions(place: &Place) -> String {
    let policy = place.write("without-definitions.yaml", crate::support::WITHOUT_DEFINITIONS);
    format!("policy: {}\n", policy.display())
}

#[test]
fn a_sandboxed_server_is_served_and_every_session_is_its_own() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let gateway = Gateway::start(&place, &file(&place, OPEN));
        let one = gateway.shake_hands("/mcp/fs", &[]);
        let two = gateway.shake_hands("/mcp/fs", &[]);
        assert_ne!(one, two);
        let session = ("Mcp-Session-Id", one.as_str());
        let listed =
            gateway.post("/mcp/fs", &[session], &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
        assert!(listed.last()["result"]["tools"].as_array().unwrap().len() > 10, "{}", listed.body);
        let env = gateway.post("/mcp/fs", &[session], &call(2, "env", json!({"name": "WHO"})));
        assert_eq!(env.last()["result"]["content"][0]["text"], "gate", "{mode:?}");
        assert!(env.header("x-agentsh-log-id").is_some());
        // The same id at the same time in two sessions.
        let other =
            gateway.post("/mcp/fs", &[("Mcp-Session-Id", &two)], &call(2, "echo", json!({"text": "two"})));
        assert_eq!(other.last()["result"]["content"][0]["text"], "two");
        assert_eq!(gateway.ask("DELETE", "/mcp/fs", &[session], "").status, 204);
        assert_eq!(gateway.post("/mcp/fs", &[session], &call(3, "echo", json!({}))).status, 404);
        assert_eq!(gateway.stop(), 0);
        let calls = place.listed(&["mcp", "calls", "--json"]);
        assert_eq!(calls.len(), 2, "{mode:?} {calls:?}");
    }
}

#[test]
fn server_requests_and_progress_are_sent_on_the_stream() {
    let place = Place::new(Mode::Invoker);
    let gateway = Gateway::start(&place, &file(&place, OPEN));
    let id = gateway.shake_hands("/mcp/fs", &[]);
    let session = ("Mcp-Session-Id", id.as_str());
    let notified = gateway.post("/mcp/fs", &[session], &call(4, "notify", json!({"count": 3})));
    let messages = notified.messages();
    assert!(messages.len() > 1 && messages.last().unwrap()["id"] == 4, "{}", notified.body);
    assert!(notified.body.contains("id: "), "events can be asked for again");
    // A request of the server on the stream; its answer by another POST.
    let asking = call(5, "ask", json!({"method": "ping", "params": {}}));
    let stream = gateway.send("POST", "/mcp/fs", &[session], &asking.to_string());
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let asked = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    let asked: Value = serde_json::from_str(&asked).unwrap();
    assert_eq!(asked["method"], "ping");
    let reply = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}});
    assert_eq!(gateway.post("/mcp/fs", &[session], &reply).status, 202);
    let answer = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["id"], 5);
}

#[test]
fn keys_open_their_endpoints_and_sessions_are_bound_to_them() {
    let place = Place::new(Mode::Invoker);
    let config = place.write("gateway.yaml", file(&place, ""));
    let keys = |words: &[&str]| {
        let mut all = vec!["gateway", "--config", config.to_str().unwrap(), "keys"];
        all.extend(words);
        Outcome::of(&mut place.agentsh(&all))
    };
    let laptop = keys(&["create", "laptop", "--endpoint", "fs"]).expect_code(0).stdout.trim().to_owned();
    let other = keys(&["create", "other"]).expect_code(0).stdout.trim().to_owned();
    assert!(
        keys(&["create", "x", "--endpoint", "nope"]).expect_code(2).stderr.contains("no endpoint 'nope'")
    );
    let gateway = Gateway::start(&place, &file(&place, ""));
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
    let refused = gateway.post("/mcp/fs", &[], &hello);
    assert_eq!((refused.status, refused.code().as_str()), (401, "BLOCKED_AUTH"));
    assert!(refused.header("www-authenticate").unwrap().starts_with("bearer"));
    let bearer = |key: &str| format!("Bearer {key}");
    let (own, foreign) = (bearer(&laptop), bearer(&other));
    let id = gateway.shake_hands("/mcp/fs", &[("Authorization", &own)]);
    let session = ("Mcp-Session-Id", id.as_str());
    let say = call(1, "echo", json!({"text": "mine"}));
    let mine = gateway.post("/mcp/fs", &[session, ("Authorization", &own)], &say);
    assert_eq!(mine.last()["result"]["content"][0]["text"], "mine");
    // Another key does not find the session, even with its name.
    assert_eq!(gateway.post("/mcp/fs", &[session, ("Authorization", &foreign)], &say).status, 404);
    let listen = |session: &str, key: &str| {
        let headers = [("Mcp-Session-Id", session), ("Authorization", key), ("Accept", "text/event-stream")];
        let mut stream = BufReader::new(gateway.send("GET", "/mcp/fs", &headers, ""));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "no head");
        }
        stream
    };
    let others = gateway.shake_hands("/mcp/fs", &[("Authorization", &foreign)]);
    let (mut closed, mut open) = (listen(&id, &own), listen(&others, &foreign));
    keys(&["revoke", "laptop"]).expect_code(0);
    gateway.reload();
    // The stream of the key ends with it, and no other.
    closed.read_to_end(&mut Vec::new()).unwrap();
    open.get_ref().set_nonblocking(true).unwrap();
    assert!(!matches!(open.read(&mut [0; 64]), Ok(0)));
    assert!(crate::support::eventually(|| {
        gateway.post("/mcp/fs", &[session, ("Authorization", &own)], &say).status == 401
    }));
    assert!(!keys(&["list"]).stdout.contains(&laptop));
    gateway.stop();
    let record = json!(place.listed(&["mcp", "events", "--json"])).to_string();
    assert!(record.contains("blocked-auth") && !record.contains(&laptop), "{record}");
}

#[test]
fn cross_site_oversized_and_malformed_requests_reach_no_server() {
    let place = Place::new(Mode::Invoker);
    let keys = "limits: {message_bytes: 10000}\npublic_url: https://mcp.example.com/base\n";
    let gateway = Gateway::start(&place, &file(&place, &format!("{OPEN}{keys}")));
    let ask = |headers: &[(&str, &str)], body: &str| {
        let answer = gateway.ask("POST", "/mcp/fs", headers, body);
        (answer.status, answer.code())
    };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(ask(&[("Origin", "https://evil.example.com")], ping), (403, "BLOCKED_ORIGIN".into()));
    assert_eq!(ask(&[("Host", "evil.example.com")], ping), (403, "BLOCKED_ORIGIN".into()));
    // The gateway's own origin is not a foreign one.
    let own = [("Host", "mcp.example.com"), ("Origin", "https://mcp.example.com")];
    assert_eq!(ask(&own, ping), (400, "NO_SESSION".into()));
    let bound = format!("http://{}", gateway.address);
    assert_eq!(ask(&[("Origin", &bound)], ping), (400, "NO_SESSION".into()));
    assert_eq!(ask(&[("Origin", "http://127.0.0.1:0")], ping), (403, "BLOCKED_ORIGIN".into()));
    assert_eq!(ask(&[("Content-Type", "text/plain")], ping).0, 415);
    assert_eq!(ask(&[("Accept", "text/html")], ping).0, 406);
    assert_eq!(ask(&[], &"x".repeat(20_000)).0, 413);
    assert_eq!(ask(&[], "{").0, 400);
    assert_eq!(ask(&[], r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#).0, 400);
    assert_eq!(ask(&[], ping), (400, "NO_SESSION".into()));
    assert_eq!(ask(&[("Mcp-Session-Id", "0")], ping), (404, "NO_SESSION".into()));
    assert_eq!(gateway.ask("GET", "/mcp/nope", &[], "").status, 404);
    assert_eq!(gateway.ask("PUT", "/mcp/fs", &[], "").status, 405);
    assert_eq!(gateway.ask("GET", "/healthz", &[], "").body, "ok\n");
    let metrics = gateway.ask("GET", "/metrics", &[], "").body;
    assert!(metrics.contains("agentsh_gateway_refusals_total{code=\"BLOCKED_ORIGIN\"} 3"), "{metrics}");
}

#[test]
fn without_sessions_two_clients_with_one_id_hear_their_own() {
    let place = Place::new(Mode::Invoker);
    let gateway = Gateway::start(&place, &file(&place, OPEN));
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let ask = |text: &str| {
        let mut message = call(7, "echo", json!({"text": text}));
        message["params"]["_meta"] = meta.clone();
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo")];
        gateway.post("/mcp/fs", &headers, &message)
    };
    std::thread::scope(|scope| {
        for text in ["one", "two", "three"] {
            let ask = &ask;
            scope.spawn(move || {
                let answer = ask(text).last();
                assert_eq!(
                    (&answer["id"], &answer["result"]["content"][0]["text"]),
                    (&json!(7), &json!(text))
                );
            });
        }
    });
    let mut message = call(7, "echo", json!({}));
    message["params"]["_meta"] = meta;
    let headers =
        [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list"), ("Mcp-Name", "echo")];
    let answer = gateway.post("/mcp/fs", &headers, &message);
    assert_eq!((answer.status, answer.last()["error"]["code"].as_i64()), (400, Some(-32020)));
}

#[test]
fn a_remote_server_gets_its_credentials_from_the_gateway_alone() {
    let place = Place::new(Mode::Invoker);
    place.set("FAR_TOKEN", "t0ken-of-the-gateway");
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let id = asked.message()["id"].clone();
            Reply::json(
                json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "far"}]}}),
            )
        })
    });
    let text = format!(
        "listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: far, url: \"{}\", headers: {{Authorization: \"Bearer ${{FAR_TOKEN}}\"}}}}]\n{}",
        server.url(),
        without_definitions(&place)
    );
    let gateway = Gateway::start(&place, &text);
    let id = gateway.shake_hands("/mcp/far", &[("Authorization", "Bearer of-the-client")]);
    let answer = gateway.post("/mcp/far", &[("Mcp-Session-Id", &id)], &call(1, "any", json!({})));
    assert_eq!(answer.last()["result"]["content"][0]["text"], "far", "{}", answer.body);
    let asked = server.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization") == Some("Bearer t0ken-of-the-gateway")));
}
