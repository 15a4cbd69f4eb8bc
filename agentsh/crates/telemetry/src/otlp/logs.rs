//! Logs: every event is a record.

use serde_json::{Value, json};

use super::parts::{Attributes, nanoseconds, root_id, trace_id};
use crate::entry::{Entry, LogSeverity};

#[must_use]
pub fn record(entry: &Entry) -> Value {
    let (number, text) = match entry.severity() {
        LogSeverity::Information => (9, "INFO"),
        LogSeverity::Warning => (13, "WARN"),
        LogSeverity::Error => (17, "ERROR"),
    };
    let session = entry.session.to_string();
    let attributes = Attributes::default()
        .text("session.id", Some(&session))
        .number("agentsh.seq", Some(entry.seq))
        .text("agentsh.server", entry.text_field("server_id"))
        .text("gen_ai.tool.name", entry.text_field("tool_name"))
        .text("agentsh.action", entry.text_field("action"))
        .text("agentsh.reason", entry.text_field("reason"))
        .text("agentsh.rule", entry.rule().as_deref());
    json!({
        "timeUnixNano": nanoseconds(entry.time),
        "observedTimeUnixNano": nanoseconds(entry.time),
        "severityNumber": number,
        "severityText": text,
        "eventName": format!("agentsh.{}", entry.kind),
        "body": { "stringValue": entry.text },
        "attributes": Value::from(attributes),
        "traceId": trace_id(entry.session),
        "spanId": root_id(entry.session),
    })
}
