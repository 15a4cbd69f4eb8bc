//! Sign-in to agentsh's pages at an OpenID provider: the authorization code flow with PKCE and a nonce. The result is
//! an id token, which another module verifies; nothing is stored here.

use url::Url;

use super::ask::Clients;
use super::discovery;
use super::error::LoginError;
use super::flow::{ask, authorization_url, parse_url};
use super::metadata::AuthorizationServer;
use super::pkce::Pkce;
use super::random;
use super::registration::Registered;

/// The scope for which a token endpoint returns an id token.
const OPENID: &str = "openid";

/// A pending sign-in. Only the user's browser keeps the three values.
#[derive(Clone, PartialEq, Eq)]
pub struct PendingSignIn {
    /// The address that the browser opens.
    pub url: Url,
    pub words: SignInSecrets,
}

/// The values that bind an answer to this sign-in.
#[derive(Clone, PartialEq, Eq)]
pub struct SignInSecrets {
    /// Comes back in the answer of the browser.
    pub state: String,
    /// Comes back in the id token.
    pub nonce: String,
    /// Goes with the code.
    pub verifier: String,
}

/// The provider's metadata.
///
/// # Errors
/// If it does not answer, or its answer is not valid.
pub async fn discover(clients: &Clients, issuer: &str) -> Result<AuthorizationServer, LoginError> {
    discovery::server_metadata(clients, issuer).await
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
) -> Result<PendingSignIn, LoginError> {
    let word = || random::hex::<32>().map_err(LoginError::NoRandom);
    let (state, nonce) = (word()?, word()?);
    let Pkce { challenge, verifier } = Pkce::new().map_err(LoginError::NoRandom)?;
    parse_url(redirect, "the redirect address")?;
    let scopes: Vec<&str> = std::iter::once(OPENID).chain(scopes.iter().map(String::as_str)).collect();
    let url = authorization_url(
        &server.authorization_endpoint,
        &[
            ("client_id", &client.id),
            ("state", &state),
            ("code_challenge", &challenge),
            ("redirect_uri", redirect),
            ("scope", &scopes.join(" ")),
            ("nonce", &nonce),
        ],
    )?;
    Ok(PendingSignIn { url, words: SignInSecrets { state, nonce, verifier } })
}

/// Trades a code for an id token.
///
/// # Errors
/// When the provider refuses, or its answer has no id token.
pub async fn trade(
    clients: &Clients,
    server: &AuthorizationServer,
    client: &Registered,
    redirect: &str,
    (code, verifier): (String, String),
) -> Result<String, LoginError> {
    parse_url(redirect, "the redirect address")?;
    let asked = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("code_verifier", verifier.as_str()),
        ("redirect_uri", redirect),
    ];
    let answer = ask(clients, client, &server.token_endpoint, &asked).await?;
    let identity = answer.get("id_token").and_then(serde_json::Value::as_str);
    identity.map(str::to_owned).ok_or_else(|| LoginError::NoToken("its answer has no id token".to_owned()))
}
