//! Event streams: read to their end, and resumed after an interruption.

use std::rc::Rc;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::egress::HttpError;
use crate::egress::client::Response;
use crate::mcp::Pause;

use super::driver::Link;
use super::failure::Failure;
use super::headers;
use super::message::Outgoing;
use super::sse::{Event, Framer};

/// The wait before a stream is resumed, unless the server gives another.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How often in a row a stream is resumed without a new event.
const MAX_RECONNECTS: u32 = 5;
/// Bytes after an answer are read for this long, so that the connection can serve the next request.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the first event of the transport of 2024 is waited for, after its stream is open.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    /// The request was answered.
    Answered,
    /// By the server, before the answer.
    Closed,
    Broken,
}

impl Link {
    /// Hands on the events of an answer, across breaks, until the request is answered or the stream is over.
    pub async fn events(
        self: &Rc<Self>,
        answer: Response,
        asked: Option<&Outgoing>,
    ) -> Result<bool, Failure> {
        let mut framer = Framer::new(self.settings.max_message);
        let mut answer = Some(answer);
        let mut tries = 0;
        loop {
            let mut is_closed = false;
            if let Some(mut answer) = answer.take() {
                match self.read(&mut answer, &mut framer, asked, &mut tries).await? {
                    StreamEnd::Answered => return Ok(true),
                    StreamEnd::Closed => is_closed = true,
                    StreamEnd::Broken => {}
                }
            }
            let Some(last) = framer.last_id().and_then(|id| HeaderValue::from_str(id).ok()) else {
                return Ok(false);
            };
            if tries >= MAX_RECONNECTS {
                return Ok(false);
            }
            let again = Rc::new(Notify::new());
            // An interrupted stream is resumed here, because neither side ended it.
            if is_closed
                && let (Some(pauses), Some(id)) =
                    (&self.settings.pauses, asked.and_then(|asked| asked.id.as_ref()))
            {
                let pause = Pause { key: id.key.clone(), retry: framer.retry(), again: Rc::clone(&again) };
                // A receiver that does not read waits.
                let _ = pauses.try_send(pause);
            }
            tokio::select! {
                () = sleep(wait(framer.retry(), tries)) => {}
                () = again.notified() => {}
            }
            tries += 1;
            answer = self.resume(last).await?;
            // Half an event of the stream before is not an event of this one.
            framer = framer.for_next_stream();
        }
    }

    /// Opens the stream by which the server speaks unasked, if it has one, for as long as the connection lives.
    pub fn listen(self: &Rc<Self>) {
        let link = Rc::clone(self);
        let task = self.streams.borrow_mut().spawn_local(async move {
            link.listen_on().await;
            link.listener.borrow_mut().take();
            link.end_expected().await;
        });
        if let Some(before) = self.listener.borrow_mut().replace(task) {
            before.abort();
        }
    }

    /// Ends when the server has no such stream, or not any more.
    async fn listen_on(self: &Rc<Self>) {
        let mut framer = Framer::new(self.settings.max_message);
        let mut tries = 0;
        loop {
            let last = framer.last_id().and_then(|id| HeaderValue::from_str(id).ok());
            match self.open_stream(last).await {
                Ok(Some(mut answer)) => {
                    if let Err(failure) = self.read(&mut answer, &mut framer, None, &mut tries).await {
                        return self.report_failure(&failure);
                    }
                    framer = framer.for_next_stream();
                }
                // The server has no such stream, which the protocol allows.
                Ok(None) => return,
                Err(_) => {}
            }
            sleep(wait(framer.retry(), tries)).await;
            tries += 1;
        }
    }

    /// The transport of 2024: one stream for everything, whose first event says where messages are posted. False when the
    /// server does not speak it either.
    pub async fn open_legacy(self: &Rc<Self>) -> Result<bool, Failure> {
        let Some(mut answer) = self.open_stream(None).await? else { return Ok(false) };
        let mut framer = Framer::new(self.settings.max_message);
        let mut events = Vec::new();
        let until = Instant::now() + ENDPOINT_TIMEOUT;
        // Other events may come before: a ping, a greeting.
        let place = loop {
            if let Some(at) = events.iter().position(|event: &Event| event.name == b"endpoint") {
                break events.remove(at);
            }
            let Ok(next) = timeout_at(until, answer.chunk()).await else { return Ok(false) };
            let Some(bytes) = next? else { return Ok(false) };
            framer.push(&bytes, &mut events).map_err(|_| Failure::TooLong(self.settings.max_message))?;
        };
        let here = self.endpoint.borrow().clone();
        let Ok(named) = std::str::from_utf8(&place.data) else { return Ok(false) };
        let endpoint = here.redirected(named.trim(), 0, self.settings.client.rules());
        let endpoint = endpoint.and_then(|next| next.of_origin(&here));
        let endpoint = endpoint.map_err(|why| HttpError::refused(here.name(), why))?;
        *self.endpoint.borrow_mut() = endpoint;
        self.is_legacy.set(true);
        for event in events {
            self.on_event(&event, None).await?;
        }
        let link = Rc::clone(self);
        self.streams.borrow_mut().spawn_local(async move {
            let mut tries = 0;
            if let Err(failure) = link.read(&mut answer, &mut framer, None, &mut tries).await {
                link.report_failure(&failure);
            }
            // There is no second one: waiting requests get an error, and the next call starts again.
            link.lost.notify_one();
        });
        Ok(true)
    }

    async fn resume(&self, last: HeaderValue) -> Result<Option<Response>, Failure> {
        match self.open_stream(Some(last)).await {
            Ok(None) => Err(Failure::NoAnswer),
            Err(Failure::Http(error)) if !error.is_permanent() => Ok(None),
            other => other,
        }
    }

    /// None when the server has no such stream.
    async fn open_stream(&self, last: Option<HeaderValue>) -> Result<Option<Response>, Failure> {
        let mut headers = headers::of_stream(self.version.borrow().as_ref());
        headers.extend(last.map(|last| (headers::LAST_EVENT, last)));
        let answer = self.send(Method::GET, headers, Vec::new()).await?;
        match answer.status {
            StatusCode::OK if headers::unsupported_encoding(&answer.headers).is_some() => Ok(None),
            StatusCode::OK if headers::media_type(&answer.headers) == headers::EVENTS => Ok(Some(answer)),
            // 404, 405 and 400 mean that there is none; the next request notices a lost session.
            status if status.is_server_error() => Err(Failure::Status(status, String::new())),
            _ => Ok(None),
        }
    }

    /// Until the stream ends, or shortly after the answer.
    async fn read(
        &self,
        answer: &mut Response,
        framer: &mut Framer,
        asked: Option<&Outgoing>,
        tries: &mut u32,
    ) -> Result<StreamEnd, Failure> {
        let mut answered = false;
        loop {
            let next = answer.chunk();
            let next = if answered {
                let Ok(next) = timeout(DRAIN_TIMEOUT, next).await else { return Ok(StreamEnd::Answered) };
                next
            } else {
                next.await
            };
            let bytes = match next {
                Ok(Some(bytes)) => bytes,
                // A stream that broke off has ended, too: what its end means is decided above.
                _ if answered => return Ok(StreamEnd::Answered),
                Ok(None) => return Ok(StreamEnd::Closed),
                Err(error @ HttpError::Encoding(_)) => return Err(Failure::Http(error)),
                Err(_) => return Ok(StreamEnd::Broken),
            };
            let mut events = Vec::new();
            let pushed = framer.push(&bytes, &mut events);
            for event in events {
                *tries = 0;
                answered |= self.on_event(&event, asked).await?;
            }
            pushed.map_err(|_| Failure::TooLong(self.settings.max_message))?;
        }
    }

    async fn on_event(&self, event: &Event, asked: Option<&Outgoing>) -> Result<bool, Failure> {
        // An event without data gives a position in the stream; one with another name is not part of the protocol.
        if !event.name.is_empty() || event.data.trim_ascii().is_empty() {
            return Ok(false);
        }
        self.forward_messages(&event.data, asked).await
    }
}

fn wait(asked: Option<Duration>, tries: u32) -> Duration {
    asked.unwrap_or(FIRST_BACKOFF * 2u32.saturating_pow(tries.min(5))).min(MAX_WAIT)
}
