//! Common pieces of all OTLP messages, in JSON.

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use agentsh_base::types::SessionId;

/// Attributes of a span, a log record, a point or a resource. What is not there is left out.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<Value>);

impl Attributes {
    #[must_use]
    pub fn text(self, key: &str, value: Option<&str>) -> Self {
        self.add(key, value.map(|value| json!({ "stringValue": value })))
    }

    #[must_use]
    pub fn number(self, key: &str, value: Option<u64>) -> Self {
        let number = value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        self.add(key, number.map(|number| json!({ "intValue": number.to_string() })))
    }

    fn add(mut self, key: &str, value: Option<Value>) -> Self {
        self.0.extend(value.map(|value| json!({ "key": key, "value": value })));
        self
    }
}

impl From<Attributes> for Value {
    fn from(attributes: Attributes) -> Self {
        Self::Array(attributes.0)
    }
}

/// Nanoseconds since 1970, as OTLP writes them.
#[must_use]
pub fn nanoseconds(time: Timestamp) -> Value {
    time.as_nanosecond().max(0).to_string().into()
}

/// All spans of a session belong together: its id is that of the trace.
#[must_use]
pub fn trace_id(session: SessionId) -> String {
    session.0.simple().to_string()
}

/// The span of the session itself.
#[must_use]
pub fn root_id(session: SessionId) -> String {
    span_id(session, 0)
}

/// The span that the event with this number begins; always the same id.
#[must_use]
pub fn span_id(session: SessionId, seq: u64) -> String {
    let digest = Sha256::new().chain_update(session.0.as_bytes()).chain_update(seq.to_be_bytes()).finalize();
    agentsh_base::hex(digest.iter().take(8))
}

#[must_use]
pub fn scope() -> Value {
    json!({ "name": "agentsh", "version": env!("CARGO_PKG_VERSION") })
}
