//! The state of one server connection. It does no input or output: lines go in, messages go to
//! the client and collect in an outbox for the server.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::guard::threads::apart;
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
use super::reject::AmbiguousAnswer;
use super::relist::Relisting;
use super::reply::{self, ErrorReply};
use super::vouch::ConnectionVerifier;

/// A matter of so many bytes takes longer to judge than another thread takes to wake up.
const MIN_OFFLOAD_BYTES: usize = 8 << 10;

pub(super) struct Connection<R> {
    pub options: Options,
    pub guard: Rc<RefCell<Guard>>,
    pub record: R,
    pub phase: Phase,
    pub to_server: Outbox,
    /// Messages for a server that is not ready yet, each with its newline.
    pub held: Vec<u8>,
    /// Calls that somebody is asked about, before they are sent to the server.
    pub audits: Audits,
    /// Answers of the server that a classifier is asked about.
    pub answers: Answers,
    /// Requests that the client sent to the server.
    pub from_client: Pending,
    /// Requests that the server sent to the client.
    pub from_server: Pending,
    /// Hash of every tool that this connection listed.
    pub tools: BTreeMap<String, String>,
    /// How often a tool became another one.
    pub changes: u64,
    pub listing: Listing,
    /// Pages that the client was shown and has said nothing to.
    pub shown: BTreeSet<Key>,
    pub vouching: ConnectionVerifier,
    pub relisting: Relisting,
    pub handshake: Handshake,
    /// Who asks, as far as the client said.
    pub audience: String,
    /// From where the newest request came.
    pub caller: Option<Rc<Caller>>,
    pub serial: u64,
    /// The client sends nothing more, and its requests may finish.
    pub input_ended: bool,
    /// What came may have been its answer.
    pub doubted: Option<AmbiguousAnswer>,
    /// Messages of the server that were refused, as far as the user was told of them.
    pub told_faults: u32,
    /// What is kept from the client, as far as the user was told of it.
    pub told_hidden: BTreeSet<String>,
}

/// Where the server is.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Not running; the next request starts it.
    Idle,
    Starting,
    /// Running, but the remembered handshake is not answered yet.
    Replaying(Key),
    Ready,
    /// Policy does not let it run.
    Refused(Verdict),
    /// It cannot be started: why, and the stable code of that.
    Failed(String, &'static str),
}

/// What the client said first, to be said again to a server that was started again.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// JSON text of the parameters of `initialize`.
    pub params: Option<String>,
    /// The server agreed.
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
    /// As the record has it.
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
            vouching: ConnectionVerifier::default(),
            relisting,
            handshake: Handshake::default(),
            audience: String::new(),
            caller: None,
            serial: 0,
            input_ended: false,
            doubted: None,
            told_faults: 0,
            told_hidden: BTreeSet::new(),
        }
    }

    /// Whether the client has to wait: the server does not read, or the client does not read our answers.
    pub fn client_must_wait(&self, client: &impl Client) -> bool {
        const SLACK: usize = 4 << 20;
        self.to_server.is_full()
            || self.held.len() > (1 << 20)
            || self.audits.bytes() > SLACK
            || client.waiting() > SLACK
    }

    /// Whether the server has to wait, for the same reasons.
    pub fn server_must_wait(&self, client: &impl Client) -> bool {
        const SLACK: usize = 4 << 20;
        client.is_full() || self.to_server.waiting() > SLACK || self.answers.bytes() > SLACK
    }

    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Replaying(_) | Phase::Ready)
    }

    /// Time since the session's epoch, for the guard.
    pub fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.options.epoch)
    }

    /// When a request that is sent now is overdue.
    pub fn deadline(&self) -> Option<Instant> {
        self.timeout().map(|timeout| Instant::now() + timeout)
    }

    /// A timeout of nothing would never let a request be extended.
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

    /// Asks the guard about one message: what it asks for, and what it carries beside that. Long parts are looked at on
    /// another thread first: this connection waits for that, so that its messages keep their order, and nobody else does.
    pub async fn decide_apart(&self, matter: SubjectKind<'_>, beside: Option<SubjectKind<'_>>) -> Decision {
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

    /// What another thread sees of a long part. What nobody could look at elsewhere is looked at by the guard.
    async fn look_ahead(&self, part: SubjectKind<'_>, now: Duration) -> PrecomputedFindings {
        if part.value().is_none_or(|value| value.length() < MIN_OFFLOAD_BYTES) {
            return PrecomputedFindings::default();
        }
        let Some(errand) = self.guard.borrow_mut().errand(&self.options.server, part, now) else {
            return PrecomputedFindings::default();
        };
        let (tell, told) = oneshot::channel();
        // A connection that is gone does not want to know.
        apart(move || drop(tell.send(errand.run())));
        told.await.unwrap_or_default()
    }

    /// Queues a message for the server; before the server is ready it is held.
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

    /// Puts an event on disk. A store that fails here says so through `Recorder::broken`, and what follows is refused.
    pub async fn commit(&self, event: Event) {
        let _broken_is_asked_before_anything_is_forwarded = self.record.commit(event).await;
    }

    /// The error for everything that asks for something while nothing can be recorded.
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
