//! Logs the verdict about each `connect` with `aya-log`, also those that allow, which are no events.
//!
//! The types of the object hold the text of source lines. The object stays unchanged only if no line of the other
//! files changes for this.

use agentsh_ebpf::Reason;
use aya_ebpf::programs::SockAddrContext;
use aya_log_ebpf::info;

use crate::rules::Listener;

const AS_ASKED: u32 = 0;
/// With the port of the relay.
const TO_RELAY: u32 = 1 << 16;
/// With the reason.
const REFUSED: u32 = 2 << 16;

/// The same judge, which also logs.
#[inline(always)]
pub fn judge(
    context: &SockAddrContext,
    cgroup: u64,
    address: [u32; 4],
    port: u16,
) -> Result<Option<Listener>, Reason> {
    let verdict = super::judge(context, cgroup, address, port);
    let told = match &verdict {
        Ok(None) => AS_ASKED,
        Ok(Some(relay)) => TO_RELAY | u32::from(relay.port),
        Err(reason) => REFUSED | *reason as u32,
    };
    tell(context, cgroup, &address, port, told);
    verdict
}

/// Not inlined: the stack of `connect` has no room for it. The verdict is a number, since the verifier lets nothing be
/// stored that was not set, and an enumeration in memory is stored as a whole.
#[inline(never)]
fn tell(context: &SockAddrContext, cgroup: u64, address: &[u32; 4], port: u16, told: u32) {
    // Words in network order.
    let [a, b, c, d] = address.map(u32::to_ne_bytes);
    let to = [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]];
    let number = told as u16;
    match told & !0xffff {
        AS_ASKED => info!(context, "cgroup {}: {:i} port {}: as asked", cgroup, to, port),
        TO_RELAY => {
            info!(context, "cgroup {}: {:i} port {}: to the relay's port {}", cgroup, to, port, number)
        }
        _ => info!(context, "cgroup {}: {:i} port {}: refused, reason {}", cgroup, to, port, number),
    }
}
