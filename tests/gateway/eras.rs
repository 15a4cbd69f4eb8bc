//! Clients and servers of different protocols: with sessions (2025-11-25 and before) and without (2026-07-28).

use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::*;
use crate::support::http_server::Asked;

const REVISION: &str = "2026-07-28";

/// A request without a session: message, and the headers that repeat it.
fn alone(gateway: &Gateway, path: &str, message: &Value, more: &[(&str, &str)]) -> Answer {
    let (message, headers) = dressed(message);
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.extend(more);
    gateway.post(path, &all, &message)
}

fn dressed(message: &Value) -> (Value, Vec<(&'static str, String)>) {
    let mut message = message.clone();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}});
    message["params"]["_meta"] = meta;
    let mut headers = vec![
        ("MCP-Protocol-Version", REVISION.to_owned()),
        ("Mcp-Method", message["method"].as_str().unwrap().to_owned()),
    ];
    headers.extend(message["params"]["name"].as_str().map(|name| ("Mcp-Name", name.to_owned())));
    (message, headers)
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn far(server: &HttpServer) -> String {
    format!("listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: far, url: \"{}\"}}]\n", server.url())
}

fn unknown(asked: &Asked, code: i32) -> Reply {
    Reply {
        status: 400,
        ..Reply::json(
            json!({"jsonrpc": "2.0", "id": asked.message()["id"], "error": {"code": code, "message": "not known"}}),
        )
    }
}

fn result(asked: &Asked, result: Value) -> Reply {
    Reply::json(json!({"jsonrpc": "2.0", "id": asked.message()["id"], "result": result}))
}

#[test]
fn local_server_with_sessions_serves_clients_without_sessions() {
    let place = Place::new(Mode::Invoker);
    let answers = json!({
        "server/discover": [{"error": {"code": -32601, "message": "unknown"}}],
        "tools/list": [{"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}],
    });
    let script = place.write("answers.json", answers.to_string());
    let text = format!(
        "listen: 127.0.0.1:0\n{OPEN}endpoints: [{{id: old, command: {}, args: [answers, {}]}}]\n",
        place.program("fixture_server").display(),
        script.display()
    );
    let gateway = Gateway::start(&place, &text);
    let said = alone(&gateway, "/mcp/old", &request(1, "server/discover", json!({})), &[]).last();
    assert_eq!(said["result"]["supportedVersions"], json!([REVISION]), "{said}");
    assert_eq!(said["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "answers");
    let listed = alone(&gateway, "/mcp/old", &request(2, "tools/list", json!({})), &[]).last();
    assert_eq!(listed["result"]["tools"][0]["name"], "look", "{listed}");
    assert_eq!(
        (&listed["result"]["resultType"], &listed["result"]["ttlMs"]),
        (&json!("complete"), &json!(0))
    );
    let called = alone(&gateway, "/mcp/old", &call(3, "look", json!({})), &[]).last();
    assert_eq!((&called["id"], &called["result"]["content"][0]["text"]), (&json!(3), &json!("ran look")));
    let gone = alone(&gateway, "/mcp/old", &request(4, "ping", json!({})), &[]);
    assert_eq!((gone.status, &gone.last()["error"]["code"]), (404, &json!(-32601)));
    // And with a session, as before.
    let id = gateway.shake_hands("/mcp/old", &[]);
    let called = gateway.post("/mcp/old", &[("Mcp-Session-Id", &id)], &call(5, "look", json!({})));
    assert_eq!(called.last()["result"]["content"][0]["text"], "ran look");
}

#[test]
fn messages_of_a_server_with_sessions_reach_a_client_without_sessions() {
    let place = Place::new(Mode::Invoker);
    let (told, heard) = channel::<String>();
    let (answered, waits) = channel::<String>();
    let (general, call) = (Mutex::new(Some(heard)), Mutex::new((Some(waits), Value::Null)));
    let answered = Mutex::new(answered);
    let server = HttpServer::start(move |asked| {
        let message = asked.message();
        match (asked.method.as_str(), asked.rpc().as_str()) {
            ("GET", _) => match general.lock().unwrap().take() {
                Some(feed) => Reply::events(&[]).fed(feed),
                None => Reply::status(405),
            },
            ("POST", "server/discover") => unknown(asked, -32601),
            ("POST", "tools/call") => {
                let mut call = call.lock().unwrap();
                call.1 = message["id"].clone();
                let asks = r#"{"jsonrpc":"2.0","id":"e-1","method":"elicitation/create","params":{"message":"who?"}}"#;
                let feed = call.0.take().unwrap();
                Reply::events(&[&format!("data: {asks}\n\n")]).fed(feed)
            }
            ("POST", "") if message["id"] == "e-1" => {
                let text = message["result"]["content"]["name"].clone();
                let done = json!({"jsonrpc": "2.0", "id": call.lock().unwrap().1, "result": {"content": [{"type": "text", "text": text}]}});
                answered.lock().unwrap().send(done.to_string()).unwrap();
                Reply::status(202)
            }
            ("POST", "tools/list") => {
                result(asked, json!({"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}))
            }
            _ => handshake(asked).unwrap_or_else(|| result(asked, json!({}))),
        }
    });
    let gateway = Gateway::start(&place, &far(&server));
    let wanted = alone(&gateway, "/mcp/far", &call_of("ask", 1), &[]).last();
    assert_eq!(
        (&wanted["id"], &wanted["result"]["resultType"]),
        (&json!(1), &json!("input_required")),
        "{wanted}"
    );
    let asked = &wanted["result"]["inputRequests"]["input"];
    assert_eq!(
        (&asked["method"], &asked["params"]["message"]),
        (&json!("elicitation/create"), &json!("who?"))
    );
    let mut again = call_of("ask", 2);
    again["params"]["requestState"] = wanted["result"]["requestState"].clone();
    again["params"]["inputResponses"] = json!({"input": {"action": "accept", "content": {"name": "Ann"}}});
    let done = alone(&gateway, "/mcp/far", &again, &[]).last();
    assert_eq!((&done["id"], &done["result"]["content"][0]["text"]), (&json!(2), &json!("Ann")), "{done}");
    // A listening client gets the changes.
    let (message, headers) =
        dressed(&request(3, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let stream = gateway.send("POST", "/mcp/far", &headers, &message.to_string());
    let mut events = BufReader::new(stream).lines().map(Result::unwrap).filter_map(|line| {
        line.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data).unwrap())
    });
    assert_eq!(events.next().unwrap()["method"], "notifications/subscriptions/acknowledged");
    told.send(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#.to_owned()).unwrap();
    let changed = events.next().unwrap();
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 3, "{changed}");
}

fn call_of(tool: &str, id: u64) -> Value {
    call(id, tool, json!({}))
}

#[test]
fn client_with_sessions_uses_a_server_without_sessions() {
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start(|asked| {
        let message = asked.message();
        match asked.rpc().as_str() {
            "server/discover" => result(
                asked,
                json!({"resultType": "complete", "supportedVersions": [REVISION], "capabilities": {"tools": {}},
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "1"}}}),
            ),
            "tools/list" => result(
                asked,
                json!({"resultType": "complete", "tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}),
            ),
            "tools/call" if message["params"]["requestState"] == "s" => {
                let name = message["params"]["inputResponses"]["who"]["content"]["name"].clone();
                result(asked, json!({"resultType": "complete", "content": [{"type": "text", "text": name}]}))
            }
            "tools/call" => result(
                asked,
                json!({"resultType": "input_required", "requestState": "s",
                    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "who?"}}}}),
            ),
            _ if asked.method == "POST" => unknown(asked, -32601),
            _ => Reply::status(405),
        }
    });
    let gateway = Gateway::start(&place, &far(&server));
    let id = gateway.shake_hands("/mcp/far", &[]);
    let session = ("Mcp-Session-Id", id.as_str());
    let listed = gateway.post("/mcp/far", &[session], &request(1, "tools/list", json!({}))).last();
    assert_eq!(listed["result"]["tools"][0]["name"], "ask", "{listed}");
    assert_eq!(
        gateway.post("/mcp/far", &[session], &request(2, "ping", json!({}))).last()["result"],
        json!({})
    );
    let stream = gateway.send("POST", "/mcp/far", &[session], &call_of("ask", 3).to_string());
    let mut events = BufReader::new(stream).lines().map(Result::unwrap).filter_map(|line| {
        line.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data).unwrap())
    });
    let asked = events.next().unwrap();
    assert_eq!(
        (&asked["method"], &asked["params"]["message"]),
        (&json!("elicitation/create"), &json!("who?"))
    );
    let reply = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ann"}}});
    assert_eq!(gateway.post("/mcp/far", &[session], &reply).status, 202);
    let done = events.next().unwrap();
    assert_eq!((&done["id"], &done["result"]["content"][0]["text"]), (&json!(3), &json!("Ann")), "{done}");
    assert!(done["result"]["resultType"].is_null());
    let seen = server.asked();
    let call = seen.iter().find(|asked| asked.rpc() == "tools/call").unwrap();
    assert_eq!((call.header("mcp-method"), call.header("mcp-name")), (Some("tools/call"), Some("ask")));
}

#[test]
fn arguments_in_headers_are_checked_and_sent_on() {
    let place = Place::new(Mode::Invoker);
    let server = HttpServer::start(|asked| match asked.rpc().as_str() {
        "server/discover" => result(
            asked,
            json!({"resultType": "complete", "supportedVersions": [REVISION], "capabilities": {"tools": {}}}),
        ),
        "tools/list" => result(
            asked,
            json!({"resultType": "complete", "tools": [{"name": "query", "inputSchema": {"type": "object",
                "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "plain": {"type": "string"}}}}]}),
        ),
        _ => result(asked, json!({"resultType": "complete", "content": [{"type": "text", "text": "found"}]})),
    });
    let gateway = Gateway::start(&place, &far(&server));
    let query = call(1, "query", json!({"region": "größe", "plain": "x"}));
    let region = |value| [("Mcp-Param-Region", value)];
    // No client listed the tools, so the gateway lists them before it judges headers.
    let good = alone(&gateway, "/mcp/far", &query, &region("=?base64?Z3LDtsOfZQ==?="));
    assert_eq!(good.last()["result"]["content"][0]["text"], "found", "{}", good.body);
    for bad in [&region("groesse")[..], &region("=?base64?Z3LDtsOfZQ?=")[..], &[][..]] {
        let answer = alone(&gateway, "/mcp/far", &query, bad);
        assert_eq!((answer.status, &answer.last()["error"]["code"]), (400, &json!(-32020)), "{bad:?}");
    }
    let absent = alone(&gateway, "/mcp/far", &call(2, "query", json!({"plain": "x"})), &region("x"));
    assert_eq!(absent.status, 400, "{}", absent.body);
    let seen = server.asked();
    let calls: Vec<_> = seen.iter().filter(|asked| asked.rpc() == "tools/call").collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("mcp-param-region"), Some("=?base64?Z3LDtsOfZQ==?="));
}

#[test]
fn request_without_a_session_names_its_client() {
    let place = Place::new(Mode::Invoker);
    let gateway = Gateway::start(&place, &super::file(&place, OPEN));
    let headers = [("MCP-Protocol-Version", REVISION), ("Mcp-Method", "tools/list")];
    for meta in [json!({}), json!({"io.modelcontextprotocol/protocolVersion": REVISION})] {
        let answer = gateway.post("/mcp/fs", &headers, &request(1, "tools/list", json!({"_meta": meta})));
        assert_eq!(
            (answer.status, &answer.last()["error"]["code"]),
            (400, &json!(-32602)),
            "{}",
            answer.body
        );
    }
}

#[test]
fn no_client_cancels_the_request_of_another() {
    let place = Place::new(Mode::Invoker);
    let (told, feed) = channel();
    let (begun, begins) = channel();
    let call_of_one = Mutex::new((Some(feed), begun));
    let server = HttpServer::start(move |asked| match asked.rpc().as_str() {
        "server/discover" => result(
            asked,
            json!({"resultType": "complete", "supportedVersions": [REVISION], "capabilities": {"tools": {}}}),
        ),
        "tools/list" => result(
            asked,
            json!({"resultType": "complete", "tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}),
        ),
        "tools/call" => {
            let mut call = call_of_one.lock().unwrap();
            call.1.send(asked.message()["id"].clone()).unwrap();
            Reply::events(&[]).fed(call.0.take().unwrap())
        }
        _ => Reply::status(202),
    });
    let text = far(&server).replace("}]\n", ", shared: everybody}]\n");
    let gateway = Gateway::start(&place, &text);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| alone(&gateway, "/mcp/far", &call_of("slow", 77), &[]).last());
        let id = begins.recv().unwrap();
        for guess in 0..9 {
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": guess}});
            assert_eq!(alone(&gateway, "/mcp/far", &cancel, &[]).status, 202);
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        told.send(
            json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "content": []}})
                .to_string(),
        )
        .unwrap();
        drop(told);
        let answer = one.join().unwrap();
        assert!(answer["id"] == 77 && answer["result"]["content"] == json!([]), "{answer}");
    });
    assert!(server.asked().iter().all(|asked| asked.rpc() != "notifications/cancelled"));
}

#[test]
fn one_process_serves_several_sessions_where_that_is_wanted() {
    let place = Place::new(Mode::Invoker);
    let text = super::file(&place, OPEN).replace("env: {WHO: gate}}", "env: {WHO: gate}, shared: everybody}");
    let gateway = Gateway::start(&place, &text);
    let one = gateway.shake_hands("/mcp/fs", &[]);
    let two = gateway.shake_hands("/mcp/fs", &[]);
    assert_ne!(one, two);
    std::thread::scope(|scope| {
        for (session, text) in [(&one, "one"), (&two, "two"), (&one, "three")] {
            let (gateway, id) = (&gateway, u64::from(text == "three"));
            scope.spawn(move || {
                let say = call(id, "echo", json!({"text": text}));
                let answer = gateway.post("/mcp/fs", &[("Mcp-Session-Id", session)], &say).last();
                assert_eq!(
                    (&answer["id"], &answer["result"]["content"][0]["text"]),
                    (&json!(id), &json!(text)),
                    "{answer}"
                );
            });
        }
    });
    assert_eq!(gateway.ask("DELETE", "/mcp/fs", &[("Mcp-Session-Id", &one)], "").status, 204);
    let answer =
        gateway.post("/mcp/fs", &[("Mcp-Session-Id", &two)], &call(9, "echo", json!({"text": "still"})));
    assert_eq!(answer.last()["result"]["content"][0]["text"], "still");
    assert_eq!(gateway.stop(), 0);
    assert_eq!(place.events("process_started").iter().filter(|event| event["server_id"] == "fs").count(), 1);
}
