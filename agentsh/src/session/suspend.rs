//! Job control: a stopped agent stops its job, and `fg` resumes both.

use nix::sys::signal::{Signal as NixSignal, kill, raise};
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};
use rustix::process::Signal;

use agentsh_sandbox::Child;

use super::signals::{has_terminal, is_ours, parent};

/// A person does not notice it.
const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_millis(100);

/// The terminal's foreground group when the job was stopped.
#[derive(Default)]
pub(super) struct Suspended {
    foreground: Option<Pid>,
}

impl Suspended {
    /// Stops this job until it is continued. If no process could continue it, the agent continues.
    pub fn stop(&mut self, child: &Child) {
        // The agent used the terminal between `fg` and now.
        if !self.return_terminal() && somebody_waits() {
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
        self.return_terminal();
        child.signal(Signal::CONT);
    }

    /// Gives the agent the terminal back if this job has it. Returns whether it did.
    pub fn return_terminal(&mut self) -> bool {
        if self.foreground.is_none() || !has_terminal() {
            return false;
        }
        let group = self.foreground.take().filter(|group| *group != getpgrp());
        let terminal = std::fs::File::open("/dev/tty");
        // The group may be gone.
        group.zip(terminal.ok()).is_some_and(|(group, terminal)| tcsetpgrp(terminal, group).is_ok())
    }

    /// Waits until `fg` may have given this job the terminal. A shell sends no signal if the job was already running.
    pub async fn in_front(&self) {
        match self.foreground {
            Some(_) => tokio::time::sleep(BETWEEN_LOOKS).await,
            None => std::future::pending().await,
        }
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
