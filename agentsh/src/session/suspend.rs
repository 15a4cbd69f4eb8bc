//! Job control: a stopped agent stops its job, and `fg` resumes both.

use nix::sys::signal::{Signal as NixSignal, kill, raise};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};
use rustix::process::Signal;

use agentsh_sandbox::Child;

use super::signals::{is_ours, parent};

/// The terminal's foreground group when the job was stopped.
#[derive(Default)]
pub(super) struct Suspended {
    foreground: Option<Pid>,
}

impl Suspended {
    /// Stops this job until it is continued. If no process could continue it, the agent continues.
    pub fn stop(&mut self, child: &Child) {
        if somebody_waits() {
            let now = std::fs::File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(tty).ok());
            // In the background another job has it; `fg` restores the agent's.
            let now = now.filter(|group| is_ours(*group));
            self.foreground = now.or(self.foreground);
            if now.is_some() {
                // The other processes of the job, as the key would. Without a terminal in front of it, only the agent stopped itself.
                let _ = kill(Pid::from_raw(0), NixSignal::SIGTSTP);
            }
            let _ = raise(NixSignal::SIGSTOP);
        }
        self.resume(child);
    }

    /// Continued: by `fg` if this job has the terminal, else by `bg`.
    pub fn resume(&mut self, child: &Child) {
        if super::signals::has_terminal()
            && let Some(group) = self.foreground.take()
            && group != getpgrp()
            && let Ok(terminal) = std::fs::File::open("/dev/tty")
        {
            // The group may be gone.
            let _ = tcsetpgrp(terminal, group);
        }
        child.signal(Signal::CONT);
    }
}

/// Whether the parent outside this job is in the same session: a shell with job control. Otherwise the kernel does
/// not stop a job when the key is pressed either.
fn somebody_waits() -> bool {
    let (group, session) = (getpgrp(), getsid(None));
    let mut around = getppid();
    // Wrappers (a script, `npx`) belong to the job.
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
