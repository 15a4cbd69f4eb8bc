//! Streams of events, and what a client may know before it comes in.

use std::rc::Rc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;

use super::client::{Client, GENERAL_STREAM, Serving};
use super::config::{Config, Endpoint};
use super::door::Admitted;
use super::message::{STATELESS, header};
use super::post::{CancelOnDrop, ProtocolMode};
use super::reply::{self, Answer};
use super::server::Gateway;
use super::sessions;
use super::stream::Reader;

/// Events that are ahead of what the network takes.
const MAX_QUEUED_EVENTS: usize = 8;
/// A stream is never silent for longer: proxies in between close what is.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a client waits before it takes a stream up again.
const RETRY_MS: u32 = 1000;
/// The revision from which a stream begins with an empty event, from which it can be taken up.
pub const FIRST_REVISION_WITH_PRIMING: &str = "2025-11-25";

/// A GET: the stream that belongs to no request, or the rest of one that broke off.
pub fn listen(
    gateway: &Rc<Gateway>,
    endpoint: &Endpoint,
    admitted: &Admitted,
    request: &Request<Body>,
) -> Answer {
    let headers = request.headers();
    let takes = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
    if header(headers, "mcp-protocol-version") == Some(STATELESS) {
        return reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    }
    if !takes.contains("text/event-stream") && !takes.contains("*/*") {
        return reply::empty(StatusCode::NOT_ACCEPTABLE);
    }
    let Some(id) = sessions::named(header(headers, "mcp-session-id")) else {
        return reply::empty(StatusCode::BAD_REQUEST);
    };
    let Some(client) = gateway.session(id, endpoint, admitted) else {
        return reply::empty(StatusCode::NOT_FOUND);
    };
    let (stream, from) = match header(headers, "last-event-id").map(resumed) {
        Some(Some((stream, seen))) => (client.stream(stream), Some(seen)),
        Some(None) => (None, None),
        None => (client.stream(GENERAL_STREAM), None),
    };
    let Some(stream) = stream else {
        return reply::empty(StatusCode::BAD_REQUEST);
    };
    // One at a time, and the newest: a client whose connection broke comes back before that is known here.
    // Who takes a stream up knows where it is.
    let knows_pauses = header(headers, "mcp-protocol-version") == Some(FIRST_REVISION_WITH_PRIMING);
    let reader = stream.reader(from).until_paused(knows_pauses);
    let primed = from.is_none() && knows_pauses;
    events(reader, StreamFormat::new(&client, ProtocolMode::Stateful, primed), client.serve(), None)
}

/// `STREAM-COUNT`: how many events of which stream were seen.
fn resumed(id: &str) -> Option<(u64, u64)> {
    let (stream, count) = id.split_once('-')?;
    Some((stream.parse().ok()?, count.parse().ok()?))
}

/// How a stream is written.
pub struct StreamFormat {
    client: Rc<Client>,
    /// Events can be asked for again.
    ids: bool,
    primed: bool,
}

impl StreamFormat {
    pub fn new(client: &Rc<Client>, era: ProtocolMode, primed: bool) -> Self {
        let ids = era == ProtocolMode::Stateful;
        Self { client: Rc::clone(client), ids, primed: ids && primed }
    }
}

/// Writes events until there are none, or nobody takes them.
pub fn events(
    mut reader: Reader,
    shown: StreamFormat,
    serving: Serving,
    abandoned: Option<CancelOnDrop>,
) -> Answer {
    let (out, body) = mpsc::channel(MAX_QUEUED_EVENTS);
    let stream = reader.stream_id();
    tokio::task::spawn_local(async move {
        let _held = (serving, abandoned);
        if shown.primed
            && out.send(Bytes::from(format!("id: {stream}-0\nretry: {RETRY_MS}\ndata: \n\n"))).await.is_err()
        {
            return;
        }
        loop {
            let next = tokio::select! {
                next = reader.next() => next,
                () = out.closed() => return,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    if out.send(Bytes::from_static(b":\n\n")).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let Some((number, event)) = next else {
                if let Some((next, retry)) = reader.paused() {
                    let retry = retry.map_or(u128::from(RETRY_MS), |retry| retry.as_millis());
                    let text = format!("id: {stream}-{next}\nretry: {retry}\ndata: \n\n");
                    // Who is gone comes back all the same.
                    let _ = out.send(text.into()).await;
                }
                return;
            };
            shown.client.changed.notify_one();
            let id = if shown.ids { format!("id: {stream}-{}\n", number + 1) } else { String::new() };
            let mut text = Vec::with_capacity(event.len() + id.len() + 32);
            text.extend_from_slice(id.as_bytes());
            text.extend_from_slice(b"event: message\ndata: ");
            text.extend_from_slice(&event);
            text.extend_from_slice(b"\n\n");
            if out.send(text.into()).await.is_err() {
                return;
            }
        }
    });
    reply::events(body)
}

/// RFC 9728: which authorization server gives tokens for an endpoint.
pub fn resource_metadata(config: &Config, path: &str) -> Answer {
    let Some(oauth) = &config.auth.oauth else { return reply::empty(StatusCode::NOT_FOUND) };
    let known =
        path.is_empty() || config.endpoints.iter().any(|endpoint| path == format!("/mcp/{}", endpoint.id));
    if !known {
        return reply::empty(StatusCode::NOT_FOUND);
    }
    let body = json!({
        "resource": format!("{}{path}", config.base()),
        "authorization_servers": [oauth.issuer],
        "bearer_methods_supported": ["header"],
        "scopes_supported": oauth.scopes,
    });
    reply::json(StatusCode::OK, body.to_string().into())
}

/// What a client without a key is told about getting one.
pub fn challenge(config: &Config, endpoint: &str, error: Option<&str>) -> Option<HeaderValue> {
    let Some(oauth) = &config.auth.oauth else {
        return Some(HeaderValue::from_static("Bearer realm=\"agentsh\""));
    };
    let mut text = format!(
        "Bearer realm=\"agentsh\", resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp/{endpoint}\"",
        config.base()
    );
    if !oauth.scopes.is_empty() {
        text.push_str(&format!(", scope=\"{}\"", oauth.scopes.join(" ")));
    }
    if let Some(error) = error {
        text.push_str(&format!(", error=\"{error}\""));
    }
    HeaderValue::from_str(&text).ok()
}
