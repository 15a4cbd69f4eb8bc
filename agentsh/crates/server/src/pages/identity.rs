//! Sign-in at an OpenID provider: identity and role of a person. Runs only on the server's thread, with a limited
//! number of sign-ins at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentsh::cli::server::OidcArgs;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use url::Url;

use crate::fleet::{Role, SignIn};
use agentsh_egress::Client as Http;
use agentsh_egress::proxy::Proxy;
use agentsh_egress::resolve::Resolver;
use agentsh_egress::target::Rules;
use agentsh_gateway::config::OAuth;
use agentsh_gateway::key_sets::KeySets;
use agentsh_gateway::token::{self, CLOCK_LEEWAY_S};
use agentsh_login::callback::{ExpectedCallback, judge};
use agentsh_login::metadata::AuthorizationServer;
use agentsh_login::provider::{self, PendingSignIn, SignInSecrets};
use agentsh_login::registration::{Registered, user_registration};
use agentsh_login::{Clients, LoginError};
use agentsh_store::escape;

/// The path to which the provider sends browsers back.
pub(super) const CALLBACK: &str = "/sign-in/callback";
/// Holds the secret that the provider gave this server.
const SECRET: &str = "AGENTSH_FLEET_OIDC_SECRET";
/// The provider's metadata is requested again after this time.
const METADATA_LIFETIME: Duration = Duration::from_secs(600);
/// Timeout of all requests of one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// An id token is used as soon as it is given: an older one is another's. In seconds.
const MAX_TOKEN_AGE_S: i64 = 600;
/// Steps of sign-ins at once.
const MAX_COUNT: usize = 16;
/// Longest name and subject, in characters.
const MAX_NAME: usize = 200;

/// Why somebody is not signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignInRefusal {
    /// He may try again.
    Not(String),
    /// The identity is proven, but the person has no role.
    NoRole(String),
    /// The provider cannot be asked now, or there is too much to do.
    Later(String),
}

enum Ask {
    Begin(oneshot::Sender<Result<PendingSignIn, SignInRefusal>>),
    Finish { query: String, words: SignInSecrets, reply: oneshot::Sender<Result<SignIn, SignInRefusal>> },
}

/// A handle of the provider for other threads.
#[derive(Clone)]
pub(crate) struct Identity {
    asks: mpsc::Sender<Ask>,
    /// The displayed name.
    pub(super) shown: String,
}

struct Provider {
    oauth: OAuth,
    client: String,
    secret: Option<String>,
    redirect: String,
    scopes: Vec<String>,
    claim: String,
    name: String,
    /// By value of the claim.
    roles: BTreeMap<String, Role>,
    clients: Clients,
    signers: KeySets,
    about: RefCell<Option<(Instant, Rc<AuthorizationServer>)>>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iat: i64,
    #[serde(default)]
    nonce: String,
    aud: Value,
    #[serde(default)]
    azp: Option<String>,
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}

impl Identity {
    /// None: people have only tokens. Must be called inside a `LocalSet`.
    ///
    /// # Errors
    /// Which option is invalid, and why.
    pub(crate) fn start(args: &OidcArgs) -> Result<Option<Self>, String> {
        let (Some(issuer), Some(client), Some(public)) =
            (&args.oidc_issuer, &args.oidc_client, &args.public_url)
        else {
            return Ok(None);
        };
        let provider = Rc::new(Provider::of(args, issuer, client, public)?);
        let shown = Url::parse(issuer).ok().and_then(|url| url.host_str().map(str::to_owned));
        let (asks, mut waiting) = mpsc::channel(MAX_COUNT);
        tokio::task::spawn_local(async move {
            let places = Arc::new(Semaphore::new(MAX_COUNT));
            while let Some(ask) = waiting.recv().await {
                let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
                let provider = Rc::clone(&provider);
                tokio::task::spawn_local(async move {
                    provider.answer(ask).await;
                    drop(place);
                });
            }
        });
        Ok(Some(Self { asks, shown: shown.unwrap_or_else(|| issuer.clone()) }))
    }

    pub(super) async fn begin(&self) -> Result<PendingSignIn, SignInRefusal> {
        let (reply, answered) = oneshot::channel();
        self.ask(Ask::Begin(reply), answered).await
    }

    /// `query` is what the browser came back with, `words` what its cookie kept.
    pub(super) async fn finish(&self, query: String, words: SignInSecrets) -> Result<SignIn, SignInRefusal> {
        let (reply, answered) = oneshot::channel();
        self.ask(Ask::Finish { query, words, reply }, answered).await
    }

    async fn ask<T>(
        &self,
        ask: Ask,
        answered: oneshot::Receiver<Result<T, SignInRefusal>>,
    ) -> Result<T, SignInRefusal> {
        let busy = || SignInRefusal::Later("the server is overloaded; try again in a moment".to_owned());
        self.asks.try_send(ask).map_err(|_| busy())?;
        answered.await.unwrap_or_else(|_| Err(busy()))
    }
}

impl Provider {
    fn of(args: &OidcArgs, issuer: &str, client: &str, public: &str) -> Result<Self, String> {
        let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
        let proxy = Proxy::of_environment(|name| std::env::var(name).ok())?;
        let origin = origin(issuer).ok_or_else(|| format!("--oidc-issuer '{issuer}' is not a URL"))?;
        let pages = Url::parse(public).ok().filter(|url| {
            matches!(url.scheme(), "https" | "http") && url.path() == "/" && url.query().is_none()
        });
        let pages = pages.ok_or_else(|| {
            format!("--public-url '{public}' is not an origin such as https://fleet.example")
        })?;
        let is_here = matches!(pages.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if pages.scheme() == "http" && !is_here {
            return Err(format!("--public-url '{public}' is not https, which a sign-in needs"));
        }
        let oauth = OAuth {
            issuer: issuer.to_owned(),
            audience: Some(client.to_owned()),
            jwks: None,
            algorithms: Vec::new(),
            scopes: Vec::new(),
        };
        let clients: Clients = Rc::new(move |url: &str| {
            // The operator wrote the issuer, which may be anywhere; addresses that it names must be public.
            let is_own = self::origin(url).as_ref() == Some(&origin);
            let rules = if is_own { Rules::user_configured() } else { Rules::default() };
            Ok(Http::new(lookup.clone(), rules).with_proxy(proxy.clone()))
        });
        Ok(Self {
            signers: KeySets::load(&oauth)?,
            oauth,
            client: client.to_owned(),
            secret: std::env::var(SECRET).ok().filter(|secret| !secret.is_empty()),
            redirect: format!("{}{CALLBACK}", pages.as_str().trim_end_matches('/')),
            scopes: [&["profile".to_owned()], args.oidc_scope.as_slice()].concat(),
            claim: args.oidc_claim.clone(),
            name: args.oidc_name.clone(),
            roles: roles(&args.oidc_role)?,
            clients,
            about: RefCell::default(),
        })
    }

    async fn answer(&self, ask: Ask) {
        let late = || SignInRefusal::Later("the identity provider did not answer in time".to_owned());
        // The requester may have disconnected.
        match ask {
            Ask::Begin(reply) => {
                let begun = timeout(STEP_TIMEOUT, self.begin()).await.unwrap_or_else(|_| Err(late()));
                let _heard = reply.send(begun);
            }
            Ask::Finish { query, words, reply } => {
                let done = timeout(STEP_TIMEOUT, self.finish(&query, words)).await;
                let _heard = reply.send(done.unwrap_or_else(|_| Err(late())));
            }
        }
    }

    async fn begin(&self) -> Result<PendingSignIn, SignInRefusal> {
        let server = self.metadata().await?;
        provider::begin(&server, &self.registration(&server), &self.redirect, &self.scopes)
            .map_err(sign_in_refusal)
    }

    async fn finish(&self, query: &str, words: SignInSecrets) -> Result<SignIn, SignInRefusal> {
        let server = self.metadata().await?;
        let expected = ExpectedCallback {
            state: words.state,
            issuer: server.issuer.clone(),
            names_itself: server.names_itself,
        };
        let Some(code) = judge(query, &expected) else {
            return Err(SignInRefusal::Not("This answer does not belong to this sign-in.".to_owned()));
        };
        let code = code.map_err(sign_in_refusal)?;
        let client = self.registration(&server);
        let answer = (code, words.verifier);
        let text = provider::trade(&self.clients, &server, &client, &self.redirect, answer).await;
        let text = text.map_err(sign_in_refusal)?;
        let keys = self.signers.for_token(&text).await.map_err(SignInRefusal::Later)?;
        let claims: Claims =
            token::claims(&text, &self.oauth, &keys, &self.client).map_err(|why| invalid_token(&why))?;
        is_ours(&claims, &self.client, &words.nonce, Timestamp::now()).map_err(invalid_token)?;
        self.identity(&claims)
    }

    /// The provider's metadata; requested again if it is old.
    async fn metadata(&self) -> Result<Rc<AuthorizationServer>, SignInRefusal> {
        let fresh = self
            .about
            .borrow()
            .as_ref()
            .filter(|(at, _)| at.elapsed() < METADATA_LIFETIME)
            .map(|(_, known)| Rc::clone(known));
        if let Some(known) = fresh {
            return Ok(known);
        }
        let found =
            Rc::new(provider::discover(&self.clients, &self.oauth.issuer).await.map_err(sign_in_refusal)?);
        *self.about.borrow_mut() = Some((Instant::now(), Rc::clone(&found)));
        Ok(found)
    }

    fn registration(&self, server: &AuthorizationServer) -> Registered {
        user_registration(server, self.client.clone(), self.secret.clone())
    }

    fn identity(&self, claims: &Claims) -> Result<SignIn, SignInRefusal> {
        let name = claims.more.get(&self.name).and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = escape::line(name.unwrap_or(&claims.sub)).chars().take(MAX_NAME).collect();
        let values = member(&claims.more, &self.claim).map(texts).unwrap_or_default();
        let role = values.iter().filter_map(|value| self.roles.get(*value)).max();
        let Some(role) = role else {
            return Err(SignInRefusal::NoRole(format!(
                "You signed in, but your claim '{}' gives you no role on this server. An admin sets the roles with \
                 --oidc-role.",
                self.claim
            )));
        };
        let subject = escape::line(&claims.sub).into_owned();
        Ok(SignIn { name, role: *role, issuer: self.oauth.issuer.clone(), subject })
    }
}

/// Roles by values of the claim.
fn roles(written: &[String]) -> Result<BTreeMap<String, Role>, String> {
    if written.is_empty() {
        let own = [Role::Viewer, Role::Approver, Role::Admin];
        return Ok(own.into_iter().map(|role| (role.as_str().to_owned(), role)).collect());
    }
    let mut roles: BTreeMap<String, Role> = BTreeMap::new();
    for one in written {
        let pair = one.split_once('=').and_then(|(role, value)| Some((Role::named(role)?, value)));
        let Some((role, value)) = pair.filter(|(_, value)| !value.is_empty()) else {
            return Err(format!("--oidc-role '{one}' is not viewer=VALUE, approver=VALUE or admin=VALUE"));
        };
        // If one value is mapped twice, the higher role counts.
        let known = roles.entry(value.to_owned()).or_insert(role);
        *known = role.max(*known);
    }
    Ok(roles)
}

/// Checks what the signature does not prove: that the token was made for this sign-in, and now.
fn is_ours(claims: &Claims, client: &str, nonce: &str, now: Timestamp) -> Result<(), &'static str> {
    let leeway = i64::try_from(CLOCK_LEEWAY_S).unwrap_or_default();
    let age = now.as_second().saturating_sub(claims.iat);
    let is_for_others = claims.aud.as_array().is_some_and(|audience| audience.len() > 1);
    if claims.nonce.is_empty() || claims.nonce != nonce {
        Err("it belongs to another sign-in (nonce)")
    } else if claims.azp.as_deref().map_or(is_for_others, |party| party != client) {
        Err("it was issued to another client (azp)")
    } else if age < -leeway || age > MAX_TOKEN_AGE_S + leeway {
        Err("it was not issued just now (iat)")
    } else if claims.sub.is_empty() || claims.sub.chars().count() > MAX_NAME {
        Err("it has no subject (sub)")
    } else {
        Ok(())
    }
}

/// The member at `path`: by its whole name, or by names that lead to it.
fn member<'a>(claims: &'a BTreeMap<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(path) {
        return Some(found);
    }
    let mut names = path.split('.');
    let first = claims.get(names.next()?)?;
    names.try_fold(first, |inside, name| inside.get(name))
}

/// One text, or a list of them.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn invalid_token(why: &str) -> SignInRefusal {
    SignInRefusal::Not(format!("The identity provider's token is not valid: {why}."))
}

fn sign_in_refusal(error: LoginError) -> SignInRefusal {
    let said = format!("The identity provider refused the sign-in: {error}.");
    match error {
        LoginError::Http { .. }
        | LoginError::NoMetadata(_)
        | LoginError::InvalidMetadata { .. }
        | LoginError::NoRandom(_) => SignInRefusal::Later(said),
        _ => SignInRefusal::Not(said),
    }
}

fn origin(url: &str) -> Option<url::Origin> {
    Some(Url::parse(url).ok()?.origin())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use serde_json::json;

    use super::*;

    fn claims(changed: &Value) -> Claims {
        let mut claims = json!({"sub": "17", "iat": 1000, "nonce": "n", "aud": "us"});
        claims.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        serde_json::from_value(claims).unwrap()
    }

    #[test]
    fn identity_token_is_valid_for_one_sign_in() {
        let now = |second| Timestamp::from_second(second).unwrap();
        let ours = |changed: Value, second| is_ours(&claims(&changed), "us", "n", now(second));
        for (changed, second) in [
            (json!({}), 1000),
            (json!({}), 940),
            (json!({}), 1660),
            (json!({"azp": "us"}), 1000),
            (json!({"aud": ["us"]}), 1000),
            (json!({"aud": ["us", "them"], "azp": "us"}), 1000),
        ] {
            assert_eq!(ours(changed.clone(), second), Ok(()), "{changed} {second}");
        }
        for (changed, second) in [
            (json!({}), 939),
            (json!({}), 1661),
            (json!({"nonce": ""}), 1000),
            (json!({"nonce": "other"}), 1000),
            (json!({"azp": "them"}), 1000),
            (json!({"aud": ["us", "them"]}), 1000),
            (json!({"sub": ""}), 1000),
            (json!({"iat": i64::MIN}), 1000),
        ] {
            assert!(ours(changed.clone(), second).is_err(), "{changed} {second}");
        }
        let without = json!({"sub": "17", "iat": 1000, "aud": "us"});
        assert!(is_ours(&serde_json::from_value(without).unwrap(), "us", "", now(1000)).is_err());
    }

    #[test]
    fn roles_are_found_in_the_claim_and_nowhere_else() {
        let of = |path: &str, claims: Value| -> Vec<String> {
            let claims: BTreeMap<String, Value> = serde_json::from_value(claims).unwrap();
            member(&claims, path).map(texts).unwrap_or_default().into_iter().map(str::to_owned).collect()
        };
        assert_eq!(of("roles", json!({"roles": "a"})), ["a"]);
        assert_eq!(of("realm.roles", json!({"realm": {"roles": ["a", 1, "b"]}})), ["a", "b"]);
        assert_eq!(of("https://x.example/roles", json!({"https://x.example/roles": ["a"]})), ["a"]);
        assert!(of("roles", json!({"realm": {"roles": ["a"]}})).is_empty());
        assert!(of("roles", json!({"roles": {"admin": true}})).is_empty());
        let written =
            |words: &[&str]| roles(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let known = written(&["viewer=all", "admin=sec=ops", "approver=all"]).unwrap();
        assert_eq!((known["all"], known["sec=ops"]), (Role::Approver, Role::Admin));
        assert_eq!(written(&[]).unwrap()["admin"], Role::Admin);
        for wrong in ["root=x", "admin", "admin="] {
            assert!(written(&[wrong]).is_err(), "{wrong}");
        }
    }
}
