//! The eBPF programs of one session: maps cgroups to sandboxes and records refusals of the kernel, which the program
//! sees before the session does.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use agentsh_ebpf::limits;

use super::allow::{Allowlist, Permission, is_local};
use super::ebpf::{
    self, Attached, EbpfError, Events, Kind, Loaded, NetEvent, Reason as KernelReason, SandboxConfig,
};
use super::egress_context::{Caller, EgressContext, Origin, Refusal};
use super::judge;
use super::permit::without_rule;
use super::reason::Reason;
use crate::policy::domain::Host;
use crate::store::words::Action;
use crate::store::{Event, Recorder};
use crate::types::RuleRef;

/// The relay's address in every sandbox. Programs cannot bind ports below 1024.
const LISTENER_V4: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 54), 54);
/// IPv6 has one loopback address.
const LISTENER_V6: SocketAddrV6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 54, 0, 0);
/// Share of the session's table that one sandbox may fill with wildcard names: a quarter.
const MAX_BY_PATTERN: usize = limits::ALLOWED / 4;

pub struct Kernel<R> {
    loaded: Arc<Loaded>,
    contexts: Rc<Contexts<R>>,
    questions: mpsc::UnboundedSender<oneshot::Sender<()>>,
    reader: AbortHandle,
}

/// Sandboxes by cgroup.
struct Contexts<R> {
    by_cgroup: RefCell<BTreeMap<u64, Weak<EgressContext<R>>>>,
    loaded: Arc<Loaded>,
    lost: Cell<u64>,
}

/// One sandbox in the programs' tables, removed on drop.
pub struct PolicedCgroup {
    loaded: Arc<Loaded>,
    cgroup: u64,
    /// Names whose addresses are in the tables.
    opened: RefCell<BTreeSet<String>>,
    /// Entries taken by wildcard names.
    taken: Cell<usize>,
    /// The programs of the cgroup that connects to its relay, if there is one.
    for_redirected: OnceCell<Attached>,
}

/// The listeners that these rules need.
#[must_use]
pub fn listeners(allow: &Allowlist) -> Vec<SocketAddr> {
    if allow.ports().is_empty() { Vec::new() } else { vec![LISTENER_V4.into(), LISTENER_V6.into()] }
}

impl<R: Recorder + 'static> Kernel<R> {
    /// Starts to read events. Call inside a `LocalSet`.
    ///
    /// # Errors
    /// When the events cannot be read.
    pub fn new(loaded: Loaded) -> Result<Self, EbpfError> {
        // The programs also see the session's resolver sockets, whose answers are datagrams to loopback.
        loaded.configure(ebpf::own_cgroup()?, &SandboxConfig::default())?;
        let events = loaded.events()?;
        let loaded = Arc::new(loaded);
        let by_cgroup = RefCell::default();
        let contexts = Rc::new(Contexts { by_cgroup, loaded: Arc::clone(&loaded), lost: Cell::new(0) });
        let (questions, asked) = mpsc::unbounded_channel();
        let reader =
            agentsh_base::task::spawn_local(read(events, asked, Rc::clone(&contexts))).abort_handle();
        Ok(Self { loaded, contexts, questions, reader })
    }

    /// Fills the tables for a new sandbox in this cgroup and makes its context. `make` gets the origin of its
    /// connections.
    ///
    /// # Errors
    /// When the kernel's tables are full.
    pub fn arm(
        &self,
        cgroup: BorrowedFd<'_>,
        make: impl FnOnce(Origin) -> EgressContext<R>,
    ) -> Result<Rc<EgressContext<R>>, EbpfError> {
        let failed =
            |error: std::io::Error| EbpfError::Table { what: "find the sandbox", why: error.to_string() };
        let id = ebpf::cgroup_id(cgroup).map_err(failed)?;
        let policed = PolicedCgroup {
            loaded: Arc::clone(&self.loaded),
            cgroup: id,
            opened: RefCell::default(),
            taken: Cell::new(0),
            for_redirected: OnceCell::new(),
        };
        let egress = Rc::new(make(Origin::Kernel(policed)));
        if let Origin::Kernel(policed) = &egress.origin {
            policed.fill(&egress, cgroup)?;
        }
        let mut contexts = self.contexts.by_cgroup.borrow_mut();
        contexts.retain(|_, egress| egress.strong_count() > 0);
        contexts.insert(id, Rc::downgrade(&egress));
        drop(contexts);
        Ok(egress)
    }

    /// Returns when all earlier refusals are recorded.
    pub async fn wait_until_recorded(&self) {
        let (done, told) = oneshot::channel();
        if self.questions.send(done).is_ok() {
            // A stopped reader has no more events.
            let _ = told.await;
        }
    }
}

impl<R> Drop for Kernel<R> {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl PolicedCgroup {
    fn fill<R: Recorder + 'static>(
        &self,
        egress: &EgressContext<R>,
        cgroup: BorrowedFd<'_>,
    ) -> Result<(), EbpfError> {
        let has_listeners = !listeners(&egress.allow).is_empty();
        if has_listeners {
            // There is only one context.
            let _ = self.for_redirected.set(self.loaded.attach_for_redirected(cgroup)?);
        }
        let config = SandboxConfig {
            listener_v4: has_listeners.then_some(LISTENER_V4),
            listener_v6: has_listeners.then_some(LISTENER_V6),
            // On loopback, which is reachable anyway.
            resolver: None,
        };
        self.loaded.configure(self.cgroup, &config)?;
        for name in egress.allow.exact_names() {
            let pair = egress.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner).address_of(name);
            if let Some(pair) = pair {
                self.open(&egress.allow, name, pair)?;
            }
        }
        for (address, prefix, ports) in egress.allow.nets() {
            // The policy has no invalid prefix.
            let Ok(net) = IpNet::new(address, prefix) else { continue };
            for port in ports {
                self.loaded.allow_net(self.cgroup, net, Some(*port))?;
            }
        }
        for (port, _) in egress.allow.loopback() {
            self.loaded.allow(self.cgroup, Ipv4Addr::LOCALHOST.into(), port)?;
            self.loaded.allow(self.cgroup, Ipv6Addr::LOCALHOST.into(), port)?;
        }
        Ok(())
    }

    /// Opens the addresses of an allowed name on its rules' ports.
    ///
    /// # Errors
    /// When the table is full, or the sandbox's share for wildcard names.
    pub(super) fn open(
        &self,
        allow: &Allowlist,
        name: &str,
        (v4, v6): (Ipv4Addr, Ipv6Addr),
    ) -> Result<(), EbpfError> {
        let host = Host::Name(name.to_owned());
        if is_local(&host) || self.opened.borrow().contains(name) {
            return Ok(());
        }
        let is_allowed = |port: &u16| allow.decide(&host, *port).outcome != Permission::Refused;
        let ports: Vec<u16> = allow.ports().into_iter().filter(is_allowed).collect();
        if !allow.exact_names().any(|exact| exact == name) {
            let taken = self.taken.get() + 2 * ports.len();
            if taken > MAX_BY_PATTERN {
                let why = format!("names that match wildcards fill all {} entries", self.taken.get());
                return Err(EbpfError::Table { what: "allow a name", why });
            }
            self.taken.set(taken);
        }
        for port in ports {
            self.loaded.allow(self.cgroup, v4.into(), port)?;
            self.loaded.allow(self.cgroup, v6.into(), port)?;
        }
        self.opened.borrow_mut().insert(name.to_owned());
        Ok(())
    }

    pub(super) fn origin(&self, peer: SocketAddr) -> Option<(SocketAddr, Caller)> {
        let origin = self.loaded.origin(self.cgroup, peer)?;
        Some((origin.destination, Caller { pid: origin.tgid, comm: origin.comm }))
    }
}

impl Drop for PolicedCgroup {
    fn drop(&mut self) {
        self.loaded.remove(self.cgroup);
    }
}

async fn read<R: Recorder + 'static>(
    mut events: Events,
    mut asked: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    contexts: Rc<Contexts<R>>,
) {
    loop {
        tokio::select! {
            event = events.next() => match event {
                Ok(event) => contexts.record_event(&event).await,
                // Refused anyway; counted as lost.
                Err(_) => return,
            },
            question = asked.recv() => {
                let Some(done) = question else { return };
                while let Some(event) = events.take() {
                    contexts.record_event(&event).await;
                }
                contexts.tell_lost();
                // The caller may be gone.
                let _ = done.send(());
            }
        }
    }
}

impl<R: Recorder + 'static> Contexts<R> {
    async fn record_event(&self, event: &NetEvent) {
        // The relay counts the bytes of what it carried.
        if event.kind == Kind::Closed {
            return;
        }
        let egress = self.by_cgroup.borrow().get(&event.cgroup).and_then(Weak::upgrade);
        let Some(egress) = egress else { return };
        if is_address_sorting(&egress, event) {
            return;
        }
        egress.record.wait_for_room().await;
        let refusal = refusal(&egress, event);
        let Some(count) = egress.count(&refusal, "") else { return };
        let address = event.destination.map(|destination| destination.ip().to_string());
        let address = address.filter(|address| *address == refusal.host);
        let caller = Caller { pid: event.tgid, comm: event.comm.clone() };
        egress.record.record(egress.blocked(&refusal, address, protocol(event), Some(&caller), count));
    }

    fn tell_lost(&self) {
        let lost = self.loaded.lost_events();
        let count = lost.saturating_sub(self.lost.replace(lost));
        let egress = self.by_cgroup.borrow().values().find_map(Weak::upgrade);
        let (Some(egress), true) = (egress, count > 0) else { return };
        egress.record.record(Event::NetConnectBlocked {
            server_id: None,
            name: None,
            address: None,
            port: 0,
            protocol: None,
            action: Action::Block,
            reason: Reason::EventsLost.to_string(),
            detail: "the kernel refused, or ended, more connections than could be read in time".to_owned(),
            rule: RuleRef::default_rule("network.allow"),
            change: None,
            count,
            pid: None,
            comm: None,
        });
    }
}

/// The C library connects a datagram socket to each address of a name to sort them, and sends nothing. An event would
/// make an allowed name look refused.
fn is_address_sorting<R: Recorder + 'static>(egress: &EgressContext<R>, event: &NetEvent) -> bool {
    let pool = egress.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let stands_for_a_name = event.destination.is_some_and(|to| pool.name_of(to.ip()).is_some());
    event.kind == Kind::Connect && event.reason == KernelReason::Datagram && stands_for_a_name
}

fn protocol(event: &NetEvent) -> Option<&'static str> {
    match event.protocol {
        6 => Some("tcp"),
        17 => Some("udp"),
        132 => Some("sctp"),
        262 => Some("mptcp"),
        _ => None,
    }
}

/// A refusal by the kernel, with the policy's reason.
fn refusal<R: Recorder + 'static>(egress: &EgressContext<R>, event: &NetEvent) -> Refusal {
    let plain = |host, port, reason, detail: &str| *without_rule(host, port, reason, detail);
    let Some(destination) = event.destination else {
        let detail = format!(
            "a socket of family {}, type {} and protocol {}",
            event.family, event.socket_type, event.protocol
        );
        return plain("socket".to_owned(), 0, Reason::SocketNotAllowed, &detail);
    };
    let (host, port) = (display_address(egress, destination.ip()), destination.port());
    match event.reason {
        KernelReason::Datagram => {
            plain(host, port, Reason::UdpNotAllowed, super::egress_context::ONLY_RESOLVER)
        }
        KernelReason::Protocol => plain(host, port, Reason::ProtocolNotAllowed, "neither TCP nor UDP"),
        KernelReason::Listener => *judge::not_redirected(),
        KernelReason::Unknown => plain(host, port, Reason::SandboxUnknown, "an unknown control group"),
        KernelReason::NoListener => {
            plain(host, port, Reason::NoListener, "no listener of that address family")
        }
        KernelReason::NoMemory => {
            plain(host, port, Reason::NoMemory, "the kernel had no memory for the connection")
        }
        KernelReason::NotAllowed | KernelReason::None => match judge::by_address(egress, destination) {
            Err(refusal) => *refusal,
            Ok(_) => plain(host, port, Reason::TableFull, "the kernel's table of allowed addresses is full"),
        },
    }
}

/// The name of an address, or the address.
fn display_address<R: Recorder + 'static>(egress: &EgressContext<R>, address: IpAddr) -> String {
    let pool = egress.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    pool.name_of(address).map_or_else(|| address.to_string(), str::to_owned)
}
