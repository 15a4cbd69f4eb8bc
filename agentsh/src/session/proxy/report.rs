//! `canary__get_report`: what the session remembers and what was about to leave, for the operator.

use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use agentsh_base::json::Json;
use agentsh_base::types::SessionId;
use agentsh_mcp::aggregate::OwnTools;
use agentsh_mcp::{ErrorReply, INVALID_PARAMS};

use super::settings::Secret;

const NAME: &str = "canary__get_report";

pub struct Report {
    session: SessionId,
    created_at: jiff::Timestamp,
    key: Option<Secret>,
    /// Remembered and found data.
    found: Box<dyn Fn() -> Value>,
}

impl Report {
    pub fn new(session: SessionId, key: Option<Secret>, found: impl Fn() -> Value + 'static) -> Self {
        Self { session, created_at: jiff::Timestamp::now(), key, found: Box::new(found) }
    }

    /// Whether the caller may see it. Constant time for keys of the right length.
    fn is_operator(&self, arguments: Option<&Json<'_>>) -> bool {
        let Some(Secret(key)) = &self.key else { return true };
        let given = arguments.and_then(|arguments| arguments.member("mgmt_key")).and_then(Json::as_text);
        given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(key.as_bytes())))
    }

    fn content(&self) -> Value {
        let mut report = json!({"session_id": self.session, "created_at": self.created_at.to_string()});
        if let (Value::Object(report), Value::Object(found)) = (&mut report, (self.found)()) {
            report.extend(found);
        }
        report
    }
}

impl OwnTools for Report {
    fn tools(&self) -> Vec<String> {
        vec![self.entry(NAME)]
    }

    fn call(&self, tool: &str, arguments: Option<&Json<'_>>) -> Result<String, ErrorReply> {
        if tool != NAME {
            let message = format!("unknown tool; the proxy's own one is {NAME}");
            return Err(ErrorReply { code: INVALID_PARAMS, message, reason: "unknown-tool", rule: None });
        }
        self.answer(arguments)
    }
}

impl Report {
    /// Its entry of `tools/list`.
    pub fn entry(&self, name: &str) -> String {
        let mut properties = json!({});
        if self.key.is_some() {
            properties["mgmt_key"] = json!({"type": "string", "description": "The operator's key"});
        }
        let required: &[&str] = if self.key.is_some() { &["mgmt_key"] } else { &[] };
        let tool = json!({
            "name": name,
            "title": "Report of this session",
            "description": "What this session remembers and what tried to leave. For the operator.",
            "inputSchema": {"type": "object", "properties": properties, "required": required},
            "annotations": {"readOnlyHint": true, "openWorldHint": false},
        });
        tool.to_string()
    }

    /// The `result` of a call.
    ///
    /// # Errors
    /// A wrong or missing key.
    pub fn answer(&self, arguments: Option<&Json<'_>>) -> Result<String, ErrorReply> {
        if !self.is_operator(arguments) {
            let message = "invalid or missing mgmt_key".to_owned();
            return Err(ErrorReply { code: INVALID_PARAMS, message, reason: "wrong-key", rule: None });
        }
        let content = self.content();
        Ok(json!({"content": [{"type": "text", "text": content.to_string()}]}).to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn found() -> Value {
        json!({"leakage_events": []})
    }

    #[test]
    fn the_key_opens_the_report_and_nothing_else_does() {
        let report = Report::new(SessionId(uuid::Uuid::nil()), Some(Secret("k-1".to_owned())), found);
        for arguments in [r"{}", r#"{"mgmt_key":"k-2"}"#, r#"{"mgmt_key":"k-11"}"#, r#"{"mgmt_key":null}"#] {
            let tree = agentsh_base::json::read(arguments.as_bytes()).unwrap();
            assert_eq!(report.call(NAME, Some(&tree)).unwrap_err().reason, "wrong-key", "{arguments}");
        }
        assert_eq!(report.call(NAME, None).unwrap_err().reason, "wrong-key");
        let tree = agentsh_base::json::read(br#"{"mgmt_key":"k-1"}"#).unwrap();
        assert!(report.call(NAME, Some(&tree)).unwrap().contains("leakage_events"));
        assert_eq!(report.call("canary__x", Some(&tree)).unwrap_err().reason, "unknown-tool");
    }

    #[test]
    fn without_a_key_everybody_may_ask() {
        let report = Report::new(SessionId(uuid::Uuid::nil()), None, found);
        assert!(report.call(NAME, None).is_ok());
    }
}
