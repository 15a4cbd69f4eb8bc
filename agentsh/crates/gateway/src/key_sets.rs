//! Key sets (JWKS) that sign tokens: from a file or the authorization server. A fetched set is cached, and fetched
//! again if a token names an unknown key.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{ACCEPT, HeaderMap, HeaderValue};
use jsonwebtoken::jwk::JwkSet;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use crate::egress::Client;
use crate::egress::client::{Limits, Request};
use crate::egress::resolve::Resolver;
use crate::egress::target::Rules;

use super::config::OAuth;
use super::token;

/// A set is requested again after this time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
/// How long an old set may be used if it cannot be refreshed.
const MAX_STALE: Duration = Duration::from_secs(24 * 3600);
/// Minimum interval, because any token can name unknown keys.
const FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// From the first packet to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest set, and longest metadata.
const MAX_BYTES: usize = 1 << 20;

pub struct KeySets {
    source: Option<Source>,
    known: RefCell<Option<Rc<JwkSet>>>,
    fetched: Cell<Option<Instant>>,
    tried: Cell<Option<Instant>>,
    why: RefCell<String>,
    alone: Mutex<()>,
}

struct Source {
    /// For the configured URL, which may be anywhere.
    client: Client,
    /// For URLs from metadata: public, or of the issuer's origin.
    outside: Client,
    issuer: String,
    /// None: from the issuer's metadata.
    url: Option<String>,
}

impl KeySets {
    /// Reads a file; a URL is fetched for the first token.
    ///
    /// # Errors
    /// An invalid file, or a URL that is not permitted.
    pub fn load(oauth: &OAuth) -> Result<Self, String> {
        let set = |source, known| Self {
            source,
            known: RefCell::new(known),
            fetched: Cell::new(None),
            tried: Cell::new(None),
            why: RefCell::default(),
            alone: Mutex::new(()),
        };
        if let Some(file) = oauth.jwks_file() {
            return Ok(set(None, Some(Rc::new(token::load(file)?))));
        }
        let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
        let limits =
            Limits { max_body: Some(MAX_BYTES), first_byte: Some(FETCH_TIMEOUT), ..Limits::default() };
        let outside = Client::new(lookup.clone(), Rules::default()).with_limits(limits);
        let client = Client::new(lookup, Rules::user_configured()).with_limits(limits);
        let url = oauth.jwks.clone();
        let shown = url.as_deref().unwrap_or(&oauth.issuer);
        client.target(shown).map_err(|why| format!("cannot fetch keys from {shown}: {why}"))?;
        Ok(set(Some(Source { client, outside, issuer: oauth.issuer.clone(), url }), None))
    }

    /// The keys for a token.
    ///
    /// # Errors
    /// When none are available.
    pub async fn for_token(&self, text: &str) -> Result<Rc<JwkSet>, String> {
        let Some(source) = &self.source else { return self.cached_keys() };
        let kid = token::key_id(text);
        if self.is_good(kid.as_deref()) {
            return self.cached_keys();
        }
        let _alone = self.alone.lock().await;
        let paused = self.tried.get().is_some_and(|at| at.elapsed() < FETCH_INTERVAL);
        if self.is_good(kid.as_deref()) || paused {
            return self.cached_keys();
        }
        self.tried.set(Some(Instant::now()));
        match timeout(FETCH_TIMEOUT, source.fetch()).await.unwrap_or_else(|_| Err("no answer".to_owned())) {
            Ok(set) => {
                *self.known.borrow_mut() = Some(Rc::new(set));
                self.fetched.set(Some(Instant::now()));
            }
            Err(why) => {
                *self.why.borrow_mut() = why;
                if self.fetched.get().is_none_or(|at| at.elapsed() > MAX_STALE) {
                    *self.known.borrow_mut() = None;
                }
            }
        }
        self.cached_keys()
    }

    fn is_good(&self, kid: Option<&str>) -> bool {
        let is_fresh = self.fetched.get().is_some_and(|at| at.elapsed() < REFRESH_INTERVAL);
        let known = self.known.borrow();
        let has = known.as_ref().is_some_and(|set| kid.is_none_or(|kid| set.find(kid).is_some()));
        is_fresh && has
    }

    fn cached_keys(&self) -> Result<Rc<JwkSet>, String> {
        let known = self.known.borrow().clone();
        known.ok_or_else(|| format!("cannot get the keys of the authorization server: {}", self.why.borrow()))
    }
}

impl Source {
    async fn fetch(&self) -> Result<JwkSet, String> {
        let (url, client) = match &self.url {
            Some(url) => (url.clone(), &self.client),
            None => {
                let url = self.discover().await?;
                let is_own = is_same_origin(&url, &self.issuer);
                (url, if is_own { &self.client } else { &self.outside })
            }
        };
        let set: JwkSet = ask(client, &url).await.and_then(|bytes| {
            serde_json::from_slice(&bytes)
                .map_err(|error| format!("{url} is not a JSON Web Key Set: {error}"))
        })?;
        if set.keys.is_empty() { Err(format!("{url} has no keys")) } else { Ok(set) }
    }

    /// The key URL in the issuer's metadata (RFC 8414, OpenID Connect).
    async fn discover(&self) -> Result<String, String> {
        let mut last = String::new();
        for place in metadata_urls(&self.issuer) {
            let metadata = ask(&self.client, &place).await.and_then(|bytes| {
                serde_json::from_slice::<Value>(&bytes).map_err(|error| format!("{place}: {error}"))
            });
            match metadata {
                // Metadata of another issuer proves nothing.
                Ok(metadata) if metadata["issuer"] != self.issuer.as_str() => {
                    last = format!("{place} is the metadata of another issuer");
                }
                Ok(metadata) => match metadata["jwks_uri"].as_str() {
                    Some(url) => return Ok(url.to_owned()),
                    None => last = format!("{place} names no jwks_uri"),
                },
                Err(why) => last = why,
            }
        }
        Err(last)
    }
}

async fn ask(client: &Client, url: &str) -> Result<Vec<u8>, String> {
    let target = client.target(url).map_err(|why| format!("{url}: {why}"))?;
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    let request = Request { headers, ..Request::get(target) };
    let answer = client.follow(request).await.map_err(|error| format!("{url}: {error}"))?;
    if answer.status != StatusCode::OK {
        return Err(format!("{url} answered HTTP {}", answer.status));
    }
    answer.read_body(MAX_BYTES).await.map_err(|error| format!("{url}: {error}"))
}

fn is_same_origin(one: &str, other: &str) -> bool {
    let origin = |text: &str| Url::parse(text).map(|url| url.origin()).ok();
    origin(one).is_some_and(|one| Some(one) == origin(other))
}

/// The metadata URLs of an issuer.
fn metadata_urls(issuer: &str) -> Vec<String> {
    let Ok(mut url) = Url::parse(issuer) else { return Vec::new() };
    let path = url.path().trim_end_matches('/').to_owned();
    ["oauth-authorization-server", "openid-configuration"]
        .iter()
        .map(|kind| format!("/.well-known/{kind}{path}"))
        .chain([format!("{path}/.well-known/openid-configuration")])
        .map(|path| {
            url.set_path(&path);
            url.to_string()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_with_a_path_has_its_metadata_at_three_places() {
        assert_eq!(
            metadata_urls("https://login.example.com/one/"),
            [
                "https://login.example.com/.well-known/oauth-authorization-server/one",
                "https://login.example.com/.well-known/openid-configuration/one",
                "https://login.example.com/one/.well-known/openid-configuration",
            ]
        );
        assert!(metadata_urls("nonsense").is_empty());
        assert!(is_same_origin("https://a.example/keys", "https://a.example:443/one"));
        assert!(!is_same_origin("http://127.0.0.1/keys", "https://a.example"));
    }
}
