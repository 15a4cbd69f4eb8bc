//! Both ends of one connection: a server to the agent, a client to the model, in HTTP/1.1 or HTTP/2. The agent is
//! offered HTTP/2 if the model accepted it, so that parallel requests stay parallel.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper::header::{HOST, HeaderName};
use hyper::http::uri::{Authority, Scheme};
use hyper::rt::Executor;
use hyper::server::conn::{http1 as server1, http2 as server2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::sync::Mutex;

use super::key_filter::KeyFilter;
use super::{Model, Outgoing, Reply, ReplyBody, endpoints};
use agentsh_egress::client::MAX_HEADERS;
use agentsh_llm::{Provider, Route, route};
use agentsh_net::allow::is_local;
use agentsh_net::channel::{Channel, ChannelFuture, ChannelTarget, ConnectionEnds, RequestFilter};
use agentsh_policy::domain::{self, Host};
use agentsh_store::escape;

/// For the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of concurrent requests of a connection, because their bodies are in memory.
const MAX_STREAMS: u32 = 32;
/// Bytes on their way to and from the model in HTTP/2.
const PIPE: usize = 64 << 10;

/// The way to the model.
pub(super) struct Upstream {
    sender: Sender,
    host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    is_one: bool,
}

enum Sender {
    /// HTTP/1.1: one request after the other.
    One(Mutex<client1::SendRequest<Outgoing>>),
    Many(client2::SendRequest<Outgoing>),
}

impl Upstream {
    pub(super) fn channel_target(&self) -> ChannelTarget<'_> {
        ChannelTarget { host: &self.host, port: self.port, is_tls: self.is_tls, is_one: self.is_one }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Outgoing>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        match &self.sender {
            Sender::One(sender) => {
                let mut sender = sender.lock().await;
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Many(sender) => {
                self.as_http2(&mut request);
                let mut sender = sender.clone();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// Moves headers of HTTP/1.1 into the pseudo-headers of HTTP/2.
    fn as_http2(&self, request: &mut Request<Outgoing>) {
        const TE: HeaderName = hyper::header::TE;
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = self.host.parse::<Authority>().ok();
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
        request.headers_mut().remove(HOST);
        request.headers_mut().remove(TE);
    }
}

/// Limits for the body of a request that is refused by its head.
const MAX_UNREAD_BYTES: usize = 1 << 20;
const UNREAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The host in a request if it is not the host of its connection. Servers at one address differ only by that.
fn mismatched_host<B>(request: &Request<B>, host: &str) -> Option<String> {
    let is_named = |text: &String| {
        let Ok(authority) = text.parse::<Authority>() else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_local_name = |name: &str| domain::normalise(name).is_ok_and(|host| is_local(&host));
        name.eq_ignore_ascii_case(host) || (is_local_name(name) && is_local_name(host))
    };
    let headers = request.headers().get_all(HOST).iter();
    let headers = headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let names: Vec<String> =
        request.uri().authority().map(ToString::to_string).into_iter().chain(headers).collect();
    let other = names.iter().find(|name| !is_named(name)).map(|name| format!("'{}'", escape::line(name)));
    other.or_else(|| names.is_empty().then(|| "nobody".to_owned()))
}

/// Whether a request can be a question to a model, by its method and path. Its body says whether it is.
fn is_question(method: &str, target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    method == "POST" && matches!(route(method, path), Route::Model(_) | Route::Measured(_))
}

impl Channel for Model {
    fn carries(&self, host: &Host, port: u16) -> bool {
        self.places
            .iter()
            .any(|(place, of)| *of == port && (place == host || (is_local(place) && is_local(host))))
    }

    fn request_filter(&self) -> Option<RequestFilter> {
        endpoints::is_everywhere(&self.facts).then_some(is_question)
    }

    fn carry<'a>(&'a self, to: ChannelTarget<'a>, (program, model): ConnectionEnds<'a>) -> ChannelFuture<'a> {
        let ChannelTarget { host, port, is_tls, is_one } = to;
        Box::pin(async move {
            let broken = |error: hyper::Error| io::Error::other(error);
            let mut connection: Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;
            let sender = if model.is_http2 {
                // hyper's tasks must not borrow, so they get one end of a pipe.
                let (near, mut far) = tokio::io::duplex(PIPE);
                let mut stream = model.stream;
                let handshake = client2::handshake(Spawn, TokioIo::new(near));
                let (sender, carried) = handshake.await.map_err(broken)?;
                connection = Box::pin(async move {
                    tokio::select! {
                        carried = carried => carried.map_err(broken),
                        copied = copy_bidirectional_with_sizes(&mut far, &mut stream, PIPE, PIPE) => copied.map(drop),
                    }
                });
                Sender::Many(sender)
            } else {
                let mut builder = client1::Builder::new();
                builder.max_headers(MAX_HEADERS).allow_obsolete_multiline_headers_in_responses(true);
                let (sender, carried) =
                    builder.handshake(TokioIo::new(model.stream)).await.map_err(broken)?;
                connection = Box::pin(async move { carried.await.map_err(broken) });
                Sender::One(Mutex::new(sender))
            };
            let upstream = Rc::new(Upstream { sender, host: host.to_owned(), port, is_tls, is_one });
            let service = service_fn(move |request: Request<Incoming>| {
                let upstream = Rc::clone(&upstream);
                async move {
                    // The relay has read the head of a single one.
                    if let Some(named) = mismatched_host(&request, host).filter(|_| !is_one) {
                        // Some clients of HTTP/2 take no answer before their request has ended.
                        let body = Limited::new(request.into_body(), MAX_UNREAD_BYTES).collect();
                        let _ = tokio::time::timeout(UNREAD_TIMEOUT, body).await;
                        return Ok(self.without_keys(self.misdirected(&named, host)));
                    }
                    Ok::<_, Infallible>(self.without_keys(self.serve(request, &upstream).await))
                }
            });
            let io = TokioIo::new(program.stream);
            let mut is_open = true;
            if program.is_http2 {
                let room = ConnectionExecutor::default();
                let mut builder = server2::Builder::new(room.clone());
                builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
                let mut serving = pin!(builder.serve_connection(io, service));
                let result = loop {
                    tokio::select! {
                        served = serving.as_mut() => break served,
                        _ = connection.as_mut(), if is_open => {
                            is_open = false;
                            serving.as_mut().graceful_shutdown();
                        }
                        () = room.run() => {}
                    }
                };
                // The running task holds the capacity itself.
                room.clear();
                result.map_err(broken)
            } else {
                let mut builder = server1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .half_close(true)
                    .keep_alive(!is_one);
                let mut serving = pin!(builder.serve_connection(io, service));
                loop {
                    tokio::select! {
                        served = serving.as_mut() => return served.map_err(broken),
                        // Received answers are still delivered; the next request needs another connection.
                        _ = connection.as_mut(), if is_open => {
                            is_open = false;
                            serving.as_mut().graceful_shutdown();
                        }
                    }
                }
            }
        })
    }
}

impl Model {
    /// An answer without keys that stay outside.
    fn without_keys(&self, reply: Reply) -> Response<KeyFilter<ReplyBody>> {
        let watch = self.keys.watch();
        let mut of_head = watch.clone();
        let has_key = reply.headers().iter().any(|(name, value)| {
            of_head.finds_in(name.as_str().as_bytes()) || of_head.finds_in(value.as_bytes())
        });
        let mut reply = if has_key {
            let why = "the response contains an API key that the sandbox must not see in a header";
            self.withheld_reply(Provider::OpenAiChat, StatusCode::BAD_GATEWAY, why)
        } else {
            reply
        };
        // The words of the status line are the server's, too.
        reply.extensions_mut().remove::<hyper::ext::ReasonPhrase>();
        reply.map(|body| KeyFilter::new(body, watch))
    }

    fn misdirected(&self, named: &str, host: &str) -> super::Reply {
        let why = format!(
            "a request for {named} on a connection to '{host}'; use a separate connection for each host"
        );
        self.withheld_reply(Provider::OpenAiChat, StatusCode::MISDIRECTED_REQUEST, &why)
    }
}

/// Runs what does not borrow.
#[derive(Clone)]
struct Spawn;

impl<F: Future<Output = ()> + 'static> Executor<F> for Spawn {
    fn execute(&self, task: F) {
        agentsh_base::task::spawn_local(task);
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Runs what a connection of HTTP/2 splits off, as long as that connection is carried and no longer: it borrows its ends.
#[derive(Clone, Default)]
struct ConnectionExecutor<'a>(Rc<RefCell<Tasks<'a>>>);

#[derive(Default)]
struct Tasks<'a> {
    new: Vec<Task<'a>>,
    running: FuturesUnordered<Task<'a>>,
    waker: Option<Waker>,
}

impl<'a, F: Future<Output = ()> + 'a> Executor<F> for ConnectionExecutor<'a> {
    fn execute(&self, task: F) {
        let mut tasks = self.0.borrow_mut();
        tasks.new.push(Box::pin(task));
        if let Some(waker) = tasks.waker.take() {
            waker.wake();
        }
    }
}

impl ConnectionExecutor<'_> {
    /// Never ends by itself.
    async fn run(&self) {
        poll_fn(|context| {
            loop {
                // A task may split off another one: nothing is borrowed while one runs.
                let mut running = {
                    let mut tasks = self.0.borrow_mut();
                    let new = std::mem::take(&mut tasks.new);
                    tasks.running.extend(new);
                    tasks.waker = Some(context.waker().clone());
                    std::mem::take(&mut tasks.running)
                };
                let polled = running.poll_next_unpin(context);
                let mut tasks = self.0.borrow_mut();
                tasks.running = running;
                if tasks.new.is_empty() && !matches!(polled, Poll::Ready(Some(()))) {
                    return Poll::<()>::Pending;
                }
            }
        })
        .await;
    }

    fn clear(&self) {
        let (new, running) = {
            let mut tasks = self.0.borrow_mut();
            (std::mem::take(&mut tasks.new), std::mem::take(&mut tasks.running))
        };
        drop((new, running));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn refusal_names_the_host_that_does_not_match() {
        let named = |uri: &str, headers: &[&str]| {
            let request =
                headers.iter().fold(Request::builder().uri(uri), |all, name| all.header(HOST, *name));
            let request = request.body(()).unwrap();
            mismatched_host(&request, "api.example.com")
        };
        let wrong = Some("'other.example'".to_owned());
        assert_eq!(named("/", &["api.example.com"]), None);
        assert_eq!(named("http://api.example.com/", &[]), None);
        assert_eq!(named("/", &[]).unwrap(), "nobody");
        assert_eq!(named("/", &["other.example"]), wrong);
        assert_eq!(named("/", &["api.example.com", "other.example"]), wrong);
        assert_eq!(named("http://api.example.com/", &["other.example"]), wrong);
        assert_eq!(named("http://other.example/", &["api.example.com"]), wrong);
    }
}
