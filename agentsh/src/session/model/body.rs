//! Bodies of answers: a stream that is judged on its way, and errors in the provider's shape.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::json;

use super::judge::SessionJudge;
use super::{Asked, Reply};
use crate::llm::{Provider, Stream};

/// A stream of events, judged event by event. Dropping it hangs up on the model.
pub(super) struct Judged {
    body: Option<Incoming>,
    stream: Stream,
    judge: SessionJudge,
    provider: Provider,
}

impl Judged {
    pub(super) fn new(body: Incoming, asked: &Asked, judge: SessionJudge) -> Self {
        let stream = Stream::new(asked.provider, asked.needle.clone(), &asked.replacement);
        Self { body: Some(body), stream, judge, provider: asked.provider }
    }

    /// What the agent gets of these bytes; None ends the model's stream.
    fn take(&mut self, bytes: Option<&[u8]>) -> Vec<u8> {
        let taken = match bytes {
            Some(bytes) => self.stream.push(bytes, &mut self.judge),
            None => self.stream.finish(&mut self.judge),
        };
        let told = self.stream.told();
        self.judge.note(self.provider, &told);
        match taken {
            Ok(out) => {
                if self.stream.is_ended() {
                    self.body = None;
                }
                out
            }
            Err(error) => {
                self.body = None;
                error_event(self.provider, &format!("[agentsh] the answer is withheld: {error}"))
            }
        }
    }
}

impl Body for Judged {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            let Some(body) = &mut self.body else { return Poll::Ready(None) };
            let out = match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    // Trailers say nothing that anybody here asks for.
                    let Ok(bytes) = frame.into_data() else { continue };
                    self.take(Some(&bytes))
                }
                // The agent must not take what arrived for the whole.
                Some(Err(error)) => {
                    self.body = None;
                    return Poll::Ready(Some(Err(error)));
                }
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

/// An error as the provider's clients read it.
pub(super) fn error_body(provider: Provider, message: &str) -> String {
    match provider {
        Provider::Anthropic => {
            json!({ "type": "error", "error": { "type": "api_error", "message": message } }).to_string()
        }
        Provider::OpenAiChat | Provider::OpenAiResponses => {
            json!({ "error": { "message": message, "type": "agentsh", "param": null, "code": null } })
                .to_string()
        }
    }
}

fn error_event(provider: Provider, message: &str) -> Vec<u8> {
    let body = error_body(provider, message);
    let text = match provider {
        Provider::Anthropic => format!("event: error\ndata: {body}\n\n"),
        Provider::OpenAiChat => format!("data: {body}\n\n"),
        Provider::OpenAiResponses => {
            let error = json!({ "type": "error", "code": "agentsh", "message": message, "param": null });
            format!("event: error\ndata: {error}\n\n")
        }
    };
    text.into_bytes()
}

pub(super) fn answered(status: StatusCode, body: String) -> Reply {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
