//! Paths and bodies.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agentsh_database::{Connection, DbError, Pool, Value};
use axum::body::{Body, Bytes};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::fleet::access::{Claim, Role, authorize, bearer};
use crate::fleet::arrival;
use crate::fleet::event_ids::Places;
use crate::fleet::metrics::Metrics;
use crate::fleet::reads::{self, Filter};
use crate::fleet::refusal::Refusal;
use crate::fleet::{access, asks, bundles, enrolment, heads, sign_ins};
use agentsh_fleet::batch::{Batch, MAX_SENT};
use agentsh_fleet::wire::{ApprovalAnswer, Ask, AskToken, Enrol, Login, Position, RevokePeople, Revoked};
use agentsh_store::words::Action;
use agentsh_store::{Event, SEVERITIES};

/// Batches that are read, wait or are written at once; the next one is asked to come later.
pub(crate) const MAX_BATCHES: usize = 48;
/// Limit for one host, so that a single host cannot block all others.
const OF_ONE_HOST: usize = 4;
/// How long a body may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest body of everything but batches, in bytes.
const MAX_BODY: usize = 16 << 10;

pub(crate) struct App {
    pub readers: Pool,
    pub writers: Pool,
    pub places: Arc<Places>,
    pub batches: Semaphore,
    /// Batches of each host that are read, wait or are written.
    pub by_host: Mutex<BTreeMap<String, usize>>,
    pub metrics: Metrics,
    pub bundles: Option<PathBuf>,
}

type Shared = State<Arc<App>>;
type Answer = Result<Response, Refusal>;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/enrol", post(enrol))
        .route("/v1/login", post(login))
        .route("/v1/tokens", post(token))
        .route("/v1/who", get(who))
        .route("/v1/sign-out", post(sign_out))
        .route("/v1/people", get(people))
        .route("/v1/position", get(position))
        .route("/v1/events", get(events).post(batch))
        .route("/v1/heads", post(all_heads))
        .route("/v1/heads/{session}/{events}", get(head))
        .route("/v1/hosts", get(hosts))
        .route("/v1/hosts/{host}/accept", post(accept))
        .route("/v1/hosts/{host}/revoke", post(revoke))
        .route("/v1/credentials/revoke", post(revoke_people))
        .route("/v1/sessions", get(sessions))
        .route("/v1/sessions/{session}/events", get(session_events))
        .route("/v1/servers", get(servers))
        .route("/v1/looks", get(self_checks))
        .route("/v1/asks", get(all_asks).post(ask))
        .route("/v1/asks/{id}/answer", get(ask_answer).post(answer))
        .route("/v1/asks/{id}/over", post(end_ask))
        .route("/v1/bundles/{name}", get(bundle))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .fallback(async || Refusal::Missing("no such path").into_response())
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .with_state(app)
}

impl App {
    /// A read-only request.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn Connection) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, Refusal> {
        Ok(self.readers.ask(question).await?)
    }

    pub async fn judge<T: Send + 'static>(
        &self,
        pool: &Pool,
        question: impl FnOnce(&mut dyn Connection) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let result = pool.ask(move |db| Ok(question(db))).await?;
        result.inspect_err(|refusal| self.metrics.count_refusal(refusal.as_str()))
    }

    /// The name of the caller.
    async fn authorize(&self, headers: &HeaderMap, least: Role) -> Result<String, Refusal> {
        let credential =
            bearer(headers).ok_or(Refusal::Unknown("a credential is required: `agentsh fleet login`"))?;
        self.judge(&self.readers, move |db| authorize(db, &credential, least)).await
    }

    /// The id of the requesting host, and its body of limited size. Nothing of the body is read before the signature
    /// is verified.
    pub async fn host(&self, request: Request, most: usize) -> Result<(String, Bytes), Refusal> {
        let (parts, body) = request.into_parts();
        self.host_of(&parts, body, most).await
    }

    pub async fn host_of(&self, parts: &Parts, body: Body, most: usize) -> Result<(String, Bytes), Refusal> {
        let Parts { method, uri, headers, .. } = parts;
        let claim = Claim::of(headers).ok_or(Refusal::Unknown("a host's signature is required"))?;
        claim.is_now()?;
        let asks = claim.clone();
        let key = self.judge(&self.readers, move |db| asks.key(db)).await?;
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        claim.is_by(&key, method, path)?;
        let bytes = read_body(headers, body, most).await?;
        claim.check_body(&bytes)?;
        Ok((claim.host, bytes))
    }
}

/// One of the [`MAX_BATCHES`], and of the [`OF_ONE_HOST`].
struct BatchPermit<'a> {
    app: &'a App,
    host: String,
    _place: SemaphorePermit<'a>,
}

impl<'a> BatchPermit<'a> {
    fn take(app: &'a App, headers: &HeaderMap) -> Result<Self, Refusal> {
        let host = Claim::of(headers).ok_or(Refusal::Unknown("a host's signature is required"))?.host;
        let busy = || {
            app.metrics.count_refusal(Refusal::Busy.as_str());
            Refusal::Busy
        };
        let place = app.batches.try_acquire().map_err(|_| busy())?;
        let mut by_host = app.by_host.lock().unwrap_or_else(PoisonError::into_inner);
        let number = by_host.entry(host.clone()).or_default();
        if *number >= OF_ONE_HOST {
            return Err(busy());
        }
        *number += 1;
        Ok(Self { app, host, _place: place })
    }
}

impl Drop for BatchPermit<'_> {
    fn drop(&mut self) {
        let mut by_host = self.app.by_host.lock().unwrap_or_else(PoisonError::into_inner);
        match by_host.get_mut(&self.host) {
            Some(number) if *number > 1 => *number -= 1,
            _ => drop(by_host.remove(&self.host)),
        }
    }
}

/// The whole body, within bounds of length and time.
async fn read_body(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Refusal> {
    let too_long = || Refusal::TooLong(format!("the body is larger than {most} bytes"));
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_some_and(|declared: usize| declared > most) {
        return Err(too_long());
    }
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_long()),
        Err(_) => Err(Refusal::Wrong("the body did not arrive in time".to_owned())),
    }
}

async fn read<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Refusal> {
    parse_body(&read_body(headers, body, MAX_BODY).await?)
}

fn parse_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal::Wrong(format!("cannot parse the body: {error}")))
}

fn json(value: impl Serialize) -> Answer {
    Ok(([(header::CACHE_CONTROL, "no-store")], Json(value)).into_response())
}

async fn enrol(State(app): Shared, headers: HeaderMap, body: Body) -> Answer {
    let asked: Enrol = read(&headers, body).await?;
    json(app.judge(&app.writers, move |db| enrolment::enrol(db, &asked)).await?)
}

async fn login(State(app): Shared, headers: HeaderMap, body: Body) -> Answer {
    let asked: Login = read(&headers, body).await?;
    json(app.judge(&app.writers, move |db| enrolment::login(db, &asked.token)).await?)
}

async fn token(State(app): Shared, headers: HeaderMap, body: Body) -> Answer {
    let by = app.authorize(&headers, Role::Admin).await?;
    let asked: AskToken = read(&headers, body).await?;
    json(app.judge(&app.writers, move |db| enrolment::create_token(db, &asked, &by)).await?)
}

/// The owner of a credential.
async fn who(State(app): Shared, headers: HeaderMap) -> Answer {
    let credential = bearer(&headers).ok_or(Refusal::Unknown("a credential is required"))?;
    json(app.judge(&app.readers, move |db| access::credential_owner(db, &credential)).await?)
}

/// Ends a sign-in at an identity provider; a credential of a token stays.
async fn sign_out(State(app): Shared, headers: HeaderMap) -> Answer {
    let credential = bearer(&headers).ok_or(Refusal::Unknown("a credential is required"))?;
    app.judge(&app.writers, move |db| Ok(sign_ins::close(db, &credential)?)).await?;
    json(serde_json::json!({ "state": "signed-out" }))
}

async fn people(State(app): Shared, headers: HeaderMap) -> Answer {
    app.authorize(&headers, Role::Admin).await?;
    json(app.ask(reads::people).await?)
}

async fn position(State(app): Shared, request: Request) -> Answer {
    let (host, _) = app.host(request, 0).await?;
    let here = app.judge(&app.readers, move |db| {
        let rows =
            db.rows("SELECT last_id, last_hash, state FROM hosts WHERE id = $1", &[Value::text(host)])?;
        match rows.first().map(Vec::as_slice) {
            Some([_, _, state]) if state.as_text() != "active" => Err(arrival::stopped_host(state.as_text())),
            Some([id, hash, _]) => Ok(Position { id: id.as_int(), hash: hash.as_text().to_owned() }),
            _ => Err(Refusal::Unknown("no such host")),
        }
    });
    json(here.await?)
}

async fn batch(State(app): Shared, request: Request) -> Answer {
    let start = Instant::now();
    let _turn = BatchPermit::take(&app, request.headers())?;
    let (host, bytes) = app.host(request, MAX_SENT).await?;
    let places = Arc::clone(&app.places);
    let length = bytes.len();
    // Unpacking and hashes are the work of the thread that writes.
    let taken = app.judge(&app.writers, move |db| {
        let batch = Batch::unpacked(&bytes)?;
        drop(bytes);
        arrival::take(db, &places, &host, &batch)
    });
    let taken = taken.await?;
    app.metrics.count_batch(&taken, length, start.elapsed());
    json(&taken.position)
}

async fn all_heads(State(app): Shared, request: Request) -> Answer {
    let _turn = BatchPermit::take(&app, request.headers())?;
    let (host, bytes) = app.host(request, MAX_SENT).await?;
    let places = Arc::clone(&app.places);
    let compared = app.judge(&app.writers, move |db| heads::compare(db, &places, &host, &bytes)).await?;
    json(serde_json::json!({ "sessions": compared }))
}

async fn head(State(app): Shared, Path((session, events)): Path<(String, i64)>, request: Request) -> Answer {
    app.host(request, 0).await?;
    json(app.judge(&app.readers, move |db| heads::head_of_event(db, session, events)).await?)
}

async fn hosts(State(app): Shared, headers: HeaderMap) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    json(app.ask(reads::hosts).await?)
}

async fn accept(State(app): Shared, Path(host): Path<String>, headers: HeaderMap) -> Answer {
    let by = app.authorize(&headers, Role::Approver).await?;
    app.judge(&app.writers, move |db| {
        arrival::in_transaction(db, |db| {
            let (host, by) = (Value::text(host), Value::text(by));
            let known = db.change(
                "UPDATE hosts SET state = 'active' WHERE id = $1 AND state = 'refused'",
                std::slice::from_ref(&host),
            )?;
            if known == 0 {
                return Err(Refusal::Missing("no such blocked host"));
            }
            db.change(
                "UPDATE incidents SET accepted_by = $2 WHERE host = $1 AND accepted_by IS NULL",
                &[host, by],
            )?;
            Ok(())
        })
    })
    .await?;
    json(serde_json::json!({ "state": "active" }))
}

async fn revoke(State(app): Shared, Path(host): Path<String>, headers: HeaderMap) -> Answer {
    app.authorize(&headers, Role::Admin).await?;
    app.judge(&app.writers, move |db| access::revoke_host(db, &host)).await?;
    json(serde_json::json!({ "state": "revoked" }))
}

async fn revoke_people(State(app): Shared, headers: HeaderMap, body: Body) -> Answer {
    app.authorize(&headers, Role::Admin).await?;
    let asked: RevokePeople = read(&headers, body).await?;
    let revoked = app.judge(&app.writers, move |db| access::revoke_people(db, &asked.name)).await?;
    json(Revoked { revoked })
}

async fn events(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    let asked = filter_of(query.as_deref())?;
    json(app.ask(move |db| reads::events(db, &asked)).await?)
}

async fn sessions(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    let asked = filter_of(query.as_deref())?;
    let begins = asked.session.unwrap_or_default();
    json(app.ask(move |db| reads::sessions(db, &begins, asked.host.as_deref(), asked.limit)).await?)
}

async fn session_events(
    State(app): Shared,
    Path(session): Path<String>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    let after = filter_of(query.as_deref())?.before.unwrap_or_default();
    json(app.ask(move |db| reads::of_session(db, &session, after)).await?)
}

async fn servers(State(app): Shared, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    let asked = filter_of(query.as_deref())?;
    json(app.ask(move |db| reads::servers(db, &asked)).await?)
}

async fn self_checks(State(app): Shared, headers: HeaderMap) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    let day_ago = Timestamp::now().checked_sub(SignedDuration::from_hours(24)).unwrap_or_default();
    json(app.ask(move |db| reads::self_checks(db, &day_ago.to_string())).await?)
}

/// A question of a host.
async fn ask(State(app): Shared, request: Request) -> Answer {
    let (host, bytes) = app.host(request, asks::MAX_BODY).await?;
    let asked: Ask = parse_body(&bytes)?;
    app.judge(&app.writers, move |db| asks::put(db, &host, &asked)).await?;
    json(serde_json::json!({ "state": "waiting" }))
}

async fn ask_answer(State(app): Shared, Path(id): Path<String>, request: Request) -> Answer {
    let (host, _) = app.host(request, 0).await?;
    json(app.judge(&app.readers, move |db| asks::question_status(db, &host, &id)).await?)
}

async fn end_ask(State(app): Shared, Path(id): Path<String>, request: Request) -> Answer {
    let (host, _) = app.host(request, MAX_BODY).await?;
    app.judge(&app.writers, move |db| asks::end_question(db, &host, &id)).await?;
    json(serde_json::json!({ "state": "over" }))
}

/// The questions of all hosts.
async fn all_asks(State(app): Shared, headers: HeaderMap) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    json(app.ask(asks::waiting).await?)
}

async fn answer(State(app): Shared, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Answer {
    let by = app.authorize(&headers, Role::Approver).await?;
    let said: ApprovalAnswer = read(&headers, body).await?;
    app.judge(&app.writers, move |db| asks::answer(db, &id, &said, &by)).await?;
    json(serde_json::json!({ "state": "answered" }))
}

async fn bundle(State(app): Shared, Path(name): Path<String>, headers: HeaderMap) -> Answer {
    let directory = app.bundles.as_ref().ok_or(Refusal::Missing("this server has no bundles"))?;
    let (bytes, tag) = bundles::read(directory, &name).await?;
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response());
    }
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::ETAG, tag),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((head, bytes).into_response())
}

async fn metrics(State(app): Shared, headers: HeaderMap) -> Answer {
    app.authorize(&headers, Role::Viewer).await?;
    let hosts = app.ask(reads::states).await?;
    let busy = MAX_BATCHES.saturating_sub(app.batches.available_permits());
    let text = app.metrics.prometheus_text(busy, &hosts);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Whether the database answers.
async fn healthz(State(app): Shared) -> Answer {
    app.ask(|db| db.rows("SELECT CAST(1 AS BIGINT)", &[]).map(drop)).await?;
    Ok("ok\n".into_response())
}

/// One of these words.
fn known(name: &str, word: String, words: &[&str]) -> Result<String, Refusal> {
    if words.contains(&word.as_str()) {
        return Ok(word);
    }
    Err(Refusal::Wrong(format!("{name} is '{word}'; it must be one of {}", words.join(", "))))
}

/// The part of an address after `?`. A word that is not known is refused: an answer to less would look like one to all.
fn filter_of(query: Option<&str>) -> Result<Filter, Refusal> {
    let uri: Uri = format!("/?{}", query.unwrap_or_default())
        .parse()
        .map_err(|_| Refusal::Wrong("cannot parse the query string".to_owned()))?;
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&uri)
        .map_err(|error| Refusal::Wrong(error.to_string()))?;
    let mut asked = Filter { limit: 100, ..Filter::default() };
    for (name, value) in pairs.0 {
        let number = || value.parse::<i64>().map_err(|_| Refusal::Wrong(format!("{name} is not a number")));
        match name.as_str() {
            "kind" if asked.kinds.len() < 10 => asked.kinds.push(known(&name, value, &Event::KINDS)?),
            "host" => asked.host = Some(value),
            "session" => asked.session = Some(value),
            "server" => asked.server = Some(value),
            "tool" => asked.tool = Some(value),
            "action" => asked.action = Some(known(&name, value, Action::WORDS)?),
            "severity" => asked.severity = Some(known(&name, value, &SEVERITIES)?),
            "since" => asked.since = Some(value),
            "before" | "after" => asked.before = Some(number()?),
            "limit" => asked.limit = number()?,
            "with_calls" => asked.with_calls = value == "true",
            _ => return Err(Refusal::Wrong(format!("no such query: '{name}'"))),
        }
    }
    Ok(asked)
}
