//! Decodes records of the ring buffer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use agentsh_ebpf::{Event, Kind, Reason, Traffic, Unreadable};
use aya::maps::{MapData, RingBuf};
use tokio::io::unix::AsyncFd;

use super::EbpfError;

/// One event of the programs. Its texts are from untrusted processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetEvent {
    pub kind: Kind,
    /// [`Reason::None`] for the end of a connection.
    pub reason: Reason,
    /// The process's own cgroup.
    pub cgroup: u64,
    /// Process and thread id on the host.
    pub tgid: u32,
    pub pid: u32,
    /// Thread name; any characters.
    pub comm: String,
    pub cookie: u64,
    /// 2 or 10 for IPv4 and IPv6, as of the socket.
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
    /// Parses a record.
    ///
    /// # Errors
    /// When its format is unknown.
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

/// The reader of the ring buffer.
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
    /// Call inside a tokio runtime with I/O enabled.
    pub(super) fn new(ring: RingBuf<MapData>) -> Result<Self, EbpfError> {
        #[expect(unsafe_code, reason = "tokio cannot see that a descriptor stays the same one")]
        // SAFETY: aya's ring owns its descriptor, never changes it, and closes it only when it is dropped.
        let ring = unsafe { AsyncFd::register(ring) }.map_err(|error| EbpfError::Events(error.into()))?;
        Ok(Self { ring, unreadable: 0 })
    }

    /// Waits for the next event. Cancel-safe.
    ///
    /// # Errors
    /// When the ring cannot be polled.
    pub async fn next(&mut self) -> Result<NetEvent, EbpfError> {
        loop {
            if let Some(event) = self.take() {
                return Ok(event);
            }
            let mut ready = self.ring.readable_mut().await.map_err(EbpfError::Events)?;
            // Checks once more before sleeping.
            ready.clear_ready();
        }
    }

    /// The next event, if there is one.
    pub fn take(&mut self) -> Option<NetEvent> {
        loop {
            let item = self.ring.get_mut().next()?;
            match NetEvent::read(&item) {
                Ok(event) => return Some(event),
                Err(_) => self.unreadable = self.unreadable.saturating_add(1),
            }
        }
    }

    /// Unparsable records: always 0 if programs and agentsh are from one build.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}
