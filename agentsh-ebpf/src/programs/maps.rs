//! The maps. Tables take memory as they fill, so that an empty session costs little.

use agentsh_ebpf::{Counter, Event, Net, Origin, Place, Sandbox, Socket, Traffic, limits};
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf, SkStorage};
use aya_ebpf::macros::btf_map;

const LAZY: usize = BPF_F_NO_PREALLOC as usize;

#[btf_map]
pub static SANDBOXES: HashMap<u64, Sandbox, { limits::SANDBOXES }, LAZY> = HashMap::new();

#[btf_map]
pub static ALLOWED: HashMap<Place, u32, { limits::ALLOWED }, LAZY> = HashMap::new();

#[btf_map]
pub static NETS: LpmTrie<Net, u32, { limits::NETS }> = LpmTrie::new();

/// From the source of a redirected connection to where it was meant to go. Never an LRU map: that evicts the living.
#[btf_map]
pub static ORIGINS: HashMap<Place, Origin, { limits::ORIGINS }, LAZY> = HashMap::new();

/// Only numbers for reports: here the oldest may go.
#[btf_map]
pub static TRAFFIC: LruHashMap<u64, Traffic, { limits::TRAFFIC }> = LruHashMap::new();

#[btf_map]
pub static SOCKETS: SkStorage<Socket> = SkStorage::new();

#[btf_map]
pub static EVENTS: RingBuf<Event, { limits::RING }> = RingBuf::new();

#[btf_map]
pub static COUNTERS: PerCpuArray<u64, { Counter::COUNT }> = PerCpuArray::new();

#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: the slot belongs to this CPU, and programs of one kind do not interrupt each other on it.
        unsafe { *value = (*value).wrapping_add(1) };
    }
}

/// Never waits: a full ring loses the record, and says so in a counter.
#[inline(always)]
pub fn report(event: Event) {
    match EVENTS.reserve(0) {
        Some(mut place) => {
            fill(place.as_mut_ptr(), event);
            place.submit(0);
        }
        None => count(Counter::Lost),
    }
}

/// Field by field. What the compiler copies or clears as a whole becomes a loop over bytes, and the verifier walks a loop
/// round by round: half of all instructions that it looked at were these.
#[inline(always)]
fn fill(to: *mut Event, from: Event) {
    macro_rules! set {
        ($($field:ident $([$($index:literal)*])?),*) => {
            // SAFETY: the ring gave room for one event.
            $(set!(@ to, from, $field $([$($index)*])?);)*
        };
        (@ $to:ident, $from:ident, $field:ident) => {
            unsafe { core::ptr::write_volatile(&raw mut (*$to).$field, $from.$field) }
        };
        (@ $to:ident, $from:ident, $field:ident [$($index:literal)*]) => {
            $(unsafe { core::ptr::write_volatile(&raw mut (*$to).$field[$index], $from.$field[$index]) };)*
        };
    }
    set!(version, kind, reason, family, protocol, pid, tgid, cgroup, cookie);
    set!(address[0 1 2 3], comm[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15]);
    set!(sent, received, port, socket_type, padding);
}
