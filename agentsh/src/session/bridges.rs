//! The socket for the agent's bridges, and a proxy for each of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::{Check, Guard};
use agentsh_mcp::aggregate::{AggregateOptions, Member};
use agentsh_mcp::bridge_accept::Arrival;
use agentsh_mcp::{Audit, NoteSink, Options};
use agentsh_policy::OnFinding;
use agentsh_store::Event;
use agentsh_store::words::{LayerState, ServerType};

use super::connection_slots::{ConnectionSlots, Repeats, last_of};
use super::content::{self, Content};
use super::content_scan::ContentScan;
use super::declared::Declared;
use super::inventory::Inventory;
use super::remote::Remote;
use super::server::{ErrorOutput, Server};
use super::signals::{self, SignalSetupError};
use super::upstream_kind::UpstreamKind;
use super::{Session, stdio, why};
use agentsh_approvals::{ApprovalSession, Approvals};
use agentsh_verifier::Asker;

/// Longer than all grace periods of a server.
const MAX_END: Duration = Duration::from_secs(6);

/// How a server is reached, for events.
pub const STDIO: ServerType = ServerType::Stdio;
pub const HTTP: ServerType = ServerType::Http;

/// What all connections of a session share: one guard, so that rates count over all.
pub struct Bridges {
    session: Rc<Session>,
    guard: Rc<RefCell<Guard>>,
    epoch: Instant,
    audit: Option<Rc<dyn Audit>>,
    classify: Option<Rc<dyn agentsh_mcp::Classify>>,
    inventory: Inventory,
    approvals: Rc<Approvals>,
    declared: BTreeMap<ServerId, Declared>,
    places: Rc<ConnectionSlots>,
    /// For the client on standard input and output.
    standard_client: Option<Rc<Cell<bool>>>,
    holds_input: bool,
    /// Requests carry their caller.
    tells_caller: bool,
    /// Rejected connections, by reason.
    unserved: RefCell<BTreeMap<&'static str, Repeats>>,
    /// Number of open connections.
    served: watch::Sender<usize>,
    /// Ends with this.
    _stores: JoinSet<()>,
}

/// From a new or changed definition until it is stored, with those that come in one listing.
const STORE_DELAY: Duration = Duration::from_millis(200);

/// Definitions are pinned when they are first seen: a session that is killed, or lasts for days, must not forget them.
async fn store_definitions(session: Rc<Session>, inventory: Inventory) {
    loop {
        session.live.servers.interfaces.wait_for_unstored().await;
        tokio::time::sleep(STORE_DELAY).await;
        session.keep_interfaces().await;
        keep_inventory(&session, &inventory);
    }
}

fn keep_inventory(session: &Session, inventory: &Inventory) {
    if let Err(error) = inventory.keep() {
        session.record.note(&format!("cannot store the usual behaviour of servers: {error}"));
    }
}

impl Bridges {
    #[must_use]
    pub fn new(session: Rc<Session>, declared: BTreeMap<ServerId, Declared>) -> Self {
        Self::in_order(session, declared, &[])
    }

    /// For servers declared in this order.
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
        // Definitions that the scan hides are not trusted on first use.
        guard.add(Arc::new(ContentScan::new(&session.facts.policy.mcp)));
        if session.live.servers.registered.settings().is_some() {
            guard.add(session.live.servers.registered.clone());
        }
        guard.add(session.live.servers.interfaces.clone());
        guard.add(inventory.check());
        Self::with(session, declared, guard, inventory)
    }

    /// Bridges that apply only the policy's lists and rates, to read an interface as the server offers it.
    #[must_use]
    pub fn without_scanning(session: Rc<Session>, declared: BTreeMap<ServerId, Declared>) -> Self {
        let (guard, inventory) = (Guard::new(&session.facts.policy.mcp), Inventory::new(&session.facts));
        Self::with(session, declared, guard, inventory)
    }

    /// Without tool lists, because a registry records the whole interface.
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
            interfaces: session.live.servers.interfaces.clone(),
            pins: Arc::clone(&session.live.servers.pins),
            page: Rc::clone(&session.live.people.page),
        }));
        session.live.people.logins.ask_by(&approvals);
        approvals.ask_about_changes();
        let mut stores = JoinSet::new();
        stores.spawn_local(store_definitions(Rc::clone(&session), inventory.clone()));
        let places = Rc::new(ConnectionSlots::new(session.facts.policy.mcp.max_line_bytes));
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
            standard_client: None,
            holds_input: false,
            tells_caller: false,
            unserved: RefCell::default(),
            served: watch::Sender::default(),
            _stores: stores,
        }
    }

    /// The session's questions.
    #[must_use]
    pub fn approvals(&self) -> Approvals {
        Approvals::clone(&self.approvals)
    }

    /// The guard, and the start of its time.
    #[must_use]
    pub fn guard(&self) -> (Rc<RefCell<Guard>>, Instant) {
        (Rc::clone(&self.guard), self.epoch)
    }

    /// Adds the policy's `exfiltration`.
    ///
    /// # Errors
    /// Without random numbers.
    pub fn with_policy(self) -> std::io::Result<Self> {
        let policy = &self.session.facts.policy.mcp.exfiltration;
        if !policy.enabled {
            return Ok(self);
        }
        let settings = content::Settings::in_run(
            policy,
            Rc::clone(&self.session.live.servers.labels),
            self.approvals.can_ask(),
        );
        let mut content = Content::new(settings, self.session.record.journal.clone())?;
        // With one server there is no flow between servers, but what the agent read can still leave.
        let has_servers = !self.declared.is_empty();
        if has_servers && self.session.facts.project_shown {
            let seeded = content.seed(&self.session.facts.context.project);
            self.tell_unseen(seeded);
        }
        Ok(self.with_check(content))
    }

    /// The agent's own reads are not visible, except for secrets in files that were searched.
    fn tell_unseen(&self, seeded: usize) {
        self.session.record.journal.record(Event::Enforcement {
            server_id: None,
            layer: "data flow".to_owned(),
            asked: "everything that the agent reads is searched for".to_owned(),
            // The same for every run of a machine, so that it is reported once.
            got: "only secrets in the project's files".to_owned(),
            state: LayerState::Degraded,
            why: format!(
                "agentsh does not see what the agent reads with its own tools; files whose secrets it knows: {seeded}"
            ),
        });
    }

    /// Adds the policy's classifier.
    ///
    /// # Errors
    /// An invalid URL, or a missing key.
    pub fn with_classifier(self) -> Result<Self, super::run_error::RunError> {
        let classify = super::classifying::of_policy(&self.session)?;
        Ok(Self { classify, ..self })
    }

    /// For the client on standard input and output: its requests may finish after its input ended, unless everything
    /// has to end.
    #[must_use]
    pub fn with_standard_client(self, is_over: Rc<Cell<bool>>) -> Self {
        Self { standard_client: Some(is_over), holds_input: stdio::input_is_file(), ..self }
    }

    /// For gateway clients: requests carry their caller.
    #[must_use]
    pub fn with_callers(self) -> Self {
        Self { tells_caller: true, ..self }
    }

    /// Adds a check after lists and rates.
    #[must_use]
    pub fn with_check(self, check: impl Check + 'static) -> Self {
        self.guard.borrow_mut().add(check);
        self
    }

    /// Adds auditors of every call.
    #[must_use]
    pub fn with_audit(self, audit: Option<Rc<dyn Audit>>) -> Self {
        Self { audit, ..self }
    }

    /// Accepts bridges until dropped.
    pub async fn serve(self: Rc<Self>, listener: UnixListener) {
        loop {
            // A silent connection delays others only for a bounded time.
            let Ok(unnamed) = Arc::clone(&self.places.unnamed).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                // Without descriptors: wait for a connection to end.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let bridges = Rc::clone(&self);
            agentsh_base::task::spawn_local(async move {
                match agentsh_mcp::bridge_accept::arrive(stream).await {
                    Ok(Arrival::Bridge(accepted)) => {
                        drop(unnamed);
                        bridges.connection(*accepted).await;
                    }
                    // A reader that is slow keeps its place for a bounded time.
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
                let Some(_told) = self.places.reserve_refusal() else { return };
                return agentsh_mcp::reject_connection::reject_connection(
                    accepted.input,
                    accepted.output,
                    REASON,
                    &why,
                )
                .await;
            }
        };
        let (session, id) = (Rc::clone(&self.session), id.clone());
        let (input, output) = (accepted.input, accepted.output);
        match declaration.clone() {
            Declared::Command(declaration) => {
                let server = Server::new(session, declaration, ErrorOutput::Kept);
                self.proxy(None, input, output, server, id, STDIO).await;
            }
            Declared::Url(declaration) => {
                self.proxy(None, input, output, Remote::new(session, declaration), id, HTTP).await;
            }
        }
        drop(place);
    }

    /// Reports and records the first refusals one by one, then only their number, because agents can cause any number
    /// with any names.
    fn refuse(&self, id: &str, reason: &'static str, why: &str) {
        let Some(count) = self.unserved.borrow_mut().entry(reason).or_default().count_and_take_due() else {
            return;
        };
        let shown: String = agentsh_store::escape::line(id).chars().take(80).collect();
        let detail = format!("{why}{}", last_of(count));
        self.session.record.note(&format!("refused a connection of the agent to server '{shown}': {detail}"));
        self.session.record.journal.record(Event::McpServerRefused {
            server_id: ServerId(shown),
            reason: reason.to_owned(),
            detail,
            rule: RuleRef::default_rule("connections"),
        });
    }

    /// Waits until the servers of departed clients have ended: closed input, then SIGTERM, then SIGKILL. A signal to
    /// this process ends the wait.
    ///
    /// # Errors
    /// When signals cannot be received.
    pub async fn wait_until_drained(&self) -> Result<(), SignalSetupError> {
        let mut served = self.served.subscribe();
        let again = signals::end()?;
        tokio::select! {
            _none = served.wait_for(|count| *count == 0) => {}
            _code = again => {}
            () = tokio::time::sleep(MAX_END) => {}
        }
        Ok(())
    }

    /// Records the remaining counts.
    pub fn finish(&self) {
        self.keep_inventory();
        for (reason, repeats) in self.unserved.take() {
            let Some(rest) = repeats.unreported_count() else { continue };
            self.session.record.journal.record(Event::McpServerRefused {
                server_id: ServerId(String::new()),
                reason: reason.to_owned(),
                detail: format!("{rest} further connections"),
                rule: RuleRef::default_rule("connections"),
            });
        }
    }

    /// Serves one connection with one server, until the client closes it. `client`: which one of the gateway it is.
    pub async fn proxy(
        &self,
        client: Option<Rc<str>>,
        input: impl tokio::io::AsyncRead + Unpin,
        output: impl tokio::io::AsyncWrite + Unpin,
        server: impl agentsh_mcp::Upstream + 'static,
        id: ServerId,
        kind: ServerType,
    ) -> agentsh_mcp::ConnectionEnd {
        let _served = Served::new(&self.served);
        let mut options = self.options(id);
        options.client = client;
        options.server_type = kind;
        // The end of a remote server's input would end its streams.
        options.holds_input |= kind == HTTP;
        let record = self.session.record.journal.clone();
        let ended = agentsh_mcp::serve(input, output, server, Rc::clone(&self.guard), record, options).await;
        self.session.keep_interfaces().await;
        self.keep_inventory();
        ended
    }

    /// Serves one client with several servers as one.
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
            lists_first: session.facts.policy.mcp.cross_server.blocks_names(),
            note: Box::new(move |message| session.record.note_missing(message)),
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
        keep_inventory(&self.session, &self.inventory);
    }

    fn options(&self, id: ServerId) -> Options {
        let policy = &self.session.facts.policy.mcp;
        self.inventory.load_behaviour(&id);
        let mut options = Options::new(id);
        options.max_line_bytes = usize::try_from(policy.max_line_bytes).unwrap_or(usize::MAX);
        options.client_lines = self.places.client_lines.clone();
        options.server_lines = self.places.server_lines(&options.server);
        options.request_timeout = policy.request_timeout_s.map(Duration::from_secs);
        let secrets = policy.secrets.clone();
        options.redact = agentsh_mcp::Redaction(Rc::new(move |arguments| {
            agentsh_content::recorded_arguments(&secrets, arguments.to_value())
        }));
        options.epoch = self.epoch;
        let (interfaces, server) = (self.session.live.servers.interfaces.clone(), options.server.clone());
        options.known =
            agentsh_mcp::KnownTools(Rc::new(move |tool, offered| interfaces.hash_of(&server, tool, offered)));
        options.lists_first = policy.judges_by_definition();
        let hides = policy.content.definitions() == OnFinding::Block;
        let (interfaces, server) = (self.session.live.servers.interfaces.clone(), options.server.clone());
        options.lists_offers_first =
            agentsh_mcp::JudgesOffers(Rc::new(move || hides || interfaces.judges_offers(&server)));
        options.released = Some(self.session.live.servers.interfaces.watch_releases(&options.server));
        let interfaces = self.session.live.servers.interfaces.clone();
        options.displaced =
            agentsh_mcp::DisplacedToolSink(Rc::new(move |tool| interfaces.relist(&tool.server)));
        if let Some(is_over) = &self.standard_client {
            options.has_reader = Some(stdio::has_reader);
            options.is_over = Rc::clone(is_over);
            options.runs_without_input = true;
        }
        options.holds_input = self.holds_input;
        options.tells_caller = self.tells_caller;
        options.audit.clone_from(&self.audit);
        options.classify.clone_from(&self.classify);
        let (session, server) = (Rc::clone(&self.session), options.server.clone());
        options.about = agentsh_mcp::ResultNotice(Rc::new(move || {
            session.live.servers.advised.borrow().get(&server).cloned()
        }));
        options.approve = Some(Rc::clone(&self.approvals) as Rc<dyn agentsh_mcp::Approve>);
        let Session { facts, record, live, .. } = &*self.session;
        options.vouch = Asker::new(facts, record, &live.servers.registered, &live.servers.interfaces)
            .map(|asker| Rc::new(asker) as Rc<dyn agentsh_mcp::RegistryVerifier>);
        let session = Rc::clone(&self.session);
        options.note =
            NoteSink(Rc::new(move |message| session.record.note(&agentsh_store::escape::line(message))));
        options
    }
}

/// An open connection.
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

/// The socket's name in its directory.
pub const SOCKET: &str = "bridge";

/// The listening socket, writable for the sandbox's user; mounts decide who can reach it.
///
/// # Errors
/// When the socket cannot be created.
pub fn listen(directory: &Path) -> std::io::Result<(UnixListener, PathBuf)> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(SOCKET);
    // Through a descriptor, because a socket path is limited to 107 bytes.
    let opened = std::fs::File::open(directory)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()))?;
    // The directory is 0700 on the host; inside, only the socket is mounted, and the id may differ.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
    Ok((listener, path))
}
