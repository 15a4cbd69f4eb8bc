//! Limits the text of an event, because names, ids and descriptions come from untrusted processes.

use serde_json::{Map, Value};

use super::Event;

/// Longest body that is stored, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;

/// Longest string that stays whole in an event that is too long, in bytes.
const MAX_STRING_BYTES: usize = 1024;

/// Maximum number of elements kept of each list or object in an event that is too long.
const MAX_ELEMENTS: usize = 32;

/// Fields that are kept, clipped, even when nothing else fits.
const KEPT_FIELDS: [&str; 7] = ["type", "server_id", "tool_name", "jsonrpc_id", "action", "reason", "rule"];

/// The JSON of `event`, at most [`MAX_BODY_BYTES`] long.
///
/// # Errors
/// Only when the event cannot be written as JSON at all.
pub(crate) fn encode(event: &Event) -> Result<String, serde_json::Error> {
    let whole = serde_json::to_string(event)?;
    if whole.len() <= MAX_BODY_BYTES {
        return Ok(whole);
    }
    let mut value = serde_json::to_value(event)?;
    clip(&mut value, 0);
    let clipped = serde_json::to_string(&value)?;
    if clipped.len() <= MAX_BODY_BYTES {
        return Ok(clipped);
    }
    let mut rest = Map::new();
    for name in KEPT_FIELDS {
        if let Some(field) = value.get(name) {
            let short = serde_json::to_string(field)?.len() <= 7 * MAX_STRING_BYTES;
            rest.insert(name.to_owned(), if short { field.clone() } else { Value::Null });
        }
    }
    rest.insert("left_out_bytes".to_owned(), whole.len().into());
    serde_json::to_string(&rest)
}

fn clip(value: &mut Value, depth: usize) {
    match value {
        Value::String(text) if text.len() > MAX_STRING_BYTES => {
            let cut = text.floor_char_boundary(MAX_STRING_BYTES);
            let left_out = text.len() - cut;
            text.truncate(cut);
            text.push_str(&format!("… [{left_out} bytes left out]"));
        }
        Value::Array(_) | Value::Object(_) if depth >= 8 => *value = Value::String("[left out]".to_owned()),
        Value::Array(items) => {
            items.truncate(MAX_ELEMENTS);
            items.iter_mut().for_each(|item| clip(item, depth + 1));
        }
        Value::Object(fields) => {
            *fields = std::mem::take(fields).into_iter().take(MAX_ELEMENTS).collect();
            fields.values_mut().for_each(|field| clip(field, depth + 1));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::types::ServerId;
    use serde_json::json;

    fn called(tool: &str, input: Value) -> Event {
        Event::McpToolCalled {
            server_id: ServerId("fs".to_owned()),
            tool_name: tool.to_owned(),
            jsonrpc_id: json!(1),
            input,
        }
    }

    #[test]
    fn a_small_event_is_stored_as_it_is() {
        let event = called("read", json!({"path": "a"}));
        assert_eq!(encode(&event).unwrap(), serde_json::to_string(&event).unwrap());
    }

    #[test]
    fn an_endless_tool_name_is_clipped_and_still_an_event() {
        let text = encode(&called(&"é".repeat(5_000_000), Value::Null)).unwrap();
        assert!(text.len() < 4096, "{}", text.len());
        let event: Event = serde_json::from_str(&text).unwrap();
        assert!(
            matches!(event, Event::McpToolCalled { tool_name, .. } if tool_name.contains("bytes left out"))
        );
    }

    #[test]
    fn bounded_event_of_wide_arguments_keeps_its_names() {
        let wide = |inner: Value| Value::Array(vec![inner; 40]);
        let text = encode(&called("t", wide(wide(wide(json!("\u{1}".repeat(60))))))).unwrap();
        assert!(text.len() <= MAX_BODY_BYTES, "{}", text.len());
        let kept: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&kept["type"], &kept["server_id"]), (&json!("mcp_tool_called"), &json!("fs")));
    }
}
