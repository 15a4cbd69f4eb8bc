//! What every page needs.

use std::path::PathBuf;
use std::str::FromStr;

use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::events::Feed;
use super::gate::Gate;
use agentsh_approvals::{Item, SocketReply, SocketRequest};
use agentsh_authoring::CommandContext;
use agentsh_store::{PinStore, Reader, StoreError, exists};
use agentsh_terminal::output::Failure;
use agentsh_web::{Frame, Href, Message, Pages, Place, Requested, message};

pub(super) struct App {
    pub state_dir: PathBuf,
    pub place: CommandContext,
    pub gate: Gate,
    pub pins: PinStore,
    reader: tokio::sync::Mutex<Option<Reader>>,
    /// The question that was answered last, and what became of it.
    pub said: std::sync::Mutex<(String, Vec<String>)>,
    /// Open pages that are kept up to date.
    pub streams: std::sync::Arc<tokio::sync::Semaphore>,
}

/// Pages that are kept up to date at once.
const STREAMS: usize = 32;

/// A question, and the socket of the session that asks it.
pub(super) type Waiting = (PathBuf, Item);

impl App {
    pub fn new(state_dir: PathBuf, place: CommandContext, gate: Gate) -> Self {
        Self {
            pins: PinStore::new(&state_dir),
            state_dir,
            place,
            gate,
            reader: tokio::sync::Mutex::default(),
            said: std::sync::Mutex::default(),
            streams: std::sync::Arc::new(tokio::sync::Semaphore::new(STREAMS)),
        }
    }

    /// None: nothing was recorded so far.
    pub async fn reader(&self) -> Result<Option<Reader>, StoreError> {
        let mut known = self.reader.lock().await;
        if known.is_none() {
            *known = Reader::open(&self.state_dir).await?;
        }
        Ok(known.clone())
    }

    /// The pins, where there are any: asking makes no store.
    pub fn pins(&self) -> Option<&PinStore> {
        exists(&self.state_dir).then_some(&self.pins)
    }

    /// Every question of every session, and the notes about sessions that do not answer.
    pub async fn waiting(&self) -> (Vec<Waiting>, Vec<String>) {
        let (mut found, mut silent) = (Vec::new(), Vec::new());
        for path in agentsh_approvals::sockets(&self.state_dir) {
            let session = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match agentsh_approvals::ask(&path, &SocketRequest::List).await {
                Some(Ok(SocketReply::Waiting(items))) => {
                    found.extend(items.into_iter().map(|item| (path.clone(), item)));
                }
                Some(Ok(SocketReply::Refused(why))) => silent.push(format!("session {session}: {why}")),
                Some(Err(error)) => silent.push(format!("session {session} cannot be asked: {error}")),
                Some(Ok(SocketReply::Answered(_))) | None => {}
            }
        }
        // A call waits for its answer; what connects tries again.
        found.sort_by_key(|(_, item)| (item.host.is_some(), item.asked_at));
        (found, silent)
    }

    /// How many questions and requests wait.
    pub async fn waits(&self) -> usize {
        self.waiting().await.0.len() + super::registry::count(self).await.unwrap_or(0)
    }

    /// # Errors
    /// When a form was not on a page of ours.
    pub fn check_form(&self, form: &Fields) -> Result<(), PageError> {
        let why = "the form has expired; reload the page";
        self.gate
            .is_form(form.text("token"))
            .then_some(())
            .ok_or_else(|| PageError(StatusCode::FORBIDDEN, why.to_owned()))
    }

    /// The pending requests in this machine's registry, and why they cannot be shown.
    pub async fn pending_requests(&self) -> (Vec<Requested>, Option<String>) {
        match super::registry::pending_requests(self).await {
            Ok(requested) => (requested, None),
            Err(PageError(_, why)) => {
                (Vec::new(), Some(format!("the registry of this machine cannot be read: {why}")))
            }
        }
    }

    pub fn frame(&self, title: impl Into<String>, here: Place, waiting: usize, newest: Option<i64>) -> Frame {
        Frame {
            title: title.into(),
            here,
            waiting,
            token: self.gate.form().to_owned(),
            newest,
            of: Pages::Machine,
        }
    }

    /// The newest event, for pages that are kept up to date.
    pub async fn newest(&self) -> Result<i64, StoreError> {
        match self.reader().await? {
            Some(mut reader) => reader.newest().await,
            None => Ok(0),
        }
    }
}

/// What a handler returns: a page, or why there is none.
pub(super) type Answer = Result<Page, PageError>;

pub(super) struct Page(pub String);

pub(super) type Reply = Response<Either<Full<Bytes>, Feed>>;

impl Page {
    pub fn reply(self) -> Reply {
        reply(StatusCode::OK, "text/html; charset=utf-8", self.0)
    }
}

pub(super) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Either::Left(Full::new(body.into())));
    *reply.status_mut() = status;
    with_header(reply, CONTENT_TYPE, kind)
}

/// With a header, whose value is no untrusted text.
pub(super) fn with_header(mut reply: Reply, name: HeaderName, value: &str) -> Reply {
    reply.headers_mut().extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
    reply
}

/// What an address or a form says.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn read(text: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(text).into_owned().collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, PageError> {
        let odd = |_| PageError(StatusCode::BAD_REQUEST, format!("{name} is not a number"));
        self.get(name).map(|value| value.parse().map_err(odd)).transpose()
    }
}

/// Why there is no page.
pub(super) struct PageError(pub StatusCode, pub String);

impl PageError {
    pub fn missing(what: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, what.into())
    }
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::NoSession | StoreError::UnknownSession(_) | StoreError::AmbiguousSession(_) => {
                StatusCode::NOT_FOUND
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<Failure> for PageError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => error.into(),
            Failure::No(why) => Self::missing(why),
            other => Self(StatusCode::INTERNAL_SERVER_ERROR, other.to_string()),
        }
    }
}

impl PageError {
    pub fn reply(self) -> Reply {
        let frame = Frame {
            title: self.0.canonical_reason().unwrap_or("Trouble").to_owned(),
            here: Place::Now,
            waiting: 0,
            token: String::new(),
            newest: None,
            of: Pages::Machine,
        };
        let said = Message {
            title: String::new(),
            lines: vec![self.1],
            back: Some((Href::to(&[]), "Now".to_owned())),
        };
        let reply = reply(self.0, "text/html; charset=utf-8", message(&frame, &said));
        if self.0 == StatusCode::METHOD_NOT_ALLOWED { with_header(reply, ALLOW, "GET, HEAD") } else { reply }
    }
}
