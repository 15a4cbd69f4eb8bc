//! A journal that raises an alert for every detection that it writes down.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::store::{Event, Recorder};
use crate::types::SessionId;

use super::webhook::Webhook;

/// Records as `record` does, and tells the webhook, if there is one, of every `mcp_exfil_detected`.
#[derive(Clone)]
pub struct Alerting<R> {
    record: R,
    webhook: Option<Webhook<R>>,
    session: SessionId,
}

impl<R: Recorder + 'static> Alerting<R> {
    pub fn new(record: R, webhook: Option<Webhook<R>>, session: SessionId) -> Self {
        Self { record, webhook, session }
    }

    fn tell(&self, event: &Event) {
        let Some(webhook) = &self.webhook else { return };
        let event_id = Uuid::now_v7().to_string();
        if let Some(alert) = alert(event, &event_id, self.session) {
            webhook.send(&event_id, alert);
        }
    }
}

impl<R: Recorder + 'static> Recorder for Alerting<R> {
    fn record(&self, event: Event) {
        self.tell(&event);
        self.record.record(event);
    }

    fn commit(&self, event: Event) -> impl Future<Output = Result<(), String>> {
        self.tell(&event);
        self.record.commit(event)
    }

    fn room(&self) -> impl Future<Output = ()> {
        self.record.room()
    }

    fn broken(&self) -> Option<String> {
        self.record.broken()
    }
}

/// What leaves the machine: names and codes, nothing of what was in the call or around it.
fn alert(event: &Event, event_id: &str, session: SessionId) -> Option<Value> {
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
        "detected_at": jiff::Timestamp::now().to_string(),
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
