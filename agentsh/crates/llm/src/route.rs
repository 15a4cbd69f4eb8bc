//! Which API a request is for. The path alone says so: a header can be anything.
//!
//! A gateway puts its own prefix in front of an API's path (`/anthropic/v1/messages`), so the end of the path decides.

use agentsh_base::url_path::components;

/// Whose API is spoken, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Google Generate Content.
    Google,
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The model answers: calls and texts are judged.
    Model(Provider),
    /// A route of the API in which no model speaks.
    Beside(Provider),
    /// Nobody knows what goes through there, or the path can be read in more than one way.
    Unknown,
}

/// `path` is without its query.
#[must_use]
pub fn route(method: &str, path: &str) -> Route {
    let Some(parts) = components(path) else { return Route::Unknown };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let parts = parts.strip_suffix(&[""]).unwrap_or(&parts);
    if let Some(route) = spoken(method, parts) {
        return route;
    }
    beside(method, parts).map_or(Route::Unknown, Route::Beside)
}

/// Where a model speaks, now or in what it said before.
fn spoken(method: &str, parts: &[&str]) -> Option<Route> {
    let provider = match (method, parts) {
        ("POST", [.., "messages"]) => Provider::Anthropic,
        ("POST", [.., "chat", "completions"]) => Provider::OpenAiChat,
        // An answer that was kept is given again.
        ("GET", [.., "chat", "completions", id]) if !id.is_empty() => Provider::OpenAiChat,
        ("POST", [.., "responses"] | [.., "responses", "compact"] | [.., "responses", _, "cancel"])
        | ("GET", [.., "responses", _]) => Provider::OpenAiResponses,
        ("POST", [.., last]) => match last.rsplit_once(':')?.1 {
            "generateContent" | "streamGenerateContent" => Provider::Google,
            // Anthropic's models at other providers.
            "rawPredict" | "streamRawPredict" => Provider::Anthropic,
            _ => return None,
        },
        _ => return None,
    };
    Some(Route::Model(provider))
}

fn beside(method: &str, parts: &[&str]) -> Option<Provider> {
    let provider = match (method, parts) {
        ("HEAD" | "GET", []) => Provider::Anthropic,
        ("POST", [.., "messages", "count_tokens"])
        | ("GET" | "POST", [.., "messages", "batches"])
        | ("GET" | "DELETE", [.., "messages", "batches", _])
        | ("POST", [.., "messages", "batches", _, "cancel"])
        | ("GET", [.., "messages", "batches", _, "results"]) => Provider::Anthropic,
        ("GET", [.., "models"] | [.., "models", _])
        | ("DELETE", [.., "models", _] | [.., "files", _] | [.., "responses", _])
        | ("GET" | "POST", [.., "files"] | [.., "batches"])
        | ("GET", [.., "files", _] | [.., "files", _, "content"] | [.., "batches", _])
        | ("GET", [.., "responses", _, "input_items"])
        | ("POST", [.., "responses", "input_tokens"] | [.., "batches", _, "cancel"]) => Provider::OpenAiChat,
        ("POST", [.., last]) => match last.rsplit_once(':')?.1 {
            "countTokens" | "embedContent" | "batchEmbedContents" => Provider::Google,
            "rawPredictCountTokens" => Provider::Anthropic,
            _ => return None,
        },
        _ => return None,
    };
    Some(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_whose_api_it_is() {
        for (method, path, expected) in [
            ("POST", "/v1/messages", Route::Model(Provider::Anthropic)),
            ("POST", "/v1/messages/", Route::Model(Provider::Anthropic)),
            ("POST", "/anthropic/v1/messages", Route::Model(Provider::Anthropic)),
            ("POST", "/v1/%6dessages", Route::Model(Provider::Anthropic)),
            ("POST", "/v1/projects/p/models/claude:streamRawPredict", Route::Model(Provider::Anthropic)),
            ("POST", "/v1/chat/completions", Route::Model(Provider::OpenAiChat)),
            ("POST", "/api/v1/chat/completions", Route::Model(Provider::OpenAiChat)),
            ("POST", "/openai/deployments/x/chat/completions", Route::Model(Provider::OpenAiChat)),
            ("POST", "/chat/completions/", Route::Model(Provider::OpenAiChat)),
            ("POST", "/v1/responses", Route::Model(Provider::OpenAiResponses)),
            ("POST", "/backend-api/codex/responses", Route::Model(Provider::OpenAiResponses)),
            ("GET", "/v1/responses/resp_1", Route::Model(Provider::OpenAiResponses)),
            ("POST", "/v1beta/models/gemini-pro:generateContent", Route::Model(Provider::Google)),
            ("POST", "/v1beta/models/gemini-pro:streamGenerateContent", Route::Model(Provider::Google)),
            ("POST", "/v1beta/models/gemini-pro:countTokens", Route::Beside(Provider::Google)),
            ("POST", "/v1/messages/count_tokens", Route::Beside(Provider::Anthropic)),
            ("POST", "/v1/messages/batches", Route::Beside(Provider::Anthropic)),
            ("GET", "/v1/models", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/v1/models/x", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/", Route::Beside(Provider::Anthropic)),
            ("POST", "/v1/models/x", Route::Unknown),
            ("GET", "/v1/messages", Route::Unknown),
            ("POST", "/v1messages", Route::Unknown),
            ("POST", "/v1/complete", Route::Unknown),
            ("POST", "/api/chat", Route::Unknown),
            ("POST", "/api/event_logging", Route::Unknown),
            // What can be read in several ways is no route that anybody knows.
            ("POST", "//v1/messages", Route::Unknown),
            ("POST", "/v1//messages", Route::Unknown),
            ("POST", "/files/../v1/messages", Route::Unknown),
            ("POST", "/v1/files/%2e%2e/messages", Route::Unknown),
            ("POST", "/v1%2fmessages", Route::Unknown),
            ("POST", "/v1/messages;x", Route::Unknown),
            ("POST", "/v1/messages%00", Route::Unknown),
            ("POST", "/v1/%ff", Route::Unknown),
            ("POST", "*", Route::Unknown),
        ] {
            assert_eq!(route(method, path), expected, "{method} {path}");
        }
    }
}
