//! Whether an ordinary user can create a usable user namespace. Tested in a separate process, because a profile
//! applies from the start of a program.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The hidden verb of the process that tries.
pub const VERB: &str = "__namespaces";
/// The user `nobody`.
const ORDINARY: u32 = 65534;

/// # Errors
/// When the process that tries cannot be started.
#[expect(clippy::disallowed_methods, reason = "agentsh itself, which tries something harmless")]
pub(super) fn may_make_namespaces(executable: &Path) -> Result<bool, String> {
    let mut command = Command::new(executable);
    command.arg(VERB).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Root is never restricted: what counts is who will run agents.
    if rustix::process::geteuid().is_root() {
        let user = std::env::var("SUDO_UID").ok().and_then(|text| text.parse().ok()).filter(|uid| *uid != 0);
        command.uid(user.unwrap_or(ORDINARY)).gid(ORDINARY);
    }
    command.status().map(|status| status.success()).map_err(|error| error.to_string())
}

/// 0 when a mount could be made in namespaces of its own.
pub fn run_inside() -> u8 {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let tried = || -> std::io::Result<()> {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
        // AppArmor may give the namespace and take its capabilities.
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        Ok(())
    };
    u8::from(tried().is_err())
}
