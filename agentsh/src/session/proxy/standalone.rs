//! Without a configuration there are no servers: an agent that was told to asks for marks and searches itself. The
//! tools are those of `@exfil/canary`.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::guard::ContentGuard;
use crate::json::Json;
use crate::mcp::aggregate::Own;
use crate::mcp::{ErrorReply, INTERNAL_ERROR, INVALID_PARAMS};

use super::report::Report;

/// Longest text to be marked or compared, in bytes.
const MAX_CONTENT: usize = 10 << 20;
/// Longest text to be searched, in bytes.
const MAX_DATA: usize = 50 << 20;

pub struct Standalone {
    report: Report,
    content: Rc<RefCell<dyn ContentGuard>>,
}

impl Standalone {
    pub fn new(report: Report, content: Rc<RefCell<dyn ContentGuard>>) -> Self {
        Self { report, content }
    }
}

impl Own for Standalone {
    fn tools(&self) -> Vec<String> {
        let text = |about: &str| json!({"type": "string", "description": about});
        let kinds = ["tool_result", "file_read", "api_response", "database_row", "user_message", "other"];
        let places = ["prefix", "suffix", "both", "random_word_boundary"];
        let tool = |name: &str, about: &str, properties: Value, required: &[&str]| {
            let schema = json!({"type": "object", "properties": properties, "required": required});
            json!({"name": name, "description": about, "inputSchema": schema}).to_string()
        };
        vec![
            tool(
                "wrap_content",
                "Mark content and remember it, so that it can be found when it leaves",
                json!({
                    "content": text("Content to mark, at most 10 MiB"),
                    "source_type": {"type": "string", "enum": kinds},
                    "source_server": text("Server that it came from"),
                    "source_tool": text("Tool that it came from"),
                    "embed_position": {"type": "string", "enum": places, "default": "suffix"},
                }),
                &["content", "source_type"],
            ),
            tool(
                "check_leakage",
                "Ask whether one marked content stands in a text",
                json!({
                    "token_id": text("From wrap_content"),
                    "output": text("Text to look into, at most 10 MiB"),
                    "target_server": text("Server that receives it"),
                    "target_tool": text("Tool that receives it"),
                }),
                &["token_id", "output"],
            ),
            tool(
                "scan_outbound",
                "Search data for everything that is remembered, before it is sent",
                json!({
                    "data": text("Data about to be sent, at most 50 MiB"),
                    "target_server": text("Server that receives it"),
                    "target_tool": text("Tool that receives it"),
                }),
                &["data"],
            ),
            self.report.entry("get_report"),
        ]
    }

    fn call(&self, tool: &str, arguments: Option<&Json<'_>>) -> Result<String, ErrorReply> {
        match tool {
            "get_report" => return self.report.answer(arguments),
            "wrap_content" => {
                needs(arguments, "content", MAX_CONTENT)?;
                needs(arguments, "source_type", 64)?;
            }
            "check_leakage" => {
                needs(arguments, "token_id", 64)?;
                needs(arguments, "output", MAX_CONTENT)?;
            }
            "scan_outbound" => needs(arguments, "data", MAX_DATA)?,
            other => {
                let message = format!("unknown tool '{}'", other.chars().take(64).collect::<String>());
                return Err(ErrorReply { code: INVALID_PARAMS, message, reason: "unknown-tool", rule: None });
            }
        }
        // An answer that nothing was found would be a lie.
        let tracking = self.content.borrow().report()["tracking"].as_str().unwrap_or("unknown").to_owned();
        let message = format!("{tool} cannot be answered: the tracking of content is {tracking}");
        Err(ErrorReply { code: INTERNAL_ERROR, message, reason: "not-configured", rule: None })
    }
}

fn needs(arguments: Option<&Json<'_>>, name: &str, longest: usize) -> Result<(), ErrorReply> {
    let wrong = |message: String| {
        Err(ErrorReply { code: INVALID_PARAMS, message, reason: "invalid-params", rule: None })
    };
    match arguments.and_then(|arguments| arguments.member(name)) {
        Some(Json::String(raw)) if raw.len() > longest => {
            wrong(format!("`{name}` is longer than {longest} bytes"))
        }
        Some(Json::String(_)) => Ok(()),
        _ => wrong(format!("`{name}` must be a string")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::guard::NotConfigured;
    use crate::types::SessionId;

    #[test]
    fn nothing_is_called_clean_that_nobody_searched() {
        let content: Rc<RefCell<dyn ContentGuard>> = Rc::new(RefCell::new(NotConfigured));
        let report = Report::new(SessionId(uuid::Uuid::nil()), None, Rc::clone(&content));
        let own = Standalone::new(report, content);
        assert_eq!(own.tools().len(), 4);
        for (tool, arguments, reason) in [
            ("scan_outbound", r#"{"data":"x"}"#, "not-configured"),
            ("scan_outbound", r#"{"data":1}"#, "invalid-params"),
            ("wrap_content", r#"{"content":"x"}"#, "invalid-params"),
            ("check_leakage", r#"{"token_id":"a","output":"b"}"#, "not-configured"),
            ("other", "{}", "unknown-tool"),
        ] {
            let tree = crate::json::read(arguments.as_bytes()).unwrap();
            assert_eq!(own.call(tool, Some(&tree)).unwrap_err().reason, reason, "{tool} {arguments}");
        }
        assert!(own.call("get_report", None).unwrap().contains("leakage_events"));
    }
}
