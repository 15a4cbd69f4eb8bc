//! The last line: whatever the other programs missed, no packet leaves that is not for loopback. A network
//! namespace without a route stops it too; two walls fail one after the other, not together.

use agentsh_ebpf::{Counter, is_loopback, mapped};
use aya_ebpf::programs::SkBuffContext;

use crate::caller::field;
use crate::maps::count;
use crate::{PASS, REFUSE};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Offset of the destination in each header.
const DESTINATION4: usize = 16;
const DESTINATION6: usize = 24;

#[inline(always)]
pub fn egress(context: &SkBuffContext) -> i32 {
    let inside = match u16::from_be(field!(context.skb.skb, protocol) as u16) {
        IPV4 => at::<u32>(context, DESTINATION4).is_some_and(|to| is_loopback(mapped(to))),
        IPV6 => at::<[u32; 4]>(context, DESTINATION6).is_some_and(is_loopback),
        _ => false,
    };
    if inside {
        return PASS;
    }
    count(Counter::DroppedPackets);
    REFUSE
}

/// Reads the packet at `offset` in place: asking the kernel for a copy takes several times as long. The header of an
/// outgoing packet is contiguous; one that is not does not pass.
#[inline(always)]
fn at<T: Copy>(context: &SkBuffContext, offset: usize) -> Option<T> {
    let packet = context.skb.skb;
    let (start, end) = (field!(packet, data) as usize, field!(packet, data_end) as usize);
    if start + offset + size_of::<T>() > end {
        return None;
    }
    // SAFETY: both bounds are this packet's, and the verifier checks the comparison too.
    Some(unsafe { core::ptr::read_unaligned((start + offset) as *const T) })
}
