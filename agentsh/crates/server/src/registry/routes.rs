//! Paths, bodies and status codes. Paths that kiji has answer like kiji's.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::pages;
use crate::registry::writer::Writer;
use agentsh_database::Pool;
use agentsh_registrar::access::{self, Operators};
use agentsh_registrar::body::{self, MAX_BODY};
use agentsh_registrar::changes::{self, Requester, Times};
use agentsh_registrar::reads::timestamp_text;
use agentsh_registrar::reads::{self, Page};
use agentsh_registrar::refusal::Refusal;
use agentsh_registrar::{answer, names};

/// Bodies that are read at the same time: each may be [`MAX_BODY`] long.
const MAX_BODIES: usize = 16;
/// How long a body may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that every request needs.
pub(crate) struct App {
    pub pool: Pool,
    pub writer: Writer,
    pub operators: Operators,
    /// Names by which this server may be called.
    pub hosts: Vec<String>,
    /// The server in front of it names the caller, by a [`Caller`] on each request.
    pub is_told: bool,
    /// Whether a client on this machine may register without a token; behind a fleet server, a host.
    pub open: bool,
    pub most_servers: i64,
    pub valid_for: Option<SignedDuration>,
    pub answer_within: SignedDuration,
    pub bodies: Semaphore,
}

impl App {
    pub(crate) const fn bodies() -> Semaphore {
        Semaphore::const_new(MAX_BODIES)
    }

    pub(crate) fn times(&self) -> Times {
        let now = Timestamp::now();
        // A time so far away that no calendar has it means: never.
        let later = |span: SignedDuration| now.checked_add(span).ok().map(timestamp_text);
        Times {
            now: timestamp_text(now),
            expires: self.valid_for.and_then(later),
            answer_by: later(self.answer_within).unwrap_or_else(|| "9999".to_owned()),
        }
    }

    /// Checks who may register: an operator; on an open registry also anybody on this machine, and a host of the fleet.
    fn registers(&self, headers: &HeaderMap, by: &RequestSource) -> Result<Requester, Refusal> {
        match self.check_requester(headers, by)? {
            Requester::Host(_) if !self.open => Err(Refusal::Closed),
            who => Ok(who),
        }
    }

    /// Checks who may request a decision.
    fn check_requester(&self, headers: &HeaderMap, by: &RequestSource) -> Result<Requester, Refusal> {
        if self.is_told {
            let caller = by.caller.as_ref().ok_or(Refusal::NoOperator)?;
            return match caller.may {
                CallerRight::Decide => Ok(Requester::Operator(caller.name.clone())),
                CallerRight::Ask => Ok(Requester::Host(caller.name.clone())),
                CallerRight::Look => Err(Refusal::NoApprover),
            };
        }
        match self.operators.of(headers)? {
            Some(name) => Ok(Requester::Operator(name)),
            None if self.open && by.peer.is_some_and(|peer| peer.ip().is_loopback()) => Ok(Requester::Anyone),
            None => Err(Refusal::NoOperator),
        }
    }

    /// Checks who may decide.
    fn operator(&self, headers: &HeaderMap, by: &RequestSource) -> Result<Requester, Refusal> {
        if self.is_told {
            return match self.check_requester(headers, by)? {
                who @ Requester::Operator(_) => Ok(who),
                _ => Err(Refusal::NoApprover),
            };
        }
        self.operators.of(headers)?.map(Requester::Operator).ok_or(Refusal::NoOperator)
    }
}

/// The caller, identified by the server in front of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
    pub may: CallerRight,
}

/// The rights of a caller; each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerRight {
    Look,
    /// Register unregistered names, and otherwise ask for a decision.
    Ask,
    Decide,
}

/// The origin of a request, which a client cannot forge.
struct RequestSource {
    peer: Option<SocketAddr>,
    caller: Option<Caller>,
}

impl<S: Sync> FromRequestParts<S> for RequestSource {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self {
            peer: parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0),
            caller: parts.extensions.get().cloned(),
        })
    }
}

pub(crate) type Shared = State<Arc<App>>;

pub(crate) fn router(app: Arc<App>) -> Router {
    // Behind another server its pages are the ones that people see.
    let pages = if app.is_told { Router::new() } else { pages::router() };
    Router::new()
        .merge(pages)
        .route("/servers", get(list).post(register))
        .route("/servers/", get(async || redirect()).post(async || redirect()))
        .route("/servers/{hash}", get(by_hash))
        .route("/servers/{hash}/revoke", post(revoke))
        .route("/approvals", get(approvals).post(request))
        .route("/approvals/{id}", get(approval))
        .route("/approvals/{id}/approve", post(decide::<true>))
        .route("/approvals/{id}/reject", post(decide::<false>))
        .route("/log", get(log))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .fallback(async || not_found())
        .method_not_allowed_fallback(async || {
            let body = json!({ "detail": "Method Not Allowed" }).to_string();
            answer::reply(StatusCode::METHOD_NOT_ALLOWED, body)
        })
        .layer(from_fn_with_state(Arc::clone(&app), gate))
        .with_state(app)
}

/// Before anything else: is the request meant for this server, and from a page of its own?
async fn gate(State(app): Shared, request: Request, next: Next) -> Response {
    let is_known = if app.is_told {
        request.extensions().get::<Caller>().map(drop).ok_or(Refusal::NoOperator)
    } else {
        access::same_site(request.method(), request.headers(), &app.hosts)
    };
    if let Err(refusal) = is_known {
        return refusal.into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Numbers of registrations and requests by status, for Prometheus.
async fn metrics(State(app): Shared) -> Result<Response, Refusal> {
    let now = app.times().now;
    let counts = app.pool.ask(move |db| reads::counts(db, &now)).await?;
    let mut text = String::new();
    for (name, help, rows) in counts {
        let _infallible = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for (status, number) in rows {
            let _infallible = writeln!(text, "{name}{{status=\"{status}\"}} {number}");
        }
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

fn redirect() -> Response {
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/servers")]).into_response()
}

fn not_found() -> Response {
    answer::reply(StatusCode::NOT_FOUND, json!({ "detail": "Not Found" }).to_string())
}

/// The whole body, within bounds of length and time.
pub(crate) async fn read_body(app: &App, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::TooLarge(format!("a body has at most {MAX_BODY} bytes"));
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_some_and(|declared: usize| declared > MAX_BODY) {
        return Err(too_large());
    }
    let _place = app.bodies.acquire().await;
    within(MAX_BODY, body).await
}

/// A body of at most `most` bytes that arrives in time.
pub(crate) async fn within(most: usize, body: Body) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Refusal::TooLarge(format!("a body has at most {most} bytes"))),
        Err(_) => Err(Refusal::Contradiction("the body did not arrive in time".into())),
    }
}

async fn register(
    State(app): Shared,
    by: RequestSource,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let who = app.registers(&headers, &by)?;
    let bytes = read_body(&app, &headers, body).await?;
    let registration = body::registration(&headers, &bytes)?;
    drop(bytes);
    let (times, most) = (app.times(), app.most_servers);
    // Most registrations repeat what is known: that needs no transaction.
    let (name, hash) = (registration.submission.name.clone(), registration.submission.hash.clone());
    let known = app.pool.ask(move |db| reads::record(db, &name, &hash)).await?;
    let row = match known.filter(|row| reads::is_current(row, &times.now)) {
        Some(row) => row,
        None => {
            app.writer
                .change(move |ledger| changes::register(ledger, &registration, &who, &times, most))
                .await?
        }
    };
    Ok(answer::reply(StatusCode::CREATED, reads::record_json(&row)))
}

async fn list(State(app): Shared, uri: axum::http::Uri) -> Result<Response, Refusal> {
    let query = Query::read(&uri, 20)?;
    let now = app.times().now;
    let (rows, total) = app
        .pool
        .ask(move |db| {
            reads::list(db, query.name.as_deref(), &now, query.status.as_deref() == Some("all"), query.page)
        })
        .await?;
    let servers = answer::array(&rows, answer::server);
    Ok(answer::reply(StatusCode::OK, format!(r#"{{"servers":{servers},"total":{total}}}"#)))
}

async fn by_hash(
    State(app): Shared,
    Path(hash): Path<String>,
    uri: axum::http::Uri,
) -> Result<Response, Refusal> {
    let query = Query::read(&uri, 100)?;
    let now = app.times().now;
    let all = query.status.as_deref() == Some("all");
    let rows = app.pool.ask(move |db| reads::by_hash(db, &hash, &now, all, query.page)).await?;
    if rows.is_empty() {
        return Err(Refusal::Missing("no server registered with this hash"));
    }
    Ok(answer::reply(StatusCode::OK, answer::array(&rows, answer::server)))
}

async fn revoke(
    State(app): Shared,
    Path(hash): Path<String>,
    by: RequestSource,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let who = app.operator(&headers, &by)?;
    let remark = body::remark(&headers, &read_body(&app, &headers, body).await?)?;
    let times = app.times();
    let rows = app.writer.change(move |ledger| changes::revoke(ledger, &hash, &remark, &who, &times)).await?;
    Ok(answer::reply(StatusCode::OK, answer::array(&rows, answer::server)))
}

async fn request(
    State(app): Shared,
    by: RequestSource,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let who = app.check_requester(&headers, &by)?;
    let asked = body::approval(&headers, &read_body(&app, &headers, body).await?)?;
    let times = app.times();
    let row = app.writer.change(move |ledger| changes::request(ledger, &asked, &who, &times)).await?;
    Ok(one_approval(StatusCode::CREATED, &row))
}

fn one_approval(status: StatusCode, row: &[agentsh_database::Value]) -> Response {
    let mut out = String::new();
    answer::approval(row, &mut out);
    answer::reply(status, out)
}

async fn approvals(State(app): Shared, uri: axum::http::Uri) -> Result<Response, Refusal> {
    let query = Query::read(&uri, 50)?;
    let now = app.times().now;
    let status = query.status.unwrap_or_else(|| "pending".to_owned());
    let (rows, total) = app.pool.ask(move |db| reads::approvals(db, &status, &now, query.page)).await?;
    let approvals = answer::array(&rows, answer::approval);
    Ok(answer::reply(StatusCode::OK, format!(r#"{{"approvals":{approvals},"total":{total}}}"#)))
}

async fn approval(State(app): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    let (id, now) = (number(&id)?, app.times().now);
    let row = app.pool.ask(move |db| reads::approval(db, id, &now)).await?;
    let row = row.ok_or(Refusal::Missing("no approval request with this id"))?;
    Ok(one_approval(StatusCode::OK, &row))
}

async fn decide<const YES: bool>(
    State(app): Shared,
    Path(id): Path<String>,
    by: RequestSource,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let who = app.operator(&headers, &by)?;
    let id = number(&id)?;
    let remark = body::remark(&headers, &read_body(&app, &headers, body).await?)?;
    let times = app.times();
    let row =
        app.writer.change(move |ledger| changes::decide(ledger, id, YES, &remark, &who, &times)).await?;
    Ok(one_approval(StatusCode::OK, &row))
}

async fn log(State(app): Shared, uri: axum::http::Uri) -> Result<Response, Refusal> {
    let Page { limit, offset } = Query::read(&uri, 100)?.page;
    let entries = app.pool.ask(move |db| reads::log(db, offset, limit)).await?;
    let mut shown = Vec::with_capacity(entries.len());
    for (entry, digest) in entries {
        let mut value = serde_json::to_value(&entry).unwrap_or_default();
        if let Some(members) = value.as_object_mut() {
            members.insert("digest".to_owned(), Value::String(digest));
        }
        shown.push(value);
    }
    Ok(answer::reply(StatusCode::OK, json!({ "entries": shown }).to_string()))
}

/// The part of an address after `?`.
struct Query {
    name: Option<String>,
    status: Option<String>,
    page: Page,
}

impl Query {
    /// Unknown names are ignored, as kiji does.
    fn read(uri: &axum::http::Uri, usual: i64) -> Result<Self, Refusal> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        let pairs = pairs.map(|query| query.0).map_err(|_| Refusal::Contradiction("not a query".into()))?;
        let mut query = Self { name: None, status: None, page: Page { limit: usual, offset: 0 } };
        let mut mistakes = Vec::new();
        for (name, value) in pairs {
            match name.as_str() {
                "name" => query.name = Some(names::normal(&value).unwrap_or(value)),
                "status" => query.status = Some(value),
                "limit" => check_bounds(&mut query.page.limit, "limit", &value, 1, 100, &mut mistakes),
                "offset" => {
                    check_bounds(&mut query.page.offset, "offset", &value, 0, i64::MAX, &mut mistakes)
                }
                _ => {}
            }
        }
        if mistakes.is_empty() { Ok(query) } else { Err(Refusal::Invalid(mistakes)) }
    }
}

fn check_bounds(place: &mut i64, name: &str, text: &str, least: i64, most: i64, mistakes: &mut Vec<Value>) {
    let whole = text.strip_prefix(['-', '+']).unwrap_or(text);
    if whole.is_empty() || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        mistakes.push(no_integer(json!(["query", name]), text));
        return;
    }
    match text.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => *place = number,
        parsed => {
            let below = parsed.map_or(text.starts_with('-'), |number| number < least);
            let (kind, word, key, bound) = if below {
                ("greater_than_equal", "greater", "ge", least)
            } else {
                ("less_than_equal", "less", "le", most)
            };
            mistakes.push(json!({
                "type": kind,
                "loc": ["query", name],
                "msg": format!("Input should be {word} than or equal to {bound}"),
                "input": text,
                "ctx": { key: bound },
            }));
        }
    }
}

fn no_integer(place: Value, text: &str) -> Value {
    let text: String = text.chars().take(256).collect();
    json!({
        "type": "int_parsing",
        "loc": place,
        "msg": "Input should be a valid integer, unable to parse string as an integer",
        "input": text,
    })
}

/// The number of a request for approval. An impossible one is unknown.
fn number(text: &str) -> Result<i64, Refusal> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Refusal::Invalid(vec![no_integer(json!(["path", "approval_id"]), text)]));
    }
    text.parse().map_err(|_| Refusal::Missing("no approval request with this id"))
}
