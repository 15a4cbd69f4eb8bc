//! Records of the ring buffer as values.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use agentsh_ebpf::{Event, Kind, Reason, Traffic, Unreadable};
use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;

use super::EbpfError;

/// One thing that the programs told. All of it except the numbers comes from a process that nobody trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetEvent {
    pub kind: Kind,
    /// [`Reason::None`] for a connection that ended.
    pub reason: Reason,
    /// The process's own cgroup.
    pub cgroup: u64,
    /// The process and the thread, as the host counts them.
    pub tgid: u32,
    pub pid: u32,
    /// The thread's name; it may hold any characters.
    pub comm: String,
    pub cookie: u64,
    /// 2 or 10 for IPv4 and IPv6, as the socket was made.
    pub family: u16,
    pub socket_type: u16,
    /// IPPROTO_*.
    pub protocol: u16,
    /// Missing for [`Kind::Socket`].
    pub destination: Option<SocketAddr>,
    /// For [`Kind::Closed`] only.
    pub traffic: Option<Traffic>,
}

impl NetEvent {
    /// Reads one record of the ring.
    ///
    /// # Errors
    /// When it is not one that this version writes.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        let (event, kind, reason) = Event::read(bytes)?;
        let address: IpAddr = agentsh_ebpf::address(event.address);
        Ok(Self {
            kind,
            reason,
            cgroup: event.cgroup,
            tgid: event.tgid,
            pid: event.pid,
            comm: String::from_utf8_lossy(event.comm()).into_owned(),
            cookie: event.cookie,
            family: event.family,
            socket_type: event.socket_type,
            protocol: event.protocol,
            destination: (kind != Kind::Socket).then(|| SocketAddr::new(address, event.port)),
            traffic: (kind == Kind::Closed).then_some(Traffic { sent: event.sent, received: event.received }),
        })
    }
}

/// The reading end of the ring.
pub struct Events {
    ring: AsyncFd<RingBuf<MapData>>,
    unreadable: u64,
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Events").field("unreadable", &self.unreadable).finish_non_exhaustive()
    }
}

impl Events {
    /// Must be called inside a tokio runtime with input and output enabled.
    pub(super) fn new(ring: RingBuf<MapData>) -> Result<Self, EbpfError> {
        #[expect(unsafe_code, reason = "tokio cannot see that a descriptor stays the same one")]
        // SAFETY: aya's ring owns its descriptor, never changes it, and closes it only when it is dropped.
        let ring = unsafe { AsyncFd::register(ring) }.map_err(|error| EbpfError::Events(error.into()))?;
        Ok(Self { ring, unreadable: 0 })
    }

    /// Waits for the next event. Dropping the future loses nothing.
    ///
    /// # Errors
    /// When the ring cannot be waited for.
    pub async fn next(&mut self) -> Result<NetEvent, EbpfError> {
        loop {
            if let Some(event) = self.take() {
                return Ok(event);
            }
            let mut ready = self.ring.readable_mut().await.map_err(EbpfError::Events)?;
            // Something may have come between looking and waiting: look again before sleeping again.
            ready.clear_ready();
        }
    }

    /// The next event, if one is there.
    pub fn take(&mut self) -> Option<NetEvent> {
        loop {
            let item = self.ring.get_mut().next()?;
            match NetEvent::read(&item) {
                Ok(event) => return Some(event),
                Err(_) => self.unreadable = self.unreadable.saturating_add(1),
            }
        }
    }

    /// Records that were not understood: always 0 while programs and agentsh come from one build.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}
