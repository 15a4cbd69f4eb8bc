//! `socket`: TCP and UDP only. A socket that cannot exist needs no rule for what it sends.

use agentsh_ebpf::{ABI_VERSION, Counter, Event, Kind, Reason};
use aya_ebpf::bindings::bpf_sock;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_get_socket_cookie};
use aya_ebpf::programs::SockContext;

use crate::caller::{cgroup, comm, field};
use crate::maps::{count, report};
use crate::{PASS, REFUSE};

const INET: u32 = 2;
const INET6: u32 = 10;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const TCP: u32 = 6;
const UDP: u32 = 17;

#[inline(always)]
pub fn create(context: &SockContext) -> i32 {
    let socket: *mut bpf_sock = context.sock;
    let (family, kind, protocol) = (field!(socket, family), field!(socket, type_), field!(socket, protocol));
    if matches!((family, kind, protocol), (INET | INET6, STREAM, TCP) | (INET | INET6, DATAGRAM, UDP)) {
        return PASS;
    }
    count(Counter::RefusedSockets);
    let ids = bpf_get_current_pid_tgid();
    report(Event {
        version: ABI_VERSION,
        kind: Kind::Socket as u8,
        reason: Reason::Protocol as u8,
        family: family as u16,
        protocol: protocol as u16,
        pid: ids as u32,
        tgid: (ids >> 32) as u32,
        cgroup: cgroup(),
        // SAFETY: the context is the one that the kernel gave.
        cookie: unsafe { bpf_get_socket_cookie(socket.cast()) },
        address: [0; 4],
        comm: comm(),
        sent: 0,
        received: 0,
        port: 0,
        socket_type: kind as u16,
        padding: 0,
    });
    REFUSE
}
