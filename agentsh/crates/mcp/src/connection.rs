//! The state of one server connection, without input and output.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::guard::threads::run_in_pool;
use crate::guard::{Caller, Decision, Guard, PrecomputedFindings, SubjectKind, Verdict};
use crate::json::Json;
use crate::store::words::Sender;
use crate::store::{Event, Recorder};

use super::audit::Audits;
use super::classify::Answers;
use super::client::Client;
use super::jsonrpc::Key;
use super::listing::Listing;
use super::options::Options;
use super::outbox::Outbox;
use super::pending::Pending;
use super::registry_check::ConnectionVerifier;
use super::reject::AmbiguousAnswer;
use super::relist::Relisting;
use super::reply::{self, ErrorReply};

/// From this size, judging takes longer than waking another thread.
const MIN_OFFLOAD_BYTES: usize = 8 << 10;

pub(super) struct Connection<R> {
    pub options: Options,
    pub guard: Rc<RefCell<Guard>>,
    pub record: R,
    pub phase: Phase,
    pub to_server: Outbox,
    /// Messages for a server that is not ready, with newlines.
    pub held: Vec<u8>,
    /// Calls that wait for a person or auditors.
    pub audits: Audits,
    /// Answers that wait for the classifier.
    pub answers: Answers,
    /// Open requests of the client.
    pub from_client: Pending,
    /// Open requests of the server.
    pub from_server: Pending,
    /// Hashes of listed tools.
    pub tools: BTreeMap<String, String>,
    /// How often a tool changed.
    pub changes: u64,
    pub listing: Listing,
    /// Pages shown to the client and not acknowledged.
    pub shown: BTreeSet<Key>,
    pub interface_check: ConnectionVerifier,
    pub relisting: Relisting,
    pub handshake: Handshake,
    /// The client's version and capabilities.
    pub audience: String,
    /// The origin of the newest request.
    pub caller: Option<Rc<Caller>>,
    pub serial: u64,
    /// The client sends nothing more; its requests may finish.
    pub input_ended: bool,
    /// Requests whose answer may have been an ambiguous one.
    pub doubted: BTreeMap<Key, AmbiguousAnswer>,
    /// Notifications to the server, less what may have answered them.
    pub unanswered_notifications: u32,
    /// Number of reported refused messages.
    pub told_faults: u32,
    /// Reported hidden entries.
    pub told_hidden: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Not running; the next request starts it.
    Idle,
    Starting,
    /// Running; the replayed handshake is not answered.
    Replaying(Key),
    Ready,
    /// The policy refuses it.
    Refused(Verdict),
    /// It cannot be started: reason and stable code.
    Failed(String, &'static str),
}

/// The client's handshake, to be replayed to a restarted server.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// JSON text of the parameters of `initialize`.
    pub params: Option<String>,
    pub agreed: bool,
    /// The client's `notifications/initialized`.
    pub initialized: Option<Vec<u8>>,
}

/// One of the two peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    /// Its name in events.
    pub fn sender(self) -> Sender {
        match self {
            Self::Client => Sender::Client,
            Self::Server => Sender::Server,
        }
    }
}

impl<R: Recorder> Connection<R> {
    pub fn new(options: Options, guard: Rc<RefCell<Guard>>, record: R) -> Self {
        let relisting = Relisting::new(options.released.clone());
        Self {
            options,
            guard,
            record,
            phase: Phase::Idle,
            to_server: Outbox::default(),
            held: Vec::new(),
            audits: Audits::default(),
            answers: Answers::default(),
            from_client: Pending::default(),
            from_server: Pending::default(),
            tools: BTreeMap::new(),
            changes: 0,
            listing: Listing::default(),
            shown: BTreeSet::new(),
            interface_check: ConnectionVerifier::default(),
            relisting,
            handshake: Handshake::default(),
            audience: String::new(),
            caller: None,
            serial: 0,
            input_ended: false,
            doubted: BTreeMap::new(),
            unanswered_notifications: 0,
            told_faults: 0,
            told_hidden: BTreeSet::new(),
        }
    }

    /// Whether to stop reading the client: the server, or the client itself, does not read.
    pub fn client_must_wait(&self, client: &impl Client) -> bool {
        const SLACK: usize = 4 << 20;
        self.to_server.is_full()
            || self.held.len() > (1 << 20)
            || self.audits.bytes() > SLACK
            || client.waiting() > SLACK
    }

    /// Whether to stop reading the server, for the same reasons.
    pub fn server_must_wait(&self, client: &impl Client) -> bool {
        const SLACK: usize = 4 << 20;
        client.is_full() || self.to_server.waiting() > SLACK || self.answers.bytes() > SLACK
    }

    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Replaying(_) | Phase::Ready)
    }

    /// Time since the session's start, for the guard.
    pub fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.options.epoch)
    }

    /// The deadline of a request sent now.
    pub fn deadline(&self) -> Option<Instant> {
        self.timeout().map(|timeout| Instant::now() + timeout)
    }

    /// A zero timeout could not be extended.
    pub fn timeout(&self) -> Option<Duration> {
        self.options.request_timeout.map(|timeout| timeout.max(Duration::from_millis(1)))
    }

    /// Asks the guard.
    pub fn decide(&self, matter: SubjectKind<'_>) -> Decision {
        let mut guard = self.guard.borrow_mut();
        guard.for_audience(&self.audience);
        guard.for_caller(self.caller.clone());
        guard.decide(&self.options.server, matter, self.now())
    }

    /// Asks the guard about a message's content and its other members. Long parts are searched on another thread
    /// first: this connection waits, to keep the order; others continue.
    pub async fn decide_offloaded(
        &self,
        matter: SubjectKind<'_>,
        beside: Option<SubjectKind<'_>>,
    ) -> Decision {
        let now = self.now();
        let mut parts = Vec::with_capacity(2);
        for part in [Some(matter), beside].into_iter().flatten() {
            parts.push((part, self.look_ahead(part, now).await));
        }
        let parts: Vec<_> = parts.iter().map(|(part, seen)| (*part, seen)).collect();
        let mut guard = self.guard.borrow_mut();
        guard.for_audience(&self.audience);
        guard.for_caller(self.caller.clone());
        guard.decide_parts(&self.options.server, &parts, now)
    }

    /// Searches a long part on another thread. What cannot be searched there, the guard searches.
    async fn look_ahead(&self, part: SubjectKind<'_>, now: Duration) -> PrecomputedFindings {
        if part.value().is_none_or(|value| value.length() < MIN_OFFLOAD_BYTES) {
            return PrecomputedFindings::default();
        }
        let Some(offload_job) = self.guard.borrow_mut().offload_job(&self.options.server, part, now) else {
            return PrecomputedFindings::default();
        };
        let (tell, told) = oneshot::channel();
        // The connection may be gone.
        run_in_pool(move || drop(tell.send(offload_job.run())));
        told.await.unwrap_or_default()
    }

    /// Queues a message for the server, or holds it until the server is ready.
    pub fn forward_to_server(&mut self, message: &Json<'_>) {
        match self.phase {
            Phase::Ready => self.to_server.push(|out| message.write(out)),
            _ => {
                message.write(&mut self.held);
                self.held.push(b'\n');
            }
        }
    }

    pub fn error_to_server(&mut self, id: Option<&str>, error: &ErrorReply) {
        if self.is_running() {
            self.to_server.push(|out| reply::write_error(out, id, error));
        }
    }

    /// Writes an event to disk. `Recorder::broken` reports a failure, after which everything is refused.
    pub async fn commit(&self, event: Event) {
        let _broken_is_asked_before_anything_is_forwarded = self.record.commit(event).await;
    }

    /// The error for all requests while nothing can be recorded.
    pub fn store_error(&self) -> Option<ErrorReply> {
        self.record.broken().map(|why| ErrorReply {
            code: reply::STORE_FAILED,
            message: format!(
                "decisions cannot be recorded any more ({why}), so nothing is forwarded; free the disk or check the \
                 state directory, then start the session again"
            ),
            reason: "store-failed",
            rule: None,
        })
    }
}
