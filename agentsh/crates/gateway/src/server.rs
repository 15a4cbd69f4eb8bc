//! The HTTP server: connections, requests, client sessions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::Incoming as Body;
use hyper::header::{HOST, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::admission::{AttemptLimiter, Refusal, check_network, check_origin};
use super::client::{Client, ServerWire};
use super::codes::Code;
use super::config::{Config, Endpoint};
use super::files::Files;
use super::message::MessageError;
use super::metrics::{Gauges, Metrics};
use super::reply::{self, Answer, ContentKind, KeyName, RequestRefusal, Served};
use super::{cors, event_streams, post};

/// Interval of checks for idle sessions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// For the response to a refused client.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects the gateway to the proxies that judge messages.
pub trait Connector {
    /// Lines of a session with this server, for a client that people know as `who`.
    fn connect(&self, endpoint: &Endpoint, who: &str) -> ServerWire;
    /// A refused request.
    fn record_refusal(&self, answered: &ResponseContext<'_>, refusal: &Refusal);
    /// An authenticated request's answer began.
    fn record_answer(&self, answered: &ResponseContext<'_>, served: &Served);
    /// Headers that policy rules name, if rules depend on the caller. Then requests carry their caller
    /// (`mcp::caller`).
    fn wanted_headers(&self) -> Option<&[String]>;
    /// Number and worst severity of a server's advisories.
    fn advisories(&self, endpoint: &str) -> Option<(u64, String)>;
}

/// How a response is identified, for the client and events.
#[derive(Clone, Copy, Debug)]
pub struct ResponseContext<'a> {
    /// Empty for other paths.
    pub endpoint: &'a str,
    /// The key's name, once known.
    pub who: &'a str,
    pub peer: IpAddr,
    pub log_id: &'a str,
    pub trace_id: &'a str,
    pub status: u16,
    /// The refusing step.
    pub code: Option<&'static str>,
    pub after: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// A certificate or key set.
    #[error("{0}")]
    Unusable(String),
    #[error("cannot read the keys in {file}: {source}")]
    Keys { file: std::path::PathBuf, source: std::io::Error },
}

pub struct Gateway {
    config: RefCell<Rc<Config>>,
    files: RefCell<Rc<Files>>,
    pub(crate) connector: Rc<dyn Connector>,
    pub(crate) door: AttemptLimiter,
    pub(crate) metrics: Metrics,
    pub(crate) sessions: RefCell<HashMap<String, Rc<Client>>>,
    connections: Cell<usize>,
    /// The same for each address.
    peers: RefCell<HashMap<IpAddr, usize>>,
    requests: Cell<usize>,
    draining: Cell<bool>,
    settled: Notify,
    drain: Notify,
    reloaded: Notify,
}

impl Gateway {
    /// Reads certificate and keys.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn new(config: Config, connector: Rc<dyn Connector>) -> Result<Rc<Self>, GatewayError> {
        let files = Files::load(&config)?;
        Ok(Rc::new(Self {
            config: RefCell::new(Rc::new(config)),
            files: RefCell::new(Rc::new(files)),
            connector,
            door: AttemptLimiter::default(),
            metrics: Metrics::default(),
            sessions: RefCell::default(),
            connections: Cell::new(0),
            peers: RefCell::default(),
            requests: Cell::new(0),
            draining: Cell::new(false),
            settled: Notify::new(),
            drain: Notify::new(),
            reloaded: Notify::new(),
        }))
    }

    /// Replaces configuration, keys and certificate. Sessions and streams continue, except those of keys that lost access;
    /// only the address stays.
    ///
    /// # Errors
    /// When they cannot be used; nothing changes then.
    pub fn reload(&self, mut config: Config) -> Result<(), GatewayError> {
        config.listen = self.config().listen;
        let files = Files::load(&config)?;
        *self.files.borrow_mut() = Rc::new(files);
        *self.config.borrow_mut() = Rc::new(config);
        self.reloaded.notify_waiters();
        self.end_closed();
        Ok(())
    }

    pub fn config(&self) -> Rc<Config> {
        Rc::clone(&self.config.borrow())
    }

    /// # Errors
    /// When the address is not available.
    pub async fn bind(&self) -> Result<TcpListener, GatewayError> {
        let address = self.config().listen;
        let wrong = |source| GatewayError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(wrong)?;
        // The port is part of the own origin.
        Rc::make_mut(&mut self.config.borrow_mut()).listen = listener.local_addr().map_err(wrong)?;
        Ok(listener)
    }

    /// Serves until [`Gateway::drain`]. Call inside a `LocalSet`.
    pub async fn serve(self: &Rc<Self>, listener: TcpListener) {
        let sweeper = Rc::clone(self);
        let sweeping = agentsh_base::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                sweeper.remove_idle();
            }
        });
        while !self.draining.get() {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.drain.notified() => break,
            };
            let Ok((stream, peer)) = accepted else {
                // Without descriptors: wait for a connection to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Some(open) = self.admit(peer.ip()) else { continue };
            // A small message must not wait for the next.
            let _ = stream.set_nodelay(true);
            let (gateway, tls) = (Rc::clone(self), self.files.borrow().tls.clone());
            let patience = self.patience();
            agentsh_base::task::spawn_local(async move {
                let _open = open;
                match tls {
                    None => gateway.connection(stream, peer.ip()).await,
                    Some(tls) => {
                        let shaken = tokio::time::timeout(patience, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = shaken {
                            gateway.connection(stream, peer.ip()).await;
                        }
                    }
                }
            });
        }
        drop(listener);
        let limit = Duration::from_secs(self.config().limits.drain_seconds);
        let _ = tokio::time::timeout(limit, async {
            while self.requests.get() > 0 {
                self.settled.notified().await;
            }
        })
        .await;
        sweeping.abort();
        let sessions: Vec<_> = self.sessions.borrow_mut().drain().collect();
        for (_, client) in sessions {
            client.end();
        }
        tokio::time::sleep(DRAIN_TIMEOUT.min(limit)).await;
    }

    /// Accepts no new connections, and finishes open requests.
    pub fn drain(&self) {
        self.draining.set(true);
        // Streams without an end.
        for client in self.sessions.borrow().values() {
            client.general().finish();
        }
        self.drain.notify_one();
    }

    /// The slot of one more connection; None: it is refused, before it has cost anything.
    fn admit(self: &Rc<Self>, peer: IpAddr) -> Option<OpenConnection> {
        let config = self.config();
        if let Err(refusal) = check_network(&config, peer) {
            self.metrics.count_refusal(refusal.code.as_str());
            let unanswered = ResponseContext {
                endpoint: "",
                who: "",
                peer,
                log_id: "none",
                trace_id: "",
                status: 0,
                code: Some(refusal.code.as_str()),
                after: Duration::ZERO,
            };
            self.connector.record_refusal(&unanswered, &refusal);
            return None;
        }
        let (limit, peer) = (config.limits.connections, block(peer));
        let of_peer = self.peers.borrow().get(&peer).copied().unwrap_or_default();
        // One address never gets all connections.
        if self.connections.get() >= limit || of_peer >= limit.div_ceil(2) {
            self.metrics.count_refusal(Code::TooManyConnections.as_str());
            return None;
        }
        self.peers.borrow_mut().insert(peer, of_peer + 1);
        let counted = CountGuard::new(self, |gateway| &gateway.connections);
        Some(OpenConnection { counted, peer })
    }

    async fn connection(
        self: &Rc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        peer: IpAddr,
    ) {
        let gateway = Rc::clone(self);
        let traffic = Rc::new(Traffic::default());
        let stream = CountedStream { stream, traffic: Rc::clone(&traffic) };
        let counted = Rc::clone(&traffic);
        let service = service_fn(move |request| {
            let (gateway, traffic) = (Rc::clone(&gateway), Rc::clone(&counted));
            traffic.moved.set(traffic.moved.get() + 1);
            async move {
                let answer = gateway.answer(with_host(request), peer).await;
                traffic.begin(answer.body().downgrade());
                Ok::<_, Infallible>(answer)
            }
        });
        let mut builder = Builder::new(LocalExec);
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.patience()).half_close(false);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).max_header_list_size(64 << 10);
        tokio::select! {
            // The client disconnected, or does not speak HTTP.
            _ = builder.serve_connection(TokioIo::new(stream), service) => {}
            () = self.wait_until_idle(&traffic) => {}
        }
    }

    /// Waits until a connection has done nothing for a request's timeout: nothing is being answered, or nothing of what is
    /// ready can be written.
    async fn wait_until_idle(&self, traffic: &Rc<Traffic>) {
        /// The stream, the connection's service, and `connection`; handlers hold it too.
        const HOLDERS: usize = 3;
        let mut is_owed = false;
        loop {
            let before = traffic.moved.get();
            tokio::time::sleep(self.patience()).await;
            let was_owed = std::mem::replace(&mut is_owed, traffic.is_owed());
            if traffic.moved.get() != before {
                continue;
            }
            let is_idle = Rc::strong_count(traffic) <= HOLDERS && !traffic.has_bodies();
            if is_idle || was_owed && is_owed {
                return;
            }
        }
    }

    async fn answer(self: Rc<Self>, request: Request<Body>, peer: IpAddr) -> Answer {
        let started = Instant::now();
        let _open = CountGuard::new(&self, |gateway| &gateway.requests);
        let log = uuid::Uuid::now_v7().to_string();
        let trace = trace_id(&request).unwrap_or_else(|| log.replace('-', ""));
        let path = request.uri().path();
        let path = path.strip_suffix('/').unwrap_or(path).to_owned();
        let origin = cors::origin(&self.config(), request.headers());
        let wants_body = request.method() != Method::HEAD;
        let mut answer = self.route(request, &path, peer).await;
        cors::show(origin, &mut answer);
        if !wants_body {
            reply::without_body(&mut answer);
        }
        let endpoint = path.strip_prefix("/mcp/").filter(|id| self.endpoint(id).is_some()).unwrap_or("");
        let extensions = answer.extensions_mut();
        let (refused, served) = (extensions.remove::<RequestRefusal>(), extensions.remove::<Served>());
        let who = extensions.remove::<KeyName>();
        let about = ResponseContext {
            endpoint,
            who: who.as_ref().map_or("", |who| &who.0),
            peer,
            log_id: &log,
            trace_id: &trace,
            code: extensions.remove::<Code>().map(Code::as_str),
            status: answer.status().as_u16(),
            after: started.elapsed(),
        };
        self.metrics.count_answer(endpoint, about.status, about.after);
        if let Some(code) = about.code {
            self.metrics.count_refusal(code);
        }
        // What reached the server is on record as an answer.
        if let (Some(RequestRefusal(refusal)), None) = (&refused, &served) {
            self.connector.record_refusal(&about, refusal);
        }
        let mut headers = vec![("x-agentsh-log-id", log.clone()), ("x-agentsh-trace-id", trace.clone())];
        headers.extend(about.code.map(|code| ("x-agentsh-code", code.to_owned())));
        if let Some(served) = &served {
            self.connector.record_answer(&about, served);
            if let Some((active, highest)) = self.connector.advisories(endpoint) {
                headers.push(("x-agentsh-active-advisories", active.to_string()));
                headers.push(("x-agentsh-highest-advisory-severity", highest));
            }
        }
        for (name, value) in headers {
            let value = HeaderValue::from_str(&value).ok();
            answer.headers_mut().extend(value.map(|value| (HeaderName::from_static(name), value)));
        }
        answer
    }

    async fn route(self: &Rc<Self>, request: Request<Body>, path: &str, peer: IpAddr) -> Answer {
        let config = self.config();
        if *request.method() == Method::OPTIONS {
            let answer = cors::preflight(&config, request.headers());
            return answer.unwrap_or_else(|refusal| self.refuse("", &refusal));
        }
        match path {
            "/healthz" => return reply::text(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            "/readyz" if self.draining.get() => {
                return reply::text(StatusCode::SERVICE_UNAVAILABLE, "text/plain", "draining\n".to_owned());
            }
            "/readyz" => return reply::text(StatusCode::OK, "text/plain", "ready\n".to_owned()),
            "/metrics" => {
                if let Err(refusal) = check_origin(&config, request.headers()) {
                    return self.refuse("", &refusal);
                }
                let gauges =
                    Gauges { sessions: self.sessions.borrow().len(), connections: self.connections.get() };
                return reply::text(StatusCode::OK, "text/plain; version=0.0.4", self.metrics.text(&gauges));
            }
            _ => {}
        }
        if let Some(resource) = path.strip_prefix("/.well-known/oauth-protected-resource") {
            return event_streams::resource_metadata(&config, resource);
        }
        let Some(endpoint) = path.strip_prefix("/mcp/").and_then(|id| self.endpoint(id)) else {
            return reply::text(StatusCode::NOT_FOUND, "text/plain", "endpoints are at /mcp/ID\n".to_owned());
        };
        let files = Rc::clone(&self.files.borrow());
        let signers = match files.signers_for(&config, request.headers()).await {
            Ok(signers) => signers,
            Err(refusal) => return self.refuse(&endpoint.id, &refusal),
        };
        let signers = signers.as_deref();
        let admitted = self.door.admit(&config, &files.keys, signers, &endpoint.id, peer, request.headers());
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return self.refuse(&endpoint.id, &refusal),
        };
        let answering = async {
            match *request.method() {
                Method::POST => post::post(self, &endpoint, (&admitted, peer), request).await,
                Method::GET => event_streams::listen(self, &endpoint, &admitted, &request),
                Method::DELETE => self.delete(&endpoint, &admitted, &request),
                // A health check; only GET starts a stream.
                Method::HEAD => reply::empty(StatusCode::OK),
                _ => cors::no_such_method(),
            }
        };
        let mut answer = match admitted.key() {
            None => answering.await,
            Some(hash) => {
                let closed = || Rc::clone(self).wait_until_revoked(hash.to_owned(), endpoint.id.clone());
                let mut answer = tokio::select! {
                    answer = answering => answer,
                    () = closed() => {
                        let why = "the key was revoked or has expired";
                        self.refuse(&endpoint.id, &Refusal::new(Code::Unauthenticated, why))
                    }
                };
                answer.body_mut().end_after(closed());
                answer
            }
        };
        answer.extensions_mut().insert(KeyName(admitted.name));
        answer
    }

    /// Ends when the key of this hash opens the endpoint no more.
    async fn wait_until_revoked(self: Rc<Self>, hash: String, endpoint: String) {
        loop {
            let reloaded = self.reloaded.notified();
            if !self.opens(&hash, &endpoint) {
                return;
            }
            tokio::select! {
                () = reloaded => {}
                // It may have expired.
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
            }
        }
    }

    /// Whether the key of this hash opens the endpoint.
    pub(crate) fn opens(&self, hash: &str, endpoint: &str) -> bool {
        let files = self.files.borrow();
        let key = files.keys.keys.get(hash).filter(|key| key.state(Timestamp::now()).is_ok());
        key.is_some_and(|key| key.opens(endpoint))
    }

    /// How long a client may take for what it has to say.
    fn patience(&self) -> Duration {
        Duration::from_secs(self.config().limits.request_seconds)
    }

    fn endpoint(&self, id: &str) -> Option<Endpoint> {
        self.config().endpoints.iter().find(|endpoint| endpoint.id == id).cloned()
    }

    /// The response to a refusal, counted and recorded.
    pub(crate) fn refuse(&self, endpoint: &str, refusal: &Refusal) -> Answer {
        let mut answer = reply::refusal(refusal.code, -32000, &refusal.why, None);
        if let Some(seconds) = refusal.retry_after {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if refusal.code == Code::Unauthenticated || refusal.token_error.is_some() {
            let challenge = event_streams::challenge(&self.config(), endpoint, refusal.token_error);
            answer.headers_mut().extend(challenge.map(|value| (WWW_AUTHENTICATE, value)));
        }
        answer
    }

    /// The response to a malformed message.
    pub(crate) fn malformed_message(&self, wrong: &MessageError) -> Answer {
        reply::malformed_message(wrong)
    }
}

/// Moves HTTP/2's authority to the Host header.
fn with_host(mut request: Request<Body>) -> Request<Body> {
    let authority = request.uri().authority().filter(|_| !request.headers().contains_key(HOST));
    if let Some(host) = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    request
}

/// The request's trace id (W3C Trace Context).
fn trace_id(request: &Request<Body>) -> Option<String> {
    let value = super::message::header(request.headers(), "traceparent")?;
    let id = value.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}

/// The block that counts as one address: an IPv6 customer has 2^64.
fn block(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// A connection among all and among those of its address, until dropped.
struct OpenConnection {
    counted: CountGuard,
    peer: IpAddr,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.counted.gateway.peers.borrow_mut().entry(self.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The activity of a connection.
#[derive(Default)]
struct Traffic {
    /// Requests and written bytes, counted together.
    moved: Cell<u64>,
    /// The bodies of answers that are being written.
    bodies: RefCell<Vec<Weak<RefCell<ContentKind>>>>,
}

impl Traffic {
    fn begin(&self, body: Weak<RefCell<ContentKind>>) {
        let mut bodies = self.bodies.borrow_mut();
        bodies.retain(|body| body.strong_count() > 0);
        bodies.push(body);
    }

    fn has_bodies(&self) -> bool {
        self.bodies.borrow().iter().any(|body| body.strong_count() > 0)
    }

    fn is_owed(&self) -> bool {
        self.bodies.borrow().iter().filter_map(Weak::upgrade).any(|body| body.borrow().is_owed())
    }
}

/// Counts what is written.
struct CountedStream<S> {
    stream: S,
    traffic: Rc<Traffic>,
}

impl<S: AsyncRead + Unpin> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CountedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.traffic.moved.set(self.traffic.moved.get() + count as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Counts until dropped.
struct CountGuard {
    gateway: Rc<Gateway>,
    count: fn(&Gateway) -> &Cell<usize>,
}

impl CountGuard {
    fn new(gateway: &Rc<Gateway>, count: fn(&Gateway) -> &Cell<usize>) -> Self {
        let cell = count(gateway);
        cell.set(cell.get() + 1);
        Self { gateway: Rc::clone(gateway), count }
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let cell = (self.count)(&self.gateway);
        cell.set(cell.get().saturating_sub(1));
        self.gateway.settled.notify_waiters();
    }
}

/// Runs HTTP/2 tasks on this thread.
#[derive(Clone, Copy)]
struct LocalExec;

impl<F: std::future::Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExec {
    fn execute(&self, future: F) {
        agentsh_base::task::spawn_local(future);
    }
}
