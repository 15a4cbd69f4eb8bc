//! Connects for programs that may not connect themselves.
//!
//! A thread of its own: the program's call waits in the kernel until it is answered, and nothing here waits for the program.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use agentsh_net::egress_context::{AcceptedConnection, AnnouncedConnections, Caller};
use agentsh_sandbox::mount_calls::open_without_links;
use agentsh_sandbox::network::Sockets;
use agentsh_sandbox::seccomp::listener::{Address, Listener, PendingConnect};

/// The port of DNS over TCP.
const DOMAIN: u16 = 53;
/// Connections that the relay has not taken yet; more are refused.
const MAX_PENDING: usize = 10_000;

/// Timeout for connecting to a queue of the session. While it is full, everybody else waits.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// Ends with its sandbox, or soon after it is dropped. Dropping does not wait, because the dropping thread may be the one that
/// has to accept the connection being made.
pub struct Connector {
    /// Closed to ask for the end.
    _stop: OwnedFd,
}

impl Connector {
    /// With the sockets at which the session takes what is for it to relay; none without a relay.
    ///
    /// # Errors
    /// When there are no sockets or threads left.
    pub fn start(
        listener: Listener,
        told: Option<AnnouncedConnections>,
        allowed: Vec<PathBuf>,
    ) -> io::Result<(Self, Option<Sockets>)> {
        let (relay, sockets) = match told {
            Some(told) => {
                let here = (Ipv4Addr::LOCALHOST, 0);
                let (listener, resolver_tcp) = (TcpListener::bind(here)?, TcpListener::bind(here)?);
                let relay =
                    Relay { told, relay: listener.local_addr()?, resolver: resolver_tcp.local_addr()? };
                let resolver_udp = UdpSocket::bind(here)?;
                let sockets = Sockets {
                    listeners: vec![listener],
                    resolver_udp,
                    resolver_tcp,
                    unconnected: Vec::new(),
                    // The listener of system calls sees every connection itself.
                    refused: Vec::new(),
                };
                (Some(relay), Some(sockets))
            }
            None => (None, None),
        };
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let worker = Worker { listener, relay, allowed };
        let thread = std::thread::Builder::new().name("connect".to_owned()).stack_size(256 << 10);
        thread.spawn(move || worker.run(&stopped))?;
        Ok((Self { _stop: stop }, sockets))
    }
}

/// Connects to a socket of this session. The connection itself blocks afterwards as the program expects.
fn connect_soon(socket: &OwnedFd, to: &SocketAddr) -> rustix::io::Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(socket, Timeout::Send, Some(CONNECT_TIMEOUT))?;
    match rustix::net::connect(socket, to) {
        Err(Errno::INPROGRESS | Errno::AGAIN) => return Err(Errno::TIMEDOUT),
        made => made?,
    }
    set_socket_timeout(socket, Timeout::Send, None)
}

struct Relay {
    told: AnnouncedConnections,
    relay: SocketAddr,
    resolver: SocketAddr,
}

struct Worker {
    listener: Listener,
    relay: Option<Relay>,
    /// The program may connect to local sockets below these.
    allowed: Vec<PathBuf>,
}

impl Worker {
    fn run(&self, stopped: &OwnedFd) {
        loop {
            let mut wanted =
                [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
            match poll(&mut wanted, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            if !wanted[1].revents().is_empty() || wanted[0].revents().contains(PollFlags::HUP) {
                return;
            }
            match self.listener.next() {
                Ok(Some(asked)) => self.answer(&asked),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    fn answer(&self, asked: &PendingConnect) {
        let made = match &asked.to {
            Address::Internet(to) => self.internet(asked, *to),
            Address::Path(path) => self.local(asked, path),
            Address::Other => Err(Errno::CONNREFUSED.into()),
        };
        let connected = made.and_then(|socket| self.listener.answer_connected(asked, &socket));
        if let Err(error) = connected {
            self.listener.answer_refused(asked, error.raw_os_error().unwrap_or(libc::ECONNREFUSED));
        }
    }

    /// A connection to the relay, which decides; its own end says where it is to go.
    fn internet(&self, asked: &PendingConnect, to: SocketAddr) -> io::Result<OwnedFd> {
        let relay = self.relay.as_ref().ok_or(Errno::NETUNREACH)?;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if to.port() == DOMAIN {
            connect_soon(&socket, &relay.resolver)?;
            return Ok(socket);
        }
        rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let own = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        let comm = fs::read_to_string(format!("/proc/{}/comm", asked.pid)).unwrap_or_default();
        let caller = Caller { pid: asked.pid, comm: comm.trim_end().to_owned() };
        {
            let mut told = relay.told.lock().map_err(|_| Errno::NETUNREACH)?;
            if told.len() >= MAX_PENDING {
                return Err(Errno::CONNREFUSED.into());
            }
            told.insert(own, AcceptedConnection { destination: to, caller: Some(caller) });
        }
        let connected = connect_soon(&socket, &relay.relay);
        if connected.is_err()
            && let Ok(mut told) = relay.told.lock()
        {
            told.remove(&own);
        }
        connected?;
        Ok(socket)
    }

    /// Opens the socket without following links, which may have changed meanwhile.
    fn local(&self, asked: &PendingConnect, path: &Path) -> io::Result<OwnedFd> {
        let directory = fs::read_link(format!("/proc/{}/cwd", asked.pid))?;
        let path = directory.join(path).canonicalize()?;
        if !self.allowed.iter().any(|allowed| path.starts_with(allowed)) {
            return Err(Errno::ACCESS.into());
        }
        let opened = open_without_links(&path, OFlags::PATH)?;
        let name = format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd());
        let address = SocketAddrUnix::new(name)?;
        let connect = |kind| -> rustix::io::Result<OwnedFd> {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
            // A full queue must not keep everybody else waiting.
            rustix::io::ioctl_fionbio(&socket, true)?;
            rustix::net::connect(&socket, &address)?;
            rustix::io::ioctl_fionbio(&socket, false)?;
            Ok(socket)
        };
        match connect(SocketType::STREAM) {
            Err(Errno::PROTOTYPE) => Ok(connect(SocketType::SEQPACKET)?),
            made => Ok(made?),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn connect_to_a_full_queue_does_not_block_for_long() {
        let socket =
            || rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let listener = socket().unwrap();
        rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let to = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
        let (mut kept, started) = (Vec::new(), std::time::Instant::now());
        let refused = (0..8).find_map(|_| {
            let one = socket().unwrap();
            let made = connect_soon(&one, &to);
            kept.push(one);
            made.err()
        });
        assert_eq!(refused, Some(Errno::TIMEDOUT));
        // A minute and more without the limit.
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}
