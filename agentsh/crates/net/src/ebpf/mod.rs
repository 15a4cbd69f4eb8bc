//! The network allowlist in the kernel: programs attached to a control group judge every connect of the processes
//! below it, by the process's own cgroup.
//!
//! What is allowed goes to the relay's listener inside the sandbox's network namespace, and [`Loaded::origin`]
//! tells the relay where it was meant to go. Everything else is refused with EPERM and an event. A cgroup below the
//! attached one that was not configured may reach nothing.
//!
//! The programs do not hold alone: sockets made elsewhere and packet sockets pass them, and so the namespace has no
//! route and seccomp allows no such sockets. Detached, they leave a namespace that reaches nothing.

mod error;
mod events;
mod load;
#[cfg(feature = "ebpf-log")]
mod log;
pub mod object;
mod place;
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
pub use error::EbpfError;
pub use events::{Events, NetEvent};
pub use place::{cgroup_id, cgroup2_mount, own_cgroup};
pub use tables::{Counters, SandboxConfig, net_key};

use load::Program;
use tables::Tables;

/// The programs that only a redirected connection needs: one follows it, the others show the address that was asked for.
const FOR_REDIRECTED: [&str; 3] = ["agentsh_stream", "agentsh_peer4", "agentsh_peer6"];

/// The programs and their maps. One per session; all methods take `&self`, from any thread.
pub struct Loaded {
    /// On every sandbox of the session.
    programs: Vec<Program>,
    /// On the sandboxes that have a relay.
    for_redirected: Vec<Program>,
    tables: Mutex<Tables>,
    ring: Mutex<Option<RingBuf<MapData>>>,
    /// Socket storage: nothing to read here, but it has to live.
    _sockets: BTreeMap<String, MapData>,
}

/// Programs on one cgroup and everything below it. They are detached when this is dropped.
#[derive(Debug)]
pub struct Attached {
    links: Vec<OwnedFd>,
}

/// Where a redirected connection was meant to go, and who began it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub destination: SocketAddr,
    pub cookie: u64,
    /// The process and the thread, as the host counts them.
    pub tgid: u32,
    pub pid: u32,
    /// The thread's name; it may hold any characters.
    pub comm: String,
}

impl Loaded {
    /// Loads the built-in programs. Takes one to three milliseconds and needs no runtime: any thread may do it.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN in the first user namespace, and when the kernel refuses something.
    pub fn load() -> Result<Self, EbpfError> {
        permitted()?;
        let load::InKernel { mut maps, programs } = load::load(object::BYTES)?;
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

    /// Puts the rules on a directory of the version 2 hierarchy. Processes and sockets born below it later are policed;
    /// attach before they are born.
    ///
    /// # Errors
    /// When the descriptor is not such a directory, or the kernel refuses. Nothing stays attached then.
    pub fn attach(&self, cgroup: BorrowedFd<'_>) -> Result<Attached, EbpfError> {
        attach(&self.programs, cgroup)
    }

    /// Follows the connections to the relay of one sandbox; without it the relay refuses them all. The kernel asks these
    /// programs up to a dozen times for each connection, also for one that stays inside.
    ///
    /// # Errors
    /// As of [`Self::attach`].
    pub fn attach_for_redirected(&self, cgroup: BorrowedFd<'_>) -> Result<Attached, EbpfError> {
        attach(&self.for_redirected, cgroup)
    }

    /// Tells the programs about a sandbox, before its first process exists.
    ///
    /// # Errors
    /// When the kernel has no room: 1,024 sandboxes.
    pub fn configure(&self, cgroup: u64, config: &SandboxConfig) -> Result<(), EbpfError> {
        self.tables().configure(cgroup, config)
    }

    /// Allows one TCP port at one address. A loopback address goes to the relay too, and so names a port of the
    /// host's loopback.
    ///
    /// # Errors
    /// When the kernel has no room: 16,384 addresses of all sandboxes together.
    pub fn allow(&self, cgroup: u64, address: IpAddr, port: u16) -> Result<(), EbpfError> {
        self.tables().allow(cgroup, address, port)
    }

    /// Allows one TCP port, or all, at every address of a network. Loopback is not meant by it.
    ///
    /// # Errors
    /// When the kernel has no room: 4,096 networks of all sandboxes together.
    pub fn allow_net(&self, cgroup: u64, net: IpNet, port: Option<u16>) -> Result<(), EbpfError> {
        self.tables().allow_net(cgroup, net, port)
    }

    /// Where an accepted connection was meant to go. `peer` is what `accept` told. Takes the entry: a second
    /// question, and one about a connection that dialled the listener by itself, finds nothing.
    #[must_use]
    pub fn origin(&self, cgroup: u64, peer: SocketAddr) -> Option<Origin> {
        self.tables().origin(cgroup, peer).map(Origin::from)
    }

    /// As [`Self::origin`], the destination alone.
    #[must_use]
    pub fn original(&self, cgroup: u64, peer: SocketAddr) -> Option<SocketAddr> {
        self.origin(cgroup, peer).map(|origin| origin.destination)
    }

    /// Forgets a sandbox: whatever still runs in its cgroup may reach nothing.
    pub fn remove(&self, cgroup: u64) {
        self.tables().remove(cgroup);
    }

    /// The events, once. Must be called inside a tokio runtime with input and output enabled.
    ///
    /// # Errors
    /// When they were taken already, or the ring cannot be watched.
    pub fn events(&self) -> Result<Events, EbpfError> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner).take();
        Events::new(ring.ok_or(EbpfError::EventsTaken)?)
    }

    /// What an ended connection carried, by its cookie, as long as it is one of the newest 2,048. The kernel counts
    /// a SYN or FIN as one byte.
    #[must_use]
    pub fn bytes(&self, cookie: u64) -> Option<Traffic> {
        self.tables().traffic(cookie)
    }

    /// Events that were lost because nobody read them in time. What they would have told was refused all the same.
    #[must_use]
    pub fn lost(&self) -> u64 {
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
            // Its cgroup may be gone, and the link with it.
            let _ = sys::detach(link.as_fd());
        }
    }
}

/// Whether this process may load them at all, which costs one system call to ask.
///
/// # Errors
/// The capabilities that are missing.
pub fn permitted() -> Result<(), EbpfError> {
    let lacks = |one: &Capability| !caps::has_cap(None, CapSet::Effective, *one).unwrap_or(false);
    match [Capability::CAP_BPF, Capability::CAP_NET_ADMIN].into_iter().filter(lacks).collect::<Vec<_>>()[..] {
        [] => Ok(()),
        [one] => Err(EbpfError::Capability { missing: one.to_string() }),
        _ => Err(EbpfError::Capability { missing: "both".to_owned() }),
    }
}
