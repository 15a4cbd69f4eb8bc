//! One connection: lines of the proxy become requests, and the server's messages become lines.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use hyper::Method;
use hyper::header::{COOKIE, HeaderMap, HeaderValue};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::egress::HttpError;
use crate::egress::client::{Client, Limits, Request};
use crate::egress::target::{Target, TargetError};
use crate::mcp::framing::{Frame, LineReader};
use crate::mcp::jsonrpc::{Id, Key};
use crate::mcp::line_writer::LineWriter;
use crate::mcp::mcp_headers::Params;
use crate::mcp::{ExitInfo, PauseSender, Running};

use super::cookies::Cookies;
use super::credentials::{Credentials, Secrets};
use super::failure::Failure;
use super::headers;
use super::message::Outgoing;
use super::renew::ClientOpening;

/// Bytes that either side may be ahead of the other.
const PIPE_BYTES: usize = 256 << 10;
/// Requests that may wait for the server at once.
const MAX_OPEN: usize = 1024;
/// How long a message that has no answer may take to be accepted.
pub(crate) const ACCEPT_LIMIT: Duration = Duration::from_secs(30);
/// How long the next message waits for such a one, so that the server gets them in order.
const IN_ORDER: Duration = Duration::from_secs(1);
/// How long to wait until the server has received the end of the session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Settings {
    /// The server's name in messages.
    pub server: String,
    pub client: Client,
    pub url: String,
    /// The user's own, for the server's origin alone.
    pub headers: HeaderMap,
    /// Further credentials of the user for the same origin, which may change while the connection lives.
    pub credentials: Option<Rc<dyn Credentials>>,
    /// For a refusal of the address by policy: what would allow it.
    pub remedy: String,
    /// Longest message of the server, in bytes.
    pub max_message: usize,
    /// Reports errors to the user when no caller waits for an answer.
    pub note: Rc<dyn Fn(&str)>,
    /// Receives pauses that the server requests.
    pub pauses: Option<PauseSender>,
    /// Writes down a request that the server did not answer.
    pub failed: Rc<dyn Fn(&FailedRequest<'_>)>,
}

/// A request that has no answer of the server.
#[derive(Clone, Copy, Debug)]
pub struct FailedRequest<'a> {
    pub method: &'a str,
    /// The tool of a call.
    pub tool: Option<&'a str>,
    pub id: &'a Id,
    /// The reason, for the client.
    pub text: &'a str,
}

/// Begins a connection. Nothing is sent before the first line. Must be called inside a `LocalSet`.
///
/// # Errors
/// When the URL alone shows that nothing may be sent there.
pub fn connect(settings: &Settings) -> Result<Running<DuplexStream, DuplexStream>, TargetError> {
    let target = settings.client.target(&settings.url)?;
    // A server may be slow, and silent between two events: the client has its own timeouts.
    let limits = Limits { first_byte: None, idle: None, max_body: None, ..Limits::default() };
    let client = settings.client.clone().with_limits(limits);
    let (stdin, input) = duplex(PIPE_BYTES);
    let (output, stdout) = duplex(PIPE_BYTES);
    let (kill, mut killed) = mpsc::unbounded_channel::<()>();
    let link = Rc::new(Link {
        settings: Settings { client, ..settings.clone() },
        endpoint: RefCell::new(target),
        params: RefCell::default(),
        is_legacy: Cell::new(false),
        output: LineWriter::new(output),
        secrets: Secrets::of(&settings.headers),
        session: RefCell::default(),
        version: RefCell::default(),
        cookies: RefCell::default(),
        opening: RefCell::default(),
        renewing: Mutex::default(),
        lost: Notify::new(),
        open: RefCell::default(),
        expected: RefCell::default(),
        listener: RefCell::default(),
        is_slow: Cell::new(false),
        streams: RefCell::default(),
    });
    let task = agentsh_base::task::spawn_local(async move {
        let exit = tokio::select! {
            exit = link.serve(input) => exit,
            _ = killed.recv() => ExitInfo { code: 137, cause: "killed".to_owned() },
        };
        // The streams hold the connection, which holds them.
        link.streams.borrow_mut().abort_all();
        exit
    });
    Ok(Running {
        stdin,
        stdout,
        exit: Box::pin(async move {
            task.await.unwrap_or_else(|_| ExitInfo { code: u8::MAX, cause: "killed".to_owned() })
        }),
        // The receiver is gone: the connection has ended already.
        kill: Box::new(move || {
            let _ = kill.send(());
        }),
        told: Rc::default(),
    })
}

/// The state shared by the parts of a connection.
pub(crate) struct Link {
    pub settings: Settings,
    /// The address for messages. The older transport names one that differs from the server's URL.
    pub endpoint: RefCell<Target>,
    /// Arguments that are repeated in headers, as the server's listings say.
    pub params: RefCell<Params>,
    /// The server speaks the transport of 2024: everything comes by one stream.
    pub is_legacy: Cell<bool>,
    /// Requests may be abandoned while their answers are written.
    output: LineWriter<DuplexStream>,
    pub secrets: Secrets,
    pub session: RefCell<Option<HeaderValue>>,
    pub version: RefCell<Option<HeaderValue>>,
    pub cookies: RefCell<Cookies>,
    pub opening: RefCell<ClientOpening>,
    pub renewing: Mutex<()>,
    /// The session is over at the server, or its only stream.
    pub lost: Notify,
    open: RefCell<HashMap<Key, OpenRequest>>,
    /// Accepted requests whose answers come over the general stream.
    pub expected: RefCell<HashMap<Key, Outgoing>>,
    /// The task that reads that stream, while it is open.
    pub listener: RefCell<Option<AbortHandle>>,
    /// The server did not take a message without an answer at once.
    is_slow: Cell<bool>,
    /// Streams that belong to no request. They end with the connection.
    pub streams: RefCell<JoinSet<()>>,
}

struct OpenRequest {
    task: AbortHandle,
    /// Closing the stream is how it is cancelled.
    by_closing: bool,
}

impl Link {
    async fn serve(self: &Rc<Self>, input: DuplexStream) -> ExitInfo {
        let mut lines = LineReader::new(input, self.settings.max_message);
        let mut requests = JoinSet::new();
        let exit = tokio::select! {
            () = self.pump(&mut lines, &mut requests) => ExitInfo { code: 0, cause: "exited".to_owned() },
            () = self.lost.notified() => ExitInfo { code: 0, cause: "it ended the session".to_owned() },
        };
        self.streams.borrow_mut().abort_all();
        requests.abort_all();
        // This side is done, whatever the answer is.
        let _ = timeout(CLOSE_TIMEOUT, self.end_session()).await;
        exit
    }

    /// Until the client has nothing more to say, and its requests are answered.
    async fn pump(self: &Rc<Self>, lines: &mut LineReader<DuplexStream>, requests: &mut JoinSet<()>) {
        while !lines.is_at_end() {
            while let Some(frame) = lines.next_frame() {
                let Frame::Line(line) = frame else { continue };
                let message = Outgoing::read(line, &self.params.borrow());
                if let Some(message) = message {
                    self.take(message, requests).await;
                }
            }
            tokio::select! {
                _ = lines.fill(), if !lines.is_at_end() => {}
                Some(_) = requests.join_next(), if !requests.is_empty() => {}
            }
        }
        while requests.join_next().await.is_some() {}
    }

    async fn take(self: &Rc<Self>, message: Outgoing, requests: &mut JoinSet<()>) {
        if let Some(key) = &message.cancels
            && self.cancel(key)
        {
            return;
        }
        let Some(id) = message.id.clone() else { return self.pass_on(message).await };
        if message.is_initialize() {
            // The following messages belong to the session that this one begins.
            if let Err(failure) = self.initialize(&message).await {
                self.answer(&message, &failure).await;
            }
            return;
        }
        if self.open.borrow().len() >= MAX_OPEN {
            return self.answer(&message, &Failure::TooMany).await;
        }
        let link = Rc::clone(self);
        let (key, by_closing) = (id.key.clone(), message.version.is_some());
        let task = requests.spawn_local(async move {
            if let Err(failure) = link.exchange(&message).await {
                link.answer(&message, &failure).await;
            }
            link.open.borrow_mut().remove(&id.key);
        });
        self.open.borrow_mut().insert(key, OpenRequest { task, by_closing });
    }

    /// A message without an answer, which keeps its place before what follows unless the server is slow to take it.
    async fn pass_on(self: &Rc<Self>, message: Outgoing) {
        let starts = message.method == "notifications/initialized" && !self.is_legacy.get();
        if starts {
            self.opening.borrow_mut().initialized = Some(message.clone());
        }
        let link = Rc::clone(self);
        let (taken, is_taken) = oneshot::channel::<()>();
        let sending = async move {
            if let Ok(Err(failure)) = timeout(ACCEPT_LIMIT, link.post_message(&message)).await {
                link.report_failure(&failure);
            }
            drop(taken);
            if starts {
                link.listen();
            }
        };
        {
            let mut streams = self.streams.borrow_mut();
            while streams.try_join_next().is_some() {}
            streams.spawn_local(sending);
        }
        if !self.is_slow.get() && timeout(IN_ORDER, is_taken).await.is_err() {
            self.is_slow.set(true);
        }
    }

    fn cancel(&self, key: &Key) -> bool {
        let mut open = self.open.borrow_mut();
        if open.get(key).is_none_or(|request| !request.by_closing) {
            return false;
        }
        if let Some(request) = open.remove(key) {
            request.task.abort();
        }
        true
    }

    /// Answers a waiting request with an error; a lost session ends everything at once instead.
    async fn answer(&self, message: &Outgoing, failure: &Failure) {
        let Some(id) = &message.id else { return };
        if matches!(failure, Failure::SessionLost | Failure::Closed) {
            self.lost.notify_one();
            return;
        }
        if matches!(failure, Failure::NoAnswer)
            && let Some(line) = message.said.get()
            && self.send_line(line.clone()).await.is_ok()
        {
            return;
        }
        let text = self.in_words(failure);
        let tool = message.name.as_deref().filter(|_| message.method == "tools/call");
        (self.settings.failed)(&FailedRequest { method: &message.method, tool, id, text: &text });
        // The reader is gone.
        let _ = self.send_line(failure.reply(&text, id)).await;
    }

    /// The general stream has ended for good: answers expected on it will not come.
    pub async fn end_expected(&self) {
        let expected = std::mem::take(&mut *self.expected.borrow_mut());
        for message in expected.into_values() {
            self.answer(&message, &Failure::NoAnswer).await;
        }
    }

    pub fn report_failure(&self, failure: &Failure) {
        (self.settings.note)(&self.in_words(failure));
    }

    fn in_words(&self, failure: &Failure) -> String {
        let Settings { server, remedy, .. } = &self.settings;
        match failure {
            Failure::Http(HttpError::Refused { why, .. }) if why.is_about_address() => {
                format!("server '{server}': {failure}; {remedy}")
            }
            _ => format!("server '{server}': {failure}"),
        }
    }

    /// Sends one line to the proxy, unless it contains a secret of the user.
    pub async fn send_line(&self, mut line: Vec<u8>) -> Result<(), Failure> {
        if self.secrets.contains_secret(&line) {
            return Err(Failure::Echo);
        }
        line.push(b'\n');
        self.output.write(line).await.map_err(|_| Failure::Closed)
    }

    /// A request to the server, with what belongs to its origin alone.
    pub fn request(&self, method: Method, headers: HeaderMap, body: Vec<u8>) -> Request {
        let mut credentials = self.settings.headers.clone();
        credentials.extend(self.session.borrow().clone().map(|session| (headers::SESSION, session)));
        let cookies = self.cookies.borrow().header(credentials.get(COOKIE));
        credentials.extend(cookies.map(|cookies| (COOKIE, cookies)));
        let target = self.endpoint.borrow().clone();
        Request { method, target, headers, credentials, body: body.into(), one_origin: true }
    }

    async fn end_session(&self) {
        if self.session.borrow().is_none() {
            return;
        }
        let headers = headers::of_stream(self.version.borrow().as_ref());
        // A server may refuse this message.
        let _ = self.send(Method::DELETE, headers, Vec::new()).await;
    }
}
