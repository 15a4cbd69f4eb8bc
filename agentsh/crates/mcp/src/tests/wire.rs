//! Nothing is lost: every kind of message comes out of the other side as it went in.

use super::rig::{run, setup};

/// Members that a typed proxy loses or changes.
const ODD: &str = r#""x-unknown":{"deep":[1.0,-0,1e400,123456789012345678901234567890,null]},"$serde_json::private::Number":"5","\u00e9\/":"\ud800""#;

const CLIENT_REQUESTS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true}},ODD}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",ODD}},ODD}"#,
    r#"{"method":"tools/list","params":{"cursor":"opaque=="},"jsonrpc":"2.0","id":2}"#,
    r#"{"jsonrpc":"2.0","id":-3,"method":"tools/call","params":{"name":"read","arguments":{ODD},"_meta":{"progressToken":7}}}"#,
    r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"resources/read","params":{"uri":"file:///é"}}"#,
    r#"{"jsonrpc":"2.0","id":"q\"\\","method":"prompts/get","params":{"name":"Name","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"completion/complete","params":{"ref":{},"argument":{}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":[]}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"tasks/get","params":null}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"no/such.method é","params":{ODD},"extra":1}"#,
];

const SERVER_REQUESTS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":50.0,ODD}}"#,
    r#"{"jsonrpc":"2.0","id":"1","method":"elicitation/create","params":{"mode":"form",ODD}}"#,
    r#"{"jsonrpc":"2.0","id":"roots","method":"roots/list"}"#,
    r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#,
];

const CLIENT_NOTIFICATIONS: &[&str] = &[
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99,"reason":"r",ODD}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed",ODD}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.8}}"#,
];

const SERVER_NOTIFICATIONS: &[&str] = &[
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.8,"total":50,ODD}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{ODD}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"},ODD}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/never/heard/of"}"#,
];

const RESULTS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"t",ODD}],"structuredContent":[1,{ODD}],"isError":true}}"#,
    r#"{"result":{"resultType":"input_required","requestState":"s","inputRequests":{ODD}},"jsonrpc":"2.0","id":ID}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"_meta":null}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{ODD}},ODD}],"nextCursor":"n",ODD}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32042,"message":"m","data":{ODD},ODD}}"#,
];

fn odd(text: &str) -> String {
    text.replace("ODD", ODD)
}

/// The id as one of the requests above has it.
fn id_of(request: &str) -> String {
    let tree = crate::json::read(request.as_bytes()).unwrap();
    tree.member("id").unwrap().to_compact()
}

#[test]
fn messages_of_every_kind_are_forwarded_in_both_directions() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        let mut results = RESULTS.iter().cycle();
        for request in CLIENT_REQUESTS {
            let request = odd(request);
            rig.client.send(&request).await;
            assert_eq!(server.peer.next().await.unwrap(), request);
            let answer = odd(results.next().unwrap()).replace("ID", &id_of(&request));
            server.peer.send(&answer).await;
            assert_eq!(rig.client.next().await.unwrap(), answer);
        }
        for request in SERVER_REQUESTS {
            let request = odd(request);
            server.peer.send(&request).await;
            assert_eq!(rig.client.next().await.unwrap(), request);
            let answer = odd(results.next().unwrap()).replace("ID", &id_of(&request));
            rig.client.send(&answer).await;
            assert_eq!(server.peer.next().await.unwrap(), answer);
        }
        for notification in CLIENT_NOTIFICATIONS {
            rig.client.send(&odd(notification)).await;
            assert_eq!(server.peer.next().await.unwrap(), odd(notification));
        }
        for notification in SERVER_NOTIFICATIONS {
            server.peer.send(&odd(notification)).await;
            assert_eq!(rig.client.next().await.unwrap(), odd(notification));
        }
        assert_eq!(rig.rejections(), []);
    });
}

/// A result that no client accepts ends the call; for methods outside the protocol the form of the result is unknown.
#[test]
fn result_that_is_no_object_is_an_error_for_known_methods_only() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        for result in ["null", "\"text\"", "[]", "1"] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#).await;
            server.peer.next().await.unwrap();
            server.peer.send(&answer).await;
            let refused = rig.client.next_json().await;
            assert_eq!(refused["error"]["data"]["reason"], "invalid-request", "{refused}");
            rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"vendor/x"}"#).await;
            server.peer.next().await.unwrap();
            server.peer.send(&answer).await;
            assert_eq!(rig.client.next().await.unwrap(), answer);
        }
    });
}

#[test]
fn an_id_may_be_answered_in_another_spelling() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":"a\/\u0062","method":"ping"}"#).await;
        server.peer.next().await.unwrap();
        let answer = r#"{"jsonrpc":"2.0","id":"a/b","result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
    });
}

#[test]
fn requests_overlap_and_answers_may_come_in_any_order() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        for id in ["1", "\"1\"", "2"] {
            rig.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
            server.peer.next().await.unwrap();
        }
        for id in ["2", "\"1\"", "1"] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            server.peer.send(&answer).await;
            assert_eq!(rig.client.next().await.unwrap(), answer);
        }
    });
}

#[test]
fn line_ends_and_blank_lines_do_not_matter() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send_bytes(b"\r\n\n  \n{\"jsonrpc\":\"2.0\",\r\"id\":1,\"method\":\"a\"}\r\n").await;
        assert_eq!(server.peer.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#);
        rig.client.send_bytes(b"{\"jsonrpc\":\"2.0\",\"method\":\"last\"}").await;
        rig.client.close();
        assert_eq!(server.peer.next().await.unwrap(), r#"{"jsonrpc":"2.0","method":"last"}"#);
        assert_eq!(server.peer.next().await, None);
    });
}

#[test]
fn a_cancelled_request_may_still_be_answered() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        rig.client
            .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
            .await;
        server.peer.next().await.unwrap();
        assert_eq!(server.peer.next_json().await["method"], "notifications/cancelled");
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
        server.peer.send(answer).await;
        rig.round_trip(&mut server, 2).await;
        assert_eq!(rig.rejections(), [("server".to_owned(), "unasked-response".to_owned())]);
    });
}

#[test]
fn pipelined_messages_pass_before_anybody_reads() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        let count = 3_000;
        let client = async {
            let batch: String = (0..count)
                .map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n"))
                .collect();
            rig.client.send_bytes(batch.as_bytes()).await;
            for id in 0..count {
                assert_eq!(rig.client.next_json().await["id"], id);
            }
        };
        let server = async {
            let mut answers = String::new();
            for _ in 0..count {
                let id = server.peer.next_json().await["id"].clone();
                answers.push_str(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"));
            }
            server.peer.send_bytes(answers.as_bytes()).await;
        };
        tokio::join!(client, server);
    });
}
