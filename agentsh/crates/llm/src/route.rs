//! The API of a request, from the end of its path, because gateways add prefixes (`/anthropic/v1/messages`). Headers
//! are not trusted.

use agentsh_base::url_path::components;

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
    /// Ollama's own, line by line.
    Ollama,
}

/// Data that a provider stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredData {
    /// Questions, in the body.
    Questions,
    /// Questions, in a file at the provider.
    Batch,
    File,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A model answers: calls and texts are judged.
    Model(Provider),
    /// Another request of the API, without a model.
    Beside(Provider),
    /// The same, but with text for a model: token counting, embeddings.
    Measured(Provider),
    /// Deferred questions and files, neither counted nor searched.
    Left(Provider, StoredData),
    /// Stored output of models: batch results, and files that may contain them.
    Kept(Provider),
    /// Unknown, or a path with several readings.
    Unknown,
}

/// `path` without the query.
#[must_use]
pub fn route(method: &str, path: &str) -> Route {
    let Some(parts) = components(path) else { return Route::Unknown };
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let parts = parts.strip_suffix(&[""]).unwrap_or(&parts);
    // Stored output first: a file id can be any word, also a model endpoint's.
    if let Some(provider) = stored_answer_provider(method, parts) {
        return Route::Kept(provider);
    }
    if let Some(route) = model_route(method, parts) {
        return route;
    }
    let measured = || counting_provider(method, parts).map(Route::Measured);
    let left = || stored_data_route(method, parts).map(|(provider, later)| Route::Left(provider, later));
    let beside = || account_provider(method, parts).map(Route::Beside);
    measured().or_else(left).or_else(beside).unwrap_or(Route::Unknown)
}

impl Route {
    /// The API, if known.
    #[must_use]
    pub fn provider(self) -> Option<Provider> {
        match self {
            Self::Model(provider)
            | Self::Beside(provider)
            | Self::Measured(provider)
            | Self::Left(provider, _)
            | Self::Kept(provider) => Some(provider),
            Self::Unknown => None,
        }
    }
}

/// The route of a request that a model answers now or has answered earlier.
fn model_route(method: &str, parts: &[&str]) -> Option<Route> {
    let provider = match (method, parts) {
        ("POST", [.., "messages"]) => Provider::Anthropic,
        ("POST", [.., "chat", "completions"]) => Provider::OpenAiChat,
        ("POST", [.., "api", "chat" | "generate"]) => Provider::Ollama,
        // A stored answer.
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

fn counting_provider(method: &str, parts: &[&str]) -> Option<Provider> {
    match (method, parts) {
        ("POST", [.., "messages", "count_tokens"]) => Some(Provider::Anthropic),
        ("POST", [.., "responses", "input_tokens"]) => Some(Provider::OpenAiResponses),
        ("POST", [.., last]) => match last.rsplit_once(':')?.1 {
            "countTokens" | "embedContent" | "batchEmbedContents" => Some(Provider::Google),
            "rawPredictCountTokens" => Some(Provider::Anthropic),
            _ => None,
        },
        _ => None,
    }
}

fn stored_data_route(method: &str, parts: &[&str]) -> Option<(Provider, StoredData)> {
    match (method, parts) {
        ("POST", [.., "messages", "batches"]) => Some((Provider::Anthropic, StoredData::Questions)),
        ("POST", [.., "batches"]) => Some((Provider::OpenAiChat, StoredData::Batch)),
        ("POST", [.., "files"]) => Some((Provider::OpenAiChat, StoredData::File)),
        _ => None,
    }
}

fn stored_answer_provider(method: &str, parts: &[&str]) -> Option<Provider> {
    match (method, parts) {
        ("GET", [.., "messages", "batches", _, "results"]) => Some(Provider::Anthropic),
        // Anthropic too: each answer's form shows its API.
        ("GET", [.., "files", _, "content"]) => Some(Provider::OpenAiChat),
        ("GET", [.., "messages", "batches", _]) => None,
        ("GET", [.., "batches", _]) => Some(Provider::OpenAiChat),
        ("GET", [.., "files", name]) if name.ends_with(":download") => Some(Provider::Google),
        _ => None,
    }
}

/// Code Assist's methods without a model.
const CODE_ASSIST: [&str; 7] = [
    "fetchAdminControls",
    "getCodeAssistGlobalUserSetting",
    "listExperiments",
    "loadCodeAssist",
    "onboardUser",
    "retrieveUserQuota",
    "setCodeAssistGlobalUserSetting",
];

fn account_provider(method: &str, parts: &[&str]) -> Option<Provider> {
    let provider = match (method, parts) {
        // Gemini CLI's account requests before the first question.
        ("POST", [.., last])
            if last.strip_prefix("v1internal:").is_some_and(|name| CODE_ASSIST.contains(&name)) =>
        {
            Provider::Google
        }
        ("HEAD" | "GET", [])
        | ("GET", [.., "messages", "batches"])
        | ("GET" | "DELETE", [.., "messages", "batches", _])
        | ("POST", [.., "messages", "batches", _, "cancel"]) => Provider::Anthropic,
        ("GET", [.., "models"] | [.., "models", _])
        | ("DELETE", [.., "models", _] | [.., "files", _] | [.., "responses", _])
        | ("GET", [.., "files"] | [.., "batches"])
        | ("GET", [.., "files", _])
        | ("GET", [.., "responses", _, "input_items"])
        | ("POST", [.., "batches", _, "cancel"]) => Provider::OpenAiChat,
        _ => return None,
    };
    Some(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_recognised_by_the_request_path() {
        for (method, path, expected) in [
            ("POST", "/v1/messages", Route::Model(Provider::Anthropic)),
            ("GET", "/v1/files/responses/content", Route::Kept(Provider::OpenAiChat)),
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
            ("POST", "/v1beta/models/gemini-pro:countTokens", Route::Measured(Provider::Google)),
            ("POST", "/v1beta/models/gemini-pro:batchEmbedContents", Route::Measured(Provider::Google)),
            ("POST", "/v1/messages/count_tokens", Route::Measured(Provider::Anthropic)),
            ("POST", "/v1/responses/input_tokens", Route::Measured(Provider::OpenAiResponses)),
            ("POST", "/v1/messages/batches", Route::Left(Provider::Anthropic, StoredData::Questions)),
            ("GET", "/v1/messages/batches", Route::Beside(Provider::Anthropic)),
            ("POST", "/v1/messages/batches/b/cancel", Route::Beside(Provider::Anthropic)),
            ("POST", "/v1/batches", Route::Left(Provider::OpenAiChat, StoredData::Batch)),
            ("POST", "/v1/files/", Route::Left(Provider::OpenAiChat, StoredData::File)),
            ("POST", "/upload/v1beta/files", Route::Left(Provider::OpenAiChat, StoredData::File)),
            ("GET", "/v1/files", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/v1/messages/batches/b/results", Route::Kept(Provider::Anthropic)),
            ("GET", "/v1/messages/batches/b", Route::Beside(Provider::Anthropic)),
            ("GET", "/v1/files/f/content", Route::Kept(Provider::OpenAiChat)),
            ("GET", "/v1/batches/b", Route::Kept(Provider::OpenAiChat)),
            ("GET", "/download/v1beta/files/f:download", Route::Kept(Provider::Google)),
            ("GET", "/v1/files/f", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/v1/models", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/v1/models/x", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/", Route::Beside(Provider::Anthropic)),
            ("POST", "/v1internal:loadCodeAssist", Route::Beside(Provider::Google)),
            ("POST", "/v1internal:streamGenerateContent", Route::Model(Provider::Google)),
            ("POST", "/v1internal:other", Route::Unknown),
            ("POST", "/v1/models/x", Route::Unknown),
            ("GET", "/v1/messages", Route::Unknown),
            ("POST", "/v1messages", Route::Unknown),
            ("POST", "/v1/complete", Route::Unknown),
            ("POST", "/api/chat", Route::Model(Provider::Ollama)),
            ("POST", "/api/generate", Route::Model(Provider::Ollama)),
            ("POST", "/api/event_logging", Route::Unknown),
            // A path that can be read in several ways is not a known route.
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
