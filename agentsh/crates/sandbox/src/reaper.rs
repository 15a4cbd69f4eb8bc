//! Pid 1 after the start: reaps all children, forwards signals to the program and exits with its status. Its end makes
//! the kernel kill the pid namespace.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::control::{self, Answer};
use super::plan::Terminal;

/// Forwarded to the program.
const FORWARDED: [Signal; 9] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];
/// Pid 1 cannot continue: agentsh's own failure.
pub const OWN_FAILURE: i32 = 125;

/// Milliseconds after which the program counts as long-lived and pid 1 frees memory.
const SHORT_LIFE_MS: u16 = 500;

/// Signals to block before the program starts, so that none is lost.
#[must_use]
pub fn awaited_signals() -> SigSet {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    for signal in FORWARDED {
        set.add(signal);
    }
    set
}

/// Returns the exit status for pid 1: the program's own, or 128 + its signal.
#[must_use]
pub fn run(program: Pid, session: BorrowedFd<'_>, terminal: Terminal) -> i32 {
    let Ok(signals) =
        SignalFd::with_flags(&awaited_signals(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
    else {
        return OWN_FAILURE;
    };
    // A short-lived program should not wait for housekeeping.
    let mut patience = PollTimeout::from(SHORT_LIFE_MS);
    loop {
        let seen = reap(program);
        if let Some(status) = seen.ended {
            if seen.interrupted {
                let _ = control::send(session, &Answer::Interrupted, &[]);
            }
            return status;
        }
        if let Some(stopped) = seen.stopped {
            let word = if stopped { Answer::Stopped } else { Answer::Continued };
            // A session that is gone is noticed below.
            let _ = control::send(session, &word, &[]);
        }
        let mut wanted =
            [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(session, PollFlags::POLLIN)];
        match poll(&mut wanted, patience) {
            Ok(0) => {
                crate::memory::trim_heap();
                patience = PollTimeout::NONE;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return OWN_FAILURE,
        }
        // The session writes nothing after the plan: readable means that it is gone.
        if wanted[1].revents().is_some_and(|events| !events.is_empty()) && is_closed(session) {
            return OWN_FAILURE;
        }
        while let Ok(Some(information)) = signals.read_signal() {
            let Ok(signal) = Signal::try_from(information.ssi_signo.cast_signed()) else { continue };
            // The terminal itself sends these to the program.
            let of_terminal =
                matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGWINCH | Signal::SIGTSTP)
                    && information.ssi_code == libc::SI_KERNEL
                    && terminal != Terminal::NewSession;
            if signal == Signal::SIGCHLD || of_terminal {
                continue;
            }
            // The program's own group is stopped and continued as a whole.
            let job = if terminal == Terminal::OwnGroup { -program.as_raw() } else { program.as_raw() };
            if signal == Signal::SIGTSTP {
                let _ = kill(Pid::from_raw(job), signal);
                continue;
            }
            if signal == Signal::SIGCONT {
                // From the shell it reaches the program too; once is enough.
                if crate::proc_file::is_stopped(program.as_raw()) {
                    let _ = kill(Pid::from_raw(job), signal);
                }
                continue;
            }
            // A program that has just ended is reaped on the next turn.
            let _ = kill(program, signal);
        }
    }
}

fn is_closed(session: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    matches!(
        nix::sys::socket::recv(session.as_raw_fd(), &mut byte, nix::sys::socket::MsgFlags::MSG_DONTWAIT),
        Ok(0) | Err(Errno::ECONNRESET)
    )
}

/// The state of the program.
#[derive(Default)]
struct ProgramStatus {
    /// Its status.
    ended: Option<i32>,
    /// Whether SIGINT ended it.
    interrupted: bool,
    /// Whether it was last stopped or continued; None if neither.
    stopped: Option<bool>,
}

/// Reaps all ended children, and checks whether the program was stopped or continued.
fn reap(program: Pid) -> ProgramStatus {
    /// Other stops are a debugger's.
    const JOB_CONTROL: [Signal; 4] = [Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED;
    let mut seen = ProgramStatus::default();
    loop {
        seen.ended = match waitpid(None, Some(flags)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == program => Some(status),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                seen.interrupted = signal == Signal::SIGINT;
                Some(128 + signal as i32)
            }
            Ok(WaitStatus::Stopped(pid, signal)) if pid == program && JOB_CONTROL.contains(&signal) => {
                seen.stopped = Some(true);
                None
            }
            Ok(WaitStatus::Continued(pid)) if pid == program => {
                seen.stopped = Some(false);
                None
            }
            Ok(WaitStatus::StillAlive) => return seen,
            Ok(_) | Err(Errno::EINTR) => None,
            Err(_) => Some(OWN_FAILURE),
        };
        if seen.ended.is_some() {
            return seen;
        }
    }
}
