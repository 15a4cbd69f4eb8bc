//! Raises an alert for every recorded detection.

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use uuid::Uuid;

use agentsh_base::types::SessionId;
use agentsh_store::{Event, Recorder, Subscription, TapMessage};

use super::webhook::Webhook;

pub struct Alerts<R> {
    webhook: Webhook<R>,
    stop: Rc<Notify>,
    listening: JoinHandle<()>,
}

impl<R: Recorder + Clone + 'static> Alerts<R> {
    /// Must be called inside a `LocalSet`.
    #[must_use]
    pub fn start(mut subscription: Subscription, webhook: Webhook<R>) -> Self {
        let stop = Rc::new(Notify::new());
        let (stopped, teller) = (Rc::clone(&stop), webhook.clone());
        let listening = agentsh_base::task::spawn_local(async move {
            loop {
                tokio::select! {
                    heard = subscription.next() => match heard {
                        Some(heard) => send_alert(&teller, &heard),
                        None => return,
                    },
                    () = stopped.notified() => break,
                }
            }
            while let Some(heard) = subscription.try_next() {
                send_alert(&teller, &heard);
            }
        });
        Self { webhook, stop, listening }
    }

    /// Sends what is on disk so far, and waits for alerts that are being sent.
    pub async fn finish(self, within: Duration) -> Option<(u64, String)> {
        self.stop.notify_one();
        // A panic was reported where it happened.
        let _ = self.listening.await;
        self.webhook.finish(within).await
    }
}

fn send_alert<R: Recorder + 'static>(webhook: &Webhook<R>, heard: &TapMessage) {
    let event_id = Uuid::now_v7().to_string();
    match heard {
        TapMessage::Event(told) => {
            // Most events are other ones, and need not be parsed.
            if !told.body.contains("mcp_exfil_detected") {
                return;
            }
            let event = told.event();
            if let Some(alert) = event.and_then(|event| alert(&event, &event_id, told.session, told.time)) {
                webhook.send(&event_id, alert);
            }
        }
        TapMessage::Lost(events) => webhook.report_lost(&event_id, *events),
    }
}

/// The alert that leaves the machine: names and codes, nothing of the call's content or context.
fn alert(event: &Event, event_id: &str, session: SessionId, at: Timestamp) -> Option<Value> {
    let Event::McpExfilDetected {
        server_id,
        tool_name,
        detector,
        action,
        severity,
        reason,
        rule,
        source_server,
        source_tool,
        destination,
        ..
    } = event
    else {
        return None;
    };
    Some(json!({
        "event": "leakage_detected",
        "event_id": event_id,
        "session_id": session,
        "detected_at": at.to_string(),
        "action": action,
        "detector": detector,
        "severity": severity,
        "reason": reason,
        "rule": rule.to_string(),
        "target_server": server_id,
        "target_tool": tool_name,
        "source_server": source_server,
        "source_tool": source_tool,
        "destination": destination,
    }))
}
