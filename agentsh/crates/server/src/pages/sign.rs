//! Sign-in and sign-out: exchanges a token or a credential for a cookie.

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::{Answer, App, COOKIE, PageFailure, Shared, cookie, form, page};
use agentsh_fleet::wire::{CredentialOwner, LoggedIn, Login};
use agentsh_fleet::{Client, ClientError};
use agentsh_web as web;

/// How long a browser keeps the cookie, in seconds.
const COOKIE_SECONDS: u32 = 12 * 3600;
/// How tokens begin that are used once.
const ONE_TIME_PREFIX: &str = "agf_once_";

pub(super) async fn show(State(app): Shared) -> Response {
    app.sign_in_as(StatusCode::OK, None).into_response()
}

#[derive(Deserialize)]
pub(super) struct SignInForm {
    #[serde(default)]
    credential: String,
}

pub(super) async fn sign_in(State(app): Shared, Form(filled): Form<SignInForm>) -> Answer {
    let given = filled.credential.trim().to_owned();
    let credential = if given.starts_with(ONE_TIME_PREFIX) {
        let anyone = Client::in_process(app.server.clone(), None);
        let got: LoggedIn = anyone
            .post("/v1/login", &Login { token: given })
            .await
            .map_err(|error| app.page_failure(error))?;
        got.credential
    } else {
        let known = Client::in_process(app.server.clone(), Some(given.clone()));
        let _who: CredentialOwner = known.get("/v1/who").await.map_err(|error| app.page_failure(error))?;
        given
    };
    Ok(app.open_with_cookie(&credential))
}

#[derive(Deserialize)]
pub(super) struct SignOutForm {
    #[serde(default)]
    token: String,
}

/// The browser forgets the credential; a sign-in at a provider ends with it, and `agentsh fleet revoke --credential NAME` ends
/// every other one.
pub(super) async fn sign_out(State(app): Shared, headers: HeaderMap, Form(out): Form<SignOutForm>) -> Answer {
    let credential = cookie(&headers, COOKIE).filter(|credential| form(credential) == out.token);
    let Some(credential) = credential else {
        return Err(PageFailure::Other(StatusCode::FORBIDDEN, super::NOT_A_FORM.to_owned()));
    };
    let person = Client::in_process(app.server.clone(), Some(credential));
    let _state: serde_json::Value = person.post("/v1/sign-out", &serde_json::json!({})).await?;
    let mut response = app.sign_in_as(StatusCode::OK, None).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&app.baked("", 0)) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

impl App {
    /// From a page of our own the first page is asked for with the cookie.
    pub(super) fn open_with_cookie(&self, credential: &str) -> Response {
        ([(header::SET_COOKIE, self.baked(credential, COOKIE_SECONDS))], page(web::opened_page()))
            .into_response()
    }

    fn page_failure(&self, error: ClientError) -> PageFailure {
        match error {
            ClientError::Status { status: 400..=403, said, .. } => self.sign_in(Some(said)),
            ClientError::Credential => self.sign_in(Some("This is not a credential.".to_owned())),
            other => other.into(),
        }
    }

    fn baked(&self, credential: &str, kept: u32) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{COOKIE}={credential}; HttpOnly; SameSite=Strict; Path=/; Max-Age={kept}{secure}")
    }
}
