//! A person is asked about a call, and the client is shown where to answer.

use super::*;
use crate::support::asking::{question, waiting};

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
fn client_with_url_elicitation_is_shown_the_page() {
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
    // Opening the page decides nothing.
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
fn client_without_url_elicitation_waits_for_the_answer() {
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

#[test]
fn an_answer_is_about_all_that_is_forwarded_and_about_the_client_that_asked() {
    let place = Place::new(Mode::Invoker);
    // It says what it was sent.
    let server = HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            let result = match asked.rpc().as_str() {
                "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
                _ => json!({"content": [{"type": "text", "text": message["params"].to_string()}]}),
            };
            Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        })
    });
    let policy = place.write("ask.yaml", POLICY);
    let text = format!(
        "listen: 127.0.0.1:0\nendpoints: [{{id: far, url: \"{}\"}}]\npolicy: {}\n",
        server.url(),
        policy.display()
    );
    let config = place.write("gateway.yaml", &text);
    let keys = |words: &[&str]| {
        let all = [&["gateway", "--config", config.to_str().unwrap(), "keys"], words].concat();
        Outcome::of(&mut place.agentsh(&all)).expect_code(0).stdout.trim().to_owned()
    };
    let [one, two] = ["one", "two"].map(|name| format!("Bearer {}", keys(&["create", name])));
    let gateway = Gateway::start(&place, &text);
    let sessions = [&one, &two].map(|key| gateway.shake_hands("/mcp/far", &[("Authorization", key)]));
    let ask = |client: usize, id: u64, meta: Value| {
        let mut message = call(id, "echo", json!({"what": "prod"}));
        message["params"]["_meta"] = meta;
        let headers =
            [("Authorization", [&one, &two][client].as_str()), ("Mcp-Session-Id", &sessions[client])];
        gateway.send("POST", "/mcp/far", &headers, &message.to_string())
    };
    let said = |mut stream: TcpStream| {
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    };
    let answer = |words: &[&str]| {
        let id = question(&place)["id"].as_str().unwrap().to_owned();
        Outcome::of(&mut place.agentsh(&[&["approvals", words[0], &id], &words[1..]].concat())).expect_code(0)
    };
    let first = ask(0, 1, json!({"to": "alpha", "claudecode/toolUseId": "toolu_1", "progressToken": 1}));
    let asked = question(&place);
    let shown = asked["arguments"].as_str().unwrap();
    assert!(shown.contains("alpha") && !shown.contains("toolu_1") && !shown.contains("progress"), "{asked}");
    assert!(asked["client"].as_str().unwrap().starts_with("key 'one' ("), "{asked}");
    assert!(answer(&["show"]).stdout.contains("key 'one' ("));
    answer(&["approve", "--session"]);
    let forwarded = said(first);
    assert!(forwarded.contains("alpha") && !forwarded.contains("toolu_1"), "{forwarded}");
    // The same call, as its client counts it.
    assert!(said(ask(0, 2, json!({"to": "alpha", "claudecode/toolUseId": "toolu_2"}))).contains("alpha"));
    for (client, meta, name) in [(0, json!({"to": "omega"}), "one"), (1, json!({"to": "alpha"}), "two")] {
        let other = ask(client, 3, meta);
        let asked = question(&place);
        assert!(asked["client"].as_str().unwrap().starts_with(&format!("key '{name}' (")), "{asked}");
        answer(&["deny"]);
        let refused = said(other);
        assert!(refused.contains("approval-denied"), "{refused}");
    }
    // A denial of one client's call does not apply to the other's.
    assert!(said(ask(0, 4, json!({"to": "alpha"}))).contains("alpha"));
    // With the key its questions end, and no other's.
    let (gone, left) = (ask(1, 5, json!({"to": "beta"})), ask(0, 5, json!({"to": "beta"})));
    assert!(crate::support::within(Duration::from_secs(20), || waiting(&place).len() == 2));
    keys(&["revoke", "two"]);
    gateway.reload();
    assert!(question(&place)["client"].as_str().unwrap().starts_with("key 'one' ("));
    said(gone);
    answer(&["approve"]);
    assert!(said(left).contains("beta"));
    assert_eq!(gateway.stop(), 0);
    let calls: Vec<_> = server.asked().into_iter().filter(|asked| asked.rpc() == "tools/call").collect();
    assert_eq!(calls.len(), 4, "{:?}", calls.iter().map(|asked| &asked.body).collect::<Vec<_>>());
}
