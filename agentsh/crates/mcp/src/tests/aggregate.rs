//! Several servers behind one client.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::rig::{Factory, Journal, Peer, Server, pair, run, setup, within};
use crate::aggregate::{AggregateOptions, Member, OwnTools, serve};
use crate::guard::Guard;
use crate::json::Json;
use crate::policy::McpPolicy;
use crate::policy::proxy_file;
use crate::store::Event;
use crate::types::ServerId;
use crate::{ErrorReply, INVALID_PARAMS};

struct Both {
    client: Peer,
    a: Server,
    b: Server,
    journal: Rc<Journal>,
    notes: Rc<RefCell<Vec<String>>>,
    more: Vec<UnboundedReceiver<Server>>,
    ended: JoinHandle<()>,
}

type Opened = (Peer, Rc<Journal>, Rc<RefCell<Vec<String>>>, JoinHandle<()>);

struct OneTool;

impl OwnTools for OneTool {
    fn tools(&self) -> Vec<String> {
        vec![r#"{"name":"canary__get_report","inputSchema":{"type":"object"}}"#.to_owned()]
    }

    fn call(&self, tool: &str, _: Option<&Json<'_>>) -> Result<String, ErrorReply> {
        match tool {
            "canary__get_report" => Ok(r#"{"content":[]}"#.to_owned()),
            other => {
                let message = format!("unknown tool {other}");
                Err(ErrorReply { code: INVALID_PARAMS, message, reason: "unknown-tool", rule: None })
            }
        }
    }
}

fn open(ids: &[&str], factories: Vec<Factory>, policy: &McpPolicy) -> Opened {
    let (client, (input, output)) = pair(64 << 10);
    let journal = Rc::new(Journal::default());
    let notes = Rc::new(RefCell::new(Vec::new()));
    let members = ids.iter().zip(factories).map(|(id, upstream)| {
        let mut options = setup().options;
        options.server = ServerId((*id).to_owned());
        Member { upstream, options }
    });
    let heard = notes.clone();
    let front = AggregateOptions {
        max_line_bytes: 100_000,
        own: Box::new(OneTool),
        lists_first: false,
        note: Box::new(move |note| heard.borrow_mut().push(note.to_owned())),
    };
    let guard = Rc::new(RefCell::new(Guard::new(policy)));
    let ended =
        tokio::task::spawn_local(serve(input, output, members.collect(), guard, journal.clone(), front));
    (client, journal, notes, ended)
}

async fn both_with(policy: &McpPolicy) -> Both {
    let ((one, mut ones), (two, mut twos)) = (Factory::new(), Factory::new());
    let (client, journal, notes, ended) = open(&["a", "b"], vec![one, two], policy);
    let a = within("a", ones.recv()).await.unwrap();
    let b = within("b", twos.recv()).await.unwrap();
    Both { client, a, b, journal, notes, more: vec![ones, twos], ended }
}

async fn both() -> Both {
    both_with(&McpPolicy::default()).await
}

impl Both {
    /// The client asks, both servers answer, the client gets one answer.
    async fn ask_all(&mut self, request: &str, a: &str, b: &str) -> String {
        self.client.send(request).await;
        for (server, result) in [(&mut self.a, a), (&mut self.b, b)] {
            let asked = server.peer.next_json().await;
            server.peer.send(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, asked["id"])).await;
        }
        self.client.next().await.unwrap()
    }

    async fn shake_hands(&mut self, a: &str, b: &str) -> Value {
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}"#;
        let answer = |capabilities: &str, version: &str| {
            format!(
                r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"serverInfo":{{"name":"x"}},"instructions":"be \"kind\""}}"#
            )
        };
        let heard = self.ask_all(hello, &answer(a, "2025-06-18"), &answer(b, "2024-11-05")).await;
        serde_json::from_str(&heard).unwrap()
    }
}

fn list(of: &str, items: &str, rest: &str) -> String {
    format!(r#"{{"{of}":{items}{rest}}}"#)
}

#[test]
fn aggregate_has_one_handshake_for_all_servers() {
    run(async || {
        let mut both = both().await;
        let hello = both
            .shake_hands(
                r#"{"tools":{"listChanged":false,"x":1.50},"logging":{}}"#,
                r#"{"tools":{"listChanged":true},"prompts":{}}"#,
            )
            .await;
        let result = &hello["result"];
        assert_eq!(result["protocolVersion"], "2025-06-18");
        assert_eq!(result["serverInfo"]["name"], "agentsh");
        assert_eq!(
            result["capabilities"],
            json!({"tools": {"listChanged": true, "x": 1.5}, "logging": {}, "prompts": {}})
        );
        assert!(result["instructions"].as_str().unwrap().contains("be \"kind\""));
        // Only servers with this capability are asked.
        both.client
            .send(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#)
            .await;
        assert_eq!(both.a.peer.next_json().await["method"], "logging/setLevel");
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        assert_eq!(both.client.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        both.client.send(r#"{"jsonrpc":"2.0","id":2,"method":"resources/list"}"#).await;
        assert_eq!(both.client.next_json().await["result"], json!({"resources": []}));
        both.client.send(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#).await;
        assert_eq!(both.client.next_json().await["result"], json!({}));
    });
}

#[test]
fn aggregate_merges_lists_page_by_page() {
    run(async || {
        let mut both = both().await;
        let first = both
            .ask_all(
                r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#,
                &list("tools", r#"[{"title":"T","name":"x\u0079","big":1.50e2,"inputSchema":{"type":"object"}},{"name":7}]"#, r#","nextCursor":"p\"2\u0041","ttlMs":500,"resultType":"complete""#),
                &list("tools", r#"[{"name":"xy","inputSchema":{}}]"#, r#","ttlMs":20.5,"cacheScope":"private","new":[1.0]"#),
            )
            .await;
        assert_eq!(
            first.split(r#","nextCursor""#).next().unwrap(),
            r#"{"jsonrpc":"2.0","id":"l","result":{"tools":[{"title":"T","name":"a__x\u0079","big":1.50e2,"inputSchema":{"type":"object"}},{"name":"b__xy","inputSchema":{}},{"name":"canary__get_report","inputSchema":{"type":"object"}}]"#
        );
        assert!(
            first.ends_with(r#","ttlMs":20.5,"resultType":"complete","cacheScope":"private","new":[1.0]}}"#),
            "{first}"
        );
        let cursor = serde_json::from_str::<Value>(&first).unwrap()["result"]["nextCursor"].clone();
        let next = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"cursor": cursor}});
        both.client.send(&next.to_string()).await;
        let asked = both.a.peer.next().await.unwrap();
        assert!(asked.contains(r#""cursor":"p\"2\u0041""#), "{asked}");
        both.a
            .peer
            .send(r#"{"jsonrpc":"2.0","x-new":[2.50],"id":5,"result":{"tools":[{"name":"last"}]}}"#)
            .await;
        assert_eq!(
            both.client.next().await.unwrap(),
            r#"{"jsonrpc":"2.0","id":5,"result":{"tools":[{"name":"a__last"}]},"x-new":[2.50]}"#
        );
        for cursor in [json!("x"), json!(7), json!("agentsh1;9:1:x")] {
            let wrong =
                json!({"jsonrpc": "2.0", "id": 6, "method": "tools/list", "params": {"cursor": cursor}});
            both.client.send(&wrong.to_string()).await;
            assert_eq!(both.client.next_json().await["error"]["code"], -32602);
        }
    });
}

#[test]
fn aggregate_changes_only_the_tool_name_of_a_call() {
    run(async || {
        let mut both = both().await;
        both.client
            .send(r#"{"id":"i\u0064","x":1e400,"method":"tools/call","params":{"arguments":{"n":1.0},"name":"b__t\u0041__c","_meta":{"progressToken":1}},"jsonrpc":"2.0"}"#)
            .await;
        assert_eq!(
            both.b.peer.next().await.unwrap(),
            r#"{"id":"i\u0064","x":1e400,"method":"tools/call","params":{"arguments":{"n":1.0},"name":"t\u0041__c","_meta":{"progressToken":1}},"jsonrpc":"2.0"}"#
        );
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.10}}"#;
        // The other server cannot speak for this request.
        both.a.peer.send(progress).await;
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":"id","result":{"stolen":1}}"#).await;
        both.a
            .peer
            .send(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#)
            .await;
        assert_eq!(both.client.next_json().await["method"], "notifications/message");
        both.b.peer.send(progress).await;
        assert_eq!(both.client.next().await.unwrap(), progress);
        let answer =
            r#"{"result":{"content":[],"structuredContent":{"a":1.10}},"id":"i\u0064","jsonrpc":"2.0"}"#;
        both.b.peer.send(answer).await;
        assert_eq!(both.client.next().await.unwrap(), answer);
        for name in ["\"c__t\"", "\"a_t\"", "7", "\"canary__other\""] {
            both.client
                .send(&format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{name}}}}}"#
                ))
                .await;
            assert_eq!(both.client.next_json().await["error"]["code"], -32602, "{name}");
        }
        let rejected = both
            .journal
            .events
            .borrow()
            .iter()
            .filter(|event| matches!(event, Event::McpMessageRejected { .. }))
            .count();
        assert_eq!(rejected, 2);
    });
}

#[test]
fn requests_of_both_servers_reach_the_client_and_their_answers_return() {
    run(async || {
        let mut both = both().await;
        let ask = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"_meta":{"progressToken":"t"},"n":1.0}}"#;
        both.a.peer.send(ask).await;
        let first = both.client.next_json().await;
        both.b.peer.send(&ask.replace("\"id\":1", "\"id\":\"1\\/x\"")).await;
        let second = both.client.next_json().await;
        assert_ne!(first["id"], second["id"]);
        assert_ne!(first["params"]["_meta"], second["params"]["_meta"]);
        let token = &second["params"]["_meta"]["progressToken"];
        both.client.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1.50}}}}"#)).await;
        assert_eq!(
            both.b.peer.next().await.unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.50}}"#
        );
        for (server, asked, id) in [(&mut both.b, &second, r#""1\/x""#), (&mut both.a, &first, "1")] {
            both.client
                .send(&format!(r#"{{"jsonrpc":"2.0","result":{{"r":0.50}},"id":{}}}"#, asked["id"]))
                .await;
            assert_eq!(
                server.peer.next().await.unwrap(),
                format!(r#"{{"jsonrpc":"2.0","result":{{"r":0.50}},"id":{id}}}"#)
            );
        }
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{}}"#).await;
        let third = both.client.next_json().await["id"].clone();
        both.a.peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"r"}}"#).await;
        assert_eq!(both.client.next_json().await["params"], json!({"requestId": third, "reason": "r"}));
    });
}

#[test]
fn aggregate_reads_resources_from_the_server_that_listed_them() {
    run(async || {
        let mut both = both().await;
        both.ask_all(
            r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#,
            &list("resources", r#"[{"uri":"x:1"}]"#, ""),
            &list("resources", r#"[{"uri":"x:2"}]"#, ""),
        )
        .await;
        let read = |id: u32, uri: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/read","params":{{"uri":"{uri}"}}}}"#)
        };
        both.client.send(&read(2, "x:2")).await;
        assert_eq!(both.b.peer.next().await.unwrap(), read(2, "x:2"));
        both.b.peer.send(r#"{"jsonrpc":"2.0","id":2,"result":{"contents":[]}}"#).await;
        both.client.next().await.unwrap();
        both.client.send(&read(3, "y:9")).await;
        assert_eq!(both.a.peer.next().await.unwrap(), read(3, "y:9"));
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"not mine"}}"#).await;
        assert_eq!(both.b.peer.next().await.unwrap(), read(3, "y:9"));
        both.b.peer.send(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"none"}}"#).await;
        assert_eq!(both.client.next_json().await["error"]["message"], "not mine");
    });
}

#[test]
fn unknown_method_is_tried_at_every_server() {
    run(async || {
        let mut both = both().await;
        both.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"vendor/x","params":[1.0]}"#).await;
        assert_eq!(both.a.peer.next_json().await["method"], "vendor/x");
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}"#).await;
        assert_eq!(
            both.b.peer.next().await.unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"method":"vendor/x","params":[1.0]}"#
        );
        both.b.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":5}"#).await;
        assert_eq!(both.client.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"result":5}"#);
    });
}

#[test]
fn tasks_return_to_their_server_and_a_stolen_name_is_refused() {
    run(async || {
        let mut both = both().await;
        for (id, server, shown) in [(1, "a", true), (2, "b", false)] {
            both.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{server}__t","task":{{}}}}}}"#)).await;
            let peer = if server == "a" { &mut both.a.peer } else { &mut both.b.peer };
            peer.next().await.unwrap();
            peer.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"task":{{"taskId":"t1"}}}}}}"#))
                .await;
            assert_eq!(both.client.next_json().await["error"].is_null(), shown);
        }
        both.client.send(r#"{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"t1"}}"#).await;
        assert_eq!(both.a.peer.next_json().await["method"], "tasks/get");
    });
}

#[test]
fn cancellation_reaches_the_working_server_and_frees_the_id() {
    run(async || {
        let mut both = both().await;
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b__t"}}"#;
        both.client.send(call).await;
        both.b.peer.next().await.unwrap();
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        both.client.send(cancel).await;
        assert_eq!(both.b.peer.next().await.unwrap(), cancel);
        both.client.send(&call.replace("b__", "a__")).await;
        both.a.peer.next().await.unwrap();
        both.b.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{"late":true}}"#).await;
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        assert_eq!(both.client.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    });
}

#[test]
fn the_newer_handshake_needs_all_servers_to_speak_it() {
    run(async || {
        let mut both = both().await;
        let discover = r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}"#;
        let answer = |versions: &str| {
            format!(
                r#"{{"supportedVersions":{versions},"capabilities":{{"tools":{{}}}},"resultType":"complete"}}"#
            )
        };
        let heard = both
            .ask_all(discover, &answer(r#"["2026-07-28","2025-11-25"]"#), &answer(r#"["2026-07-28"]"#))
            .await;
        let heard: Value = serde_json::from_str(&heard).unwrap();
        assert_eq!(heard["result"]["supportedVersions"], json!(["2026-07-28"]));
        assert_eq!(heard["result"]["resultType"], "complete");
        both.client.send(discover).await;
        both.a.peer.next().await.unwrap();
        both.b.peer.next().await.unwrap();
        both.a
            .peer
            .send(&format!(r#"{{"jsonrpc":"2.0","id":"d","result":{}}}"#, answer("[\"2026-07-28\"]")))
            .await;
        both.b.peer.send(r#"{"jsonrpc":"2.0","id":"d","error":{"code":-32601,"message":"old"}}"#).await;
        assert_eq!(both.client.next_json().await["error"], json!({"code": -32601, "message": "old"}));
    });
}

#[test]
fn aggregate_reports_a_server_that_does_not_start() {
    run(async || {
        let (two, mut twos) = Factory::new();
        let (mut client, journal, notes, _ended) =
            open(&["a", "b"], vec![Factory::failing("no such program"), two], &McpPolicy::default());
        let mut b = within("b", twos.recv()).await.unwrap();
        client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
        b.peer.next().await.unwrap();
        b.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t"}]}}"#).await;
        let tools = client.next_json().await["result"]["tools"].clone();
        assert_eq!(tools[0]["name"], "b__t");
        assert!(notes.borrow().iter().any(|note| note.contains("no such program")), "{notes:?}");
        let is_told = |event: &Event| matches!(event, Event::McpServerUnavailable { server_id, .. } if server_id.0 == "a");
        assert!(journal.events.borrow().iter().any(is_told));
        client.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a__t"}}"#).await;
        assert!(client.next_json().await["error"]["message"].as_str().unwrap().contains("no such program"));
    });
}

/// Servers that are ready answer; the lists of later ones are announced.
#[test]
fn silent_server_does_not_delay_the_others() {
    run(async || {
        let mut both = both().await;
        let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}"#;
        both.client.send(hello).await;
        let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x"}}}"#;
        both.a.peer.next().await.unwrap();
        both.b.peer.next().await.unwrap();
        both.a.peer.send(answer).await;
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(both.client.next_json().await["result"]["serverInfo"]["name"], "agentsh");
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        both.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
        both.a.peer.next().await.unwrap();
        both.a.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":""}}"#).await;
        assert_eq!(both.client.next_json().await["result"]["nextCursor"], Value::Null);
        both.b.peer.send(answer).await;
        assert_eq!(both.client.next_json().await["method"], "notifications/tools/list_changed");
    });
}

/// A client that lists again keeps the tools of a server that takes longer this time.
#[test]
fn tools_of_a_slow_server_stay_in_a_second_list() {
    run(async || {
        let mut both = both().await;
        for (id, is_slow) in [(1, false), (2, true)] {
            both.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)).await;
            let tools = |name: &str| {
                let tool = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tool}]}}}}"#)
            };
            both.a.peer.next().await.unwrap();
            both.b.peer.next().await.unwrap();
            both.a.peer.send(&tools("one")).await;
            if !is_slow {
                both.b.peer.send(&tools("two")).await;
            }
            let answer = both.client.next_json().await;
            let names: Vec<_> =
                answer["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
            assert_eq!(names[..2], ["a__one", "b__two"], "{id}: {answer}");
        }
    });
}

#[test]
fn a_crash_ends_its_own_calls_only_and_the_next_call_starts_it_again() {
    run(async || {
        let mut both = both().await;
        both.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__t"}}"#).await;
        both.client.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b__t"}}"#).await;
        both.a.peer.next().await.unwrap();
        both.b.peer.next().await.unwrap();
        both.a.exit(3);
        assert_eq!(both.client.next_json().await["error"]["code"], -32002);
        both.b.peer.send(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
        assert_eq!(both.client.next_json().await["id"], 2);
        both.client.send(r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a__t"}}"#).await;
        let mut again = within("a again", both.more[0].recv()).await.unwrap();
        assert_eq!(again.peer.next_json().await["params"]["name"], "t");
    });
}

#[test]
fn servers_stop_when_the_client_closes() {
    run(async || {
        let Both { client, mut a, mut b, ended, .. } = both().await;
        drop(client);
        assert_eq!((a.peer.next().await, b.peer.next().await), (None, None));
        a.exit(0);
        b.exit(0);
        within("the end", ended).await.unwrap();
    });
}

#[test]
fn tools_outside_of_the_list_are_hidden_and_refused() {
    run(async || {
        let file = r#"{"servers":[{"id":"a","command":"x"},{"id":"b","command":"x"}],
            "allowed_tools":["a__one"]}"#;
        let policy = proxy_file::parse("proxy.json", file).unwrap().narrow(&McpPolicy::default());
        let mut both = both_with(&policy).await;
        let tools = list("tools", r#"[{"name":"one"},{"name":"two"}]"#, "");
        let heard = both.ask_all(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, &tools, &tools).await;
        let heard: Value = serde_json::from_str(&heard).unwrap();
        let names: Vec<&str> = heard["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a__one", "canary__get_report"]);
        both.client
            .send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b__one"}}"#)
            .await;
        let error = both.client.next_json().await["error"].clone();
        assert_eq!(error["data"]["rule"], "proxy.json:2 (allowed_tools)", "{error}");
        assert!(both.notes.borrow().is_empty());
    });
}

#[test]
fn the_prefix_of_a_prompt_may_be_left_out_where_one_server_has_prompts() {
    run(async || {
        for (a, understood) in [(r#"{"tools":{}}"#, true), (r#"{"prompts":{}}"#, false)] {
            let mut both = both().await;
            both.shake_hands(a, r#"{"prompts":{},"completions":{},"tools":{}}"#).await;
            let get = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}"#;
            let complete = r#"{"jsonrpc":"2.0","id":2,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}}}"#;
            for line in [get, complete] {
                both.client.send(line).await;
                if understood {
                    assert_eq!(both.b.peer.next().await.unwrap(), line);
                } else {
                    assert_eq!(both.client.next_json().await["error"]["code"], INVALID_PARAMS);
                }
            }
            // A tool always needs its whole name.
            both.client.send(r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"p"}}"#).await;
            assert_eq!(both.client.next_json().await["error"]["code"], INVALID_PARAMS);
        }
    });
}
