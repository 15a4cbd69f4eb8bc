//! Programs that a fleet works with: a receiver made of OpenTelemetry's own packages, and an OpenID provider made of Authlib.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use url::Url;

use crate::agents::{CLAUDE, claude_environment, project, script};
use crate::model::anthropic;
use crate::place::{Place, Starter, installed, run};

/// Ends with the case.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("its address").port()
}

/// Starts a script with the Python of the fleet. Returns once it listens on this port.
fn python(place: &Place, text: &str, words: &[&str], port: u16) -> Ending {
    let program = place.home.join("beside.py");
    place.write(&program, text);
    let mut command = place.command(installed("venv-fleet/bin/python3"));
    command.arg(&program).args(words).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Ending(command.spawn().expect("Python starts"));
    let since = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

/// Everything that was taken of one kind.
fn taken(file: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    lines.filter(|line| line["kind"] == kind).collect()
}

/// A whole session of Claude Code: every message is parsed by the official packages, and no name is of our own making that is not
/// called so.
pub fn telemetry(starter: Starter) {
    for protocol in ["grpc", "http/protobuf"] {
        let place = project(starter);
        let (grpc, http) = (free_port(), free_port());
        let file = place.home.join("taken.jsonl");
        let words = [grpc.to_string(), http.to_string(), file.display().to_string()];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _receiver = python(&place, include_str!("otlp.py"), &words, http);
        let port = if protocol == "grpc" { grpc } else { http };
        let policy = format!(
            "version: 1\ntelemetry: {{otlp: {{endpoint: \"http://127.0.0.1:{port}\", protocol: {protocol}}}}}\n"
        );
        place.write(&place.home.join(".config/agentsh/policy.yaml"), &policy);
        let model = anthropic::start(script());
        let mut command = place.agentsh(["run", "--"].iter().chain(&CLAUDE));
        claude_environment(&mut command, &model);
        let ended = run(&mut command);
        assert_eq!(ended.status, Some(0), "{}\n{}", ended.stdout, ended.stderr);
        assert!(!ended.stderr.contains("telemetry"), "{}", ended.stderr);
        let way = protocol.split('/').next().expect("a word");
        let all: Vec<Value> =
            ["traces", "logs", "metrics"].iter().flat_map(|kind| taken(&file, kind)).collect();
        for one in &all {
            assert_eq!((&one["by"], &one["unknown"]), (&Value::from(way), &serde_json::json!([])), "{one}");
        }
        let leaves = |kind: &str, outer: &str, scope: &str, leaf: &str| -> Vec<Value> {
            let messages = taken(&file, kind);
            let leaves = messages
                .iter()
                .flat_map(|one| one["message"][outer][0][scope][0][leaf].as_array().expect("a list").clone());
            leaves.collect()
        };
        let spans = leaves("traces", "resourceSpans", "scopeSpans", "spans");
        let named = |name: &str| {
            let found = spans.iter().find(|span| span["name"] == name);
            found.unwrap_or_else(|| panic!("{name} in {spans:#?}"))
        };
        let root = named("agentsh session");
        let call = named("tools/call read_text_file");
        let process = spans.iter().find(|span| span["spanId"] == call["parentSpanId"]).expect("its process");
        assert_eq!(process["parentSpanId"], root["spanId"]);
        assert!(spans.iter().any(|span| span["name"].as_str().is_some_and(|name| name.starts_with("chat "))));
        assert!(spans.iter().all(|span| span["traceId"] == root["traceId"]));
        let logs = leaves("logs", "resourceLogs", "scopeLogs", "logRecords");
        let events = place.ask(&["mcp", "events", "--limit", "100000", "--json"]);
        assert_eq!(logs.len(), events.as_array().expect("a list").len(), "every event, once");
        let metrics = leaves("metrics", "resourceMetrics", "scopeMetrics", "metrics");
        for name in ["agentsh.calls", "agentsh.model.tokens", "gen_ai.client.operation.duration"] {
            assert!(metrics.iter().any(|metric| metric["name"] == name), "{name} in {metrics:#?}");
        }
    }
}

/// One request: status, headers in lower case, body.
fn ask(url: &Url, cookie: &str) -> (u16, Vec<(String, String)>, String) {
    let host = format!("127.0.0.1:{}", url.port().expect("a port"));
    let mut stream = TcpStream::connect(&host).expect("a connection");
    let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let lines = lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    (status, lines, body.to_owned())
}

fn header<'a>(lines: &'a [(String, String)], name: &str) -> Option<&'a str> {
    lines.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A browser from the first page of a fleet over the provider and back.
pub fn signs_in(starter: Starter) {
    let place = Place::new(starter);
    let (pages, port) = (free_port(), free_port());
    let own = format!("http://127.0.0.1:{pages}");
    let (client, secret) = ("fleet-pages", "s3cret of the pages");
    let words = [port.to_string(), client.to_owned(), secret.to_owned(), format!("{own}/sign-in/callback")];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _provider = python(&place, include_str!("oidc.py"), &words, port);
    let issuer = format!("http://127.0.0.1:{port}");
    let database = place.home.join("fleet.db").display().to_string();
    let listen = format!("127.0.0.1:{pages}");
    let words = [
        "fleet",
        "serve",
        "--listen",
        &listen,
        "--database",
        &database,
        "--oidc-issuer",
        &issuer,
        "--oidc-client",
        client,
        "--public-url",
        &own,
        "--oidc-claim",
        "groups",
        "--oidc-role",
        "approver=on-call",
    ];
    let mut command = place.agentsh(words);
    command.env("AGENTSH_FLEET_OIDC_SECRET", secret).stdout(Stdio::piped());
    let mut server = Ending(command.spawn().expect("the server starts"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let at = |path: &str| Url::parse(&format!("{own}{path}")).expect("a URL");
    let (status, lines, body) = ask(&at("/sign-in/provider"), "");
    assert_eq!(status, 303, "{body}");
    let kept =
        header(&lines, "set-cookie").and_then(|line| line.split(';').next()).expect("a cookie").to_owned();
    let to = Url::parse(header(&lines, "location").expect("a place")).expect("a URL");
    let (status, lines, body) = ask(&to, "");
    assert_eq!(status, 302, "{body}");
    let back = Url::parse(header(&lines, "location").expect("a place")).expect("a URL");
    assert_eq!(back.port(), Some(pages), "{back}");
    let (status, lines, body) = ask(&back, &kept);
    assert_eq!(status, 200, "{body}");
    let cookies = lines.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value);
    let cookie = cookies
        .filter_map(|line| line.split(';').next())
        .find(|line| line.starts_with("agentsh-fleet=agf_in_"));
    let (status, _, body) = ask(&at("/"), cookie.expect("signed in"));
    assert!(
        status == 200 && body.contains("Signed in as oidc:ada [") && body.contains("] (approver)"),
        "{body}"
    );
    // The same answer does not count twice.
    assert_eq!(ask(&back, &kept).0, 401);
}
