//! A client's POST and its response: JSON if there is only the answer, else an event stream.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming as Body};
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode};

use crate::json;
use crate::mcp::jsonrpc::Id;

use super::admission::{Admitted, Refusal};
use super::client::{Client, SendError};
use super::codes::Code;
use super::config::Endpoint;
use super::event_streams;
use super::keys::random_hex;
use super::message::{INVALID_REQUEST, Incoming, Kind, STATEFUL, STATELESS, header};
use super::reply::{self, Answer};
use super::server::Gateway;
use super::sessions;
use super::stream::Stream;

/// After this time without an answer, a stream begins, to show the client that it is being served.
const STREAM_START_DELAY: Duration = Duration::from_secs(5);

pub async fn post(
    gateway: &Rc<Gateway>,
    endpoint: &Endpoint,
    (admitted, peer): (&Admitted, IpAddr),
    request: Request<Body>,
) -> Answer {
    let (parts, body) = request.into_parts();
    let refuse = |refusal: &Refusal| gateway.refuse(&endpoint.id, refusal);
    let malformed = |code, why: &str| refuse(&Refusal::new(code, why));
    if media_type(&parts.headers) != "application/json" {
        return malformed(Code::MediaType, "the Content-Type must be application/json");
    }
    if parts
        .headers
        .get(CONTENT_ENCODING)
        .is_some_and(|how| !how.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return malformed(Code::MediaType, "compressed requests are not supported");
    }
    let Some(takes) = AcceptedTypes::read(&parts.headers) else {
        return malformed(
            Code::NotAcceptable,
            "the client must accept application/json and text/event-stream",
        );
    };
    let (limit, within) = {
        let limits = &gateway.config().limits;
        (limits.message_bytes, limits.request_seconds)
    };
    let body =
        match tokio::time::timeout(Duration::from_secs(within), Limited::new(body, limit).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return malformed(Code::TooLong, &format!("the message is larger than {limit} bytes"));
            }
            // The client is gone.
            Ok(Err(_)) => return reply::empty(StatusCode::BAD_REQUEST),
            Err(_) => {
                let why = format!("the message did not arrive within {within} s");
                return malformed(Code::TooSlow, &why);
            }
        };
    let mut message = match Incoming::read(&body).and_then(|message| {
        message.check_headers(&parts.headers)?;
        Ok(message)
    }) {
        Ok(message) => message,
        Err(wrong) => return gateway.malformed_message(&wrong),
    };
    if let Some(wanted) = gateway.connector.wanted_headers() {
        message.tell_caller(peer, wanted, &parts.headers);
    }
    if message.is_stateless(&parts.headers) {
        return match stateless(gateway, endpoint, admitted, message, &parts.headers, takes).await {
            Ok(answer) => answer,
            Err(refusal) => refuse(&refusal),
        };
    }
    if let Some(version) = header(&parts.headers, "mcp-protocol-version")
        && !STATEFUL.contains(&version)
    {
        let why = format!("unsupported protocol version: {}", version.escape_debug());
        return reply::refusal(Code::Malformed, INVALID_REQUEST, &why, message.id());
    }
    let takes = takes.with_priming(header(&parts.headers, "mcp-protocol-version"));
    let id = sessions::valid_session_id(header(&parts.headers, "mcp-session-id"));
    let client = match id {
        None if message.is_initialize() => {
            return match initialize(gateway, endpoint, admitted, &message, takes).await {
                Ok(answer) => answer,
                Err(refusal) => refuse(&refusal),
            };
        }
        None => {
            let why = "the header Mcp-Session-Id is missing: start with `initialize`";
            return reply::refusal(Code::SessionMissing, INVALID_REQUEST, why, message.id());
        }
        Some(id) => gateway.session(id, endpoint, admitted),
    };
    match client {
        Some(client) => exchange(&client, &message, takes, ProtocolMode::Stateful).await,
        None => {
            let why = "no such session: start again with `initialize`";
            reply::refusal(Code::NoSession, INVALID_REQUEST, why, message.id())
        }
    }
}

async fn initialize(
    gateway: &Rc<Gateway>,
    endpoint: &Endpoint,
    admitted: &Admitted,
    message: &Incoming,
    takes: AcceptedTypes,
) -> Result<Answer, Refusal> {
    let id = random_hex::<16>().map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
    let client = gateway.begin(id.clone(), endpoint, admitted, &message.client_capabilities())?;
    let mut answer = exchange(&client, message, takes, ProtocolMode::Stateful).await;
    // A refused handshake starts no session.
    if client.is_ended() || answer.status() != StatusCode::OK || reply::is_error(&answer) {
        gateway.sessions.borrow_mut().remove(&id);
        client.end();
    } else if let Ok(value) = HeaderValue::from_str(&id) {
        answer.headers_mut().insert("mcp-session-id", value);
    }
    Ok(answer)
}

/// Without sessions, requests of one client share a server connection.
async fn stateless(
    gateway: &Rc<Gateway>,
    endpoint: &Endpoint,
    admitted: &Admitted,
    message: Incoming,
    headers: &HeaderMap,
    takes: AcceptedTypes,
) -> Result<Answer, Refusal> {
    if message.version.as_deref().is_some_and(|version| version < STATELESS) {
        let why = "the message names a protocol version that has sessions: start with `initialize`";
        return Err(Refusal::new(Code::Malformed, why));
    }
    if let Err(wrong) = message.check_meta() {
        return Ok(gateway.malformed_message(&wrong));
    }
    if message.id().is_none() {
        // On a shared connection, a cancellation or answer could name another client's request, and other messages
        // would speak for all. Clients cancel by closing the stream.
        return Ok(reply::empty(StatusCode::ACCEPTED));
    }
    let can = message.capabilities.as_deref().unwrap_or_default();
    let client = gateway.shared_client(endpoint, admitted, can)?;
    if message.is_call()
        && let Err(wrong) = message.check_params(&client.params(&message).await, headers)
    {
        return Ok(gateway.malformed_message(&wrong));
    }
    Ok(exchange(&client, &client.rename(message), takes, ProtocolMode::Stateless).await)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolMode {
    Stateful,
    /// Closing a stream cancels its request, and protocol errors have an HTTP status.
    Stateless,
}

async fn exchange(
    client: &Rc<Client>,
    message: &Incoming,
    takes: AcceptedTypes,
    era: ProtocolMode,
) -> Answer {
    let mut answer = answer_message(client, message, takes, era).await;
    if let Kind::Request { id, method } = &message.kind {
        let served = reply::Served { method: method.clone(), name: message.name.clone(), id: id.to_value() };
        answer.extensions_mut().insert(served);
    }
    answer
}

async fn answer_message(
    client: &Rc<Client>,
    message: &Incoming,
    takes: AcceptedTypes,
    era: ProtocolMode,
) -> Answer {
    let serving = client.serve();
    let Kind::Request { id, .. } = &message.kind else {
        return match client.send(&message.line).await {
            Ok(()) => reply::empty(StatusCode::ACCEPTED),
            Err(_) => reply::empty(StatusCode::NOT_FOUND),
        };
    };
    let stream = match client.request(message, id.key.clone()).await {
        Ok(stream) => stream,
        Err(error) => {
            let (code, why) = match error {
                SendError::Ended => (Code::Ended, "the session has ended: start again with `initialize`"),
                SendError::SameId => (Code::SameId, "a request with this id is still open"),
                SendError::TooMany => (Code::TooManyOpen, "too many open requests"),
            };
            return reply::refusal(code, INVALID_REQUEST, why, Some(id));
        }
    };
    // A client that disconnects before the answer does not want it.
    let abandoned = CancelOnDrop::new(client, &stream, id, era);
    // A complete answer within the time needs no stream.
    let begun = tokio::time::timeout(STREAM_START_DELAY, stream.wait_for_event()).await;
    let mut code = None;
    if begun.is_ok() && takes.json {
        // Progress and answer often arrive together.
        tokio::task::yield_now().await;
        let sole = stream.only_message();
        code = sole.as_deref().and_then(Code::of_answer);
        let sole = sole.map(|answer| (status_of(&answer, code, era), answer));
        // A stream has no status.
        let sole = sole.filter(|(status, _)| !takes.prefers_events || *status != StatusCode::OK);
        if let Some((status, answer)) = sole {
            let mut reader = stream.reader(None);
            let _ = reader.next().await;
            client.changed.notify_one();
            let mut answer = reply::json(status, answer);
            if let Some(code) = code {
                answer.extensions_mut().insert(code);
            }
            return answer;
        }
    }
    if stream.is_done() && stream.is_empty() {
        let why = "the session ended before the server answered";
        return reply::refusal(Code::BrokenOff, -32000, why, Some(id));
    }
    if !takes.events {
        return answer_without_stream(client, &stream).await;
    }
    let shown = event_streams::StreamFormat::new(client, era, takes.is_primed);
    let reader = stream.reader(None).until_paused(takes.is_primed && era == ProtocolMode::Stateful);
    let mut answer = event_streams::events(reader, shown, serving, Some(abandoned));
    if let Some(code) = code {
        answer.extensions_mut().insert(code);
    }
    answer
}

/// Gives up a request on drop, and cancels it at the server. Only without sessions, because otherwise the client may
/// resume.
pub struct CancelOnDrop {
    client: Rc<Client>,
    stream: Rc<Stream>,
    id: Id,
    era: ProtocolMode,
}

impl CancelOnDrop {
    pub fn new(client: &Rc<Client>, stream: &Rc<Stream>, id: &Id, era: ProtocolMode) -> Self {
        Self { client: Rc::clone(client), stream: Rc::clone(stream), id: id.clone(), era }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if self.era == ProtocolMode::Stateful {
            return;
        }
        let was_answered = self.stream.is_done();
        self.client.give_up(&self.id.key, &self.stream);
        if was_answered || self.client.is_ended() {
            return;
        }
        self.client.cancel(&self.id);
    }
}

/// Only the answer, for a client without streams.
async fn answer_without_stream(client: &Rc<Client>, stream: &Rc<Stream>) -> Answer {
    let mut reader = stream.reader(None);
    let mut last = Bytes::new();
    while let Some((_, event)) = reader.next().await {
        client.changed.notify_one();
        last = event;
    }
    reply::json(StatusCode::OK, last)
}

/// The HTTP status of an answer. Without sessions it gives the kind of error.
fn status_of(answer: &[u8], refused: Option<Code>, era: ProtocolMode) -> StatusCode {
    if let Some(status) = refused.map(Code::status).filter(|status| *status != StatusCode::OK) {
        return status;
    }
    if era == ProtocolMode::Stateful {
        return StatusCode::OK;
    }
    let code =
        json::read(answer).ok().and_then(|tree| tree.member("error")?.member("code")?.to_value().as_i64());
    match code {
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32022..=-32020 | -32600 | -32700) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The client's Accept header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AcceptedTypes {
    json: bool,
    events: bool,
    /// It prefers a stream.
    prefers_events: bool,
    /// A stream begins with a resumable event.
    is_primed: bool,
}

impl AcceptedTypes {
    /// None: neither type.
    fn read(headers: &HeaderMap) -> Option<Self> {
        let mut takes = Self::default();
        let mut said = false;
        for value in headers.get_all(ACCEPT) {
            for kind in value.to_str().unwrap_or_default().split(',') {
                said = true;
                match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                    "application/json" | "application/*" => takes.json = true,
                    "text/event-stream" | "text/*" => {
                        takes.prefers_events |= !takes.json;
                        takes.events = true;
                    }
                    "*/*" => (takes.json, takes.events) = (true, true),
                    _ => {}
                }
            }
        }
        if !said {
            (takes.json, takes.events) = (true, true);
        }
        (takes.json || takes.events).then_some(takes)
    }

    fn with_priming(self, version: Option<&str>) -> Self {
        Self { is_primed: version == Some(event_streams::FIRST_REVISION_WITH_PRIMING), ..self }
    }
}
