//! The last line: whatever the other programs missed, no packet leaves that is not for loopback. A network
//! namespace without a route stops it too; two walls fail one after the other, not together.

use agentsh_ebpf::{Counter, is_loopback, mapped};
use aya_ebpf::programs::SkBuffContext;

use crate::caller::field;
use crate::maps::count;
use crate::{PASS, REFUSE};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Where the destination stands in each header.
const DESTINATION4: usize = 16;
const DESTINATION6: usize = 24;

#[inline(always)]
pub fn egress(context: &SkBuffContext) -> i32 {
    let inside = match u16::from_be(field!(context.skb.skb, protocol) as u16) {
        IPV4 => context.load::<u32>(DESTINATION4).is_ok_and(|to| is_loopback(mapped(to))),
        IPV6 => context.load::<[u32; 4]>(DESTINATION6).is_ok_and(is_loopback),
        _ => false,
    };
    if inside {
        return PASS;
    }
    count(Counter::DroppedPackets);
    REFUSE
}
