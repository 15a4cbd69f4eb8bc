//! The settings of one connection.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::json::Json;
use crate::store::words::ServerType;
use crate::types::{ServerId, ToolId};

use super::audit::{Approve, Audit};
use super::classify::Classify;
use super::framing::Budget;
use super::registry_check::RegistryVerifier;
use super::relist::ReleaseCounts;

#[derive(Clone, Debug)]
pub struct Options {
    pub server: ServerId,
    /// The client of the gateway; None: not the gateway.
    pub client: Option<Rc<str>>,
    /// For `mcp_tool_seen`.
    pub server_type: ServerType,
    /// Longest line in either direction, in bytes.
    pub max_line_bytes: usize,
    /// Memory for long lines of clients and of this server, shared with other connections.
    pub client_lines: Budget,
    pub server_lines: Budget,
    /// Timeout of a client's request without answer or progress; None: none.
    pub request_timeout: Option<Duration>,
    /// How long a server may run after its input was closed.
    pub exit_grace: Duration,
    /// Whether the client is still read. If so, open requests may finish after the client's input ended, within 60 s
    /// if `request_timeout` is None; else the server has `exit_grace`.
    pub has_reader: Option<fn() -> bool>,
    /// A signal ended everything: nobody waits, and the server gets SIGTERM soon.
    pub is_over: Rc<Cell<bool>>,
    /// The client's input is a file, whose end says nothing. The server's input stays open until its calls are done.
    pub holds_input: bool,
    /// The server is started also if the client's input ends before that: its exit status counts.
    pub runs_without_input: bool,
    /// Redacts arguments for events.
    pub redact: Redaction,
    /// Hashes of tools from earlier connections.
    pub known: KnownTools,
    /// Calls are judged by the definitions of their tools: one of a tool that was not listed waits for a listing.
    pub lists_first: bool,
    /// The same for prompts and resources.
    pub lists_offers_first: JudgesOffers,
    /// Start of rate limits, the same for all connections of a session.
    pub epoch: Instant,
    /// Asked about every call that all checks allow. Then serve inside a `LocalSet`.
    pub audit: Option<Rc<dyn Audit>>,
    /// Asked if the decision is `ask`. Without it such a call is refused. Needs a `LocalSet`.
    pub approve: Option<Rc<dyn Approve>>,
    /// Gets what the server sends. Needs a `LocalSet`.
    pub classify: Option<Rc<dyn Classify>>,
    /// Facts for `_meta` of call results.
    pub about: ResultNotice,
    /// Asked about the interface before the client gets it. Needs a `LocalSet`.
    pub vouch: Option<Rc<dyn RegistryVerifier>>,
    /// Signals that a hidden entry was released.
    pub released: Option<watch::Receiver<ReleaseCounts>>,
    /// Gets tools of other servers that are blocked after they were shown.
    pub displaced: DisplacedToolSink,
    /// Requests have the gateway's caller.
    pub tells_caller: bool,
    /// Reports the server's faults to the user.
    pub note: NoteSink,
}

/// Gets tools that were shown and are blocked now.
#[derive(Clone)]
pub struct DisplacedToolSink(pub Rc<dyn Fn(&ToolId)>);

type HashOf = dyn Fn(&str, (&str, &Json<'_>)) -> Option<String>;

/// Returns a tool's hash from before this connection; the one that is offered now, given with its definition, where the two
/// definitions differ in nothing that counts.
#[derive(Clone)]
pub struct KnownTools(pub Rc<HashOf>);

/// Whether the definition of a prompt or a resource may decide about its use.
#[derive(Clone)]
pub struct JudgesOffers(pub Rc<dyn Fn() -> bool>);

/// Returns JSON to add to each result of a server.
#[derive(Clone)]
pub struct ResultNotice(pub Rc<ServerNoticeFn>);

type ServerNoticeFn = dyn Fn() -> Option<Rc<str>>;

/// Arguments as the journal gets them.
#[derive(Clone)]
pub struct Redaction(pub Rc<dyn Fn(&Json<'_>) -> Value>);

/// Gets messages for the user, not escaped.
#[derive(Clone)]
pub struct NoteSink(pub Rc<dyn Fn(&str)>);

macro_rules! shown_by_name {
    ($($name:ident),+) => {
        $(impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        })+
    };
}

shown_by_name!(DisplacedToolSink, JudgesOffers, KnownTools, Redaction, ResultNotice, NoteSink);

impl Options {
    /// Defaults: `stdio`, lines of 16 MiB, no timeout, 2 s to exit, no known tools, arguments omitted, and no
    /// questions.
    #[must_use]
    pub fn new(server: ServerId) -> Self {
        Self {
            server,
            client: None,
            server_type: ServerType::Stdio,
            max_line_bytes: super::framing::DEFAULT_LIMIT,
            client_lines: Budget::default(),
            server_lines: Budget::default(),
            request_timeout: None,
            exit_grace: Duration::from_secs(2),
            has_reader: None,
            is_over: Rc::default(),
            holds_input: false,
            runs_without_input: false,
            redact: Redaction(Rc::new(|_| Value::Null)),
            known: KnownTools(Rc::new(|_, _| None)),
            lists_first: false,
            lists_offers_first: JudgesOffers(Rc::new(|| false)),
            epoch: Instant::now(),
            audit: None,
            approve: None,
            classify: None,
            about: ResultNotice(Rc::new(|| None)),
            vouch: None,
            released: None,
            displaced: DisplacedToolSink(Rc::new(|_| {})),
            tells_caller: false,
            note: NoteSink(Rc::new(|_| {})),
        }
    }
}
