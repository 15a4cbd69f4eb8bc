//! Event streams, and the metadata that a client may read without a key.

use std::rc::Rc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{Request, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;

use super::admission::{Admitted, Refusal};
use super::client::{Client, GENERAL_STREAM, Serving};
use super::codes::Code;
use super::config::{Config, Endpoint};
use super::message::{STATELESS, header};
use super::post::{CancelOnDrop, ProtocolMode};
use super::reply::{self, Answer};
use super::server::Gateway;
use super::sessions;
use super::stream::Reader;

/// Events ahead of the network.
const MAX_QUEUED_EVENTS: usize = 8;
/// Proxies close silent streams.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The client's delay before it resumes a stream.
const RETRY_MS: u32 = 1000;
/// From this revision a stream begins with an empty event, so that it can be resumed.
pub const FIRST_REVISION_WITH_PRIMING: &str = "2025-11-25";

/// A GET: the general stream, or the rest of an interrupted one.
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
    let Some(id) = sessions::valid_session_id(header(headers, "mcp-session-id")) else {
        return reply::empty(StatusCode::BAD_REQUEST);
    };
    let Some(client) = gateway.session(id, endpoint, admitted) else {
        return gateway.refuse(&endpoint.id, &Refusal::new(Code::NoSession, "no such session"));
    };
    let (stream, from) = match header(headers, "last-event-id").map(parse_event_id) {
        Some(Some((stream, seen))) => (client.stream(stream), Some(seen)),
        Some(None) => (None, None),
        None => (client.stream(GENERAL_STREAM), None),
    };
    let Some(stream) = stream else {
        return reply::empty(StatusCode::BAD_REQUEST);
    };
    // The newest replaces the others, because a client may reconnect before the old connection's end is known. A
    // resuming client names its position.
    let knows_pauses = header(headers, "mcp-protocol-version") == Some(FIRST_REVISION_WITH_PRIMING);
    let reader = stream.reader(from).until_paused(knows_pauses);
    let primed = from.is_none() && knows_pauses;
    events(reader, StreamFormat::new(&client, ProtocolMode::Stateful, primed), client.serve(), None)
}

/// `STREAM-COUNT`: events of a stream that were received.
fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (stream, count) = id.split_once('-')?;
    Some((stream.parse().ok()?, count.parse().ok()?))
}

pub struct StreamFormat {
    client: Rc<Client>,
    /// Events have ids.
    ids: bool,
    primed: bool,
}

impl StreamFormat {
    pub fn new(client: &Rc<Client>, era: ProtocolMode, primed: bool) -> Self {
        let ids = era == ProtocolMode::Stateful;
        Self { client: Rc::clone(client), ids, primed: ids && primed }
    }
}

/// Writes events until the end, or until the client is gone.
pub fn events(
    mut reader: Reader,
    shown: StreamFormat,
    serving: Serving,
    abandoned: Option<CancelOnDrop>,
) -> Answer {
    let (out, body) = mpsc::channel(MAX_QUEUED_EVENTS);
    let stream = reader.stream_id();
    agentsh_base::task::spawn_local(async move {
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
                    // The client may resume.
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

/// RFC 9728: the authorization servers of an endpoint.
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

/// The WWW-Authenticate header for a client without a key.
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
