//! The way out of the sandboxes of a session: from policy to the plan's network, the service behind it, and what the
//! user hears of refusals.

mod policed;
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
use super::publish::{Published, PublishedPort};
use agentsh_approvals::Hosts;
use agentsh_host::{Backend, Facts, outgoing};
use policed::{AttachedPrograms, LoadingPrograms};
use unanswered::UnansweredWatcher;

/// What the ways out of a session's sandboxes share.
pub struct Network {
    connections: Rc<ConnectionLimit>,
    resolver: Rc<LazyResolver>,
    loading: LoadingPrograms,
    /// Made for the first sandbox whose rules look into TLS.
    pub(super) authority: OnceCell<Option<Rc<agentsh_net::authority::Authority>>>,
    shown: Cell<u32>,
}

/// How long connections of a program that has ended may take to end.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Refusals that are told one by one; the report has them all.
const MAX_SHOWN: u32 = 20;

impl Network {
    /// Begins to load the programs of the eBPF backend, where it may be had.
    #[must_use]
    pub fn new(backend: Backend, hierarchies: &Hierarchies) -> Self {
        Self {
            connections: Rc::new(ConnectionLimit::new()),
            resolver: Rc::new(LazyResolver::default()),
            loading: LoadingPrograms::begin(backend, hierarchies),
            authority: OnceCell::new(),
            shown: Cell::new(0),
        }
    }

    /// Ends the connections that programs have left behind, and returns when they are written down.
    pub async fn close(&self) {
        self.connections.close(DRAIN_TIMEOUT).await;
    }

    /// What polices, to be dropped after the last sandbox has ended.
    #[must_use]
    pub fn let_go(&self) -> Option<policed::AttachedHold> {
        self.loading.let_go()
    }

    /// SHA-256 of the programs that are being loaded; None where that is not even tried.
    #[must_use]
    pub fn programs(&self) -> Option<String> {
        self.loading.is_tried().then(agentsh_net::ebpf::object::sha256)
    }
}

/// The commands that would allow what a session refused.
#[must_use]
pub fn learned(session: &Session) -> String {
    let lines = session.wanted_lines(usize::MAX);
    if lines.is_empty() {
        return "no refusal that a rule of `network.allow` could change".to_owned();
    }
    format!("these rules would allow what was refused; add only those you need:\n  {}", lines.join("\n  "))
}

/// The way out of one sandbox, before it is born.
pub struct Egress {
    session: Rc<Session>,
    server: Option<ServerId>,
    rules: NetworkPolicy,
    policed: Option<Rc<AttachedPrograms>>,
    services: agentsh_net::Services,
    background: &'static [&'static str],
    pub plan: plan::Network,
    /// Ports of the sandbox that this machine reaches.
    pub published: Vec<Published>,
    pub enforcement: Enforcement,
}

/// What the agent's way out has beside its rules.
#[derive(Default)]
pub struct OfAgent {
    /// Asks a person about hosts that no rule names.
    pub approvals: Option<agentsh_approvals::Approvals>,
    /// Secrets that go on requests.
    pub broker: Option<Rc<agentsh_net::credentials::Broker>>,
    /// Speaks with the model in the relay's place.
    pub channel: Option<Rc<dyn agentsh_net::channel::Channel>>,
    pub publish: Vec<PublishedPort>,
    /// Hosts that the agent contacts by itself, for telemetry and updates: where no rule names one, it is refused without a
    /// question, and only the record and the report say so.
    pub background: &'static [&'static str],
}

/// Opens the way out of one sandbox, under the rules of its specification and no others: chooses the backend, and what the
/// network namespace gets.
///
/// # Errors
/// When policy names more ports than can be listened on, the backend that was asked for cannot be had, or a port to publish
/// is taken.
pub async fn open(
    session: &Rc<Session>,
    server: Option<ServerId>,
    rules: &NetworkPolicy,
    of_agent: OfAgent,
) -> Result<Egress, String> {
    let backend = session.facts.backend;
    let (policed, missing) = match session.live.network.loading.policed().await {
        Ok(policed) => (Some(policed), None),
        Err(why) if backend == Backend::Ebpf && !session.facts.allow_degraded => {
            return Err(format!(
                "cannot police the network with eBPF: {why}; `--network auto` uses what is available here"
            ));
        }
        Err(why) => (None, Some(why)),
    };
    let asks = session.facts.learns || (server.is_none() && asks(&session.facts, rules));
    let allow = Allowlist::new(rules).asking(asks);
    let plan = if policed.is_some() {
        match kernel::listeners(&allow) {
            listeners if listeners.is_empty() => plan::Network::Closed,
            listeners => plan::Network::Redirected { listeners },
        }
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
    if let (Some(proxy), false) = (&proxy, matches!(plan, plan::Network::Closed)) {
        let by = format!(
            "; through the proxy '{}', which resolves names and has to refuse private addresses itself",
            proxy.name()
        );
        enforcement.got.push_str(&by);
    }
    let OfAgent { approvals, broker, channel, publish, background } = of_agent;
    let ask: Option<Rc<dyn agentsh_net::ask::Ask>> = match approvals {
        _ if session.facts.learns => Some(Rc::new(Learning::default())),
        Some(approvals) if asks => Some(Rc::new(Hosts::new(approvals, background))),
        _ => None,
    };
    let authority = super::trust::authority(session, rules);
    let resolver = Rc::clone(&session.live.network.resolver);
    let of_session = Rc::clone(session);
    let unadvised: agentsh_net::egress_context::NeverAdvisedPort =
        Rc::new(move |port| of_session.live.listeners.agent(port).is_some());
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

/// Makes servers inside reachable from this machine.
fn published(
    facts: &Facts,
    rules: &NetworkPolicy,
    asked: &[PublishedPort],
) -> Result<Vec<Published>, String> {
    if facts.context.tier == Tier::Container && !asked.is_empty() {
        return Err("cannot publish ports with `--tier container`: programs cannot listen there".to_owned());
    }
    let taken = Allowlist::new(rules).ports();
    let listen = |one: &PublishedPort| {
        let port = one.port;
        // What listens there inside is the way out: who comes from outside would leave by it.
        if taken.contains(&port) {
            return Err(format!("cannot publish port {port}: a network rule names it"));
        }
        Published::listen(*one)
    };
    asked.iter().map(listen).collect()
}

/// Whether a person is asked about what no rule of the agent names.
fn asks(facts: &Facts, rules: &NetworkPolicy) -> bool {
    // Whose organisation locks the network cannot open it by saying yes.
    let can = agentsh_approvals::can_ask(facts) && !facts.policy.is_locked("agent.network");
    match &rules.unknown {
        Some(asks) => asks.value && can,
        // Where a policy lists what may run, it means to leave nothing to chance.
        None => can && facts.executable_paths(&facts.policy.agent).is_empty(),
    }
}

/// Says yes to every host that no rule names: its connection is on record, and a policy is made of the record.
#[derive(Default)]
struct Learning(RefCell<BTreeSet<String>>);

/// Hosts that one sandbox may learn; more are refused.
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
    if ports.is_empty() {
        return Ok(plan::Network::Closed);
    }
    Ok(plan::Network::AnyIp { ports: ports.into_iter().collect() })
}

/// Of those, refusals that a terminal shows beside what the agent draws: after some, nobody looks.
const MAX_HINTS: u32 = 3;

/// What userns cannot give.
const WEAKER: &str = "the process behind a connection is not recorded";

/// What connections that the session makes cannot give.
const BY_THE_SESSION: &str =
    "no UDP and no listening; names are resolved over TCP only, for programs that use the C library";

/// What stands in the report about the network of one process. `missing`: why the kernel programs are not there.
fn enforcement(chosen: Backend, network: &plan::Network, missing: Option<String>) -> Enforcement {
    let backend = if missing.is_some() { "userns" } else { "ebpf" };
    let got = match network {
        plan::Network::Closed => format!("{backend}: no route and no listener; names are refused"),
        plan::Network::AnyIp { .. } | plan::Network::Redirected { .. } => {
            format!("{backend}: no route; names, TLS and HTTP hosts are checked")
        }
    };
    match (chosen, missing) {
        (Backend::Ebpf, Some(why)) => {
            Enforcement::less("network", "ebpf", &got, State::Degraded, format!("{why}; {WEAKER}"))
        }
        (Backend::Auto, Some(why)) => Enforcement {
            why: format!("not by eBPF: {why}; {WEAKER}"),
            ..Enforcement::enforced("network", got)
        },
        (Backend::Userns, _) => {
            Enforcement { why: WEAKER.to_owned(), ..Enforcement::enforced("network", got) }
        }
        _ => Enforcement::enforced("network", got),
    }
}

impl Egress {
    /// Where the sandbox may connect to, for what is done outside in its name.
    #[must_use]
    pub fn reachable(&self) -> (Allowlist, Option<Rc<dyn agentsh_net::ask::Ask>>) {
        let ask = self.services.ask.clone();
        (Allowlist::new(&self.rules).asking(ask.is_some()), ask)
    }

    /// Whether the kernel polices connections by who makes them.
    #[must_use]
    pub fn is_policed(&self) -> bool {
        self.policed.is_some()
    }

    /// Where the sandbox gets its control group.
    #[must_use]
    pub fn hierarchies(&self) -> Option<&Hierarchies> {
        self.policed.as_ref().map(|policed| &policed.hierarchies)
    }

    /// Tells the kernel about the sandbox that is about to be born in this control group.
    ///
    /// # Errors
    /// When it cannot: nothing may be born there then.
    pub fn arm(&self, cgroup: &Cgroup) -> Result<Rc<EgressContext<Journal>>, String> {
        let network = &self.session.live.network;
        let session = Rc::clone(&self.session);
        let background = self.background;
        let on_refusal: agentsh_net::OnRefusal = Rc::new(move |server, refusal| {
            let is_unnamed = matches!(refusal.reason, Reason::TelemetryOrUpdate | Reason::NameNotAllowed);
            if !(is_unnamed && background.contains(&refusal.host.as_str())) {
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
pub fn serve(egress: Rc<EgressContext<Journal>>, sockets: Sockets) -> EgressService {
    let unanswered = UnansweredWatcher::watch(&egress, sockets.refused);
    let service = agentsh_net::serve(egress, sockets.listeners, (sockets.resolver_udp, sockets.resolver_tcp));
    EgressService { service, unanswered }
}

/// Serves while it lives.
pub struct EgressService {
    service: agentsh_net::Service<Journal>,
    unanswered: UnansweredWatcher,
}

/// Gives what a program that has ended did on the network time to be written down.
pub async fn finish(session: &Session, service: EgressService) {
    if let Ok(policed) = session.live.network.loading.policed().await {
        policed.kernel.told().await;
    }
    session.close_elsewhere(service.unanswered.finish().await);
    service.service.finish(DRAIN_TIMEOUT).await;
}

/// What a refused connection would have wanted, and the word to the user.
fn tell_refusal(session: &Session, server: Option<&ServerId>, refusal: &Refusal) {
    let is_of_machine = refusal.reason == Reason::LoopbackPortNotOpen;
    let behind = if is_of_machine { session.live.listeners.agent(refusal.port) } else { None };
    // Other changes are said in words.
    let is_piece = refusal.entry.is_some() || is_of_machine;
    if let Some(change) = refusal.change.as_ref().filter(|_| is_piece && behind.is_none()) {
        session.live.wanted.add(&session.facts, change);
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
    let host = escape::line(&refusal.host);
    let port = if refusal.port == 0 { String::new() } else { format!(":{}", refusal.port) };
    let reason = refusal.reason.code().replace('-', " ");
    let detail = if refusal.detail.is_empty() { reason } else { escape::line(&refusal.detail).into_owned() };
    let change = refusal.change.as_deref();
    // Which port the program wants, nobody knows yet.
    let ports = if refusal.port == 0 { PORTS_UNKNOWN } else { "" };
    let change = match (behind, change) {
        (Some(agent), _) => format!("; {agent} listens there, outside of every sandbox: do not open it"),
        (None, Some(change)) => format!("; to allow it: {}{ports}", escape::line(&remedy::shown(change))),
        (None, None) => String::new(),
    };
    format!("refused: {who} -> {host}{port} ({detail}, by {}){change}", refusal.rule)
}
