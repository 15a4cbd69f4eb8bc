#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use serde_json::json;
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::*;
use crate::alerts::Alerts;
use agentsh_base::types::{RuleRef, ServerId, SessionId};
use agentsh_egress::testing::{Receiver, Step, answer, client};
use agentsh_store::words::{Action, Severity};

#[derive(Clone, Default)]
struct Journal(Rc<RefCell<Vec<Event>>>);

impl Recorder for Journal {
    fn record(&self, event: Event) {
        self.0.borrow_mut().push(event);
    }
    async fn commit(&self, event: Event) -> Result<(), String> {
        self.record(event);
        Ok(())
    }
    async fn wait_for_room(&self) {}
    fn broken(&self) -> Option<String> {
        None
    }
}

fn webhook(url: &str, journal: &Journal) -> Webhook<Journal> {
    let settings = Settings {
        url: url.parse().unwrap(),
        secret: Some(b"k".to_vec()),
        patience: Duration::from_millis(200),
        first_wait: Duration::from_millis(5),
    };
    Webhook::new(settings, client(), journal.clone())
}

/// One alert: what the receiver got, and why it was given up.
async fn play(script: Vec<Step>) -> (Vec<(String, String)>, Option<(u32, String)>) {
    LocalSet::new()
        .run_until(async {
            let receiver = Receiver::start(script).await;
            let journal = Journal::default();
            let webhook = webhook(&receiver.url("/in"), &journal);
            webhook.send("e-1", json!({"event_id": "e-1"}));
            webhook.finish(Duration::from_secs(5)).await;
            let got = receiver.got.borrow().clone();
            let lost = journal.0.borrow().first().map(|event| match event {
                Event::AlertUndelivered { event_id, attempts, detail, alert } => {
                    assert_eq!((event_id.as_str(), alert), ("e-1", &json!({"event_id": "e-1"})));
                    (*attempts, detail.clone())
                }
                other => panic!("{other:?}"),
            });
            (got, lost)
        })
        .await
}

#[test]
fn webhook_signature_matches_the_known_value() {
    // printf '1700000000{"a":1}' | openssl dgst -sha256 -hmac k
    let known = "d5b5042265775150160ef51f6a43963ab46e54e0265e5af7c752915abf3275de";
    assert_eq!(signature(b"k", "1700000000", b"{\"a\":1}"), format!("sha256={known}"));
}

#[tokio::test]
async fn an_alert_arrives_signed() {
    let (got, lost) = play(vec![answer("204 No Content", "")]).await;
    assert_eq!(lost, None);
    let (head, body) = &got[0];
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("{name} in {head}"))
    };
    assert_eq!(body, r#"{"event_id":"e-1"}"#);
    assert_eq!(header("content-type"), "application/json");
    let now = header("x-agentsh-timestamp");
    assert_eq!(header("x-agentsh-signature-256"), signature(b"k", now, body.as_bytes()));
    assert_eq!(header("x-canary-signature-256"), signature(b"k", "", body.as_bytes()));
}

#[tokio::test]
async fn webhook_is_retried_after_a_temporary_failure() {
    let script = vec![
        answer("500 Oops", ""),
        Step::HangUp,
        Step::Silence,
        answer("429 Slow", ""),
        answer("200 OK", ""),
    ];
    let (got, lost) = play(script).await;
    assert_eq!((got.len(), lost), (5, None));
    let bodies: Vec<_> = got.iter().map(|(_, body)| body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

#[tokio::test]
async fn undelivered_webhook_is_recorded_with_the_reason() {
    let (got, lost) = play(vec![answer("503 Busy", "")]).await;
    assert_eq!((got.len(), lost), (5, Some((5, "the receiver answered with status 503".to_owned()))));
    let (got, lost) = play(vec![answer("404 Gone", "")]).await;
    assert_eq!((got.len(), lost.unwrap().0), (1, 1));
    let redirection = "HTTP/1.1 307 There\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n";
    let (got, lost) = play(vec![Step::Say(redirection.into())]).await;
    assert_eq!((got.len(), lost), (1, Some((1, "the receiver answered with status 307".to_owned()))));
    let (_, lost) = play(vec![Step::Flood(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(9000)))]).await;
    assert!(lost.unwrap().1.contains("more than"));
}

#[tokio::test]
async fn webhook_to_a_slow_receiver_blocks_nobody_and_loses_no_alert() {
    LocalSet::new()
        .run_until(async {
            let receiver = Receiver::start(vec![Step::Silence]).await;
            let journal = Journal::default();
            let webhook = webhook(&receiver.url("/"), &journal);
            let before = Instant::now();
            for number in 0..MAX_WAITING + 10 {
                webhook.send(&number.to_string(), json!({}));
            }
            assert!(before.elapsed() < Duration::from_millis(100));
            webhook.finish(Duration::from_millis(50)).await;
            assert_eq!(journal.0.borrow().len(), MAX_WAITING + 10);
            // An alert that is recorded as lost is not queued again.
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(journal.0.borrow().len(), MAX_WAITING + 10);
        })
        .await;
}

#[tokio::test]
async fn webhook_detection_omits_the_detected_text() {
    LocalSet::new()
        .run_until(async {
            let receiver = Receiver::start(vec![answer("200 OK", "")]).await;
            let journal = Journal::default();
            let webhook = webhook(&receiver.url("/"), &journal);
            let dir = tempfile::tempdir().unwrap();
            let session = SessionId(uuid::Uuid::nil());
            let recorded = agentsh_store::Journal::open(dir.path(), session).await.unwrap();
            let alerts = Alerts::start(recorded.subscribe(), webhook);
            let detected = Event::McpExfilDetected {
                server_id: ServerId("net".into()),
                tool_name: "post".into(),
                jsonrpc_id: json!("id-of-the-call"),
                detector: "entity".into(),
                action: Action::Block,
                severity: Severity::High,
                reason: "tainted-data".into(),
                rule: RuleRef::default_rule("taint"),
                source_server: Some(ServerId("files".into())),
                source_tool: Some("read".into()),
                destination: Some("a.example".into()),
                pointer: "/text".into(),
                decoded: vec!["base64".into()],
                context: "around the secret".into(),
                detail:
                    "'post' would send server 'net' 20 letters and digits that 'read' of server 'files' gave"
                        .into(),
            };
            recorded.record(detected.clone());
            recorded.record(Event::McpToolsListChanged { server_id: ServerId("net".into()) });
            recorded.commit(detected).await.unwrap();
            alerts.finish(Duration::from_secs(5)).await;
            assert_eq!(journal.0.borrow().len(), 0);
            let got = receiver.got.borrow();
            assert_eq!(got.len(), 2);
            for (_, body) in got.iter() {
                assert!(!body.contains("around the secret"), "{body}");
                for part in
                    ["leakage_detected", "net", "post", "entity", "files", "read", "a.example", "high"]
                {
                    assert!(body.contains(part), "{part} in {body}");
                }
            }
        })
        .await;
}

#[tokio::test]
async fn webhook_records_dropped_events() {
    LocalSet::new()
        .run_until(async {
            let receiver = Receiver::start(vec![answer("200 OK", "")]).await;
            let journal = Journal::default();
            let dir = tempfile::tempdir().unwrap();
            let recorded =
                agentsh_store::Journal::open(dir.path(), SessionId(uuid::Uuid::nil())).await.unwrap();
            let heard = recorded.subscribe();
            for _ in 0..1000 {
                recorded.record(Event::McpToolsListChanged { server_id: ServerId("net".into()) });
            }
            recorded.flush().await.unwrap();
            Alerts::start(heard, webhook(&receiver.url("/"), &journal)).finish(Duration::from_secs(5)).await;
            let lost = journal.0.borrow();
            let [Event::AlertUndelivered { detail, attempts: 0, .. }] = &lost[..] else { panic!("{lost:?}") };
            assert!(detail.starts_with("744 events"), "{detail}");
        })
        .await;
}
