//! Signals to agentsh while an agent runs, and whose the terminal is.

use agentsh_base::proc_file;
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Nothing can be listened for: whoever asked to end would not be heard.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for signals: {0}")]
pub struct SignalSetupError(#[from] std::io::Error);

/// What may arrive while the agent runs.
pub(super) struct Signals {
    pub interrupt: Signal,
    pub quit: Signal,
    pub terminate: Signal,
    pub hang_up: Signal,
    /// The terminal's way to stop a job. Listened for, so that it stops the agent alone: agentsh follows the agent.
    pub stop: [Signal; 3],
    pub resumed: Signal,
    /// What a program makes of them is its own business (`dd`, Node's inspector).
    pub user: [Signal; 2],
}

fn listen(kind: SignalKind) -> Result<Signal, SignalSetupError> {
    Ok(signal(kind)?)
}

/// Waits until this process is asked to end; gives its exit status, 128 and the signal.
///
/// # Errors
/// When nothing can be listened for.
pub(super) fn end() -> Result<impl Future<Output = u8>, SignalSetupError> {
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

/// Serves a client until it has gone, which gives what `serving` gives; or until this process is asked to end, which gives the
/// exit status. Then `hang_up` ends the client's input, and the servers end as they do when a client has gone. Who asks once
/// more does not wait for that.
///
/// # Errors
/// When nothing can be listened for.
pub(super) async fn serve_until_end<T>(
    serving: impl Future<Output = T>,
    hang_up: impl FnOnce(),
) -> Result<Result<T, u8>, SignalSetupError> {
    let mut serving = std::pin::pin!(serving);
    let code = tokio::select! {
        served = &mut serving => return Ok(Ok(served)),
        code = end()? => code,
    };
    let again = end()?;
    hang_up();
    tokio::select! {
        _served = serving => {}
        _code = again => {}
    }
    Ok(Err(code))
}

fn raw(number: i32) -> SignalKind {
    SignalKind::from_raw(number)
}

impl Signals {
    pub fn listen() -> Result<Self, SignalSetupError> {
        // With the agent in the foreground, what is said here comes from the background. Where the agent has the terminal
        // stop that (`stty tostop`), a handler would be called for ever: blocked, the kernel lets it through.
        let mut writes = nix::sys::signal::SigSet::empty();
        writes.add(nix::sys::signal::Signal::SIGTTOU);
        writes.thread_block().map_err(std::io::Error::from)?;
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            quit: listen(SignalKind::quit())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            stop: [listen(raw(libc::SIGTSTP))?, listen(raw(libc::SIGTTIN))?, listen(raw(libc::SIGTTOU))?],
            resumed: listen(raw(libc::SIGCONT))?,
            user: [listen(SignalKind::user_defined1())?, listen(SignalKind::user_defined2())?],
        })
    }
}

/// Whether the keys of a terminal signal this process group.
pub(super) fn has_terminal() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| nix::unistd::tcgetpgrp(terminal) == Ok(nix::unistd::getpgrp()))
}

/// A key that ended the agent was meant for the whole job, and reached the agent's group alone. A shell that runs a script
/// ends with the program it waits for.
pub(super) fn pass_on(status: u8) {
    use nix::sys::signal::{Signal as NixSignal, kill};
    let signal = [NixSignal::SIGINT, NixSignal::SIGQUIT];
    let signal = signal.into_iter().find(|signal| i32::from(status) == 128 + *signal as i32);
    if let Some(signal) = signal {
        // This process listens for both.
        let _ = kill(nix::unistd::Pid::from_raw(0), signal);
    }
}

/// An agent with a process group of its own leaves it in the foreground. Whether it did. A job in the background leaves the
/// terminal to whoever has it: the shell would be told that it is at an end.
pub(super) fn take_terminal_back() -> bool {
    use nix::sys::signal::{SigSet, Signal as NixSignal, kill};
    let (terminal, own) = (std::io::stdin(), nix::unistd::getpgrp());
    let Ok(group) = nix::unistd::tcgetpgrp(&terminal) else { return false };
    let is_gone = || kill(nix::unistd::Pid::from_raw(-group.as_raw()), None) == Err(nix::errno::Errno::ESRCH);
    if group == own || !(is_gone() || is_ours(group)) {
        return false;
    }
    let mut stop = SigSet::empty();
    stop.add(NixSignal::SIGTTOU);
    // Blocked, or the kernel would stop us for touching a terminal that we do not own.
    if stop.thread_block().is_ok() {
        let _ = nix::unistd::tcsetpgrp(terminal, own);
        let _ = stop.thread_unblock();
    }
    true
}

/// Whether a process descends from this one.
pub(super) fn is_ours(process: Pid) -> bool {
    let own = nix::unistd::getpid();
    std::iter::successors(Some(process), |process| parent(*process)).take(64).any(|process| process == own)
}

pub(super) fn parent(pid: Pid) -> Option<Pid> {
    let number = proc_file::stat(pid.as_raw())?.split_whitespace().nth(1)?.parse().ok()?;
    Some(Pid::from_raw(number))
}

/// Whether the agent may have the terminal in place of this job: nobody else of it reads there. With a pipe at either end
/// there are others; without a terminal there is nothing to take.
pub(super) fn may_have_the_terminal(is_headless: bool) -> bool {
    use std::io::IsTerminal;
    match std::fs::File::open("/dev/tty") {
        // Questions to the person are asked there: see `approvals::Terminal`.
        Ok(_) if is_headless => false,
        Ok(terminal) => {
            nix::unistd::tcgetpgrp(terminal) == Ok(nix::unistd::getpgrp())
                && std::io::stdin().is_terminal()
                && std::io::stdout().is_terminal()
        }
        Err(_) => true,
    }
}
