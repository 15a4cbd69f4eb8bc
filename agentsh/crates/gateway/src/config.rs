//! `gateway.yaml`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use jsonwebtoken::Algorithm;
use serde::Deserialize;

/// Larger files are refused.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {file}: {source}")]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{file}: larger than 1 MiB")]
    TooLarge { file: PathBuf },
    #[error("{file}: {why}")]
    Wrong { file: PathBuf, why: String },
}

/// The configuration file. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Listening address; 127.0.0.1:8808 by default.
    #[serde(default = "listen")]
    pub listen: SocketAddr,
    /// PEM files. Without them only on a loopback address, unless `behind_proxy`.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// A proxy in front terminates TLS.
    #[serde(default)]
    pub behind_proxy: bool,
    /// The URL for clients, for metadata: `https://mcp.example.com`.
    #[serde(default)]
    pub public_url: Option<String>,
    /// Permitted Host names besides `localhost`, loopback addresses and that of `public_url`.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Permitted origins of web pages. A request without Origin is from no page.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Networks that may connect; all if empty.
    #[serde(default)]
    pub allow_from: Vec<IpNet>,
    #[serde(default)]
    pub auth: Auth,
    #[serde(default)]
    pub limits: Limits,
    /// A policy file, or a built-in policy's name.
    #[serde(default)]
    pub policy: Option<String>,
    /// The approvals page, shown to clients that can open URLs. `{id}` is the question.
    #[serde(default)]
    pub approvals_page: Option<String>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// No authentication. Only on a loopback address.
    #[serde(default)]
    pub open: bool,
    /// The file of key hashes; next to the configuration by default.
    #[serde(default)]
    pub keys: Option<PathBuf>,
    /// Bearer tokens of an authorization server.
    #[serde(default)]
    pub oauth: Option<OAuth>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth {
    /// The `iss` of tokens.
    pub issuer: String,
    /// The `aud` of tokens; by default the endpoint's public URL.
    #[serde(default)]
    pub audience: Option<String>,
    /// A JSON Web Key Set, as a file or URL (`https:`, or `http:` on this machine). By default from the issuer's
    /// metadata.
    #[serde(default)]
    pub jwks: Option<String>,
    /// Permitted signature algorithms; all with public keys if empty.
    #[serde(default)]
    pub algorithms: Vec<Algorithm>,
    /// Scopes that a token needs.
    #[serde(default)]
    pub scopes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Limit of a client message, in bytes.
    pub message_bytes: usize,
    /// Requests per key and minute; 0 is unlimited.
    pub requests_per_minute: u32,
    /// Timeout for a request head, a message, and a TLS handshake.
    pub request_seconds: u64,
    /// Limit of client sessions, over all endpoints.
    pub sessions: usize,
    /// Limit of client sessions per key.
    pub sessions_per_key: usize,
    /// Connections at once; one address may have half of them.
    pub connections: usize,
    /// Idle client sessions end after this.
    pub idle_seconds: u64,
    /// How long requests may continue after SIGTERM.
    pub drain_seconds: u64,
    /// Limit of unread event bytes per session.
    pub unread_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 4 << 20,
            requests_per_minute: 1000,
            request_seconds: 30,
            sessions: 1000,
            sessions_per_key: 100,
            connections: 4096,
            idle_seconds: 1800,
            drain_seconds: 30,
            unread_bytes: 32 << 20,
        }
    }
}

/// One server, at `/mcp/ID`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    pub id: String,
    /// A remote server.
    #[serde(default)]
    pub url: Option<String>,
    /// Sent with each request; `${NAME}` is a variable of the gateway.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A local server in a sandbox, one process per client session.
    #[serde(default)]
    pub command: Option<String>,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// Whether client sessions share a server connection.
    #[serde(default)]
    pub shared: Sharing,
}

/// Which client sessions share a server connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// None. Requests without a session share one per key.
    #[default]
    No,
    /// Clients with the same key and equal capabilities.
    Key,
    /// All with equal capabilities: the server may pass data between clients.
    Everybody,
}

impl OAuth {
    /// The key set's file, if it is one.
    pub(crate) fn jwks_file(&self) -> Option<&Path> {
        self.jwks.as_deref().filter(|place| !place.contains("://")).map(Path::new)
    }
}

/// Limit of an endpoint's name, which is in paths and events.
const MAX_ID_BYTES: usize = 64;

fn listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8808))
}

impl Config {
    /// # Errors
    /// When the file cannot be read, has an unknown key, or is inconsistent.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { file: file.to_owned(), source };
        let size = std::fs::metadata(file).map_err(read)?.len();
        if size > MAX_FILE_BYTES {
            return Err(ConfigError::TooLarge { file: file.to_owned() });
        }
        let text = std::fs::read_to_string(file).map_err(read)?;
        agentsh_base::users_files::judged(file, "a configuration of the gateway", text.as_bytes())
            .map_err(|why| ConfigError::Wrong { file: file.to_owned(), why })?;
        Self::parse(&text, file)
    }

    /// # Errors
    /// Like [`Config::load`].
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let wrong = |why: String| ConfigError::Wrong { file: file.to_owned(), why };
        let mut config: Self = serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
        config.check().map_err(wrong)?;
        // Relative to the file's directory.
        let directory = file.parent().unwrap_or(Path::new("."));
        let place = |path: &mut PathBuf| *path = directory.join(&*path);
        if let Some(tls) = &mut config.tls {
            place(&mut tls.certificate);
            place(&mut tls.key);
        }
        if let Some(oauth) = &mut config.auth.oauth {
            let file = oauth.jwks_file().map(|file| directory.join(file).display().to_string());
            oauth.jwks = file.or(oauth.jwks.take());
        }
        config.auth.keys.get_or_insert_with(|| PathBuf::from("gateway-keys.json"));
        config.auth.keys.iter_mut().for_each(place);
        Ok(config)
    }

    /// This server's URL for clients.
    pub(crate) fn base(&self) -> String {
        let own = || {
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", self.listen)
        };
        self.public_url.as_deref().map_or_else(own, |url| url.trim_end_matches('/').to_owned())
    }

    /// An endpoint's URL, the audience of tokens.
    pub(crate) fn resource(&self, endpoint: &str) -> String {
        format!("{}/mcp/{endpoint}", self.base())
    }

    /// The file of key hashes.
    #[must_use]
    pub fn keys_file(&self) -> PathBuf {
        self.auth.keys.clone().unwrap_or_else(|| PathBuf::from("gateway-keys.json"))
    }

    fn check(&self) -> Result<(), String> {
        let is_here = self.listen.ip().is_loopback();
        if self.auth.open && !is_here {
            return Err(format!(
                "`auth: {{open: true}}` disables authentication, which is allowed only on a loopback address; `listen` is {}",
                self.listen
            ));
        }
        if self.tls.is_none() && !self.behind_proxy && !is_here {
            return Err(format!(
                "keys would be sent unencrypted: set `tls: {{certificate: FILE, key: FILE}}`, or `behind_proxy: true` \
                 where another server ends TLS, or listen on a loopback address (`listen` is {})",
                self.listen
            ));
        }
        if let Some(page) = &self.approvals_page
            && !page.starts_with("https://")
            && !page.starts_with("http://127.0.0.1")
            && !page.starts_with("http://localhost")
        {
            return Err("`approvals_page` must be an https URL, or a URL on this machine".to_owned());
        }
        let shared = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
        if self.auth.oauth.iter().flat_map(|oauth| &oauth.algorithms).any(|one| shared.contains(one)) {
            return Err("`algorithms`: tokens signed with a shared secret (HS*) are not supported".to_owned());
        }
        if self.endpoints.is_empty() {
            return Err("`endpoints` is empty: there is nothing to serve".to_owned());
        }
        let mut seen = std::collections::BTreeSet::new();
        self.endpoints.iter().try_for_each(|endpoint| {
            endpoint.check()?;
            if seen.insert(&endpoint.id) {
                Ok(())
            } else {
                Err(format!("two endpoints have the id '{}'", endpoint.id))
            }
        })
    }
}

impl Endpoint {
    fn check(&self) -> Result<(), String> {
        let Self { id, .. } = self;
        let is_plain = |id: &str| {
            id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        if id.is_empty() || id.len() > MAX_ID_BYTES || !is_plain(id) || id.starts_with('.') {
            return Err(format!(
                "'{}' is not an endpoint name: letters, digits, `-`, `_` and `.`, at most {MAX_ID_BYTES}",
                id.escape_debug()
            ));
        }
        match (&self.url, &self.command) {
            (Some(_), None) if self.args.is_empty() && self.env.is_empty() && self.cwd.is_none() => Ok(()),
            (Some(_), None) => Err(format!("endpoint '{id}': `args`, `env` and `cwd` need a `command`")),
            (None, Some(_)) if self.headers.is_empty() => Ok(()),
            (None, Some(_)) => Err(format!("endpoint '{id}': `headers` need a `url`")),
            _ => Err(format!("endpoint '{id}': set either `url` or `command`")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("/etc/agentsh/gateway.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn smallest_gateway_configuration_has_defaults() {
        let config = parse("endpoints: [{id: fs, command: npx, args: [server]}]").unwrap();
        assert_eq!(config.listen, listen());
        assert_eq!(config.keys_file(), Path::new("/etc/agentsh/gateway-keys.json"));
        assert_eq!(config.limits, Limits::default());
    }

    #[test]
    fn configuration_error_names_the_file_and_the_fault() {
        for (text, says) in [
            ("endpoints: []", "nothing to serve"),
            ("endpoints: [{id: a}]", "either `url` or `command`"),
            ("endpoints: [{id: a, url: 'https://a', args: [b]}]", "need a `command`"),
            ("endpoints: [{id: ../a, command: b}]", "not an endpoint name"),
            ("endpoints: [{id: a, command: b}, {id: a, command: c}]", "two endpoints"),
            ("endpoints: [{id: a, command: b}]\nlisten: 0.0.0.0:80", "unencrypted"),
            (
                "endpoints: [{id: a, command: b}]\nlisten: 0.0.0.0:80\nbehind_proxy: true\nauth: {open: true}",
                "disables authentication",
            ),
            ("endpoints: [{id: a, command: b}]\nlissten: 1", "lissten"),
            ("endpoints: [{id: a, command: b}]\nlimits: {sesions: 1}", "sesions"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(error.starts_with("/etc/agentsh/gateway.yaml: "), "{error}");
        }
    }
}
