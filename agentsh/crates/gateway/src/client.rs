//! One client's session with one endpoint: what it says goes to the proxy of its own, and what comes back goes to the
//! response that waits for it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::Instant;

use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, Notify};

use crate::json;
use crate::mcp::framing::{Frame, LineReader};
use crate::mcp::jsonrpc::Key;

use super::message::{Incoming, Outgoing};
use super::names::Names;
use super::stream::Stream;

/// The stream that belongs to no request.
pub const GENERAL: u64 = 0;
/// Requests of one session that may wait for the server at once.
const MOST_OPEN: usize = 256;

pub struct Client {
    pub id: String,
    pub endpoint: String,
    /// Who opened it; nobody else can use it.
    pub subject: String,
    input: Mutex<Option<WriteHalf<DuplexStream>>>,
    streams: RefCell<BTreeMap<u64, Rc<Stream>>>,
    pending: RefCell<HashMap<Key, Rc<Stream>>>,
    /// Of running requests that want to hear of their progress.
    tokens: RefCell<HashMap<Key, Rc<Stream>>>,
    /// What ids were called before they were renamed.
    names: RefCell<Names>,
    next_stream: Cell<u64>,
    used: Cell<Instant>,
    /// Requests and streams that are served now.
    serving: Cell<usize>,
    ended: Cell<bool>,
    /// A reader took something, or the session ended.
    pub changed: Notify,
    unread_limit: usize,
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The proxy has ended.
    Ended,
    /// A request with this id waits for its answer.
    SameId,
    TooMany,
}

impl Client {
    /// Reads what the proxy says until its end. Must be called inside a `LocalSet`.
    pub fn start(
        id: String,
        endpoint: String,
        subject: String,
        wire: DuplexStream,
        (line_limit, unread_limit): (usize, usize),
        on_end: impl FnOnce(&Self) + 'static,
    ) -> Rc<Self> {
        let (output, input) = tokio::io::split(wire);
        let general = Rc::new(Stream::new(GENERAL));
        let client = Rc::new(Self {
            id,
            endpoint,
            subject,
            input: Mutex::new(Some(input)),
            streams: RefCell::new(BTreeMap::from([(GENERAL, general)])),
            pending: RefCell::default(),
            tokens: RefCell::default(),
            names: RefCell::default(),
            next_stream: Cell::new(GENERAL + 1),
            used: Cell::new(Instant::now()),
            serving: Cell::new(0),
            ended: Cell::new(false),
            changed: Notify::new(),
            unread_limit,
        });
        let pumped = Rc::clone(&client);
        tokio::task::spawn_local(async move {
            pumped.pump(output, line_limit).await;
            pumped.finish();
            on_end(&pumped);
        });
        client
    }

    async fn pump(&self, output: ReadHalf<DuplexStream>, limit: usize) {
        let mut lines = LineReader::new(output, limit);
        while !self.ended.get() && !lines.is_at_end() {
            while let Some(frame) = lines.next_frame() {
                let Frame::Line(line) = frame else { continue };
                self.deliver(line);
            }
            // The server waits while nobody reads: its bytes pile up on its own side.
            while self.unread() > self.unread_limit && !self.ended.get() {
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
                let Some(stream) = self.pending.borrow_mut().remove(&key) else { return };
                self.tokens.borrow_mut().retain(|_, other| other.id != stream.id);
                stream.push(&names.restore_answer(&key, tree, line));
                stream.finish();
                drop(names);
                self.names.borrow_mut().forget(&key);
            }
            Outgoing::Progress(token) => {
                let stream = self.tokens.borrow().get(&token).cloned();
                stream.unwrap_or_else(|| self.nearest()).push(&names.restore_progress(&token, tree, line));
            }
            Outgoing::Subscription(key) => {
                let stream = self.pending.borrow().get(&key).cloned();
                stream.unwrap_or_else(|| self.nearest()).push(&names.restore_subscription(&key, tree, line));
            }
            Outgoing::Answer(None) | Outgoing::Other => self.nearest().push(line),
        }
    }

    /// The message under an id that no other client of this connection uses.
    pub fn rename(&self, message: Incoming) -> Incoming {
        self.names.borrow_mut().rename(message)
    }

    /// Where a message goes that names no request: to the only one that runs, else to who listens, else to the newest.
    fn nearest(&self) -> Rc<Stream> {
        let pending = self.pending.borrow();
        let general = self.general();
        let newest = pending.values().max_by_key(|stream| stream.id).cloned();
        match newest {
            Some(newest) if pending.len() == 1 || !general.is_read() => newest,
            _ => general,
        }
    }

    pub fn general(&self) -> Rc<Stream> {
        self.stream(GENERAL).unwrap_or_else(|| Rc::new(Stream::new(GENERAL)))
    }

    pub fn stream(&self, id: u64) -> Option<Rc<Stream>> {
        self.streams.borrow().get(&id).cloned()
    }

    fn unread(&self) -> usize {
        self.streams.borrow().values().map(|stream| stream.unread_bytes()).sum()
    }

    /// Sends a request; its answer comes on the stream.
    pub async fn request(&self, message: &Incoming, key: Key) -> Result<Rc<Stream>, SendError> {
        let stream = Rc::new(Stream::new(self.next_stream.get()));
        {
            let mut pending = self.pending.borrow_mut();
            if pending.len() >= MOST_OPEN {
                return Err(SendError::TooMany);
            }
            if pending.contains_key(&key) {
                return Err(SendError::SameId);
            }
            pending.insert(key.clone(), Rc::clone(&stream));
        }
        self.next_stream.set(stream.id + 1);
        self.forget_old();
        self.streams.borrow_mut().insert(stream.id, Rc::clone(&stream));
        if let Some(token) = &message.token {
            self.tokens.borrow_mut().insert(token.clone(), Rc::clone(&stream));
        }
        let sent = self.send(&message.line).await;
        if sent.is_err() {
            self.pending.borrow_mut().remove(&key);
        }
        sent.map(|()| stream)
    }

    /// Streams that were read to their end, but for the last few: their reader may come back for what got lost.
    fn forget_old(&self) {
        const KEPT: usize = 16;
        let mut streams = self.streams.borrow_mut();
        let over: Vec<u64> = streams
            .values()
            .filter(|stream| stream.id != GENERAL && stream.is_over())
            .map(|stream| stream.id)
            .collect();
        for id in over.iter().rev().skip(KEPT) {
            streams.remove(id);
        }
    }

    pub async fn send(&self, line: &[u8]) -> Result<(), SendError> {
        self.used.set(Instant::now());
        let mut input = self.input.lock().await;
        let Some(writer) = input.as_mut() else { return Err(SendError::Ended) };
        let mut whole = Vec::with_capacity(line.len() + 1);
        whole.extend_from_slice(line);
        whole.push(b'\n');
        writer.write_all(&whole).await.map_err(|_| SendError::Ended)
    }

    /// Ends the session: its server is told, and whoever waits hears that there will be nothing more.
    pub fn end(self: &Rc<Self>) {
        if self.ended.replace(true) {
            return;
        }
        self.changed.notify_waiters();
        self.changed.notify_one();
        self.finish();
        let client = Rc::clone(self);
        // A message that is being written is finished first.
        tokio::task::spawn_local(async move { drop(client.input.lock().await.take()) });
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

    /// How long nobody has used it; zero while something is served.
    pub fn idle(&self) -> std::time::Duration {
        if self.serving.get() > 0 { std::time::Duration::ZERO } else { self.used.get().elapsed() }
    }

    pub fn serve(self: &Rc<Self>) -> Serving {
        self.serving.set(self.serving.get() + 1);
        Serving(Rc::clone(self))
    }
}

/// One response is being served; the session is not idle.
pub struct Serving(Rc<Client>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.serving.set(self.0.serving.get().saturating_sub(1));
        self.0.used.set(Instant::now());
    }
}
