//! The authorization code flow with PKCE (OAuth 2.1), for one server and no other (RFC 8707).

use std::time::Duration;

use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenResponse,
    BasicTokenType,
};
use oauth2::{
    AuthType, AuthUrl, AuthorizationCode, ClientId, ClientSecret, CsrfToken, EndpointNotSet, EndpointSet,
    HttpRequest, HttpResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken,
    RequestTokenError, Scope, StandardRevocableToken, TokenResponse, TokenUrl,
};
use serde_json::Value;
use url::Url;

use super::ask::{Clients, bounded, place};
use super::callback::{Callback, Expected};
use super::discovery::LoginServer;
use super::error::LoginError;
use super::grant::Grant;
use super::registration::{Authentication, Registered, shown};
use super::{escape, random};
use crate::egress::HttpError;
use crate::egress::client::whole;

const TOKEN_ENDPOINT: &str = "its token endpoint";
/// A right to stay logged in, where an authorization server has one.
const OFFLINE: &str = "offline_access";
/// Longest token, in bytes: it goes into a header.
const MAX_TOKEN: usize = 16 << 10;

/// `T` is what a token endpoint answers.
pub(crate) type Client<T> = oauth2::Client<
    BasicErrorResponse,
    T,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// What a token endpoint gives.
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
    verifier: PkceCodeVerifier,
    expected: Expected,
    scopes: Vec<String>,
    url: Url,
}

impl Login {
    /// Makes everything ready; `scopes` are asked for. Nothing is sent.
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
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let asks = {
            let (server, redirect) = (&found.server, callback.address());
            let flow =
                flow::<BasicTokenResponse>(&client, &server.authorization_endpoint, &server.token_endpoint)?;
            let redirect = RedirectUrl::new(redirect).map_err(|_| unusable("the redirect address"))?;
            let flow = flow.set_redirect_uri(redirect);
            let state = state.clone();
            let (url, _) = flow
                .authorize_url(move || CsrfToken::new(state))
                .set_pkce_challenge(challenge)
                .add_scopes(asked_for(&scopes, &server.scopes).map(Scope::new))
                .add_extra_param("resource", found.resource.clone())
                .url();
            url
        };
        let expected =
            Expected { state, issuer: found.server.issuer.clone(), names_itself: found.server.names_itself };
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
    /// When the user, or the authorization server, says no; or nobody says anything in time.
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
        let redirect =
            RedirectUrl::new(self.callback.address()).map_err(|_| unusable("the redirect address"))?;
        let flow =
            flow::<BasicTokenResponse>(&self.client, &server.authorization_endpoint, &server.token_endpoint)?;
        let flow = flow.set_redirect_uri(redirect);
        let answer = flow
            .exchange_code(AuthorizationCode::new(code))
            .set_pkce_verifier(self.verifier)
            .add_extra_param("resource", self.found.resource.clone())
            .request_async(&|request| send(clients, request))
            .await;
        let tokens = tokens(answer)?;
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
    // The authorization endpoint is not asked.
    let flow = flow::<BasicTokenResponse>(&grant.client, &grant.token_endpoint, &grant.token_endpoint)?;
    let answer = flow
        .exchange_refresh_token(&RefreshToken::new(token.to_owned()))
        .add_extra_param("resource", grant.resource.clone())
        .request_async(&|request| send(clients, request))
        .await;
    tokens(answer)
}

pub(crate) fn flow<T: TokenResponse>(
    client: &Registered,
    authorization: &str,
    token: &str,
) -> Result<Client<T>, LoginError> {
    let authorization = AuthUrl::new(authorization.to_owned());
    let token = TokenUrl::new(token.to_owned());
    let flow = oauth2::Client::new(ClientId::new(client.id.clone()))
        .set_auth_uri(authorization.map_err(|_| unusable("its authorization endpoint"))?)
        .set_token_uri(token.map_err(|_| unusable(TOKEN_ENDPOINT))?)
        .set_auth_type(match client.authentication {
            Authentication::Basic => AuthType::BasicAuth,
            Authentication::Post => AuthType::RequestBody,
        });
    Ok(match &client.secret {
        Some(secret) => flow.set_client_secret(ClientSecret::new(secret.clone())),
        None => flow,
    })
}

pub(crate) fn unusable(what: &'static str) -> LoginError {
    LoginError::Refused { what, why: "it is no URL".to_owned() }
}

/// What is asked for: the wanted rights, and to stay logged in where that is one.
fn asked_for<'a>(wanted: &'a [String], known: &[String]) -> impl Iterator<Item = String> + use<'a> {
    let stays = known.iter().any(|scope| scope == OFFLINE) && !wanted.iter().any(|scope| scope == OFFLINE);
    // Alone it would mean everything else is not wanted.
    let more = (stays && !wanted.is_empty()).then(|| OFFLINE.to_owned());
    wanted.iter().cloned().chain(more)
}

/// A request of the library, sent as any of ours.
pub(crate) async fn send(clients: &Clients, request: HttpRequest) -> Result<HttpResponse, LoginError> {
    let (head, body) = request.into_parts();
    let (client, target) = place(clients, TOKEN_ENDPOINT, &head.uri.to_string())?;
    let http = |source| LoginError::Http { what: TOKEN_ENDPOINT, source };
    let answer = client.send(head.method, &target, head.headers, whole(body)).await.map_err(http)?;
    let answer = bounded(answer).await.map_err(http)?;
    if answer.status.is_server_error() || answer.status.as_u16() == 429 {
        // Later it may say something else.
        return Err(http(HttpError::Broken(format!("HTTP {}", answer.status.as_u16()))));
    }
    let body = if answer.status.is_success() { plain(&answer.body)? } else { answer.body };
    let mut response = HttpResponse::new(body);
    *response.status_mut() = answer.status;
    Ok(response)
}

/// An answer with tokens as the specification spells it. Servers give a life as text, rights as a list, and say nothing of the
/// kind where there is one only; other clients take that.
fn plain(body: &[u8]) -> Result<Vec<u8>, LoginError> {
    let Ok(Value::Object(mut answer)) = serde_json::from_slice(body) else {
        return Err(no("its answer is no JSON object"));
    };
    answer.retain(|_, value| !value.is_null());
    if !answer.get("access_token").is_some_and(Value::is_string) {
        return Err(no("its answer has no text `access_token`"));
    }
    if answer.get("refresh_token").is_some_and(|token| !token.is_string()) {
        return Err(no("`refresh_token` of its answer is not text"));
    }
    let kind = answer.entry("token_type").or_insert_with(|| Value::from("Bearer"));
    if !kind.is_string() {
        return Err(no("`token_type` of its answer is not text"));
    }
    if let Some(life) = answer.get_mut("expires_in") {
        let seconds = match &*life {
            Value::String(text) => text.trim().parse::<f64>().ok(),
            other => other.as_f64(),
        };
        let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let wrong = || no("`expires_in` of its answer is not a number of seconds");
        *life = Value::from(seconds.ok_or_else(wrong)?.as_secs());
    }
    if let Some(scope) = answer.get_mut("scope") {
        let words = scope.as_array().map(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        match (&*scope, words) {
            (Value::String(_), _) => {}
            (_, Some(Some(words))) => *scope = Value::from(words.join(" ")),
            _ => return Err(no("`scope` of its answer is neither text nor a list of texts")),
        }
    }
    Ok(Value::Object(answer).to_string().into_bytes())
}

type TokenResult<T> = Result<T, RequestTokenError<LoginError, BasicErrorResponse>>;

fn no(why: &str) -> LoginError {
    LoginError::NoToken(shown(why))
}

/// What the library says, in our words.
pub(crate) fn answered<T>(answer: TokenResult<T>) -> Result<T, LoginError> {
    answer.map_err(|error| match error {
        RequestTokenError::Request(error) => error,
        RequestTokenError::ServerResponse(said) => no(&said.to_string()),
        RequestTokenError::Parse(..) => no("its answer is not what the specification has"),
        RequestTokenError::Other(why) => no(&why),
    })
}

fn tokens(answer: TokenResult<BasicTokenResponse>) -> Result<Tokens, LoginError> {
    let answer = answered(answer)?;
    if *answer.token_type() != BasicTokenType::Bearer {
        return Err(no("it is not a bearer token"));
    }
    let access = answer.access_token().secret().clone();
    if access.is_empty() || access.len() > MAX_TOKEN || !access.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(no("it is not one word of ASCII, of 16 KiB at most"));
    }
    let scopes = answer.scopes().map(|scopes| {
        let scopes = scopes.iter().map(|scope| escape::line(scope).into_owned());
        scopes.filter(|scope| !scope.is_empty()).collect()
    });
    Ok(Tokens {
        access,
        refresh: answer.refresh_token().map(|token| token.secret().clone()),
        life: answer.expires_in().map(|life| life.as_secs()),
        scopes,
    })
}
