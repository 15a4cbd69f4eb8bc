#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use serde_json::{Value, json};

use super::*;

fn line(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn server(step: &Step) -> Value {
    match step {
        Step::ToServer(line) => serde_json::from_slice(line).unwrap(),
        Step::ToClient(line) => panic!("to the client: {}", String::from_utf8_lossy(line)),
    }
}

fn client(step: &Step) -> Value {
    match step {
        Step::ToClient(line) => serde_json::from_slice(line).unwrap(),
        Step::ToServer(line) => panic!("to the server: {}", String::from_utf8_lossy(line)),
    }
}

fn modern(id: u64, method: &str, mut params: Value) -> Vec<u8> {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"form": {}}});
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// Asked by a client without sessions, greeted as a server with them.
fn greeted(first: &[u8]) -> (Translation, Vec<Step>) {
    greeted_as(Translation::without_sessions(), first)
}

fn greeted_as(mut between: Translation, first: &[u8]) -> (Translation, Vec<Step>) {
    let asked = server(&between.on_client_message(first)[0]);
    assert_eq!(asked["method"], "server/discover");
    let unknown =
        json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "unknown"}});
    let greeting = server(&between.on_server_message(&line(&unknown))[0]);
    assert_eq!(greeting["method"], "initialize");
    assert_eq!(greeting["params"]["capabilities"], json!({"elicitation": {"form": {}}}));
    let steps = between.on_server_message(&line(&json!({"jsonrpc": "2.0", "id": greeting["id"], "result": {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "old", "version": "1"}, "instructions": "read"}})));
    assert_eq!(server(&steps[0])["method"], "notifications/initialized");
    (between, steps)
}

#[test]
fn server_without_sessions_gets_messages_unchanged() {
    let mut between = Translation::without_sessions();
    let call = modern(1, "tools/list", json!({}));
    let asked = server(&between.on_client_message(&call)[0]);
    let knows = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"supportedVersions": ["2026-07-28"]}});
    assert_eq!(between.on_server_message(&line(&knows)), [Step::ToServer(call)]);
    assert!(between.is_passthrough());
}

#[test]
fn silent_server_is_sent_a_handshake() {
    let mut between = Translation::without_sessions();
    between.on_client_message(&modern(1, "tools/list", json!({})));
    assert_eq!(server(&between.on_silence()[0])["method"], "initialize");
    // The server was slow, not silent.
    let late = json!({"jsonrpc": "2.0", "id": "agentsh-era-discover", "result": {"supportedVersions": ["2026-07-28"]}});
    assert_eq!(server(&between.on_server_message(&line(&late))[0])["method"], "tools/list");
    assert!(between.is_passthrough());
}

#[test]
fn translated_requests_drop_handshake_data_and_results_get_a_type() {
    let (mut between, steps) =
        greeted(&modern(1, "tools/list", json!({"cursor": "c", "_meta": {"progressToken": 9}})));
    let asked = server(&steps[1]);
    assert_eq!(asked["params"], json!({"cursor": "c", "_meta": {"progressToken": 9}}));
    let steps = between.on_server_message(br#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"x":1.0}}"#);
    assert_eq!(
        client(&steps[0])["result"],
        json!({"tools": [], "x": 1.0, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "old", "version": "1"}}})
    );
    let said = client(&between.on_client_message(&modern(2, "server/discover", json!({})))[0]);
    assert_eq!(
        (&said["result"]["instructions"], &said["result"]["supportedVersions"]),
        (&json!("read"), &json!(["2026-07-28"]))
    );
    let gone = client(&between.on_client_message(&modern(3, "ping", json!({})))[0]);
    assert_eq!(gone["error"]["code"], -32601);
    let steps = between.on_client_message(&modern(
        4,
        "tools/list",
        json!({"_meta": {"io.modelcontextprotocol/logLevel": "debug"}}),
    ));
    assert_eq!(
        (&server(&steps[0])["method"], &server(&steps[0])["params"]),
        (&json!("logging/setLevel"), &json!({"level": "debug"}))
    );
    let mut other: Value = serde_json::from_slice(&modern(5, "tools/list", json!({}))).unwrap();
    other["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    assert_eq!(client(&between.on_client_message(&line(&other))[0])["error"]["code"], -32022);
}

#[test]
fn elicitation_of_a_server_is_answered_by_a_repeated_request() {
    let call = |id, more: Value| {
        let mut params = json!({"name": "t", "arguments": {}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        modern(id, "tools/call", params)
    };
    let (mut between, steps) = greeted(&call(1, json!({})));
    assert_eq!(server(&steps[1])["id"], 1);
    let asks =
        json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {"message": "who?"}});
    let wanted = client(&between.on_server_message(&line(&asks))[0]);
    assert_eq!((&wanted["id"], &wanted["result"]["resultType"]), (&json!(1), &json!("input_required")));
    assert_eq!(
        wanted["result"]["inputRequests"]["input"],
        json!({"method": "elicitation/create", "params": {"message": "who?"}})
    );
    let state = wanted["result"]["requestState"].clone();
    let given = json!({"requestState": state, "inputResponses": {"input": {"action": "accept", "content": {"n": 1}}}});
    let steps = between.on_client_message(&call(2, given.clone()));
    assert_eq!(
        server(&steps[0]),
        json!({"jsonrpc": "2.0", "id": 77, "result": {"action": "accept", "content": {"n": 1}}})
    );
    let done = client(&between.on_server_message(br#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#)[0]);
    assert_eq!((&done["id"], &done["result"]["resultType"]), (&json!(2), &json!("complete")));
    // Once.
    assert_eq!(client(&between.on_client_message(&call(3, given))[0])["error"]["code"], -32602);
}

#[test]
fn elicitation_is_refused_where_clients_share_a_server() {
    let (mut between, _) = greeted_as(Translation::for_everybody(), &modern(1, "tools/call", json!({})));
    let asks =
        json!({"jsonrpc": "2.0", "id": 77, "method": "elicitation/create", "params": {"message": "who?"}});
    let steps = between.on_server_message(&line(&asks));
    let refused = server(&steps[0]);
    assert_eq!((steps.len(), &refused["id"], &refused["error"]["code"]), (1, &json!(77), &json!(-32601)));
    let done = client(&between.on_server_message(br#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#)[0]);
    assert_eq!(done["result"]["resultType"], "complete");
}

#[test]
fn subscription_listener_receives_what_it_asked_for() {
    let (mut between, _) = greeted(&modern(1, "tools/list", json!({})));
    let wanted = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["x:y"]}});
    let steps = between.on_client_message(&modern(2, "subscriptions/listen", wanted));
    assert_eq!(server(&steps[0])["params"], json!({"uri": "x:y"}));
    let agreed = client(&steps[1]);
    assert_eq!(agreed["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        agreed["params"]["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["x:y"]})
    );
    let heard =
        between.on_server_message(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    assert_eq!(client(&heard[0])["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2);
    assert!(
        between
            .on_server_message(br#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#)
            .is_empty()
    );
    let updated = br#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}"#;
    assert_eq!(between.on_server_message(updated).len(), 1);
    let gone =
        line(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}));
    assert_eq!(server(&between.on_client_message(&gone)[0])["method"], "resources/unsubscribe");
    assert!(between.on_server_message(updated).is_empty());
}

/// A client with sessions, before a server that refuses the handshake and can be discovered.
fn discovered() -> Translation {
    let mut between = Translation::with_sessions();
    let hello = json!({"jsonrpc": "2.0", "id": "h", "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": {"name": "c", "version": "1"}}});
    assert_eq!(between.on_client_message(&line(&hello)), [Step::ToServer(line(&hello))]);
    let refusal =
        json!({"jsonrpc": "2.0", "id": "h", "error": {"code": -32601, "message": "no such method"}});
    let asked = server(&between.on_server_message(&line(&refusal))[0]);
    assert_eq!(
        asked["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"],
        json!({"sampling": {}})
    );
    let said = client(
        &between.on_server_message(&line(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "instructions": "read",
        "capabilities": {"tools": {"listChanged": true}},
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "new", "version": "2"}}}})))[0],
    );
    assert_eq!(
        said,
        json!({"jsonrpc": "2.0", "id": "h", "result": {"protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": true}}, "serverInfo": {"name": "new", "version": "2"}, "instructions": "read"}})
    );
    between
}

#[test]
fn handshake_is_answered_on_behalf_of_a_server_without_one() {
    let mut between = discovered();
    let steps = between.on_client_message(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(server(&steps[0])["params"]["notifications"], json!({"toolsListChanged": true}));
    assert_eq!(
        client(&between.on_client_message(br#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#)[0])["result"],
        json!({})
    );
    let asked = server(&between.on_client_message(br#"{"jsonrpc":"2.0","id":6,"method":"tools/list"}"#)[0]);
    assert_eq!(asked["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    let told = between
        .on_server_message(br#"{"jsonrpc":"2.0","id":6,"result":{"resultType":"complete","tools":[]}}"#);
    assert_eq!(client(&told[0]), json!({"jsonrpc": "2.0", "id": 6, "result": {"tools": []}}));
    let changed = between.on_server_message(
        br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"agentsh-era-listen-1"}}}"#,
    );
    assert_eq!(client(&changed[0])["params"], json!({}));
}

#[test]
fn input_request_of_a_server_becomes_a_request_to_an_old_client() {
    let mut between = discovered();
    let call =
        br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0}}}"#;
    between.on_client_message(call);
    let wanted = json!({"jsonrpc": "2.0", "id": 7, "result": {"resultType": "input_required", "requestState": "s",
        "inputRequests": {"a": {"method": "sampling/createMessage", "params": {"maxTokens": 1}}}}});
    let asked = client(&between.on_server_message(&line(&wanted))[0]);
    assert_eq!(
        (&asked["method"], &asked["params"]),
        (&json!("sampling/createMessage"), &json!({"maxTokens": 1}))
    );
    let given = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"role": "assistant"}});
    let again = server(&between.on_client_message(&line(&given))[0]);
    assert_eq!(again["params"]["requestState"], "s");
    assert_eq!(again["params"]["inputResponses"], json!({"a": {"role": "assistant"}}));
    assert_eq!(again["params"]["name"], "t");
    assert_ne!(again["id"], 7);
    let done =
        json!({"jsonrpc": "2.0", "id": again["id"], "result": {"resultType": "complete", "content": []}});
    assert_eq!(
        client(&between.on_server_message(&line(&done))[0]),
        json!({"jsonrpc": "2.0", "id": 7, "result": {"content": []}})
    );
}

#[test]
fn refusal_by_the_gateway_does_not_start_a_second_handshake() {
    let mut between = Translation::with_sessions();
    between.on_client_message(br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
    let refusal = line(
        &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no", "data": {"reason": "denied"}}}),
    );
    assert_eq!(between.on_server_message(&refusal), [Step::ToClient(refusal.clone())]);
}
