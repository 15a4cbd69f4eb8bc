//! The network allow list in the kernel: programs attached to a cgroup judge each `connect` by the cgroup of its
//! process.
//!
//! Allowed connections go to the relay's listener in the sandbox; [`Loaded::origin`] gives their original destination.
//! All others get EPERM and an event. An unconfigured cgroup below the attached one reaches nothing.
//!
//! Sockets from elsewhere and packet sockets bypass the programs, so the namespace also has no route and seccomp
//! refuses such sockets. Without the programs, nothing is reachable.

mod cgroup_id;
mod error;
mod events;
mod load;
#[cfg(feature = "ebpf-log")]
mod log;
pub mod object;
mod sys;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::maps::{MapData, RingBuf};
use caps::{CapSet, Capability};
use ipnet::IpNet;

pub use agentsh_ebpf::{Kind, Reason, Traffic};
pub use cgroup_id::{cgroup_id, cgroup2_mount, own_cgroup};
pub use error::EbpfError;
pub use events::{Events, NetEvent};
pub use tables::{Counters, SandboxConfig, net_key};

use load::Program;
use tables::Tables;

/// Programs for redirected connections: one redirects, the others show the requested address.
const FOR_REDIRECTED: [&str; 3] = ["agentsh_stream", "agentsh_peer4", "agentsh_peer6"];

/// The programs and maps of a session. Methods take `&self`, from any thread.
pub struct Loaded {
    /// On every sandbox.
    programs: Vec<Program>,
    /// On sandboxes with a relay.
    for_redirected: Vec<Program>,
    tables: Mutex<Tables>,
    ring: Mutex<Option<RingBuf<MapData>>>,
    /// Socket storage, only kept open.
    _sockets: BTreeMap<String, MapData>,
}

/// Programs on one cgroup and below, detached on drop.
#[derive(Debug)]
pub struct Attached {
    links: Vec<OwnedFd>,
}

/// The destination of a redirected connection, and its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub destination: SocketAddr,
    pub cookie: u64,
    /// Process and thread id on the host.
    pub tgid: u32,
    pub pid: u32,
    /// Thread name; any characters.
    pub comm: String,
}

impl Loaded {
    /// Loads the built-in programs, in one to three milliseconds, on any thread.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN in the initial user namespace, or when the kernel refuses.
    pub fn load() -> Result<Self, EbpfError> {
        check_permission()?;
        let load::LoadedPrograms { mut maps, programs } = load::load(object::BYTES)?;
        #[cfg(feature = "ebpf-log")]
        log::follow(&programs)?;
        let (for_redirected, programs): (Vec<_>, Vec<_>) =
            programs.into_iter().partition(|program| FOR_REDIRECTED.contains(&program.name.as_str()));
        if for_redirected.len() != FOR_REDIRECTED.len() {
            return Err(EbpfError::Object(format!("it lacks one of {}", FOR_REDIRECTED.join(", "))));
        }
        let ring = tables::take(&mut maps, "EVENTS")?;
        let ring = RingBuf::try_from(ring)
            .map_err(|error| EbpfError::Map { name: "EVENTS".to_owned(), why: load::chain(&error) })?;
        let tables = Tables::new(&mut maps)?;
        Ok(Self {
            programs,
            for_redirected,
            tables: Mutex::new(tables),
            ring: Mutex::new(Some(ring)),
            _sockets: maps,
        })
    }

    /// SHA-256 of the loaded object, lowercase hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        object::sha256()
    }

    /// Attaches to a version 2 cgroup. Only later processes and sockets below it are policed.
    ///
    /// # Errors
    /// When it is not such a directory, or the kernel refuses. No program stays attached then.
    pub fn attach(&self, cgroup: BorrowedFd<'_>) -> Result<Attached, EbpfError> {
        attach(&self.programs, cgroup)
    }

    /// Redirects the connections of one sandbox to its relay, which otherwise refuses them. The kernel runs these
    /// programs up to a dozen times per connection, also for internal ones.
    ///
    /// # Errors
    /// As for [`Self::attach`].
    pub fn attach_for_redirected(&self, cgroup: BorrowedFd<'_>) -> Result<Attached, EbpfError> {
        attach(&self.for_redirected, cgroup)
    }

    /// Registers a sandbox, before its first process.
    ///
    /// # Errors
    /// When the map is full: 1,024 sandboxes.
    pub fn configure(&self, cgroup: u64, config: &SandboxConfig) -> Result<(), EbpfError> {
        self.tables().configure(cgroup, config)
    }

    /// Allows one TCP port at one address. A loopback address means the host's loopback.
    ///
    /// # Errors
    /// When the map is full: 16,384 addresses of all sandboxes.
    pub fn allow(&self, cgroup: u64, address: IpAddr, port: u16) -> Result<(), EbpfError> {
        self.tables().allow(cgroup, address, port)
    }

    /// Allows one TCP port, or all, in a network. Not for loopback.
    ///
    /// # Errors
    /// When the map is full: 4,096 networks of all sandboxes.
    pub fn allow_net(&self, cgroup: u64, net: IpNet, port: Option<u16>) -> Result<(), EbpfError> {
        self.tables().allow_net(cgroup, net, port)
    }

    /// The destination of an accepted connection; `peer` is from `accept`. Removes the entry: a second call, or a
    /// direct connection to the listener, finds nothing.
    #[must_use]
    pub fn origin(&self, cgroup: u64, peer: SocketAddr) -> Option<Origin> {
        self.tables().origin(cgroup, peer).map(Origin::from)
    }

    /// Like [`Self::origin`], only the destination.
    #[must_use]
    pub fn original_destination(&self, cgroup: u64, peer: SocketAddr) -> Option<SocketAddr> {
        self.origin(cgroup, peer).map(|origin| origin.destination)
    }

    /// Removes a sandbox: its processes reach nothing.
    pub fn remove(&self, cgroup: u64) {
        self.tables().remove(cgroup);
    }

    /// The events, once. Call inside a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// When already taken, or the ring cannot be polled.
    pub fn events(&self) -> Result<Events, EbpfError> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        Events::new(ring.ok_or(EbpfError::EventsTaken)?)
    }

    /// Bytes of an ended connection by cookie, if among the newest 2,048. The kernel counts a SYN or FIN as one byte.
    #[must_use]
    pub fn bytes(&self, cookie: u64) -> Option<Traffic> {
        self.tables().traffic(cookie)
    }

    /// Lost events. What they reported was refused anyway.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.counters().lost
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        self.tables().counters()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attach(programs: &[Program], cgroup: BorrowedFd<'_>) -> Result<Attached, EbpfError> {
    let mut attached = Attached { links: Vec::with_capacity(programs.len()) };
    for program in programs {
        let link = sys::attach(program.descriptor.as_fd(), cgroup, program.hook)
            .map_err(|source| EbpfError::Attach { name: program.name.clone(), source })?;
        attached.links.push(link);
    }
    Ok(attached)
}

impl From<agentsh_ebpf::Origin> for Origin {
    fn from(origin: agentsh_ebpf::Origin) -> Self {
        let comm = origin.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        Self {
            destination: SocketAddr::new(agentsh_ebpf::address(origin.address), origin.port),
            cookie: origin.cookie,
            tgid: origin.tgid,
            pid: origin.pid,
            comm: String::from_utf8_lossy(comm).into_owned(),
        }
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Loaded").field("programs", &self.programs).finish_non_exhaustive()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for link in &self.links {
            // Its cgroup may be gone, and the link too.
            let _ = sys::detach(link.as_fd());
        }
    }
}

/// Whether this process may load programs, with one system call.
///
/// # Errors
/// The missing capabilities.
pub fn check_permission() -> Result<(), EbpfError> {
    let effective = caps::read(None, CapSet::Effective).unwrap_or_default();
    let lacks = |one: &Capability| !effective.contains(one);
    match [Capability::CAP_BPF, Capability::CAP_NET_ADMIN].into_iter().filter(lacks).collect::<Vec<_>>()[..] {
        [] => Ok(()),
        [one] => Err(EbpfError::Capability { missing: one.to_string() }),
        _ => Err(EbpfError::Capability { missing: "both".to_owned() }),
    }
}
