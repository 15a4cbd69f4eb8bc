//! Events with their documented names and fields: `--type mcp_detection` and the like. The journal has fewer types
//! with more fields; for a documented type it prints the documented fields and its own.

use serde_json::{Map, Value, json};

use super::{field, newest, records_as_json};
use agentsh_guard::checks::likeness;
use agentsh_store::{EventFilter, Reader};
use agentsh_terminal::output::Failure;

/// Types of the page that are not types of the journal, and those of the journal that hold them.
const NAMES: [(&str, &[&str]); 5] = [
    ("mcp_detection", &["mcp_content_detected"]),
    ("mcp_output_inspection", &["mcp_content_detected"]),
    ("mcp_cross_server_blocked", &["mcp_content_detected", "mcp_tool_call_intercepted"]),
    ("mcp_server_name_similarity", &["mcp_content_detected"]),
    (POISONING, &["mcp_content_detected"]),
];
/// The event about a definition or a result, whatever the action was.
const POISONING: &str = "TOOL_POISONING_DETECTED";

const CONTENT: &[&str] = &["mcp_content_detected"];
const REFUSALS: &[&str] = &["gateway_answered", "mcp_server_refused"];

/// A name, the types of the journal that hold its events, and the required values of fields.
type Alias = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// Names of other products for events of the journal.
const EVENT_ALIASES: [Alias; 21] = [
    ("output.message.replaced", &["output_message_replaced"], &[]),
    ("TOOL_SCHEMA_DRIFT", &["mcp_tool_changed"], &[]),
    ("TOOL_QUARANTINED", &["mcp_tool_call_intercepted"], &[("reason", "interface-changed")]),
    ("ANOMALY_DETECTED", CONTENT, &[("category", "anomaly")]),
    ("PII_REDACTED", CONTENT, &[("category", "secret"), ("action", "rewrite")]),
    (
        "CUSTOM_REDACTION_AUDIT",
        CONTENT,
        &[("category", "secret"), ("action", "allow"), ("rule", "secrets.custom")],
    ),
    ("POLICY_AUDIT", CONTENT, &[("category", "policy-rule"), ("action", "alert")]),
    ("BLOCKED_CUSTOM_COMMAND", CONTENT, &[("category", "policy-rule"), ("action", "block")]),
    ("BLOCKED_INSECURE_TARGET", REFUSALS, &[]),
    ("BLOCKED_ORIGIN", REFUSALS, &[]),
    ("BLOCKED_SSRF", REFUSALS, &[]),
    ("BLOCKED_AUTH", REFUSALS, &[]),
    ("BLOCKED_IP_WHITELIST", REFUSALS, &[]),
    ("BLOCKED_RATE_LIMIT", REFUSALS, &[]),
    ("BLOCKED_POLICY", REFUSALS, &[]),
    ("BLOCKED_CUSTOM_DOMAIN", REFUSALS, &[]),
    ("BLOCKED_MALICIOUS", REFUSALS, &[]),
    ("BLOCKED_APPROVAL", REFUSALS, &[]),
    ("TOOL_REVIEW_REQUIRED", REFUSALS, &[]),
    ("BLOCKED_TOOL_REVIEW", REFUSALS, &[]),
    ("BLOCKED_TOOL_QUARANTINE", REFUSALS, &[]),
];

/// Every name that is no type of the journal, with the types that hold its events.
pub fn names() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    NAMES.into_iter().chain(EVENT_ALIASES.map(|(name, kinds, _)| (name, kinds)))
}

/// Types of the journal for a type that only the page has.
pub fn held_in(name: &str) -> Option<&'static [&'static str]> {
    names().find(|(known, _)| *known == name).map(|(_, kinds)| kinds)
}

/// Whether an event is one that has the name in [`EVENT_ALIASES`].
fn is_also(name: &str, event: &Value) -> bool {
    let Some((_, kinds, parts)) = EVENT_ALIASES.iter().find(|(known, ..)| *known == name) else {
        return false;
    };
    let has_code = |part: &&str| field(event, part).replace('-', "_").eq_ignore_ascii_case(name);
    let is_refused = || ["code", "reason"].iter().any(has_code);
    let holds =
        |(part, text): &(&str, &str)| event.get(*part).is_some_and(|value| value.to_string().contains(text));
    if *kinds == REFUSALS { is_refused() } else { parts.iter().all(holds) }
}

/// Types that the page has too.
const SHARED: [&str; 7] = [
    "mcp_tool_seen",
    "mcp_tool_changed",
    "mcp_tool_called",
    "mcp_tool_call_intercepted",
    "mcp_network_connection",
    "mcp_server_binary_mismatch",
    "mcp_server_env_filtered",
];

/// Events of the type that was asked for, oldest first. None: it is not a name of the page.
pub async fn events(filter: &EventFilter, reader: &mut Reader) -> Result<Option<Vec<Value>>, Failure> {
    let Some(name) = filter.kind.as_deref() else { return Ok(None) };
    if SHARED.contains(&name) {
        let found = records_as_json(&reader.events(filter).await?)
            .into_iter()
            .map(|event| with_documented_names(&event));
        return Ok(Some(found.collect()));
    }
    let Some((name, kinds)) = names().find(|(known, _)| *known == name) else { return Ok(None) };
    let mut found = Vec::new();
    for kind in kinds {
        let filter =
            EventFilter { kind: Some((*kind).to_owned()), limit: u64::from(u32::MAX), ..filter.clone() };
        found.extend(records_as_json(&reader.events(&filter).await?).into_iter().filter(
            |event| match name {
                POISONING => is_poisoned(event),
                _ => of_kind(event) == Some(name) || is_also(name, event),
            },
        ));
    }
    found.sort_by_key(|event| (field(event, "time"), event.get("seq").and_then(Value::as_u64)));
    let mut events: Vec<Value> = Vec::new();
    for event in found {
        let is_same = |last: &&mut Value| {
            name == "mcp_output_inspection"
                && ["session", "jsonrpc_id", "server_id", "tool_name"]
                    .iter()
                    .all(|name| last.get(name) == event.get(name))
        };
        match events.last_mut().filter(is_same) {
            Some(last) => {
                if field(&event, "action") == "block" {
                    last["action"] = "block".into();
                }
                if let Some(list) = last.get_mut("detections").and_then(Value::as_array_mut) {
                    list.push(detection(&event));
                }
            }
            None => events.push(as_documented(name, &event)),
        }
    }
    Ok(Some(newest(events, filter)))
}

/// The name of the page for an event of the journal.
fn of_kind(event: &Value) -> Option<&'static str> {
    if field(event, "type") == "mcp_tool_call_intercepted" {
        return (field(event, "reason") == "burst").then_some("mcp_cross_server_blocked");
    }
    Some(match field(event, "category").as_str() {
        "name-similarity" => "mcp_server_name_similarity",
        "tool-shadowing" | "cross-server" => "mcp_cross_server_blocked",
        "removed" => return None,
        _ if event.get("jsonrpc_id").is_none_or(Value::is_null) => "mcp_detection",
        // Secrets, unusual calls, rules of the policy and arguments are not instructions in a result.
        "not-classified" => return None,
        _ if !is_poisoned(event) => return None,
        _ => "mcp_output_inspection",
    })
}

fn is_poisoned(event: &Value) -> bool {
    ["content-suspicious", "not-classified"].contains(&field(event, "reason").as_str())
        && !event["rule"]["id"].as_str().is_some_and(|id| id.contains("content.arguments"))
}

fn as_documented(name: &str, event: &Value) -> Value {
    let mut event = with_documented_names(event);
    let text = |name: &str| field(&event, name);
    let other = json!({"serverID": text("other_server"), "toolName": text("other_tool")});
    let related: Vec<Value> = std::iter::once(other).filter(|_| !text("other_server").is_empty()).collect();
    let rule = match text("detector").as_str() {
        "" => text("reason"),
        "same_name" | "displaced" => "shadow_tool".to_owned(),
        detector => detector.to_owned(),
    };
    let severity = match text("severity").as_str() {
        "" => "high".to_owned(),
        severity => severity.to_owned(),
    };
    let found = format!("{}: {}", text("detector"), text("context"));
    let action = if text("action") == "block" { "block" } else { "allow" };
    let more = match name {
        "mcp_detection" => json!({
            "detectionType": text("category"),
            "description": event.get("description").cloned().unwrap_or_else(|| found.into()),
        }),
        "mcp_output_inspection" => json!({"detections": [detection(&event)], "action": action}),
        "mcp_cross_server_blocked" => {
            json!({"rule": rule, "severity": severity, "relatedCalls": related, "policy_rule": event["rule"]})
        }
        "mcp_server_name_similarity" => json!({
            "similarTo": text("other_server"),
            "score": (likeness(&text("server_id"), &text("other_server")) * 100.0).round() / 100.0,
        }),
        _ => json!({}),
    };
    if let (Some(fields), Value::Object(more)) = (event.as_object_mut(), more) {
        fields.insert("type".to_owned(), name.into());
        fields.extend(more);
    }
    event
}

fn detection(event: &Value) -> Value {
    let text = |name: &str| field(event, name);
    json!({"category": text("category"), "severity": text("severity"), "pattern": text("detector"),
        "pointer": text("pointer"), "context": text("context"), "description": event.get("description")})
}

/// With each field once more as the page spells it: `serverID`, `toolHash`.
fn with_documented_names(event: &Value) -> Value {
    let mut fields: Map<String, Value> = event.as_object().cloned().unwrap_or_default();
    for (name, value) in event.as_object().into_iter().flatten() {
        let camel = match name.as_str() {
            "address" => {
                let port = event.get("port").filter(|_| value.is_string());
                let at = port.map(|port| {
                    let address = field(event, "address");
                    if address.contains(':') {
                        format!("[{address}]:{port}")
                    } else {
                        format!("{address}:{port}")
                    }
                });
                fields.insert("serverAddr".to_owned(), at.map_or_else(|| value.clone(), Value::from));
                continue;
            }
            name => camel(name),
        };
        fields.entry(camel).or_insert_with(|| value.clone());
    }
    // For a script, its interpreter is pinned too.
    if let Some(changed) = event.get("changed").and_then(|files| files.get(0)) {
        fields.insert("binaryPath".to_owned(), changed.clone());
    }
    Value::Object(fields)
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        match word {
            "id" => camel.push_str("ID"),
            word => {
                let (first, rest) = word.split_at(word.len().min(1));
                camel.push_str(&first.to_ascii_uppercase());
                camel.push_str(rest);
            }
        }
    }
    camel
}
