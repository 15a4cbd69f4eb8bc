//! Keys, passwords and tokens in requests to the model.

use ring::hmac;

use agentsh_base::json::{self, Json};
use agentsh_content::content::secret_lines;
use agentsh_llm::{MAX_DEPTH, Provider};
use agentsh_policy::{LlmPolicy, OnModelSecret as OnSecret};
use agentsh_scan::Redaction;
use agentsh_store::SecretFound;

/// Maximum number of secrets of one request that are recorded one by one.
const MAX_LISTED: usize = 16;
/// Results of the agent's own tools with a secret in them, of one request.
const MAX_READ: usize = 256;

/// Members with identifiers, signed or encoded content: a tag in there would break the request, and none of them is text
/// that a person wrote.
const UNTAGGED_MEMBERS: [&str; 17] = [
    "call_id",
    "data",
    "encrypted_content",
    "file_data",
    "id",
    "image_url",
    "media_type",
    "mimeType",
    "model",
    "name",
    "previous_response_id",
    "prompt_cache_key",
    "role",
    "signature",
    "thoughtSignature",
    "tool_use_id",
    "type",
];

/// The findings in a request, and its outcome.
pub(super) struct Searched {
    /// None: it is forwarded unchanged.
    pub body: Option<String>,
    pub action: OnSecret,
    pub found: Vec<SecretFound>,
    pub more: usize,
}

/// Looks through a request. None: nothing is in it. Time is linear in the request.
pub(super) fn search(body: &[u8], policy: &LlmPolicy, key: &[u8]) -> Option<Searched> {
    let tree = json::read_to_depth(body, MAX_DEPTH).ok()?;
    let is_left = |name: &str| UNTAGGED_MEMBERS.contains(&name);
    let (redactions, _) =
        agentsh_scan::scan_secrets(&tree, &is_left, &|kind| policy.on_secret(kind) != OnSecret::Off);
    let action = redactions.iter().map(|found| policy.on_secret(found.kind)).max()?;
    let found: Vec<SecretFound> =
        redactions.iter().take(MAX_LISTED).map(|redaction| secret_found(&tree, redaction, key)).collect();
    let body = (action == OnSecret::Redact).then(|| {
        let (_, rewrites) =
            agentsh_scan::scan_secrets(&tree, &is_left, &|kind| policy.on_secret(kind) == OnSecret::Redact);
        agentsh_scan::rewritten_json(&tree, &rewrites)
    });
    let more = redactions.len() - found.len();
    Some(Searched { body, action, found, more })
}

/// Lines with secrets that a tool of the agent's own gave.
pub(super) struct OwnResult {
    pub tool: String,
    /// A list in JSON.
    pub lines: String,
    /// A conversation is sent again with every turn.
    pub hash: String,
}

/// Results of the agent's own tools in a request, as far as they contain a secret. Time is linear in the request.
pub(super) fn own_tool_results(provider: Provider, body: &[u8], key: &[u8]) -> Vec<OwnResult> {
    // The newest first: what was read before was sent before.
    let read =
        agentsh_llm::agent_tool_results::read(provider, body).into_iter().rev().filter_map(|(tool, text)| {
            let lines = secret_lines(&text)?;
            Some(OwnResult { tool, hash: hash_value(key, &lines), lines })
        });
    read.take(MAX_READ).collect()
}

fn hash_value(key: &[u8], value: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    agentsh_base::hex(hmac::sign(&key, value.as_bytes()).as_ref().iter().take(8))
}

fn secret_found(tree: &Json<'_>, redaction: &Redaction, key: &[u8]) -> SecretFound {
    let text = value_at(tree, &redaction.pointer).and_then(Json::as_text).unwrap_or_default();
    let value = text.get(redaction.start..redaction.end).unwrap_or_default();
    SecretFound {
        kind: redaction.kind.to_owned(),
        pointer: redaction.pointer.clone(),
        hash: hash_value(key, value),
    }
}

fn value_at<'a, 'b>(tree: &'b Json<'a>, pointer: &str) -> Option<&'b Json<'a>> {
    pointer.split('/').skip(1).try_fold(tree, |value, part| {
        let name = part.replace("~1", "/").replace("~0", "~");
        match value {
            Json::Array(items) => items.get(name.parse::<usize>().ok()?),
            _ => value.member(&name),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use agentsh_base::types::RuleRef;
    use agentsh_policy::Ruled;

    fn policy(action: OnSecret) -> LlmPolicy {
        let secrets = Some(Ruled { value: action, rule: RuleRef::default_rule("llm") });
        LlmPolicy { secrets, ..LlmPolicy::default() }
    }

    fn request() -> String {
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
        format!(r#"{{"model":"m","messages":[{{"content":"key {token} mail a@b.co"}}],"id":"{token}"}}"#)
    }

    #[test]
    fn secret_in_a_request_is_reported_without_its_value() {
        let request = request();
        let searched = search(request.as_bytes(), &policy(OnSecret::Log), b"k").unwrap();
        assert_eq!((searched.action, searched.found.len(), searched.body), (OnSecret::Log, 1, None));
        assert_eq!(searched.found[0].pointer, "/messages/0/content");
        assert!(searched.found[0].hash.len() == 16 && !searched.found[0].hash.contains("ghp"));
        assert!(search(request.as_bytes(), &policy(OnSecret::Off), b"k").is_none());
    }

    #[test]
    fn redacted_request_keeps_its_other_text_and_identifiers() {
        let searched = search(request().as_bytes(), &policy(OnSecret::Redact), b"k").unwrap();
        let body = searched.body.unwrap();
        let value: serde_json::Value = serde_json::from_str(&body).unwrap();
        let content = value["messages"][0]["content"].as_str().unwrap();
        assert!(content.starts_with("key [REDACTED ") && content.ends_with("] mail a@b.co"), "{content}");
        assert!(value["id"].as_str().unwrap().starts_with("ghp_"), "identifiers stay");
    }
}
