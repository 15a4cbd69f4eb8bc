//! Keys to the model's API that stay with the session: the agent has placeholders, and the session puts the keys on the wire.

use std::cell::RefCell;
use std::collections::BTreeMap;

use hyper::header::{HeaderMap, HeaderValue};

/// Variables in which agents look for a key.
const VARIABLES: [&str; 8] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
];

/// Headers in which clients send it.
const HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// Placeholders and the keys that they stand for.
#[derive(Default)]
pub(super) struct Keys(RefCell<BTreeMap<String, String>>);

impl Keys {
    /// Takes the keys out of an environment. `word` makes a placeholder that nobody can guess.
    pub(super) fn take(&self, env: &mut BTreeMap<String, String>, word: impl Fn(&str) -> String) {
        for name in VARIABLES {
            let Some(value) = env.get_mut(name).filter(|value| !value.is_empty()) else { continue };
            let placeholder = word(name);
            let key = std::mem::replace(value, placeholder.clone());
            self.0.borrow_mut().insert(placeholder, key);
        }
    }

    /// Puts the keys into the headers of a request that goes to the model.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        let keys = self.0.borrow();
        for name in HEADERS {
            let Some(text) = headers.get(name).and_then(|value| value.to_str().ok()) else { continue };
            let Some((placeholder, key)) = keys.iter().find(|(placeholder, _)| text.contains(*placeholder))
            else {
                continue;
            };
            if let Ok(mut value) = HeaderValue::from_str(&text.replace(placeholder, key)) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn a_placeholder_becomes_the_key_in_the_headers_of_keys_alone() {
        let keys = Keys::default();
        let mut env = BTreeMap::from([("OPENAI_API_KEY".to_owned(), "sk-real".to_owned())]);
        keys.take(&mut env, |name| format!("agentsh-{name}"));
        assert_eq!(env["OPENAI_API_KEY"], "agentsh-OPENAI_API_KEY");
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer agentsh-OPENAI_API_KEY"));
        headers.insert("x-other", HeaderValue::from_static("agentsh-OPENAI_API_KEY"));
        keys.put(&mut headers);
        assert_eq!(headers["authorization"], "Bearer sk-real");
        assert_eq!(headers["x-other"], "agentsh-OPENAI_API_KEY");
    }
}
