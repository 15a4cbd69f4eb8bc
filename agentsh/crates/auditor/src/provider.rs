//! Request and answer formats of each provider.

use std::time::Duration;

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Value, json};
use url::Url;

use agentsh_egress::Post;
use agentsh_policy::proxy_file::{Auditor, Provider};

use super::ReadyAuditor;
use super::request::Question;

/// Longest answer, in bytes.
const MAX_ANSWER: usize = 256 << 10;
/// Longest verdict, in tokens, where every model of a provider takes a limit.
const MAX_TOKENS: u32 = 200;

pub fn provider_name(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "anthropic",
        Provider::OpenAi => "openai",
        Provider::Google => "google",
    }
}

/// # Errors
/// What is wrong with the address.
pub fn url(auditor: &Auditor) -> Result<Url, String> {
    let usual = match auditor.provider {
        Provider::Anthropic => "https://api.anthropic.com/v1",
        Provider::OpenAi => "https://api.openai.com/v1",
        Provider::Google => "https://generativelanguage.googleapis.com/v1beta",
    };
    let mut url =
        Url::parse(auditor.base_url.as_deref().unwrap_or(usual)).map_err(|error| error.to_string())?;
    let mut path = url.path_segments_mut().map_err(|()| "it has no path".to_owned())?;
    path.pop_if_empty();
    match auditor.provider {
        Provider::Anthropic => path.push("messages"),
        Provider::OpenAi => path.extend(["chat", "completions"]),
        Provider::Google => path.extend(["models", &format!("{}:generateContent", auditor.model)]),
    };
    drop(path);
    Ok(url)
}

/// The key as the header's value; None when it cannot be in one.
pub fn key(provider: Provider, key: &str) -> Option<HeaderValue> {
    let text = match provider {
        Provider::OpenAi => format!("Bearer {key}"),
        Provider::Anthropic | Provider::Google => key.to_owned(),
    };
    let is_word = key.bytes().all(|byte| byte.is_ascii_graphic());
    let mut value = HeaderValue::from_str(&text).ok().filter(|_| is_word)?;
    value.set_sensitive(true);
    Some(value)
}

pub fn post(asked: &ReadyAuditor, question: &Question) -> Post {
    let (rules, data, model) = (&question.rules, &question.data, &asked.auditor.model);
    let mut headers = vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let (key, body) = match asked.auditor.provider {
        Provider::Anthropic => {
            let version = HeaderName::from_static("anthropic-version");
            headers.push((version, HeaderValue::from_static("2023-06-01")));
            let messages = json!([{"role": "user", "content": data}]);
            let body =
                json!({"model": model, "max_tokens": MAX_TOKENS, "system": rules, "messages": messages});
            (HeaderName::from_static("x-api-key"), body)
        }
        Provider::OpenAi => {
            let messages = json!([{"role": "system", "content": rules}, {"role": "user", "content": data}]);
            (AUTHORIZATION, json!({"model": model, "messages": messages}))
        }
        Provider::Google => {
            let body = json!({
                "systemInstruction": {"parts": [{"text": rules}]},
                "contents": [{"role": "user", "parts": [{"text": data}]}],
            });
            (HeaderName::from_static("x-goog-api-key"), body)
        }
    };
    headers.extend(asked.key.clone().map(|value| (key, value)));
    Post {
        url: asked.url.clone(),
        headers,
        body: body.to_string().into_bytes(),
        within: Duration::from_millis(asked.auditor.timeout_ms),
        max_answer: MAX_ANSWER,
    }
}

/// The text of a finished answer.
///
/// # Errors
/// What is wrong with the answer: it is not JSON, was cut off, refused, or has several texts.
pub fn text_of(provider: Provider, body: &[u8]) -> Result<String, &'static str> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "its answer is not JSON")?;
    let one = |list: &Value| match list.as_array().map(Vec::as_slice) {
        Some([only]) => Ok(only.clone()),
        _ => Err("its answer does not have exactly one text"),
    };
    let (ending, wanted, text) = match provider {
        Provider::Anthropic => {
            (answer["stop_reason"].clone(), "end_turn", one(&answer["content"])?["text"].clone())
        }
        Provider::OpenAi => {
            let choice = one(&answer["choices"])?;
            (choice["finish_reason"].clone(), "stop", choice["message"]["content"].clone())
        }
        Provider::Google => {
            let candidate = one(&answer["candidates"])?;
            let parts = candidate["content"]["parts"].as_array().cloned().unwrap_or_default();
            let said = parts.into_iter().filter(|part| part["thought"] != json!(true)).collect();
            (candidate["finishReason"].clone(), "STOP", one(&Value::Array(said))?["text"].clone())
        }
    };
    if ending != wanted {
        return Err("its answer is not finished");
    }
    text.as_str().map(str::to_owned).ok_or("its answer has no text")
}
