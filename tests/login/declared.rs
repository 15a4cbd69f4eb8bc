//! Servers behind URLs that the policy and the proxy's file declare, with headers that the session fills in.

use serde_json::{Value, json};

use super::log_in;
use crate::support::authority::Authority;
use crate::support::http_server::{HttpServer, Reply, handshake};
use crate::support::sandbox::script;
use crate::support::{Mode, Outcome, Peer, Place};

const TOKEN: &str = "t0ken-of-the-user";

fn server() -> HttpServer {
    HttpServer::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let id = asked.message()["id"].clone();
            let result = match asked.rpc().as_str() {
                "tools/list" => json!({"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}),
                _ => json!({"content": [{"type": "text", "text": "from afar"}]}),
            };
            Reply::json(json!({"jsonrpc": "2.0", "id": id, "result": result}))
        })
    })
}

fn entry(url: &str) -> String {
    format!(
        "{{id: far, type: http, url: \"{url}\", headers: {{Authorization: \"Bearer ${{FAR_TOKEN}}\", X-Team: a}}}}"
    )
}

#[test]
fn the_policy_declares_a_server_for_every_agent() {
    for mode in Mode::all() {
        let (place, server) = (Place::new(mode), server());
        place.set("FAR_TOKEN", TOKEN);
        place.policy(&format!("sandbox: {{mcp: {{servers: [{}]}}}}", entry(&server.url())));
        let steps = json!([
            {"servers": true},
            {"server": "far", "tool": "look", "arguments": {}},
            {"attempt": "environment FAR_TOKEN"},
        ]);
        let answers = script(&place, &steps);
        assert_eq!(answers.json[0], json!(["far"]), "{}", answers.outcome);
        assert_eq!(answers.text(1), "from afar", "{}", answers.outcome);
        assert_eq!(answers.json[2], "REFUSED NotFound");
        for asked in server.asked() {
            assert_eq!(asked.header("authorization"), Some("Bearer t0ken-of-the-user"));
            assert_eq!(asked.header("x-team"), Some("a"));
        }
        let shown = Outcome::of(&mut place.agentsh(&["policy", "show"])).expect_code(0);
        assert!(shown.stdout.contains(&server.url()) && shown.stdout.contains("X-Team"), "{shown}");
        let all = Value::from(place.listed(&["mcp", "events", "--json"])).to_string();
        assert!(!all.contains(TOKEN), "{all}");
    }
}

#[test]
fn credential_with_an_unset_variable_is_not_sent() {
    let (place, server) = (Place::new(Mode::Invoker), server());
    place.policy(&format!("sandbox: {{mcp: {{servers: [{}]}}}}", entry(&server.url())));
    let answers = script(&place, &json!([{"server": "far", "tool": "look", "arguments": {}}]));
    assert!(answers.error(0).contains("FAR_TOKEN, which is not set"), "{}", answers.outcome);
    assert!(server.asked().is_empty());
}

#[test]
fn a_project_cannot_declare_one_or_say_what_it_is_sent() {
    for (entry, part) in [
        ("{id: far, url: \"https://evil.example/mcp\"}", "how server `far` is started"),
        ("{id: far, headers: {X-Key: \"${FAR_TOKEN}\"}}", "what server `far` is sent"),
    ] {
        let (place, server) = (Place::new(Mode::Invoker), server());
        place.policy(&format!("sandbox: {{mcp: {{servers: [{{id: far, url: \"{}\"}}]}}}}", server.url()));
        place.write(".agentsh.yaml", format!("sandbox: {{mcp: {{servers: [{entry}]}}}}\n"));
        let outcome = place.shell("true");
        assert!(outcome.code == 125 && outcome.stderr.contains(part), "{outcome}");
    }
}

#[test]
fn login_mistakes_in_a_policy_name_their_place() {
    for (entry, part) in [
        ("{id: a, url: \"ftp://x.example\"}", "not the address of a server"),
        ("{id: a, url: \"https://me:secret@x.example\"}", "not the address of a server"),
        ("{id: a, type: stdio, url: \"https://x.example\"}", "is not `stdio`"),
        ("{id: a, command: x, headers: {A: b}}", "`headers` is for a server with a `url`"),
        ("{id: a, url: \"https://x.example\", headers: {\"A B\": c}}", "not the name of a header"),
        ("{id: a, url: \"https://x.example\", headers: {A: \"b\\nC: d\"}}", "a header is one line"),
    ] {
        let place = Place::new(Mode::Invoker);
        place.policy(&format!("sandbox: {{mcp: {{servers: [{entry}]}}}}"));
        let outcome = Outcome::of(&mut place.agentsh(&["policy", "check"]));
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(
            outcome.code == 1 && said.contains(part) && said.contains("policy.yaml:1"),
            "{part}: {outcome}"
        );
    }
}

#[test]
fn proxy_configuration_takes_urls_and_programs() {
    let (place, authority, server) = (Place::new(Mode::Invoker), Authority::start(), server());
    place.set("FAR_TOKEN", TOKEN);
    let file = json!({"servers": [
        {"id": "near", "command": place.program("fixture_server")},
        {"id": "far", "url": server.url(), "headers": {"Authorization": "Bearer ${FAR_TOKEN}"}},
        {"id": "kept", "url": authority.mcp.url()},
    ]});
    let config = place.write("proxy.json", file.to_string());
    log_in(&place, &[&authority.mcp.url()]).expect_code(0);
    let mut peer = Peer::start(&mut place.agentsh(&["proxy", "--config", config.to_str().unwrap()]));
    peer.shake_hands();
    let tools = peer.request("tools/list", json!({})).to_string();
    assert!(
        tools.contains("near__echo") && tools.contains("far__look") && tools.contains("kept__read"),
        "{tools}"
    );
    assert_eq!(peer.text("far__look", json!({})), "from afar");
    assert_eq!(peer.text("kept__read", json!({})), "from afar");
    assert_eq!(peer.text("near__env", json!({"name": "FAR_TOKEN"})), "(not set)");
    let (code, _) = peer.finish();
    assert_eq!(code, 0);
    assert!(
        server.asked().iter().all(|asked| asked.header("authorization") == Some("Bearer t0ken-of-the-user"))
    );
    let kinds: Vec<Value> = place.events("mcp_tool_seen");
    assert!(
        kinds.iter().any(|event| event["server_id"] == "far" && event["server_type"] == "http"),
        "{kinds:?}"
    );
}
