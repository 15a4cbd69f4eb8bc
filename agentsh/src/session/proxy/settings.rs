//! The proxy's environment variables, as `@exfil/canary` has them, parsed strictly.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use agentsh_content::content::LIFETIME;
use agentsh_policy::OnFlow;

#[derive(Clone)]
pub struct Settings {
    pub config: Option<PathBuf>,
    /// None: the policy's.
    pub mode: Option<OnFlow>,
    pub webhook: Option<String>,
    pub webhook_secret: Option<Secret>,
    pub token_ttl: Duration,
    pub persist_path: Option<PathBuf>,
    /// Messages are only recorded.
    pub is_quiet: bool,
    /// The key for `canary__get_report`.
    pub key: Option<Secret>,
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("{name} is '{value}'; it must be {wanted}")]
    Wrong { name: &'static str, value: String, wanted: &'static str },
    #[error("CANARY_MCP_RESPONSE_MODE is alert, which needs CANARY_MCP_ALERT_WEBHOOK")]
    NoWebhook,
}

impl Settings {
    /// Parses the variables; empty ones count as unset.
    ///
    /// # Errors
    /// An undocumented value, shown unless secret.
    pub fn read(env: &BTreeMap<String, String>) -> Result<Self, SettingsError> {
        let text = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        let mode = parse_word(
            env,
            "CANARY_MCP_RESPONSE_MODE",
            &[("log", OnFlow::Allow), ("halt", OnFlow::Block), ("alert", OnFlow::Alert)],
            "log, halt or alert",
        )?;
        // All messages except fatal ones are warnings.
        let levels = [("debug", false), ("info", false), ("warn", false), ("error", true)];
        let is_quiet = parse_word(env, "CANARY_MCP_LOG_LEVEL", &levels, "debug, info, warn or error")?;
        let token_ttl = match text("CANARY_MCP_TOKEN_TTL") {
            None => LIFETIME,
            Some(value) => match value.parse::<u64>() {
                Ok(seconds) if (60..=86_400).contains(&seconds) => Duration::from_secs(seconds),
                _ => return Err(invalid_setting("CANARY_MCP_TOKEN_TTL", &value, "60 to 86400 seconds")),
            },
        };
        let webhook = text("CANARY_MCP_ALERT_WEBHOOK");
        if let Some(url) = webhook.as_ref().filter(|url| !url.starts_with("https://")) {
            return Err(invalid_setting("CANARY_MCP_ALERT_WEBHOOK", url, "an https:// address"));
        }
        if mode == Some(OnFlow::Alert) && webhook.is_none() {
            return Err(SettingsError::NoWebhook);
        }
        Ok(Self {
            config: text("CANARY_MCP_PROXY_CONFIG").map(PathBuf::from),
            mode,
            webhook,
            webhook_secret: text("CANARY_MCP_WEBHOOK_SECRET").map(Secret),
            token_ttl,
            persist_path: text("CANARY_MCP_PERSIST_PATH").map(PathBuf::from),
            is_quiet: is_quiet.unwrap_or(false),
            key: text("CANARY_MCP_MGMT_KEY").map(Secret),
        })
    }
}

fn parse_word<T: Copy>(
    env: &BTreeMap<String, String>,
    name: &'static str,
    words: &[(&str, T)],
    wanted: &'static str,
) -> Result<Option<T>, SettingsError> {
    match env.get(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => match words.iter().find(|(word, _)| word == value) {
            Some((_, found)) => Ok(Some(*found)),
            None => Err(invalid_setting(name, value, wanted)),
        },
    }
}

fn invalid_setting(name: &'static str, value: &str, wanted: &'static str) -> SettingsError {
    let value: String = value.chars().take(64).collect();
    SettingsError::Wrong { name, value: agentsh_store::escape::line(&value).into_owned(), wanted }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let env = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::read(&env).map_err(|error| error.to_string())
    }

    #[test]
    fn unset_proxy_variables_leave_the_mode_to_the_policy() {
        let settings = read(&[("CANARY_MCP_MGMT_KEY", "")]).unwrap();
        assert_eq!(settings.mode, None);
        assert_eq!(settings.token_ttl, Duration::from_secs(3600));
        assert!(settings.key.is_none() && settings.config.is_none());
    }

    #[test]
    fn values_outside_of_what_is_documented_are_refused() {
        for (name, value, part) in [
            ("CANARY_MCP_RESPONSE_MODE", "HALT", "log, halt or alert"),
            ("CANARY_MCP_TOKEN_TTL", "59", "60 to 86400"),
            ("CANARY_MCP_TOKEN_TTL", "86401", "60 to 86400"),
            ("CANARY_MCP_TOKEN_TTL", "1h", "60 to 86400"),
            ("CANARY_MCP_LOG_LEVEL", "verbose", "debug, info"),
            ("CANARY_MCP_ALERT_WEBHOOK", "http://a", "https://"),
        ] {
            let Err(message) = read(&[(name, value)]) else { panic!("{name}={value}") };
            assert!(message.contains(name) && message.contains(part), "{message}");
        }
        assert!(read(&[("CANARY_MCP_RESPONSE_MODE", "alert")]).is_err());
        assert!(read(&[("CANARY_MCP_TOKEN_TTL", "60")]).is_ok());
    }
}
