//! Model providers, for agents that work with any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::{AgentError, Context, Endpoint, endpoint};

struct Provider {
    /// Its name in files with logins and in the names of models.
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

/// Providers with which the user has an account, and providers whose address is changed, according to the environment.
///
/// # Errors
/// The base URL is invalid.
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

/// Further keys of a provider, and where else a user may say that it is: only that agents know both.
const EXTRA_PROVIDER_KEYS: &[(&str, &[&str], &[&str])] = &[
    (
        "anthropic",
        &["CLAUDE_CODE_OAUTH_TOKEN"],
        &["ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL"],
    ),
    ("openai", &["CODEX_API_KEY"], &["openai_base_url"]),
    ("google", &[], &["GOOGLE_VERTEX_BASE_URL", "Vertex AI"]),
];

/// Whether the key in this variable is for that place: it is the provider's own, or the user has said that the provider is
/// there, by the environment or by what the agent reads.
#[must_use]
pub fn is_for(variable: &str, endpoint: &Endpoint, env: &BTreeMap<String, String>) -> bool {
    let further = |name: &str| EXTRA_PROVIDER_KEYS.iter().find(|(provider, ..)| *provider == name);
    let has_key = |provider: &&Provider| {
        provider.keys.contains(&variable)
            || further(provider.name).is_some_and(|(_, keys, _)| keys.contains(&variable))
    };
    let is_there = |name: &&str| {
        let url = env.get(*name).filter(|url| !url.is_empty());
        let moved = url.and_then(|url| from_url(url, name).ok());
        endpoint.why == **name
            || moved.is_some_and(|moved| (&moved.host, moved.port) == (&endpoint.host, endpoint.port))
    };
    endpoint.key.as_deref() == Some(variable)
        || PROVIDERS.iter().find(has_key).is_some_and(|provider| {
            let names = further(provider.name).map_or(&[][..], |(.., names)| names);
            endpoint.host == provider.host || provider.moved.iter().chain(names).any(is_there)
        })
}

/// The endpoint of a value of the environment. Some take a host and a port without a scheme.
pub(super) fn from_url(url: &str, name: &str) -> Result<Endpoint, AgentError> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    endpoint::parse(&whole, name)
        .map_err(|what| AgentError::CommandLine { what, fix: format!("correct {name}") })
}

/// The providers whose names are keys of a login file.
pub(super) fn of_logins(logins: &Value) -> Vec<Endpoint> {
    let names = logins.as_object().into_iter().flatten().map(|(name, _)| name);
    let known = |name: &String| PROVIDERS.iter().find(|provider| provider.name == name);
    names.filter_map(known).map(|provider| endpoint::https(provider.host, provider.name)).collect()
}

/// The providers of the models that a value names: `anthropic/MODEL` as a model, `anthropic` as a provider.
pub(super) fn add_named_providers(name: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, inner)| add_named_providers(name, inner, into))
        }
        Value::Array(items) => items.iter().for_each(|item| add_named_providers(name, item, into)),
        Value::String(text) => {
            let name = name.to_ascii_lowercase();
            let provider =
                text.split_once('/').map(|(provider, _)| provider).filter(|_| name.ends_with("model"));
            into.extend(
                provider.or(Some(text.as_str()).filter(|_| name.ends_with("provider"))).map(str::to_owned),
            );
        }
        _ => {}
    }
}

/// The providers that command-line options name.
pub(super) fn chosen_by(words: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let next = words.iter().skip(1).map(String::as_str).chain([""]);
    for (word, next) in words.iter().zip(next) {
        let (option, value) = word.split_once('=').unwrap_or((word, next));
        let option = if option == "-m" { "--model" } else { option };
        if option.starts_with("--") {
            add_named_providers(option, &value.into(), &mut found);
        }
    }
    found
}

/// Base URLs anywhere in the user's own configuration. An invalid one is reported.
pub(super) fn of_configuration(document: &Value, file: &Path, notes: &mut Vec<String>) -> Vec<Endpoint> {
    let mut found = Vec::new();
    collect_endpoints(document, file, &mut found, notes);
    found
}

fn collect_endpoints(value: &Value, file: &Path, found: &mut Vec<Endpoint>, notes: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, inner) in members {
                let plain = super::plain_key(name);
                let is_address = ["baseurl", "apibase", "openaihost"].iter().any(|end| plain.ends_with(end));
                match inner.as_str().filter(|url| is_address && url.contains("://")) {
                    Some(url) => match endpoint::parse(url, &format!("{name} of {}", file.display())) {
                        Ok(endpoint) => found.push(endpoint),
                        Err(why) => notes.push(why),
                    },
                    None => collect_endpoints(inner, file, found, notes),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_endpoints(item, file, found, notes)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn api_key_belongs_to_its_provider_at_the_configured_url() {
        let env = |name: &str, url: &str| BTreeMap::from([(name.to_owned(), url.to_owned())]);
        let none = BTreeMap::new();
        let own = endpoint::https("api.anthropic.com", "anthropic");
        for key in ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"] {
            assert!(is_for(key, &own, &none), "{key}");
        }
        assert!(!is_for("OPENAI_API_KEY", &own, &none) && !is_for("UNKNOWN", &own, &none));
        let gateway = endpoint::parse("http://127.0.0.1:4000/v1", "baseURL of a file").unwrap();
        assert!(!is_for("OPENAI_API_KEY", &gateway, &none));
        assert!(is_for("OPENAI_API_KEY", &gateway, &env("OPENAI_BASE_URL", "http://127.0.0.1:4000")));
        assert!(!is_for("OPENAI_API_KEY", &gateway, &env("OPENAI_BASE_URL", "http://127.0.0.1:4001")));
        assert!(!is_for("OPENAI_API_KEY", &gateway, &env("ANTHROPIC_BASE_URL", "http://127.0.0.1:4000")));
        let of_settings = endpoint::parse("https://gate.example", "ANTHROPIC_BASE_URL").unwrap();
        assert!(is_for("ANTHROPIC_AUTH_TOKEN", &of_settings, &none));
        let named = Endpoint { key: Some("OPENROUTER_API_KEY".to_owned()), ..gateway };
        assert!(is_for("OPENROUTER_API_KEY", &named, &none) && !is_for("OPENAI_API_KEY", &named, &none));
    }
}
