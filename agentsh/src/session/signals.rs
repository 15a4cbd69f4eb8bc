//! Signals to agentsh, and the foreground of the terminal.

use std::time::Duration;

use agentsh_base::{paragraph, proc_file};
use agentsh_host::standard_error::print_message;
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals cannot be received, so requests to end would be missed.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for signals: {0}")]
pub struct SignalSetupError(#[from] std::io::Error);

/// The signals during a run.
pub(super) struct Signals {
    pub interrupt: Signal,
    pub quit: Signal,
    pub terminate: Signal,
    pub hang_up: Signal,
    /// The terminal's stop signals. Handled, so that they stop only the agent, which agentsh follows.
    pub stop: [Signal; 3],
    pub resumed: Signal,
    pub resized: Signal,
    /// Programs use them for anything (`dd`, Node's inspector).
    pub user: [Signal; 2],
}

fn listen(kind: SignalKind) -> Result<Signal, SignalSetupError> {
    Ok(signal(kind)?)
}

/// Waits for a signal to end; returns 128 and its number.
///
/// # Errors
/// When signals cannot be received.
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

/// For what still waits after the last request to end: an ordinary end is much shorter.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// From now on so many SIGTERM or SIGINT end this process, should its end hang. What is not compared then is left to the
/// next run, as after SIGKILL.
///
/// # Errors
/// When signals cannot be received.
pub(super) fn end_after(mut requests: u32) -> Result<(), SignalSetupError> {
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    agentsh_base::task::spawn_local(async move {
        loop {
            let status = tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            };
            requests = requests.saturating_sub(1);
            if requests == 0 {
                tokio::time::sleep(CLOSE_TIMEOUT).await;
                print_message(
                    "agentsh: ended by a second signal before its end was complete; the next run checks what is left",
                );
                std::process::exit(status);
            }
        }
    });
    Ok(())
}

/// Serves a client to its end and returns `serving`'s result, or a signal's exit status. On a signal `hang_up` ends
/// the client's input, and servers end as usual; a second signal ends the wait.
///
/// # Errors
/// When signals cannot be received.
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
    end_after(1)?;
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
        // With the agent in the foreground, our output comes from the background. With `stty tostop` a handled SIGTTOU
        // would repeat forever; if blocked, the kernel permits the output.
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
            resized: listen(SignalKind::window_change())?,
            user: [listen(SignalKind::user_defined1())?, listen(SignalKind::user_defined2())?],
        })
    }
}

/// Whether the terminal's keys signal this process group.
pub(super) fn has_terminal() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| nix::unistd::tcgetpgrp(terminal) == Ok(nix::unistd::getpgrp()))
}

/// A key that ended the agent was meant for the whole job, but reached only the agent's group. A script's shell ends
/// like the program it waits for. Returns how many signals this process gets.
pub(super) fn pass_on(status: u8) -> u32 {
    use nix::sys::signal::{Signal as NixSignal, kill};
    let signal = [NixSignal::SIGINT, NixSignal::SIGQUIT];
    let signal = signal.into_iter().find(|signal| i32::from(status) == 128 + *signal as i32);
    // This process handles both.
    let passed = signal.map(|signal| kill(nix::unistd::Pid::from_raw(0), signal));
    u32::from(passed.is_some() && status == 130)
}

/// Takes the terminal back from the agent's process group. Returns whether it did. A background job leaves the
/// terminal alone.
pub(super) fn reclaim_terminal() -> bool {
    use nix::sys::signal::{SigSet, Signal as NixSignal, kill};
    let (terminal, own) = (std::io::stdin(), nix::unistd::getpgrp());
    let Ok(group) = nix::unistd::tcgetpgrp(&terminal) else { return false };
    let is_gone = || kill(nix::unistd::Pid::from_raw(-group.as_raw()), None) == Err(nix::errno::Errno::ESRCH);
    if group == own || !(is_gone() || is_ours(group)) {
        return false;
    }
    let mut stop = SigSet::empty();
    stop.add(NixSignal::SIGTTOU);
    // Otherwise the kernel would stop us for using a terminal in the background.
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

/// Whether the agent may have the terminal alone: not in a pipeline, and not without a terminal.
pub(super) fn may_have_the_terminal(is_headless: bool) -> bool {
    match std::fs::File::open("/dev/tty") {
        // Questions are asked there: see `approvals::Terminal`.
        Ok(_) if is_headless => false,
        Ok(terminal) => {
            nix::unistd::tcgetpgrp(terminal) == Ok(nix::unistd::getpgrp())
                && paragraph::is_terminal(&std::io::stdin())
                && paragraph::is_terminal(&std::io::stdout())
        }
        Err(_) => true,
    }
}
