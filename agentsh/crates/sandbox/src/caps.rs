//! Capabilities: init holds those it builds with, in its own user namespace, and none afterwards.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::stage::{StageContext, StageError};

/// What init needs while it builds: mounts, host name and cgroup namespace; its ids; the loopback interface and
/// listeners on low ports; sockets that hear of refused connections; lower shares of what the host counts per user; directories of its own tmpfs that are closed to everybody; and to give all of this up.
const WHILE_BUILDING: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER);

/// Gives up all but [`WHILE_BUILDING`], of every capability that a new user namespace gives.
///
/// # Errors
/// When the kernel refuses; then nothing may be built.
pub fn keep_what_builds() -> Result<(), StageError> {
    let sets = CapabilitySets {
        effective: WHILE_BUILDING,
        permitted: WHILE_BUILDING,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).at("keep what init builds with")
}

/// Empties every set. After this neither init nor anything it starts can regain one: the bounding set is empty
/// and no_new_privs is on.
///
/// # Errors
/// When the kernel refuses; then nothing may be executed.
pub fn drop_all() -> Result<(), StageError> {
    empty_bounding_set()?;
    empty_sets()
}

/// As [`drop_all`], for a process that may hold none: who may not empty the bounding set has nothing that it bounds, and
/// with no_new_privs never gets it.
///
/// # Errors
/// When the kernel refuses; then nothing may be executed.
pub fn drop_those_there_are() -> Result<(), StageError> {
    let may = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SETPCAP);
    if rustix::thread::capabilities(None).map(may).at("look at capabilities")? {
        empty_bounding_set()?;
    }
    empty_sets()
}

fn empty_bounding_set() -> Result<(), StageError> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Past the last one that this kernel has. The first few exist everywhere.
            Err(Errno::INVAL) if number > CapabilitySet::SETFCAP.bits().trailing_zeros() => break,
            Err(error) => return Err(error).on("drop bounding capability", number),
        }
    }
    Ok(())
}

fn empty_sets() -> Result<(), StageError> {
    rustix::thread::clear_ambient_capability_set().at("drop ambient capabilities")?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).at("drop capabilities")?;
    nix::sys::prctl::set_no_new_privs().at("set no_new_privs")
}
