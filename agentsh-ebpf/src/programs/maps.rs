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
            place.write(event);
            place.submit(0);
        }
        None => count(Counter::Lost),
    }
}
