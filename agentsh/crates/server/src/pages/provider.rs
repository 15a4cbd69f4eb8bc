//! Sign-in at an OpenID provider in a browser. State and nonce are in a cookie of the browser: any server on the same
//! database can accept the answer, and an answer for another browser is refused.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::identity::{Identity, SignInRefusal};
use super::{Answer, App, PageFailure, Shared, cookie};
use agentsh_login::provider::SignInSecrets;

pub(super) const BEGIN: &str = "/sign-in/provider";
/// How long a sign-in may take, in seconds.
const SIGN_IN_TIMEOUT_S: u32 = 600;
/// Longest answer of a browser, in bytes.
const MAX_QUERY: usize = 8 << 10;

/// Sends the browser to the provider.
pub(super) async fn begin(State(app): Shared) -> Answer {
    let identity = app.provider()?;
    let begun = identity.begin().await.map_err(|refused| app.not_signed_in(refused))?;
    let SignInSecrets { state, nonce, verifier } = &begun.words;
    let cookie = app.waiting(&format!("{state}.{nonce}.{verifier}"), SIGN_IN_TIMEOUT_S);
    let head = [(header::LOCATION, begun.url.to_string()), (header::SET_COOKIE, cookie)];
    Ok((StatusCode::SEE_OTHER, head).into_response())
}

/// The browser comes back. The same answer never counts twice, even if the login fails.
pub(super) async fn finish(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    let mut response = match app.finished(&headers, query.unwrap_or_default()).await {
        Ok(response) => response,
        Err(trouble) => trouble.into_response(),
    };
    if let Ok(cookie) = HeaderValue::from_str(&app.waiting("", 0)) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

impl App {
    fn provider(&self) -> Result<&Identity, PageFailure> {
        let none =
            || PageFailure::Other(StatusCode::NOT_FOUND, "this server has no identity provider".to_owned());
        self.identity.as_ref().ok_or_else(none)
    }

    async fn finished(&self, headers: &HeaderMap, query: String) -> Answer {
        let identity = self.provider()?;
        let kept = cookie(headers, self.waits()).and_then(|kept| parse_secrets(&kept));
        let Some(words) = kept.filter(|_| query.len() <= MAX_QUERY) else {
            let said = "This sign-in was not started in this browser, or has expired. Start again.";
            return Err(self.sign_in(Some(said.to_owned())));
        };
        let sign_in = identity.finish(query, words).await.map_err(|refused| self.not_signed_in(refused))?;
        match self.gate.signed_in(sign_in).await {
            Ok(credential) => Ok(self.open_with_cookie(&credential)),
            Err(response) => Ok(response),
        }
    }

    fn not_signed_in(&self, refused: SignInRefusal) -> PageFailure {
        let (status, said) = match refused {
            SignInRefusal::Not(said) => (StatusCode::UNAUTHORIZED, said),
            SignInRefusal::NoRole(said) => (StatusCode::FORBIDDEN, said),
            SignInRefusal::Later(said) => (StatusCode::SERVICE_UNAVAILABLE, said),
        };
        self.sign_in_as(status, Some(said))
    }

    /// The name of the cookie: under TLS one that no other host can have set.
    fn waits(&self) -> &'static str {
        if self.is_secure { "__Host-agentsh-sign-in" } else { "agentsh-sign-in" }
    }

    /// `Lax`: it has to come along when the provider sends the browser back.
    fn waiting(&self, words: &str, within: u32) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{}={words}; HttpOnly; SameSite=Lax; Path=/; Max-Age={within}{secure}", self.waits())
    }
}

fn parse_secrets(kept: &str) -> Option<SignInSecrets> {
    let mut parts = kept.split('.').map(str::to_owned);
    let words = SignInSecrets { state: parts.next()?, nonce: parts.next()?, verifier: parts.next()? };
    let is_whole = [&words.state, &words.nonce, &words.verifier].into_iter().all(|word| word.len() >= 32);
    (is_whole && parts.next().is_none()).then_some(words)
}
