//! One posted message, and all its answers.

use std::rc::Rc;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use tokio::time::{Instant, timeout, timeout_at};

use crate::egress::client::Response;
use crate::escape;
use crate::json::{self, Json};
use crate::mcp::jsonrpc::{Key, Message, Shape, classify, with_id};
use crate::mcp::recover_id::{self, RecoveredId};

use super::cookies::Cookies;
use super::driver::Link;
use super::failure::Failure;
use super::headers;
use super::message::{Outgoing, answers};
use super::streams::DRAIN_TIMEOUT;

/// How long the answer of a request may come by another stream after its own has ended.
const OTHER_STREAM_TIMEOUT: Duration = Duration::from_secs(4);

/// Longest explanation of an error, in bytes.
const MAX_ERROR: usize = 1 << 20;
/// How long the explanation is waited for.
const ERROR_LIMIT: Duration = Duration::from_secs(2);
/// Maximum quotation of an invalid answer, in characters.
const MAX_QUOTE: usize = 500;

impl Link {
    /// The first request of a session. A server that knows nothing of it may speak the older transport.
    pub async fn initialize(self: &Rc<Self>, message: &Outgoing) -> Result<(), Failure> {
        self.opening.borrow_mut().initialize = Some(message.clone());
        let answer = self.first_post(message).await?;
        let is_unknown = matches!(
            answer.status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        );
        if is_unknown && self.open_legacy().await? {
            return self.post_message(message).await;
        }
        self.receive(answer, message).await
    }

    /// Posts the first message of a session, and notes which one that is.
    pub async fn first_post(&self, message: &Outgoing) -> Result<Response, Failure> {
        *self.session.borrow_mut() = None;
        *self.version.borrow_mut() = None;
        *self.cookies.borrow_mut() = Cookies::default();
        let answer = self.post(message).await?;
        let session = answer.headers.get(headers::SESSION).cloned();
        *self.session.borrow_mut() = session.map(|mut session| {
            session.set_sensitive(true);
            session
        });
        self.opening.borrow_mut().sessions += 1;
        Ok(answer)
    }

    /// Posts a message and hands on what comes back until it is answered.
    pub async fn exchange(self: &Rc<Self>, message: &Outgoing) -> Result<(), Failure> {
        if self.is_legacy.get() {
            return self.post_message(message).await;
        }
        // While a session is begun anew, there is none to post to.
        drop(self.renewing.lock().await);
        let (session, is_in_session) = (self.opening.borrow().sessions, self.session.borrow().is_some());
        let answer = self.post(message).await?;
        let is_lost = answer.status == StatusCode::NOT_FOUND && message.version.is_none() && is_in_session;
        if !is_lost {
            return self.receive(answer, message).await;
        }
        self.renew(session).await?;
        let answer = self.post(message).await?;
        // The session is new: something else is missing, and the session continues.
        match answer.status {
            StatusCode::NOT_FOUND => self.read_http_error(answer, message).await,
            _ => self.receive(answer, message).await,
        }
    }

    /// Posts a message without an answer, or whose answer comes another way. The body of this response is not read.
    pub async fn post_message(&self, message: &Outgoing) -> Result<(), Failure> {
        let answer = self.post(message).await?;
        // The next request begins a new session if this one is lost.
        let is_lost = answer.status == StatusCode::NOT_FOUND && self.session.borrow().is_some();
        if answer.status.is_success() || is_lost { Ok(()) } else { Err(self.invalid_answer(answer).await) }
    }

    async fn post(&self, message: &Outgoing) -> Result<Response, Failure> {
        let headers = headers::of_message(message, self.version.borrow().as_ref());
        self.send(Method::POST, headers, message.line.clone()).await
    }

    async fn receive(self: &Rc<Self>, answer: Response, message: &Outgoing) -> Result<(), Failure> {
        let status = answer.status;
        // The encoding of an answer without a body does not matter.
        let has_body = !matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT);
        if let Some(how) = headers::unsupported_encoding(&answer.headers).filter(|_| has_body) {
            return Err(Failure::Packed(how));
        }
        if !status.is_success() {
            return self.read_http_error(answer, message).await;
        }
        let kind = headers::media_type(&answer.headers);
        let answered = match kind.as_str() {
            _ if status == StatusCode::ACCEPTED => {
                let id = message.id.as_ref().filter(|_| self.listener.borrow().is_some());
                if let Some(id) = id {
                    self.expected.borrow_mut().insert(id.key.clone(), message.clone());
                }
                id.is_some()
            }
            _ if status == StatusCode::NO_CONTENT => false,
            headers::EVENTS => {
                self.events(answer, Some(message)).await? || self.is_answered_elsewhere(message).await
            }
            headers::JSON => self.texts(answer, message).await?,
            other => return Err(Failure::Kind(other.chars().take(100).collect())),
        };
        if answered { Ok(()) } else { Err(Failure::NoAnswer) }
    }

    /// Whether a request whose own stream has ended is answered by another one: some servers send on the general stream, or mix
    /// up the streams of calls that run at once.
    async fn is_answered_elsewhere(&self, message: &Outgoing) -> bool {
        let Some(id) = message.id.as_ref().filter(|_| self.listener.borrow().is_some()) else { return false };
        self.expected.borrow_mut().insert(id.key.clone(), message.clone());
        let until = Instant::now() + OTHER_STREAM_TIMEOUT;
        while Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if !self.expected.borrow().contains_key(&id.key) {
                return true;
            }
        }
        self.expected.borrow_mut().remove(&id.key);
        false
    }

    /// One message over any number of lines; or one message per line, as servers without sessions stream it. Returns whether
    /// the request was answered.
    async fn texts(self: &Rc<Self>, mut answer: Response, asked: &Outgoing) -> Result<bool, Failure> {
        let limit = self.settings.max_message;
        let (mut held, mut searched) = (Vec::new(), 0);
        let (mut by_line, mut answered) = (None, false);
        loop {
            let next = answer.chunk();
            let next = if answered {
                // The connection serves the next request when nothing is left on it.
                match timeout(DRAIN_TIMEOUT, next).await {
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
                    answered |= self.forward_messages(&line, Some(asked)).await?;
                }
            }
            searched = held.len();
            if held.len() > limit {
                return Err(Failure::TooLong(limit));
            }
        }
        let rest = held.trim_ascii();
        if rest.is_empty() {
            return Ok(answered);
        }
        if self.forward_messages(rest, Some(asked)).await? || answered {
            return Ok(true);
        }
        json::read(rest).map_err(Failure::Unreadable)?;
        Ok(false)
    }

    /// An HTTP error, which may hold one of the protocol.
    async fn read_http_error(&self, answer: Response, message: &Outgoing) -> Result<(), Failure> {
        let (status, is_json) = (answer.status, headers::media_type(&answer.headers) == headers::JSON);
        let body = body_of(answer).await;
        if let Some(id) = message.id.as_ref().filter(|_| is_json)
            && let Ok(tree) = json::read(body.trim_ascii())
            && let Ok(Message::Response { is_error: true, .. }) = classify(&tree)
        {
            let mut line = Vec::new();
            with_id(tree, id).write(&mut line);
            return self.send_line(line).await;
        }
        Err(self.refusal(status, &body))
    }

    /// An error with the text of an invalid answer.
    async fn invalid_answer(&self, answer: Response) -> Failure {
        let status = answer.status;
        self.refusal(status, &body_of(answer).await)
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> Failure {
        let body = if self.secrets.contains_secret(body) { &[][..] } else { body.trim_ascii() };
        let said = String::from_utf8_lossy(body);
        Failure::Status(status, escape::shorten(&escape::line(&said), MAX_QUOTE).into_owned())
    }

    /// Hands the messages of a text on. Whether the request was answered by one of them.
    pub async fn forward_messages(&self, text: &[u8], asked: Option<&Outgoing>) -> Result<bool, Failure> {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
        let Ok(tree) = json::read(text) else { return self.hand_on_unread(text, asked).await };
        // The revision of March 2025 has several messages in one text.
        let Json::Array(messages) = tree else { return self.hand_on_one(&tree, asked).await };
        let mut answered = false;
        for message in &messages {
            answered |= self.hand_on_one(message, asked).await?;
        }
        Ok(answered)
    }

    /// Passes unreadable text to the proxy, which refuses it with the right error. Returns whether that ends the request.
    async fn hand_on_unread(&self, text: &[u8], asked: Option<&Outgoing>) -> Result<bool, Failure> {
        let RecoveredId { id, shape } = recover_id::from_line(text);
        let id = id.filter(|_| shape == Shape::Response);
        // The answer may close another request, which then waits no longer.
        let _closed = id.as_ref().and_then(|id| self.take_expected(&id.key));
        let asked = asked.and_then(|asked| asked.id.as_ref());
        let answered = asked.zip(id).is_some_and(|(asked, id)| asked.key.matches_answer(&id.key));
        // A line break is between tokens, or is wrong anyway.
        let is_break = |byte: u8| matches!(byte, b'\n' | b'\r');
        let line = text.iter().map(|byte| if is_break(*byte) { b' ' } else { *byte }).collect();
        self.send_line(line).await?;
        Ok(answered)
    }

    /// The request that a message by the stream for everything else is the answer to.
    fn take_expected(&self, key: &Key) -> Option<Outgoing> {
        let mut expected = self.expected.borrow_mut();
        if expected.is_empty() {
            return None;
        }
        expected.remove(key).or_else(|| expected.remove(&key.other_spelling()?))
    }

    /// Notes what the server announces in the answer to the handshake.
    pub fn agree(&self, result: &Json<'_>) {
        let agreed = result.member("protocolVersion").and_then(Json::as_text);
        *self.version.borrow_mut() = agreed.and_then(|agreed| HeaderValue::from_str(&agreed).ok());
    }

    async fn hand_on_one(&self, tree: &Json<'_>, asked: Option<&Outgoing>) -> Result<bool, Failure> {
        let expected = match classify(tree) {
            Ok(Message::Response { id: Some(id), .. }) => self.take_expected(&id.key),
            _ => None,
        };
        if let Some(asked) = asked
            && let Some(line) = asked.unnamed_error(tree)
        {
            // The first one counts.
            let _ = asked.said.set(line);
            return Ok(false);
        }
        let answered = asked.and_then(|asked| asked.id.as_ref()).is_some_and(|id| answers(tree, id));
        let asked = expected.as_ref().or(asked.filter(|_| answered));
        if asked.is_some_and(Outgoing::is_initialize)
            && let Some(result) = tree.member("result")
        {
            self.agree(result);
        }
        if asked.is_some_and(|asked| asked.method == "tools/list")
            && let Some(page) = tree.member("result")
        {
            self.params.borrow_mut().on_page(page);
        }
        let mut line = Vec::new();
        tree.write(&mut line);
        self.send_line(line).await?;
        Ok(answered)
    }
}

/// The beginning of a body that arrives soon, up to a limit.
async fn body_of(mut answer: Response) -> Vec<u8> {
    let mut body = Vec::new();
    if headers::unsupported_encoding(&answer.headers).is_some() {
        return body;
    }
    let until = Instant::now() + ERROR_LIMIT;
    while body.len() < MAX_ERROR
        && let Ok(Ok(Some(bytes))) = timeout_at(until, answer.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    body.truncate(MAX_ERROR);
    body
}
