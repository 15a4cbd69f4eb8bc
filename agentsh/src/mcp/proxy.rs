//! One server connection from its first byte to its last: input, output and the life of the server. What a message
//! means is decided elsewhere; nothing here looks into one.
//!
//! The two directions never wait for each other: a side is only not read while what it sent cannot be delivered.

use std::cell::RefCell;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use crate::guard::Guard;
use crate::store::Recorder;

use super::connection::{Connection, Phase};
use super::framing::LineReader;
use super::from_server::Step;
use super::options::Options;
use super::outbox::Outbox;
use super::upstream::{Backoff, ExitInfo, Running, StartError, Upstream};

/// How long a server may take to answer the handshake that is replayed to it.
const REPLAY_LIMIT: Duration = Duration::from_secs(60);
/// How long the output of a server is still read after it exited, and how long a server may live on after it closed
/// its input or output.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// How long a killed server may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// How a connection ended: always because the client closed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How the last server process ended; None when none was started or it could not be waited for.
    pub exit: Option<ExitInfo>,
    /// The server had to be killed because it did not end after its input was closed.
    pub killed: bool,
}

/// Serves one connection until the client closes it. The server is started at once, unless policy refuses it, and
/// started again on the next request after it ended.
pub async fn serve<R: Recorder, U: Upstream + 'static>(
    client_in: impl AsyncRead + Unpin,
    client_out: impl AsyncWrite + Unpin,
    upstream: U,
    guard: Rc<RefCell<Guard>>,
    record: R,
    options: Options,
) -> Ended {
    let limit = options.max_line_bytes;
    let mut connection = Connection::new(options, guard, record);
    connection.admit().await;
    let mut proxy = Proxy {
        connection,
        limit,
        launch: Launch::Stopped(upstream),
        live: None,
        backoff: Backoff::default(),
        not_before: Instant::now(),
        client_ended: false,
        client_gone: false,
        ended: Ended { exit: None, killed: false },
    };
    let mut client = LineReader::new(client_in, limit);
    let mut client_out = client_out;
    if matches!(proxy.connection.phase, Phase::Idle) {
        proxy.start();
    }
    loop {
        proxy.handle_lines(&mut client).await;
        proxy.start_if_needed();
        proxy.close_if_done();
        if proxy.is_finished() {
            return proxy.ended;
        }
        match proxy.wait(&mut client, &mut client_out).await {
            // A stream that failed has ended, which the reader remembers.
            Woke::ClientRead | Woke::ClientWritten(Ok(())) | Woke::ServerWritten(Ok(())) => {}
            Woke::ClientWritten(Err(_)) => proxy.lose_client(),
            Woke::ServerRead(more) => proxy.on_server_read(more.unwrap_or(false)),
            Woke::ServerWritten(Err(_)) => proxy.lose_server_input(),
            Woke::Started(upstream, outcome) => proxy.on_started(upstream, outcome),
            Woke::Exited(exit) => proxy.on_exit(exit),
            Woke::Timer => proxy.on_timer().await,
        }
    }
}

struct Proxy<R: Recorder, U: Upstream> {
    connection: Connection<R>,
    limit: usize,
    launch: Launch<U>,
    live: Option<Live<U::Stdin, U::Stdout>>,
    backoff: Backoff,
    /// A start waits until then.
    not_before: Instant,
    /// The client will not send any more.
    client_ended: bool,
    /// The client does not read any more.
    client_gone: bool,
    ended: Ended,
}

type Outcome<U> = Result<Running<<U as Upstream>::Stdin, <U as Upstream>::Stdout>, StartError>;
type Starting<U> = Pin<Box<dyn Future<Output = (U, Outcome<U>)>>>;

enum Launch<U: Upstream> {
    Stopped(U),
    Starting(Starting<U>),
    /// Only while one of the others is being replaced.
    Nothing,
}

struct Live<I, O> {
    stdin: Option<I>,
    /// None at the end of the server's output.
    stdout: Option<LineReader<O>>,
    exit: Option<Pin<Box<dyn Future<Output = ExitInfo>>>>,
    exited: Option<ExitInfo>,
    kill: Box<dyn FnMut()>,
    started: Instant,
    /// When patience ends: kill, then stop waiting.
    stop_at: Option<Instant>,
    /// It cannot answer any more.
    dying: bool,
    /// The client is gone, and the server was told or will be.
    closing: bool,
    killed: bool,
}

enum Woke<U: Upstream> {
    ClientRead,
    ClientWritten(io::Result<()>),
    ServerRead(io::Result<bool>),
    ServerWritten(io::Result<()>),
    Started(U, Outcome<U>),
    Exited(ExitInfo),
    Timer,
}

impl<R: Recorder, U: Upstream + 'static> Proxy<R, U> {
    /// Waits for the next thing that can go on.
    async fn wait(
        &mut self,
        client: &mut LineReader<impl AsyncRead + Unpin>,
        client_out: &mut (impl AsyncWrite + Unpin),
    ) -> Woke<U> {
        let timer = self.next_timer();
        let read_client = !self.client_ended && self.takes_client_lines();
        let read_server = !self.connection.server_must_wait();
        let (stdin, stdout, exit) = match self.live.as_mut() {
            Some(live) => (live.stdin.as_mut(), live.stdout.as_mut(), live.exit.as_mut()),
            None => (None, None, None),
        };
        let Connection { to_client, to_server, .. } = &mut self.connection;
        let starting = match &mut self.launch {
            Launch::Starting(starting) => Some(starting),
            _ => None,
        };
        tokio::select! {
            written = to_client.flush_some(client_out), if !to_client.is_idle() => Woke::ClientWritten(written),
            written = flush(to_server, stdin) => Woke::ServerWritten(written),
            _ = client.fill(), if read_client => Woke::ClientRead,
            more = fill(stdout), if read_server => Woke::ServerRead(more),
            (upstream, outcome) = or_never(starting) => Woke::Started(upstream, outcome),
            info = or_never(exit) => Woke::Exited(info),
            () = until(timer) => Woke::Timer,
        }
    }

    /// Everything that is here as a whole line, as long as the other side takes it.
    async fn handle_lines(&mut self, client: &mut LineReader<impl AsyncRead + Unpin>) {
        while self.takes_client_lines()
            && let Some(frame) = client.next_frame()
        {
            self.connection.record.room().await;
            self.connection.on_client_frame(frame).await;
        }
        self.client_ended |= client.is_at_end();
        loop {
            if self.connection.server_must_wait() {
                return;
            }
            let Some(frame) = self.live.as_mut().and_then(|live| live.stdout.as_mut()?.next_frame()) else {
                break;
            };
            self.connection.record.room().await;
            match self.connection.on_server_frame(frame).await {
                Step::Done => {}
                Step::Replayed(true) => self.on_replayed(),
                Step::Replayed(false) => self.kill(),
            }
        }
        self.finish_server().await;
    }

    /// What the client sends to a server that is about to be gone waits for the next one.
    fn takes_client_lines(&self) -> bool {
        !self.client_gone
            && !self.connection.client_must_wait()
            && !self.live.as_ref().is_some_and(|live| live.dying)
    }

    fn start(&mut self) {
        match std::mem::replace(&mut self.launch, Launch::Nothing) {
            Launch::Stopped(mut upstream) => {
                self.connection.phase = Phase::Starting;
                let not_before = self.not_before;
                self.launch = Launch::Starting(Box::pin(async move {
                    sleep_until(not_before).await;
                    let outcome = upstream.start().await;
                    (upstream, outcome)
                }));
            }
            other => self.launch = other,
        }
    }

    fn start_if_needed(&mut self) {
        if matches!(self.connection.phase, Phase::Idle)
            && !self.connection.held.is_empty()
            && !self.client_gone
        {
            self.start();
        }
    }

    fn on_started(&mut self, upstream: U, outcome: Outcome<U>) {
        self.launch = Launch::Stopped(upstream);
        let now = Instant::now();
        match outcome {
            Err(error) => {
                self.not_before = now + self.backoff.after(now, now);
                self.connection.on_start_failed(error.message, error.permanent);
            }
            Ok(Running { stdin, stdout, exit, kill }) => {
                self.connection.on_started();
                let replaying = matches!(self.connection.phase, Phase::Replaying(_));
                self.live = Some(Live {
                    stdin: Some(stdin),
                    stdout: Some(LineReader::new(stdout, self.limit)),
                    exit: Some(exit),
                    exited: None,
                    kill,
                    started: now,
                    stop_at: replaying.then(|| now + REPLAY_LIMIT),
                    dying: false,
                    closing: false,
                    killed: false,
                });
            }
        }
    }

    fn on_replayed(&mut self) {
        if let Some(live) = &mut self.live {
            live.stop_at = None;
            live.closing = false;
        }
        self.connection.on_replayed();
    }

    fn on_server_read(&mut self, more: bool) {
        let Some(live) = &mut self.live else { return };
        if more {
            return;
        }
        live.dying = true;
        live.limit_patience(DRAIN_LIMIT);
    }

    fn on_exit(&mut self, exit: ExitInfo) {
        let Some(live) = &mut self.live else { return };
        live.exit = None;
        live.exited = Some(exit);
        live.stdin = None;
        live.dying = true;
        live.stop_at = Some(Instant::now() + DRAIN_LIMIT);
    }

    /// The server does not take requests any more, so nothing it runs can be of use.
    fn lose_server_input(&mut self) {
        self.connection.to_server.clear();
        if let Some(live) = &mut self.live {
            live.stdin = None;
            live.dying = true;
            live.limit_patience(DRAIN_LIMIT);
        }
    }

    fn lose_client(&mut self) {
        self.client_gone = true;
        self.client_ended = true;
        self.connection.to_client.clear();
        self.connection.to_server.clear();
        self.connection.held = Vec::new();
    }

    fn kill(&mut self) {
        if let Some(live) = &mut self.live {
            (live.kill)();
            live.killed = true;
            live.dying = true;
            live.stop_at = Some(Instant::now() + KILL_LIMIT);
        }
    }

    async fn on_timer(&mut self) {
        self.connection.expire_requests().await;
        let Some(live) = &mut self.live else { return };
        if live.stop_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        if live.exited.is_some() {
            // Something still holds the output of a server that is gone.
            live.stdout = None;
        } else if live.killed {
            live.exited = Some(ExitInfo { code: 137, cause: "killed".to_owned() });
            live.stdout = None;
        } else {
            self.ended.killed |= self.client_ended;
            self.kill();
        }
    }

    /// Once the server is gone and its last line is read, its calls are answered.
    async fn finish_server(&mut self) {
        let Some(live) = &mut self.live else { return };
        if live.stdout.as_ref().is_some_and(LineReader::is_at_end) {
            live.stdout = None;
        }
        if live.stdout.is_some() {
            return;
        }
        let Some(exit) = live.exited.clone() else { return };
        let started = live.started;
        self.live = None;
        if self.client_ended && self.connection.from_client.len() == 0 {
            self.connection.phase = Phase::Idle;
            self.connection.held = Vec::new();
        } else {
            let now = Instant::now();
            let wait = self.backoff.after(started, now);
            self.not_before = now + wait;
            let restart_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            self.connection.on_server_ended(&exit, restart_in_ms).await;
        }
        self.ended.exit = Some(exit);
    }

    /// After the client's last message is delivered, the server's input is closed and its time runs.
    fn close_if_done(&mut self) {
        if !self.client_ended {
            return;
        }
        let grace = self.connection.options.exit_grace;
        let delivered = self.connection.to_server.is_idle() && self.connection.held.is_empty();
        if let Some(live) = &mut self.live {
            if !live.closing {
                live.closing = true;
                live.limit_patience(grace);
            }
            if delivered {
                live.stdin = None;
            }
        }
    }

    fn is_finished(&self) -> bool {
        let nothing_runs = self.live.is_none()
            && (!matches!(self.launch, Launch::Starting(_))
                || self.client_gone
                || self.connection.held.is_empty());
        self.client_ended && nothing_runs && (self.client_gone || self.connection.to_client.is_idle())
    }

    fn next_timer(&self) -> Option<Instant> {
        let stop_at = self.live.as_ref().and_then(|live| live.stop_at);
        [stop_at, self.connection.from_client.next_deadline()].into_iter().flatten().min()
    }
}

impl<I, O> Live<I, O> {
    /// Sets the end of patience, if it is not sooner already.
    fn limit_patience(&mut self, limit: Duration) {
        let at = Instant::now() + limit;
        self.stop_at = Some(self.stop_at.map_or(at, |sooner| sooner.min(at)));
    }
}

/// A connection that is abandoned leaves no server behind.
impl<I, O> Drop for Live<I, O> {
    fn drop(&mut self) {
        if self.exited.is_none() {
            (self.kill)();
        }
    }
}

async fn or_never<F: Future + Unpin>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

async fn flush(outbox: &mut Outbox, sink: Option<&mut (impl AsyncWrite + Unpin)>) -> io::Result<()> {
    match sink {
        Some(sink) if !outbox.is_idle() => outbox.flush_some(sink).await,
        _ => pending().await,
    }
}

async fn fill(reader: Option<&mut LineReader<impl AsyncRead + Unpin>>) -> io::Result<bool> {
    match reader {
        Some(reader) if !reader.is_at_end() => reader.fill().await,
        _ => pending().await,
    }
}
