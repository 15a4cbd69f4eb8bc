//! One event of the journal, for telemetry.

use jiff::Timestamp;
use serde_json::{Map, Value};

use agentsh_base::types::{RuleRef, SessionId};
use agentsh_store::CommittedEvent;

/// Longest text that is extracted from an event, in bytes.
const MAX_TEXT: usize = 1024;

pub struct Entry {
    pub session: SessionId,
    pub seq: u64,
    pub time: Timestamp,
    /// The value of `type`.
    pub kind: String,
    fields: Map<String, Value>,
    /// The event as recorded.
    pub text: String,
}

impl Entry {
    /// None for what is not an event, which the journal does not hold.
    #[must_use]
    pub fn of(told: &CommittedEvent) -> Option<Self> {
        let Ok(Value::Object(fields)) = serde_json::from_str(&told.body) else { return None };
        let kind = fields.get("type")?.as_str()?.to_owned();
        let CommittedEvent { session, seq, time, body } = told;
        Some(Self { session: *session, seq: *seq, time: *time, kind, fields, text: body.clone() })
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// The value of a field; None also if it is empty.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<&str> {
        let text = self.fields.get(name)?.as_str().filter(|text| !text.is_empty())?;
        Some(text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text))
    }

    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.fields.get(name)?.as_u64()
    }

    /// The rule that decided, in the form in which people write it.
    #[must_use]
    pub fn rule(&self) -> Option<String> {
        let rule: RuleRef = serde_json::from_value(self.fields.get("rule")?.clone()).ok()?;
        Some(rule.to_string())
    }

    /// One flat object: `session`, `seq`, `time`, then the event's own fields.
    #[must_use]
    pub fn flat(&self) -> Value {
        let mut object = Map::new();
        object.insert("session".to_owned(), self.session.to_string().into());
        object.insert("seq".to_owned(), self.seq.into());
        object.insert("time".to_owned(), self.time.to_string().into());
        for (name, value) in &self.fields {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(object)
    }

    /// How grave it is.
    #[must_use]
    pub fn severity(&self) -> LogSeverity {
        let action = self.text_field("action");
        let is_bad = matches!(
            self.kind.as_str(),
            "mcp_server_binary_mismatch" | "mcp_server_crashed" | "mcp_server_refused" | "alert_undelivered"
        );
        match action {
            Some("block") => LogSeverity::Error,
            Some("alert" | "rewrite" | "ask") => LogSeverity::Warning,
            _ if is_bad => LogSeverity::Error,
            _ if self
                .text_field("state")
                .is_some_and(|state| matches!(state, "degraded" | "absent" | "failed")) =>
            {
                LogSeverity::Warning
            }
            _ => LogSeverity::Information,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSeverity {
    Information,
    Warning,
    Error,
}
