//! Replaces placeholders by secrets in request headers. Pure.
//!
//! A placeholder is valid only in headers for credentials, on inspected TLS, to the host of its secret, in requests
//! that its entry allows. Any other request with a placeholder is refused, because it might reveal the secret.

use std::fmt;

use agentsh_egress::secret_search::SecretSearch;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem::Finder;

use super::http_head::overrides_request;
use super::http_host::{Refusal, Request};
use super::reason::Reason;
use crate::policy::{RequestRule, Ruled};
use crate::types::RuleRef;

/// Headers for secrets, besides `authorization`.
const HEADERS: [&str; 8] = [
    "private-token",
    "job-token",
    "deploy-token",
    "x-api-key",
    "x-auth-token",
    "x-gitlab-token",
    "x-jfrog-art-api",
    "x-nuget-apikey",
];

/// A secret, its placeholder and its permitted use.
#[derive(Clone)]
pub struct Credential {
    /// Normalised.
    pub host: String,
    pub port: u16,
    pub placeholder: String,
    /// The user name of the secret; None: the program's.
    pub user: Option<String>,
    pub secret: String,
    pub requests: Vec<Ruled<RequestRule>>,
    pub rule: RuleRef,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("host", &self.host).finish_non_exhaustive()
    }
}

/// All secrets of a session.
#[derive(Debug)]
pub struct Broker {
    credentials: Vec<Credential>,
    /// The common prefix of placeholders.
    mark: Finder<'static>,
}

/// The destination of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    pub host: &'a str,
    pub port: u16,
    /// TLS inspection: TLS ends here and continues to the server.
    pub is_secret: bool,
}

/// A replacement in a head.
#[derive(Clone, PartialEq, Eq)]
pub struct HeadEdit {
    /// Offset in the head.
    pub at: usize,
    pub length: usize,
    pub value: Vec<u8>,
    /// None: not a secret.
    pub used: Option<Use>,
}

/// One use of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    pub method: String,
    /// Without its query.
    pub path: String,
    pub rule: RuleRef,
}

impl fmt::Debug for HeadEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadEdit").field("at", &self.at).field("used", &self.used).finish_non_exhaustive()
    }
}

impl Broker {
    /// `mark` is the prefix of placeholders.
    #[must_use]
    pub fn new(credentials: Vec<Credential>, mark: &str) -> Self {
        Self { credentials, mark: Finder::new(mark.as_bytes()).into_owned() }
    }

    /// Judges the head of a permitted request. None: it needs no secret.
    ///
    /// # Errors
    /// When a placeholder is not allowed there.
    pub fn judge(
        &self,
        head: &[u8],
        to: RequestTarget<'_>,
        request: &Request,
        target: &str,
    ) -> Result<Option<HeadEdit>, Refusal> {
        let refuse = |code| Err(Refusal::of(code, request));
        let mut found: Option<(FoundPlaceholder<'_>, usize, usize)> = None;
        let (mut authorizations, mut at, mut version) = (0, 0, &b""[..]);
        let (mut is_upgrade, mut is_replaced) = (false, false);
        for (number, line) in head.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let start = at;
            at += line.len();
            let text = line.trim_ascii_end();
            if number == 0 {
                if self.mark.find(text).is_some() {
                    return refuse(Reason::PlaceholderMisplaced);
                }
                version = text.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
                continue;
            }
            let Some(colon) = text.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = text.split_at(colon);
            let value = value.get(1..).unwrap_or_default();
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            is_upgrade |= name == "upgrade";
            is_replaced |= overrides_request(&name, value);
            authorizations += usize::from(name == "authorization" || name == "proxy-authorization");
            let is_made_for_it = name == "authorization" || HEADERS.contains(&name.as_str());
            let held = if is_made_for_it { self.of_value(value, &name) } else { None };
            match held {
                Some(_) if found.is_some() => return refuse(Reason::PlaceholderTwice),
                Some(held) => found = Some((held, start + colon + 1, value.len())),
                None if self.mark.find(text).is_some() => return refuse(Reason::PlaceholderMisplaced),
                None => {}
            }
        }
        let Some((held, at, length)) = found else { return Ok(None) };
        if authorizations > 1 {
            return refuse(Reason::AuthorizationTwice);
        }
        // The credential's rule is about the method and path that the server acts on.
        if is_replaced {
            return refuse(Reason::OverrideNotAllowed);
        }
        if !to.is_secret {
            return refuse(Reason::PlaceholderWithoutTls);
        }
        if version != b"HTTP/1.1" || is_upgrade {
            return refuse(Reason::PlaceholderNotReplaced);
        }
        let of_placeholder = self.credentials.iter().filter(|one| one.placeholder == held.placeholder);
        let mut for_host = of_placeholder.filter(|one| one.host == to.host && one.port == to.port).peekable();
        let Some(first) = for_host.peek().copied() else { return refuse(Reason::CredentialOfAnotherHost) };
        let means =
            |one: &&Credential| one.requests.iter().any(|rule| rule.value.matches(&request.method, target));
        let Some(credential) = for_host.find(means) else {
            let refusal = Refusal::of(Reason::CredentialNotAllowed, request);
            return Err(Refusal { rule: Some(first.rule.clone()), ..refusal });
        };
        let path = target.split('?').next().unwrap_or_default().chars().take(256).collect();
        let used = Use { method: request.method.clone(), path, rule: credential.rule.clone() };
        Ok(Some(HeadEdit { at, length, value: held.header_with_secret(credential), used: Some(used) }))
    }

    /// Whether there is a secret for this host, so that its responses are searched and must not be compressed.
    #[must_use]
    pub fn has_secret_of(&self, host: &str, port: u16) -> bool {
        self.credentials.iter().any(|one| one.host == host && one.port == port)
    }

    /// Removes compression from a head's Accept-Encoding.
    #[must_use]
    pub fn request_uncompressed(head: &[u8]) -> Vec<HeadEdit> {
        let mut puts = Vec::new();
        let mut at = 0;
        for line in head.split_inclusive(|byte| *byte == b'\n') {
            let text = line.trim_ascii_end();
            if let Some(colon) = text.iter().position(|byte| *byte == b':') {
                let (name, value) = text.split_at(colon);
                let value = value.len() - 1;
                let put = |text: &[u8]| HeadEdit {
                    at: at + colon + 1,
                    length: value,
                    value: text.to_vec(),
                    used: None,
                };
                if name.eq_ignore_ascii_case(b"accept-encoding") {
                    puts.push(put(b" identity"));
                } else if name.eq_ignore_ascii_case(b"te") {
                    puts.push(put(b" trailers"));
                }
            }
            at += line.len();
        }
        puts
    }

    /// Searches bodies for placeholders.
    #[must_use]
    pub fn watch(&self) -> SecretSearch {
        SecretSearch::new(vec![self.mark.needle().to_vec()])
    }

    /// Searches responses for a host's secrets.
    #[must_use]
    pub fn watch_answers(&self, host: &str, port: u16) -> SecretSearch {
        let own = self.credentials.iter().filter(|one| one.host == host && one.port == port);
        SecretSearch::of_secrets(own.map(|one| one.secret.as_str()))
    }

    fn placeholder(&self, text: &[u8]) -> Option<&str> {
        let found = self.credentials.iter().find(|one| one.placeholder.as_bytes() == text)?;
        Some(&found.placeholder)
    }

    /// A value with a placeholder, in the forms that tools send.
    fn of_value(&self, value: &[u8], name: &str) -> Option<FoundPlaceholder<'_>> {
        let value = value.trim_ascii();
        let form = |placeholder, form| Some(FoundPlaceholder { placeholder, form });
        if let Some(placeholder) = self.placeholder(value) {
            return form(placeholder, SecretForm::Bare);
        }
        if name != "authorization" {
            return None;
        }
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (scheme, rest) = value.split_at(space);
        let (scheme, rest) = (std::str::from_utf8(scheme).ok()?, rest.trim_ascii());
        if scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token") {
            return form(self.placeholder(rest)?, SecretForm::Scheme(scheme.to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let pair = STANDARD.decode(rest).ok()?;
        let colon = pair.iter().position(|byte| *byte == b':')?;
        let (user, password) = (pair.get(..colon)?, pair.get(colon + 1..)?);
        match (self.placeholder(user), self.placeholder(password)) {
            (_, Some(placeholder)) => form(placeholder, SecretForm::Password(user.to_vec())),
            (Some(placeholder), None) => form(placeholder, SecretForm::User(password.to_vec())),
            (None, None) => None,
        }
    }
}

/// A placeholder and its form.
struct FoundPlaceholder<'a> {
    placeholder: &'a str,
    form: SecretForm,
}

enum SecretForm {
    /// Alone.
    Bare,
    /// `Bearer` or `token`.
    Scheme(String),
    /// The password of this user name.
    Password(Vec<u8>),
    /// The user name, with this password.
    User(Vec<u8>),
}

impl FoundPlaceholder<'_> {
    /// The header value with the secret.
    fn header_with_secret(&self, credential: &Credential) -> Vec<u8> {
        let secret = &credential.secret;
        match &self.form {
            SecretForm::Bare => format!(" {secret}"),
            SecretForm::Scheme(scheme) => format!(" {scheme} {secret}"),
            SecretForm::Password(user) => {
                let user = credential.user.as_ref().map_or(user.as_slice(), |user| user.as_bytes());
                format!(" Basic {}", STANDARD.encode([user, b":", secret.as_bytes()].concat()))
            }
            SecretForm::User(password) => {
                format!(" Basic {}", STANDARD.encode([secret.as_bytes(), b":", password].concat()))
            }
        }
        .into_bytes()
    }
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
