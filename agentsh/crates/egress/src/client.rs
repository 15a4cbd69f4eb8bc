//! HTTP/1.1 and HTTP/2 with streamed bodies.
//!
//! Redirects are returned to the caller, unless it asks to follow them. The proxy variables of the environment are ignored; the
//! caller passes a proxy. Connections are reused for their origin only.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, LOCATION, TRANSFER_ENCODING, USER_AGENT};
use hyper::{Method, StatusCode, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use tokio::time::timeout;

use super::connect::Connector;
use super::encoding::Decoder;
use super::error::HttpError;
use super::proxy::Proxy;
use super::resolve::Lookup;
use super::target::{Rules, Target};
use super::tls;

/// Longest head of an answer, in bytes.
const MAX_HEAD: usize = 32 << 10;
/// Lines of an answer's head; hyper's default of 100 is less than some servers send.
pub const MAX_HEADERS: usize = 256;
/// An idle connection is closed after this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
pub type RequestBody = UnsyncBoxBody<Bytes, Failure>;

/// How long to wait for what, and how much to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Resolving, dialling and TLS.
    pub connect: Duration,
    /// From the request to the head of its answer; None where the answer may take its time.
    pub first_byte: Option<Duration>,
    /// Between two pieces of a body.
    pub idle: Option<Duration>,
    /// Longest body of an answer, in bytes.
    pub max_body: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Some(Duration::from_secs(60)),
            idle: Some(Duration::from_secs(60)),
            max_body: Some(16 << 20),
        }
    }
}

/// Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    rules: Arc<Rules>,
    connector: Connector,
    http: legacy::Client<Connector, RequestBody>,
    limits: Limits,
    only_http2: bool,
}

/// A request whose body can be sent more than once.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    pub headers: HeaderMap,
    /// Sent to the origin of the target, and to no other.
    pub credentials: HeaderMap,
    pub body: Bytes,
    /// Its content is for this origin alone: a redirect to another one is refused.
    pub one_origin: bool,
}

impl Request {
    /// A question without headers.
    #[must_use]
    pub fn get(target: Target) -> Self {
        let (headers, credentials) = (HeaderMap::new(), HeaderMap::new());
        Self { method: Method::GET, target, headers, credentials, body: Bytes::new(), one_origin: false }
    }
}

impl Client {
    /// With the certificate authorities of this machine.
    #[must_use]
    pub fn new(lookup: Arc<Lookup>, rules: Rules) -> Self {
        Self::with_roots(tls::machine_roots(), lookup, rules)
    }

    pub(crate) fn with_roots(
        roots: Result<RootCertStore, String>,
        lookup: Arc<Lookup>,
        rules: Rules,
    ) -> Self {
        let rules = Arc::new(rules);
        let limits = Limits::default();
        let tls = roots.and_then(tls::connector);
        let connector =
            Connector { tls, rules: Arc::clone(&rules), lookup, proxy: None, limit: limits.connect };
        Self { http: http(connector.clone(), false), rules, connector, limits, only_http2: false }
    }

    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        let connector = Connector { limit: limits.connect, ..self.connector };
        Self { http: http(connector.clone(), self.only_http2), connector, limits, ..self }
    }

    /// Everything that is not on this machine goes through the proxy.
    #[must_use]
    pub fn with_proxy(self, proxy: Option<Proxy>) -> Self {
        let connector = Connector { proxy: proxy.map(Arc::new), ..self.connector };
        Self { http: http(connector.clone(), self.only_http2), connector, ..self }
    }

    /// HTTP/2 from the first byte, without TLS too: for gRPC.
    #[must_use]
    pub fn only_http2(self) -> Self {
        Self { http: http(self.connector.clone(), true), only_http2: true, ..self }
    }

    /// # Errors
    /// Like [`Target::parse`].
    pub fn target(&self, url: &str) -> Result<Target, super::target::TargetError> {
        Target::parse(url, &self.rules)
    }

    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Sends one request; returns when the head of the answer has arrived.
    ///
    /// # Errors
    /// Like [`HttpError`] says. An HTTP status is not an error.
    pub async fn send(
        &self,
        method: Method,
        target: &Target,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Result<Response, HttpError> {
        let mut request = hyper::Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        // Web application firewalls refuse requests without one.
        let agent = HeaderValue::from_static(concat!("agentsh/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let url = &target.url()[..url::Position::AfterQuery];
        *request.uri_mut() = url.parse::<Uri>().map_err(|error| HttpError::Broken(error.to_string()))?;
        let asked = self.http.request(request);
        let answer = match self.limits.first_byte {
            None => asked.await,
            Some(limit) => timeout(limit, asked).await.map_err(|_| HttpError::TimedOut(limit))?,
        };
        let (head, body) = answer.map_err(|error| HttpError::of(&error))?.into_parts();
        Ok(Response {
            status: head.status,
            left: length(&head.headers),
            headers: head.headers,
            from_origin: true,
            body,
            decoder: None,
            idle: self.limits.idle,
            max: self.limits.max_body,
            taken: 0,
            trailers: HeaderMap::new(),
        })
    }

    /// Sends a request and follows redirects with the same method and body; a redirect that would make a GET of it is
    /// returned. Every hop is checked like the first.
    ///
    /// # Errors
    /// Like [`Client::send`], and when a redirection is refused.
    pub async fn follow(&self, request: Request) -> Result<Response, HttpError> {
        let Request { method, mut target, headers, credentials, body, one_origin } = request;
        let first = target.clone();
        for before in 0.. {
            let mut all = headers.clone();
            if first.same_origin(&target) {
                all.extend(credentials.clone());
            }
            let mut answer = self.send(method.clone(), &target, all, full_body(body.clone())).await?;
            answer.from_origin = first.same_origin(&target);
            let Some(location) = redirection(&answer) else { return Ok(answer) };
            let keeps =
                matches!(answer.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
                    || matches!(method, Method::GET | Method::HEAD);
            if !keeps {
                return Ok(answer);
            }
            let next = target.redirected(&location, before, &self.rules);
            target = next
                .and_then(|next| if one_origin { next.of_origin(&first) } else { Ok(next) })
                .map_err(|why| HttpError::refused(target.name(), why))?;
        }
        unreachable_hops()
    }
}

/// The count of redirections ends the loop long before.
fn unreachable_hops() -> Result<Response, HttpError> {
    Err(HttpError::Broken("too many redirects".to_owned()))
}

fn redirection(answer: &Response) -> Option<String> {
    if !matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    answer.headers.get(LOCATION)?.to_str().ok().map(str::to_owned)
}

/// The length of a body whose transfer is "encoded" as it is: hyper reads such a body until the connection ends.
fn length(headers: &HeaderMap) -> Option<u64> {
    let coding = headers.get(TRANSFER_ENCODING)?.to_str().ok()?;
    let length = headers.get(CONTENT_LENGTH).filter(|_| coding.trim().eq_ignore_ascii_case("identity"))?;
    length.to_str().ok()?.trim().parse().ok()
}

fn http(connector: Connector, only_http2: bool) -> legacy::Client<Connector, RequestBody> {
    legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_only(only_http2)
        .http1_max_buf_size(MAX_HEAD)
        .http1_max_headers(MAX_HEADERS)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http2_max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .build(connector)
}

/// A body that is here as a whole.
#[must_use]
pub fn full_body(bytes: impl Into<Bytes>) -> RequestBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer whose body is still on its way.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Whether it is from the first origin; false after a redirect to another.
    pub from_origin: bool,
    body: Incoming,
    /// Bytes of the body that hyper does not count.
    left: Option<u64>,
    decoder: Option<Decoder>,
    idle: Option<Duration>,
    max: Option<usize>,
    taken: usize,
    trailers: HeaderMap,
}

impl Response {
    /// Decompresses the body, because some servers compress unasked. If that is not possible, the headers still name the
    /// encoding.
    #[must_use]
    pub fn decompressed(mut self) -> Self {
        self.decoder = Decoder::take(&mut self.headers).unwrap_or_default();
        self
    }

    /// The next piece of the body; None at its end.
    ///
    /// # Errors
    /// When it breaks off, pauses or is longer than the limits allow.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let Some(decoder) = &mut self.decoder else {
                let bytes = self.received_chunk().await?;
                return bytes.map(|bytes| self.count_bytes(bytes)).transpose();
            };
            if let Some(bytes) = decoder.next_piece().map_err(HttpError::Encoding)? {
                // Much may come of little.
                tokio::task::consume_budget().await;
                return self.count_bytes(bytes).map(Some);
            }
            if decoder.is_ended() {
                return Ok(None);
            }
            let bytes = self.received_chunk().await?;
            if let Some(decoder) = &mut self.decoder {
                decoder.push(bytes);
            }
        }
    }

    fn count_bytes(&mut self, bytes: Bytes) -> Result<Bytes, HttpError> {
        self.taken = self.taken.saturating_add(bytes.len());
        match self.max.filter(|max| self.taken > *max) {
            Some(max) => Err(HttpError::TooLarge(max)),
            None => Ok(bytes),
        }
    }

    /// The next piece of the body as received.
    async fn received_chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let next = self.body.frame();
            let frame = match self.idle {
                None => next.await,
                Some(limit) => timeout(limit, next).await.map_err(|_| HttpError::Idle(limit))?,
            };
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| HttpError::of(&error))?;
            match frame.into_data() {
                Ok(mut bytes) => {
                    if let Some(left) = &mut self.left {
                        bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                        *left -= bytes.len() as u64;
                    }
                    return Ok(Some(bytes));
                }
                // Other frames are ignored.
                Err(other) => self.trailers = other.into_trailers().unwrap_or_default(),
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// Like [`Response::chunk`], and when it has more than `max` bytes.
    pub async fn read_body(mut self, max: usize) -> Result<Vec<u8>, HttpError> {
        self.read_rest(max).await
    }

    /// The whole body and its trailers.
    ///
    /// # Errors
    /// Like [`Response::read_body`].
    pub async fn whole_with_trailers(mut self, max: usize) -> Result<(Vec<u8>, HeaderMap), HttpError> {
        let bytes = self.read_rest(max).await?;
        Ok((bytes, self.trailers))
    }

    async fn read_rest(&mut self, max: usize) -> Result<Vec<u8>, HttpError> {
        self.max = Some(self.max.map_or(max, |own| own.min(max)));
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}
