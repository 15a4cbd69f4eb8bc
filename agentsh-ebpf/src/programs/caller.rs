//! The calling process, and the fields of a `bpf_sock_addr`.

use core::mem::MaybeUninit;

use agentsh_ebpf::{ABI_VERSION, COMM_BYTES, Counter, Event, Kind, Reason, mapped};
use aya_ebpf::helpers::generated::bpf_get_current_comm;
use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_pid_tgid, bpf_get_socket_cookie};
use aya_ebpf::programs::SockAddrContext;

use crate::maps::{count, report};

/// The process's own cgroup, not an ancestor's.
#[inline(always)]
pub fn cgroup() -> u64 {
    // SAFETY: takes no arguments.
    unsafe { bpf_get_current_cgroup_id() }
}

#[inline(always)]
pub fn comm() -> [u8; COMM_BYTES] {
    let mut comm = MaybeUninit::<[u8; COMM_BYTES]>::uninit();
    // SAFETY: the buffer has the length that is given, and the helper fills it, with zeros when it fails.
    unsafe {
        bpf_get_current_comm(comm.as_mut_ptr().cast(), COMM_BYTES as u32);
        comm.assume_init()
    }
}

#[inline(always)]
pub fn cookie(context: &SockAddrContext) -> u64 {
    // SAFETY: the context is the one that the kernel gave.
    unsafe { bpf_get_socket_cookie(context.sock_addr.cast()) }
}

/// Reads one field as one load of its own: the verifier knows contexts by field.
macro_rules! field {
    ($pointer:expr, $($field:tt)+) => {
        // SAFETY: the kernel gave the pointer, and the verifier checks the offset.
        unsafe { ::core::ptr::read_volatile(&raw const (*$pointer).$($field)+) }
    };
}
pub(crate) use field;

/// Writes one field as one store of its own.
macro_rules! set_field {
    ($pointer:expr, $value:expr, $($field:tt)+) => {
        // SAFETY: as for reading; the kernel lists the fields that may be written.
        unsafe { ::core::ptr::write_volatile(&raw mut (*$pointer).$($field)+, $value) }
    };
}

#[inline(always)]
pub fn address4(context: &SockAddrContext) -> [u32; 4] {
    mapped(field!(context.sock_addr, user_ip4))
}

#[inline(always)]
pub fn address6(context: &SockAddrContext) -> [u32; 4] {
    let from = context.sock_addr;
    [
        field!(from, user_ip6[0]),
        field!(from, user_ip6[1]),
        field!(from, user_ip6[2]),
        field!(from, user_ip6[3]),
    ]
}

/// Host order.
#[inline(always)]
pub fn port(context: &SockAddrContext) -> u16 {
    u16::from_be(field!(context.sock_addr, user_port) as u16)
}

#[inline(always)]
pub fn set_address4(context: &SockAddrContext, address: [u32; 4], port: u16) {
    set_field!(context.sock_addr, address[3], user_ip4);
    set_field!(context.sock_addr, u32::from(port.to_be()), user_port);
}

#[inline(always)]
pub fn set_address6(context: &SockAddrContext, address: [u32; 4], port: u16) {
    let to = context.sock_addr;
    set_field!(to, address[0], user_ip6[0]);
    set_field!(to, address[1], user_ip6[1]);
    set_field!(to, address[2], user_ip6[2]);
    set_field!(to, address[3], user_ip6[3]);
    set_field!(to, u32::from(port.to_be()), user_port);
}

/// Counts and reports a refusal.
#[inline(always)]
pub fn refused(
    context: &SockAddrContext,
    kind: Kind,
    reason: Reason,
    cgroup: u64,
    address: [u32; 4],
    port: u16,
) -> i32 {
    count(Counter::Refused);
    let ids = bpf_get_current_pid_tgid();
    report(Event {
        version: ABI_VERSION,
        kind: kind as u8,
        reason: reason as u8,
        family: field!(context.sock_addr, family) as u16,
        protocol: field!(context.sock_addr, protocol) as u16,
        pid: ids as u32,
        tgid: (ids >> 32) as u32,
        cgroup,
        cookie: cookie(context),
        address,
        comm: comm(),
        sent: 0,
        received: 0,
        port,
        socket_type: field!(context.sock_addr, type_) as u16,
        padding: 0,
    });
    crate::REFUSE
}
