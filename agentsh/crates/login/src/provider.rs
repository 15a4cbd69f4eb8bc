//! Signing in to pages of our own at an OpenID provider: the authorization code flow with PKCE and a nonce. What comes of it is
//! an id token, which is looked into by somebody else; nothing here is kept.

use std::fmt;

use oauth2::basic::BasicTokenType;
use oauth2::{
    AuthorizationCode, CsrfToken, ExtraTokenFields, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    StandardTokenResponse,
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::ask::Clients;
use super::discovery;
use super::error::LoginError;
use super::flow::{answered, flow, send, unusable};
use super::metadata::AuthorizationServer;
use super::random;
use super::registration::Registered;

/// What makes a token endpoint give an id token.
const OPENID: &str = "openid";

/// A sign-in that waits for its user. Whoever has the browser keeps the three words, and nobody else knows them.
#[derive(Clone, PartialEq, Eq)]
pub struct Begun {
    /// Where the browser goes.
    pub url: Url,
    pub words: Words,
}

/// What makes an answer one to this sign-in.
#[derive(Clone, PartialEq, Eq)]
pub struct Words {
    /// Comes back in the answer of the browser.
    pub state: String,
    /// Comes back in the id token.
    pub nonce: String,
    /// Goes with the code.
    pub verifier: String,
}

#[derive(Deserialize, Serialize)]
struct Identity {
    id_token: Option<String>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl ExtraTokenFields for Identity {}

type Answer = StandardTokenResponse<Identity, BasicTokenType>;

/// What the provider says about itself.
///
/// # Errors
/// When it says nothing, or nothing that is believed.
pub async fn discover(clients: &Clients, issuer: &str) -> Result<AuthorizationServer, LoginError> {
    discovery::described(clients, issuer).await
}

/// Makes a sign-in ready. Nothing is sent.
///
/// # Errors
/// When an address cannot be used.
pub fn begin(
    server: &AuthorizationServer,
    client: &Registered,
    redirect: &str,
    scopes: &[String],
) -> Result<Begun, LoginError> {
    let word = || random::hex::<32>().map_err(LoginError::NoRandom);
    let (state, nonce) = (word()?, word()?);
    let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
    let flow = flow::<Answer>(client, &server.authorization_endpoint, &server.token_endpoint)?;
    let flow = flow.set_redirect_uri(redirection(redirect)?);
    let said = state.clone();
    let (url, _) = flow
        .authorize_url(move || CsrfToken::new(said))
        .set_pkce_challenge(challenge)
        .add_scope(Scope::new(OPENID.to_owned()))
        .add_scopes(scopes.iter().cloned().map(Scope::new))
        .add_extra_param("nonce", nonce.clone())
        .url();
    Ok(Begun { url, words: Words { state, nonce, verifier: verifier.secret().clone() } })
}

/// Trades a code for an id token.
///
/// # Errors
/// When the provider says no, or gives none.
pub async fn trade(
    clients: &Clients,
    server: &AuthorizationServer,
    client: &Registered,
    redirect: &str,
    (code, verifier): (String, String),
) -> Result<String, LoginError> {
    let flow = flow::<Answer>(client, &server.authorization_endpoint, &server.token_endpoint)?;
    let flow = flow.set_redirect_uri(redirection(redirect)?);
    let answer = flow
        .exchange_code(AuthorizationCode::new(code))
        .set_pkce_verifier(PkceCodeVerifier::new(verifier))
        .request_async(&|request| send(clients, request))
        .await;
    let identity = answered(answer)?.extra_fields().id_token.clone();
    identity.ok_or_else(|| LoginError::NoToken("its answer has no id token".to_owned()))
}

fn redirection(redirect: &str) -> Result<RedirectUrl, LoginError> {
    RedirectUrl::new(redirect.to_owned()).map_err(|_| unusable("the redirect address"))
}
