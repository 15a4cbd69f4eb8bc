//! The network of a session's sandboxes: from policy to plan and service, and messages about refusals.

mod ebpf_programs;
mod unanswered;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use agentsh_base::remedy;
use agentsh_base::types::ServerId;
use agentsh_net::Reason;
use agentsh_net::{Allowlist, ConnectionLimit, EgressContext, LazyResolver, Origin, Refusal, kernel};
use agentsh_policy::NetworkPolicy;
use agentsh_sandbox::cgroup::{Cgroup, Hierarchies};
use agentsh_sandbox::control::MAX_PORTS;
use agentsh_sandbox::network::Sockets;
use agentsh_sandbox::{Enforcement, State, Tier, plan};
use agentsh_store::summary::PORTS_UNKNOWN;
use agentsh_store::{Journal, escape};

use super::Session;
use super::port_owners::PortOwners;
use super::publish::{Published, PublishedPort};
use agentsh_approvals::{BackgroundHosts, Hosts};
use agentsh_host::{Backend, Facts, outgoing};
use ebpf_programs::{AttachedPrograms, LoadingPrograms};
use unanswered::UnansweredWatcher;

/// What the networks of a session's sandboxes share.
pub struct Network {
    connections: Rc<ConnectionLimit>,
    resolver: Rc<LazyResolver>,
    loading: LoadingPrograms,
    /// Created for the first sandbox with TLS inspection.
    pub(super) authority: OnceCell<Option<Rc<agentsh_net::authority::Authority>>>,
    shown: Cell<u32>,
    /// Refused ports of this machine.
    told: RefCell<BTreeSet<(Option<ServerId>, u16)>>,
    /// Agents of the user that listen on this machine.
    pub(super) listeners: PortOwners,
}

/// For the last connections of an ended program.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Limit of reported refusals; the report has all.
const MAX_SHOWN: u32 = 20;

impl Network {
    /// Starts to load the eBPF programs, if available.
    #[must_use]
    pub fn new(backend: Backend, hierarchies: &Hierarchies) -> Self {
        Self {
            connections: Rc::new(ConnectionLimit::new()),
            resolver: Rc::new(LazyResolver::default()),
            loading: LoadingPrograms::begin(backend, hierarchies),
            authority: OnceCell::new(),
            shown: Cell::new(0),
            told: RefCell::default(),
            listeners: PortOwners::default(),
        }
    }

    /// Ends remaining connections; returns when they are recorded.
    pub async fn close(&self) {
        self.connections.close(DRAIN_TIMEOUT).await;
    }

    /// What to drop after the last sandbox has ended.
    #[must_use]
    pub fn detach(&self) -> Option<ebpf_programs::AttachedHold> {
        self.loading.detach()
    }

    /// SHA-256 of the loading programs; None if not tried.
    #[must_use]
    pub fn programs(&self) -> Option<String> {
        self.loading.is_tried().then(agentsh_net::ebpf::object::sha256)
    }
}

/// Commands that would allow what was refused.
#[must_use]
pub fn allow_commands(session: &Session) -> String {
    let lines = session.wanted_lines(usize::MAX);
    if lines.is_empty() {
        return "no refusal that a rule of `network.allow` could change".to_owned();
    }
    format!("these rules would allow what was refused; add only those you need:\n  {}", lines.join("\n  "))
}

/// The network of one sandbox, before it starts.
pub struct Egress {
    session: Rc<Session>,
    server: Option<ServerId>,
    rules: NetworkPolicy,
    policed: Option<Rc<AttachedPrograms>>,
    services: agentsh_net::Services,
    background: Rc<BackgroundHosts>,
    pub plan: plan::Network,
    /// Ports that this machine can reach.
    pub published: Vec<Published>,
    pub enforcement: Enforcement,
}

/// The agent's network besides its rules.
#[derive(Default)]
pub struct AgentNetwork {
    /// Asks a person about hosts without a rule.
    pub approvals: Option<agentsh_approvals::Approvals>,
    /// Replaces placeholders by secrets.
    pub broker: Option<Rc<agentsh_net::credentials::Broker>>,
    /// Handles the model's connections.
    pub channel: Option<Rc<dyn agentsh_net::channel::Channel>>,
    pub publish: Vec<PublishedPort>,
    /// Without a rule they are refused without a question, and only recorded.
    pub background: Rc<BackgroundHosts>,
}

/// Opens the network of one sandbox with its specification's rules: chooses the backend and the namespace's setup.
///
/// # Errors
/// Too many ports, a missing backend, or a port to publish that is taken.
pub async fn open(
    session: &Rc<Session>,
    server: Option<ServerId>,
    rules: &NetworkPolicy,
    of_agent: AgentNetwork,
) -> Result<Egress, String> {
    let backend = session.facts.backend;
    let (policed, missing) = match session.live.network.loading.wait_until_loaded().await {
        Ok(policed) => (Some(policed), None),
        Err(why) if backend == Backend::Ebpf && !session.facts.allow_degraded => {
            return Err(format!(
                "cannot enforce network rules with eBPF: {why}; `--network auto` uses what is available here"
            ));
        }
        Err(why) => (None, Some(why)),
    };
    let asks = session.facts.learns || (server.is_none() && asks(&session.facts, rules));
    let allow = Allowlist::new(rules).with_questions(asks);
    let plan = if policed.is_some() {
        plan::Network::Redirected { listeners: kernel::listeners(&allow) }
    } else {
        any_ip(&allow)?
    };
    let mut enforcement = match session.facts.context.tier {
        Tier::Namespaces => enforcement(backend, &plan, missing),
        Tier::Container => Enforcement {
            why: BY_THE_SESSION.to_owned(),
            ..Enforcement::enforced(
                "network",
                "container: agentsh makes every connection; names, TLS and HTTP hosts are checked",
            )
        },
    };
    let proxy = outgoing::proxy(&session.facts, &session.record, rules)?.map(Rc::new);
    if let (Some(proxy), true) = (&proxy, plan.is_open()) {
        let by = format!(
            "; through the proxy '{}', which resolves names and has to refuse private addresses itself",
            proxy.name()
        );
        enforcement.got.push_str(&by);
    }
    let AgentNetwork { approvals, broker, channel, publish, background } = of_agent;
    let ask: Option<Rc<dyn agentsh_net::ask::Ask>> = match approvals {
        _ if session.facts.learns => Some(Rc::new(Learning::default())),
        Some(approvals) if asks => Some(Rc::new(Hosts::new(approvals, Rc::clone(&background)))),
        _ => None,
    };
    let authority = super::trust::authority(session, rules);
    let resolver = Rc::clone(&session.live.network.resolver);
    let of_session = Rc::clone(session);
    let unadvised: agentsh_net::egress_context::NeverAdvisedPort =
        Rc::new(move |port| of_session.live.network.listeners.agent(port).is_some());
    Ok(Egress {
        session: Rc::clone(session),
        server,
        rules: rules.clone(),
        policed,
        services: agentsh_net::Services {
            resolver,
            authority,
            ask,
            proxy,
            broker,
            channel,
            unadvised: Some(unadvised),
        },
        background,
        plan,
        published: published(&session.facts, rules, &publish)?,
        enforcement,
    })
}

/// Publishes ports of servers inside.
fn published(
    facts: &Facts,
    rules: &NetworkPolicy,
    asked: &[PublishedPort],
) -> Result<Vec<Published>, String> {
    if facts.context.tier == Tier::Container && !asked.is_empty() {
        return Err("cannot publish ports with `--tier container`: programs cannot listen there".to_owned());
    }
    let is_written = |port: u16| facts.policy.agent_only.publish.iter().any(|written| written.value == port);
    if let Some(one) = asked.iter().find(|one| !is_written(one.port))
        && facts.policy.is_locked("agent.publish")
    {
        return Err(format!("cannot publish port {}: your organisation locks `agent.publish`", one.port));
    }
    let taken = Allowlist::new(rules).ports();
    let listen = |one: &PublishedPort| {
        let port = one.port;
        // A listener of the egress inside: connections from outside would leave through it.
        if taken.contains(&port) {
            return Err(format!(
                "cannot publish port {port}: a network rule lets the sandbox connect to this port; listen on another one inside"
            ));
        }
        Published::listen(*one)
    };
    asked.iter().map(listen).collect()
}

/// Whether a person is asked about hosts without a rule.
fn asks(facts: &Facts, rules: &NetworkPolicy) -> bool {
    // If the organisation locks the network, an answer cannot open it.
    let can = agentsh_approvals::can_ask(facts) && !facts.policy.is_locked("agent.network");
    match &rules.unknown {
        Some(asks) => asks.value && can,
        // A policy with an exec list is meant to be complete.
        None => can && facts.executable_paths(&facts.policy.agent).is_empty(),
    }
}

/// Allows every host without a rule and records it, to generate a policy.
#[derive(Default)]
struct Learning(RefCell<BTreeSet<String>>);

/// Limit per sandbox; more are refused.
const MAX_LEARNED: usize = 500;

impl agentsh_net::ask::Ask for Learning {
    fn ask<'a>(&'a self, host: &'a str, _port: u16) -> agentsh_net::ask::Answer<'a> {
        let mut known = self.0.borrow_mut();
        let has_room = known.len() < MAX_LEARNED || known.contains(host);
        if has_room {
            known.insert(host.to_owned());
        }
        Box::pin(async move { if has_room { Ok(()) } else { Err(Reason::NobodyToAsk) } })
    }
}

fn any_ip(allow: &Allowlist) -> Result<plan::Network, String> {
    let ports = allow.ports();
    if ports.len() > MAX_PORTS {
        return Err(format!("its network rules name {} ports; the maximum is {MAX_PORTS}", ports.len()));
    }
    Ok(plan::Network::AnyIp { ports: ports.into_iter().collect() })
}

/// Limit of refusals shown while the agent uses the terminal.
const MAX_HINTS: u32 = 3;

/// The limitation of the userns backend.
const USERNS_LIMITATION: &str = "the process behind a connection is not recorded";

/// The limitation of connections that the session makes.
const BY_THE_SESSION: &str =
    "no UDP and no listening; names are resolved over TCP only, for programs that use the C library";

/// The report about one process's network. `missing`: why there are no eBPF programs.
fn enforcement(chosen: Backend, network: &plan::Network, missing: Option<String>) -> Enforcement {
    let backend = if missing.is_some() { "userns" } else { "ebpf" };
    let got = match network.is_open() {
        false => format!("{backend}: no route and no listener; names are refused"),
        true => format!("{backend}: no direct route; DNS, TLS and HTTP host names must be in the allow list"),
    };
    match (chosen, missing) {
        (Backend::Ebpf, Some(why)) => Enforcement::weakened(
            "network",
            "ebpf",
            &got,
            State::Degraded,
            format!("{why}; {USERNS_LIMITATION}"),
        ),
        (Backend::Auto, Some(why)) => Enforcement {
            why: format!("not by eBPF: {why}; {USERNS_LIMITATION}"),
            ..Enforcement::enforced("network", got)
        },
        (Backend::Userns, _) => {
            Enforcement { why: USERNS_LIMITATION.to_owned(), ..Enforcement::enforced("network", got) }
        }
        _ => Enforcement::enforced("network", got),
    }
}

impl Egress {
    /// The reachable hosts, for work outside on its behalf.
    #[must_use]
    pub fn reachable(&self) -> (Allowlist, Option<Rc<dyn agentsh_net::ask::Ask>>) {
        let ask = self.services.ask.clone();
        (Allowlist::new(&self.rules).with_questions(ask.is_some()), ask)
    }

    /// Whether eBPF programs judge connections.
    #[must_use]
    pub fn is_policed(&self) -> bool {
        self.policed.is_some()
    }

    /// The hierarchies for its cgroup.
    #[must_use]
    pub fn hierarchies(&self) -> Option<&Hierarchies> {
        self.policed.as_ref().map(|policed| &policed.hierarchies)
    }

    /// Registers a new sandbox's cgroup with the programs.
    ///
    /// # Errors
    /// When that fails: then the program must not start.
    pub fn arm(&self, cgroup: &Cgroup) -> Result<Rc<EgressContext<Journal>>, String> {
        let network = &self.session.live.network;
        let session = Rc::clone(&self.session);
        let background = Rc::clone(&self.background);
        let on_refusal: agentsh_net::OnRefusal = Rc::new(move |server, refusal| {
            let is_background = match refusal.reason {
                Reason::TelemetryOrUpdate => true,
                Reason::NameNotAllowed => background.has(&refusal.host, &session.record.journal),
                _ => false,
            };
            if !is_background {
                tell_refusal(&session, server, refusal);
            }
        });
        let make = |origin| {
            EgressContext::new(
                self.server.clone(),
                self.rules.clone(),
                origin,
                Rc::clone(&network.connections),
                self.session.record.journal.clone(),
                Rc::clone(&on_refusal),
                self.services.clone(),
            )
        };
        let origin = match self.session.facts.context.tier {
            Tier::Namespaces => Origin::Arrival,
            Tier::Container => Origin::Told(agentsh_net::egress_context::AnnouncedConnections::default()),
        };
        let Some(policed) = &self.policed else { return Ok(Rc::new(make(origin))) };
        let directory = cgroup.unified().ok_or("cannot create its cgroup")?;
        policed.kernel.arm(directory, make).map_err(|error| error.to_string())
    }
}

/// Serves the sockets of a started sandbox.
#[must_use]
pub fn serve(
    egress: Rc<EgressContext<Journal>>,
    sockets: Sockets,
    published: &BTreeSet<u16>,
) -> EgressService {
    let unanswered = UnansweredWatcher::watch(&egress, sockets.refused, published);
    let service = agentsh_net::serve(egress, sockets.listeners, (sockets.resolver_udp, sockets.resolver_tcp));
    EgressService { service, unanswered }
}

/// Serves until dropped.
pub struct EgressService {
    service: agentsh_net::Service<Journal>,
    unanswered: UnansweredWatcher,
}

/// Waits until an ended program's connections are recorded.
pub async fn finish(session: &Session, service: EgressService) {
    if let Ok(policed) = session.live.network.loading.wait_until_loaded().await {
        policed.kernel.wait_until_recorded().await;
    }
    session.close_in_background(service.unanswered.finish().await);
    service.service.finish(DRAIN_TIMEOUT).await;
}

/// Suggests the rule for a refused connection, and tells the user.
fn tell_refusal(session: &Session, server: Option<&ServerId>, refusal: &Refusal) {
    let is_of_machine = refusal.reason == Reason::LoopbackPortNotOpen;
    let behind = if is_of_machine { session.live.network.listeners.agent(refusal.port) } else { None };
    // Other changes are only described.
    let is_piece = refusal.entry.is_some() || is_of_machine;
    if let Some(change) = refusal.change.as_ref().filter(|_| is_piece && behind.is_none()) {
        session.live.refusals.suggested.add(&session.facts, change);
    }
    // A program that connects to `localhost` tries both addresses.
    let port = (server.cloned(), refusal.port);
    let is_other = is_of_machine && !session.live.network.told.borrow_mut().insert(port);
    if is_other {
        return;
    }
    let shown = session.live.network.shown.get();
    session.live.network.shown.set(shown.saturating_add(1));
    match shown.cmp(&MAX_SHOWN) {
        std::cmp::Ordering::Less => {
            let line = line(server, refusal, behind);
            if shown < MAX_HINTS {
                agentsh_approvals::hint(&session.record, &line);
            }
            session.record.note_refusal(&line);
        }
        std::cmp::Ordering::Equal => {
            session.record.note_refusal("more connections were refused; `agentsh report` lists them all");
        }
        std::cmp::Ordering::Greater => {}
    }
}
fn line(server: Option<&ServerId>, refusal: &Refusal, behind: Option<&str>) -> String {
    let who = server.map_or("the agent".to_owned(), |id| format!("server '{}'", escape::line(&id.0)));
    let is_of_machine = refusal.reason == Reason::LoopbackPortNotOpen;
    let host = if is_of_machine { "localhost".into() } else { escape::line(&refusal.host) };
    let port = if refusal.port == 0 { String::new() } else { format!(":{}", refusal.port) };
    let reason = refusal.reason.code().replace('-', " ");
    let detail = if refusal.detail.is_empty() { reason } else { escape::line(&refusal.detail).into_owned() };
    let change = refusal.change.as_deref();
    // The port is not known yet.
    let ports = if refusal.port == 0 { PORTS_UNKNOWN } else { "" };
    let change = match (behind, change) {
        (Some(agent), _) => format!("; {agent} listens there, outside of every sandbox: do not open it"),
        (None, Some(change)) => format!("; to allow it: {}{ports}", escape::line(&remedy::shown(change))),
        (None, None) => String::new(),
    };
    format!("refused: {who} -> {host}{port} ({detail}, by {}){change}", refusal.rule)
}
