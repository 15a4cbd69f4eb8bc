//! Bad input of every kind, from both sides: refused, recorded, answered, and the connection continues.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{Rig, Server, run, setup};

fn long(id: &str) -> Vec<u8> {
    let text = "x".repeat(200_000);
    format!(r#"{{"method":"m","params":{{"id":5,"text":"{text}"}},"jsonrpc":"2.0","id":{id}}}"#).into_bytes()
}

fn deep() -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{}1{}}}"#, "[".repeat(128), "]".repeat(128))
        .into_bytes()
}

#[test]
fn malformed_client_lines_are_answered_with_errors() {
    let table: Vec<(Vec<u8>, &str, i32, Value)> = vec![
        (b"hello".to_vec(), "invalid-json", -32700, Value::Null),
        (b"{".to_vec(), "invalid-json", -32700, Value::Null),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":NaN}}"#.to_vec(),
            "invalid-json",
            -32700,
            json!(7),
        ),
        (br#"{"jsonrpc":"2.0","id":7,"method":"m"} {}"#.to_vec(), "invalid-json", -32700, json!(7)),
        (
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}".to_vec(),
            "invalid-json",
            -32700,
            json!(7),
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\xff\"}".to_vec(), "invalid-utf8", -32700, json!(7)),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}"#.to_vec(),
            "duplicate-key",
            -32700,
            json!(7),
        ),
        (br#"{"jsonrpc":"2.0","id":7,"id":8,"method":"a"}"#.to_vec(), "duplicate-key", -32700, json!(8)),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"n":1,"\u006e":2}}"#.to_vec(),
            "duplicate-key",
            -32700,
            json!(7),
        ),
        (deep(), "too-deep", -32700, json!(7)),
        (long("\"big\""), "oversized-line", -32700, json!("big")),
        (vec![b'z'; 150_000], "oversized-line", -32700, Value::Null),
        (b"[]".to_vec(), "batch", -32600, Value::Null),
        (b"5".to_vec(), "invalid-request", -32600, Value::Null),
        (br#"{"id":7,"method":"m"}"#.to_vec(), "invalid-request", -32600, json!(7)),
        (br#"{"jsonrpc":"1.0","id":7,"method":"m"}"#.to_vec(), "invalid-request", -32600, json!(7)),
        (br#"{"jsonrpc":2.0,"id":7,"method":"m"}"#.to_vec(), "invalid-request", -32600, json!(7)),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#.to_vec(), "invalid-request", -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":null,"method":"m"}"#.to_vec(), "invalid-request", -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":{},"method":"m"}"#.to_vec(), "invalid-request", -32600, Value::Null),
        (br#"{"jsonrpc":"2.0","id":7,"method":3}"#.to_vec(), "invalid-request", -32600, json!(7)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"\ud800"}"#.to_vec(), "invalid-request", -32600, json!(7)),
        (br#"{"jsonrpc":"2.0","id":7}"#.to_vec(), "invalid-request", -32600, json!(7)),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"m","result":{}}"#.to_vec(),
            "invalid-request",
            -32600,
            json!(7),
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"a","Method":"b"}"#.to_vec(),
            "ambiguous-key",
            -32600,
            json!(7),
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"a\",\"param\xc5\xbf\":{}}".to_vec(),
            "ambiguous-key",
            -32600,
            json!(7),
        ),
        (
            br#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}"#.to_vec(),
            "invalid-request",
            -32600,
            Value::Null,
        ),
        (
            format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "i".repeat(300)).into_bytes(),
            "invalid-request",
            -32600,
            json!("i".repeat(300)),
        ),
    ];
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        for (number, (line, reason, code, id)) in table.into_iter().enumerate() {
            let shown = String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
            rig.client.send_bytes(&[line, b"\n".to_vec()].concat()).await;
            let error = rig.client.next_json().await;
            assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), &id), "{shown}");
            assert_eq!(error["error"]["data"]["reason"], reason, "{shown}");
            let committed = rig.journal.committed.borrow().len();
            assert_eq!(committed, number + 1, "{shown}");
            assert_eq!(
                rig.rejections().last().unwrap(),
                &("client".to_owned(), reason.to_owned()),
                "{shown}"
            );
            // The next thing the server sees is a good message.
            rig.round_trip(&mut server, 1000 + number as u32).await;
        }
    });
}

#[test]
fn each_request_of_a_batch_gets_an_answer() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(r#"[{"jsonrpc":"2.0","id":7,"method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":"x","method":"c"}]"#).await;
        for id in [Value::Null, json!(7), json!("x")] {
            let error = rig.client.next_json().await;
            assert_eq!((&error["id"], &error["error"]["data"]["reason"]), (&id, &json!("batch")), "{error}");
        }
        rig.round_trip(&mut server, 1000).await;
    });
}

async fn ask(rig: &mut Rig, server: &mut Server, id: &str) {
    rig.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#)).await;
    server.peer.next().await.unwrap();
}

#[test]
fn malformed_server_answers_fail_their_requests() {
    let big = "x".repeat(50_000);
    let table: Vec<(Vec<u8>, &str)> = vec![
        (br#"{"jsonrpc":"2.0","id":7,"result":{"x":NaN}}"#.to_vec(), "invalid-json"),
        (br#"{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}"#.to_vec(), "duplicate-key"),
        // Clients take the last of two ids.
        (br#"{"jsonrpc":"2.0","id":6,"id":7,"result":{}}"#.to_vec(), "duplicate-key"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}".to_vec(), "invalid-utf8"),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{big}"}}"#).into_bytes(), "oversized-line"),
        (format!(r#"{{"result":"{big}","jsonrpc":"2.0","id":7}}"#).into_bytes(), "oversized-line"),
        (br#"{"jsonrpc":"2.0","id":7,"result":1,"error":{}}"#.to_vec(), "invalid-request"),
        (br#"{"jsonrpc":"2.0","id":7,"error":"no"}"#.to_vec(), "invalid-request"),
        (br#"{"jsonrpc":"2.0","id":7,"result":{},"Result":{}}"#.to_vec(), "ambiguous-key"),
        (br#"{"id":7,"result":{}}"#.to_vec(), "invalid-request"),
        (br#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#.to_vec(), "batch"),
    ];
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        ask(&mut rig, &mut server, "\"other\"").await;
        for (number, (line, reason)) in table.into_iter().enumerate() {
            let shown = String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned();
            ask(&mut rig, &mut server, "7").await;
            server.peer.send_bytes(&[line, b"\n".to_vec()].concat()).await;
            let error = rig.client.next_json().await;
            assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(-32003)), "{shown}");
            assert_eq!(error["error"]["data"]["reason"], reason, "{shown}");
            assert_eq!(rig.rejections().last().unwrap(), &("server".to_owned(), reason.to_owned()));
            // A late second try is not an answer any more.
            server.peer.send(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
            rig.round_trip(&mut server, 1000 + number as u32).await;
        }
    });
}

#[test]
fn unreadable_answer_without_an_id_fails_the_only_pending_request() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        ask(&mut rig, &mut server, "1").await;
        server.peer.send("Listening on stdio").await;
        server.peer.send(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"x":NaN}}"#).await;
        server.peer.send(r#"{"jsonrpc":"2.0","result":{"x":NaN"#).await;
        let error = rig.client.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32003)));
        let reasons: Vec<String> = rig.rejections().into_iter().map(|(_, reason)| reason).collect();
        assert_eq!(reasons, ["invalid-json"; 3]);
    });
}

#[test]
fn malformed_server_requests_are_answered_with_errors() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        for (line, code) in [
            (
                r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{"a":1,"a":2}}"#,
                -32700,
            ),
            (r#"{"jsonrpc":"1.0","id":"s","method":"roots/list"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":"s","method":"roots/list","Params":{}}"#, -32600),
        ] {
            server.peer.send(line).await;
            let error = server.peer.next_json().await;
            assert_eq!((&error["id"], &error["error"]["code"]), (&json!("s"), &json!(code)), "{line}");
        }
        rig.round_trip(&mut server, 1).await;
    });
}

/// Nobody else would answer it.
#[test]
fn second_server_request_under_an_open_id_is_answered_with_an_error() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        let ask = r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#;
        server.peer.send(ask).await;
        rig.client.next().await.unwrap();
        server.peer.send(ask).await;
        let error = server.peer.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(3), &json!(-32600)));
        rig.client.send(r#"{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}"#).await;
        assert_eq!(server.peer.next_json().await, json!({"jsonrpc":"2.0","id":3,"result":{"roots":[]}}));
        rig.round_trip(&mut server, 1).await;
    });
}

#[test]
fn malformed_client_answer_becomes_an_error_for_the_server() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        server.peer.send(r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#).await;
        rig.client.next().await.unwrap();
        rig.client.send(r#"{"jsonrpc":"2.0","id":3,"result":{"roots":NaN}}"#).await;
        let error = server.peer.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(3), &json!(-32003)));
        rig.round_trip(&mut server, 1).await;
    });
}

#[test]
fn answers_without_a_request_are_dropped() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        server.peer.next().await.unwrap();
        for id in ["2", "\"one\"", "1.5", "-1", "0"] {
            server.peer.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).await;
        }
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#).await;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
        rig.round_trip(&mut server, 9).await;
        let unasked = rig.rejections().iter().filter(|(_, reason)| reason == "unasked-response").count();
        assert_eq!((unasked, rig.rejections().len()), (6, 7));
    });
}

#[test]
fn answer_is_matched_to_its_request_for_any_spelling_of_the_id() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        for (asked, answered) in [("7", "\"7\""), ("7", "7.0"), ("7", "7e0"), ("\"7\"", "7")] {
            ask(&mut rig, &mut server, asked).await;
            ask(&mut rig, &mut server, "\"other\"").await;
            server.peer.send(&format!(r#"{{"jsonrpc":"2.0","id":{answered},"result":{{"n":1.0}}}}"#)).await;
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{asked},"result":{{"n":1.0}}}}"#);
            assert_eq!(rig.client.next().await.unwrap(), answer, "{answered}");
            server.peer.send(r#"{"jsonrpc":"2.0","id":"other","result":{}}"#).await;
            assert_eq!(rig.client.next_json().await["id"], "other");
        }
        // Two requests whose ids look alike: each has its own.
        ask(&mut rig, &mut server, "1").await;
        ask(&mut rig, &mut server, "\"1\"").await;
        for id in ["\"1\"", "1"] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            server.peer.send(&answer).await;
            assert_eq!(rig.client.next().await.unwrap(), answer);
        }
        // The same the other way round.
        server.peer.send(r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#).await;
        rig.client.next().await.unwrap();
        rig.client.send(r#"{"jsonrpc":"2.0","id":"3","result":{"roots":[]}}"#).await;
        assert_eq!(server.peer.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":3,"result":{"roots":[]}}"#);
        assert_eq!(rig.rejections(), []);
    });
}

/// Lines of a log that are objects, a banner, an answer that was there already: none of them is the answer.
#[test]
fn lines_that_are_no_answer_do_not_end_a_request() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.round_trip(&mut server, 5).await;
        ask(&mut rig, &mut server, "1").await;
        let noise = [
            r#"{"level":"info","msg":"started"}"#,
            r#"{"level":"error","Method":"GET","id":1}"#,
            "{}",
            r#"{"id":1}"#,
            r#"{"jsonrpc":"2.0"}"#,
            "Listening on stdio",
            "[info] {",
            "{ not json",
            "42",
            r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
        ];
        for line in noise {
            server.peer.send(line).await;
        }
        tokio::time::sleep(Duration::from_millis(1300)).await;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
        assert_eq!(rig.rejections().len(), noise.len());
    });
}

#[test]
fn answer_that_fits_no_request_fails_the_only_pending_one_after_a_delay() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        let misfit = r#"{"jsonrpc":"2.0","id":"what","result":{}}"#;
        ask(&mut rig, &mut server, "1").await;
        server.peer.send(misfit).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
        ask(&mut rig, &mut server, "2").await;
        let sent = Instant::now();
        server.peer.send(misfit).await;
        let error = rig.client.next_json().await;
        assert_eq!(
            (&error["id"], &error["error"]["data"]["reason"]),
            (&json!(2), &json!("unasked-response"))
        );
        assert!(
            error["error"]["message"].as_str().unwrap().contains("a request that the client did not send"),
            "{error}"
        );
        assert!((900..2500).contains(&sent.elapsed().as_millis()), "{:?}", sent.elapsed());
        // With two of them it is unclear which one was meant.
        ask(&mut rig, &mut server, "3").await;
        ask(&mut rig, &mut server, "4").await;
        server.peer.send(misfit).await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        for id in [3, 4] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            server.peer.send(&answer).await;
            assert_eq!(rig.client.next().await.unwrap(), answer);
        }
    });
}

#[test]
fn id_of_a_pending_request_cannot_be_reused() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        ask(&mut rig, &mut server, "1").await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"y"}"#).await;
        let error = rig.client.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32600)));
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
        rig.round_trip(&mut server, 1).await;
    });
}
