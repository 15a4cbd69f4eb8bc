//! OTLP over gRPC: a receiver that accepts, one that refuses, one that asks to retry later, a dead one and a slow
//! one.

use std::convert::Infallible;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::telemetry::session;
use crate::support::{Mode, Place};

/// Path, headers and message of a call.
type Call = (String, HeaderMap, Vec<u8>);

struct Receiver {
    port: u16,
    calls: Arc<Mutex<Vec<Call>>>,
}

#[derive(Clone, Copy)]
enum Manner {
    Takes,
    /// Answers this many calls with this status, and accepts later ones.
    Says(u8, usize),
    /// This status in the head, without a body.
    SaysAtOnce(u8),
    Silent,
}

impl Receiver {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let seen = Arc::clone(&seen);
                    let service = service_fn(move |request| answer(request, Arc::clone(&seen), manner));
                    tokio::spawn(
                        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(stream), service),
                    );
                }
            });
        });
        Self { port, calls }
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    fn place(&self) -> Place {
        let place = Place::new(Mode::Invoker);
        place.set("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", self.port));
        place.set("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        place.set("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue");
        place
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Call>>>,
    manner: Manner,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    // As long as it says, and compressed where it says so.
    assert_eq!(u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize, body.len() - 5);
    let encoding = head.headers.get("grpc-encoding").map(HeaderValue::as_bytes);
    assert_eq!(encoding, (body[0] == 1).then_some(&b"gzip"[..]));
    let mut message = body[5..].to_vec();
    if body[0] == 1 {
        message.clear();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&body[5..]), &mut message).unwrap();
    }
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push((head.uri.path().to_owned(), head.headers, message));
        seen.len() - 1
    };
    let status = match manner {
        Manner::Takes => 0,
        Manner::Says(status, calls) if before < calls => status,
        Manner::Says(..) => 0,
        Manner::SaysAtOnce(status) => {
            let mut response = Response::new(Full::new(Bytes::new()).boxed());
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            response.headers_mut().insert("grpc-status", HeaderValue::from(u16::from(status)));
            response.headers_mut().insert("grpc-message", HeaderValue::from_static("no such thing"));
            return Ok(response);
        }
        Manner::Silent => std::future::pending().await,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    // An empty message.
    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body.boxed());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn has(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

#[test]
fn telemetry_is_sent_over_grpc() {
    for packed in ["none", "gzip"] {
        hears(packed);
    }
}

fn hears(packed: &str) {
    let receiver = Receiver::start(Manner::Takes);
    let place = receiver.place();
    place.set("OTEL_EXPORTER_OTLP_COMPRESSION", packed);
    place.set("OTEL_EXPORTER_OTLP_TIMEOUT", "7000");
    let outcome = session(&place, None).expect_code(0);
    assert!(!outcome.stderr.contains("delivered"), "{outcome}");
    let calls = receiver.calls();
    for (service, part) in [
        ("trace.v1.TraceService", "mcp.method.name"),
        ("logs.v1.LogsService", "session_ended"),
        ("metrics.v1.MetricsService", "agentsh.calls"),
    ] {
        let path = format!("/opentelemetry.proto.collector.{service}/Export");
        let of: Vec<&Call> = calls.iter().filter(|(asked, ..)| *asked == path).collect();
        assert!(of.iter().any(|(_, _, message)| has(message, part)), "{path} has no {part}");
        for (_, headers, message) in of {
            assert_eq!(headers["content-type"], "application/grpc+proto");
            assert_eq!(headers["grpc-timeout"], "7000m");
            assert_eq!(headers.contains_key("grpc-encoding"), packed == "gzip");
            assert_eq!(
                (&headers["te"], &headers["x-team"]),
                (&HeaderValue::from_static("trailers"), &HeaderValue::from_static("blue"))
            );
            // The first field: a message.
            assert_eq!(message[0], 10);
        }
    }
}

/// Without a word of the environment.
#[test]
fn telemetry_protocol_grpc_can_come_from_the_policy() {
    let receiver = Receiver::start(Manner::Takes);
    let place = Place::new(Mode::Invoker);
    place.user_policy(&format!(
        "telemetry: {{otlp: {{endpoint: \"http://127.0.0.1:{}\", protocol: grpc, headers: {{X-Team: red}}}}}}\n",
        receiver.port
    ));
    let outcome = session(&place, None).expect_code(0);
    assert!(!outcome.stderr.contains("delivered"), "{outcome}");
    let calls = receiver.calls();
    for kind in ["TraceService", "LogsService", "MetricsService"] {
        assert!(calls.iter().any(|(path, ..)| path.contains(kind)), "{kind}");
    }
    assert!(calls.iter().all(|(_, headers, _)| headers["x-team"] == "red"));
    assert!(calls.iter().any(|(.., message)| has(message, "agentsh.telemetry.lag")), "how late it is");
}

#[test]
fn batch_that_a_grpc_receiver_refuses_is_not_sent_again() {
    for manner in [Manner::Says(16, usize::MAX), Manner::SaysAtOnce(16)] {
        let receiver = Receiver::start(manner);
        let place = receiver.place();
        let outcome = session(&place, None).expect_code(0);
        assert!(outcome.stderr.contains("were not delivered"), "{outcome}");
        assert!(outcome.stderr.contains("gRPC status 16"), "{outcome}");
        let logs = receiver.calls().iter().filter(|(path, ..)| path.contains("LogsService")).count();
        assert_eq!(logs, 1);
    }
}

#[test]
fn dead_and_slow_receivers_cost_a_session_nothing() {
    let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let gone = Receiver { port: dead.local_addr().unwrap().port(), calls: Arc::default() };
    drop(dead);
    for receiver in [gone, Receiver::start(Manner::Silent)] {
        let place = receiver.place();
        let start = Instant::now();
        let outcome = session(&place, None).expect_code(0);
        assert!(outcome.stderr.contains("were not delivered"), "{outcome}");
        assert!(start.elapsed() < crate::support::patience(Duration::from_secs(60)));
    }
}
