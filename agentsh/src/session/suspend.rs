//! The agent that was stopped (Ctrl-Z, or by itself) takes its job along, as it would without agentsh; and `fg` brings it
//! back.

use nix::sys::signal::{Signal as NixSignal, kill, raise};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};
use rustix::process::Signal;

use agentsh_sandbox::Child;

use super::signals::{is_ours, parent};

/// Whose the terminal was when the job was stopped.
#[derive(Default)]
pub(super) struct Suspended {
    foreground: Option<Pid>,
}

impl Suspended {
    /// Stops this job until somebody continues it. Where nobody could, the agent goes on.
    pub fn stop(&mut self, child: &Child) {
        if somebody_waits() {
            let now = std::fs::File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(tty).ok());
            // In the background it is somebody else's, and the agent's comes back with `fg`.
            self.foreground = now.filter(|group| is_ours(*group)).or(self.foreground);
            // The others of the job, as the key would; we have a handler for it. Then ourselves.
            let _ = kill(Pid::from_raw(0), NixSignal::SIGTSTP);
            let _ = raise(NixSignal::SIGSTOP);
        }
        self.resume(child);
    }

    /// Continued: by `fg` if the terminal is this job's now, by `bg` if not.
    pub fn resume(&mut self, child: &Child) {
        if super::signals::has_terminal()
            && let Some(group) = self.foreground.take()
            && group != getpgrp()
            && let Ok(terminal) = std::fs::File::open("/dev/tty")
        {
            // A group that is gone gets nothing.
            let _ = tcsetpgrp(terminal, group);
        }
        child.signal(Signal::CONT);
    }
}

/// Whether the first process around this job belongs to the same session: a shell that hears of its jobs. Otherwise the
/// kernel, too, does not stop a job on a key.
fn somebody_waits() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut around = getppid();
    // A chain of wrappers (a script, `npx`) is a part of the job.
    for _ in 0..64 {
        match getpgid(Some(around)) {
            Ok(of) if of == group => match parent(around) {
                Some(above) => around = above,
                None => return false,
            },
            Ok(_) => return around.as_raw() > 1 && getsid(Some(around)) == session,
            Err(_) => return false,
        }
    }
    false
}
