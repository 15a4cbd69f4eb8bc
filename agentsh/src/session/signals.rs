//! Signals to agentsh while an agent runs, and whose the terminal is.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Nothing can be listened for: whoever asked to end would not be heard.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for signals: {0}")]
pub struct Deaf(#[from] std::io::Error);

/// What may arrive while the agent runs.
pub(super) struct Signals {
    pub interrupt: Signal,
    pub quit: Signal,
    pub terminate: Signal,
    pub hang_up: Signal,
    /// The terminal's way to stop a job. Listened for, so that it stops the agent alone: agentsh follows the agent.
    pub stop: [Signal; 3],
    pub resumed: Signal,
}

fn listen(kind: SignalKind) -> Result<Signal, Deaf> {
    Ok(signal(kind)?)
}

/// Waits until this process is asked to end; gives its exit status, 128 and the signal.
///
/// # Errors
/// When nothing can be listened for.
pub(super) fn end() -> Result<impl Future<Output = u8>, Deaf> {
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
            _ = hang_up.recv() => 129,
        }
    })
}

fn raw(number: i32) -> SignalKind {
    SignalKind::from_raw(number)
}

impl Signals {
    pub fn listen() -> Result<Self, Deaf> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            stop: [listen(raw(libc::SIGTSTP))?, listen(raw(libc::SIGTTIN))?, listen(raw(libc::SIGTTOU))?],
            resumed: listen(raw(libc::SIGCONT))?,
        })
    }
}

/// Whether the keys of a terminal signal this process group.
pub(super) fn has_terminal() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| nix::unistd::tcgetpgrp(terminal) == Ok(nix::unistd::getpgrp()))
}

/// An agent with job control leaves its own process group in the foreground.
pub(super) fn take_terminal_back() {
    use nix::sys::signal::{SigSet, Signal as NixSignal};
    let mut stop = SigSet::empty();
    stop.add(NixSignal::SIGTTOU);
    // Blocked, or the kernel would stop us for touching a terminal that we do not own.
    if stop.thread_block().is_ok() {
        let _ = nix::unistd::tcsetpgrp(std::io::stdin(), nix::unistd::getpgrp());
        let _ = stop.thread_unblock();
    }
}
