//! The kernel programs that put a sandbox's allowlist on its connections. One hook, one file.
//!
//! They read nothing but the contexts of the kernel's user API, so one object serves every kernel. Whatever they
//! do not know is refused: a cgroup that nobody described, a family, a type, a protocol, a full map.
#![no_std]
#![no_main]
#![allow(
    unsafe_code,
    reason = "contexts and map values are raw pointers here; the kernel's verifier checks every access"
)]

mod caller;
mod connect;
mod datagram;
mod maps;
mod packet;
mod peer;
mod rules;
mod socket;
mod stream;

use aya_ebpf::macros::{cgroup_skb, cgroup_sock, cgroup_sock_addr, sock_ops};
use aya_ebpf::programs::{SkBuffContext, SockAddrContext, SockContext, SockOpsContext};

/// The result with which the kernel continues; the other one makes the call fail with EPERM.
const PASS: i32 = 1;
const REFUSE: i32 = 0;

#[cgroup_sock_addr(connect4)]
pub fn agentsh_connect4(context: SockAddrContext) -> i32 {
    connect::v4(&context)
}

#[cgroup_sock_addr(connect6)]
pub fn agentsh_connect6(context: SockAddrContext) -> i32 {
    connect::v6(&context)
}

#[cgroup_sock_addr(sendmsg4)]
pub fn agentsh_sendmsg4(context: SockAddrContext) -> i32 {
    datagram::v4(&context)
}

#[cgroup_sock_addr(sendmsg6)]
pub fn agentsh_sendmsg6(context: SockAddrContext) -> i32 {
    datagram::v6(&context)
}

#[cgroup_sock_addr(getpeername4)]
pub fn agentsh_peer4(context: SockAddrContext) -> i32 {
    peer::v4(&context)
}

#[cgroup_sock_addr(getpeername6)]
pub fn agentsh_peer6(context: SockAddrContext) -> i32 {
    peer::v6(&context)
}

#[cgroup_sock(sock_create)]
pub fn agentsh_socket(context: SockContext) -> i32 {
    socket::create(&context)
}

#[sock_ops]
pub fn agentsh_stream(context: SockOpsContext) -> u32 {
    stream::operation(&context);
    1
}

#[cgroup_skb(egress)]
pub fn agentsh_packet(context: SkBuffContext) -> i32 {
    packet::egress(&context)
}

/// Some helpers are only for programs that name the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here panics; a loop that the verifier can see would be refused at load.
    loop {}
}
