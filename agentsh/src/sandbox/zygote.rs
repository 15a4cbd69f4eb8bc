//! The process that every pid 1 is born from: agentsh, executed once more when a session opens, with an
//! empty environment and one thread.
//!
//! Nothing of the session is in its memory, so nothing of it can be in a sandbox; and what a program does when it
//! starts (half a millisecond where the processor's description is asked of a hypervisor) is done once, not for every
//! sandbox. A child of it is the session's own child (`CLONE_PARENT`): the session waits for it, and dies with it.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};

use super::control::{self, Answer, Order};
use super::{init, reaper, seccomp};

/// The hidden verb by which agentsh executes itself for this.
pub const VERB: &str = "__init";

/// The session's end. The process ends when it is dropped.
#[derive(Debug, Default)]
pub struct Zygote {
    /// None before the first order, and after the process has died of something else.
    socket: RefCell<Option<OwnedFd>>,
}

impl Zygote {
    /// Starts the process, so that a later order finds it ready.
    ///
    /// # Errors
    /// When agentsh cannot be executed.
    pub fn warm_up(&self) -> io::Result<()> {
        let mut socket = self.socket.borrow_mut();
        if socket.is_none() {
            *socket = Some(execute()?);
        }
        Ok(())
    }

    /// Orders a pid 1 in namespaces of its own, and in this cgroup. Gives the session's end of its control socket,
    /// on which [`Answer::Born`] arrives first; closed without it when the process died meanwhile.
    ///
    /// # Errors
    /// When the process cannot be had.
    pub fn order(&self, cgroup: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
        let (ours, theirs) = control::pair()?;
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(theirs.as_fd()).chain(cgroup).collect();
        let order = Order { in_cgroup: cgroup.is_some() };
        let send = || {
            let socket = self.socket.borrow();
            let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            control::send(socket.as_fd(), &order, &descriptors)
        };
        self.warm_up()?;
        if send().is_err() {
            // Somebody killed it. What it bore lives on; the next ones need another.
            *self.socket.borrow_mut() = None;
            self.warm_up()?;
            send()?;
        }
        Ok(ours)
    }
}

fn execute() -> io::Result<OwnedFd> {
    let (ours, theirs) = control::pair()?;
    #[expect(clippy::disallowed_methods, reason = "sandboxes are made from it")]
    let mut command = Command::new("/proc/self/exe");
    command.arg0("agentsh").arg(VERB).env_clear();
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(ours)
}

/// Bears a pid 1 for every order on standard input, until the session is gone. In a child: pid 1 itself.
#[must_use]
pub fn main() -> u8 {
    // A broken order has no sender that could be told: the session sees its sockets close.
    serve().unwrap_or(init::FAILED)
}

fn serve() -> io::Result<u8> {
    let socket = take_standard_input()?;
    let signals_before = prepare()?;
    let filter = seccomp::compile();
    know_the_processor();
    while let Some((Order { in_cgroup }, descriptors)) = next_order(&socket)? {
        let mut descriptors = descriptors.into_iter();
        let control = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
        let cgroup = descriptors.next();
        if in_cgroup != cgroup.is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let told = match clone(cgroup.as_ref().map(AsFd::as_fd)) {
            Ok(Some(Born { pid, pidfd })) => {
                control::send(control.as_fd(), &Answer::Born { pid }, &[pidfd.as_fd()])
            }
            Ok(None) => {
                drop((socket, cgroup));
                signals_before.thread_set_mask()?;
                return Ok(init::main(&control, &filter));
            }
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EIO);
                control::send(control.as_fd(), &Answer::NotBorn { error }, &[])
            }
        };
        // A session that gave this one up may still order others.
        drop(told);
    }
    Ok(0)
}

/// Libraries that have a faster way on some processors ask the processor when they are first used, and on a virtual
/// machine each question costs some 20 us. Every child has the answers of its parent.
fn know_the_processor() {
    let _ = memchr::memchr(b'a', b"b");
    #[cfg(target_arch = "x86_64")]
    let _ = std::arch::is_x86_feature_detected!("avx2");
}

/// Waits small: what is not needed for a while leaves memory.
fn next_order(socket: &OwnedFd) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    const A_WHILE_MS: u16 = 1000;
    if poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::from(A_WHILE_MS)) == Ok(0) {
        crate::memory::forget_code();
        crate::memory::trim_heap();
    }
    control::receive(socket.as_fd())
}

/// Dies with the session; is none of the terminal's business. Gives the signal mask of before.
fn prepare() -> nix::Result<SigSet> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    nix::sys::prctl::set_name(c"agentsh")?;
    nix::unistd::chdir("/")?;
    reaper::awaited().thread_swap_mask(SigmaskHow::SIG_BLOCK)
}

/// Moved away, so that no other descriptor gets a standard number. What the caller of agentsh left open is closed.
#[expect(unsafe_code, reason = "close_range has no safe wrapper: it may close descriptors that others own")]
fn take_standard_input() -> io::Result<OwnedFd> {
    const FIRST: libc::c_int = libc::STDERR_FILENO + 1;
    // SAFETY: nothing was opened by this process yet, so no owner's descriptor vanishes under it.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0) };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    Ok(socket)
}

struct Born {
    pid: u32,
    pidfd: OwnedFd,
}

/// The constant in `libc` overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

const FLAGS: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_PARENT
    | libc::CLONE_PIDFD;

/// None in the child.
#[expect(
    unsafe_code,
    reason = "clone3 has no safe wrapper: the child returns into a copy of this address space"
)]
fn clone(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Option<Born>> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain old data for which all zeroes is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(FLAGS.unsigned_abs());
    arguments.pidfd = (&raw mut pidfd) as u64;
    if let Some(directory) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = directory.as_raw_fd().unsigned_abs().into();
    }
    // SAFETY: without CLONE_VM the child has its own copy of this memory and of this thread's stack, and this process
    // has one thread, so the child may use everything that it finds. The arguments are initialised and outlive the
    // call; `pidfd` is written in the parent only.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match u32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => {
            // SAFETY: clone3 succeeded with CLONE_PIDFD, so this is a fresh descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Some(Born { pid, pidfd }))
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}
