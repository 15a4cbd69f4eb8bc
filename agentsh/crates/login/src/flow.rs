//! The authorization code flow with PKCE (OAuth 2.1), for one server (RFC 8707).

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use url::Url;

use super::ask::{Clients, client_and_target, read_bounded};
use super::callback::{Callback, ExpectedCallback};
use super::discovery::LoginServer;
use super::error::LoginError;
use super::grant::Grant;
use super::pkce::Pkce;
use super::registration::{Authentication, Registered, display_text};
use super::{escape, random};
use crate::egress::HttpError;
use crate::egress::client::full_body;

const TOKEN_ENDPOINT: &str = "its token endpoint";
/// A right to stay logged in, where an authorization server has one.
const OFFLINE: &str = "offline_access";
/// Longest token, in bytes: it goes into a header.
const MAX_TOKEN: usize = 16 << 10;

/// The answer of a token endpoint.
pub(crate) struct Tokens {
    pub access: String,
    pub refresh: Option<String>,
    /// In seconds.
    pub life: Option<u64>,
    pub scopes: Option<Vec<String>>,
}

/// A login that waits for its user.
pub struct Login {
    found: LoginServer,
    client: Registered,
    callback: Callback,
    verifier: String,
    expected: ExpectedCallback,
    scopes: Vec<String>,
    url: Url,
}

impl Login {
    /// Prepares a login that requests `scopes`. Sends nothing.
    ///
    /// # Errors
    /// When an address of the authorization server cannot be used.
    pub fn begin(
        found: LoginServer,
        client: Registered,
        callback: Callback,
        scopes: Vec<String>,
    ) -> Result<Self, LoginError> {
        let state = random::hex::<32>().map_err(LoginError::NoRandom)?;
        let Pkce { challenge, verifier } = Pkce::new().map_err(LoginError::NoRandom)?;
        let redirect = callback.address();
        let wanted: Vec<String> = asked_for(&scopes, &found.server.scopes).collect();
        let asks = authorization_url(
            &found.server.authorization_endpoint,
            &[
                ("client_id", &client.id),
                ("state", &state),
                ("code_challenge", &challenge),
                ("redirect_uri", &redirect),
                ("scope", &wanted.join(" ")),
                ("resource", &found.resource),
            ],
        )?;
        let expected = ExpectedCallback {
            state,
            issuer: found.server.issuer.clone(),
            names_itself: found.server.names_itself,
        };
        Ok(Self { found, client, callback, verifier, expected, scopes, url: asks })
    }

    /// Where the user goes with a browser.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Waits for the user, and trades the code for tokens. `name` and `address` are the server's, `now` in seconds since 1970.
    ///
    /// # Errors
    /// When the user, or the authorization server, says no; or no answer comes in time.
    pub async fn finish(
        self,
        clients: &Clients,
        (name, address): (&str, &str),
        limit: Duration,
        note: &dyn Fn(&str),
        now: impl Fn() -> u64,
    ) -> Result<Grant, LoginError> {
        let code = self.callback.code(&self.expected, limit, note).await?;
        let server = &self.found.server;
        let redirect = self.callback.address();
        let asked = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("code_verifier", &*self.verifier),
            ("redirect_uri", &*redirect),
            ("resource", &*self.found.resource),
        ];
        let tokens = tokens(&ask(clients, &self.client, &server.token_endpoint, &asked).await?)?;
        let mut grant = Grant {
            name: name.to_owned(),
            url: address.to_owned(),
            resource: self.found.resource,
            issuer: self.found.server.issuer,
            token_endpoint: self.found.server.token_endpoint,
            revocation_endpoint: self.found.server.revocation_endpoint,
            client: self.client,
            login: random::hex::<8>().map_err(LoginError::NoRandom)?,
            access_token: String::new(),
            refresh_token: None,
            obtained_at: 0,
            expires_at: None,
            scopes: self.scopes,
        };
        grant.take(tokens, now());
        Ok(grant)
    }
}

/// Trades a refresh token for new ones.
pub(crate) async fn refresh(clients: &Clients, grant: &Grant, token: &str) -> Result<Tokens, LoginError> {
    let asked =
        [("grant_type", "refresh_token"), ("refresh_token", token), ("resource", grant.resource.as_str())];
    tokens(&ask(clients, &grant.client, &grant.token_endpoint, &asked).await?)
}

/// The URL at which a browser requests a code. Empty parameters are left out.
pub(crate) fn authorization_url(endpoint: &str, asked: &[(&str, &str)]) -> Result<Url, LoginError> {
    let mut url = parse_url(endpoint, "its authorization endpoint")?;
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("code_challenge_method", "S256")
        .extend_pairs(asked.iter().filter(|(_, value)| !value.is_empty()));
    Ok(url)
}

pub(crate) fn parse_url(text: &str, what: &'static str) -> Result<Url, LoginError> {
    Url::parse(text).map_err(|_| LoginError::Refused { what, why: "it is not a URL".to_owned() })
}

/// The requested scopes: the wanted ones, and offline access if the server knows it.
fn asked_for<'a>(wanted: &'a [String], known: &[String]) -> impl Iterator<Item = String> + use<'a> {
    let stays = known.iter().any(|scope| scope == OFFLINE) && !wanted.iter().any(|scope| scope == OFFLINE);
    // Alone, this scope would mean that no other is wanted.
    let more = (stays && !wanted.is_empty()).then(|| OFFLINE.to_owned());
    wanted.iter().cloned().chain(more)
}

/// Requests tokens from a token endpoint (RFC 6749, 3.2). Returns its answer, spelled as in [`parse_answer`].
pub(crate) async fn ask(
    clients: &Clients,
    client: &Registered,
    endpoint: &str,
    asked: &[(&str, &str)],
) -> Result<Map<String, Value>, LoginError> {
    let endpoint = parse_url(endpoint, TOKEN_ENDPOINT)?;
    let (http_client, target) = client_and_target(clients, TOKEN_ENDPOINT, endpoint.as_str())?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(asked);
    match (&client.secret, client.authentication) {
        (Some(secret), Authentication::Basic) => {
            headers.insert(AUTHORIZATION, basic(&client.id, secret)?);
        }
        (secret, _) => {
            form.append_pair("client_id", &client.id);
            form.extend_pairs(secret.iter().map(|secret| ("client_secret", secret)));
        }
    }
    let http = |source| LoginError::Http { what: TOKEN_ENDPOINT, source };
    let answer =
        http_client.send(Method::POST, &target, headers, full_body(form.finish())).await.map_err(http)?;
    let answer = read_bounded(answer).await.map_err(http)?;
    match answer.status.as_u16() {
        // Some answer 201 to a POST.
        200 | 201 => parse_answer(&answer.body),
        // The server may answer differently later.
        status @ (429 | 500..) => Err(http(HttpError::Broken(format!("HTTP {status}")))),
        _ => Err(refusal(&answer.body)),
    }
}

/// Both words are escaped before they are joined (RFC 6749, 2.3.1).
fn basic(id: &str, secret: &str) -> Result<HeaderValue, LoginError> {
    let escaped = |word: &str| url::form_urlencoded::byte_serialize(word.as_bytes()).collect::<String>();
    let words = BASE64_STANDARD.encode(format!("{}:{}", escaped(id), escaped(secret)));
    let value = HeaderValue::from_str(&format!("Basic {words}"));
    value
        .map(|mut value| {
            value.set_sensitive(true);
            value
        })
        .map_err(|_| no_token("its client secret cannot be sent in a header"))
}

/// The error of a token endpoint (RFC 6749, 5.2).
fn refusal(body: &[u8]) -> LoginError {
    #[derive(serde::Deserialize)]
    struct TokenErrorBody {
        error: String,
        error_description: Option<String>,
        error_uri: Option<String>,
    }
    let Ok(said) = serde_json::from_slice::<TokenErrorBody>(body) else {
        return no_token("its answer does not follow the specification");
    };
    let description = said.error_description.map(|text| format!(": {text}")).unwrap_or_default();
    let see = said.error_uri.map(|uri| format!(" (see {uri})")).unwrap_or_default();
    no_token(&format!("{}{description}{see}", said.error))
}

/// An answer with tokens as the specification spells it. Some servers give a lifetime as text or scopes as a list, or
/// omit a token type; other clients accept that.
fn parse_answer(body: &[u8]) -> Result<Map<String, Value>, LoginError> {
    let Ok(Value::Object(mut answer)) = serde_json::from_slice(body) else {
        return Err(no_token("its answer is not a JSON object"));
    };
    answer.retain(|_, value| !value.is_null());
    if !answer.get("access_token").is_some_and(Value::is_string) {
        return Err(no_token("its answer has no `access_token`"));
    }
    if answer.get("refresh_token").is_some_and(|token| !token.is_string()) {
        return Err(no_token("`refresh_token` in its answer is not a string"));
    }
    let kind = answer.entry("token_type").or_insert_with(|| Value::from("Bearer"));
    if !kind.is_string() {
        return Err(no_token("`token_type` in its answer is not a string"));
    }
    if let Some(life) = answer.get_mut("expires_in") {
        let seconds = match &*life {
            Value::String(text) => text.trim().parse::<f64>().ok(),
            other => other.as_f64(),
        };
        let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let wrong = || no_token("`expires_in` in its answer is not a number of seconds");
        *life = Value::from(seconds.ok_or_else(wrong)?.as_secs());
    }
    if let Some(scope) = answer.get_mut("scope") {
        let words = scope.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        match (&*scope, words) {
            (Value::String(_), _) => {}
            (_, Some(Some(words))) => *scope = Value::from(words.join(" ")),
            _ => return Err(no_token("`scope` in its answer is neither a string nor a list of strings")),
        }
    }
    Ok(answer)
}

fn no_token(why: &str) -> LoginError {
    LoginError::NoToken(display_text(why))
}

fn tokens(answer: &Map<String, Value>) -> Result<Tokens, LoginError> {
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return Err(no_token("it is not a bearer token"));
    }
    let access = text("access_token").unwrap_or_default().to_owned();
    if access.is_empty() || access.len() > MAX_TOKEN || !access.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(no_token("it is not a single ASCII word of at most 16 KiB"));
    }
    let scopes = text("scope").map(|scopes| {
        let scopes = scopes.split(' ').map(|scope| escape::line(scope).into_owned());
        scopes.filter(|scope| !scope.is_empty()).collect()
    });
    Ok(Tokens {
        access,
        refresh: text("refresh_token").map(str::to_owned),
        life: answer.get("expires_in").and_then(Value::as_u64),
        scopes,
    })
}
