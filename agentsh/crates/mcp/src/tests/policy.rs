//! Policy on the wire: calls, lists, records.

use std::time::Duration;

use serde_json::json;

use super::rig::{run, setup, within};
use crate::guard::interface;
use crate::json;
use crate::policy::{ListMode, McpPolicy, Rate, Ruled, ToolRule};
use crate::store::Event;
use crate::types::RuleRef;

fn at<T>(value: T, id: &str, line: u64) -> Ruled<T> {
    Ruled { value, rule: RuleRef { id: id.to_owned(), file: "policy.yaml".to_owned(), line } }
}

fn tool(tool: &str, hash: Option<String>) -> ToolRule {
    ToolRule { server: "*".to_owned(), tool: tool.to_owned(), content_hash: hash }
}

fn denying(name: &str) -> McpPolicy {
    McpPolicy {
        enforce: true,
        tool_policy: ListMode::Denylist,
        denied_tools: vec![at(tool(name, None), "sandbox.mcp.denied_tools[0]", 12)].into(),
        ..McpPolicy::default()
    }
}

fn call(id: u32, name: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{{"k":"secret"}}}}}}"#
    )
}

fn listing(tools: &[&str]) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{}],"nextCursor":"c"}}}}"#, tools.join(","))
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
const READ: &str = r#"{"name":"read","description":"d","inputSchema":{"type":"object"}}"#;
const WRITE: &str = r#"{"name":"write","inputSchema":{}}"#;

#[test]
fn denied_call_is_recorded_before_it_is_refused_and_not_forwarded() {
    let mut setup = setup();
    setup.policy = denying("wri*");
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(&call(5, "write")).await;
        let error = rig.client.next_json().await;
        assert_eq!(error["id"], 5);
        assert_eq!(error["error"]["code"], -32001);
        assert_eq!(
            error["error"]["message"],
            "agentsh: tool 'write' of server 'fs' refused by policy.yaml:12 (sandbox.mcp.denied_tools[0]); to allow it, remove the tool from denied_tools"
        );
        assert_eq!(
            error["error"]["data"],
            json!({ "reason": "tool-denied", "rule": "policy.yaml:12 (sandbox.mcp.denied_tools[0])" })
        );
        assert!(matches!(
            rig.journal.committed.borrow().as_slice(),
            [Event::McpToolCallIntercepted { action, reason, .. }] if action.as_str() == "block" && reason == "tool-denied"
        ));
        rig.client.send(&call(6, "read")).await;
        assert_eq!(server.peer.next().await.unwrap(), call(6, "read"));
        let events = rig.journal.events.borrow();
        assert!(matches!(
            &events[2],
            Event::McpToolCalled { tool_name, jsonrpc_id, input, .. }
                if tool_name == "read" && *jsonrpc_id == json!(6) && *input == json!({ "bytes": 14 })
        ));
        assert!(
            matches!(&events[3], Event::McpToolCallIntercepted { action, .. } if action.as_str() == "allow")
        );
    });
}

#[test]
fn a_policy_that_is_not_enforced_lets_pass_and_records_an_alert() {
    let mut setup = setup();
    setup.policy = McpPolicy { enforce: false, ..denying("write") };
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(LIST).await;
        server.peer.next().await.unwrap();
        server.peer.send(&listing(&[READ, WRITE])).await;
        assert_eq!(rig.client.next().await.unwrap(), listing(&[READ, WRITE]));
        rig.client.send(&call(5, "write")).await;
        assert_eq!(server.peer.next().await.unwrap(), call(5, "write"));
        assert!(
            rig.journal.events.borrow().iter().any(
                |event| matches!(event, Event::McpToolCallIntercepted { action, .. } if action.as_str() == "alert")
            )
        );
    });
}

#[test]
fn tool_names_that_parsers_read_differently_are_not_forwarded() {
    let mut setup = setup();
    setup.policy = denying("write");
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        for params in [
            r#"{"name":"read","Name":"write"}"#,
            r#"{"NAME":"write"}"#,
            r#"{"name":"read","arguments":{},"Arguments":{}}"#,
            r#"{"name":["write"]}"#,
            r#"{"name":"\ud800write"}"#,
            r#"["write"]"#,
            "null",
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            rig.client.send(&line).await;
            assert_eq!(rig.client.next_json().await["error"]["code"], -32602, "{params}");
        }
        rig.client
            .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wr\u0069te"}}"#)
            .await;
        assert_eq!(rig.client.next_json().await["error"]["code"], -32001);
        rig.round_trip(&mut server, 2).await;
    });
}

#[test]
fn denied_tools_vanish_and_everything_else_stays() {
    let mut setup = setup();
    setup.policy = denying("write");
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(LIST).await;
        server.peer.next().await.unwrap();
        server.peer.send(&listing(&[READ, WRITE])).await;
        assert_eq!(rig.client.next().await.unwrap(), listing(&[READ]));
        // A cancelled listing is no way around.
        rig.client.send(LIST).await;
        rig.client
            .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
            .await;
        server.peer.next().await.unwrap();
        server.peer.next().await.unwrap();
        server.peer.send(&listing(&[WRITE])).await;
        assert_eq!(rig.client.next().await.unwrap(), listing(&[]));
    });
}

#[test]
fn tools_are_recorded_as_new_unchanged_or_changed() {
    let mut setup = setup();
    let hash = interface::hash(&json::read(READ.as_bytes()).unwrap());
    let read = hash.clone();
    setup.options.known = crate::KnownTools(std::rc::Rc::new(move |tool, _| match tool {
        "read" => Some(read.clone()),
        "write" => Some("sha256:old".to_owned()),
        _ => None,
    }));
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        for tools in [[READ, WRITE], [r#"{"name":"read","description":"evil"}"#, r#"{"name":"new"}"#]] {
            rig.client.send(LIST).await;
            server.peer.next().await.unwrap();
            server.peer.send(&listing(&tools)).await;
            rig.client.next().await.unwrap();
        }
        server.peer.send(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).await;
        rig.client.next().await.unwrap();
        let events = rig.journal.events.borrow();
        let shown: Vec<String> = events
            .iter()
            .map(|event| match event {
                Event::McpToolSeen { tool_name, status, .. } => format!("{tool_name} {status}"),
                Event::McpToolChanged { tool_name, previous_hash, .. } => {
                    format!("{tool_name} from {previous_hash}")
                }
                other => serde_json::to_value(other).unwrap()["type"].as_str().unwrap().to_owned(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "read unchanged",
                "write from sha256:old",
                &format!("read from {hash}"),
                "new new",
                "mcp_tools_list_changed"
            ]
        );
        assert!(
            matches!(&events[0], Event::McpToolSeen { description: Some(text), tool_hash, .. } if text == "d" && *tool_hash == hash)
        );
    });
}

#[test]
fn a_hash_rule_allows_only_the_definition_it_names() {
    let mut setup = setup();
    let hash = interface::hash(&json::read(READ.as_bytes()).unwrap());
    setup.policy = McpPolicy {
        enforce: true,
        tool_policy: ListMode::Allowlist,
        allowed_tools: vec![at(tool("*", Some(hash)), "sandbox.mcp.allowed_tools[0]", 3)].into(),
        ..McpPolicy::default()
    };
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(&call(5, "read")).await;
        assert_eq!(rig.client.next_json().await["error"]["data"]["reason"], "tool-not-allowlisted");
        rig.client.send(LIST).await;
        server.peer.next().await.unwrap();
        server.peer.send(&listing(&[READ, WRITE])).await;
        assert_eq!(rig.client.next().await.unwrap(), listing(&[READ]));
        rig.client.send(&call(6, "read")).await;
        assert_eq!(server.peer.next().await.unwrap(), call(6, "read"));
        rig.client.send(&call(7, "write")).await;
        assert_eq!(rig.client.next_json().await["error"]["code"], -32001);
    });
}

#[test]
fn fail_closed_refuses_what_was_never_listed() {
    let mut setup = setup();
    setup.policy = McpPolicy {
        enforce: true,
        fail_closed: true,
        tool_policy: ListMode::Allowlist,
        allowed_tools: vec![at(tool("*", None), "sandbox.mcp.allowed_tools[0]", 3)].into(),
        ..McpPolicy::default()
    };
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(&call(5, "read")).await;
        assert_eq!(rig.client.next_json().await["error"]["data"]["reason"], "unknown-tool");
        rig.client.send(LIST).await;
        server.peer.next().await.unwrap();
        server.peer.send(&listing(&[READ])).await;
        rig.client.next().await.unwrap();
        rig.client.send(&call(6, "read")).await;
        assert_eq!(server.peer.next().await.unwrap(), call(6, "read"));
    });
}

#[test]
fn rate_limit_refusal_says_when_to_retry() {
    let mut setup = setup();
    setup.policy.rate_limits.default =
        Some(at(Rate { calls_per_minute: 6, burst: 1 }, "sandbox.mcp.rate_limits.default_rpm", 9));
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(&call(5, "read")).await;
        server.peer.next().await.unwrap();
        rig.client.send(&call(6, "read")).await;
        let error = rig.client.next_json().await;
        assert_eq!(error["error"]["data"]["reason"], "rate-limited");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("policy.yaml:9") && message.contains("try again in "), "{message}");
        rig.round_trip(&mut server, 7).await;
    });
}

#[test]
fn a_denied_server_is_never_started() {
    let mut setup = setup();
    setup.policy = McpPolicy {
        enforce: true,
        server_policy: ListMode::Denylist,
        denied_servers: vec![at("f?".to_owned(), "sandbox.mcp.denied_servers[0]", 4)].into(),
        ..McpPolicy::default()
    };
    run(async || {
        let mut rig = setup.open();
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).await;
        let error = rig.client.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32001)));
        assert!(error["error"]["message"].as_str().unwrap().contains("policy.yaml:4"));
        rig.client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        rig.client.send(&call(2, "read")).await;
        assert_eq!(rig.client.next_json().await["error"]["data"]["reason"], "server-denied");
        assert!(matches!(
            &rig.journal.committed.borrow()[0],
            Event::McpServerRefused { reason, rule, .. } if reason == "server-denied" && rule.line == 4
        ));
        assert_eq!(rig.starts.get(), 0);
        rig.ended().await;
    });
}

#[test]
fn messages_are_refused_once_the_journal_fails() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.round_trip(&mut server, 1).await;
        *rig.journal.broken.borrow_mut() = Some("disk full".to_owned());
        rig.client.send(&call(2, "read")).await;
        let error = rig.client.next_json().await;
        assert_eq!(error["error"]["data"]["reason"], "store-failed");
        assert!(error["error"]["message"].as_str().unwrap().contains("disk full"));
        server.peer.send(r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#).await;
        assert_eq!(server.peer.next_json().await["error"]["data"]["reason"], "store-failed");
        drop(rig.client);
        within("the end", rig.ended).await.unwrap();
    });
}

#[test]
fn limits_count_from_the_epoch_of_the_session() {
    let mut setup = setup();
    setup.options.epoch = tokio::time::Instant::now() + Duration::from_secs(3600);
    setup.policy.rate_limits.default = Some(at(Rate { calls_per_minute: 60, burst: 1 }, "r", 1));
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(&call(1, "read")).await;
        server.peer.next().await.unwrap();
        rig.client.send(&call(2, "read")).await;
        assert_eq!(rig.client.next_json().await["error"]["data"]["reason"], "rate-limited");
    });
}
