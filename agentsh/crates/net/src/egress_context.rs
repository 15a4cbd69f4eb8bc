//! The network state of one sandbox: rules, event sink, counts of repeated refusals.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::allow::Allowlist;
use super::ask::Ask;
use super::authority::Authority;
use super::channel::{Channel, RequestFilter};
use super::connection_limit::ConnectionLimit;
use super::credentials::Broker;
use super::fake_ip_pool::FakeIpPool;
use super::judge;
use super::kernel::PolicedCgroup;
use super::permit::without_rule;
use super::proxy::Proxy;
use super::reason::Reason;
use super::resolve::{ResolveError, Resolver};
use super::socket::Socket;
use crate::policy::NetworkPolicy;
use crate::store::words::Action;
use crate::store::{Event, Recorder, redact};
use crate::types::{RuleRef, ServerId};

/// A refused connection or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub host: String,
    /// 0 for a name lookup.
    pub port: u16,
    pub reason: Reason,
    /// For people; may be empty.
    pub detail: String,
    pub rule: RuleRef,
    /// The policy change that would allow it.
    pub change: Option<String>,
    /// The same, as an entry of `network.allow`.
    pub entry: Option<String>,
    /// One request of a connection.
    pub of_request: bool,
}

/// The host's resolver, created on first use.
#[derive(Default)]
pub struct LazyResolver(OnceCell<Result<Resolver, ResolveError>>);

impl LazyResolver {
    pub(super) async fn resolve(
        &self,
        name: &str,
        permitted: &[ipnet::IpNet],
    ) -> Result<Vec<std::net::IpAddr>, ResolveError> {
        match self.0.get_or_init(Resolver::system) {
            Ok(resolver) => resolver.resolve(name, permitted).await,
            Err(error) => Err(error.clone()),
        }
    }

    pub(super) async fn lookup(&self, name: &str) -> Result<Vec<std::net::IpAddr>, ResolveError> {
        match self.0.get_or_init(Resolver::system) {
            Ok(resolver) => Ok(resolver.lookup(name).await?.addresses),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Called for the first refusal of each kind in a sandbox.
pub type OnRefusal = Rc<dyn Fn(Option<&ServerId>, &Refusal)>;

/// Whether no advice to open a port of this machine is given.
pub type NeverAdvisedPort = Rc<dyn Fn(u16) -> bool>;

/// How the relay learns a connection's destination.
pub enum Origin {
    /// Every address is local: the arrival address is the destination.
    Arrival,
    /// The kernel stores the destination of the program's end.
    Kernel(PolicedCgroup),
    /// The connector announces the destination for its own end.
    Told(AnnouncedConnections),
}

pub type AnnouncedConnections = Arc<Mutex<BTreeMap<SocketAddr, AcceptedConnection>>>;

/// A connection and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedConnection {
    pub destination: SocketAddr,
    pub caller: Option<Caller>,
}

/// The process of a connection, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// On the host.
    pub pid: u32,
    /// Thread name; any characters.
    pub comm: String,
}

impl Origin {
    /// None if the connection was not redirected.
    #[must_use]
    pub fn of(&self, stream: &Socket, peer: Option<SocketAddr>) -> Option<AcceptedConnection> {
        let (address, caller) = match self {
            Self::Told(told) => return told.lock().ok()?.remove(&peer?),
            Self::Arrival => (stream.local_addr().ok()?, None),
            Self::Kernel(policed) => {
                let (address, caller) = policed.origin(peer?)?;
                (address, Some(caller))
            }
        };
        Some(AcceptedConnection {
            destination: SocketAddr::new(address.ip().to_canonical(), address.port()),
            caller,
        })
    }
}

/// Services for one sandbox's connections.
#[derive(Clone, Default)]
pub struct Services {
    pub resolver: Rc<LazyResolver>,
    /// For TLS inspection; None if no rule needs it.
    pub authority: Option<Rc<Authority>>,
    /// Asks a person about names without a rule.
    pub ask: Option<Rc<dyn Ask>>,
    /// The user's proxy.
    pub proxy: Option<Rc<Proxy>>,
    /// Replaces placeholders by secrets.
    pub broker: Option<Rc<Broker>>,
    /// Handles some connections instead of the relay.
    pub channel: Option<Rc<dyn Channel>>,
    /// Ports of this machine that are never advised to be opened.
    pub unadvised: Option<NeverAdvisedPort>,
}

/// The network state of one sandbox.
pub struct EgressContext<R> {
    /// None: the agent.
    pub server: Option<ServerId>,
    pub network: NetworkPolicy,
    pub allow: Allowlist,
    pub pool: Mutex<FakeIpPool>,
    pub resolver: Rc<LazyResolver>,
    pub origin: Origin,
    pub connections: Rc<ConnectionLimit>,
    pub record: R,
    on_refusal: OnRefusal,
    /// For TLS inspection; None if no rule needs it.
    pub authority: Option<Rc<Authority>>,
    /// Replaces placeholders by secrets.
    pub broker: Option<Rc<Broker>>,
    /// Asks a person about names without a rule.
    pub ask: Option<Rc<dyn Ask>>,
    /// Ports of this machine that are never advised to be opened.
    pub unadvised: Option<NeverAdvisedPort>,
    /// The user's proxy.
    pub proxy: Option<Rc<Proxy>>,
    /// Handles some connections instead of the relay.
    pub channel: Option<Rc<dyn Channel>>,
    pub(super) live: Cell<usize>,
    /// Connections of this sandbox.
    pub(super) own_connections: Rc<Cell<usize>>,
    counted: RefCell<BTreeMap<Key, EventCount>>,
    /// Refusals recorded so far.
    written: Cell<u64>,
}

/// Host, port and reason; no reason beyond the limit of kinds.
type Key = (String, u16, Option<Reason>);

pub(super) const ONLY_RESOLVER: &str = "UDP is allowed only to the sandbox's own resolver";

struct EventCount {
    total: u64,
    written: u64,
    /// The first of its kind.
    refusal: Refusal,
    /// The record type that was asked for first; empty for a connection.
    query_type: String,
}

/// Limit of distinguished refusals, because programs can invent names.
const MAX_DIFFERENT: usize = 1000;
/// The number of equal refusals that are recorded singly; later only when their number doubles.
const RECORDED_SINGLY: u64 = 16;
/// After this many events of a sandbox, only the first of each kind is recorded at once.
const WRITTEN_BEFORE: u64 = 512;

impl<R: Recorder + 'static> EgressContext<R> {
    #[must_use]
    pub fn new(
        server: Option<ServerId>,
        network: NetworkPolicy,
        origin: Origin,
        connections: Rc<ConnectionLimit>,
        record: R,
        on_refusal: OnRefusal,
        services: Services,
    ) -> Self {
        let Services { resolver, authority, ask, proxy, broker, channel, unadvised } = services;
        let allow = Allowlist::new(&network);
        let pool = Mutex::new(FakeIpPool::new(&allow));
        let allow = allow.with_questions(ask.is_some());
        Self {
            server,
            network,
            allow,
            pool,
            resolver,
            origin,
            connections,
            record,
            on_refusal,
            authority,
            broker,
            ask,
            proxy,
            channel,
            unadvised,
            live: Cell::new(0),
            own_connections: Rc::default(),
            counted: RefCell::new(BTreeMap::new()),
            written: Cell::new(0),
        }
    }

    /// Requests that the channel takes out of other connections.
    pub(super) fn request_filter(&self) -> Option<RequestFilter> {
        self.channel.as_ref().and_then(|channel| channel.request_filter())
    }

    /// Counts a refusal, and reports a new one. Returns the count for the next event, if one is due. A program that looks
    /// up a name asks for both kinds of address: one of them counts.
    pub(super) fn count(&self, refusal: &Refusal, query_type: &str) -> Option<u64> {
        let mut counted = self.counted.borrow_mut();
        // Each refused request has its own remedy, so none hides another.
        let host = match refusal.of_request {
            true => format!("{} {}", refusal.host, refusal.detail),
            false => refusal.host.clone(),
        };
        let mut key = (host, refusal.port, Some(refusal.reason));
        if counted.len() >= MAX_DIFFERENT && !counted.contains_key(&key) {
            key = (String::new(), 0, None);
        }
        let is_known = key.2.is_some();
        let new = || EventCount {
            total: 0,
            written: 0,
            refusal: refusal.clone(),
            query_type: query_type.to_owned(),
        };
        let entry = counted.entry(key).or_insert_with(new);
        if is_known && entry.query_type != query_type {
            return None;
        }
        entry.total += 1;
        if entry.total == 1 {
            (self.on_refusal)(self.server.as_ref(), refusal);
        }
        let singly = if self.written.get() < WRITTEN_BEFORE { RECORDED_SINGLY } else { 1 };
        if entry.total > singly && !entry.total.is_power_of_two() {
            return None;
        }
        self.written.set(self.written.get() + 1);
        let due = entry.total - entry.written;
        entry.written = entry.total;
        Some(due)
    }

    /// Records refusals counted since the last event of their kind.
    pub(super) fn count_rest(&self) {
        for counted in self.counted.borrow_mut().values_mut() {
            let due = counted.total - std::mem::replace(&mut counted.written, counted.total);
            if due > 0 {
                self.record.record(self.blocked(&counted.refusal, None, None, None, due));
            }
        }
    }

    /// Reports an unanswered connection if the policy is the reason; False: it is not.
    pub async fn was_unanswered(&self, destination: SocketAddr, is_tcp: bool) -> bool {
        let refusal = match judge::by_address(self, destination) {
            Err(refusal) => refusal,
            // An allowed host that does not answer is not the policy's matter.
            Ok(_) => return false,
        };
        let refusal = match is_tcp {
            true => refusal,
            false => without_rule(refusal.host, destination.port(), Reason::UdpNotAllowed, ONLY_RESOLVER),
        };
        let address = destination.ip().to_string();
        let address = Some(address).filter(|address| *address == refusal.host);
        let protocol = if is_tcp { "tcp" } else { "udp" };
        self.record.wait_for_room().await;
        self.commit_refusal(&refusal, address, Some(protocol), None).await
    }

    /// The policy change that allows a host and port: the whole text, and the entry.
    pub(super) fn change(&self, host: &str, port: u16) -> (Option<String>, Option<String>) {
        let is_here = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_here && self.unadvised.as_ref().is_some_and(|unadvised| unadvised(port)) {
            return (None, None);
        }
        let answer = crate::policy::ask_connect(&self.network, self.server.as_ref(), host, port);
        (answer.change, crate::policy::allow_entry(host, port))
    }

    /// Like [`EgressContext::change`], for any entry of `network.allow`.
    pub(super) fn change_to(&self, entry: &str) -> (Option<String>, Option<String>) {
        (Some(crate::policy::allow_line(self.server.as_ref(), entry)), Some(entry.to_owned()))
    }

    /// Records a refused connection; on disk if true.
    #[must_use]
    pub(super) async fn commit_refusal(
        &self,
        refusal: &Refusal,
        address: Option<String>,
        protocol: Option<&str>,
        caller: Option<&Caller>,
    ) -> bool {
        let Some(count) = self.count(refusal, "") else { return self.record.broken().is_none() };
        self.record.commit(self.blocked(refusal, address, protocol, caller, count)).await.is_ok()
    }

    /// The event for `count` refused connections.
    pub(super) fn blocked(
        &self,
        refusal: &Refusal,
        address: Option<String>,
        protocol: Option<&str>,
        caller: Option<&Caller>,
        count: u64,
    ) -> Event {
        let is_address = address.as_deref() == Some(refusal.host.as_str());
        Event::NetConnectBlocked {
            server_id: self.server.clone(),
            name: (!is_address).then(|| refusal.host.clone()),
            address,
            port: refusal.port,
            protocol: protocol.map(str::to_owned),
            action: Action::Block,
            reason: refusal.reason.to_string(),
            // A path may hold a token.
            detail: redact::text(&refusal.detail),
            rule: refusal.rule.clone(),
            change: refusal.change.as_deref().map(redact::redact_text),
            count,
            pid: caller.map(|caller| caller.pid),
            comm: caller.map(|caller| caller.comm.clone()),
        }
    }
}
