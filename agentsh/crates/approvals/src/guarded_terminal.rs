//! Restores the terminal's modes whenever a run ends, even if agentsh is killed.
//!
//! The agent has the terminal itself (decision 4), so agentsh does not see which modes it switches on. A separate process
//! remembers the modes and waits. It outlives agentsh by a moment, and has its own process group, so that signals that end
//! the job do not end it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentsh_base::paragraph;
use nix::sys::signal::SigSet;
use nix::sys::termios::{FlowArg, SetArg, Termios, tcflow, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, setpgid, tcgetpgrp};

/// The hidden verb of the process that waits.
pub const VERB: &str = "__terminal";

/// The session's last byte.
const KEEP_MODES: u8 = b'q';
const RESTORE: u8 = b'r';

/// Ends what a program may have begun, in an order in which nothing moves where nothing was begun: the language of a VT52; a
/// string that is still open; the other screen (entered first, which saves the cursor if this is the main screen: leaving it
/// restores one, in tmux that of any earlier program); margins at the sides and scrolling region, without which it does not
/// matter where the origin is; writing from right to left; colours, character set, insert mode, wrapping; cursor; mouse, focus,
/// paste, synchronised output; keys of the keypad; the keyboard protocols of kitty and xterm.
pub const RESET: &[u8] =
    b"\x1b<\x1b\\\x1b[?1049h\x1b[?1049l\x1b7\x1b[?69l\x1b[r\x1b8\x1b[8h\x1b[?2501l\x1b[0 k\x1b[0m\x1b(B\x0f\x1b[4l\x1b[?7h\x1b[?25h\x1b[0 q\
    \x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1004l\x1b[?2004l\x1b[?2026l\
    \x1b[?1l\x1b>\x1b[<9u\x1b[>4m";

/// The session's side. Dropped: the modes are compared, and restored where they changed.
pub struct GuardedTerminal {
    /// The modes before the program.
    pub modes: Termios,
    socket: UnixStream,
    process: Child,
    last_word: u8,
}

impl GuardedTerminal {
    /// None if no standard stream is a terminal. The modes are saved once [`Self::wait_until_modes_are_saved`] returns.
    pub fn begin() -> Option<Self> {
        let terminal = own_terminal()?;
        let modes = tcgetattr(&terminal).ok()?;
        let (socket, theirs) = UnixStream::pair().ok()?;
        #[expect(clippy::disallowed_methods, reason = "it waits beside agentsh, outside of every sandbox")]
        let mut command = Command::new("/proc/self/exe");
        command.arg0("agentsh").arg(VERB).env_clear();
        if let Some(kind) = std::env::var_os("TERM") {
            command.env("TERM", kind);
        }
        let theirs = Stdio::from(OwnedFd::from(theirs));
        let process = command.stdin(theirs).stdout(terminal).stderr(Stdio::null()).spawn().ok()?;
        Some(Self { modes, socket, process, last_word: KEEP_MODES })
    }

    /// Before anything may change the terminal.
    pub fn wait_until_modes_are_saved(&mut self) {
        // If the process is gone, no modes are saved, and the run continues without it.
        let _ = self.socket.read_exact(&mut [0]);
    }

    /// The program did not end by itself, or ended with an error: all modes that it switched on are switched off.
    pub fn restore(&mut self) {
        self.last_word = RESTORE;
    }
}

impl Drop for GuardedTerminal {
    fn drop(&mut self) {
        let _ = self.socket.write_all(&[self.last_word]);
        let _ = self.process.wait();
    }
}

/// A copy of the first standard stream that is a terminal.
fn own_terminal() -> Option<OwnedFd> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stdout.as_fd(), stderr.as_fd(), stdin.as_fd()];
    let found = streams.into_iter().find(paragraph::is_terminal)?;
    rustix::io::fcntl_dupfd_cloexec(found, 3).ok()
}

/// Whether the terminal is one that takes [`RESET`] as an order.
pub fn understands_reset() -> bool {
    std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

/// The process that waits: standard input is the session, standard output the terminal.
#[must_use]
pub fn main() -> u8 {
    match wait() {
        Ok(()) => 0,
        // There is no way left to report it.
        Err(_) => 1,
    }
}

/// Whether only the job has the terminal, or a process group of the agent that dies with agentsh.
fn is_left_behind(terminal: &io::Stdout, job: Pid) -> bool {
    const DEATH_TIMEOUT: Duration = Duration::from_secs(1);
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    let end = Instant::now() + DEATH_TIMEOUT;
    while let Ok(group) = tcgetpgrp(terminal) {
        if group == job || nix::sys::signal::killpg(group, None) == Err(nix::errno::Errno::ESRCH) {
            return true;
        }
        if Instant::now() > end {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    false
}

fn wait() -> io::Result<()> {
    let job = getpgrp();
    setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
    // Neither the terminal's signals nor the order of background writers concern it.
    SigSet::all().thread_block()?;
    nix::unistd::chdir("/")?;
    let session = io::stdin();
    let terminal = io::stdout();
    let before = tcgetattr(&terminal)?;
    // `O_NONBLOCK` and the like belong to the open file, which the shell shares.
    let flags = rustix::fs::fcntl_getfl(&terminal)?;
    rustix::io::write(&session, &[0])?;
    let mut word = [0];
    let heard = rustix::io::retry_on_intr(|| rustix::io::read(&session, &mut word))?;
    // After a program stopped its output, later programs could not write either.
    let _ = tcflow(&terminal, FlowArg::TCOON);
    // If this fails, the terminal stays as the program left it.
    let _ = rustix::fs::fcntl_setfl(&terminal, flags);
    let changed = tcgetattr(&terminal)? != before;
    match (heard, word[0]) {
        (1, KEEP_MODES) if !changed => return Ok(()),
        (1, _) => tcsetattr(&terminal, SetArg::TCSADRAIN, &before)?,
        // Killed. A shell with job control may have the terminal already, with its own modes.
        _ if is_left_behind(&terminal, job) => {
            tcsetattr(&terminal, SetArg::TCSADRAIN, &before)?;
            // The agent's own group had it.
            let _ = nix::unistd::tcsetpgrp(&terminal, job);
        }
        _ => {}
    }
    if understands_reset() {
        rustix::io::write(&terminal, RESET)?;
    }
    Ok(())
}
