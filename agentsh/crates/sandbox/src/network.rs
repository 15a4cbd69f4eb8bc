//! Sets up the network namespace: loopback, routes, and the sockets that the session serves. The sockets are created
//! inside, so they belong to this namespace, whichever process holds them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::AddressFamily;
use rustix::net::{SocketFlags, SocketType, sockopt};

use super::plan::Network;
use super::stage::{StageContext, StageError};
use super::{netlink, unanswered_packets};

/// The resolver's address in every sandbox.
pub const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)), 53);

/// An address that shows that IPv6 exists; no name has it.
const OWN_ADDRESS: Ipv6Addr = Ipv6Addr::new(0xFD61, 0x6773, 0x6800, 0xFFFF, 0, 0, 0, 1);

/// Listen backlog, cut by the kernel to `net.core.somaxconn`.
const LISTEN_BACKLOG: i32 = 4096;

/// Limit of published connections at a time; with the ports of a policy they fit into one message.
const PUBLISHED: usize = 16;

/// Sockets of the sandbox that the session serves.
#[derive(Debug)]
pub struct Sockets {
    pub listeners: Vec<TcpListener>,
    pub resolver_udp: UdpSocket,
    pub resolver_tcp: TcpListener,
    /// The sockets of [`unconnected`].
    pub unconnected: Vec<OwnedFd>,
    /// [`unanswered_packets::sockets`]; empty if they are not available.
    pub refused: Vec<OwnedFd>,
}

impl Sockets {
    /// In the order of [`prepare`]; None if some are missing.
    #[must_use]
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let is_unconnected = |socket: &OwnedFd| {
            sockopt::socket_type(socket) == Ok(SocketType::STREAM)
                && sockopt::socket_acceptconn(socket) == Ok(false)
        };
        let (refused, descriptors): (Vec<_>, Vec<_>) =
            descriptors.into_iter().partition(unanswered_packets::is_one);
        let (unconnected, mut descriptors) = descriptors.into_iter().partition::<Vec<_>, _>(is_unconnected);
        let resolver_tcp = TcpListener::from(descriptors.pop()?);
        let resolver_udp = UdpSocket::from(descriptors.pop()?);
        let listeners = descriptors.into_iter().map(TcpListener::from).collect();
        Some(Self { listeners, resolver_udp, resolver_tcp, unconnected, refused })
    }
}

/// Sockets with which the session connects to servers in this namespace.
///
/// # Errors
/// When the system has no sockets left.
pub fn unconnected() -> io::Result<Vec<OwnedFd>> {
    let make = |family| rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let mut sockets = Vec::new();
    for _ in 0..PUBLISHED {
        sockets.push(make(rustix::net::AddressFamily::INET)?);
        // Without IPv6 nobody listens there either.
        sockets.extend(make(rustix::net::AddressFamily::INET6).ok());
    }
    Ok(sockets)
}

/// Listeners of the plan, the resolver's two sockets, then sockets for `published`.
///
/// # Errors
/// When the namespace refuses; then nothing may be executed.
pub fn prepare(network: &Network, published: bool) -> Result<Vec<OwnedFd>, StageError> {
    loopback_up().at("bring up loopback")?;
    // With only 127.0.0.1 and ::1 the C library (`AI_ADDRCONFIG`) assumes that the family is missing.
    let mut requests =
        [RESOLVER.ip(), OWN_ADDRESS.into()].map(netlink::add_address).into_iter().collect::<Vec<_>>();
    let mut sockets: Vec<OwnedFd> = match network {
        Network::AnyIp { ports } => {
            // Without IPv6 its addresses stay unreachable.
            let families = [AddressFamily::Inet6, AddressFamily::Inet];
            requests.extend(families.map(netlink::route_all_to_loopback));
            netlink::ask(&requests).at("route every address to loopback")?;
            ports.iter().map(|port| listen_everywhere(*port)).collect::<Result<_, _>>()?
        }
        Network::Redirected { listeners } => {
            // IPv6 may be missing; then fewer names resolve.
            let _ = netlink::ask(&requests);
            let sockets = listeners.iter().filter_map(|address| match listen_on(*address) {
                Err(error) if address.is_ipv6() && no_such_family(&error) => None,
                socket => Some(socket.on("listen on", address)),
            });
            sockets.collect::<Result<_, _>>()?
        }
    };
    sockets.push(UdpSocket::bind(RESOLVER).on("listen on", RESOLVER)?.into());
    sockets.push(listen_on(RESOLVER).on("listen on", RESOLVER)?);
    if published {
        sockets.extend(unconnected().at("make sockets for published ports")?);
    }
    // Without them refusals still happen, and fewer are reported.
    sockets.extend(unanswered_packets::sockets().unwrap_or_default());
    Ok(sockets)
}

/// Whether a descriptor is a socket at all.
#[must_use]
pub fn is_socket(descriptor: &OwnedFd) -> bool {
    sockopt::socket_type(descriptor).is_ok()
}

/// Attaches a packet filter to a socket.
///
/// # Errors
/// When the kernel refuses it.
#[expect(unsafe_code, reason = "socket filters are set by an option that no dependency wraps")]
pub fn attach_filter(socket: &OwnedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    let size = u32::try_from(size_of_val(&program)).map_err(io::Error::other)?;
    // SAFETY: the kernel copies `len` instructions from `filter`, which outlives the call, and writes nothing there.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds a packet socket to a protocol on all interfaces (there is only loopback).
///
/// # Errors
/// When the kernel refuses.
#[expect(unsafe_code, reason = "addresses of packet sockets are wrapped by no dependency")]
pub fn bind_protocol(socket: &OwnedFd, family: rustix::net::Protocol) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain old data for which all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
    // In network byte order, as the constant is.
    address.sll_protocol = u16::try_from(family.as_raw().get()).map_err(io::Error::other)?;
    let size = u32::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    // SAFETY: bind reads one `sockaddr_ll`, which is initialised and outlives the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One dual-stack socket if there is IPv6.
fn listen_everywhere(port: u16) -> Result<OwnedFd, StageError> {
    let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    match listen_on(both) {
        Err(error) if no_such_family(&error) => {
            listen_on(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)).on("listen on port", port)
        }
        socket => socket.on("listen on port", port),
    }
}

fn listen_on(address: SocketAddr) -> io::Result<OwnedFd> {
    let family =
        if address.is_ipv4() { rustix::net::AddressFamily::INET } else { rustix::net::AddressFamily::INET6 };
    let listener = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&listener, true)?;
    // For the resolver's port a rule's listener coexists with the resolver, whose address is more specific. Programs
    // inside cannot bind ports below 1024.
    if address.port() == RESOLVER.port() {
        sockopt::set_socket_reuseport(&listener, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&listener, false)?;
    }
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, LISTEN_BACKLOG)?;
    Ok(listener)
}

fn no_such_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

/// # Errors
/// When the namespace is not ours.
#[expect(unsafe_code, reason = "interface flags are set by an ioctl that no dependency wraps")]
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = libc::c_char::from_ne_bytes([b'l']);
    request.ifr_name[1] = libc::c_char::from_ne_bytes([b'o']);
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which is initialised, NUL-terminated and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
