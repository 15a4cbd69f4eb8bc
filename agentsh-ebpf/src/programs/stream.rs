//! The life of a redirected connection: its source is published before the first packet leaves, and its bytes are
//! counted when it ends.

use agentsh_ebpf::{ABI_VERSION, Counter, Event, Kind, Place, Reason, Socket, Traffic, mapped};
use aya_ebpf::bindings::{
    BPF_SOCK_OPS_STATE_CB, BPF_SOCK_OPS_STATE_CB_FLAG, BPF_SOCK_OPS_TCP_CONNECT_CB, BPF_TCP_CLOSE,
    BPF_TCP_SYN_SENT,
};
use aya_ebpf::helpers::generated::bpf_sk_storage_get;
use aya_ebpf::programs::SockOpsContext;

use crate::caller::field;
use crate::maps::{ORIGINS, SOCKETS, TRAFFIC, count, report};

#[inline(always)]
pub fn operation(context: &SockOpsContext) {
    match field!(context.ops, op) {
        BPF_SOCK_OPS_TCP_CONNECT_CB => connecting(context),
        BPF_SOCK_OPS_STATE_CB => {
            if field!(context.ops, __bindgen_anon_1.args[1]) == BPF_TCP_CLOSE {
                closed(context);
            }
        }
        _ => {}
    }
}

#[inline(always)]
fn connecting(context: &SockOpsContext) {
    let Some(socket) = redirected(context) else { return };
    if ORIGINS.insert(source(context, socket), socket.origin, 0).is_err() {
        // The relay finds no origin and refuses the connection.
        count(Counter::Lost);
    }
    // Without the flag only the byte counts and the clean-up of a failed connect are missing.
    let _ = context.set_cb_flags(BPF_SOCK_OPS_STATE_CB_FLAG as i32);
}

/// The relay takes the entry of every connection that was established, even when it has ended before the relay came to
/// it. Nobody takes the entry of a connection that was never established.
#[inline(always)]
fn closed(context: &SockOpsContext) {
    let Some(socket) = redirected(context) else { return };
    if field!(context.ops, __bindgen_anon_1.args[0]) == BPF_TCP_SYN_SENT {
        let _ = ORIGINS.remove(source(context, socket));
        return;
    }
    let traffic =
        Traffic { sent: field!(context.ops, bytes_acked), received: field!(context.ops, bytes_received) };
    if TRAFFIC.insert(socket.origin.cookie, traffic, 0).is_err() {
        count(Counter::Lost);
    }
    report(Event {
        version: ABI_VERSION,
        kind: Kind::Closed as u8,
        reason: Reason::None as u8,
        family: field!(context.ops, family) as u16,
        protocol: 6,
        pid: socket.origin.pid,
        tgid: socket.origin.tgid,
        cgroup: socket.cgroup,
        cookie: socket.origin.cookie,
        address: socket.origin.address,
        comm: socket.origin.comm,
        sent: traffic.sent,
        received: traffic.received,
        port: socket.origin.port,
        socket_type: 1,
        padding: 0,
    });
}

#[inline(always)]
fn redirected(context: &SockOpsContext) -> Option<&'static Socket> {
    let sk = field!(context.ops, __bindgen_anon_2.sk);
    if sk.is_null() {
        return None;
    }
    // SAFETY: the kernel holds the socket during the call, and the storage lives as long as the socket.
    let socket = unsafe {
        bpf_sk_storage_get((&raw const SOCKETS).cast_mut().cast(), sk.cast(), core::ptr::null_mut(), 0)
            .cast::<Socket>()
            .as_ref()
    }?;
    (socket.redirected == 1).then_some(socket)
}

/// The connection's own end, as the relay will see it.
#[inline(always)]
fn source(context: &SockOpsContext, socket: &Socket) -> Place {
    let from = context.ops;
    // Both are read before the choice: a choice between two fields becomes arithmetic on the context's pointer,
    // which the verifier refuses.
    let v4 = mapped(field!(from, local_ip4));
    let v6 = [
        field!(from, local_ip6[0]),
        field!(from, local_ip6[1]),
        field!(from, local_ip6[2]),
        field!(from, local_ip6[3]),
    ];
    let address = if socket.wire == 4 { v4 } else { v6 };
    Place::new(socket.cgroup, address, field!(from, local_port) as u16)
}
