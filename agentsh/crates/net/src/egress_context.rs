//! What one sandbox may reach, who hears of it, and how often the same refusal is written down.

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
use super::permit::unruled;
use super::proxy::Proxy;
use super::reason::Reason;
use super::resolve::{ResolveError, Resolver};
use super::socket::Socket;
use crate::policy::NetworkPolicy;
use crate::store::words::Action;
use crate::store::{Event, Recorder};
use crate::types::{RuleRef, ServerId};

/// Why a connection, or a name, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub host: String,
    /// 0 for a name that was looked up.
    pub port: u16,
    pub reason: Reason,
    /// For people; may be empty.
    pub detail: String,
    pub rule: RuleRef,
    /// The piece of policy that would allow it.
    pub change: Option<String>,
    /// The same as an entry of `network.allow` alone.
    pub entry: Option<String>,
    /// It is about one request of a connection.
    pub of_request: bool,
}

/// The host's resolver, set up when the first name is needed.
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

    /// Everything that a name leads to.
    pub(super) async fn lookup(&self, name: &str) -> Result<Vec<std::net::IpAddr>, ResolveError> {
        match self.0.get_or_init(Resolver::system) {
            Ok(resolver) => Ok(resolver.lookup(name).await?.addresses),
            Err(error) => Err(error.clone()),
        }
    }
}

/// Hears of every refusal that differs from those before it in its sandbox.
pub type OnRefusal = Rc<dyn Fn(Option<&ServerId>, &Refusal)>;

/// Whether it is never said how a port of this machine would be opened.
pub type NeverAdvisedPort = Rc<dyn Fn(u16) -> bool>;

/// How the backend tells where a connection wanted to go.
pub enum Origin {
    /// Every address is local: where it arrived is where it wanted to go.
    Arrival,
    /// The kernel keeps the destination for the program's end of the connection.
    Kernel(PolicedCgroup),
    /// Whoever makes the program's connections writes down where each is to go, by its own end.
    Told(AnnouncedConnections),
}

/// Connections that are on their way to the relay.
pub type AnnouncedConnections = Arc<Mutex<BTreeMap<SocketAddr, AcceptedConnection>>>;

/// A connection and where it wanted to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedConnection {
    pub destination: SocketAddr,
    pub caller: Option<Caller>,
}

/// Who began a connection, as far as the backend knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// As the host counts them.
    pub pid: u32,
    /// The thread's name; it may hold any characters.
    pub comm: String,
}

impl Origin {
    /// None for a connection that nobody redirected.
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

/// What serves one sandbox's connections beside its rules.
#[derive(Clone, Default)]
pub struct Services {
    pub resolver: Rc<LazyResolver>,
    /// Signs for the names whose TLS ends here; None where no rule wants that.
    pub authority: Option<Rc<Authority>>,
    /// Asks a person about names that no rule names.
    pub ask: Option<Rc<dyn Ask>>,
    /// The user's own way out.
    pub proxy: Option<Rc<Proxy>>,
    /// Secrets that go on requests in place of their placeholders.
    pub broker: Option<Rc<Broker>>,
    /// Speaks in the relay's place on some connections.
    pub channel: Option<Rc<dyn Channel>>,
    /// Of some ports of this machine it is not said how they would be opened.
    pub unadvised: Option<NeverAdvisedPort>,
}

/// The way out of one sandbox.
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
    /// Signs for the names whose TLS ends here; None where no rule wants that.
    pub authority: Option<Rc<Authority>>,
    /// Secrets that go on requests.
    pub broker: Option<Rc<Broker>>,
    /// Asks a person about names that no rule names.
    pub ask: Option<Rc<dyn Ask>>,
    /// Ports of this machine that nobody is advised to open.
    pub unadvised: Option<NeverAdvisedPort>,
    /// The user's own way out.
    pub proxy: Option<Rc<Proxy>>,
    /// Speaks in the relay's place on some connections.
    pub channel: Option<Rc<dyn Channel>>,
    pub(super) live: Cell<usize>,
    /// How many of the connections are of this sandbox.
    pub(super) own_connections: Rc<Cell<usize>>,
    counted: RefCell<BTreeMap<Key, EventCount>>,
    /// Refusals written so far.
    written: Cell<u64>,
}

/// Host, port and reason; the reason is none for all that are not told apart any more.
type Key = (String, u16, Option<Reason>);

pub(super) const ONLY_RESOLVER: &str = "UDP is allowed only to the sandbox's own resolver";

struct EventCount {
    total: u64,
    written: u64,
    /// The first of its kind.
    refusal: Refusal,
}

/// Different refusals of one sandbox that are told apart; a program can make up names without end.
const MAX_DIFFERENT: usize = 1000;
/// The same refusal is written this often one by one; then only when the number of them has doubled.
const WRITTEN_SINGLY: u64 = 16;
/// After so many events of a sandbox, only the first of a kind is still written at once.
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
        let allow = allow.asking(ask.is_some());
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

    /// Which requests the channel takes out of connections that it does not carry.
    pub(super) fn picks(&self) -> Option<RequestFilter> {
        self.channel.as_ref().and_then(|channel| channel.picks())
    }

    /// Counts a refusal, and tells a new one. Gives the number that the next event stands for, when one is due.
    pub(super) fn count(&self, refusal: &Refusal) -> Option<u64> {
        let mut counted = self.counted.borrow_mut();
        // One refused request must not hide the next: each has a line of its own that allows it.
        let host = match refusal.of_request {
            true => format!("{} {}", refusal.host, refusal.detail),
            false => refusal.host.clone(),
        };
        let mut key = (host, refusal.port, Some(refusal.reason));
        if counted.len() >= MAX_DIFFERENT && !counted.contains_key(&key) {
            key = (String::new(), 0, None);
        }
        let new = || EventCount { total: 0, written: 0, refusal: refusal.clone() };
        let entry = counted.entry(key).or_insert_with(new);
        entry.total += 1;
        if entry.total == 1 {
            (self.on_refusal)(self.server.as_ref(), refusal);
        }
        let singly = if self.written.get() < WRITTEN_BEFORE { WRITTEN_SINGLY } else { 1 };
        if entry.total > singly && !entry.total.is_power_of_two() {
            return None;
        }
        self.written.set(self.written.get() + 1);
        let due = entry.total - entry.written;
        entry.written = entry.total;
        Some(due)
    }

    /// Writes down the refusals that were counted since the last event of their kind.
    pub(super) fn count_rest(&self) {
        for counted in self.counted.borrow_mut().values_mut() {
            let due = counted.total - std::mem::replace(&mut counted.written, counted.total);
            if due > 0 {
                self.record.record(self.blocked(&counted.refusal, None, None, None, due));
            }
        }
    }

    /// A connection, or a datagram, that nobody inside answered. It is told where the policy is why; False: it is not.
    pub async fn was_unanswered(&self, destination: SocketAddr, is_tcp: bool) -> bool {
        let refusal = match judge::by_address(self, destination) {
            Err(refusal) => refusal,
            // Who may be reached and does not answer is not a matter of the policy.
            Ok(_) => return false,
        };
        let refusal = match is_tcp {
            true => refusal,
            false => unruled(refusal.host, destination.port(), Reason::UdpNotAllowed, ONLY_RESOLVER),
        };
        let address = destination.ip().to_string();
        let address = Some(address).filter(|address| *address == refusal.host);
        let protocol = if is_tcp { "tcp" } else { "udp" };
        self.record.room().await;
        self.commit_refusal(&refusal, address, Some(protocol), None).await
    }

    /// What policy would have to say to allow this host and port: the whole piece, and the entry alone.
    pub(super) fn change(&self, host: &str, port: u16) -> (Option<String>, Option<String>) {
        let is_here = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_here && self.unadvised.as_ref().is_some_and(|unadvised| unadvised(port)) {
            return (None, None);
        }
        let answer = crate::policy::ask_connect(&self.network, self.server.as_ref(), host, port);
        (answer.change, crate::policy::allow_entry(host, port))
    }

    /// As [`EgressContext::change`], for an entry of `network.allow` that is more than a host and a port.
    pub(super) fn change_to(&self, entry: &str) -> (Option<String>, Option<String>) {
        (Some(crate::policy::allow_line(self.server.as_ref(), entry)), Some(entry.to_owned()))
    }

    /// Records a refused connection; it is on disk when this returns true.
    #[must_use]
    pub(super) async fn commit_refusal(
        &self,
        refusal: &Refusal,
        address: Option<String>,
        protocol: Option<&str>,
        caller: Option<&Caller>,
    ) -> bool {
        let Some(count) = self.count(refusal) else { return self.record.broken().is_none() };
        self.record.commit(self.blocked(refusal, address, protocol, caller, count)).await.is_ok()
    }

    /// The event of a refused connection that stands for `count` of them.
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
            detail: refusal.detail.clone(),
            rule: refusal.rule.clone(),
            change: refusal.change.clone(),
            count,
            pid: caller.map(|caller| caller.pid),
            comm: caller.map(|caller| caller.comm.clone()),
        }
    }
}
