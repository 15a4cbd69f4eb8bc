//! The request of an agent to its model.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::dialect::{number, open_envelope};
use crate::hosted::{self, Hosted};
use crate::json::{self, Json};
use crate::route::Provider;
use crate::turn::{self, Conversation};
use crate::{LlmError, MAX_DEPTH};

/// The parts of a request that decide how its answer is parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    pub model: String,
    pub stream: bool,
    /// It asks for several answers.
    pub has_choices: bool,
    /// The parts of the system prompt.
    pub system: Vec<String>,
    /// To find its turn.
    pub said: Option<Conversation>,
    /// Tools that the provider runs.
    pub hosted: Vec<Hosted>,
    /// The names of the tools that it offers to the model.
    pub offered: BTreeSet<String>,
}

/// Parses a request body; `path` is its path.
///
/// # Errors
/// When it is not a strict JSON object.
pub fn read(provider: Provider, path: &str, body: &[u8]) -> Result<ModelRequest, LlmError> {
    // A stored answer is requested by name only.
    if body.is_empty() {
        return Ok(ModelRequest::default());
    }
    let tree = json::read_to_depth(body, MAX_DEPTH)?;
    if tree.as_object().is_none() {
        return Err(LlmError::Shape("a request must be an object"));
    }
    let text = |name: &str| tree.member(name).and_then(Json::as_text).map(|text| text.into_owned());
    let asked = question(provider, &tree);
    let mut system = Vec::new();
    match provider {
        Provider::Anthropic => texts(tree.member("system"), &mut system),
        Provider::OpenAiChat => instructions(tree.member("messages"), &mut system),
        Provider::Ollama => {
            texts(tree.member("system"), &mut system);
            instructions(tree.member("messages"), &mut system);
        }
        Provider::OpenAiResponses => {
            texts(tree.member("instructions"), &mut system);
            instructions(tree.member("input"), &mut system);
        }
        Provider::Google => {
            let instruction =
                asked.member("systemInstruction").or_else(|| asked.member("system_instruction"));
            texts(instruction.and_then(|content| content.member("parts")), &mut system);
        }
    }
    let (hosted, offered) = hosted::read(provider, &tree);
    Ok(ModelRequest {
        model: text("model").or_else(|| model_in_path(path)).unwrap_or_default(),
        stream: matches!(tree.member("stream"), Some(Json::Bool(true))),
        has_choices: number(&tree, "n").is_some_and(|choices| choices > 1),
        system,
        said: turn::read_conversation(provider, asked),
        hosted,
        offered,
    })
}

/// The question in Code Assist's envelope.
pub(crate) const ENVELOPE: &str = "request";

/// A question without Code Assist's envelope.
pub(crate) fn question<'a, 'b>(provider: Provider, tree: &'b Json<'a>) -> &'b Json<'a> {
    if provider == Provider::Google { open_envelope(tree, ENVELOPE) } else { tree }
}

/// The model in a path: `/v1beta/models/NAME:generateContent`.
fn model_in_path(path: &str) -> Option<String> {
    let (_, rest) = path.rsplit_once("/models/")?;
    let name = rest.split([':', '/']).next().filter(|name| !name.is_empty())?;
    Some(name.to_owned())
}

fn texts(value: Option<&Json<'_>>, out: &mut Vec<String>) {
    each_text(value, &mut |text| out.push(text.into_owned()));
}

/// A text, or the texts of a list of blocks.
pub(crate) fn each_text(value: Option<&Json<'_>>, each: &mut dyn FnMut(Cow<'_, str>)) {
    match value {
        Some(text @ Json::String(_)) => text.as_text().into_iter().for_each(each),
        Some(Json::Array(blocks)) => {
            let texts = blocks.iter().filter_map(|block| block.member("text").and_then(Json::as_text));
            texts.for_each(each);
        }
        _ => {}
    }
}

/// System and developer messages.
fn instructions(messages: Option<&Json<'_>>, out: &mut Vec<String>) {
    for message in messages.and_then(Json::as_array).unwrap_or_default() {
        let role = message.member("role").and_then(Json::as_text);
        if matches!(role.as_deref(), Some("system" | "developer")) {
            texts(message.member("content"), out);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn system_prompt_is_found_in_every_request_form() {
        let system = |provider, body: &str| read(provider, "/", body.as_bytes()).unwrap().system.join("\n");
        assert_eq!(system(Provider::Anthropic, r#"{"system":"a"}"#), "a");
        assert_eq!(
            system(
                Provider::Anthropic,
                r#"{"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#
            ),
            "a\nb"
        );
        let chat = r#"{"messages":[{"role":"system","content":"a"},{"role":"user","content":"u"},{"role":"developer","content":[{"type":"text","text":"b"}]}]}"#;
        assert_eq!(system(Provider::OpenAiChat, chat), "a\nb");
        let responses = r#"{"instructions":"a","input":[{"role":"developer","content":[{"type":"input_text","text":"b"}]}],"stream":true,"model":"m"}"#;
        let asked = read(Provider::OpenAiResponses, "/v1/responses", responses.as_bytes()).unwrap();
        assert_eq!((asked.system.join("|").as_str(), asked.model.as_str(), asked.stream), ("a|b", "m", true));
        assert!(read(Provider::Anthropic, "/", b"[]").is_err());
        let google = r#"{"systemInstruction":{"parts":[{"text":"a"},{"text":"b"}]}}"#;
        let asked = read(Provider::Google, "/v1beta/models/gem:generateContent", google.as_bytes()).unwrap();
        assert_eq!((asked.system.join("|").as_str(), asked.model.as_str()), ("a|b", "gem"));
        let assist = r#"{"model":"gem","request":{"systemInstruction":{"parts":[{"text":"a"}]},"contents":[{"role":"user","parts":[{"text":"u"}]}]}}"#;
        let asked = read(Provider::Google, "/v1internal:generateContent", assist.as_bytes()).unwrap();
        assert_eq!(
            (asked.system.join("|").as_str(), asked.model.as_str(), asked.said.is_some()),
            ("a", "gem", true)
        );
    }
}
