//! What the page of ThornGuard promises of its steps, through the gateway: codes and statuses, signatures that no policy
//! switches off, hidden HTML, rules about who asks, what is usual, the inventory, redaction.

use super::*;
use crate::support::http_server::Asked;

/// A server of these tools that answers each call with what `say` makes of it.
fn server(
    tools: &'static [&'static str],
    say: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> HttpServer {
    HttpServer::start(move |asked: &Asked| {
        handshake(asked).unwrap_or_else(|| {
            let message = asked.message();
            let result = match asked.rpc().as_str() {
                "tools/list" => {
                    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
                    json!({"tools": tools.iter().map(tool).collect::<Vec<_>>()})
                }
                "resources/read" => json!({"contents": [{"uri": "a:b", "text": "read"}]}),
                _ => json!({"content": [{"type": "text", "text": say(&message["params"])}]}),
            };
            Reply::json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        })
    })
}

fn before(place: &Place, server: &HttpServer, policy: &str, more: &str) -> Gateway {
    let policy = place.write("steps.yaml", policy);
    let endpoints = format!("endpoints: [{{id: far, url: \"{}\"}}]", server.url());
    Gateway::start(
        place,
        &format!("listen: 127.0.0.1:0\n{OPEN}{endpoints}\npolicy: {}\n{more}", policy.display()),
    )
}

fn code_of(answer: &Answer) -> String {
    let (message, header) =
        (answer.last(), answer.header("x-agentsh-code").unwrap_or_default().to_uppercase());
    assert_eq!(message["error"]["data"]["code"].as_str().unwrap_or_default(), header, "{}", answer.body);
    header
}

#[test]
fn servers_that_are_not_public_or_in_plain_text_have_statuses_and_codes_of_their_own() {
    let place = Place::new(Mode::Invoker);
    let endpoints = "endpoints: [{id: private, url: \"https://10.0.0.7/mcp\"}, {id: plain, url: \"http://192.0.2.7/mcp\"}, \
                     {id: metadata, url: \"https://169.254.169.254/mcp\"}]";
    let gateway = Gateway::start(&place, &format!("listen: 127.0.0.1:0\n{OPEN}{endpoints}\n"));
    let hello = json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let mut alone = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}});
    alone["params"]["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let stateless = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    for (id, status, code) in [
        ("private", 403, "BLOCKED_SSRF"),
        ("metadata", 403, "BLOCKED_SSRF"),
        ("plain", 400, "BLOCKED_INSECURE_TARGET"),
    ] {
        for (headers, message) in [(&[][..], &hello), (&stateless[..], &alone)] {
            let answer = gateway.post(&format!("/mcp/{id}"), headers, message);
            assert_eq!((answer.status, code_of(&answer).as_str()), (status, code), "{id}: {}", answer.body);
            assert_eq!(answer.last()["id"], 7, "{}", answer.body);
            assert!(answer.header("mcp-session-id").is_none());
        }
    }
}

#[test]
fn a_changed_tool_under_review_is_a_code_of_its_own() {
    let place = Place::new(Mode::Invoker);
    let sessions = std::sync::atomic::AtomicUsize::new(0);
    let server = HttpServer::start(move |asked: &Asked| {
        if asked.rpc() == "initialize" {
            sessions.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        handshake(asked).unwrap_or_else(|| {
            let now = sessions.load(std::sync::atomic::Ordering::SeqCst).min(2);
            let tool = json!({"name": "drifts", "description": format!("version {now}"), "inputSchema": {"type": "object"}});
            let result = json!({"tools": [tool], "content": []});
            Reply::json(json!({"jsonrpc": "2.0", "id": asked.message()["id"], "result": result}))
        })
    });
    let policy =
        "sandbox: {mcp: {version_pinning: {posture: review_required}, approvals: {headless: deny}}}\n";
    let gateway = before(&place, &server, policy, "");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for session in 0..2 {
        let id = gateway.shake_hands("/mcp/far", &[]);
        gateway.post("/mcp/far", &[("Mcp-Session-Id", &id)], &list);
        let answer = gateway.post("/mcp/far", &[("Mcp-Session-Id", &id)], &call(2, "drifts", json!({})));
        let expected = if session == 0 { "" } else { "TOOL_REVIEW_REQUIRED" };
        assert_eq!((answer.status, code_of(&answer).as_str()), (200, expected), "{}", answer.body);
    }
}
