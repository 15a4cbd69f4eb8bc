//! The channel between the agent and its model: every request of the agent goes on as it is, every answer is judged before
//! the agent has it. The relay brings the connections, with both of their ends.

mod body;
mod judge;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Mutex;

use self::body::{Judged, answered, error_body};
use self::judge::SessionJudge;
use super::Session;
use crate::agent::{Endpoint, Scheme};
use crate::llm::canary::{Needle, REPLACEMENT};
use crate::llm::{Answer, MAX_HELD, Provider, Route, Told, request, route};
use crate::net::allow::is_local;
use crate::net::channel::{Carried, Channel, Ends};
use crate::policy::domain::{self, Host};
use crate::store::Event;

/// Longest request that is read, in bytes: pictures and documents travel in it.
const MAX_REQUEST: usize = 64 << 20;
/// For the head of a request.
const HEAD: Duration = Duration::from_secs(60);

/// The agent's model, and what its answers are judged by.
pub struct Model {
    session: Rc<Session>,
    places: Vec<(Host, u16)>,
    servers: Rc<BTreeSet<String>>,
    needs: Option<Canary>,
    told: Cell<bool>,
}

#[derive(Clone)]
struct Canary {
    replacement: String,
}

/// One answer of the model, and by what it is judged.
struct Asked {
    provider: Provider,
    needle: Option<Needle>,
    replacement: String,
}

type Outgoing = Either<Full<Bytes>, Incoming>;
type Reply = Response<Either<Full<Bytes>, Either<Incoming, Judged>>>;

impl Model {
    /// None: the policy wants no model's answers judged, or no model is where they can be.
    #[must_use]
    pub fn of(session: &Rc<Session>, endpoints: &[Endpoint], servers: BTreeSet<String>) -> Option<Rc<Self>> {
        let policy = &session.policy.llm;
        let enabled = policy.enabled.as_ref().map(|enabled| enabled.value);
        let is_judged = |endpoint: &&Endpoint| match enabled {
            Some(false) => false,
            Some(true) => true,
            // TLS would have to end here, which the agent has to trust.
            None => endpoint.scheme == Scheme::Http,
        };
        let places: Vec<(Host, u16)> = endpoints
            .iter()
            .filter(is_judged)
            .filter_map(|endpoint| Some((domain::normalise(&endpoint.host).ok()?, endpoint.port)))
            .collect();
        if places.is_empty() {
            return None;
        }
        let replacement = policy.replacement.as_ref().map_or(REPLACEMENT, |text| &text.value).to_owned();
        let needs =
            policy.canary.as_ref().is_some_and(|canary| canary.value).then_some(Canary { replacement });
        let (session, servers) = (Rc::clone(session), Rc::new(servers));
        Some(Rc::new(Self { session, places, servers, needs, told: Cell::new(false) }))
    }

    /// Whether the TLS of an endpoint ends at the session's authority.
    #[must_use]
    pub fn ends_tls(session: &Session) -> bool {
        session.policy.llm.enabled.as_ref().is_some_and(|enabled| enabled.value)
    }

    fn judge(&self) -> SessionJudge {
        SessionJudge::new(Rc::clone(&self.session), Rc::clone(&self.servers))
    }

    /// One request and its answer.
    async fn serve(
        &self,
        request: Request<Incoming>,
        upstream: &Mutex<client::SendRequest<Outgoing>>,
    ) -> Reply {
        let path = request.uri().path().to_owned();
        let routed = route(request.method().as_str(), &path);
        let provider = match routed {
            Route::Model(provider) => provider,
            Route::Beside(_) => return self.pass(request, upstream).await,
            Route::Unknown => {
                self.note_unknown(request.method().as_str(), &path);
                return self.pass(request, upstream).await;
            }
        };
        let refuse = |status, why: &str| self.withheld(provider, status, why);
        if request.headers().contains_key(CONTENT_ENCODING) {
            return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a compressed request cannot be judged");
        }
        let (mut head, body) = request.into_parts();
        let body = match Limited::new(body, MAX_REQUEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => {
                return refuse(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the request is longer than 64 MiB, or broke off",
                );
            }
        };
        let asked = match request::read(provider, &body) {
            Ok(asked) => asked,
            Err(error) => {
                return refuse(StatusCode::BAD_REQUEST, &format!("the request cannot be read: {error}"));
            }
        };
        hop_by_hop(&mut head.headers);
        // What cannot be read cannot be judged.
        head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let request = Request::from_parts(head, Either::Left(Full::new(body)));
        let answer = match send(request, upstream).await {
            Ok(answer) => answer,
            Err(error) => {
                return refuse(StatusCode::BAD_GATEWAY, &format!("the model did not answer: {error}"));
            }
        };
        let canary = self.needs.as_ref();
        let asked = Asked {
            provider,
            needle: canary.and_then(|_| Needle::arm(&asked.system)),
            replacement: canary.map_or_else(|| REPLACEMENT.to_owned(), |canary| canary.replacement.clone()),
        };
        self.answer(answer, asked).await
    }

    async fn answer(&self, answer: Response<Incoming>, asked: Asked) -> Reply {
        let (mut head, body) = answer.into_parts();
        hop_by_hop(&mut head.headers);
        // No model speaks in an error.
        if !head.status.is_success() {
            return Response::from_parts(head, Either::Right(Either::Left(body)));
        }
        let refuse = |why: &str| self.withheld(asked.provider, StatusCode::BAD_GATEWAY, why);
        if head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return refuse("the model's answer is compressed, though nobody asked for that");
        }
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => {
                head.headers.remove(CONTENT_LENGTH);
                let judged = Judged::new(body, &asked, self.judge());
                Response::from_parts(head, Either::Right(Either::Right(judged)))
            }
            "application/json" => {
                let Ok(body) = Limited::new(body, MAX_HELD).collect().await else {
                    return refuse("the model's answer is longer than 16 MiB, or broke off");
                };
                let body = body.to_bytes();
                let mut judge = self.judge();
                let judged =
                    Answer::of(asked.provider, &body, asked.needle.as_ref(), &asked.replacement, &mut judge);
                let judged = match judged {
                    Ok(judged) => judged,
                    Err(error) => return refuse(&error.to_string()),
                };
                let is_recorded = judge.record(asked.provider, &judged.told).await;
                if !is_recorded {
                    return refuse("it cannot be recorded");
                }
                let body = judged.body.map_or(body, Bytes::from);
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
                Response::from_parts(head, Either::Left(Full::new(body)))
            }
            _ => refuse("the model's answer is neither JSON nor a stream of events"),
        }
    }

    /// Where no model speaks, or nobody knows what does: bodies go through.
    async fn pass(
        &self,
        request: Request<Incoming>,
        upstream: &Mutex<client::SendRequest<Outgoing>>,
    ) -> Reply {
        let (mut head, body) = request.into_parts();
        hop_by_hop(&mut head.headers);
        match send(Request::from_parts(head, Either::Right(body)), upstream).await {
            Ok(answer) => {
                let (mut head, body) = answer.into_parts();
                hop_by_hop(&mut head.headers);
                Response::from_parts(head, Either::Right(Either::Left(body)))
            }
            Err(error) => self.withheld(Provider::OpenAiChat, StatusCode::BAD_GATEWAY, &error.to_string()),
        }
    }

    fn note_unknown(&self, method: &str, path: &str) {
        if !self.told.replace(true) {
            let path = crate::store::escape::line(path);
            self.session.note(&format!(
                "`{method} {path}` of the model's host is no route of a model that agentsh knows: it is not judged"
            ));
        }
    }

    /// In the shape of the provider's own errors, so that the agent shows it.
    fn withheld(&self, provider: Provider, status: StatusCode, why: &str) -> Reply {
        self.session
            .journal
            .record(Event::ModelAnswerWithheld { provider: judge::word(provider), reason: why.to_owned() });
        answered(status, error_body(provider, &format!("[agentsh] {why}")))
    }
}

impl Channel for Model {
    fn carries(&self, host: &Host, port: u16) -> bool {
        self.places
            .iter()
            .any(|(place, of)| *of == port && (place == host || (is_local(place) && is_local(host))))
    }

    fn carry<'a>(&'a self, _host: &'a str, (program, model): Ends<'a>) -> Carried<'a> {
        Box::pin(async move {
            let broken = |error: hyper::Error| io::Error::other(error);
            let (sender, connection) = client::handshake(TokioIo::new(model)).await.map_err(broken)?;
            let sender = Mutex::new(sender);
            let service = service_fn(|request| async {
                let reply = self.serve(request, &sender).await;
                Ok::<_, std::convert::Infallible>(reply)
            });
            let mut builder = server::Builder::new();
            builder.timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEAD).half_close(true);
            let mut serving = pin!(builder.serve_connection(TokioIo::new(program), service));
            let mut connection = pin!(connection);
            let mut is_open = true;
            loop {
                tokio::select! {
                    served = serving.as_mut() => return served.map_err(broken),
                    // What has arrived is still given; the next request needs another connection.
                    _ = connection.as_mut(), if is_open => {
                        is_open = false;
                        serving.as_mut().graceful_shutdown();
                    }
                }
            }
        })
    }
}

async fn send(
    request: Request<Outgoing>,
    upstream: &Mutex<client::SendRequest<Outgoing>>,
) -> Result<Response<Incoming>, hyper::Error> {
    let mut upstream = upstream.lock().await;
    upstream.ready().await?;
    upstream.send_request(request).await
}

/// Headers that are about one connection; lengths are set anew.
fn hop_by_hop(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE] {
        headers.remove(name);
    }
}

/// What happened to an answer, as far as it stands in the record.
fn is_leak(told: &Told) -> bool {
    *told == Told::Leaked
}
