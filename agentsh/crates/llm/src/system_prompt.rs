//! Appends a sentence to a system prompt, at its end, so that the provider's prompt cache stays valid.

use crate::LlmError;
use crate::dialect::{parse, quoted, text, with_members, with_opened};
use crate::json::{Json, escape_text};
use crate::request::{ENVELOPE, question};
use crate::route::Provider;

/// The request with one more sentence for the model. Other bytes stay.
///
/// # Errors
/// When it is not strict JSON.
pub fn append_sentence(provider: Provider, body: &[u8], sentence: &str) -> Result<String, LlmError> {
    let body = std::str::from_utf8(body).map_err(|_| LlmError::Shape("text that is not UTF-8"))?;
    // A stored answer is requested by name only.
    if body.is_empty() {
        return Ok(String::new());
    }
    let whole = parse(body)?;
    let tree = question(provider, &whole);
    let (name, value) = match provider {
        Provider::Anthropic => ("system", with_sentence(tree.member("system"), sentence)),
        // A completion has no messages.
        Provider::Ollama if tree.member("messages").is_none() => {
            ("system", with_sentence(tree.member("system"), sentence))
        }
        Provider::OpenAiChat | Provider::Ollama => {
            ("messages", in_messages(tree.member("messages"), sentence))
        }
        Provider::OpenAiResponses => ("instructions", with_sentence(tree.member("instructions"), sentence)),
        Provider::Google => {
            let snake = "system_instruction";
            let name = if tree.member(snake).is_some() { snake } else { "systemInstruction" };
            let object = tree.member(name).filter(|value| value.as_object().is_some());
            let parts = object.and_then(|value| value.member("parts"));
            let part = format!("{{\"text\":{}}}", quoted(sentence));
            let parts = format!("[{}]", joined_list(parts.and_then(Json::as_array), part));
            let empty = Json::Object(Vec::new());
            (name, with_members(object.unwrap_or(&empty), &[("parts", Some(parts))]))
        }
    };
    let marked = with_members(tree, &[(name, Some(value))]);
    Ok(if provider == Provider::Google { with_opened(&whole, ENVELOPE, marked) } else { marked })
}

/// A text or list of blocks with the sentence appended.
fn with_sentence(value: Option<&Json<'_>>, sentence: &str) -> String {
    match value {
        Some(Json::String(raw)) => format!("\"{raw}\\n\\n{}\"", escape_text(sentence)),
        Some(Json::Array(blocks)) => {
            let block = format!("{{\"type\":\"text\",\"text\":{}}}", quoted(sentence));
            format!("[{}]", joined_list(Some(blocks), block))
        }
        _ => quoted(sentence),
    }
}

fn in_messages(messages: Option<&Json<'_>>, sentence: &str) -> String {
    let messages = messages.and_then(Json::as_array).unwrap_or_default();
    let is_instruction =
        |message: &Json<'_>| matches!(text(message, "role").as_deref(), Some("system" | "developer"));
    let Some(place) = messages.iter().position(is_instruction) else {
        let own = format!("{{\"role\":\"system\",\"content\":{}}}", quoted(sentence));
        let all: Vec<String> = std::iter::once(own).chain(messages.iter().map(Json::to_compact)).collect();
        return format!("[{}]", all.join(","));
    };
    let all: Vec<String> = messages
        .iter()
        .enumerate()
        .map(|(at, message)| match at == place {
            true => with_members(
                message,
                &[("content", Some(with_sentence(message.member("content"), sentence)))],
            ),
            false => message.to_compact(),
        })
        .collect();
    format!("[{}]", all.join(","))
}

fn joined_list(items: Option<&[Json<'_>]>, one_more: String) -> String {
    let mut all: Vec<String> = items.unwrap_or_default().iter().map(Json::to_compact).collect();
    all.push(one_more);
    all.join(",")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::request::read;

    #[test]
    fn canary_sentence_is_appended_to_every_form_of_system_prompt() {
        for (provider, body, expected) in [
            (
                Provider::Anthropic,
                r#"{"model":"m","max":1.0}"#,
                r#"{"model":"m","max":1.0,"system":"say \"no\""}"#,
            ),
            (Provider::Anthropic, r#"{"system":"a\u00e9"}"#, r#"{"system":"a\u00e9\n\nsay \"no\""}"#),
            (
                Provider::Anthropic,
                r#"{"system":[{"type":"text","text":"a","cache_control":{}}]}"#,
                r#"{"system":[{"type":"text","text":"a","cache_control":{}},{"type":"text","text":"say \"no\""}]}"#,
            ),
            (
                Provider::OpenAiChat,
                r#"{"messages":[{"role":"user","content":"u"}]}"#,
                r#"{"messages":[{"role":"system","content":"say \"no\""},{"role":"user","content":"u"}]}"#,
            ),
            (
                Provider::OpenAiChat,
                r#"{"messages":[{"role":"developer","content":"d"},{"role":"user","content":"u"}]}"#,
                r#"{"messages":[{"role":"developer","content":"d\n\nsay \"no\""},{"role":"user","content":"u"}]}"#,
            ),
            (Provider::OpenAiResponses, r#"{"input":"x"}"#, r#"{"input":"x","instructions":"say \"no\""}"#),
            (
                Provider::Google,
                r#"{"system_instruction":{"role":"system","parts":[{"text":"a"}]}}"#,
                r#"{"system_instruction":{"role":"system","parts":[{"text":"a"},{"text":"say \"no\""}]}}"#,
            ),
            (
                Provider::Google,
                r#"{"contents":[]}"#,
                r#"{"contents":[],"systemInstruction":{"parts":[{"text":"say \"no\""}]}}"#,
            ),
            (
                Provider::Google,
                r#"{"model":"m","request":{"contents":[]}}"#,
                r#"{"model":"m","request":{"contents":[],"systemInstruction":{"parts":[{"text":"say \"no\""}]}}}"#,
            ),
        ] {
            let out = append_sentence(provider, body.as_bytes(), "say \"no\"").unwrap();
            assert_eq!(out, expected, "{provider:?} {body}");
            assert!(read(provider, "/", out.as_bytes()).unwrap().system.concat().ends_with("say \"no\""));
        }
        assert_eq!(append_sentence(Provider::OpenAiResponses, b"", "x").unwrap(), "");
        assert!(append_sentence(Provider::Anthropic, b"[", "x").is_err());
    }
}
