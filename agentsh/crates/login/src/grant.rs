//! The result of a login: tokens for one server, and how they are renewed and revoked.

use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::ask::{Clients, post};
use super::error::LoginError;
use super::flow::{self, Tokens};
use super::registration::{Authentication, Registered};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Renewed when less than this is left, in seconds, or a tenth of its life if that is shorter.
const RENEWAL_MARGIN_S: u64 = 60;

/// Access to one server. Holds secrets: it is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The server as its user calls it.
    pub name: String,
    /// The server's address, without what may be a key.
    pub url: String,
    /// The resource of the tokens.
    pub resource: String,
    pub issuer: String,
    pub token_endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation_endpoint: Option<String>,
    pub client: Registered,
    /// The login that it came from: renewals keep it. Empty in files of earlier versions.
    #[serde(default)]
    pub login: String,
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Seconds since 1970.
    pub obtained_at: u64,
    /// None: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The scopes as granted, or as requested if the authorization server does not say.
    #[serde(default)]
    pub scopes: Vec<String>,
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant").field("url", &self.url).field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Grant {
    /// Whether the access token is over, or soon will be.
    #[must_use]
    pub fn is_old(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|end| {
            let life = end.saturating_sub(self.obtained_at);
            now.saturating_add(RENEWAL_MARGIN_S.min(life / 10)) >= end
        })
    }

    /// The same grant with a new token.
    ///
    /// # Errors
    /// When it is over ([`LoginError::is_final`]), or the authorization server cannot be asked.
    pub async fn renew(&self, clients: &Clients, now: u64) -> Result<Self, LoginError> {
        let refresh = self.refresh_token.as_deref();
        let refresh = refresh.ok_or_else(|| LoginError::NoToken("there is no refresh token".to_owned()))?;
        let tokens = flow::refresh(clients, self, refresh).await?;
        let mut new = self.clone();
        new.take(tokens, now);
        Ok(new)
    }

    pub(crate) fn take(&mut self, tokens: Tokens, now: u64) {
        self.access_token = tokens.access;
        // Without a new refresh token the old one stays valid.
        self.refresh_token = tokens.refresh.or_else(|| self.refresh_token.take());
        self.obtained_at = now;
        self.expires_at = tokens.life.map(|life| now.saturating_add(life));
        if let Some(scopes) = tokens.scopes {
            self.scopes = scopes;
        }
    }

    /// Revokes the tokens at the authorization server (RFC 7009). False: it has no endpoint for that.
    ///
    /// # Errors
    /// When it cannot be asked, or says no.
    pub async fn revoke(&self, clients: &Clients) -> Result<bool, LoginError> {
        let Some(endpoint) = &self.revocation_endpoint else { return Ok(false) };
        let (token, hint) = match &self.refresh_token {
            Some(token) => (token, "refresh_token"),
            None => (&self.access_token, "access_token"),
        };
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token).append_pair("token_type_hint", hint);
        let mut header = None;
        match (&self.client.secret, self.client.authentication) {
            (Some(secret), Authentication::Basic) => {
                let plain = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let both = format!("{}:{}", plain(&self.client.id), plain(secret));
                header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both.as_bytes()))).ok();
            }
            (secret, _) => {
                form.append_pair("client_id", &self.client.id);
                form.extend_pairs(secret.iter().map(|secret| ("client_secret", secret)));
            }
        }
        let body = ("application/x-www-form-urlencoded", form.finish().into_bytes());
        let answer = post(clients, "its revocation endpoint", endpoint, body, header).await?;
        match answer.status.is_success() {
            true => Ok(true),
            false => Err(LoginError::Denied(format!("HTTP {}", answer.status.as_u16()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(expires_at: Option<u64>) -> Grant {
        Grant {
            name: "far".to_owned(),
            url: "https://a.example/mcp".to_owned(),
            resource: "https://a.example/mcp".to_owned(),
            issuer: "https://b.example".to_owned(),
            token_endpoint: "https://b.example/token".to_owned(),
            revocation_endpoint: None,
            client: Registered {
                id: "c".to_owned(),
                secret: Some("h1dden".to_owned()),
                authentication: Authentication::Basic,
            },
            login: "l".to_owned(),
            access_token: "t0ken".to_owned(),
            refresh_token: Some("r3fresh".to_owned()),
            obtained_at: 1000,
            expires_at,
            scopes: vec!["a".to_owned()],
        }
    }

    #[test]
    fn a_token_is_renewed_before_its_end() {
        assert!(!grant(None).is_old(u64::MAX));
        let hour = grant(Some(4600));
        assert!(!hour.is_old(4539) && hour.is_old(4540) && hour.is_old(u64::MAX));
        let short = grant(Some(1010));
        assert!(!short.is_old(1008) && short.is_old(1009));
        // A clock that went back.
        assert!(!short.is_old(1));
    }

    #[test]
    fn refresh_token_and_scopes_stay_when_a_renewal_omits_them() {
        let mut grant = grant(Some(4600));
        grant.take(Tokens { access: "new".to_owned(), refresh: None, life: Some(10), scopes: None }, 5000);
        assert_eq!((grant.access_token.as_str(), grant.refresh_token.as_deref()), ("new", Some("r3fresh")));
        assert_eq!((grant.expires_at, grant.scopes.len()), (Some(5010), 1));
    }

    #[test]
    fn debug_output_of_a_grant_shows_no_secret() {
        let shown = format!("{:?}", grant(None));
        assert!(
            !shown.contains("t0ken") && !shown.contains("r3fresh") && !shown.contains("h1dden"),
            "{shown}"
        );
    }
}
