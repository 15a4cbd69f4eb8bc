//! Builds the interface from a server's answers as received.

use crate::component::{Component, Interface, instructions, prompt, resource, tool};
use crate::json::{self, Json, JsonError};

/// Bytes in one interface.
const MAX_BYTES: usize = 16 << 20;
/// Components in one interface.
pub const MAX_COMPONENTS: usize = 10_000;

/// The answers of a server: one line of JSON for each page, as JSON-RPC responses.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// To `initialize`, or to `server/discover`.
    pub opening: Vec<u8>,
    pub tools: Vec<u8>,
    pub prompts: Vec<u8>,
    pub resources: Vec<u8>,
}

/// Why there is no interface, and therefore no hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceError {
    #[error("{0}: {1}")]
    Json(&'static str, JsonError),
    #[error("{0}: a text contains half of a surrogate pair, which programs read in different ways")]
    LoneSurrogate(&'static str),
    #[error("{0}: the server answered with an error")]
    Refused(&'static str),
    #[error("{0}: not a valid answer of the protocol")]
    Shape(&'static str),
    #[error("the member '{0}' is missing or has the wrong type")]
    Type(&'static str),
    #[error("more than {MAX_BYTES} bytes or {MAX_COMPONENTS} components")]
    TooMuch,
}

/// Reads what was captured.
///
/// # Errors
/// When an answer is not strict JSON, has another shape than the protocol says, or is too long.
pub fn read(captured: &Captured) -> Result<Interface, InterfaceError> {
    let Captured { opening, tools, prompts, resources } = captured;
    if [opening, tools, prompts, resources].iter().map(|text| text.len()).sum::<usize>() > MAX_BYTES {
        return Err(InterfaceError::TooMuch);
    }
    let line = opening.trim_ascii();
    let answer = parse(line, "opening")?;
    let result = answer.member("result").ok_or(InterfaceError::Refused("opening"))?;
    let mut interface = Interface { name: name(result), components: Vec::new() };
    type Reader = fn(&Json<'_>) -> Result<Component, InterfaceError>;
    let sections: [(&'static str, &[u8], Reader); 3] =
        [("tools", tools, tool), ("prompts", prompts, prompt), ("resources", resources, resource)];
    for (section, pages, component) in sections {
        let offered = result.member("capabilities").and_then(|all| all.member(section));
        if offered.is_none_or(|offered| matches!(offered, Json::Null | Json::Bool(false))) {
            continue;
        }
        for page in pages.split(|&byte| byte == b'\n').filter(|page| !page.trim_ascii().is_empty()) {
            let page = parse(page.trim_ascii(), section)?;
            let listed = page.member("result").ok_or(InterfaceError::Refused(section))?;
            let items = listed.member(section).and_then(Json::as_array);
            for item in items.ok_or(InterfaceError::Shape(section))? {
                interface.components.push(component(item)?);
                if interface.components.len() > MAX_COMPONENTS {
                    return Err(InterfaceError::TooMuch);
                }
            }
        }
    }
    interface.components.extend(instructions(result)?);
    Ok(interface)
}

fn parse<'a>(line: &'a [u8], section: &'static str) -> Result<Json<'a>, InterfaceError> {
    let value = json::read_to_depth(line, crate::MAX_DEPTH);
    let value = value.map_err(|error| InterfaceError::Json(section, error))?;
    if line.contains(&b'\\') && has_lone_surrogate(&value) {
        return Err(InterfaceError::LoneSurrogate(section));
    }
    Ok(value)
}

pub(crate) fn has_lone_surrogate(value: &Json<'_>) -> bool {
    match value {
        Json::String(raw) => json::has_lone_surrogate(raw),
        Json::Array(items) => items.iter().any(has_lone_surrogate),
        Json::Object(members) => {
            members.iter().any(|(name, value)| json::has_lone_surrogate(name) || has_lone_surrogate(value))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// How the server calls itself, in either era of the protocol.
fn name(result: &Json<'_>) -> String {
    let modern = result.member("_meta").and_then(|meta| meta.member("io.modelcontextprotocol/serverInfo"));
    let server = result.member("serverInfo").or(modern);
    let name = server.and_then(|server| server.member("name")).and_then(Json::as_text);
    name.map(std::borrow::Cow::into_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn captured(tools: &str) -> Captured {
        let opening = r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"s"}}}"#;
        Captured { opening: opening.into(), tools: tools.into(), ..Captured::default() }
    }

    fn tools(items: &str) -> Captured {
        captured(&format!(r#"{{"result":{{"tools":[{items}]}}}}"#))
    }

    fn hash(items: &str) -> String {
        read(&tools(items)).unwrap().hash()
    }

    #[test]
    fn empty_listing_has_the_hash_of_an_empty_text() {
        assert_eq!(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn missing_and_empty_members_have_the_same_hash() {
        let plain = hash(r#"{"name":"t"}"#);
        assert_eq!(
            plain,
            hash(r#"{"name":"t","description":"","inputSchema":{},"outputSchema":{},"title":"x"}"#)
        );
        assert_eq!(plain, hash(r#"{"name":"t","description":null,"outputSchema":null,"annotations":{}}"#));
        assert_ne!(plain, hash(r#"{"name":"t","inputSchema":{"a":null}}"#));
        assert_ne!(plain, hash(r#"{"name":"t","outputSchema":{"a":1}}"#));
        assert_ne!(plain, hash(r#"{"name":"t"},{"name":"t"}"#));
    }

    #[test]
    fn listing_members_of_every_kind_have_a_canonical_form() {
        let answers = Captured {
            opening: br#"{"result":{"capabilities":{"prompts":{},"resources":{}},"serverInfo":{"name":"n"},"instructions":"use a"}}"#.to_vec(),
            tools: br#"{"result":{"tools":[{"name":"not offered"}]}}"#.to_vec(),
            prompts: b"{\"result\":{\"prompts\":[{\"name\":\"p\",\"arguments\":[{\"name\":\"x\",\"required\":true}]}]}}\n{\"result\":{\"prompts\":[{\"name\":\"q\"}]}}".to_vec(),
            resources: br#"{"result":{"resources":[{"uri":"demo://A","name":"a","mimeType":"text/plain"}]}}"#.to_vec(),
        };
        let interface = read(&answers).unwrap();
        let texts: Vec<_> = interface.components.iter().map(|one| one.canonical.as_str()).collect();
        assert_eq!(
            texts,
            [
                r#"{"arguments":[{"description":"","name":"x","required":true}],"description":"","name":"p","type":"prompt"}"#,
                r#"{"arguments":[],"description":"","name":"q","type":"prompt"}"#,
                r#"{"description":"","mime_type":"text/plain","name":"a","type":"resource","uri":"demo://A"}"#,
                r#"{"instructions":"use a","type":"server_instructions"}"#,
            ]
        );
        assert_eq!(interface.name, "n");
    }

    #[test]
    fn listing_that_parsers_read_differently_has_no_hash() {
        for items in [
            r#"{"name":"t","description":"\ud800"}"#,
            r#"{"name":"t","inputSchema":{"\ud800":1}}"#,
            r#"{"name":"t","inputSchema":{"a":NaN}}"#,
            r#"{"name":"t","name":"u"}"#,
            r#"{"name":5}"#,
            r#"{"name":"t","description":5}"#,
            r#"{"name":"t","inputSchema":[]}"#,
            r#"{}"#,
            "1",
        ] {
            assert!(read(&tools(items)).is_err(), "{items}");
        }
        assert!(read(&captured(r#"{"error":{"code":-32601,"message":"no"}}"#)).is_err());
        let deep = |depth: usize| {
            format!(r#"{{"name":"t","inputSchema":{}0{}}}"#, "{\"a\":".repeat(depth), "}".repeat(depth))
        };
        assert!(read(&tools(&deep(400))).is_ok());
        assert!(read(&tools(&deep(600))).is_err());
    }
}
