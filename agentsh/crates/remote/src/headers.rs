//! Headers of a message: client, session, protocol revision.

use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use crate::mcp::mcp_headers::encode_value;

use super::message::Outgoing;

pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENTS: &str = "text/event-stream";

pub(crate) fn of_message(message: &Outgoing, version: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let Some(own) = message.version.as_deref().and_then(|own| HeaderValue::from_str(own).ok()) else {
        headers.extend(version.map(|version| (VERSION, version.clone())));
        return headers;
    };
    headers.insert(VERSION, own);
    headers.extend(HeaderValue::from_str(&encode_value(&message.method)).ok().map(|value| (METHOD, value)));
    let value = |text: &str| HeaderValue::from_str(&encode_value(text)).ok();
    headers.extend(message.name.as_deref().and_then(value).map(|name| (NAME, name)));
    for (name, text) in &message.repeated {
        let name = HeaderName::from_bytes(name.as_bytes()).ok();
        headers.extend(name.zip(value(text)));
    }
    headers
}

pub(crate) fn of_stream(version: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(EVENTS));
    headers.extend(version.map(|version| (VERSION, version.clone())));
    headers
}

/// How a body is compressed, if agentsh cannot decompress it.
pub(crate) fn unsupported_encoding(headers: &HeaderMap) -> Option<String> {
    let how = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("unknown").trim();
    (!how.is_empty() && !how.eq_ignore_ascii_case("identity")).then(|| how.chars().take(40).collect())
}

/// The media type alone.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;
    use crate::mcp::mcp_headers::Params;

    #[test]
    fn requests_without_a_session_repeat_themselves_in_headers() {
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"größe","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let headers = of_message(&Outgoing::read(line.as_bytes(), &Params::default()).unwrap(), None);
        assert_eq!(headers[&VERSION], "2026-07-28");
        assert_eq!(headers[&METHOD], "tools/call");
        assert_eq!(headers[&NAME], "=?base64?Z3LDtsOfZQ==?=");
        let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
        let version = HeaderValue::from_static("2025-06-18");
        let headers =
            of_message(&Outgoing::read(line.as_bytes(), &Params::default()).unwrap(), Some(&version));
        assert_eq!((headers.get(&VERSION), headers.get(&METHOD)), (Some(&version), None));
    }
}
