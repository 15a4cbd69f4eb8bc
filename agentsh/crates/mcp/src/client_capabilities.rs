//! The client's protocol version and capabilities. Servers offer different things for them, so pins are stored for
//! each.

use std::collections::BTreeSet;

use crate::json::{Json, escape_text, unescape};

/// Names the revision in each request of the protocol without sessions.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The client's capabilities, in each request of the protocol without sessions.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Longer audiences are hashed, in bytes.
const MAX_LENGTH: usize = 200;

/// None: the request does not name its client.
pub(super) fn of_request(method: &str, params: Option<&Json<'_>>) -> Option<String> {
    if method == "initialize" {
        return Some(audience("", params.and_then(|params| params.member("capabilities"))));
    }
    let meta = params?.member("_meta")?;
    let version = meta.member(VERSION)?.as_text()?;
    Some(audience(&version, meta.member(CAPABILITIES)))
}

/// Words in order: `roots roots.listChanged sampling`.
fn audience(version: &str, capabilities: Option<&Json<'_>>) -> String {
    let mut words = BTreeSet::new();
    for (raw, value) in capabilities.and_then(Json::as_object).unwrap_or_default() {
        let name = unescape(raw).into_owned();
        for (raw, value) in value.as_object().unwrap_or_default() {
            match value {
                Json::Null | Json::Bool(false) => {}
                Json::Bool(true) => drop(words.insert(format!("{name}.{}", unescape(raw)))),
                other if other.as_object().is_some_and(<[_]>::is_empty) => {
                    words.insert(format!("{name}.{}", unescape(raw)));
                }
                other => drop(words.insert(format!("{name}.{}={}", unescape(raw), other.to_compact()))),
            }
        }
        if !matches!(value, Json::Null | Json::Bool(false)) {
            words.insert(name);
        }
    }
    let version = Some(version).filter(|version| !version.is_empty()).map(str::to_owned);
    let text = version.into_iter().chain(words).collect::<Vec<_>>().join(" ");
    if text.len() <= MAX_LENGTH {
        return text;
    }
    crate::guard::interface::hash(&Json::String(&escape_text(&text)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::json::read;

    fn said(method: &str, params: &str) -> Option<String> {
        of_request(method, Some(&read(params.as_bytes()).unwrap()))
    }

    #[test]
    fn client_capabilities_are_compared_regardless_of_spelling() {
        let one = said("initialize", r#"{"capabilities":{"roots":{"listChanged":true},"sampling":{}}}"#);
        assert_eq!(one.as_deref(), Some("roots roots.listChanged sampling"));
        let other = said(
            "initialize",
            r#"{"capabilities":{"sampling":{"tools":false},"elicitation":null,"\u0072oots":{"listChanged":true}}}"#,
        );
        assert_eq!(one, other);
        assert_eq!(said("initialize", "{}").as_deref(), Some(""));
        assert_eq!(said("tools/list", "{}"), None);
    }

    #[test]
    fn client_capabilities_are_read_from_each_request_without_a_session() {
        let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}"#;
        assert_eq!(said("tools/list", meta).as_deref(), Some("2026-07-28 elicitation elicitation.form"));
        let long = format!(r#"{{"capabilities":{{"experimental":{{"x":"{}"}}}}}}"#, "y".repeat(1 << 16));
        assert_eq!(said("initialize", &long).unwrap().len(), 71);
    }
}
