//! Capabilities: init keeps those that it needs for the setup, in its own user namespace, and drops all before it
//! starts the program.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::stage::{StageContext, StageError};

/// The capabilities that init needs for the setup: mounts, host name and cgroup namespace; ids; loopback and listeners on low
/// ports; packet sockets; limits of the user namespace; closed directories of its own tmpfs; and dropping all of these.
const SETUP_CAPABILITIES: CapabilitySet = CapabilitySet::SYS_ADMIN
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

/// Drops all but [`SETUP_CAPABILITIES`] of the capabilities that a new user namespace gives.
///
/// # Errors
/// When the kernel refuses; then nothing may be set up.
pub fn keep_for_setup() -> Result<(), StageError> {
    let sets = CapabilitySets {
        effective: SETUP_CAPABILITIES,
        permitted: SETUP_CAPABILITIES,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets).at("keep the capabilities for the setup")
}

/// Empties every set. Neither init nor its children can regain one: the bounding set is empty and no_new_privs is on.
///
/// # Errors
/// When the kernel refuses; then nothing may be executed.
pub fn drop_all() -> Result<(), StageError> {
    empty_bounding_set()?;
    empty_sets()
}

/// Like [`drop_all`], for a process without CAP_SETPCAP: it has no capability to bound, and no_new_privs keeps it so.
///
/// # Errors
/// When the kernel refuses; then nothing may be executed.
pub fn drop_existing() -> Result<(), StageError> {
    let may = |sets: CapabilitySets| sets.effective.contains(CapabilitySet::SETPCAP);
    if rustix::thread::capabilities(None).map(may).at("read capabilities")? {
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
    rustix::thread::set_capabilities(None, sets).at("drop capabilities")
}
