#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::*;
use crate::post::{CancelOnDrop, ProtocolMode};

const TEST_TIMEOUT: Duration = Duration::from_secs(10);

fn started(unread: usize) -> (Rc<Client>, DuplexStream) {
    connected(unread, 1 << 20)
}

fn connected(unread: usize, ahead: usize) -> (Rc<Client>, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(ahead);
    let bounds = ClientLimits { line: 1 << 20, unread };
    let client = Client::start(
        "shared".to_owned(),
        "e".to_owned(),
        "s".to_owned(),
        ServerWire::without_postponing(ours),
        bounds,
        Translation::Straight,
        |_| {},
    );
    (client, theirs)
}

/// As a request of a client without sessions: under an id of the connection.
async fn asked(client: &Rc<Client>) -> Result<(Incoming, Rc<Stream>), SendError> {
    let text =
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":1}}}"#;
    let message = client.rename(Incoming::read(text).unwrap());
    let key = message.id().unwrap().key.clone();
    let stream = client.request(&message, key).await?;
    Ok((message, stream))
}

#[tokio::test(flavor = "current_thread")]
async fn abandoned_requests_do_not_count_towards_the_limit() {
    LocalSet::new()
        .run_until(async {
            let (client, server) = started(1 << 20);
            let mut heard = BufReader::new(server).lines();
            for _ in 0..MAX_OPEN + 10 {
                let (message, stream) = asked(&client).await.unwrap();
                drop(CancelOnDrop::new(&client, &stream, message.id().unwrap(), ProtocolMode::Stateless));
                assert!(heard.next_line().await.unwrap().unwrap().contains("tools/call"));
                let cancelled = heard.next_line().await.unwrap().unwrap();
                let said = format!(r#""requestId":{}"#, message.id().unwrap().spelled);
                assert!(cancelled.contains(&said), "{cancelled}");
            }
            assert!(client.pending.borrow().is_empty() && client.tokens.borrow().is_empty());
            assert_eq!(client.streams.borrow().len(), 1);
            // A client with a session may reconnect.
            let (message, stream) = asked(&client).await.unwrap();
            drop(CancelOnDrop::new(&client, &stream, message.id().unwrap(), ProtocolMode::Stateful));
            assert_eq!(client.pending.borrow().len(), 1);
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn abandoned_answer_does_not_block_other_answers() {
    LocalSet::new()
        .run_until(async {
            let (client, mut server) = started(100);
            let (message, stream) = asked(&client).await.unwrap();
            let abandoned = CancelOnDrop::new(&client, &stream, message.id().unwrap(), ProtocolMode::Stateless);
            let (_, other) = asked(&client).await.unwrap();
            let long = "x".repeat(200);
            let told = format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":1,\"message\":\"{long}\"}}}}\n"
            );
            server.write_all(told.as_bytes()).await.unwrap();
            timeout(TEST_TIMEOUT, stream.wait_for_event()).await.unwrap();
            server.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n").await.unwrap();
            assert!(timeout(Duration::from_millis(50), other.wait_for_event()).await.is_err());
            drop(abandoned);
            timeout(TEST_TIMEOUT, other.wait_for_event()).await.unwrap();
            assert!(other.is_done());
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn line_of_a_caller_that_hangs_up_is_sent_whole() {
    LocalSet::new()
        .run_until(async {
            let (client, server) = connected(1 << 20, 16);
            // The server does not read, and the caller does not wait for that.
            assert!(timeout(Duration::from_millis(50), asked(&client)).await.is_err());
            assert!(client.pending.borrow().is_empty());
            let next = Rc::clone(&client);
            let next = tokio::task::spawn_local(async move { asked(&next).await.unwrap() });
            let mut heard = BufReader::new(server).lines();
            let mut lines = Vec::new();
            for _ in 0..3 {
                let line = timeout(TEST_TIMEOUT, heard.next_line()).await.unwrap().unwrap().unwrap();
                lines.push(serde_json::from_str::<serde_json::Value>(&line).unwrap());
            }
            assert_eq!((&lines[0]["id"], &lines[0]["method"]), (&1.into(), &"tools/call".into()));
            let cancelled =
                lines.iter().position(|line| line["method"] == "notifications/cancelled").unwrap();
            assert_eq!(lines[cancelled]["params"]["requestId"], 1);
            let (message, _) = next.await.unwrap();
            assert_eq!(message.id().unwrap().spelled.as_ref(), "2");
            assert!(lines.iter().any(|line| line["id"] == 2), "{lines:?}");
        })
        .await;
}
