//! The socket on which the agent's bridges arrive, and the proxy that serves each of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::Instant;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::{Check, Guard};
use agentsh_mcp::aggregate::{AggregateOptions, Member};
use agentsh_mcp::bridge_accept::Arrival;
use agentsh_mcp::{Audit, NoteSink, Options};
use agentsh_store::words::{LayerState, ServerType};
use agentsh_store::{Event, redact};

use super::content::{self, Content};
use super::content_scan::ContentScan;
use super::declared::Declared;
use super::either::UpstreamKind;
use super::inventory::Inventory;
use super::places::{Places, Repeats};
use super::remote::Remote;
use super::server::{ErrorOutput, Server};
use super::signals::{self, SignalSetupError};
use super::{Session, standard, why};
use agentsh_approvals::{ApprovalSession, Approvals};
use agentsh_verifier::Asker;

/// Longer than all graces of a server together; one that is still being started is not waited for.
const MAX_END: Duration = Duration::from_secs(6);

/// How a server is reached, as the record of its tools shows it.
pub const STDIO: ServerType = ServerType::Stdio;
pub const HTTP: ServerType = ServerType::Http;

/// What every connection of a session shares: one guard, so that rates count over all of them.
pub struct Bridges {
    session: Rc<Session>,
    guard: Rc<RefCell<Guard>>,
    epoch: Instant,
    audit: Option<Rc<dyn Audit>>,
    classify: Option<Rc<dyn agentsh_mcp::Classify>>,
    inventory: Inventory,
    approvals: Rc<Approvals>,
    declared: BTreeMap<ServerId, Declared>,
    places: Rc<Places>,
    /// Of the one client that has our standard input and output.
    reader: Option<agentsh_mcp::HasReader>,
    holds_input: bool,
    /// Requests say from where they came to the gateway.
    tells_caller: bool,
    /// Of connections that are not served, by reason.
    unserved: RefCell<BTreeMap<&'static str, Repeats>>,
    /// Connections that are served now.
    served: watch::Sender<usize>,
}

impl Bridges {
    #[must_use]
    pub fn new(session: Rc<Session>, declared: BTreeMap<ServerId, Declared>) -> Self {
        Self::in_order(session, declared, &[])
    }

    /// The same for servers that were declared in this order.
    #[must_use]
    pub fn in_order(
        session: Rc<Session>,
        declared: BTreeMap<ServerId, Declared>,
        order: &[ServerId],
    ) -> Self {
        if !declared.is_empty() {
            ContentScan::warm_up();
        }
        let inventory = Inventory::new(&session.facts);
        let mut guard = Guard::of_declared(&session.facts.policy.mcp, order);
        // What a scan hides is not trusted at first sight.
        guard.add(Arc::new(ContentScan::new(&session.facts.policy.mcp)));
        if session.live.registered.settings().is_some() {
            guard.add(session.live.registered.clone());
        }
        guard.add(session.live.interfaces.clone());
        guard.add(inventory.check());
        Self::with(session, declared, guard, inventory)
    }

    /// With the lists and rates of the policy alone: for whoever wants to see what servers offer as they offer it.
    #[must_use]
    pub fn unscanned(session: Rc<Session>, declared: BTreeMap<ServerId, Declared>) -> Self {
        let (guard, inventory) = (Guard::new(&session.facts.policy.mcp), Inventory::new(&session.facts));
        Self::with(session, declared, guard, inventory)
    }

    /// The same without the lists of tools: what a registry knows of a server is all that it offers.
    #[must_use]
    pub fn as_offered(session: Rc<Session>) -> Self {
        let (guard, inventory) =
            (Guard::of_servers(&session.facts.policy.mcp), Inventory::new(&session.facts));
        Self::with(session, BTreeMap::new(), guard, inventory)
    }

    fn with(
        session: Rc<Session>,
        declared: BTreeMap<ServerId, Declared>,
        guard: Guard,
        inventory: Inventory,
    ) -> Self {
        let approvals = Rc::new(Approvals::new(ApprovalSession {
            facts: Rc::clone(&session.facts),
            record: Rc::clone(&session.record),
            interfaces: session.live.interfaces.clone(),
            pins: Arc::clone(&session.live.pins),
            page: Rc::clone(&session.live.approvals_page),
        }));
        session.live.logins.ask_by(&approvals);
        approvals.ask_about_changes();
        let places = Rc::new(Places::new(session.facts.policy.mcp.max_line_bytes));
        Self {
            session,
            guard: Rc::new(RefCell::new(guard)),
            epoch: Instant::now(),
            audit: None,
            classify: None,
            inventory,
            approvals,
            declared,
            places,
            reader: None,
            holds_input: false,
            tells_caller: false,
            unserved: RefCell::default(),
            served: watch::Sender::default(),
        }
    }

    /// The questions of the session.
    #[must_use]
    pub fn approvals(&self) -> Approvals {
        Approvals::clone(&self.approvals)
    }

    /// What decides about everything that passes here, and since when it counts time.
    #[must_use]
    pub fn guard(&self) -> (Rc<RefCell<Guard>>, Instant) {
        (Rc::clone(&self.guard), self.epoch)
    }

    /// With what the policy asks for under `exfiltration`.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn with_policy(self) -> std::io::Result<Self> {
        let policy = &self.session.facts.policy.mcp.exfiltration;
        if !policy.enabled {
            return Ok(self);
        }
        let settings =
            content::Settings::in_run(policy, Rc::clone(&self.session.live.labels), self.approvals.can_ask());
        let mut content = Content::new(settings, self.session.record.journal.clone())?;
        // With one server nothing goes from one to another; what the agent read may all the same.
        let has_servers = !self.declared.is_empty();
        if has_servers && self.session.facts.project_shown {
            let seeded = content.seed(&self.session.facts.context.project);
            self.tell_unseen(seeded);
        }
        Ok(self.with_check(content))
    }

    /// What the agent reads itself is seen by nobody here, but for secrets of files that were looked at.
    fn tell_unseen(&self, seeded: usize) {
        self.session.record.journal.record(Event::Enforcement {
            server_id: None,
            layer: "data flow".to_owned(),
            asked: "data that the agent reads does not reach servers".to_owned(),
            // The same for every run of a machine, so that it is said once.
            got: "secrets of the project's files".to_owned(),
            state: LayerState::Degraded,
            why: format!(
                "agentsh does not see what the agent reads with its own tools; it knows the secrets of {seeded} files"
            ),
        });
    }

    /// With the classifier of the policy.
    ///
    /// # Errors
    /// An address that may not be used, or a key that is not there.
    pub fn with_classifier(self) -> Result<Self, super::run_error::RunError> {
        let classify = super::classifying::of_policy(&self.session)?;
        Ok(Self { classify, ..self })
    }

    /// For the one client that has our standard input and output: what it asked for may finish when its input has ended,
    /// unless everything is to end.
    #[must_use]
    pub fn with_standard_client(self, is_over: Rc<Cell<bool>>) -> Self {
        let reader = agentsh_mcp::HasReader(Rc::new(move || !is_over.get() && standard::has_reader()));
        Self { reader: Some(reader), holds_input: standard::input_is_file(), ..self }
    }

    /// For clients of the gateway, which says of each request from where it came.
    #[must_use]
    pub fn with_callers(self) -> Self {
        Self { tells_caller: true, ..self }
    }

    /// With one check more, which is asked after those of the lists and rates.
    #[must_use]
    pub fn with_check(self, check: impl Check + 'static) -> Self {
        self.guard.borrow_mut().add(check);
        self
    }

    /// With somebody who is asked about every call.
    #[must_use]
    pub fn with_audit(self, audit: Option<Rc<dyn Audit>>) -> Self {
        Self { audit, ..self }
    }

    /// Accepts bridges until dropped.
    pub async fn serve(self: Rc<Self>, listener: UnixListener) {
        loop {
            // Who connects and says nothing keeps others waiting for a moment, and takes no more than this.
            let Ok(unnamed) = Arc::clone(&self.places.unnamed).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: let some connection end first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let bridges = Rc::clone(&self);
            tokio::task::spawn_local(async move {
                match agentsh_mcp::bridge_accept::arrive(stream).await {
                    Ok(Arrival::Bridge(accepted)) => {
                        drop(unnamed);
                        bridges.connection(*accepted).await;
                    }
                    // Who does not take its answer keeps its place, for a bounded time.
                    Ok(Arrival::Why { word, stream }) => why::answer(&bridges.session, &word, stream).await,
                    Err(error) => bridges.refuse("", "no-header", &error.to_string()),
                }
            });
        }
    }

    async fn connection(&self, accepted: agentsh_mcp::bridge_accept::Accepted) {
        let id = &accepted.header.server;
        let Some(declaration) = self.declared.get(id) else {
            return self.refuse(&id.0, "not-declared", "no server with that name is configured");
        };
        let place = match self.places.take(id) {
            Ok(place) => place,
            Err(why) => {
                const REASON: &str = "too-many-connections";
                self.refuse(&id.0, REASON, &why);
                let Some(_told) = self.places.to_be_told() else { return };
                return agentsh_mcp::turn_away::turn_away(accepted.input, accepted.output, REASON, &why)
                    .await;
            }
        };
        let (session, id) = (Rc::clone(&self.session), id.clone());
        let (input, output) = (accepted.input, accepted.output);
        match declaration.clone() {
            Declared::Command(declaration) => {
                let server = Server::new(session, declaration, ErrorOutput::Kept);
                self.proxy(input, output, server, id, STDIO).await;
            }
            Declared::Url(declaration) => {
                self.proxy(input, output, Remote::new(session, declaration), id, HTTP).await;
            }
        }
        drop(place);
    }

    /// The first refusals are told and recorded one by one, and of the rest how many they are: an agent can ask without
    /// end, and for names that it makes up.
    fn refuse(&self, id: &str, reason: &'static str, why: &str) {
        let Some(count) = self.unserved.borrow_mut().entry(reason).or_default().due() else { return };
        let shown: String = agentsh_store::escape::line(id).chars().take(80).collect();
        let times = if count > 1 { format!(" ({count} times, last)") } else { String::new() };
        self.session
            .record
            .note(&format!("refused a connection of the agent to server '{shown}'{times}: {why}"));
        self.session.record.journal.record(Event::McpServerRefused {
            server_id: ServerId(shown),
            reason: reason.to_owned(),
            detail: format!("{why}{times}"),
            rule: RuleRef::default_rule("connections"),
        });
    }

    /// Waits until the servers of clients that are gone have ended: each had its input closed, hears SIGTERM after a grace
    /// and is killed after another. Who asks this process to end meanwhile does not wait.
    ///
    /// # Errors
    /// When nobody could be heard.
    pub async fn drained(&self) -> Result<(), SignalSetupError> {
        let mut served = self.served.subscribe();
        let again = signals::end()?;
        tokio::select! {
            _none = served.wait_for(|count| *count == 0) => {}
            _code = again => {}
            () = tokio::time::sleep(MAX_END) => {}
        }
        Ok(())
    }

    /// Writes down what was counted since.
    pub fn finish(&self) {
        self.keep_inventory();
        for (reason, repeats) in self.unserved.take() {
            let Some(rest) = repeats.rest() else { continue };
            self.session.record.journal.record(Event::McpServerRefused {
                server_id: ServerId(String::new()),
                reason: reason.to_owned(),
                detail: format!("{rest} further connections"),
                rule: RuleRef::default_rule("connections"),
            });
        }
    }

    /// Serves one connection with one server, until the client closes it.
    pub async fn proxy(
        &self,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin,
        server: impl agentsh_mcp::Upstream + 'static,
        id: ServerId,
        kind: ServerType,
    ) -> agentsh_mcp::ConnectionEnd {
        let _served = Served::new(&self.served);
        let mut options = self.options(id);
        options.server_type = kind;
        // The end of the input of a server behind a URL ends its streams, and what comes by them.
        options.holds_input |= kind == HTTP;
        let record = self.session.record.journal.clone();
        let ended = agentsh_mcp::serve(input, output, server, Rc::clone(&self.guard), record, options).await;
        self.session.keep_interfaces().await;
        self.keep_inventory();
        ended
    }

    /// Serves one client with several servers as one, until it closes its end.
    pub async fn aggregate(
        &self,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin,
        servers: Vec<(ServerId, UpstreamKind)>,
        own: Box<dyn agentsh_mcp::aggregate::OwnTools>,
    ) {
        let members = servers.into_iter().map(|(id, upstream)| {
            let mut options = self.options(id);
            options.server_type = if matches!(upstream, UpstreamKind::Url(_)) { HTTP } else { STDIO };
            Member { upstream, options }
        });
        let session = Rc::clone(&self.session);
        let front = AggregateOptions {
            max_line_bytes: usize::try_from(session.facts.policy.mcp.max_line_bytes).unwrap_or(usize::MAX),
            own,
            note: Box::new(move |message| session.record.note_lack(message)),
        };
        let record = self.session.record.journal.clone();
        agentsh_mcp::aggregate::serve(
            input,
            output,
            members.collect(),
            Rc::clone(&self.guard),
            record,
            front,
        )
        .await;
        self.keep_inventory();
    }

    fn keep_inventory(&self) {
        if let Err(error) = self.inventory.keep() {
            self.session.record.note(&format!("cannot store the usual behaviour of servers: {error}"));
        }
    }

    fn options(&self, id: ServerId) -> Options {
        let policy = &self.session.facts.policy.mcp;
        self.inventory.meet(&id);
        let mut options = Options::new(id);
        options.max_line_bytes = usize::try_from(policy.max_line_bytes).unwrap_or(usize::MAX);
        options.client_lines = self.places.client_lines.clone();
        options.server_lines = self.places.server_lines(&options.server);
        options.request_timeout = policy.request_timeout_s.map(Duration::from_secs);
        options.redact = |arguments| redact::redact(&arguments.to_value());
        options.epoch = self.epoch;
        let (interfaces, server) = (self.session.live.interfaces.clone(), options.server.clone());
        options.known = agentsh_mcp::KnownTools(Rc::new(move |tool| interfaces.hash_of(&server, tool)));
        let (interfaces, server) = (self.session.live.interfaces.clone(), options.server.clone());
        options.has_trusted = agentsh_mcp::HasTrusted(Rc::new(move || interfaces.knows_tools(&server)));
        options.released = Some(self.session.live.interfaces.released(&options.server));
        let interfaces = self.session.live.interfaces.clone();
        options.displaced =
            agentsh_mcp::DisplacedToolSink(Rc::new(move |tool| interfaces.relist(&tool.server)));
        options.has_reader.clone_from(&self.reader);
        options.holds_input = self.holds_input;
        options.tells_caller = self.tells_caller;
        options.audit.clone_from(&self.audit);
        options.classify.clone_from(&self.classify);
        let (session, server) = (Rc::clone(&self.session), options.server.clone());
        options.about =
            agentsh_mcp::ResultNotice(Rc::new(move || session.live.advised.borrow().get(&server).cloned()));
        options.approve = Some(Rc::clone(&self.approvals) as Rc<dyn agentsh_mcp::Approve>);
        options.vouch = Asker::new(&self.session.facts, &self.session.record, &self.session.live.registered)
            .map(|asker| Rc::new(asker) as Rc<dyn agentsh_mcp::RegistryVerifier>);
        let session = Rc::clone(&self.session);
        options.note =
            NoteSink(Rc::new(move |message| session.record.note(&agentsh_store::escape::line(message))));
        options
    }
}

/// A connection while it is served.
struct Served<'a>(&'a watch::Sender<usize>);

impl<'a> Served<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// The name of the socket in its directory.
pub const SOCKET: &str = "bridge";

/// The listening socket, open to the sandbox's user alone: who reaches the directory is decided by the mounts.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(directory: &Path) -> std::io::Result<(UnixListener, PathBuf)> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(SOCKET);
    // By way of a descriptor: the path of a socket has room for 107 bytes, and the directory may be deep.
    let opened = std::fs::File::open(directory)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()))?;
    // The directory is 0700 on the host; inside, the socket is bound alone and the sandbox may have another id.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    Ok((listener, path))
}
