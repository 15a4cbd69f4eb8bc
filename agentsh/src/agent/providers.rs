//! Who serves models: for agents that talk to whichever provider the user has an account with.

use std::path::Path;

use serde_json::Value;

use super::{AgentError, Context, Endpoint, endpoint};

struct Provider {
    /// In files that hold logins, and in the names of models.
    name: &'static str,
    /// Any of them: the user has an account there.
    keys: &'static [&'static str],
    /// The first that is set moves it.
    moved: &'static [&'static str],
    host: &'static str,
}

const fn of(
    name: &'static str,
    keys: &'static [&'static str],
    moved: &'static [&'static str],
    host: &'static str,
) -> Provider {
    Provider { name, keys, moved, host }
}

const PROVIDERS: &[Provider] = &[
    of(
        "anthropic",
        &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
        &["ANTHROPIC_BASE_URL", "ANTHROPIC_HOST"],
        "api.anthropic.com",
    ),
    of(
        "openai",
        &["OPENAI_API_KEY"],
        &["OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_HOST"],
        "api.openai.com",
    ),
    of(
        "google",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"],
        &["GOOGLE_GEMINI_BASE_URL"],
        "generativelanguage.googleapis.com",
    ),
    of("openrouter", &["OPENROUTER_API_KEY"], &["OPENROUTER_API_BASE", "OPENROUTER_HOST"], "openrouter.ai"),
    of("deepseek", &["DEEPSEEK_API_KEY"], &["DEEPSEEK_API_BASE"], "api.deepseek.com"),
    of("mistral", &["MISTRAL_API_KEY"], &["MISTRAL_API_BASE"], "api.mistral.ai"),
    of("groq", &["GROQ_API_KEY"], &["GROQ_API_BASE", "GROQ_HOST"], "api.groq.com"),
    of("xai", &["XAI_API_KEY"], &["XAI_API_BASE", "XAI_HOST"], "api.x.ai"),
    of("cohere", &["COHERE_API_KEY"], &[], "api.cohere.com"),
    of("cerebras", &["CEREBRAS_API_KEY"], &[], "api.cerebras.ai"),
    of("fireworks-ai", &["FIREWORKS_API_KEY"], &[], "api.fireworks.ai"),
    of("togetherai", &["TOGETHER_API_KEY", "TOGETHERAI_API_KEY"], &[], "api.together.xyz"),
    of("zai", &["ZAI_API_KEY", "ZHIPU_API_KEY"], &[], "api.z.ai"),
    of("moonshotai", &["MOONSHOT_API_KEY"], &[], "api.moonshot.ai"),
    of("dashscope", &["DASHSCOPE_API_KEY"], &[], "dashscope.aliyuncs.com"),
    of("opencode", &["OPENCODE_API_KEY"], &[], "opencode.ai"),
    of("github-copilot", &[], &[], "api.githubcopilot.com"),
    of("ollama", &[], &["OLLAMA_API_BASE", "OLLAMA_HOST", "OLLAMA_BASE_URL"], "localhost"),
    of("lmstudio", &[], &["LM_STUDIO_API_BASE", "LMSTUDIO_BASE_URL"], "localhost"),
];

/// Those with which the user has an account, by his environment, and those that his environment moves.
///
/// # Errors
/// For a base URL that is none.
pub(super) fn of_environment(context: &Context<'_>) -> Result<Vec<Endpoint>, AgentError> {
    let value = |name: &&&str| context.env.get(**name).filter(|value| !value.is_empty());
    let mut found = Vec::new();
    for provider in PROVIDERS {
        let moved = provider.moved.iter().find(|name| value(name).is_some());
        match moved.and_then(|name| Some((name, value(&name)?))) {
            Some((name, url)) => found.push(from_url(url, name)?),
            None if provider.keys.iter().any(|name| value(&name).is_some()) => {
                found.push(endpoint::https(provider.host, provider.name));
            }
            None => {}
        }
    }
    Ok(found)
}

/// The endpoint of a value of the environment. Some take a host and a port without a scheme.
pub(super) fn from_url(url: &str, name: &str) -> Result<Endpoint, AgentError> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    endpoint::parse(&whole, name)
        .map_err(|what| AgentError::CommandLine { what, fix: format!("correct {name}") })
}

/// Those whose names are keys of a file of logins.
pub(super) fn of_logins(logins: &Value) -> Vec<Endpoint> {
    let names = logins.as_object().into_iter().flatten().map(|(name, _)| name);
    let known = |name: &String| PROVIDERS.iter().find(|provider| provider.name == name);
    names.filter_map(known).map(|provider| endpoint::https(provider.host, provider.name)).collect()
}

/// Base URLs anywhere in the user's own configuration. One that cannot be read is told.
pub(super) fn of_configuration(document: &Value, file: &Path, notes: &mut Vec<String>) -> Vec<Endpoint> {
    let mut found = Vec::new();
    below(document, file, &mut found, notes);
    found
}

fn below(value: &Value, file: &Path, found: &mut Vec<Endpoint>, notes: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
                let plain = plain.to_ascii_lowercase();
                let is_address = ["baseurl", "apibase", "openaihost"].iter().any(|end| plain.ends_with(end));
                match inner.as_str().filter(|url| is_address && url.contains("://")) {
                    Some(url) => match endpoint::parse(url, &format!("{name} of {}", file.display())) {
                        Ok(endpoint) => found.push(endpoint),
                        Err(why) => notes.push(why),
                    },
                    None => below(inner, file, found, notes),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| below(item, file, found, notes)),
        _ => {}
    }
}
