//! The way in and out: a token or a credential becomes a cookie.

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::{Answer, App, COOKIE, Shared, Trouble, cookie, form, page};
use crate::fleet::wire::{LoggedIn, Login, Who};
use crate::fleet::{Client, ClientError};
use crate::web;

/// How long a browser keeps the cookie, in seconds.
const KEPT: u32 = 12 * 3600;
/// How tokens begin that are used once.
const ONCE: &str = "agf_once_";

pub(super) async fn show() -> Response {
    page(web::sign_in(None))
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
        let got: LoggedIn = anyone.post("/v1/login", &Login { token: given }).await.map_err(refused)?;
        got.credential
    } else {
        let known = Client::inside(app.server.clone(), Some(given.clone()));
        let _who: Who = known.get("/v1/who").await.map_err(refused)?;
        given
    };
    // From a page of our own the first page is asked for with the cookie.
    Ok(([(header::SET_COOKIE, app.baked(&credential, KEPT))], page(web::opened())).into_response())
}

fn refused(error: ClientError) -> Trouble {
    match error {
        ClientError::Status { status: 400..=403, said, .. } => Trouble::SignIn(Some(said)),
        ClientError::Credential => Trouble::SignIn(Some("This is no credential.".to_owned())),
        other => other.into(),
    }
}

#[derive(Deserialize)]
pub(super) struct Out {
    #[serde(default)]
    token: String,
}

/// The browser forgets the credential; `agentsh fleet revoke --credential NAME` ends it.
pub(super) async fn sign_out(State(app): Shared, headers: HeaderMap, Form(out): Form<Out>) -> Answer {
    let is_form = cookie(&headers).is_some_and(|credential| form(&credential) == out.token);
    if !is_form {
        return Err(Trouble::Other(StatusCode::FORBIDDEN, super::NOT_A_FORM.to_owned()));
    }
    Ok(([(header::SET_COOKIE, app.baked("", 0))], page(web::sign_in(None))).into_response())
}

impl App {
    fn baked(&self, credential: &str, kept: u32) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{COOKIE}={credential}; HttpOnly; SameSite=Strict; Path=/; Max-Age={kept}{secure}")
    }
}
