//! Handles the forms of the pages.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, App, NOT_A_FORM, PageFailure, Person, Shared, page};
use agentsh::cli::server::answer_question;
use agentsh_fleet::wire::{ApprovalAnswer, RevokePeople, Revoked};
use agentsh_web::{Href, Message, Place, message};

#[derive(Deserialize)]
pub(super) struct TokenForm {
    #[serde(default)]
    token: String,
}

impl App {
    /// The person who sent a form, from a page of this server.
    async fn check_form(&self, headers: &HeaderMap, filled: &TokenForm) -> Result<Person, PageFailure> {
        let person = self.signed_in_person(headers).await?;
        if person.form == filled.token {
            Ok(person)
        } else {
            Err(PageFailure::Other(StatusCode::FORBIDDEN, NOT_A_FORM.to_owned()))
        }
    }
}

pub(super) async fn accept(
    State(app): Shared,
    Path(host): Path<String>,
    headers: HeaderMap,
    Form(filled): Form<TokenForm>,
) -> Answer {
    host_is(&app.check_form(&headers, &filled).await?, &host, "accept", "is accepted again").await
}

pub(super) async fn revoke(
    State(app): Shared,
    Path(host): Path<String>,
    headers: HeaderMap,
    Form(filled): Form<TokenForm>,
) -> Answer {
    host_is(&app.check_form(&headers, &filled).await?, &host, "revoke", "is revoked").await
}

/// The answer of an approver.
#[derive(Deserialize)]
pub(super) struct AnswerForm {
    #[serde(flatten)]
    filled: TokenForm,
    #[serde(default)]
    bound: String,
    #[serde(default)]
    answer: String,
}

pub(super) async fn answer(
    State(app): Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    Form(form): Form<AnswerForm>,
) -> Answer {
    let person = app.check_form(&headers, &form.filled).await?;
    let (approve, scope) = match form.answer.as_str() {
        "once" => (true, "once"),
        "session" => (true, "session"),
        "deny" => (false, "session"),
        _ => {
            let why = "an answer is once, session or deny".to_owned();
            return Err(PageFailure::Other(StatusCode::BAD_REQUEST, why));
        }
    };
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(PageFailure::Other(StatusCode::NOT_FOUND, "no such question".to_owned()));
    }
    let said = ApprovalAnswer { approve, scope: scope.to_owned(), bound: form.bound };
    answer_question(person.fleet.client(), &id, &said).await?;
    let word = if approve { "Approved" } else { "Denied" };
    Ok(done_page(&person, Place::Approvals, "approvals", format!("{word}: question {id}.")))
}

async fn host_is(person: &Person, host: &str, verb: &str, now: &str) -> Answer {
    let missing = || PageFailure::Other(StatusCode::NOT_FOUND, "no such host".to_owned());
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(missing());
    }
    let path = format!("/v1/hosts/{host}/{verb}");
    let _state: Value = person.fleet.client().post(&path, &json!({})).await?;
    Ok(done_page(person, Place::Hosts, "hosts", format!("Host {host} {now}.")))
}

pub(super) async fn revoke_person(
    State(app): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    Form(filled): Form<TokenForm>,
) -> Answer {
    let person = app.check_form(&headers, &filled).await?;
    let asked = RevokePeople { name: name.clone() };
    let revoked: Revoked = person.fleet.client().post("/v1/credentials/revoke", &asked).await?;
    let said =
        format!("Revoked {} credentials of '{name}' and all unused tokens with that name.", revoked.revoked);
    Ok(done_page(&person, Place::People, "people", said))
}

fn done_page(person: &Person, here: Place, back: &str, said: String) -> axum::response::Response {
    let back = Some((Href::to(&[back]), "Back".to_owned()));
    let shown = Message { title: String::new(), lines: vec![said], back };
    page(message(&person.frame("Done", here), &shown))
}
