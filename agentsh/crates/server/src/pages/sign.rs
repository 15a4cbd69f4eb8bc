//! Sign-in and sign-out: exchanges a token or a credential for a cookie.

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::{Answer, App, COOKIE, PageFailure, Shared, cookie, form, page};
use agentsh_fleet::wire::{LoggedIn, Login, Who};
use agentsh_fleet::{Client, ClientError};
use agentsh_web as web;

/// How long a browser keeps the cookie, in seconds.
const KEPT: u32 = 12 * 3600;
/// How tokens begin that are used once.
const ONCE: &str = "agf_once_";

pub(super) async fn show(State(app): Shared) -> Response {
    app.sign_in_as(StatusCode::OK, None).into_response()
}

#[derive(Deserialize)]
pub(super) struct Filled {
    #[serde(default)]
    credential: String,
}

pub(super) async fn sign_in(State(app): Shared, Form(filled): Form<Filled>) -> Answer {
    let given = filled.credential.trim().to_owned();
    let credential = if given.starts_with(ONCE) {
        let anyone = Client::inside(app.server.clone(), None);
        let got: LoggedIn =
            anyone.post("/v1/login", &Login { token: given }).await.map_err(|error| app.refused(error))?;
        got.credential
    } else {
        let known = Client::inside(app.server.clone(), Some(given.clone()));
        let _who: Who = known.get("/v1/who").await.map_err(|error| app.refused(error))?;
        given
    };
    Ok(app.opened(&credential))
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
    let person = Client::inside(app.server.clone(), Some(credential));
    let _state: serde_json::Value = person.post("/v1/sign-out", &serde_json::json!({})).await?;
    let mut response = app.sign_in_as(StatusCode::OK, None).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&app.baked("", 0)) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

impl App {
    /// From a page of our own the first page is asked for with the cookie.
    pub(super) fn opened(&self, credential: &str) -> Response {
        ([(header::SET_COOKIE, self.baked(credential, KEPT))], page(web::opened())).into_response()
    }

    fn refused(&self, error: ClientError) -> PageFailure {
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
