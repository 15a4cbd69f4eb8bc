//! Datagrams: to the sandbox's own loopback and its resolver only.

use agentsh_ebpf::Kind;
use aya_ebpf::programs::SockAddrContext;

use crate::PASS;
use crate::caller::{address4, address6, cgroup, port, refused};
use crate::rules;

#[inline(always)]
pub fn v4(context: &SockAddrContext) -> i32 {
    send(context, address4(context))
}

#[inline(always)]
pub fn v6(context: &SockAddrContext) -> i32 {
    send(context, address6(context))
}

#[inline(always)]
fn send(context: &SockAddrContext, address: [u32; 4]) -> i32 {
    let (cgroup, port) = (cgroup(), port(context));
    match rules::datagram(cgroup, address, port) {
        Ok(()) => PASS,
        Err(reason) => refused(context, Kind::Send, reason, cgroup, address, port),
    }
}
