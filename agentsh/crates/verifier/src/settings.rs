//! Which registry is asked, and how: from the policy, or from the user's `KIJI_SAFEGUARD_*` variables.

use std::collections::BTreeMap;
use std::time::Duration;

use url::Url;

use agentsh_base::types::RuleRef;
use agentsh_fleet::key_files::HostFile;
use agentsh_policy::{FLEET_REGISTRY, InterfacePolicy, OnUnreachable, RegistryMode};

const REGISTRY: &str = "http://127.0.0.1:8000";
const WAIT: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_secs(3);
/// The longest wait of the environment, in seconds.
const MAX_SECONDS: f64 = 24.0 * 3600.0;

/// The requested verification.
#[derive(Clone, Debug)]
pub struct Settings {
    pub base: String,
    pub mode: RegistryMode,
    pub enforce: bool,
    pub on_unreachable: OnUnreachable,
    /// How long a person may take.
    pub wait: Duration,
    /// How often the registry is asked whether a person has decided.
    pub poll: Duration,
    pub names: BTreeMap<String, String>,
    pub token: Option<String>,
    /// Signs instead of a token: the registry is that of the fleet.
    pub host: Option<HostFile>,
    pub rule: RuleRef,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    #[error("{name} is '{value}', which is not a mode; write auto, verify, register, approval or off")]
    Mode { name: String, value: String },
    #[error("{name} is '{value}'; write 1 or 0, true or false")]
    Switch { name: &'static str, value: String },
    #[error("{name} is '{value}'; it must be a number of seconds from 0 to 86400")]
    Seconds { name: &'static str, value: String },
    #[error("{name} is '{value}', which is not an http or https URL")]
    Url { name: String, value: String },
    #[error("{rule} names the variable {name}, which is not set")]
    Token { rule: String, name: String },
    #[error(
        "{0} asks the registry of the fleet, and this host is not enrolled: `agentsh fleet enrol`, or name another registry"
    )]
    NotEnrolled(String),
    #[error("{0} asks the registry of the fleet, which uses no token: remove `token_env`")]
    FleetToken(String),
}

impl Settings {
    /// None: no registry is asked. A policy that has the section is all that counts; without it the environment does. `host`:
    /// this one, where it is enrolled at a fleet.
    ///
    /// # Errors
    /// When the policy or the environment asks for something impossible.
    pub fn of(
        policy: &InterfacePolicy,
        env: &BTreeMap<String, String>,
        host: impl FnOnce() -> Option<HostFile>,
    ) -> Result<Option<Self>, SettingsError> {
        let settings = if policy.is_written() { Some(of_policy(policy, env)?) } else { of_environment(env)? };
        let settings = settings.map(|settings| settings.at_fleet(policy, host)).transpose()?;
        let Some(settings) = settings.filter(|settings| settings.mode != RegistryMode::Off) else {
            return Ok(None);
        };
        if settings.registry_address().is_none() {
            return Err(SettingsError::Url { name: settings.rule.to_string(), value: settings.base });
        }
        Ok(Some(settings))
    }

    fn at_fleet(
        mut self,
        policy: &InterfacePolicy,
        host: impl FnOnce() -> Option<HostFile>,
    ) -> Result<Self, SettingsError> {
        let Some(named) = policy.registry.as_ref().filter(|named| named.value == FLEET_REGISTRY) else {
            return Ok(self);
        };
        if self.mode == RegistryMode::Off {
            return Ok(self);
        }
        if self.token.is_some() {
            return Err(SettingsError::FleetToken(named.rule.to_string()));
        }
        let host = host().ok_or_else(|| SettingsError::NotEnrolled(named.rule.to_string()))?;
        self.base = format!("{}/registry", host.url.trim_end_matches('/'));
        self.host = Some(host);
        Ok(self)
    }

    /// Host and port of the registry.
    #[must_use]
    pub fn registry_address(&self) -> Option<(String, u16)> {
        let url = Url::parse(&self.base).ok()?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some((host, url.port_or_known_default()?))
    }
}

fn of_policy(policy: &InterfacePolicy, env: &BTreeMap<String, String>) -> Result<Settings, SettingsError> {
    let token = match &policy.token_env {
        None => None,
        Some(name) => match env.get(&name.value) {
            Some(token) => Some(token.clone()),
            None => {
                let (rule, name) = (name.rule.to_string(), name.value.clone());
                return Err(SettingsError::Token { rule, name });
            }
        },
    };
    let mode = policy.mode.as_ref().map_or(RegistryMode::Auto, |mode| mode.value);
    let rules = [
        policy.mode.as_ref().map(|value| &value.rule),
        policy.registry.as_ref().map(|value| &value.rule),
        policy.enforce.as_ref().map(|value| &value.rule),
    ];
    Ok(Settings {
        base: policy.registry.as_ref().map_or(REGISTRY, |url| &url.value).to_owned(),
        mode,
        enforce: policy.enforce.as_ref().is_none_or(|flag| flag.value),
        on_unreachable: policy.on_unreachable.as_ref().map_or(OnUnreachable::Block, |word| word.value),
        wait: policy.wait.as_ref().map_or(WAIT, |wait| Duration::from_millis(wait.value)),
        poll: POLL,
        names: policy.names.iter().map(|(id, name)| (id.clone(), name.value.clone())).collect(),
        token,
        host: None,
        rule: rules
            .into_iter()
            .flatten()
            .next()
            .cloned()
            .unwrap_or_else(|| RuleRef::default_rule("interface")),
    })
}

/// The settings of the environment, as kiji-safeguard documents them, except that an invalid value is an error.
fn of_environment(env: &BTreeMap<String, String>) -> Result<Option<Settings>, SettingsError> {
    const MODE: &str = "KIJI_SAFEGUARD_MODE";
    const URL: &str = "KIJI_SAFEGUARD_REGISTRY";
    const ENFORCE: &str = "KIJI_SAFEGUARD_ENFORCE";
    let said = |name: &str| env.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let rule = [MODE, URL, ENFORCE].into_iter().find(|name| said(name).is_some());
    let Some(named) = rule else { return Ok(None) };
    let mode = match said(MODE).map(str::to_lowercase) {
        None => RegistryMode::Auto,
        Some(word) => match RegistryMode::WORDS.iter().find(|(known, _)| *known == word) {
            Some((_, mode)) => *mode,
            None => return Err(SettingsError::Mode { name: MODE.to_owned(), value: word }),
        },
    };
    let seconds = |name: &'static str, default: Duration| match said(name) {
        None => Ok(default),
        Some(value) => match value.parse::<f64>() {
            Ok(seconds) if (0.0..=MAX_SECONDS).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
            _ => Err(SettingsError::Seconds { name, value: value.to_owned() }),
        },
    };
    let enforce = match said(ENFORCE).map(str::to_lowercase).as_deref() {
        Some("1" | "true" | "yes" | "on") => true,
        None | Some("0" | "false" | "no" | "off") => false,
        Some(word) => return Err(SettingsError::Switch { name: ENFORCE, value: word.to_owned() }),
    };
    Ok(Some(Settings {
        base: said(URL).unwrap_or(REGISTRY).to_owned(),
        mode,
        enforce,
        on_unreachable: if enforce { OnUnreachable::Block } else { OnUnreachable::Warn },
        wait: seconds("KIJI_SAFEGUARD_APPROVAL_TIMEOUT", WAIT)?,
        poll: seconds("KIJI_SAFEGUARD_APPROVAL_POLL_INTERVAL", POLL)?.max(Duration::from_millis(100)),
        names: BTreeMap::new(),
        token: None,
        host: None,
        rule: RuleRef { id: named.to_owned(), file: "environment".to_owned(), line: 0 },
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn of(env: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::of(&InterfacePolicy::default(), &env, || None)
    }

    #[test]
    fn registry_variables_are_read_as_documented() {
        assert!(of(&[]).unwrap().is_none());
        assert!(of(&[("KIJI_SAFEGUARD_DB", "x")]).unwrap().is_none());
        let plain = of(&[("KIJI_SAFEGUARD_MODE", " Verify ")]).unwrap().unwrap();
        assert_eq!((plain.mode, plain.enforce, plain.wait), (RegistryMode::Verify, false, WAIT));
        assert_eq!(plain.base, REGISTRY);
        let strict =
            of(&[("KIJI_SAFEGUARD_ENFORCE", "TRUE"), ("KIJI_SAFEGUARD_REGISTRY", "https://r.example")]);
        let strict = strict.unwrap().unwrap();
        assert_eq!((strict.mode, strict.enforce), (RegistryMode::Auto, true));
        assert_eq!(strict.registry_address().unwrap(), ("r.example".to_owned(), 443));
        assert!(of(&[("KIJI_SAFEGUARD_MODE", "off"), ("KIJI_SAFEGUARD_ENFORCE", "1")]).unwrap().is_none());
        let waits = of(&[("KIJI_SAFEGUARD_MODE", "approval"), ("KIJI_SAFEGUARD_APPROVAL_TIMEOUT", "0.5")]);
        assert_eq!(waits.unwrap().unwrap().wait, Duration::from_millis(500));
    }

    #[test]
    fn malformed_registry_variables_are_an_error() {
        assert!(matches!(of(&[("KIJI_SAFEGUARD_MODE", "enforce")]), Err(SettingsError::Mode { .. })));
        assert!(matches!(of(&[("KIJI_SAFEGUARD_ENFORCE", "maybe")]), Err(SettingsError::Switch { .. })));
        assert!(!of(&[("KIJI_SAFEGUARD_ENFORCE", "no")]).unwrap().unwrap().enforce);
        for wait in ["soon", "-1", "nan", "1e9"] {
            let read = of(&[("KIJI_SAFEGUARD_MODE", "auto"), ("KIJI_SAFEGUARD_APPROVAL_TIMEOUT", wait)]);
            assert!(matches!(read, Err(SettingsError::Seconds { .. })), "{wait}");
        }
        assert!(matches!(of(&[("KIJI_SAFEGUARD_REGISTRY", "nowhere")]), Err(SettingsError::Url { .. })));
    }
}
