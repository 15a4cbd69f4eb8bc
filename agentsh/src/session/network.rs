//! The way out of the sandboxes of a session: from policy to the plan's network, the service behind it, and what the
//! user hears of refusals.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use ipnet::IpNet;

use crate::agent;
use crate::net::{self, Allowlist, Gate, LazyResolver, Origin, Refusal, Room, Witness};
use crate::policy::{NetworkPolicy, NetworkRule, Ruled, domain};
use crate::sandbox::control::MOST_PORTS;
use crate::sandbox::network::Sockets;
use crate::sandbox::{Enforcement, State, plan};
use crate::store::{Event, escape};
use crate::types::{RuleRef, ServerId};

use super::Session;

/// Which backend polices connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The strongest that can be had here.
    #[default]
    Auto,
    Ebpf,
    Userns,
}

/// What the ways out of a session's sandboxes share.
pub struct Network {
    room: Rc<Room>,
    resolver: Rc<LazyResolver>,
    /// Made for the first sandbox whose rules look into TLS.
    pub(super) authority: OnceCell<Option<Rc<net::inspect::Authority>>>,
    shown: Cell<u32>,
    /// What would have to be allowed, by who asked.
    wanted: RefCell<BTreeMap<Option<ServerId>, BTreeSet<String>>>,
}

/// How long connections of a program that has ended may take to end.
pub const LAST_WORDS: Duration = Duration::from_millis(200);
/// Refusals that are told one by one; the report has them all.
const MOST_SHOWN: u32 = 20;
/// Entries that are remembered for each sandbox.
const MOST_WANTED: usize = 200;

/// Where the model of a user, or the registry of his packages, may be: what the user wrote as its address counts, also
/// inside a private network. Not among them: the addresses at which clouds keep their credentials.
const USERS_NETWORKS: [&str; 7] =
    ["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"];

impl Network {
    #[must_use]
    pub fn new() -> Self {
        Self {
            room: Rc::new(Room::new()),
            resolver: Rc::new(LazyResolver::default()),
            authority: OnceCell::new(),
            shown: Cell::new(0),
            wanted: RefCell::default(),
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

/// The lines of policy that would allow what a session refused.
#[must_use]
pub fn learned(session: &Session) -> String {
    let wanted = session.network.wanted.borrow();
    if wanted.is_empty() {
        return "nothing was refused that a rule of `network.allow` could let through".to_owned();
    }
    let list = |entries: &BTreeSet<String>| {
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        format!("network: {{allow: [{}]}}", entries.join(", "))
    };
    let mut text = "these lines of policy would allow what was refused; allow what you know:\n".to_owned();
    for (server, entries) in &*wanted {
        // Writing to a string cannot fail.
        let _ = match server {
            None => writeln!(text, "agent:\n  {}", list(entries)),
            Some(id) => {
                if !text.contains("\nsandbox:\n") {
                    text.push_str("sandbox:\n  mcp:\n    servers:\n");
                }
                writeln!(text, "      - {{id: {:?}, {}}}", id.0, list(entries))
            }
        };
    }
    text.truncate(text.trim_end().len());
    text
}

/// What the network namespace of a process gets.
///
/// # Errors
/// When policy names more ports than can be listened on.
pub fn plan(policy: &NetworkPolicy) -> Result<plan::Network, String> {
    let ports = Allowlist::new(policy).ports();
    if ports.len() > MOST_PORTS {
        return Err(format!(
            "its network rules name {} ports; at most {MOST_PORTS} can be opened",
            ports.len()
        ));
    }
    if ports.is_empty() {
        return Ok(plan::Network::Closed);
    }
    Ok(plan::Network::AnyIp { ports: ports.into_iter().collect() })
}

/// What stands in the report about the network of one process.
#[must_use]
pub fn enforcement(chosen: Backend, network: &plan::Network) -> Enforcement {
    let got = match network {
        plan::Network::Closed => "no route and no listener; names are refused",
        plan::Network::AnyIp { .. } | plan::Network::Redirected { .. } => {
            "userns: no route; names, TLS and HTTP hosts are checked"
        }
    };
    if chosen == Backend::Ebpf {
        let why = "eBPF programs are not part of this version: the process behind a connection is not recorded, and \
                   connections to other ports fail without an event";
        return Enforcement::less("network", "ebpf", got, State::Degraded, why);
    }
    Enforcement::enforced("network", got)
}

/// The rules of the agent, with its model among them.
#[must_use]
pub fn with_endpoints(policy: &NetworkPolicy, endpoints: &[agent::Endpoint]) -> NetworkPolicy {
    let mut policy = policy.clone();
    for endpoint in endpoints {
        let rule = RuleRef { id: endpoint.why.clone(), file: "agent".to_owned(), line: 0 };
        let Ok(host) = domain::normalise(&endpoint.host) else { continue };
        if net::allow::is_local(&host) {
            policy.loopback.push(Ruled { value: endpoint.port, rule });
            continue;
        }
        let Ok(pattern) = domain::parse_pattern(&endpoint.host) else { continue };
        let mut value = NetworkRule::plain(pattern, vec![endpoint.port]);
        value.addresses = users_networks(&rule);
        policy.allow.insert(0, Ruled { value, rule });
    }
    policy
}

/// Private networks in which a name may lie that the user's own configuration gives, as conditions of its rule.
#[must_use]
pub fn users_networks(rule: &RuleRef) -> Vec<Ruled<IpNet>> {
    let blocks = USERS_NETWORKS.iter().filter_map(|block| block.parse().ok());
    blocks.map(|value| Ruled { value, rule: rule.clone() }).collect()
}

/// Serves the sockets of a started sandbox.
#[must_use]
pub fn serve(
    session: &Rc<Session>,
    server: Option<ServerId>,
    policy: NetworkPolicy,
    sockets: Sockets,
) -> net::Service<Session> {
    let network = &session.network;
    let authority = super::trust::authority(session, &policy);
    let gate = Gate::new(
        server,
        policy,
        Rc::clone(&network.resolver),
        Origin::Arrival,
        Rc::clone(&network.room),
        Rc::clone(session),
    )
    .with_authority(authority);
    net::serve(Rc::new(gate), sockets.listeners, (sockets.resolver_udp, sockets.resolver_tcp))
}

impl Witness for Session {
    fn record(&self, event: Event) {
        self.journal.record(event);
    }

    async fn commit(&self, event: Event) -> bool {
        self.journal.commit(event).await.is_ok()
    }

    fn refused(&self, server: Option<&ServerId>, refusal: &Refusal) {
        if let Some(entry) = &refusal.entry {
            let mut wanted = self.network.wanted.borrow_mut();
            let entries = wanted.entry(server.cloned()).or_default();
            if entries.len() < MOST_WANTED {
                entries.insert(entry.clone());
            }
        }
        let shown = self.network.shown.get();
        self.network.shown.set(shown.saturating_add(1));
        match shown.cmp(&MOST_SHOWN) {
            std::cmp::Ordering::Less => self.note(&line(server, refusal)),
            std::cmp::Ordering::Equal => {
                self.note("more connections are refused; `agentsh report` lists them all");
            }
            std::cmp::Ordering::Greater => {}
        }
    }
}

fn line(server: Option<&ServerId>, refusal: &Refusal) -> String {
    let who = server.map_or("the agent".to_owned(), |id| format!("server '{}'", escape::line(&id.0)));
    let host = escape::line(&refusal.host);
    let what = match refusal.port {
        0 => format!("the name '{host}'"),
        port => format!("a connection to '{host}' port {port}"),
    };
    let detail = if refusal.detail.is_empty() { refusal.reason } else { &refusal.detail };
    let detail = escape::line(detail);
    let change = refusal.change.as_deref();
    let change = change.map_or(String::new(), |change| format!("; to allow it: {}", escape::line(change)));
    format!("{what} is refused to {who}: {detail}, by {}{change}", refusal.rule)
}
