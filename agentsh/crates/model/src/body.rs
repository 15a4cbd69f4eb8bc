//! Bodies of answers: a stream that is judged on its way, and errors in the provider's shape.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::{Instant, Sleep};

use super::judge::SessionJudge;
use super::{ModelCall, PendingAnswer, Reply};
use agentsh_egress::encoding::Decoder;
use agentsh_llm::{Provider, Stream};

/// A stream of events, judged event by event. Dropping it hangs up on the model.
pub(super) struct JudgedStream {
    /// The bytes that were read already.
    first: Bytes,
    body: Option<Incoming>,
    /// The decoder of a compressed stream.
    decoder: Option<Decoder>,
    stream: Stream,
    judge: SessionJudge,
    provider: Provider,
    call: ModelCall,
    quiet: Pin<Box<Sleep>>,
    /// A model that sends nothing for this time counts as dead.
    timeout: Duration,
}

impl JudgedStream {
    pub(super) fn new(
        (first, body, decoder): (Bytes, Incoming, Option<Decoder>),
        asked: &PendingAnswer,
        (judge, call): (SessionJudge, ModelCall),
        timeout: Duration,
    ) -> Self {
        let stream = Stream::new(asked.provider, asked.needle.clone(), &asked.replacement);
        let stream = if asked.has_choices { stream.of_choices() } else { stream };
        let quiet = Box::pin(tokio::time::sleep(timeout));
        Self {
            first,
            body: Some(body),
            decoder,
            stream,
            judge,
            provider: asked.provider,
            call,
            quiet,
            timeout,
        }
    }

    /// The bytes for the agent; None ends the model's stream.
    fn take(&mut self, bytes: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        let taken = match bytes {
            Some(bytes) => self.stream.push(bytes, &mut self.judge, &mut out),
            None => self.stream.finish(&mut self.judge, &mut out),
        };
        let told = self.stream.take_events();
        self.call.usage = self.stream.usage();
        self.judge.note(self.provider, &told);
        match taken {
            Ok(()) if self.stream.is_ended() => self.body = None,
            Ok(()) => {}
            Err(error) => out.extend(self.withhold(&format!("it is {error}"))),
        }
        out
    }

    /// The bytes for the agent from the next received piece; None if there is none.
    fn take_received(&mut self) -> Option<Vec<u8>> {
        self.body.as_ref()?;
        let first = std::mem::take(&mut self.first);
        let Some(decoder) = &mut self.decoder else {
            return (!first.is_empty()).then(|| self.take(Some(&first)));
        };
        if !first.is_empty() {
            decoder.push(Some(first));
        }
        match decoder.next_piece() {
            Ok(piece) => piece.map(|piece| self.take(Some(&piece))),
            Err(why) => Some(self.withhold(&format!("the model's stream is compressed, and {why}"))),
        }
    }

    /// Ends the stream with an error in the provider's format. Held text is not forwarded.
    fn withhold(&mut self, why: &str) -> Vec<u8> {
        self.body = None;
        self.judge.record_withheld(self.provider, why);
        error_event(self.provider, &format!("[agentsh] the answer is withheld: {why}"))
    }
}

impl Body for JudgedStream {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            match self.take_received() {
                Some(out) if out.is_empty() => continue,
                Some(out) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from(out))))),
                None => {}
            }
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            let polled = Pin::new(body).poll_frame(context);
            if polled.is_pending() && self.quiet.as_mut().poll(context).is_ready() {
                let why = timeout_message(self.timeout);
                let out = self.withhold(&why);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(out)))));
            }
            let out = match ready!(polled) {
                Some(Ok(frame)) => {
                    // Nothing here needs the trailers.
                    let Ok(bytes) = frame.into_data() else { continue };
                    let timeout = self.timeout;
                    self.quiet.as_mut().reset(Instant::now() + timeout);
                    match &mut self.decoder {
                        Some(decoder) => {
                            decoder.push(Some(bytes));
                            continue;
                        }
                        None => self.take(Some(&bytes)),
                    }
                }
                // The agent must not take what arrived for the whole.
                Some(Err(error)) => self.withhold(&format!("the model's answer broke off: {error}")),
                None => {
                    self.body = None;
                    self.take(None)
                }
            };
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(out)))));
            }
        }
    }
}

/// The first bytes of a body; none where it has none.
pub(super) async fn first_piece(body: &mut Incoming) -> Bytes {
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(bytes) = frame.into_data()
            && !bytes.is_empty()
        {
            return bytes;
        }
    }
    Bytes::new()
}

/// The error if nothing arrived for this time.
pub(super) fn timeout_message(timeout: Duration) -> String {
    format!("the model sent nothing for {} ms (llm.timeout)", timeout.as_millis())
}

/// An error as the provider's clients read it.
pub(super) fn error_body(provider: Provider, status: StatusCode, message: &str) -> String {
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => "invalid_request_error",
        _ => "api_error",
    };
    match provider {
        Provider::Anthropic => {
            json!({ "type": "error", "error": { "type": kind, "message": message } }).to_string()
        }
        Provider::OpenAiChat | Provider::OpenAiResponses => {
            json!({ "error": { "message": message, "type": kind, "param": null, "code": null } }).to_string()
        }
        Provider::Ollama => json!({ "error": message }).to_string(),
        Provider::Google => {
            let word = match status {
                StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
                StatusCode::FORBIDDEN => "PERMISSION_DENIED",
                StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => "INVALID_ARGUMENT",
                _ => "UNAVAILABLE",
            };
            json!({ "error": { "code": status.as_u16(), "message": message, "status": word } }).to_string()
        }
    }
}

fn error_event(provider: Provider, message: &str) -> Vec<u8> {
    let body = error_body(provider, StatusCode::BAD_GATEWAY, message);
    let text = match provider {
        Provider::Anthropic => format!("event: error\ndata: {body}\n\n"),
        Provider::OpenAiChat | Provider::Google => format!("data: {body}\n\n"),
        Provider::Ollama => format!("{body}\n"),
        Provider::OpenAiResponses => {
            let error = json!({ "type": "error", "code": "agentsh", "message": message, "param": null });
            format!("event: error\ndata: {error}\n\n")
        }
    };
    text.into_bytes()
}

pub(super) fn reply_with(status: StatusCode, body: String) -> Reply {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
