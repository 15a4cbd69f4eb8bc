//! Limits per process and per user namespace.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::plan::Limits;
use super::report::{Enforcement, State};
use super::stage::{StageContext, StageError};

/// More signals than programs queue, and a fraction of any machine's limit per user.
pub const MAX_QUEUED_SIGNALS: u64 = 4096;
pub const MAX_QUEUE_BYTES: u64 = 256 << 10;
/// The OOM killer prefers the sandbox: half of the highest value.
const OOM_SCORE: &str = "500";

/// Applied by init to itself and its children.
///
/// # Errors
/// When the kernel refuses a limit that is not above the inherited one.
pub fn apply(limits: &Limits) -> Result<(), StageError> {
    let at_most = |resource, value: u64| {
        let limit = Some(value.min(getrlimit(resource).maximum.unwrap_or(u64::MAX)));
        Rlimit { current: limit, maximum: limit }
    };
    setrlimit(Resource::Nproc, at_most(Resource::Nproc, limits.pids)).at("limit processes")?;
    let open_files = at_most(Resource::Nofile, limits.open_files);
    let usual = open_files.maximum.map(|maximum| maximum.min(limits.usual_open_files));
    setrlimit(Resource::Nofile, Rlimit { current: usual, ..open_files }).at("limit open files")?;
    let file_bytes = getrlimit(Resource::Fsize);
    if file_bytes.current != limits.file_bytes {
        let usual = Rlimit { current: limits.file_bytes, ..file_bytes };
        setrlimit(Resource::Fsize, usual).at("limit the size of files")?;
    }
    // If a program of the host receives dumps, the kernel starts it at a limit of 0, too, but not at 1
    // (core(5), fs/coredump.c). A hard limit of 0, as hardening guides set it, cannot be raised.
    setrlimit(Resource::Core, at_most(Resource::Core, 1)).at("switch off core dumps")?;
    setrlimit(Resource::Sigpending, at_most(Resource::Sigpending, MAX_QUEUED_SIGNALS))
        .at("limit queued signals")?;
    setrlimit(Resource::Msgqueue, at_most(Resource::Msgqueue, MAX_QUEUE_BYTES)).at("limit message queues")?;
    // Without this file the kernel decides.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    Ok(())
}

/// Lowers limits of this user namespace that the kernel counts per host user, and forbids nested user namespaces. The
/// other limits need a capability that nobody inside has. Returns what failed.
#[must_use]
pub fn lower_shares(limits: &Limits) -> Option<Enforcement> {
    let write = |name: &str, value: u64| fs::write(Path::new("/proc/sys/user").join(name), value.to_string());
    let shares = || {
        write("max_inotify_instances", limits.inotify_instances)?;
        write("max_inotify_watches", limits.inotify_watches)
    };
    // The filter refuses them too.
    let _ = write("max_user_namespaces", 0);
    let error = shares().err()?;
    let asked = "a share of your inotify instances and watches";
    Some(Enforcement::weakened(
        "quotas",
        asked,
        "all of them can be used inside",
        State::Degraded,
        format!("cannot write below /proc/sys/user: {error}"),
    ))
}
