//! Which API a request is for. The path alone says so: a header can be anything.

/// Whose API is spoken, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The model answers: calls and texts are judged.
    Model(Provider),
    /// A route of the API in which no model speaks.
    Beside(Provider),
    /// Nobody knows what goes through there.
    Unknown,
}

/// `path` is without its query.
#[must_use]
pub fn route(method: &str, path: &str) -> Route {
    let path = path.trim_end_matches('/');
    let path = path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path);
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match (method, path) {
        ("POST", "/messages") => Route::Model(Provider::Anthropic),
        ("POST", "/chat/completions") => Route::Model(Provider::OpenAiChat),
        ("POST", "/responses") => Route::Model(Provider::OpenAiResponses),
        ("POST", "/messages/count_tokens") => Route::Beside(Provider::Anthropic),
        ("HEAD" | "GET", "") => Route::Beside(Provider::Anthropic),
        ("GET" | "POST" | "DELETE", _) if matches!(first, "models" | "files") => {
            Route::Beside(Provider::OpenAiChat)
        }
        // A batch is judged by nobody when its results are fetched.
        _ => Route::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_whose_api_it_is() {
        for (method, path, expected) in [
            ("POST", "/v1/messages", Route::Model(Provider::Anthropic)),
            ("POST", "/v1/chat/completions", Route::Model(Provider::OpenAiChat)),
            ("POST", "/chat/completions/", Route::Model(Provider::OpenAiChat)),
            ("POST", "/v1/responses", Route::Model(Provider::OpenAiResponses)),
            ("POST", "/v1/messages/count_tokens", Route::Beside(Provider::Anthropic)),
            ("GET", "/v1/models", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/v1/models/x", Route::Beside(Provider::OpenAiChat)),
            ("GET", "/v1/messages", Route::Unknown),
            ("POST", "/v1/messages/batches", Route::Unknown),
            ("POST", "/v1messages", Route::Unknown),
            ("POST", "/api/event_logging", Route::Unknown),
        ] {
            assert_eq!(route(method, path), expected, "{method} {path}");
        }
    }
}
