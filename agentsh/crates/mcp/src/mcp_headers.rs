//! The HTTP headers of the protocol without sessions that repeat parts of a message: the name, and arguments with
//! `x-mcp-header`. Used to write and to check them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::json::Json;

/// Prefix of argument headers, lower case.
pub const PARAM: &str = "mcp-param-";

/// Limit of remembered tools; others have no such headers.
const MAX_TOOLS: usize = 4096;
/// Limit of headers per tool.
const MAX_PARAMS: usize = 64;
/// Limit of an argument's depth in a schema.
const MAX_DEPTH: usize = 16;

/// The value of `Mcp-Name`; None: no header.
#[must_use]
pub fn name<'a>(method: &str, params: Option<&Json<'a>>) -> Option<Cow<'a, str>> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    params?.member(member)?.as_text()
}

/// Encodes a value that a header cannot contain.
#[must_use]
pub fn encode_value(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && value.trim() == value;
    if is_plain && !(value.starts_with("=?base64?") && value.ends_with("?=")) {
        return value.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(value))
}

/// Decodes a header value. None: invalid base64.
#[must_use]
pub fn decode_value(value: &str) -> Option<String> {
    let value = value.trim();
    let Some(coded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    String::from_utf8(STANDARD.decode(coded).ok()?).ok()
}

/// The arguments with headers, from listings.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// By tool: the argument's path, and its header in lower case.
    tools: BTreeMap<String, Vec<(Vec<String>, String)>>,
}

impl Params {
    /// Takes a page of a listing: the result of `tools/list`.
    pub fn on_page(&mut self, result: &Json<'_>) {
        let Some(tools) = result.member("tools").and_then(Json::as_array) else { return };
        for tool in tools {
            let Some(name) = tool.member("name").and_then(Json::as_text) else { continue };
            let found = tool.member("inputSchema").map(annotations).unwrap_or_default();
            if found.is_empty() {
                self.tools.remove(name.as_ref());
            } else if self.tools.len() < MAX_TOOLS {
                self.tools.insert(name.into_owned(), found);
            }
        }
    }

    /// The headers of a call in lower case with their values; None: must be absent.
    #[must_use]
    pub fn of_call(&self, params: Option<&Json<'_>>) -> Vec<(&str, Option<String>)> {
        let found = params
            .and_then(|params| params.member("name")?.as_text())
            .and_then(|tool| self.tools.get(tool.as_ref()));
        let arguments = params.and_then(|params| params.member("arguments"));
        let value = |path: &[String]| {
            let found = path.iter().try_fold(arguments?, |tree, name| tree.member(name));
            found.and_then(text)
        };
        found.into_iter().flatten().map(|(path, header)| (header.as_str(), value(path))).collect()
    }
}

/// A value in a header. Lists, objects and null have no form.
fn text(value: &Json<'_>) -> Option<String> {
    match value {
        Json::Bool(value) => Some(value.to_string()),
        Json::Number(spelled) => Some((*spelled).to_owned()),
        Json::String(_) => value.as_text().map(Cow::into_owned),
        _ => None,
    }
}

/// Every `x-mcp-header` below `properties`. One invalid header disables all of a schema.
fn annotations(schema: &Json<'_>) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let is_good = collect(schema, &mut Vec::new(), &mut seen, &mut found);
    if is_good { found } else { Vec::new() }
}

fn collect(
    schema: &Json<'_>,
    path: &mut Vec<String>,
    seen: &mut BTreeSet<String>,
    found: &mut Vec<(Vec<String>, String)>,
) -> bool {
    let Some(properties) = schema.member("properties").and_then(Json::as_object) else { return true };
    for (raw, property) in properties {
        path.push(Json::String(raw).as_text().unwrap_or_default().into_owned());
        if let Some(header) = property.member("x-mcp-header") {
            let token =
                header.as_text().filter(|token| is_token(token)).map(|token| token.to_ascii_lowercase());
            let kind = property.member("type").and_then(Json::as_text);
            let is_plain = matches!(kind.as_deref(), Some("string" | "integer" | "boolean"));
            match token {
                Some(token) if is_plain && found.len() < MAX_PARAMS && seen.insert(token.clone()) => {
                    found.push((path.clone(), format!("{PARAM}{token}")));
                }
                _ => return false,
            }
        }
        if path.len() < MAX_DEPTH && !collect(property, path, seen, found) {
            return false;
        }
        path.pop();
    }
    true
}

/// An RFC 9110 token.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::json;

    fn params(schema: &str) -> Params {
        let mut params = Params::default();
        let page = format!(r#"{{"tools":[{{"name":"query","inputSchema":{schema}}}]}}"#);
        params.on_page(&json::read(page.as_bytes()).unwrap());
        params
    }

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "in":{"type":"object","properties":{"count":{"type":"integer","x-mcp-header":"Count"}}},
        "plain":{"type":"string"}}}"#;

    #[test]
    fn arguments_are_repeated_as_the_schema_says() {
        let params = params(SCHEMA);
        let call = r#"{"name":"query","arguments":{"region":"us\u002deast","in":{"count":7},"plain":"x"}}"#;
        let call = json::read(call.as_bytes()).unwrap();
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            params.of_call(Some(&call)),
            [("mcp-param-region", said("us-east")), ("mcp-param-count", said("7"))]
        );
        let none = json::read(br#"{"name":"query","arguments":{"region":null}}"#).unwrap();
        assert!(params.of_call(Some(&none)).iter().all(|(_, value)| value.is_none()));
        let other = json::read(br#"{"name":"other","arguments":{"region":"a"}}"#).unwrap();
        assert!(params.of_call(Some(&other)).is_empty());
    }

    #[test]
    fn invalid_header_annotation_is_ignored() {
        for wrong in [
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"bad:name"}}}"#,
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"N"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"R"},"b":{"type":"string","x-mcp-header":"r"}}}"#,
        ] {
            assert!(params(wrong).tools.is_empty(), "{wrong}");
        }
    }

    #[test]
    fn values_come_back_as_they_were() {
        for value in ["", "us-east", "größe", " space ", "=?base64?x?=", "a\nb"] {
            assert_eq!(decode_value(&encode_value(value)).as_deref(), Some(value));
            assert!(encode_value(value).bytes().all(|byte| matches!(byte, 0x20..=0x7e)));
        }
        assert_eq!(decode_value("=?base64?SGVsbG8?="), None);
        assert_eq!(decode_value("=?base64?SGVs!!!bG8=?="), None);
        assert_eq!(decode_value("=?base64?SGVsbG8=").as_deref(), Some("=?base64?SGVsbG8="));
    }

    #[test]
    fn mcp_name_header_repeats_the_parameter_of_its_method() {
        let tree = json::read(br#"{"name":"n","uri":"u","taskId":"t"}"#).unwrap();
        for (method, expected) in [
            ("tools/call", Some("n")),
            ("resources/read", Some("u")),
            ("tasks/get", Some("t")),
            ("tools/list", None),
        ] {
            assert_eq!(name(method, Some(&tree)).as_deref(), expected, "{method}");
        }
    }
}
