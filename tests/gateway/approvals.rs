//! A person is asked about a call, and the client is shown where.

use super::*;

const POLICY: &str =
    "sandbox:\n  mcp:\n    approvals: {wait: 60s, headless: wait}\n    rules: [{tool: echo, action: ask}]\n";

fn gateway(place: &Place) -> Gateway {
    let policy = place.write("ask.yaml", POLICY);
    let more = format!(
        "{OPEN}policy: {}\napprovals_page: \"https://ops.example.com/ask/{{id}}\"\n",
        policy.display()
    );
    Gateway::start(place, &file(place, &more))
}

fn answer(place: &Place, url: &str) {
    let id = url.strip_prefix("https://ops.example.com/ask/").unwrap();
    Outcome::of(&mut place.agentsh(&["approvals", "approve", id])).expect_code(0);
}

#[test]
fn a_client_that_opens_addresses_is_shown_the_page() {
    let place = Place::new(Mode::Invoker);
    let gateway = gateway(&place);
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {"form": {}, "url": {}}},
        "clientInfo": {"name": "test", "version": "1"}}});
    let begun = gateway.post("/mcp/fs", &[], &hello);
    let session = [("Mcp-Session-Id", begun.header("mcp-session-id").unwrap())];
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(gateway.post("/mcp/fs", &session, &ready).status, 202);
    let stream =
        gateway.send("POST", "/mcp/fs", &session, &call(1, "echo", json!({"text": "hi"})).to_string());
    let mut events = BufReader::new(stream).lines().map(Result::unwrap).filter_map(|line| {
        line.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data).unwrap())
    });
    let asked = events.next().unwrap();
    assert_eq!(
        (&asked["method"], &asked["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url")),
        "{asked}"
    );
    // That somebody looks at the page decides nothing.
    let opened = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}});
    assert_eq!(gateway.post("/mcp/fs", &session, &opened).status, 202);
    answer(&place, asked["params"]["url"].as_str().unwrap());
    let done = events.next().unwrap();
    assert_eq!(done["method"], "notifications/elicitation/complete", "{done}");
    assert_eq!(done["params"]["elicitationId"], asked["params"]["elicitationId"]);
    assert_eq!(events.next().unwrap()["result"]["content"][0]["text"], "hi");
    assert_eq!(gateway.stop(), 0);
    assert!(place.events("mcp_message_rejected").is_empty());
}

#[test]
fn a_client_that_does_not_waits_all_the_same() {
    let place = Place::new(Mode::Invoker);
    let gateway = gateway(&place);
    let session = gateway.shake_hands("/mcp/fs", &[]);
    let headers = [("Mcp-Session-Id", session.as_str())];
    let stream =
        gateway.send("POST", "/mcp/fs", &headers, &call(1, "echo", json!({"text": "hi"})).to_string());
    let listed = || Outcome::of(&mut place.agentsh(&["approvals", "list", "--json"])).stdout;
    assert!(
        crate::support::within(Duration::from_secs(20), || listed().contains("\"echo\"")),
        "{}",
        listed()
    );
    let waiting: Value = serde_json::from_str(&listed()).unwrap();
    answer(&place, &format!("https://ops.example.com/ask/{}", waiting[0]["id"].as_str().unwrap()));
    let said: String = BufReader::new(stream).lines().map_while(Result::ok).collect();
    assert!(said.contains("\"hi\"") && !said.contains("elicitation"), "{said}");
}
