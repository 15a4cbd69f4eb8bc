//! `connect`: to the sandbox's own loopback as asked, to an allowed place through the relay, otherwise not at all.

#[cfg(feature = "log")]
mod log;

use agentsh_ebpf::{Kind, Origin, Reason, Socket};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::programs::SockAddrContext;

use crate::PASS;
use crate::caller::{
    address4, address6, cgroup, comm, cookie, field, port, refused, set_address4, set_address6,
};
use crate::maps::SOCKETS;
use crate::rules::{self, Listener};

const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const TCP: u32 = 6;
const UDP: u32 = 17;

#[inline(always)]
pub fn v4(context: &SockAddrContext) -> i32 {
    connect(context, address4(context), set_address4)
}

#[inline(always)]
pub fn v6(context: &SockAddrContext) -> i32 {
    connect(context, address6(context), set_address6)
}

#[inline(always)]
fn connect(
    context: &SockAddrContext,
    address: [u32; 4],
    set: impl Fn(&SockAddrContext, [u32; 4], u16),
) -> i32 {
    let (cgroup, port) = (cgroup(), port(context));
    #[cfg(feature = "log")]
    use log::judge;
    match judge(context, cgroup, address, port) {
        Ok(Some(listener)) => {
            set(context, listener.address, listener.port);
            PASS
        }
        Ok(None) => PASS,
        Err(reason) => refused(context, Kind::Connect, reason, cgroup, address, port),
    }
}

/// The listener to go to, or nothing where the caller may go where it wants.
#[inline(always)]
fn judge(
    context: &SockAddrContext,
    cgroup: u64,
    address: [u32; 4],
    port: u16,
) -> Result<Option<Listener>, Reason> {
    match (field!(context.sock_addr, type_), field!(context.sock_addr, protocol)) {
        (STREAM, TCP) => {}
        (DATAGRAM, UDP) => return rules::datagram(cgroup, address, port).map(|()| None),
        _ => return Err(Reason::Protocol),
    }
    let listener = rules::stream(cgroup, address, port)?;
    match &listener {
        Some(listener) => remember(context, cgroup, address, port, listener.wire)?,
        None => forget(context),
    }
    Ok(listener)
}

/// A socket may connect again after `connect(AF_UNSPEC)`: what it was before must not stick to it.
#[inline(always)]
fn forget(context: &SockAddrContext) {
    // SAFETY: the context's socket is the one being connected, which the caller holds.
    let socket = unsafe { SOCKETS.get_ptr_mut(context) };
    if !socket.is_null() {
        // SAFETY: just checked; the storage lives as long as the socket.
        unsafe { (*socket).redirected = 0 };
    }
}

#[inline(always)]
fn remember(
    context: &SockAddrContext,
    cgroup: u64,
    address: [u32; 4],
    port: u16,
    wire: u32,
) -> Result<(), Reason> {
    // SAFETY: as in `forget`; new storage begins as zeros.
    let socket = unsafe { SOCKETS.get_or_insert_ptr_mut(context, None) };
    if socket.is_null() {
        return Err(Reason::NoMemory);
    }
    let ids = bpf_get_current_pid_tgid();
    let origin = Origin {
        cookie: cookie(context),
        pid: ids as u32,
        tgid: (ids >> 32) as u32,
        address,
        comm: comm(),
        port,
        padding: 0,
        more_padding: 0,
    };
    // SAFETY: just checked; the storage lives as long as the socket.
    unsafe { *socket = Socket { origin, cgroup, redirected: 1, wire } };
    Ok(())
}
