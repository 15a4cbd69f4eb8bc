#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use serde_json::Value;

use super::*;
use agentsh_store::CommittedEvent;

const START: &str = "2026-01-02T03:04:05Z";

/// Events in order, one second apart.
fn entries(bodies: &[Value]) -> Vec<Entry> {
    let start: Timestamp = START.parse().unwrap();
    let each = bodies.iter().zip(0u32..).map(|(body, at)| CommittedEvent {
        session: SessionId(uuid::Uuid::from_u128(7)),
        seq: u64::from(at) + 1,
        time: start + Duration::from_secs(at.into()),
        body: body.to_string(),
    });
    each.map(|told| Entry::of(&told).unwrap()).collect()
}

fn heard(bodies: &[Value]) -> Vec<Value> {
    let mut spans = Spans::new(SessionId(uuid::Uuid::from_u128(7)));
    entries(bodies).iter().flat_map(|entry| spans.add_entry(entry)).collect()
}

fn attribute(owner: &Value, key: &str) -> Option<Value> {
    let found = owner["attributes"].as_array()?.iter().find(|attribute| attribute["key"] == key)?;
    found["value"].as_object()?.values().next().cloned()
}

fn seconds(span: &Value) -> f64 {
    let at = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    (at("endTimeUnixNano") - at("startTimeUnixNano")) as f64 / 1e9
}

fn call(id: u64) -> Value {
    json!({"type": "mcp_tool_called", "server_id": "s", "tool_name": "t", "jsonrpc_id": id, "input": {}})
}

fn judged(id: u64, action: &str) -> Value {
    json!({"type": "mcp_tool_call_intercepted", "server_id": "s", "tool_name": "t", "jsonrpc_id": id,
        "tool_hash": null, "action": action, "reason": "denied-tool", "rule": {"id": "r", "file": "p.yaml", "line": 3}})
}

#[test]
fn spans_are_children_of_their_parent() {
    let spans = heard(&[
        json!({"type": "session_started", "verb": "run"}),
        json!({"type": "process_started", "server_id": "s", "program": "/bin/s", "pid": 9}),
        call(1),
        json!({"type": "mcp_tool_call_audited", "server_id": "s", "tool_name": "t", "jsonrpc_id": 1,
            "verdict": "clean", "action": "allow", "after_ms": 250}),
        judged(1, "allow"),
        json!({"type": "mcp_network_connection", "server_id": "s", "connection": 1, "name": "a.example",
            "port": 443, "state": "open", "action": "allow", "duration_ms": 1000}),
        json!({"type": "mcp_network_connection", "server_id": "s", "connection": 1, "name": "a.example",
            "port": 443, "state": "closed", "action": "allow", "duration_ms": 2000}),
        json!({"type": "process_exited", "server_id": "s", "exit_code": 1, "cause": "exited"}),
        json!({"type": "session_ended", "exit_code": 0, "duration_ms": 8000}),
    ]);
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["audit", "tools/call t", "connect", "process", "agentsh session"]);
    let [audit, call, connect, process, root] = &spans[..] else { panic!() };
    assert_eq!((audit["parentSpanId"].clone(), seconds(audit)), (call["spanId"].clone(), 0.25));
    assert_eq!((call["parentSpanId"].clone(), seconds(call)), (process["spanId"].clone(), 2.0));
    assert_eq!((connect["parentSpanId"].clone(), seconds(connect)), (process["spanId"].clone(), 2.0));
    assert_eq!((process["parentSpanId"].clone(), seconds(process)), (root["spanId"].clone(), 6.0));
    assert_eq!(attribute(process, "error.type"), Some("exited".into()));
    assert_eq!((root.get("parentSpanId"), seconds(root)), (None, 8.0));
}

#[test]
fn spans_without_an_end_finish_with_the_session() {
    let spans = heard(&[
        json!({"type": "process_started", "pid": "x"}),
        json!({"type": "process_exited", "server_id": "nobody"}),
        json!({"type": "approval_decided", "approval": "never asked"}),
        judged(5, "block"),
        json!({"type": "model_called", "provider": "openai-chat", "model": "m", "status": 503, "total_ms": u64::MAX}),
        json!({"type": "of another version"}),
        json!({"type": "session_ended", "duration_ms": 1000}),
    ]);
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tools/call t", "chat m", "process", "agentsh session"]);
    assert_eq!(spans[0]["status"]["message"], "denied-tool");
    assert_eq!(attribute(&spans[0], "agentsh.rule"), Some("p.yaml:3 (r)".into()));
    assert_eq!(attribute(&spans[1], "gen_ai.provider.name"), Some("openai".into()));
    assert_eq!(attribute(&spans[1], "error.type"), Some("503".into()));
}

#[test]
fn telemetry_forgets_calls_without_an_end() {
    let mut spans = Spans::new(SessionId(uuid::Uuid::from_u128(7)));
    let bodies: Vec<Value> = (0..1100).map(call).chain([judged(0, "allow"), judged(1099, "allow")]).collect();
    let ended: Vec<Value> = entries(&bodies).iter().flat_map(|entry| spans.add_entry(entry)).collect();
    assert_eq!((seconds(&ended[0]), seconds(&ended[1])), (0.0, 2.0));
}

#[test]
fn sums_count_what_was_refused_by_rule_and_have_an_end() {
    let mut metrics = Metrics::new(START.parse().unwrap());
    let blocked = json!({"type": "net_connect_blocked", "action": "block", "reason": "no-rule", "count": 4,
        "rule": {"id": "r", "file": "p.yaml", "line": 3}});
    let model = json!({"type": "model_called", "provider": "google", "model": "m", "input_tokens": 3,
        "output_tokens": 4, "cost_micro_usd": 5, "total_ms": 700});
    for entry in entries(&[blocked, model, judged(1, "allow")]) {
        metrics.count_entry(&entry);
    }
    for number in 0..600 {
        let mut body = judged(number, "allow");
        body["tool_name"] = format!("tool-{number}").into();
        entries(&[body]).iter().for_each(|entry| metrics.count_entry(entry));
    }
    metrics.set_dropped("log", 2);
    let written = metrics.metrics_json(START.parse().unwrap()).unwrap();
    let metric = |name: &str| {
        let found = written.as_array().unwrap().iter().find(|metric| metric["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {written}"))
    };
    let points = |name: &str| metric(name)["sum"]["dataPoints"].as_array().unwrap();
    assert_eq!(points("agentsh.refusals")[0]["asInt"], "4");
    assert_eq!(attribute(&points("agentsh.refusals")[0], "agentsh.rule"), Some("p.yaml:3 (r)".into()));
    assert_eq!(points("agentsh.model.cost")[0]["asInt"], "5");
    assert_eq!(points("agentsh.telemetry.dropped")[0]["asInt"], "2");
    let calls = points("agentsh.calls");
    let more = calls.iter().find(|point| attribute(point, "otel.metric.overflow").is_some()).unwrap();
    assert_eq!((calls.len(), more["asInt"].as_str()), (501, Some("101")));
    let durations = &metric("gen_ai.client.operation.duration")["histogram"]["dataPoints"][0];
    assert_eq!((durations["count"].as_str(), &durations["bucketCounts"][7]), (Some("1"), &json!("1")));
}
