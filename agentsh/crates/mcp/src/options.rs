//! What one connection needs to know besides its streams.

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
use super::relist::ReleaseCounts;
use super::vouch::RegistryVerifier;

/// Settings of one server connection.
#[derive(Clone, Debug)]
pub struct Options {
    pub server: ServerId,
    /// As `mcp_tool_seen` shows it.
    pub server_type: ServerType,
    /// Longest line in either direction, in bytes.
    pub max_line_bytes: usize,
    /// Memory for long lines of clients, and of this server: each shared with other connections of the session.
    pub client_lines: Budget,
    pub server_lines: Budget,
    /// How long a client's request may stay without an answer or progress; None leaves it to the client.
    pub request_timeout: Option<Duration>,
    /// How long a server may go on after its input was closed.
    pub exit_grace: Duration,
    /// Says whether somebody reads what goes to the client. With it, the end of the client's input lets open requests finish,
    /// which have 60 s from then on where `request_timeout` is None; without it a server has `exit_grace` for them.
    pub has_reader: Option<HasReader>,
    /// The end of the client's input says nothing about the client: it is a file. The server's is closed only when its calls
    /// are done, as some servers give them up then.
    pub holds_input: bool,
    /// Turns a call's arguments into what the event log may show.
    pub redact: fn(&Json<'_>) -> Value,
    /// Hashes of tools that earlier connections saw.
    pub known: KnownTools,
    /// Whether tools of this server were trusted before. Then a call of one that was not listed waits for a listing.
    pub has_trusted: HasTrusted,
    /// The moment from which rate limits count: the same one for every connection of a session.
    pub epoch: Instant,
    /// Is asked about every call that everything else lets pass. With one, the connection must be served inside a
    /// `LocalSet`.
    pub audit: Option<Rc<dyn Audit>>,
    /// Is asked where the decision is `ask`. Without one such a call is refused. As `audit`, inside a `LocalSet`.
    pub approve: Option<Rc<dyn Approve>>,
    /// Is shown what the server sends. As `audit`, inside a `LocalSet`.
    pub classify: Option<Rc<dyn Classify>>,
    /// What stands under `_meta` of results of calls, beside what the server says.
    pub about: ResultNotice,
    /// Is asked about all that a server offers, before the client hears of it. As `audit`, inside a `LocalSet`.
    pub vouch: Option<Rc<dyn RegistryVerifier>>,
    /// Tells when something is shown that was kept from the client.
    pub released: Option<watch::Receiver<ReleaseCounts>>,
    /// Is told of a tool of another server that a client may have been shown, and that is blocked since.
    pub displaced: DisplacedToolSink,
    /// Requests say from where they came to the gateway.
    pub tells_caller: bool,
    /// Tells the user what a server does wrong.
    pub note: NoteSink,
}

/// Says whether somebody can still read what is written to a client.
#[derive(Clone)]
pub struct HasReader(pub Rc<dyn Fn() -> bool>);

impl std::fmt::Debug for HasReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HasReader")
    }
}

/// Hears of tools that were shown and may not be used any more.
#[derive(Clone)]
pub struct DisplacedToolSink(pub Rc<dyn Fn(&ToolId)>);

impl std::fmt::Debug for DisplacedToolSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DisplacedToolSink")
    }
}

type HashOf = dyn Fn(&str) -> Option<String>;

/// Gives the hash that a tool of this server had before this connection.
#[derive(Clone)]
pub struct KnownTools(pub Rc<HashOf>);

impl std::fmt::Debug for KnownTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KnownTools")
    }
}

/// Says whether tools of a server were trusted before this connection.
#[derive(Clone)]
pub struct HasTrusted(pub Rc<dyn Fn() -> bool>);

impl std::fmt::Debug for HasTrusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HasTrusted")
    }
}

/// Gives JSON that is told of a server with each of its results.
#[derive(Clone)]
pub struct ResultNotice(pub Rc<ServerNoticeFn>);

type ServerNoticeFn = dyn Fn() -> Option<Rc<str>>;

impl std::fmt::Debug for ResultNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResultNotice")
    }
}

/// Somebody who is told something, in words and not escaped.
#[derive(Clone)]
pub struct NoteSink(pub Rc<dyn Fn(&str)>);

impl std::fmt::Debug for NoteSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoteSink")
    }
}

impl Options {
    /// Defaults: `stdio`, lines of 16 MiB, no timeout, 2 s to exit, nothing known, arguments not shown, and
    /// nobody who is asked about them.
    #[must_use]
    pub fn new(server: ServerId) -> Self {
        Self {
            server,
            server_type: ServerType::Stdio,
            max_line_bytes: super::framing::DEFAULT_LIMIT,
            client_lines: Budget::default(),
            server_lines: Budget::default(),
            request_timeout: None,
            exit_grace: Duration::from_secs(2),
            has_reader: None,
            holds_input: false,
            redact: |_| Value::Null,
            known: KnownTools(Rc::new(|_| None)),
            has_trusted: HasTrusted(Rc::new(|| false)),
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
