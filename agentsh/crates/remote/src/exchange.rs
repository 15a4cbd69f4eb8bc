//! One message posted, and everything that comes back for it.

use std::rc::Rc;
use std::time::Duration;

use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Method, StatusCode};
use tokio::time::{sleep, timeout};

use crate::egress::client::Response;
use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Id, Message, classify};

use super::driver::Link;
use super::failure::Failure;
use super::headers;
use super::message::{Outgoing, answers};
use super::streams::LAST_WORDS;

/// How often a server may say that it is busy, and for how long, before whoever asked is told.
const BUSY_TIMES: u32 = 3;
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// Longest explanation of an error, in bytes.
const MAX_ERROR: usize = 1 << 20;

impl Link {
    /// The first request of a session. A server that knows nothing of it may speak the older transport.
    pub async fn initialize(self: &Rc<Self>, message: &Outgoing) -> Result<(), Failure> {
        *self.session.borrow_mut() = None;
        *self.version.borrow_mut() = None;
        let answer = self.post(message).await?;
        let is_unknown = matches!(
            answer.status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        if is_unknown && self.open_legacy().await? {
            return self.post_legacy(message).await;
        }
        let session = answer.headers.get(headers::SESSION).cloned();
        *self.session.borrow_mut() = session.map(|mut session| {
            session.set_sensitive(true);
            session
        });
        self.receive(answer, message).await
    }

    /// Posts a message and hands on what comes back until it is answered.
    pub async fn exchange(self: &Rc<Self>, message: &Outgoing) -> Result<(), Failure> {
        if self.is_legacy.get() {
            return self.post_legacy(message).await;
        }
        let answer = self.post(message).await?;
        self.receive(answer, message).await
    }

    /// To the place that the older transport named; the answer comes by its stream.
    pub async fn post_legacy(&self, message: &Outgoing) -> Result<(), Failure> {
        let answer = self.post(message).await?;
        if answer.status.is_success() { Ok(()) } else { Err(Failure::Status(answer.status)) }
    }

    async fn post(&self, message: &Outgoing) -> Result<Response, Failure> {
        for times in 0.. {
            let headers = headers::of_message(message, self.version.borrow().as_ref());
            let answer = self.send(Method::POST, headers, message.line.clone()).await?;
            match busy(&answer).filter(|_| times < BUSY_TIMES) {
                Some(wait) => sleep(wait).await,
                None => return Ok(answer),
            }
        }
        Err(Failure::NoAnswer)
    }

    async fn receive(self: &Rc<Self>, answer: Response, message: &Outgoing) -> Result<(), Failure> {
        let status = answer.status;
        if status == StatusCode::NOT_FOUND && message.version.is_none() && self.session.borrow().is_some() {
            *self.session.borrow_mut() = None;
            return Err(Failure::SessionLost);
        }
        if let Some(how) = headers::packed(&answer.headers) {
            return Err(Failure::Packed(how));
        }
        if !status.is_success() {
            return self.refused(answer, message).await;
        }
        let kind = headers::kind(&answer.headers);
        let answered = match kind.as_str() {
            headers::EVENTS => self.events(answer, Some(message)).await?,
            headers::JSON => self.texts(answer, message).await?,
            // A message without an answer is accepted with nothing.
            _ if message.id.is_none() => true,
            _ if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) => false,
            other => return Err(Failure::Kind(other.chars().take(100).collect())),
        };
        if answered || message.id.is_none() { Ok(()) } else { Err(Failure::NoAnswer) }
    }

    /// One message, in as many lines as it likes; or, as servers without sessions say it that stream without events, one
    /// message a line. Whether the request was answered.
    async fn texts(self: &Rc<Self>, mut answer: Response, asked: &Outgoing) -> Result<bool, Failure> {
        let limit = self.settings.max_message;
        let (mut held, mut searched) = (Vec::new(), 0);
        let (mut by_line, mut answered) = (None, false);
        loop {
            let next = answer.chunk();
            let next = if answered {
                // The connection serves the next request when nothing is left on it.
                match timeout(LAST_WORDS, next).await {
                    Ok(Ok(next)) => next,
                    _ => return Ok(true),
                }
            } else {
                next.await?
            };
            let Some(bytes) = next else { break };
            held.extend_from_slice(&bytes);
            while by_line != Some(false)
                && let Some(at) = memchr::memchr(b'\n', held.get(searched..).unwrap_or_default())
            {
                let rest = held.split_off(searched + at + 1);
                let line = std::mem::replace(&mut held, rest);
                searched = 0;
                let is_blank = line.trim_ascii().is_empty();
                if by_line.is_none() && !is_blank && json::read(line.trim_ascii()).is_err() {
                    by_line = Some(false);
                    held.splice(0..0, line);
                    break;
                }
                if !is_blank {
                    by_line = Some(true);
                    answered |= self.hand_on(&line, Some(asked)).await?;
                }
            }
            searched = held.len();
            if held.len() > limit {
                return Err(Failure::TooLong(limit));
            }
        }
        if !held.trim_ascii().is_empty() {
            answered |= self.hand_on(&held, Some(asked)).await?;
        }
        Ok(answered)
    }

    /// An HTTP error, which may hold one of the protocol.
    async fn refused(&self, answer: Response, message: &Outgoing) -> Result<(), Failure> {
        let status = answer.status;
        let (Some(id), headers::JSON) = (&message.id, headers::kind(&answer.headers).as_str()) else {
            return Err(Failure::Status(status));
        };
        let body = answer.whole(MAX_ERROR).await.map_err(|_| Failure::Status(status))?;
        let tree = json::read(body.trim_ascii()).map_err(|_| Failure::Status(status))?;
        match classify(&tree) {
            Ok(Message::Response { is_error: true, .. }) => self.say(with_id(tree, id)).await,
            _ => Err(Failure::Status(status)),
        }
    }

    /// Hands the messages of a text on. Whether the request was answered by one of them.
    pub async fn hand_on(&self, text: &[u8], asked: Option<&Outgoing>) -> Result<bool, Failure> {
        let tree = json::read(text.trim_ascii()).map_err(|_| Failure::NotJson)?;
        // The revision of March 2025 has several messages in one text.
        let Json::Array(messages) = tree else { return self.hand_on_one(&tree, asked).await };
        let mut answered = false;
        for message in &messages {
            answered |= self.hand_on_one(message, asked).await?;
        }
        Ok(answered)
    }

    async fn hand_on_one(&self, tree: &Json<'_>, asked: Option<&Outgoing>) -> Result<bool, Failure> {
        let answered = asked.and_then(|asked| asked.id.as_ref()).is_some_and(|id| answers(tree, id));
        if answered && asked.is_some_and(Outgoing::is_initialize) {
            let agreed = tree.member("result").and_then(|result| result.member("protocolVersion")?.as_text());
            *self.version.borrow_mut() = agreed.and_then(|agreed| HeaderValue::from_str(&agreed).ok());
        }
        if answered
            && asked.is_some_and(|asked| asked.method == "tools/list")
            && let Some(page) = tree.member("result")
        {
            self.params.borrow_mut().on_page(page);
        }
        let mut line = Vec::new();
        tree.write(&mut line);
        self.say(line).await?;
        Ok(answered)
    }
}

/// An error that may be about no request in particular, for the one that it was the answer to.
fn with_id<'a>(mut tree: Json<'a>, id: &'a Id) -> Vec<u8> {
    let spelled = id.spelled.trim_matches('"');
    let own = if id.spelled.starts_with('"') { Json::String(spelled) } else { Json::Number(spelled) };
    if let Some(place) = tree.member_mut("id") {
        *place = own;
    }
    let mut line = Vec::new();
    tree.write(&mut line);
    line
}

/// How long the server asks to be left alone.
fn busy(answer: &Response) -> Option<Duration> {
    if !matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let seconds = answer.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds)).filter(|wait| *wait <= BUSY_LIMIT)
}
