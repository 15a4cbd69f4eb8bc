//! Two servers with the same tools, distinguished by their names.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Mode, Peer, Place};

fn config(place: &Place, rest: &Value) -> String {
    let server = place.program("fixture_server");
    let mut file = json!({"servers": [
        {"id": "one", "command": server, "env": {"WHO": "one"}},
        {"id": "two", "command": server, "args": [], "env": {"WHO": "two"}},
    ]});
    for (key, value) in rest.as_object().unwrap() {
        file[key] = value.clone();
    }
    place.write("proxy.json", file.to_string()).to_str().unwrap().to_owned()
}

fn start(place: &Place, rest: &Value) -> Peer {
    let config = config(place, rest);
    Peer::start(&mut place.agentsh(&["proxy", "--config", &config]))
}

fn names(peer: &mut Peer) -> Vec<String> {
    let tools = peer.request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn tools_of_two_servers_are_listed_under_their_names() {
    for mode in Mode::all() {
        let place = Place::new(mode);
        let mut peer = start(&place, &json!({}));
        let hello = peer.shake_hands();
        assert_eq!(hello["result"]["serverInfo"]["name"], "agentsh", "{mode:?} {hello}");
        assert_eq!(hello["result"]["capabilities"]["logging"], json!({}));
        let names = names(&mut peer);
        assert_eq!(names.len(), 33, "{names:?}");
        assert_eq!((names[0].as_str(), names[16].as_str()), ("one__echo", "two__echo"));
        assert_eq!(peer.text("one__env", json!({"name": "WHO"})), "one");
        assert_eq!(peer.text("two__env", json!({"name": "WHO"})), "two");
        let sum = peer.call("two__add", json!({"a": 1, "b": 2}));
        assert_eq!(sum["result"]["structuredContent"]["sum"], 3, "{sum}");
        assert_eq!(peer.text("one__big", json!({"bytes": 2_000_000})).len(), 2_000_000);
        let report = peer.text("canary__get_report", json!({}));
        assert!(serde_json::from_str::<Value>(&report).unwrap()["leakage_events"].is_array(), "{report}");
        let (code, errors) = peer.finish();
        assert_eq!(code, 0, "{mode:?}");
        assert_eq!(errors, "", "{mode:?}");
    }
}

#[test]
fn proxy_configuration_can_be_named_by_a_variable() {
    let place = Place::new(Mode::Invoker);
    let config = config(&place, &json!({}));
    let mut command = place.agentsh(&["proxy"]);
    let mut peer = Peer::start(command.env("CANARY_MCP_PROXY_CONFIG", config));
    peer.shake_hands();
    assert_eq!(peer.text("two__echo", json!({"text": "x"})), "x");
}

#[test]
fn servers_send_requests_and_notifications_to_the_client() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place, &json!({}));
    peer.shake_hands();
    let ask = |server: &str| json!({"name": format!("{server}__ask"), "arguments": {"method": "roots/list", "params": {}}});
    let (first, second) = (peer.ask("tools/call", ask("one")), peer.ask("tools/call", ask("two")));
    let asked = [peer.next(), peer.next()];
    assert_ne!(asked[0]["id"], asked[1]["id"]);
    for request in &asked {
        peer.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": {"roots": []}}));
    }
    for call in [first, second] {
        let text = peer.answer(&call)["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        let heard: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&heard["id"], &heard["result"]), (&json!("ask-1"), &json!({"roots": []})));
    }
    let id = peer
        .ask("tools/call", json!({"name": "two__notify", "arguments": {}, "_meta": {"progressToken": 7}}));
    let mut heard = Vec::new();
    loop {
        let message = peer.next();
        if message["id"] == id {
            break;
        }
        heard.push(message["method"].as_str().unwrap().replace("notifications/", ""));
    }
    assert_eq!(heard, ["progress", "message", "tools/list_changed", "resources/updated"]);
}

#[test]
fn crashed_server_is_restarted_and_others_are_unaffected() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place, &json!({}));
    peer.shake_hands();
    let crash = peer.call("one__crash", json!({"code": 3}));
    assert!(crash["error"]["message"].as_str().unwrap().contains("exit code 3"), "{crash}");
    assert_eq!(peer.text("two__echo", json!({"text": "x"})), "x");
    assert_eq!(peer.text("one__echo", json!({"text": "again"})), "again");
}

#[test]
fn absent_server_is_reported_and_the_others_work() {
    let place = Place::new(Mode::Invoker);
    let server = place.program("fixture_server");
    let file =
        json!({"servers": [{"id": "gone", "command": "no-such-server"}, {"id": "here", "command": server}]});
    let config = place.write("proxy.json", file.to_string());
    let mut peer = Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    assert_eq!(names(&mut peer)[0], "here__echo");
    let refused = peer.call("gone__x", json!({}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("no-such-server"), "{refused}");
    let (code, errors) = peer.finish();
    assert_eq!(code, 0);
    assert!(errors.contains("server 'gone' is missing from the answer to initialize"), "{errors}");
}

#[test]
fn tools_outside_of_the_list_are_hidden_and_refused_by_their_line() {
    let place = Place::new(Mode::Invoker);
    let mut peer = start(&place, &json!({"allowed_tools": ["one__echo", "two__e*"]}));
    peer.shake_hands();
    assert_eq!(names(&mut peer), ["one__echo", "two__echo", "two__env", "canary__get_report"]);
    // Before its arguments are looked at.
    let refused = peer.call("one__env", json!({"name": "https://collect.example.net/"}));
    assert_eq!(refused["error"]["data"]["reason"], "tool-not-allowlisted", "{refused}");
    assert!(peer.text("canary__get_report", json!({})).contains("session_id"));
    // Following its advice is enough.
    let (said, remedy) = refused["error"]["message"].as_str().unwrap().split_once("; to allow it, ").unwrap();
    assert!(said.ends_with("proxy.json:1 (allowed_tools)"), "{said}");
    let rest = remedy.strip_prefix("add \"one__env\" to ").unwrap();
    assert!(said.ends_with(rest), "{remedy}");
    let mut peer = start(&place, &json!({"allowed_tools": ["one__echo", "two__e*", "one__env"]}));
    peer.shake_hands();
    assert_eq!(peer.text("one__env", json!({"name": "WHO"})), "one");
    // A list of the proxy's own tools is not empty: an empty one allows all.
    let mut peer = start(&place, &json!({"allowed_tools": ["canary__get_report"]}));
    peer.shake_hands();
    assert_eq!(names(&mut peer), ["canary__get_report"]);
    let refused = peer.call("one__echo", json!({"text": "x"}));
    assert_eq!(refused["error"]["data"]["reason"], "tool-not-allowlisted", "{refused}");
}

#[test]
fn the_report_needs_the_operators_key() {
    let place = Place::new(Mode::Invoker);
    let config = config(&place, &json!({}));
    let mut command = place.agentsh(&["proxy", "--config", &config]);
    let mut peer = Peer::start(command.env("CANARY_MCP_MGMT_KEY", "opensesame"));
    peer.shake_hands();
    let refused = peer.call("canary__get_report", json!({"mgmt_key": "x"}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(peer.text("canary__get_report", json!({"mgmt_key": "opensesame"})).contains("session_id"));
    // The key is nobody else's.
    assert_eq!(peer.text("one__env", json!({"name": "CANARY_MCP_MGMT_KEY"})), "(not set)");
}

#[test]
fn resource_listed_by_two_servers_is_read_from_the_first_and_reported() {
    let place = Place::new(Mode::Invoker);
    let server = place.program("fixture_server");
    let answers = |id: &str, own: &str, read: Value| {
        let listed = ["file:///both", own].map(|uri| json!({"uri": uri, "name": id}));
        let answers = json!({"resources/list": [{"resources": listed}], "resources/read": [read]});
        let file = place.write(format!("{id}.json"), answers.to_string());
        json!({"id": id, "command": server, "args": ["answers", file]})
    };
    let text = |text: &str| json!({"contents": [{"uri": "file:///x", "text": text}]});
    let wrong = json!({"error": {"code": -32002, "message": "not now"}});
    let servers = [answers("one", "file:///one", wrong), answers("two", "file:///two", text("of two"))];
    let config = place.write("proxy.json", json!({"servers": servers}).to_string());
    let mut peer = Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    let listed = peer.request("resources/list", json!({}));
    let listed: Vec<_> = listed["result"]["resources"].as_array().unwrap().iter().collect();
    let listed: Vec<_> = listed.iter().map(|resource| [&resource["uri"], &resource["name"]]).collect();
    assert_eq!(
        json!(listed),
        json!([["file:///both", "one"], ["file:///one", "one"], ["file:///two", "two"]])
    );
    let mut read = |uri: &str| peer.request("resources/read", json!({"uri": uri}));
    assert_eq!(read("file:///both")["error"]["message"], "not now");
    assert_eq!(read("file:///two")["result"]["contents"][0]["text"], "of two");
    // An unlisted resource is requested from both.
    assert_eq!(read("file:///none")["result"]["contents"][0]["text"], "of two");
    let (_, errors) = peer.finish();
    assert!(errors.contains("'one' and 'two' both list the resource 'file:///both'"), "{errors}");
    let found = place.detections();
    assert_eq!((found.len(), &found[0]["category"]), (1, &json!("resource-shadowing")), "{found:?}");
}

#[test]
fn proxy_without_a_configuration_offers_its_own_tools() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::start(&mut place.agentsh(&["proxy"]));
    assert_eq!(peer.shake_hands()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(names(&mut peer), ["wrap_content", "check_leakage", "scan_outbound", "get_report"]);
    let (code, _) = peer.finish();
    assert_eq!(code, 0);
}

/// Lines of the client are read as strictly as forwarded ones, and both kinds of connection (with and without
/// sessions) work.
#[test]
fn proxy_without_a_configuration_follows_the_protocol() {
    let place = Place::new(Mode::Invoker);
    let mut peer = Peer::start(&mut place.agentsh(&["proxy"]));
    peer.shake_hands();
    for (line, code, reason) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","method":"ping"}"#, -32700, json!("duplicate-key")),
        ("[]", -32600, json!("batch")),
        (r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, -32602, json!("invalid-params")),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}"#,
            -32602,
            json!("unknown-tool"),
        ),
        (r#"{"jsonrpc":"2.0","id":7,"method":"prompts/xyz"}"#, -32601, json!("no-server")),
    ] {
        peer.send_line(line.as_bytes());
        let answer = peer.next();
        assert_eq!(answer["error"]["code"], code, "{line} {answer}");
        assert_eq!(answer["error"]["data"]["reason"], reason, "{line} {answer}");
    }
    assert_eq!(peer.request("ping", json!({}))["result"], json!({}));
    assert_eq!(peer.finish().0, 0);
    let rejected = place.listed(&["mcp", "events", "--type", "mcp_message_rejected", "--json"]);
    let reasons: Vec<_> = rejected.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["duplicate-key", "batch"]);
    let calls = place.listed(&["mcp", "calls", "--action", "block", "--json"]);
    assert_eq!((calls.len(), &calls[0]["reason"]), (1, &json!("unknown-tool")), "{calls:?}");
    // A client of the newest revision shakes no hands.
    let mut peer = Peer::start(&mut place.agentsh(&["proxy"]));
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "suite", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    let found = peer.request("server/discover", json!({"_meta": meta}));
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let arguments = json!({"data": "Lunch at noon by the fountain?"});
    let called =
        peer.request("tools/call", json!({"name": "scan_outbound", "arguments": arguments, "_meta": meta}));
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    assert!(called["result"]["content"][0]["text"].as_str().unwrap().contains("\"clean\":true"), "{called}");
}

/// The report names the line of the server's entry, once.
#[test]
fn server_that_cannot_start_is_reported_once_with_its_line() {
    let place = Place::new(Mode::Invoker);
    let server = place.program("fixture_server");
    let file = format!(
        "{{\"servers\": [\n{{\"id\": \"good\", \"command\": {server:?}}},\n{{\"id\": \"gone\", \"command\": \"/nowhere/server\"}}]}}"
    );
    let config = place.write("proxy.json", file);
    let mut peer = Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    names(&mut peer);
    let answer = peer.call("gone__x", json!({}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message.matches("server 'gone'").count(), 1, "{message}");
    let unknown = peer.call("nope__x", json!({}));
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(message.contains("no server 'nope'") && message.contains("'good', 'gone'"), "{message}");
    let (_, errors) = peer.finish();
    assert_eq!(errors.matches("/nowhere/server").count(), 1, "{errors}");
    assert!(errors.contains("proxy.json:3") && errors.contains("no such file or directory"), "{errors}");
}

/// Codex gives up a server that is not ready within 10 s.
const CODEX_LIMIT: Duration = Duration::from_secs(10);

/// To a user this looks like a hang.
const HANG: Duration = Duration::from_secs(5);

/// One server of each kind that a client would wait for, and one that is there.
fn slow_ones(place: &Place, listed: &str) -> Peer {
    let server = place.program("fixture_server");
    let late =
        json!({"until": listed, "result": {"tools": [{"name": "late", "inputSchema": {"type": "object"}}]}});
    let answers = place.write("answers.json", json!({"tools/list": [late]}).to_string());
    let shell =
        |id: &str, script: &str| json!({"id": id, "command": "/bin/sh", "args": ["-c", script, server]});
    let file = json!({"servers": [
        shell("mute", "exec sleep 1000"),
        shell("dead", "exit 3"),
        shell("slow", "sleep 6; exec $0"),
        {"id": "deaf", "command": server, "args": ["answers", answers]},
        {"id": "here", "command": server},
    ]});
    let config = place.write("proxy.json", file.to_string());
    Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]))
}

#[test]
#[ignore = "takes long"]
fn client_with_a_ten_second_timeout_gets_the_tools_of_ready_servers() {
    let place = Place::new(Mode::Invoker);
    let listed = place.project.join("listed");
    let began = Instant::now();
    let mut peer = slow_ones(&place, listed.to_str().unwrap());
    peer.shake_hands();
    assert!(began.elapsed() < HANG, "{:?}", began.elapsed());
    let has = |names: &[String], server: &str| names.iter().any(|name| name.starts_with(server));
    let first = names(&mut peer);
    assert!(began.elapsed() < CODEX_LIMIT, "{:?}", began.elapsed());
    assert!(has(&first, "here__") && !has(&first, "deaf__"), "{first:?}");
    // Working servers do not wait for the others, and a server that becomes ready is announced.
    assert_eq!(peer.text("here__echo", json!({"text": "x"})), "x");
    let asked = Instant::now();
    let refused = peer.call("mute__any", json!({}));
    assert!(asked.elapsed() < HANG, "{:?}", asked.elapsed());
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("server 'mute' has not answered `initialize` yet"), "{refused}");
    let is_change = |message: &Value| message["method"] == "notifications/tools/list_changed";
    while !peer.aside.iter().any(is_change) {
        let message = peer.next();
        peer.aside.push(message);
    }
    peer.aside.clear();
    let asked = Instant::now();
    let second = names(&mut peer);
    assert!(asked.elapsed() < HANG, "{:?}", asked.elapsed());
    assert!(has(&second, "slow__") && !has(&second, "deaf__"), "{second:?}");
    place.write("listed", "");
    while !peer.aside.iter().any(is_change) {
        let message = peer.next();
        peer.aside.push(message);
    }
    let third = names(&mut peer);
    for server in ["here__", "slow__", "deaf__"] {
        assert!(has(&third, server), "{third:?}");
    }
    let (code, errors) = peer.finish();
    assert_eq!(code, 0, "{errors}");
    for (server, why) in [("mute", "it has not answered yet"), ("dead", "exit code 3")] {
        let told = format!("server '{server}' is missing from the answer to initialize: ");
        assert!(errors.lines().any(|line| line.contains(&told) && line.contains(why)), "{server}: {errors}");
    }
}

/// The newer protocol is used only after all servers have said that they speak it; both handshakes together keep
/// within the limit.
#[test]
#[ignore = "takes long"]
fn a_client_of_the_newer_protocol_falls_back_where_a_server_is_mute() {
    let place = Place::new(Mode::Invoker);
    let began = Instant::now();
    let mut peer = slow_ones(&place, "/nowhere");
    let refused = peer.request("server/discover", json!({}));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
    peer.shake_hands();
    let names = names(&mut peer);
    assert!(began.elapsed() < CODEX_LIMIT, "{:?}", began.elapsed());
    assert!(names.contains(&"here__echo".to_owned()), "{names:?}");
}

/// As both official clients list and call them.
#[test]
fn tools_of_a_server_that_announces_none_are_listed() {
    let place = Place::new(Mode::Invoker);
    let hello = json!({"protocolVersion": "2025-06-18", "serverInfo": {"name": "quiet", "version": "1"}, "capabilities": {}});
    let tool = json!({"name": "hidden", "inputSchema": {"type": "object"}});
    let tools = json!({"initialize": [hello], "tools/list": [{"tools": [tool]}]});
    let none = json!({"initialize": [hello], "tools/list": [{"error": {"code": -32601, "message": "no such method"}}]});
    let server = |id: &str, answers: Value| {
        let file = place.write(format!("{id}.json"), answers.to_string());
        json!({"id": id, "command": place.program("fixture_server"), "args": ["answers", file]})
    };
    let (quiet, empty) = (server("quiet", tools), server("empty", none));
    for (servers, listed) in [(json!([quiet, empty]), vec!["quiet__hidden"]), (json!([empty]), vec![])] {
        let mut peer = start(&place, &json!({ "servers": servers }));
        peer.shake_hands();
        let mut names = names(&mut peer);
        names.retain(|name| !name.starts_with("canary__"));
        assert_eq!(names, listed);
    }
}
