//! Telemetry of a session: an OTLP receiver, a file, a syslog and webhooks.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http_server::{Asked, HttpServer, Reply};
use crate::support::{Mode, Outcome, Peer, Place};

const DENIED: &str = "sandbox: {mcp: {enforce_policy: true, tool_policy: denylist, denied_tools: [{server: \"*\", tool: crash}]}}";

fn receiver() -> HttpServer {
    HttpServer::start(|_| Reply::json("{}"))
}

/// An agent that calls two tools, of which one is refused, and asks its model.
pub fn session(place: &Place, model: Option<&HttpServer>) -> Outcome {
    let servers =
        json!({"mcpServers": {"fixture": {"command": place.program("fixture_server"), "args": []}}});
    place.write(place.home.join(".claude.json"), servers.to_string());
    let mut script = "#!/bin/sh\n/run/agentsh/agentsh call fixture echo '{\"text\": \"hello\"}'\n\
        /run/agentsh/agentsh call fixture crash\n"
        .to_owned();
    if let Some(model) = model {
        place.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", model.port));
        place.set("ANTHROPIC_API_KEY", "sk-ant-test");
        script.push_str(
            "curl -sS --max-time 20 -H 'Content-Type: application/json' -H \"X-Api-Key: $ANTHROPIC_API_KEY\" \
             -d '{\"model\": \"claude-x\", \"messages\": []}' \"$ANTHROPIC_BASE_URL/v1/messages\"\n",
        );
    }
    script.push_str("exit 0\n");
    let claude = place.script(place.project.join("bin/claude"), &script);
    Outcome::of(place.agentsh(&["run", "--quiet", "--"]).arg(claude))
}

/// The values of an attribute list, as text.
fn attribute(owner: &Value, key: &str) -> Option<String> {
    let found = owner["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    let value = found["value"].as_object()?.values().next()?;
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// What came to this path: the leaves of all requests.
fn told(asked: &[Asked], path: &str, outer: &str, scope: &str, leaf: &str) -> Vec<Value> {
    let requests = asked.iter().filter(|asked| asked.path == path);
    let leaves = requests.flat_map(|asked| {
        assert_eq!(asked.header("content-type"), Some("application/json"));
        let message = asked.message();
        assert_eq!(attribute(&message[outer][0]["resource"], "service.name").as_deref(), Some("fleet-7"));
        message[outer][0][scope][0][leaf].as_array().unwrap_or_else(|| panic!("{message}")).clone()
    });
    leaves.collect()
}

#[test]
fn telemetry_sends_spans_events_and_metrics() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let receiver = receiver();
        let model = HttpServer::start(|_| {
            Reply::json(json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-x",
                "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 11, "output_tokens": 7}}))
        });
        place.user_policy(&format!("version: 1\n{DENIED}\n"));
        place.set("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", receiver.port));
        place.set("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue%20one");
        place.set("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
        place.set("OTEL_SERVICE_NAME", "fleet-7");
        let outcome = session(&place, Some(&model)).expect_code(0);
        assert!(!outcome.stderr.contains("telemetry"), "{mode:?} {outcome}");
        let asked = receiver.asked();
        assert!(asked.iter().all(|asked| asked.header("x-team") == Some("blue one")));

        let spans = told(&asked, "/v1/traces", "resourceSpans", "scopeSpans", "spans");
        let named = |name: &str| {
            let found = spans.iter().find(|span| span["name"] == name);
            found.unwrap_or_else(|| panic!("{mode:?} {name} in {spans:#?} {outcome}"))
        };
        let root = named("agentsh session");
        assert!(root.get("parentSpanId").is_none(), "{root}");
        assert!(spans.iter().all(|span| span["traceId"] == root["traceId"]));
        let echo = named("tools/call echo");
        assert_eq!(attribute(echo, "mcp.method.name").as_deref(), Some("tools/call"));
        assert_eq!(attribute(echo, "gen_ai.tool.name").as_deref(), Some("echo"));
        assert_eq!(attribute(echo, "agentsh.server").as_deref(), Some("fixture"));
        assert!(echo.get("status").is_none(), "{echo}");
        let crash = named("tools/call crash");
        assert_eq!(crash["status"]["code"], 2, "{crash}");
        assert!(attribute(crash, "agentsh.rule").unwrap().contains("policy.yaml:2"), "{crash}");
        let process = spans.iter().find(|span| span["spanId"] == echo["parentSpanId"]).unwrap();
        assert_eq!((&process["name"], &process["parentSpanId"]), (&json!("process"), &root["spanId"]));
        let chat = named("chat claude-x");
        assert_eq!(attribute(chat, "gen_ai.provider.name").as_deref(), Some("anthropic"));
        assert_eq!(attribute(chat, "gen_ai.request.model").as_deref(), Some("claude-x"));
        assert_eq!(attribute(chat, "gen_ai.usage.input_tokens").as_deref(), Some("11"));

        let logs = told(&asked, "/v1/logs", "resourceLogs", "scopeLogs", "logRecords");
        let recorded: u64 = place.listed(&["mcp", "events", "--json"]).len() as u64;
        assert_eq!(logs.len() as u64, recorded, "every event, once");
        let last = logs.last().unwrap();
        assert_eq!(last["eventName"], "agentsh.session_ended", "{last}");
        assert_eq!((&last["traceId"], &last["spanId"]), (&root["traceId"], &root["spanId"]));

        let metrics = told(&asked, "/v1/metrics", "resourceMetrics", "scopeMetrics", "metrics");
        let value = |name: &str, key: &str, label: &str| {
            let metric = metrics.iter().rev().find(|metric| metric["name"] == name);
            let metric = metric.unwrap_or_else(|| panic!("{name} in {metrics:#?}"));
            assert_eq!(metric["sum"]["aggregationTemporality"], 2);
            let points = metric["sum"]["dataPoints"].as_array().unwrap();
            let point = points.iter().find(|point| attribute(point, key).is_some_and(|found| found == label));
            point.unwrap_or_else(|| panic!("{metric}"))["asInt"].clone()
        };
        assert_eq!(value("agentsh.calls", "agentsh.action", "allow"), "1");
        assert_eq!(
            value("agentsh.refusals", "agentsh.rule", &attribute(crash, "agentsh.rule").unwrap()),
            "1"
        );
        assert_eq!(value("agentsh.model.tokens", "gen_ai.token.type", "output"), "7");
    }
}

#[test]
fn telemetry_uses_protobuf_by_default() {
    let place = Place::new(Mode::Invoker);
    let receiver = receiver();
    place.user_policy(&format!(
        "telemetry: {{otlp: {{endpoint: \"http://127.0.0.1:{}/base\", headers: {{X-Key: \"${{SECRET_OF_RECEIVER}}\"}}}}}}\n{DENIED}\n",
        receiver.port
    ));
    place.set("SECRET_OF_RECEIVER", "s3");
    // For others.
    place.set("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    session(&place, None).expect_code(0);
    for (path, part) in
        [("traces", "mcp.method.name"), ("logs", "session_ended"), ("metrics", "agentsh.calls")]
    {
        let asked = receiver.asked();
        let all: Vec<&Asked> =
            asked.iter().filter(|asked| asked.path == format!("/base/v1/{path}")).collect();
        assert!(all.iter().any(|asked| asked.body.contains(part)), "{part}");
        assert!(all.iter().all(|asked| asked.header("content-type") == Some("application/x-protobuf")
            && asked.header("x-key") == Some("s3")
            // The first field: a message.
            && asked.body.starts_with('\n')));
    }
}

#[test]
fn telemetry_reaches_file_syslog_and_webhooks() {
    let place = Place::new(Mode::Invoker);
    let (all, few) = (receiver(), receiver());
    let socket = place.path("log.sock");
    let daemon = UnixDatagram::bind(&socket).unwrap();
    daemon.set_nonblocking(true).unwrap();
    place.user_policy(&format!(
        "telemetry:\n  file: ~/events.jsonl\n  syslog: {}\n  webhooks:\n    \
         - {{url: \"http://127.0.0.1:{}/all\", events: [\"*\"]}}\n    \
         - {{url: \"http://127.0.0.1:{}/few\", secret_env: HOOK_SECRET, events: [\"mcp_tool_call_*\", mcp_detection]}}\n{DENIED}\n",
        socket.display(),
        all.port,
        few.port
    ));
    place.set("HOOK_SECRET", "k");
    place.write(place.home.join("events.jsonl"), "{\"before\": true}\n");
    let outcome = session(&place, None).expect_code(0);
    assert!(
        outcome.stderr.contains("telemetry: webhooks: no event has the type 'mcp_detection'"),
        "{outcome}"
    );

    let path = place.home.join("events.jsonl");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"before": true}));
    assert_eq!((&lines[1]["type"], &lines[1]["seq"]), (&json!("session_started"), &json!(1)));
    assert_eq!(lines.last().unwrap()["type"], "session_ended");
    assert_eq!(lines.len() - 1, place.listed(&["mcp", "events", "--json"]).len());

    let mut buffer = vec![0; 1 << 16];
    let read = daemon.recv(&mut buffer).unwrap();
    let message = String::from_utf8_lossy(&buffer[..read]).into_owned();
    assert!(
        message.starts_with("<14>1 ") && message.contains(" session_started - {\"session\":"),
        "{message}"
    );

    let few = few.asked();
    assert_eq!(few.len(), 2, "{few:?}");
    for asked in &few {
        assert_eq!(asked.message()["type"], "mcp_tool_call_intercepted");
        assert!(asked.header("x-canary-signature-256").unwrap().starts_with("sha256="));
    }
    assert!(all.asked().len() > few.len());
    assert!(all.asked().iter().all(|asked| asked.header("x-canary-signature-256").is_none()));
}

#[test]
fn telemetry_contains_no_secret() {
    const SECRET: &str = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9";
    let place = Place::new(Mode::Invoker);
    let receiver = receiver();
    place.user_policy(&format!(
        "telemetry:\n  otlp: {{endpoint: \"http://127.0.0.1:{0}\", protocol: http/json}}\n  file: ~/events.jsonl\n  \
         webhooks: [{{url: \"http://127.0.0.1:{0}/hook\", events: [\"*\"]}}]\n",
        receiver.port
    ));
    let mut peer = Peer::ready(&place, &[]);
    let said =
        peer.text("echo", json!({"text": format!("the token is {SECRET}"), "password": "hunter2hunter2"}));
    assert!(said.contains(SECRET), "it went through: {said}");
    peer.finish();
    let words = ["run", "--quiet", "--", "sh", "-c", "true", "--token", "hunter2hunter2", SECRET];
    Outcome::of(&mut place.agentsh(&words)).expect_code(0);
    let lines = std::fs::read_to_string(place.home.join("events.jsonl")).unwrap();
    let asked = receiver.asked();
    for path in ["/v1/traces", "/v1/logs", "/v1/metrics", "/hook"] {
        assert!(asked.iter().any(|asked| asked.path == path), "{path}");
    }
    let told = asked.iter().map(|asked| asked.body.as_str()).chain([lines.as_str()]);
    for text in told {
        assert!(!text.contains(SECRET) && !text.contains("hunter2"), "{text}");
    }
    assert!(lines.contains("the token is "), "the rest of the argument is told: {lines}");
}

#[test]
fn the_environment_asks_for_gzip() {
    let place = Place::new(Mode::Invoker);
    let receiver = receiver();
    place.set("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", receiver.port));
    place.set("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");
    session(&place, None).expect_code(0);
    let asked = receiver.asked();
    assert!(asked.len() >= 3);
    for one in asked {
        assert!(
            one.header("content-encoding") == Some("gzip") && one.body.starts_with('\u{1f}'),
            "{}",
            one.path
        );
    }
}

#[test]
#[ignore = "takes long"]
fn unreachable_telemetry_receiver_is_reported_and_delays_nothing() {
    let place = Place::new(Mode::Invoker);
    // Takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    place.user_policy(&format!(
        "telemetry:\n  otlp: {{endpoint: \"http://127.0.0.1:{port}\"}}\n  \
         webhooks: [{{url: \"http://127.0.0.1:{port}/\", events: [mcp_tool_called]}}]\n{DENIED}\n"
    ));
    let before = Instant::now();
    let outcome = session(&place, None).expect_code(0);
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    let told = outcome.stderr.lines().find(|line| line.contains("telemetry: otlp: "));
    let told = told.unwrap_or_else(|| panic!("{outcome}"));
    assert!(told.contains("log records and") && !told.contains(" 0 log records"), "{told}");
    assert!(outcome.stderr.contains("telemetry: webhooks: 2 events were not delivered: "), "{outcome}");
    // The record is complete.
    assert_eq!(place.events("session_ended").len(), 1);
    drop(silent);

    let before = Instant::now();
    let refused = session(&place, None).expect_code(0);
    assert!(refused.stderr.contains("telemetry: otlp: "), "{refused}");
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
}

#[test]
fn telemetry_file_that_is_a_link_is_refused_and_reported() {
    let place = Place::new(Mode::Invoker);
    let target = place.write("target", "mine\n");
    std::os::unix::fs::symlink(&target, place.home.join("link.jsonl")).unwrap();
    place.user_policy(
        "telemetry:\n  file: ~/link.jsonl\n  webhooks: [{url: \"https://a.example/\", secret_env: NOT_SET, events: [\"*\"]}]\n",
    );
    let outcome = place.shell("true").expect_code(0);
    assert!(
        outcome.stderr.contains("policy.yaml:2 (telemetry.file) gets no events: it is a symbolic link"),
        "{outcome}"
    );
    assert!(outcome.stderr.contains("the variable NOT_SET is not set"), "{outcome}");
    assert_eq!(std::fs::read_to_string(target).unwrap(), "mine\n");
}

#[test]
fn project_policy_cannot_configure_telemetry() {
    let place = Place::new(Mode::Invoker);
    for line in [
        "otlp: {endpoint: \"http://127.0.0.1:9\"}",
        "otlp: {headers: {A: b}}",
        "file: /tmp/events",
        "syslog: false",
        "webhooks: [{url: \"http://127.0.0.1:9\", events: [\"*\"]}]",
    ] {
        place.write(".agentsh.yaml", format!("telemetry: {{{line}}}\n"));
        let outcome = place.shell("true");
        assert_eq!(outcome.code, 125, "{line} {outcome}");
        assert!(
            outcome.stderr.contains("only the user decides who receives a session's events"),
            "{line} {outcome}"
        );
    }
}
