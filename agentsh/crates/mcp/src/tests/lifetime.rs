//! Servers that start late, end early, hang, or will not end.

use std::time::{Duration, Instant};

use serde_json::json;

use super::rig::{run, setup, within};
use crate::store::Event;
use crate::{ExitInfo, StartError};

const INITIALIZE: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","x":1.0}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

#[test]
fn server_crash_fails_pending_calls_and_the_next_call_restarts_it() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(INITIALIZE).await;
        server.peer.next().await.unwrap();
        server.peer.send(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#).await;
        rig.client.next().await.unwrap();
        rig.client.send(INITIALIZED).await;
        server.peer.next().await.unwrap();
        for id in [1, 2] {
            rig.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#)).await;
            server.peer.next().await.unwrap();
        }
        server.peer.send(r#"{"jsonrpc":"2.0","id":"s1","method":"roots/list"}"#).await;
        rig.client.next().await.unwrap();
        server.peer.send(r#"{"jsonrpc":"2.0","id":2,"result":"last words"}"#).await;
        server.exit(3);

        assert_eq!(rig.client.next_json().await["result"], "last words");
        let error = rig.client.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32002)));
        assert_eq!(
            error["error"]["message"],
            "agentsh: server 'fs' ended with exit code 3 while this call was running; it is started again on the \
             next call"
        );
        let withdrawn = rig.client.next_json().await;
        assert_eq!(withdrawn["method"], "notifications/cancelled");
        assert_eq!(withdrawn["params"]["requestId"], "s1");
        assert!(rig.journal.committed.borrow().iter().any(|event| matches!(
            event,
            Event::McpServerCrashed { exit_code: 3, pending_calls: 1, restart_in_ms: 250, .. }
        )));

        assert_eq!(rig.starts.get(), 1);
        let asked = Instant::now();
        // The late answer to the server that is gone goes nowhere.
        rig.client.send(r#"{"jsonrpc":"2.0","id":"s1","result":{}}"#).await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":3,"method":"y"}"#).await;
        let mut server = rig.server().await;
        assert!(asked.elapsed() > Duration::from_millis(150));
        let replay = server.peer.next_json().await;
        assert_eq!(replay["method"], "initialize");
        assert_eq!(replay["params"], json!({ "protocolVersion": "2025-06-18", "x": 1.0 }));
        let answer = json!({ "jsonrpc": "2.0", "id": replay["id"], "result": {} });
        server.peer.send(&answer.to_string()).await;
        assert_eq!(server.peer.next().await.unwrap(), INITIALIZED);
        assert_eq!(server.peer.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":3,"method":"y"}"#);
        server.peer.send(r#"{"jsonrpc":"2.0","id":3,"result":"again"}"#).await;
        assert_eq!(rig.client.next_json().await["result"], "again");
        assert_eq!(rig.rejections(), []);
    });
}

/// In a proxy other servers answered the client, which goes on.
#[test]
fn handshake_that_a_server_never_answered_is_replayed_to_the_next_one() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(INITIALIZE).await;
        server.peer.next().await.unwrap();
        server.exit(3);
        assert_eq!(rig.client.next_json().await["error"]["code"], -32002);
        rig.client.send(INITIALIZED).await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        let mut server = rig.server().await;
        let replay = server.peer.next_json().await;
        assert_eq!(replay["method"], "initialize");
        server.peer.send(&json!({ "jsonrpc": "2.0", "id": replay["id"], "result": {} }).to_string()).await;
        assert_eq!(server.peer.next().await.unwrap(), INITIALIZED);
        assert_eq!(server.peer.next().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#);
    });
}

#[test]
fn without_a_handshake_nothing_is_replayed() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#).await;
        server.peer.next().await.unwrap();
        server.exit(0);
        assert_eq!(rig.client.next_json().await["error"]["code"], -32002);
        // A notification alone starts no server.
        rig.client.send(INITIALIZED).await;
        let line = r#"{"jsonrpc":"2.0","id":2,"method":"server/discover"}"#;
        rig.client.send(line).await;
        let mut server = rig.server().await;
        assert_eq!(server.peer.next().await.unwrap(), line);
    });
}

#[test]
fn server_that_refuses_the_replayed_handshake_is_ended() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(INITIALIZE).await;
        server.peer.next().await.unwrap();
        server.peer.send(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#).await;
        rig.client.next().await.unwrap();
        server.exit(0);
        rig.crash().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        let mut server = rig.server().await;
        let id = server.peer.next_json().await["id"].clone();
        server
            .peer
            .send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": 1, "message": "no" } }).to_string())
            .await;
        server.peer.close();
        assert_eq!(rig.client.next_json().await["error"]["code"], -32002);
        assert!(server.killed.get());
    });
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let failure = |message: &str, permanent| StartError {
        message: message.to_owned(),
        permanent,
        recorded: false,
        status: 125,
        reason: StartError::NOT_STARTED,
    };
    let mut setup = setup();
    setup.failures = vec![failure("no memory", false), failure("pin mismatch: index.js changed", true)];
    run(async || {
        let mut rig = setup.open();
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        let error = rig.client.next_json().await;
        assert_eq!(error["error"]["message"], "agentsh: server 'fs' did not start: no memory");
        for id in [2, 3] {
            rig.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#)).await;
            let error = rig.client.next_json().await;
            assert_eq!((&error["id"], &error["error"]["code"]), (&json!(id), &json!(-32002)));
            assert!(error["error"]["message"].as_str().unwrap().contains("index.js changed"));
        }
        assert_eq!(rig.starts.get(), 2);
        rig.ended().await;
    });
}

#[test]
fn the_end_of_the_client_closes_the_input_of_the_server() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        rig.client.close();
        server.peer.next().await.unwrap();
        assert_eq!(server.peer.next().await, None);
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        server.exit(4);
        assert_eq!(rig.client.next().await.unwrap(), answer);
        assert_eq!(rig.client.next().await, None);
        let ended = within("the end", rig.ended).await.unwrap();
        assert_eq!(ended.exit, Some(ExitInfo { code: 4, cause: "exited".to_owned() }));
        assert!(!ended.killed);
        assert!(rig.journal.events.borrow().is_empty());
    });
}

#[test]
fn a_server_that_does_not_end_is_killed() {
    run(async || {
        let mut rig = setup().open();
        let server = rig.server().await;
        let closed = Instant::now();
        rig.client.close();
        let ended = within("the end", rig.ended).await.unwrap();
        assert!(server.killed.get() && ended.killed);
        assert!(closed.elapsed() >= Duration::from_millis(100));
    });
}

/// Whoever ends agentsh by a signal does not wait as long as after the end of its messages.
#[test]
fn a_signal_shortens_the_grace_of_a_server() {
    run(async || {
        let mut setup = setup();
        setup.options.exit_grace = Duration::from_secs(3600);
        setup.options.has_reader = Some(|| true);
        setup.options.is_over.set(true);
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
        server.peer.next().await.unwrap();
        rig.client.close();
        // Its input ends first.
        assert_eq!(server.peer.next().await, None);
        assert!(!server.killed.get());
        let ended = within("the end", rig.ended).await.unwrap();
        assert!(server.killed.get() && ended.killed);
    });
}

#[test]
fn a_client_that_stops_reading_ends_the_connection() {
    run(async || {
        let mut rig = setup().open();
        let mut server = rig.server().await;
        drop(rig.client);
        server.peer.send(r#"{"jsonrpc":"2.0","method":"x"}"#).await;
        assert_eq!(server.peer.next().await, None);
        server.exit(0);
        within("the end", rig.ended).await.unwrap();
    });
}

#[test]
fn a_request_before_the_end_of_input_is_still_delivered() {
    run(async || {
        let mut rig = setup().open();
        // Sent before the server even runs.
        rig.client.send(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#).await;
        rig.client.close();
        let mut server = rig.server().await;
        server.peer.next().await.unwrap();
        server.peer.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        assert_eq!(rig.client.next_json().await["id"], 1);
        server.exit(0);
        within("the end", rig.ended).await.unwrap();
    });
}

#[test]
fn a_request_that_takes_too_long_is_cancelled_on_both_sides() {
    let mut setup = setup();
    setup.options.request_timeout = Some(Duration::from_millis(60));
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":"t","method":"slow"}"#).await;
        server.peer.next().await.unwrap();
        let error = rig.client.next_json().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!("t"), &json!(-32004)));
        assert!(matches!(
            rig.journal.committed.borrow().as_slice(),
            [Event::McpRequestTimedOut { method, after_ms: 60, .. }] if method == "slow"
        ));
        let cancelled = server.peer.next_json().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], "t");
        server.peer.send(r#"{"jsonrpc":"2.0","id":"t","result":{}}"#).await;
        rig.round_trip(&mut server, 1).await;
        assert_eq!(rig.rejections(), []);
    });
}

#[test]
fn progress_and_questions_to_the_client_extend_a_request() {
    let mut setup = setup();
    setup.options.request_timeout = Some(Duration::from_millis(120));
    run(async || {
        let mut rig = setup.open();
        let mut server = rig.server().await;
        rig.client
            .send(r#"{"jsonrpc":"2.0","id":1,"method":"slow","params":{"_meta":{"progressToken":"p"}}}"#)
            .await;
        server.peer.next().await.unwrap();
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(70)).await;
            server.peer.send(progress).await;
            assert_eq!(rig.client.next().await.unwrap(), progress);
        }
        server.peer.send(r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}"#).await;
        rig.client.next().await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.client.send(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#).await;
        server.peer.next().await.unwrap();
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        server.peer.send(answer).await;
        assert_eq!(rig.client.next().await.unwrap(), answer);
    });
}

#[test]
fn a_connection_that_is_abandoned_leaves_no_server_behind() {
    run(async || {
        let mut rig = setup().open();
        let server = rig.server().await;
        rig.ended.abort();
        assert!(rig.ended.await.unwrap_err().is_cancelled());
        assert!(server.killed.get());
    });
}
