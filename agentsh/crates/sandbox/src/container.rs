//! The container tier, for hosts without namespaces: Landlock restricts files, seccomp everything else, and the session
//! makes all connections (see [`super::seccomp::listener`]). Without a pid namespace, the first process is the
//! subreaper and kills all descendants at its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::control::{self, Answer};
use super::plan::{Plan, Tier};
use super::report::{Enforcement, State};
use super::stage::{StageContext, StageError};
use super::{caps, freeze, init, landlock, limits, reaper, seccomp};

/// A process in uninterruptible sleep dies only when its disk or network file system answers, perhaps never. It runs no more of
/// its own code.
const MAX_STUCK: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Like [`init`], without namespaces. Returns the program's status.
pub(super) fn descend(
    plan: &Plan,
    control: &OwnedFd,
    numbered: Vec<(u32, OwnedFd)>,
) -> Result<i32, StageError> {
    // Before there can be orphans.
    nix::sys::prctl::set_child_subreaper(true).at("become the reaper of orphaned processes")?;
    limits::apply(&plan.limits)?;
    nix::sys::prctl::set_no_new_privs().at("set no_new_privs")?;
    let landlock = landlock::apply(&plan.landlock, &[], plan.tier, &numbered)?;
    if landlock.state == State::Absent {
        // Landlock is the only file restriction here, so no flag skips it.
        return Err(io::Error::other(landlock.why))
            .at("apply Landlock, which `--tier container` cannot do without");
    }
    let signals_stay_inside = signals_stay_inside();
    caps::drop_existing()?;
    let filter = seccomp::compile(plan.executable.filter(), Tier::Container, seccomp::Refusal::Silent);
    let listener = seccomp::install_and_listen(&filter, 0)?;
    let enforcement = vec![
        Enforcement::weakened(
            "tier",
            "namespaces, an empty root and a network of its own",
            "container: Landlock, a system call filter and connections made by agentsh",
            State::Degraded,
            "because of `--tier container`: /proc shows other processes and files outside the Landlock rules, \
             hook files are restored at the end but not guarded during the run, pinned files are checked before \
             the start but can change later, and process limits count all processes of this user",
        ),
        landlock,
        Enforcement::enforced("seccomp", "default deny; connect is made by agentsh"),
        Enforcement::enforced("capabilities", "none, no_new_privs"),
    ];
    control::send(control.as_fd(), &Answer::Ready { enforcement }, &[listener.as_fd()])
        .at("tell the session")?;
    // The program must not hold the listener with which it could answer itself.
    drop(listener);
    let signals = reaper::awaited_signals();
    let before = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).at("block signals")?;
    let status = init::start(plan, control, &before, numbered);
    end_all(signals_stay_inside);
    status
}

/// Kills the remaining processes until none is left; orphans become our children. Gives up only if for this time all
/// remaining processes have only been waiting in the kernel.
fn end_all(signals_stay_inside: bool) {
    let mut stuck_since = None;
    loop {
        if signals_stay_inside {
            // All at once: a process with a pending signal cannot fork.
            let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        }
        let mut left = freeze::descendants(std::process::id());
        left.retain(|pid| pid.as_raw_nonzero().get().unsigned_abs() != std::process::id());
        for pid in &left {
            // It may have ended.
            let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return,
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        if left.iter().any(|pid| freeze::is_running(*pid, true)) {
            stuck_since = None;
        } else if stuck_since.get_or_insert_with(Instant::now).elapsed() > MAX_STUCK {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether a signal to everybody reaches only the sandbox: Landlock's scope, since Linux 6.12. The process that started this one
/// belongs to the same user, and is outside.
fn signals_stay_inside() -> bool {
    let outside = nix::unistd::getppid();
    outside.as_raw() > 1 && kill(outside, None) == Err(Errno::EPERM)
}
