//! Response bodies and errors.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;

use crate::mcp::jsonrpc::Id;

use super::admission::Refusal;
use super::codes::Code;
use super::message::MessageError;

pub type Answer = Response<Content>;

/// Response extension: an authenticated request.
#[derive(Clone, Debug)]
pub struct Served {
    pub method: String,
    /// The tool, resource or prompt.
    pub name: Option<String>,
    /// The id on the server's side.
    pub id: serde_json::Value,
}

/// Response extension: why the request was refused.
#[derive(Clone, Debug)]
pub struct RequestRefusal(pub Refusal);

/// Response extension: the key's name.
#[derive(Clone, Debug)]
pub struct KeyName(pub String);

/// A response body.
pub struct Content {
    /// Its connection looks at it too.
    kind: Rc<RefCell<ContentKind>>,
    /// No more events follow once this future completes.
    until: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

pub(crate) enum ContentKind {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl ContentKind {
    /// Whether something of it waits for the client, and not for the server. HTTP/2 takes a part before there is room.
    pub(crate) fn is_owed(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Events(events) => !events.is_empty() || events.is_closed(),
        }
    }
}

impl Content {
    fn new(kind: ContentKind) -> Self {
        Self { kind: Rc::new(RefCell::new(kind)), until: None }
    }

    fn full_body(bytes: Option<Bytes>) -> Self {
        Self::new(ContentKind::Whole(bytes))
    }

    /// Ends a stream of events when this is done.
    pub fn end_after(&mut self, done: impl Future<Output = ()> + 'static) {
        if matches!(*self.kind.borrow(), ContentKind::Events(_)) {
            self.until = Some(Box::pin(done));
        }
    }

    pub(crate) fn downgrade(&self) -> Weak<RefCell<ContentKind>> {
        Rc::downgrade(&self.kind)
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let content = self.get_mut();
        let mut kind = content.kind.borrow_mut();
        if content.until.as_mut().is_some_and(|until| until.as_mut().poll(context).is_ready()) {
            content.until = None;
            *kind = ContentKind::Whole(None);
        }
        let next = match &mut *kind {
            ContentKind::Whole(bytes) => Poll::Ready(bytes.take()),
            ContentKind::Events(events) => events.poll_recv(context),
        };
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(*self.kind.borrow(), ContentKind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.kind.borrow() {
            ContentKind::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ContentKind::Events(_) => SizeHint::default(),
        }
    }
}

pub fn empty(status: StatusCode) -> Answer {
    with_content(status, Content::full_body(None))
}

/// Keeps the head only, for HEAD.
pub fn without_body(answer: &mut Answer) {
    if let Some(length) = answer.body().size_hint().exact() {
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *answer.body_mut() = Content::full_body(None);
}

pub fn text(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = with_content(status, Content::full_body(Some(body.into())));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub fn json(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = with_content(status, Content::full_body(Some(body)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

pub fn events(events: mpsc::Receiver<Bytes>) -> Answer {
    let mut answer = with_content(StatusCode::OK, Content::new(ContentKind::Events(events)));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // A proxy must not buffer.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    answer
}

/// A refusal as a JSON-RPC error with its code.
pub fn refusal(refused: Code, code: i32, why: &str, id: Option<&Id>) -> Answer {
    let id = id.map_or(serde_json::Value::Null, Id::to_value);
    let data = json!({"code": refused.as_str()});
    let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why, "data": data}});
    let mut answer = json(refused.status(), body.to_string().into());
    answer.extensions_mut().insert(refused);
    answer.extensions_mut().insert(RequestRefusal(Refusal::new(refused, why)));
    answer
}

pub fn malformed_message(wrong: &MessageError) -> Answer {
    refusal(Code::Malformed, wrong.code, &wrong.why, wrong.id.as_ref())
}

/// Whether a complete answer is a protocol error.
pub fn is_error(answer: &Answer) -> bool {
    match &*answer.body().kind.borrow() {
        ContentKind::Whole(Some(body)) => {
            crate::json::read(body).is_ok_and(|tree| tree.member("error").is_some())
        }
        _ => false,
    }
}

fn with_content(status: StatusCode, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    answer
}
