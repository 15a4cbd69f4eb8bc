//! The page of a standalone registry: registrations and pending decisions. Everybody who reaches the registry may read
//! it. A decision needs an operator's token in the form; no browser stores it, so no page of another site can send it.

use agentsh_web::{self as web, DecisionMaker, Frame, HEADERS, Href, Message, Pages, Place, STYLE};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::registry::routes::{App, Shared, within};
use agentsh_registrar::body::DecisionNote;
use agentsh_registrar::changes::{self, Requester};
use agentsh_registrar::refusal::Refusal;
use agentsh_registrar::{catalogue, shown};

/// Longest form, in bytes: a reason whose bytes are all escaped, and a token.
const MAX_FORM: usize = 16 << 10;
/// Longest reason, in bytes.
const MAX_REASON: usize = 4 << 10;

pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(search))
        .route("/registry", get(search))
        .route("/registry/{id}", get(one))
        .route("/registry/approvals/{id}", post(decide))
        .route("/style.css", get(async || ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE)))
        .layer(map_response(with_headers))
}

async fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[derive(Deserialize)]
struct SearchQuery {
    #[serde(default)]
    q: String,
    before: Option<i64>,
}

async fn search(State(app): Shared, Query(wanted): Query<SearchQuery>) -> Result<Response, PageError> {
    let (text, before, now) = (wanted.q.clone(), wanted.before.unwrap_or(i64::MAX), app.times().now);
    let asked = app.pool.ask(move |db| {
        Ok((
            catalogue::search(db, &text, before, shown::QUERY_LIMIT)?,
            catalogue::pending_requests(db, &now)?,
        ))
    });
    let (found, requested) = asked.await.map_err(Refusal::from)?;
    let requested = requested.iter().map(|one| shown::requested_row(one, DecisionMaker::Operators)).collect();
    let page = shown::registry(wanted.q, found, requested);
    Ok(html(StatusCode::OK, web::registry(&frame("Registry"), &page)))
}

async fn one(State(app): Shared, Path(id): Path<i64>) -> Result<Response, PageError> {
    let found = app.pool.ask(move |db| catalogue::registration(db, id)).await.map_err(Refusal::from)?;
    let (found, diff) = found.ok_or(Refusal::Missing("no registration has this number"))?;
    let detail = shown::detail(&found, diff);
    Ok(html(StatusCode::OK, web::registry_detail(&frame(&found.name), &detail)))
}

async fn decide(
    State(app): Shared,
    Path(id): Path<i64>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, PageError> {
    let known = app.operators.of(&headers)?;
    // Its token is inside, so anybody may send one: it takes no place of a registration.
    let bytes = within(MAX_FORM, body).await?;
    let form = Form::read(&headers, &bytes);
    let who = match known {
        Some(name) => name,
        None => app
            .operators
            .operator_with_token(&form.as_ref().map(|form| form.token.clone()).unwrap_or_default())?,
    };
    let form = form.ok_or_else(|| {
        Refusal::Invalid(vec![json!("the decision must be approve or reject, sent as a form")])
    })?;
    let (approve, remark) = (form.approve, DecisionNote { reason: form.reason, ..DecisionNote::default() });
    let (times, who) = (app.times(), Requester::Operator(who));
    let row =
        app.writer.change(move |ledger| changes::decide(ledger, id, approve, &remark, &who, &times)).await?;
    let text = |at: usize| row.get(at).map_or("", agentsh_database::Value::as_text);
    // Another person may have decided first: the page shows the decision in force.
    Ok(message(
        StatusCode::OK,
        "Decided",
        format!("Request {id}, the interface of '{}', is {}.", text(1), text(6)),
    ))
}

/// The fields of the form.
struct Form {
    token: String,
    reason: String,
    approve: bool,
}

impl Form {
    /// None: the body is not this form.
    fn read(headers: &HeaderMap, bytes: &[u8]) -> Option<Self> {
        let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        if kind.split(';').next()?.trim() != "application/x-www-form-urlencoded" {
            return None;
        }
        let member = |wanted: &str| {
            let found = url::form_urlencoded::parse(bytes).find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let approve = match member("answer").as_str() {
            "approve" => true,
            "reject" => false,
            _ => return None,
        };
        let reason = Some(member("reason")).filter(|reason| reason.len() <= MAX_REASON)?;
        Some(Self { token: member("token"), reason, approve })
    }
}

/// A refusal, for people.
struct PageError(Refusal);

impl<T: Into<Refusal>> From<T> for PageError {
    fn from(refusal: T) -> Self {
        Self(refusal.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        if matches!(self.0, Refusal::NoOperator) {
            let why = "An operator's token is required; nothing was changed.".to_owned();
            return message(StatusCode::UNAUTHORIZED, "Not decided", why);
        }
        let (status, detail) = self.0.status_and_detail();
        let said = match detail {
            Value::String(said) => said,
            other => other.to_string(),
        };
        message(status, status.canonical_reason().unwrap_or("Trouble"), said)
    }
}

fn frame(title: &str) -> Frame {
    Frame {
        title: title.to_owned(),
        here: Place::Registry,
        waiting: 0,
        token: String::new(),
        newest: None,
        of: Pages::Registry,
    }
}

fn message(status: StatusCode, title: &str, line: String) -> Response {
    let back = Some((Href::to(&[]), "Back to the registry".to_owned()));
    let said = Message { title: title.to_owned(), lines: vec![line], back };
    html(status, web::message(&frame(title), &said))
}

fn html(status: StatusCode, page: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}
