//! One client session with one endpoint: forwards its messages to its proxy, and answers to the waiting response.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, Notify};

use crate::json;
use crate::mcp::PauseReceiver;
use crate::mcp::framing::{Frame, LineReader};
use crate::mcp::jsonrpc::{Id, Key};
use crate::mcp::line_writer::LineWriter;
use crate::mcp::mcp_headers::Params;

use super::codes;
use super::id_mapping::IdMapping;
use super::message::{Incoming, Kind, Outgoing};
use super::stream::Stream;
use super::translation::{Step, Translation};

/// The stream for messages without a request.
pub const GENERAL_STREAM: u64 = 0;
/// Limit of open requests per session.
const MAX_OPEN: usize = 256;
/// After this time without an answer, the server gets the older handshake.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of agentsh's own listing, with all pages.
const LISTING_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_PAGES: usize = 64;

pub struct Client {
    pub id: String,
    pub endpoint: String,
    /// The owner; nobody else can use it.
    pub subject: String,
    input: LineWriter<WriteHalf<DuplexStream>>,
    streams: RefCell<BTreeMap<u64, Rc<Stream>>>,
    pending: RefCell<HashMap<Key, Waiting>>,
    /// Between the client's protocol and the server's.
    translation: RefCell<Translation>,
    /// Arguments repeated in headers, from listings.
    params: RefCell<Params>,
    /// All of them are known.
    listed: Cell<bool>,
    listing: Mutex<()>,
    /// Progress tokens of running requests.
    tokens: RefCell<HashMap<Key, Rc<Stream>>>,
    /// Original ids of renamed requests.
    names: RefCell<IdMapping>,
    next_stream: Cell<u64>,
    used: Cell<Instant>,
    /// Requests and streams in service.
    serving: Cell<usize>,
    ended: Cell<bool>,
    /// A reader took events, or the session ended.
    pub changed: Notify,
    unread_limit: usize,
}

/// An unanswered request.
struct Waiting {
    stream: Rc<Stream>,
    /// It lists tools.
    lists: bool,
}

/// The connection to a server.
pub struct ServerWire {
    pub lines: DuplexStream,
    /// Postponed answers.
    pub pauses: PauseReceiver,
}

impl ServerWire {
    /// For a server that postpones no call.
    #[must_use]
    pub fn without_postponing(lines: DuplexStream) -> Self {
        Self { lines, pauses: crate::mcp::pause::pauses().1 }
    }
}

/// Limits of a session, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// A server message.
    pub line: usize,
    /// Unread events.
    pub unread: usize,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The proxy has ended.
    Ended,
    /// A request with this id is open.
    SameId,
    TooMany,
}

impl Client {
    /// Reads from the proxy until its end. Call inside a `LocalSet`.
    pub fn start(
        id: String,
        endpoint: String,
        subject: String,
        wire: ServerWire,
        bounds: ClientLimits,
        translation: Translation,
        on_end: impl FnOnce(&Self) + 'static,
    ) -> Rc<Self> {
        let ServerWire { lines, mut pauses } = wire;
        let (output, input) = tokio::io::split(lines);
        let general = Rc::new(Stream::new(GENERAL_STREAM));
        let client = Rc::new(Self {
            id,
            endpoint,
            subject,
            input: LineWriter::new(input),
            streams: RefCell::new(BTreeMap::from([(GENERAL_STREAM, general)])),
            pending: RefCell::default(),
            tokens: RefCell::default(),
            names: RefCell::default(),
            next_stream: Cell::new(GENERAL_STREAM + 1),
            used: Cell::new(Instant::now()),
            serving: Cell::new(0),
            ended: Cell::new(false),
            changed: Notify::new(),
            unread_limit: bounds.unread,
            translation: RefCell::new(translation),
            params: RefCell::default(),
            listed: Cell::new(false),
            listing: Mutex::default(),
        });
        let asked = Rc::downgrade(&client);
        agentsh_base::task::spawn_local(async move {
            tokio::time::sleep(DISCOVERY_TIMEOUT).await;
            let Some(client) = asked.upgrade() else { return };
            let steps = client.translation.borrow_mut().on_silence();
            // The server has ended: waiting requests get errors.
            let _ = client.take(steps).await;
        });
        let paused = Rc::downgrade(&client);
        agentsh_base::task::spawn_local(async move {
            while let Some(pause) = pauses.recv().await {
                let Some(client) = paused.upgrade() else { return };
                if let Some(waiting) = client.pending.borrow().get(&pause.key) {
                    waiting.stream.pause(pause);
                }
            }
        });
        let pumped = Rc::clone(&client);
        agentsh_base::task::spawn_local(async move {
            pumped.pump(output, bounds.line).await;
            pumped.finish();
            on_end(&pumped);
        });
        client
    }

    async fn pump(self: &Rc<Self>, output: ReadHalf<DuplexStream>, limit: usize) {
        let mut lines = LineReader::new(output, limit);
        while !self.ended.get() && !lines.is_at_end() {
            while let Some(frame) = lines.next_frame() {
                let Frame::Line(line) = frame else { continue };
                if self.translation.borrow().is_passthrough() {
                    self.deliver(line);
                    continue;
                }
                let steps = self.translation.borrow_mut().on_server_message(line);
                if steps.iter().all(|step| matches!(step, Step::ToClient(_))) {
                    self.deliver_all(&steps);
                    continue;
                }
                // The server may write before it reads.
                let client = Rc::clone(self);
                agentsh_base::task::spawn_local(async move { client.take(steps).await });
            }
            // Stops reading the server while clients do not read.
            while self.unread_bytes() > self.unread_limit && !self.ended.get() {
                self.changed.notified().await;
            }
            tokio::select! {
                more = lines.fill() => if more.is_err() { return },
                () = self.until_ended() => return,
            }
        }
    }

    async fn until_ended(&self) {
        while !self.ended.get() {
            self.changed.notified().await;
        }
    }

    fn deliver(&self, line: &[u8]) {
        let Ok(tree) = json::read(line) else { return };
        let names = self.names.borrow();
        match Outgoing::read(&tree) {
            Outgoing::Answer(Some(key)) => {
                let Some(Waiting { stream, lists }) = self.pending.borrow_mut().remove(&key) else { return };
                if let Some(page) = tree.member("result").filter(|_| lists) {
                    self.params.borrow_mut().on_page(page);
                }
                self.tokens.borrow_mut().retain(|_, other| other.id != stream.id);
                let is_error = tree.member("error").is_some();
                let answer = names.restore_answer(&key, tree, line);
                let marked = is_error.then(|| codes::with_refusal_code(&answer)).flatten();
                stream.push(marked.as_deref().unwrap_or(&answer));
                stream.finish();
                drop(names);
                self.names.borrow_mut().forget(&key);
            }
            Outgoing::Progress(token) => {
                let stream = self.tokens.borrow().get(&token).cloned();
                stream
                    .unwrap_or_else(|| self.stream_without_request())
                    .push(&names.restore_progress(&token, tree, line));
            }
            Outgoing::Subscription(key) => {
                let stream = self.pending.borrow().get(&key).map(|waiting| Rc::clone(&waiting.stream));
                self.on_change(&tree);
                stream
                    .unwrap_or_else(|| self.stream_without_request())
                    .push(&names.restore_subscription(&key, tree, line));
            }
            Outgoing::Answer(None) | Outgoing::Other => {
                self.on_change(&tree);
                self.stream_without_request().push(line);
            }
        }
    }

    fn on_change(&self, tree: &json::Json<'_>) {
        let method = tree.member("method").and_then(json::Json::as_text);
        if method.as_deref() == Some("notifications/tools/list_changed") {
            self.listed.set(false);
        }
    }

    /// Arguments repeated in headers. Without a listing, the server is asked for one, with this request's metadata.
    pub async fn params(self: &Rc<Self>, like: &Incoming) -> Params {
        let _alone = self.listing.lock().await;
        if !self.listed.replace(true) {
            // Without a listing there are no such headers.
            let _ = tokio::time::timeout(LISTING_TIMEOUT, self.list(like)).await;
        }
        self.params.borrow().clone()
    }

    async fn list(self: &Rc<Self>, like: &Incoming) -> Option<()> {
        let mut cursor = String::new();
        for _ in 0..MAX_PAGES {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{{{cursor}"_meta":{}}}}}"#,
                like.meta.as_deref().unwrap_or("{}")
            );
            let message = self.rename(Incoming::read(text.as_bytes()).ok()?);
            let key = message.id()?.key.clone();
            let stream = self.request(&message, key.clone()).await.ok()?;
            let _place = self.register_request(&stream, key);
            let mut reader = stream.reader(None);
            let mut next = None;
            while let Some((_, event)) = reader.next().await {
                let tree = json::read(&event).ok()?;
                next = tree
                    .member("result")
                    .and_then(|page| page.member("nextCursor"))
                    .map(json::Json::to_compact);
            }
            cursor =
                format!("\"cursor\":{},", next.filter(|next| !matches!(next.as_str(), "null" | "\"\""))?);
        }
        None
    }

    /// The message with an id that is unique on this connection.
    pub fn rename(&self, message: Incoming) -> Incoming {
        self.names.borrow_mut().rename(message)
    }

    /// The stream for a message without a request: of the only running request, else the listening client, else the
    /// newest.
    fn stream_without_request(&self) -> Rc<Stream> {
        let pending = self.pending.borrow();
        let general = self.general();
        let newest = pending.values().map(|waiting| &waiting.stream).max_by_key(|stream| stream.id).cloned();
        match newest {
            Some(newest) if pending.len() == 1 || !general.is_read() => newest,
            _ => general,
        }
    }

    pub fn general(&self) -> Rc<Stream> {
        self.stream(GENERAL_STREAM).unwrap_or_else(|| Rc::new(Stream::new(GENERAL_STREAM)))
    }

    pub fn stream(&self, id: u64) -> Option<Rc<Stream>> {
        self.streams.borrow().get(&id).cloned()
    }

    fn unread_bytes(&self) -> usize {
        self.streams.borrow().values().map(|stream| stream.unread_bytes()).sum()
    }

    /// Sends a request; its answer comes on the stream.
    pub async fn request(self: &Rc<Self>, message: &Incoming, key: Key) -> Result<Rc<Stream>, SendError> {
        let stream = Rc::new(Stream::new(self.next_stream.get()));
        {
            let mut pending = self.pending.borrow_mut();
            if pending.len() >= MAX_OPEN {
                self.names.borrow_mut().forget(&key);
                return Err(SendError::TooMany);
            }
            if pending.contains_key(&key) {
                return Err(SendError::SameId);
            }
            let lists = matches!(&message.kind, Kind::Request { method, .. } if method == "tools/list");
            pending.insert(key.clone(), Waiting { stream: Rc::clone(&stream), lists });
        }
        self.next_stream.set(stream.id + 1);
        self.forget_old();
        self.streams.borrow_mut().insert(stream.id, Rc::clone(&stream));
        if let Some(token) = &message.token {
            self.tokens.borrow_mut().insert(token.clone(), Rc::clone(&stream));
        }
        // The client may disconnect while the server does not read.
        let mut place = self.register_request(&stream, key);
        place.id = message.id().cloned();
        self.send_line(&message.line, &place.is_sent).await?;
        place.is_kept = true;
        Ok(stream)
    }

    fn register_request(self: &Rc<Self>, stream: &Rc<Stream>, key: Key) -> OpenRequest {
        let is_sent = Cell::new(false);
        OpenRequest {
            client: Rc::clone(self),
            stream: Rc::clone(stream),
            key,
            id: None,
            is_sent,
            is_kept: false,
        }
    }

    /// Cancels a request at the server.
    pub fn cancel(self: &Rc<Self>, id: &Id) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the client closed the connection"}}}}"#,
            id.spelled
        );
        let client = Rc::clone(self);
        // The session may have ended already.
        agentsh_base::task::spawn_local(async move {
            let _ = client.send(line.as_bytes()).await;
        });
    }

    /// The answer is not wanted and cannot be resumed: frees the place and the unread events.
    pub fn give_up(&self, key: &Key, stream: &Rc<Stream>) {
        let is_waiting =
            self.pending.borrow().get(key).is_some_and(|waiting| Rc::ptr_eq(&waiting.stream, stream));
        if is_waiting {
            self.pending.borrow_mut().remove(key);
            self.names.borrow_mut().forget(key);
        }
        self.tokens.borrow_mut().retain(|_, other| other.id != stream.id);
        self.streams.borrow_mut().remove(&stream.id);
        stream.finish();
        // The server may have waited for a reader.
        self.changed.notify_one();
    }

    /// Drops read streams, except for the last few, which a client may resume.
    fn forget_old(&self) {
        const KEPT: usize = 16;
        let mut streams = self.streams.borrow_mut();
        let over: Vec<u64> = streams
            .values()
            .filter(|stream| stream.id != GENERAL_STREAM && stream.is_over())
            .map(|stream| stream.id)
            .collect();
        for id in over.iter().rev().skip(KEPT) {
            streams.remove(id);
        }
    }

    pub async fn send(&self, line: &[u8]) -> Result<(), SendError> {
        self.send_line(line, &Cell::new(false)).await
    }

    /// Like `send`; `is_sent` becomes true when the server gets it, even if the caller has gone.
    async fn send_line(&self, line: &[u8], is_sent: &Cell<bool>) -> Result<(), SendError> {
        self.used.set(Instant::now());
        if self.translation.borrow().is_passthrough() {
            return self.write([line, b"\n"].concat(), is_sent).await;
        }
        let steps = self.translation.borrow_mut().on_client_message(line);
        self.act(steps, is_sent).await
    }

    /// Carries out steps. The server gets all lines of one message together.
    async fn take(&self, steps: Vec<Step>) -> Result<(), SendError> {
        self.act(steps, &Cell::new(false)).await
    }

    async fn act(&self, steps: Vec<Step>, is_sent: &Cell<bool>) -> Result<(), SendError> {
        self.deliver_all(&steps);
        let mut whole = Vec::new();
        for step in &steps {
            if let Step::ToServer(line) = step {
                whole.extend_from_slice(line);
                whole.push(b'\n');
            }
        }
        if whole.is_empty() { Ok(()) } else { self.write(whole, is_sent).await }
    }

    fn deliver_all(&self, steps: &[Step]) {
        for step in steps {
            if let Step::ToClient(line) = step {
                self.deliver(line);
            }
        }
    }

    async fn write(&self, lines: Vec<u8>, is_sent: &Cell<bool>) -> Result<(), SendError> {
        let turn = self.input.wait_for_turn().await;
        if self.ended.get() {
            return Err(SendError::Ended);
        }
        is_sent.set(true);
        turn.write(lines).await.map_err(|_| SendError::Ended)
    }

    /// Ends the session: tells the server, and fails waiting requests.
    pub fn end(self: &Rc<Self>) {
        if self.ended.replace(true) {
            return;
        }
        self.changed.notify_waiters();
        self.changed.notify_one();
        self.finish();
        let client = Rc::clone(self);
        // A message that is being written is finished first.
        agentsh_base::task::spawn_local(async move { client.input.close().await });
    }

    fn finish(&self) {
        self.ended.set(true);
        self.pending.borrow_mut().clear();
        for stream in self.streams.borrow().values() {
            stream.finish();
        }
    }

    pub fn is_ended(&self) -> bool {
        self.ended.get()
    }

    /// Time since the last use; zero while something is served.
    pub fn idle(&self) -> std::time::Duration {
        if self.serving.get() > 0 { std::time::Duration::ZERO } else { self.used.get().elapsed() }
    }

    pub fn serve(self: &Rc<Self>) -> Serving {
        self.serving.set(self.serving.get() + 1);
        Serving(Rc::clone(self))
    }
}

/// The place of an open request, freed on drop unless kept.
struct OpenRequest {
    client: Rc<Client>,
    stream: Rc<Stream>,
    key: Key,
    id: Option<Id>,
    /// The server has it, or will have.
    is_sent: Cell<bool>,
    is_kept: bool,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let is_shared = self.client.names.borrow().knows(&self.key);
        let waits = !self.stream.is_done() && !self.client.is_ended();
        match self.id.as_ref().filter(|_| self.is_sent.get() && waits) {
            // The session's owner may resume.
            Some(_) if !is_shared => {}
            id => {
                self.client.give_up(&self.key, &self.stream);
                if let Some(id) = id {
                    self.client.cancel(id);
                }
            }
        }
    }
}

/// A response in service: the session is not idle.
pub struct Serving(Rc<Client>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.serving.set(self.0.serving.get().saturating_sub(1));
        self.0.used.set(Instant::now());
    }
}

#[cfg(test)]
mod tests;
