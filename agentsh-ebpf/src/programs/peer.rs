//! `getpeername`: a redirected connection shows the address that the program asked for.

use agentsh_ebpf::{Origin, is_v4};
use aya_ebpf::programs::SockAddrContext;

use crate::PASS;
use crate::caller::{set_address4, set_address6};
use crate::maps::SOCKETS;

#[inline(always)]
pub fn v4(context: &SockAddrContext) -> i32 {
    if let Some(origin) = origin(context)
        && is_v4(origin.address)
    {
        set_address4(context, origin.address, origin.port);
    }
    PASS
}

#[inline(always)]
pub fn v6(context: &SockAddrContext) -> i32 {
    if let Some(origin) = origin(context) {
        set_address6(context, origin.address, origin.port);
    }
    PASS
}

#[inline(always)]
fn origin(context: &SockAddrContext) -> Option<&'static Origin> {
    // SAFETY: the context's socket is held by the call; its storage lives as long.
    let socket = unsafe { SOCKETS.get_ptr_mut(context).as_ref() }?;
    (socket.redirected == 1).then_some(&socket.origin)
}
