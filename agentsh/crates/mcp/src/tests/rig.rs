//! A connection in memory: the test plays the client and the server, the proxy is real.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, LocalSet};

use crate::guard::Guard;
use crate::policy::McpPolicy;
use crate::store::{Event, Recorder};
use crate::types::ServerId;
use crate::{ConnectionEnd, ExitInfo, Options, Redaction, Running, StartError, Upstream, serve};

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Rig {
    pub client: Peer,
    pub servers: mpsc::UnboundedReceiver<Server>,
    pub journal: Rc<Journal>,
    pub ended: JoinHandle<ConnectionEnd>,
    pub starts: Rc<Cell<usize>>,
}

/// One end of a stream pair, line by line.
pub struct Peer {
    read: BufReader<DuplexStream>,
    write: Option<DuplexStream>,
}

/// A server process as the proxy started it.
pub struct Server {
    pub peer: Peer,
    exit: Option<oneshot::Sender<ExitInfo>>,
    pub killed: Rc<Cell<bool>>,
}

#[derive(Default)]
pub struct Journal {
    pub events: RefCell<Vec<Event>>,
    pub committed: RefCell<Vec<Event>>,
    pub broken: RefCell<Option<String>>,
}

pub struct Factory {
    servers: mpsc::UnboundedSender<Server>,
    failures: VecDeque<StartError>,
    starts: Rc<Cell<usize>>,
}

pub struct Setup {
    pub policy: McpPolicy,
    pub options: Options,
    pub failures: Vec<StartError>,
}

pub fn setup() -> Setup {
    let mut options = Options::new(ServerId("fs".to_owned()));
    options.max_line_bytes = 10_000;
    options.exit_grace = Duration::from_millis(100);
    options.redact = Redaction(Rc::new(|arguments| json!({ "bytes": arguments.to_compact().len() })));
    Setup { policy: McpPolicy::default(), options, failures: Vec::new() }
}

/// Runs a test on the kind of runtime that a session has.
pub fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { test().await });
}

impl Factory {
    /// A factory whose servers arrive at the receiver.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Server>) {
        let (sender, servers) = mpsc::unbounded_channel();
        (Self { servers: sender, failures: VecDeque::new(), starts: Rc::default() }, servers)
    }

    pub fn failing(message: &str) -> Self {
        let failure = StartError {
            message: message.to_owned(),
            permanent: true,
            recorded: false,
            status: 125,
            reason: StartError::NOT_STARTED,
        };
        Self { failures: VecDeque::from([failure]), ..Self::new().0 }
    }
}

impl Setup {
    pub fn open(self) -> Rig {
        let guard = Rc::new(RefCell::new(Guard::new(&self.policy)));
        self.open_with(guard)
    }

    /// With a guard that other connections have too.
    pub fn open_with(self, guard: Rc<RefCell<Guard>>) -> Rig {
        let (client, proxy_end) = pair(64 << 10);
        let (sender, servers) = mpsc::unbounded_channel();
        let journal = Rc::new(Journal::default());
        let starts = Rc::new(Cell::new(0));
        let factory = Factory { servers: sender, failures: self.failures.into(), starts: starts.clone() };
        let ended = tokio::task::spawn_local(serve(
            proxy_end.0,
            proxy_end.1,
            factory,
            guard,
            journal.clone(),
            self.options,
        ));
        Rig { client, servers, journal, ended, starts }
    }
}

impl Rig {
    pub async fn server(&mut self) -> Server {
        within("a server to be started", self.servers.recv()).await.unwrap()
    }

    /// Sends a request as the client and answers it as the server.
    pub async fn round_trip(&mut self, server: &mut Server, id: u32) {
        self.client.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
        assert_eq!(server.peer.next_json().await["id"], id);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        server.peer.send(&answer).await;
        assert_eq!(self.client.next().await.as_deref(), Some(answer.as_str()));
    }

    /// The codes of the messages that were rejected so far.
    pub fn rejections(&self) -> Vec<(String, String)> {
        let events = self.journal.events.borrow();
        let rejected = events.iter().filter_map(|event| match event {
            Event::McpMessageRejected { from, reason, .. } => Some((from.to_string(), reason.clone())),
            _ => None,
        });
        rejected.collect()
    }

    /// Waits until the end of a server is on record.
    pub async fn crash(&self) {
        let recorded = || {
            let committed = self.journal.committed.borrow();
            committed.iter().any(|event| matches!(event, Event::McpServerCrashed { .. }))
        };
        within("a crash", async {
            while !recorded() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    pub async fn ended(self) -> ConnectionEnd {
        drop(self.client);
        within("the connection to end", self.ended).await.unwrap()
    }
}

impl Peer {
    pub async fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes()).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        let write = self.write.as_mut().unwrap();
        within("bytes to be taken", write.write_all(bytes)).await.unwrap();
    }

    /// The next line; None at the end.
    pub async fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        within("a line", self.read.read_line(&mut line)).await.unwrap();
        line.strip_suffix('\n').map(str::to_owned)
    }

    pub async fn next_json(&mut self) -> Value {
        serde_json::from_str(&self.next().await.expect("a line")).unwrap()
    }

    /// Closes what this peer writes.
    pub fn close(&mut self) {
        self.write = None;
    }
}

impl Server {
    /// Ends the process.
    pub fn exit(mut self, code: u8) {
        self.peer.close();
        let _proxy_is_gone = self.exit.take().unwrap().send(ExitInfo { code, cause: "exited".to_owned() });
    }
}

impl Upstream for Factory {
    type Stdin = DuplexStream;
    type Stdout = DuplexStream;

    async fn start(&mut self) -> Result<Running<DuplexStream, DuplexStream>, StartError> {
        self.starts.set(self.starts.get() + 1);
        if let Some(failure) = self.failures.pop_front() {
            return Err(failure);
        }
        let (peer, (stdout, stdin)) = pair(64 << 10);
        let (sender, exit) = oneshot::channel::<ExitInfo>();
        let killed = Rc::new(Cell::new(false));
        let (kill_sender, kill) = oneshot::channel::<()>();
        let mut kill_sender = Some(kill_sender);
        let was_killed = killed.clone();
        let _test_is_over = self.servers.send(Server { peer, exit: Some(sender), killed });
        Ok(Running {
            stdin,
            stdout,
            exit: Box::pin(async move {
                tokio::select! {
                    info = exit => info.unwrap_or(ExitInfo { code: 137, cause: "killed".to_owned() }),
                    Ok(()) = kill => ExitInfo { code: 137, cause: "killed".to_owned() },
                }
            }),
            kill: Box::new(move || {
                was_killed.set(true);
                let _already_gone = kill_sender.take().map(|kill| kill.send(()));
            }),
            told: Rc::default(),
        })
    }
}

impl Recorder for Journal {
    fn record(&self, event: Event) {
        self.events.borrow_mut().push(event);
    }

    async fn commit(&self, event: Event) -> Result<(), String> {
        tokio::task::yield_now().await;
        self.events.borrow_mut().push(event.clone());
        self.committed.borrow_mut().push(event);
        self.broken.borrow().clone().map_or(Ok(()), Err)
    }

    async fn wait_for_room(&self) {}

    fn broken(&self) -> Option<String> {
        self.broken.borrow().clone()
    }
}

/// A peer, and the (read, write) ends for what talks to it.
pub fn pair(size: usize) -> (Peer, (DuplexStream, DuplexStream)) {
    let (there_write, here_read) = duplex(size);
    let (here_write, there_read) = duplex(size);
    (Peer { read: BufReader::new(here_read), write: Some(here_write) }, (there_read, there_write))
}

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}
