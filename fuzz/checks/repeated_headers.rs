//! Headers that repeat a message: those that are made of it agree with it, others do not, and any bytes are read.

use super::gateway::HeaderMap;
use super::gateway::message::Incoming;
use super::json;
use super::mcp::mcp_headers::{Params, decode_value, encode_value, name};

/// Lines `NAME: VALUE`, an empty line, the message.
pub fn check(data: &[u8]) {
    let at = data.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = at.map_or((&data[..0], data), |at| (&data[..at], &data[at + 2..]));
    let mut given = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..colon].to_ascii_lowercase(), &line[colon + 1..]);
        if let (Ok(name), Ok(value)) = (name.as_slice().try_into(), value.try_into()) {
            given.append::<super::gateway::HeaderName>(name, value);
        }
        let text = String::from_utf8_lossy(value);
        let text = text.trim();
        assert_eq!(decode_value(&encode_value(text)).as_deref(), Some(text), "a value came back as another");
    }
    let Ok(message) = Incoming::read(body) else { return };
    let mut known = Params::default();
    let Ok(tree) = json::read(&message.line) else { panic!("a line that was written cannot be read") };
    // The message may bring a listing with it, in which case its own call is judged by it.
    if let Some(page) = tree.member("params") {
        known.on_page(page);
    }
    let _ = (message.check_headers(&given), message.check_params(&known, &given), message.check_meta());
    let params = tree.member("params");
    let method = tree.member("method").and_then(json::Json::as_text).unwrap_or_default();
    let mut own = HeaderMap::new();
    let mut say = |name: &str, value: &str| {
        let value = encode_value(value);
        own.insert::<super::gateway::HeaderName>(name.try_into().unwrap(), value.as_str().try_into().unwrap());
    };
    if let Some(version) = &message.version {
        say("mcp-protocol-version", version);
    }
    say("mcp-method", &method);
    if let Some(name) = name(&method, params) {
        say("mcp-name", &name);
    }
    for (name, value) in known.of_call(params) {
        if let Some(value) = value {
            say(name, &value);
        }
    }
    assert_eq!(message.check_headers(&own), Ok(()), "what was made of the message is not what it says");
    assert_eq!(message.check_params(&known, &own), Ok(()), "an argument is not what it says");
}
