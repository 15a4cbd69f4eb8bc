//! Where a sandbox may connect to.

use agentsh_ebpf::{ANY_V4, ANY_V6, Net, Place, Reason, Sandbox, is_loopback, is_v4, listener};
use aya_ebpf::btf_maps::lpm_trie::Key;

use crate::maps::{ALLOWED, NETS, SANDBOXES};

pub struct Listener {
    pub address: [u32; 4],
    pub port: u16,
    /// 4 or 6.
    pub wire: u32,
}

#[inline(always)]
fn sandbox(cgroup: u64) -> Option<&'static Sandbox> {
    // SAFETY: user space writes an entry once, before the first process of the sandbox exists.
    unsafe { SANDBOXES.get(cgroup) }
}

/// The relay's listener for a connection that is allowed, nothing for one that stays inside.
#[inline(always)]
pub fn stream(cgroup: u64, address: [u32; 4], port: u16) -> Result<Option<Listener>, Reason> {
    let Some(sandbox) = sandbox(cgroup) else { return Err(Reason::Unknown) };
    let inside = is_loopback(address);
    if inside && is_listener(sandbox, address, port) {
        return Err(Reason::Listener);
    }
    if inside && sandbox.listeners == 0 {
        // Without a relay the list is empty: no need to look.
        return Ok(None);
    }
    // Before loopback: a port of the host's loopback may be on the list too.
    let exact = ALLOWED.get_ptr(Place::new(cgroup, address, port)).is_some();
    if !exact && inside {
        return Ok(None);
    }
    if exact || in_net(cgroup, address, port) || in_net(cgroup, address, 0) {
        return redirect(sandbox, address).map(Some);
    }
    Err(Reason::NotAllowed)
}

/// Whether a datagram may go there.
#[inline(always)]
pub fn datagram(cgroup: u64, address: [u32; 4], port: u16) -> Result<(), Reason> {
    let Some(sandbox) = sandbox(cgroup) else { return Err(Reason::Unknown) };
    let resolver = sandbox.resolver_port != 0 && sandbox.resolver_port == port && sandbox.resolver == address;
    if is_loopback(address) || resolver { Ok(()) } else { Err(Reason::Datagram) }
}

#[inline(always)]
fn in_net(cgroup: u64, address: [u32; 4], port: u16) -> bool {
    NETS.get(&Key::new(Net::ALL_BITS, Net::new(cgroup, address, port))).is_some()
}

/// An unspecified address reaches a listener at any address of its own family, and `::` reaches IPv4 ones too.
#[inline(always)]
fn is_listener(sandbox: &Sandbox, address: [u32; 4], port: u16) -> bool {
    let v4 = sandbox.listeners & listener::V4 != 0 && sandbox.listener_v4_port == port;
    let v6 = sandbox.listeners & listener::V6 != 0 && sandbox.listener_v6_port == port;
    if address == ANY_V6 {
        return v4 || v6;
    }
    if is_v4(address) {
        return v4 && (address == ANY_V4 || sandbox.listener_v4 == address || sandbox.listener_v4 == ANY_V4);
    }
    v6 && (sandbox.listener_v6 == address || sandbox.listener_v6 == ANY_V6)
}

#[inline(always)]
fn redirect(sandbox: &Sandbox, address: [u32; 4]) -> Result<Listener, Reason> {
    let (flag, listener) = if is_v4(address) {
        (listener::V4, Listener { address: sandbox.listener_v4, port: sandbox.listener_v4_port, wire: 4 })
    } else {
        (listener::V6, Listener { address: sandbox.listener_v6, port: sandbox.listener_v6_port, wire: 6 })
    };
    if sandbox.listeners & flag == 0 {
        return Err(Reason::NoListener);
    }
    Ok(listener)
}
