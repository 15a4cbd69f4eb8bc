//! Capabilities: init holds all of its own user namespace's while it builds, and none afterwards.

use std::io;

use caps::{CapSet, CapsHashSet};

use super::stage::{At, StageError};

/// Empties every set. After this neither init nor anything it starts can regain one: the bounding set is empty
/// and no_new_privs is on.
///
/// # Errors
/// When the kernel refuses; then nothing may be executed.
pub fn drop_all() -> Result<(), StageError> {
    let empty = CapsHashSet::new();
    for capability in caps::runtime::procfs_all_supported(None).unwrap_or_else(|_| caps::all()) {
        caps::drop(None, CapSet::Bounding, capability)
            .map_err(to_io)
            .on("drop bounding capability", capability)?;
    }
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &empty).map_err(to_io).on("drop capabilities", format_args!("{set:?}"))?;
    }
    nix::sys::prctl::set_no_new_privs().at("set no_new_privs")
}

fn to_io(error: caps::errors::CapsError) -> io::Error {
    io::Error::other(error.to_string())
}
