//! The server's end of a connection: process, streams, life. Does not look into messages.

use std::cell::Cell;
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use crate::busy_poll;
use crate::store::Recorder;

use super::audit::AuditedCall;
use super::classify::ClassifiedAnswer;
use super::client::Client;
use super::connection::{Connection, Phase};
use super::framing::LineReader;
use super::from_server::Step;
use super::lifecycle::ServerEnd;
use super::options::Options;
use super::outbox::Outbox;
use super::proxy::ConnectionEnd;
use super::registry_check::VerificationEvent;
use super::relist::ReleaseCounts;
use super::upstream::{Backoff, ExitInfo, Running, StartError, Upstream};

/// Timeout for the replayed handshake.
const REPLAY_LIMIT: Duration = Duration::from_secs(60);
/// How long to read output after a server exited, and how long it may run after closing its input or output.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// How often to check that awaited answers are still read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After a signal to agentsh, the time between the end of the server's input and SIGTERM.
const SIGNAL_GRACE: Duration = Duration::from_millis(500);
/// Time between the request to end and SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// One server connection without its client's streams.
pub(super) struct ServerSession<R: Recorder, U: Upstream> {
    pub connection: Connection<R>,
    limit: usize,
    launch: Launch<U>,
    live: Option<ServerStreams<U::Stdin, U::Stdout>>,
    backoff: Backoff,
    /// Earliest start.
    not_before: Instant,
    /// Busy polling until then, for fast servers.
    looking: Option<std::time::Instant>,
    /// The client sends nothing more.
    client_ended: bool,
    /// The client reads nothing more.
    client_gone: bool,
    ended: ConnectionEnd,
}

type Outcome<U> = Result<Running<<U as Upstream>::Stdin, <U as Upstream>::Stdout>, StartError>;
type Starting<U> = Pin<Box<dyn Future<Output = (U, Outcome<U>)>>>;

enum Launch<U: Upstream> {
    Stopped(U),
    Starting(Starting<U>),
    /// Only during a change of state.
    Nothing,
}

struct ServerStreams<I, O> {
    stdin: Option<I>,
    /// None at the end of the server's output.
    stdout: Option<LineReader<O>>,
    exit: Option<Pin<Box<dyn Future<Output = ExitInfo>>>>,
    exited: Option<ExitInfo>,
    kill: Box<dyn FnMut()>,
    told: Rc<Cell<bool>>,
    started: Instant,
    /// The deadline before kill, then before giving up.
    stop_at: Option<Instant>,
    /// It cannot answer any more.
    dying: bool,
    /// The client is gone, and the server was notified or will be.
    closing: bool,
    killed: bool,
}

/// The result of a wait.
pub(super) enum SessionEvent<U: Upstream> {
    Read(io::Result<bool>),
    Written(io::Result<()>),
    Started(U, Outcome<U>),
    Exited(ExitInfo),
    /// A call was asked about.
    Audited(AuditedCall),
    /// An answer was classified.
    Classified(ClassifiedAnswer),
    /// The registry check answered.
    VerificationOutcome(VerificationEvent),
    /// A hidden entry was released.
    ReleaseCounts(ReleaseCounts),
    /// Nothing came while polling.
    Looked,
    Timer,
}

impl<R: Recorder, U: Upstream + 'static> ServerSession<R, U> {
    pub fn new(connection: Connection<R>, upstream: U) -> Self {
        Self {
            limit: connection.options.max_line_bytes,
            connection,
            launch: Launch::Stopped(upstream),
            live: None,
            backoff: Backoff::default(),
            not_before: Instant::now(),
            looking: None,
            client_ended: false,
            client_gone: false,
            ended: ConnectionEnd { exit: None, killed: false },
        }
    }

    /// Judges the server, and starts it unless refused.
    pub async fn open(&mut self) {
        self.connection.admit().await;
        if matches!(self.connection.phase, Phase::Idle) {
            self.start();
        }
    }

    /// Waits for the next event, for [`ServerSession::on_woke`]. `read` is false while the client does not read.
    pub async fn wait(&mut self, read: bool) -> SessionEvent<U> {
        let timer = self.next_timer();
        let looking = self.looking.filter(|_| self.connection.from_client.len() > 0);
        let (stdin, stdout, exit) = match self.live.as_mut() {
            Some(live) => (live.stdin.as_mut(), live.stdout.as_mut(), live.exit.as_mut()),
            None => (None, None, None),
        };
        let Connection { to_server, audits, answers, interface_check, relisting, .. } = &mut self.connection;
        let starting = match &mut self.launch {
            Launch::Starting(starting) => Some(starting),
            _ => None,
        };
        let next = async {
            tokio::select! {
                written = flush(to_server, stdin) => SessionEvent::Written(written),
                more = fill(stdout), if read => SessionEvent::Read(more),
                (upstream, outcome) = or_never(starting) => SessionEvent::Started(upstream, outcome),
                info = or_never(exit) => SessionEvent::Exited(info),
                answered = audits.next() => SessionEvent::Audited(answered),
                heard = answers.next() => SessionEvent::Classified(heard),
                told = interface_check.next() => SessionEvent::VerificationOutcome(told),
                released = relisting.next() => SessionEvent::ReleaseCounts(released),
                () = wait_until(timer) => SessionEvent::Timer,
            }
        };
        let Some(end) = looking else { return next.await };
        tokio::select! {
            biased;
            woke = next => woke,
            () = busy_poll::poll(|| end) => SessionEvent::Looked,
        }
    }

    pub async fn on_woke(&mut self, client: &mut impl Client, woke: SessionEvent<U>) {
        match woke {
            // The reader remembers a failed stream.
            SessionEvent::Written(Ok(())) => {
                self.looking =
                    busy_poll::is_useful().then(|| std::time::Instant::now() + busy_poll::POLL_DURATION);
            }
            SessionEvent::Looked => self.looking = None,
            SessionEvent::Read(more) => self.on_server_read(more.unwrap_or(false)),
            SessionEvent::Written(Err(_)) => self.lose_server_input(),
            SessionEvent::Started(upstream, outcome) => self.on_started(client, upstream, outcome),
            SessionEvent::Exited(exit) => self.on_exit(exit),
            SessionEvent::Audited(answered) => self.connection.on_audited(client, *answered).await,
            SessionEvent::Classified(heard) => self.connection.on_classified(client, *heard).await,
            SessionEvent::VerificationOutcome(told) => self.connection.on_verified(client, told).await,
            SessionEvent::ReleaseCounts(now) => self.connection.on_released(client, now),
            SessionEvent::Timer => self.on_timer(client).await,
        }
    }

    /// Handles all complete lines, while the client reads.
    pub async fn take_server_lines(&mut self, client: &mut impl Client) {
        loop {
            if self.connection.server_must_wait(client) {
                return;
            }
            let Some(frame) = self.live.as_mut().and_then(|live| live.stdout.as_mut()?.next_frame()) else {
                break;
            };
            self.connection.record.wait_for_room().await;
            match self.connection.on_server_frame(client, frame).await {
                Step::Done => {}
                Step::Replayed(true) => self.on_replayed(),
                Step::Replayed(false) => self.kill(),
            }
        }
        self.finish_server(client).await;
    }

    /// Starts the server if a request waits, and closes its input after the client's last message.
    pub fn start_or_finish(&mut self) {
        let Options { exit_grace, has_reader, is_over, .. } = &mut self.connection.options;
        if is_over.get() {
            *exit_grace = SIGNAL_GRACE.min(*exit_grace);
        }
        if self.client_ended
            && !self.client_gone
            && has_reader.is_some_and(|has_reader| is_over.get() || !has_reader())
        {
            self.on_client_gone();
        }
        self.start_if_needed();
        self.close_if_done();
    }

    /// The client sends nothing more.
    pub async fn end_input(&mut self, client: &mut impl Client) {
        let is_first = !std::mem::replace(&mut self.client_ended, true);
        self.connection.drop_audits(client).await;
        self.connection.stop_waiting(client).await;
        if is_first && self.options().has_reader.is_some() {
            self.connection.finish_requests();
        }
    }

    /// The client reads nothing more.
    pub fn on_client_gone(&mut self) {
        self.client_gone = true;
        self.client_ended = true;
        self.connection.to_server.clear();
        self.connection.held = Vec::new();
        self.connection.audits.cancel_all();
        self.connection.answers.forget();
        self.connection.listing.forget();
        self.connection.interface_check.forget();
    }

    pub fn is_client_gone(&self) -> bool {
        self.client_gone
    }

    /// It cannot answer: new messages wait for the next one.
    pub fn is_dying(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.dying)
    }

    /// No request is open, in either direction.
    pub fn is_done(&self) -> bool {
        let Options { is_over, runs_without_input, .. } = &self.connection.options;
        let is_awaited = *runs_without_input && !is_over.get();
        self.client_ended
            && self.live.is_none()
            && self.connection.audits.is_empty()
            && self.connection.answers.is_empty()
            && self.connection.interface_check.is_idle()
            && (!matches!(self.launch, Launch::Starting(_))
                || self.client_gone
                || self.connection.held.is_empty() && !is_awaited)
    }

    pub fn into_ended(self) -> ConnectionEnd {
        self.ended
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

    fn on_started(&mut self, client: &mut impl Client, upstream: U, outcome: Outcome<U>) {
        self.launch = Launch::Stopped(upstream);
        let now = Instant::now();
        match outcome {
            Err(error) => {
                self.not_before = now + self.backoff.delay_after(now, now);
                self.connection.on_start_failed(client, error);
            }
            Ok(Running { stdin, stdout, exit, kill, told }) => {
                self.connection.on_started();
                let lines = self.connection.options.server_lines.clone();
                let replaying = matches!(self.connection.phase, Phase::Replaying(_));
                self.live = Some(ServerStreams {
                    stdin: Some(stdin),
                    stdout: Some(LineReader::new(stdout, self.limit).with_budget(lines)),
                    exit: Some(exit),
                    exited: None,
                    kill,
                    told,
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

    /// The server reads nothing more, so it is of no use.
    fn lose_server_input(&mut self) {
        self.connection.to_server.clear();
        if let Some(live) = &mut self.live {
            live.stdin = None;
            live.dying = true;
            live.limit_patience(DRAIN_LIMIT);
        }
    }

    fn kill(&mut self) {
        if let Some(live) = &mut self.live {
            (live.kill)();
            live.killed = true;
            live.dying = true;
            live.stop_at = Some(Instant::now() + KILL_LIMIT);
        }
    }

    async fn on_timer(&mut self, client: &mut impl Client) {
        self.connection.expire_requests(client).await;
        let Some(live) = &mut self.live else { return };
        if live.stop_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        if live.exited.is_some() {
            // Other processes hold the output of an ended server.
            live.stdout = None;
        } else if live.killed {
            live.exited = Some(ExitInfo { code: 137, cause: "killed".to_owned() });
            live.stdout = None;
        } else {
            self.ended.killed |= self.client_ended;
            self.kill();
        }
    }

    /// Answers the server's calls after its end and last line.
    async fn finish_server(&mut self, client: &mut impl Client) {
        let Some(live) = &mut self.live else { return };
        if live.stdout.as_ref().is_some_and(LineReader::is_at_end) {
            live.stdout = None;
        }
        if live.stdout.is_some() {
            return;
        }
        let Some(exit) = live.exited.clone() else { return };
        let (started, closing, killed) = (live.started, live.closing, live.killed);
        self.live = None;
        if self.client_ended && self.connection.from_client.len() == 0 {
            self.connection.phase = Phase::Idle;
            self.connection.held = Vec::new();
        } else {
            let now = Instant::now();
            let wait = self.backoff.delay_after(started, now);
            self.not_before = now + wait;
            // Its input was closed after the client's, so it ended as asked. The exit status matters only if a request
            // waited.
            let was_asked = closing && (killed || exit.code == 0 || !self.awaits_answers());
            let end = match (was_asked, self.client_ended) {
                (true, _) => ServerEnd::Asked,
                (false, true) => ServerEnd::Last,
                (false, false) => {
                    ServerEnd::Crash { restart_in_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) }
                }
            };
            self.connection.on_server_ended(client, &exit, end).await;
        }
        self.ended.exit = Some(exit);
    }

    /// Whether the client still waits for answers.
    fn awaits_answers(&self) -> bool {
        self.options().has_reader.is_some()
            && !self.client_gone
            && self.connection.from_client.next_deadline().is_some()
    }

    fn options(&self) -> &Options {
        &self.connection.options
    }

    /// After the client's last message, closes the server's input, and starts its deadline when no answer is awaited.
    fn close_if_done(&mut self) {
        if !self.client_ended {
            return;
        }
        let (awaits, Options { exit_grace, holds_input, .. }) = (self.awaits_answers(), self.options());
        let (grace, holds) = (*exit_grace, *holds_input && awaits);
        let Connection { to_server, held, listing, interface_check, .. } = &self.connection;
        let delivered =
            to_server.is_idle() && held.is_empty() && listing.is_idle() && interface_check.is_idle();
        if let Some(live) = &mut self.live {
            if !holds {
                live.closing = true;
                live.told.set(live.told.get() || delivered && !awaits);
                live.stdin.take_if(|_| delivered);
            }
            if !awaits {
                live.limit_patience(grace);
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let looks = self.client_ended && self.awaits_answers();
        let look = looks.then(|| Instant::now() + POLL_INTERVAL);
        let stop_at = self.live.as_ref().and_then(|live| live.stop_at);
        let doubted = self.connection.doubted.values().map(|doubt| doubt.at).min();
        [stop_at, look, doubted, self.connection.from_client.next_deadline()].into_iter().flatten().min()
    }
}

impl<I, O> ServerStreams<I, O> {
    /// Sets the deadline, unless an earlier one is set.
    fn limit_patience(&mut self, limit: Duration) {
        let at = Instant::now() + limit;
        self.stop_at = Some(self.stop_at.map_or(at, |sooner| sooner.min(at)));
    }
}

/// An abandoned connection kills its server.
impl<I, O> Drop for ServerStreams<I, O> {
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

async fn wait_until(at: Option<Instant>) {
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
