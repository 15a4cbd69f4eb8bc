//! The process from which every pid 1 is cloned. It has one thread, no environment and no arguments. For a verb that runs something,
//! agentsh forks it before it reads anything; otherwise, or if that process died, agentsh executes itself once more.
//!
//! No memory of the session can leak into a sandbox, and start-up work happens once. `CLONE_PARENT` makes the clones
//! children of the session, which waits for them and with which they die.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::control::{self, Answer, ZygoteRequest};
use super::plan::Tier;
use super::{init, open_inside, reaper, remount_guards, seccomp, share_mounts, stubs};

/// The hidden verb with which agentsh re-executes itself.
pub const VERB: &str = "__init";

/// The session's handle. Dropping it ends the process.
#[derive(Debug, Default)]
pub struct Zygote {
    /// None before the first order, and after the process has died.
    socket: RefCell<Option<OwnedFd>>,
}

impl Zygote {
    /// Starts the process in advance.
    ///
    /// # Errors
    /// When agentsh cannot be executed.
    pub fn warm_up(&self) -> io::Result<()> {
        let mut socket = self.socket.borrow_mut();
        if socket.is_none() {
            let ahead = FORKED_AHEAD
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_mut()
                .and_then(|one| one.1.take());
            *socket = Some(ahead.map_or_else(execute, Ok)?);
        }
        Ok(())
    }

    /// Orders a pid 1 in new namespaces, if the tier has them, and in this cgroup. Returns the session's end of its
    /// control socket, on which [`Answer::ClonedInit`] arrives first, or which is closed if the process died.
    ///
    /// # Errors
    /// When there is no process.
    pub fn order(&self, cgroup: Option<BorrowedFd<'_>>, tier: Tier) -> io::Result<OwnedFd> {
        let with: Vec<BorrowedFd<'_>> = cgroup.into_iter().collect();
        self.ask(&ZygoteRequest::Birth { in_cgroup: cgroup.is_some(), tier }, &with)
    }

    /// Makes another process remove the stubs when this one has ended, for whatever reason.
    ///
    /// # Errors
    /// When there is no process.
    pub fn let_others_clean_up(&self, records: &std::path::Path) -> io::Result<()> {
        let records = records.as_os_str().as_encoded_bytes().to_vec();
        self.ask(&ZygoteRequest::CleanUp { records, pid: std::process::id() }, &[]).map(drop)
    }

    /// Closes descriptors without waiting for their last `close`, as [`Closer`] does.
    pub fn close(&self, descriptors: Vec<OwnedFd>) {
        close_through(self.socket.borrow().as_ref(), descriptors);
    }

    /// A handle for another thread.
    #[must_use]
    pub fn closing_handle(&self) -> Closer {
        Closer(self.socket.borrow().as_ref().and_then(|socket| socket.try_clone().ok()))
    }

    /// Sends an order. Returns the socket for the answer.
    ///
    /// # Errors
    /// When there is no process.
    pub fn ask(&self, order: &ZygoteRequest, with: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
        let (of_this_process, theirs) = control::pair()?;
        let descriptors: Vec<BorrowedFd<'_>> =
            std::iter::once(theirs.as_fd()).chain(with.iter().copied()).collect();
        let send = || {
            let socket = self.socket.borrow();
            let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            control::send(socket.as_fd(), order, &descriptors)
        };
        self.warm_up()?;
        if send().is_err() {
            // The zygote was killed. Existing sandboxes continue; new ones need a new process.
            *self.socket.borrow_mut() = None;
            self.warm_up()?;
            send()?;
        }
        Ok(of_this_process)
    }
}

/// Passes descriptors to the [`Zygote`], which closes them when it is idle, at the latest at its end. Usable from any
/// thread.
///
/// The last `close` of an inotify instance or packet socket waits for an RCU grace period of 8 to 20 ms, which would
/// delay the session's end.
#[derive(Debug)]
pub struct Closer(Option<OwnedFd>);

impl Closer {
    /// Closes descriptors whose last `close` blocks. Without a zygote, a thread does it.
    pub fn close(&self, descriptors: Vec<OwnedFd>) {
        close_through(self.0.as_ref(), descriptors);
    }
}

fn close_through(socket: Option<&OwnedFd>, descriptors: Vec<OwnedFd>) {
    if descriptors.is_empty() {
        return;
    }
    let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    match socket {
        Some(socket) if control::send(socket.as_fd(), &ZygoteRequest::Close, &borrowed).is_ok() => {}
        _ => {
            drop(borrowed);
            // Without a thread they are closed here.
            let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(descriptors));
        }
    }
}

/// agentsh's initial soft limits on open files and file size.
static USUAL_LIMITS: OnceLock<[Rlimit; 2]> = OnceLock::new();
const RAISED_LIMITS: [Resource; 2] = [Resource::Nofile, Resource::Fsize];

#[must_use]
pub fn usual_limits() -> (u64, Option<u64>) {
    let [open_files, size] = USUAL_LIMITS.get_or_init(|| RAISED_LIMITS.map(getrlimit));
    (open_files.current.unwrap_or(u64::MAX), size.current)
}

/// Each mount of a sandbox needs a descriptor for a moment. Raised to the hard limit.
fn raise_limits() {
    let usual = USUAL_LIMITS.get_or_init(|| RAISED_LIMITS.map(getrlimit));
    for (resource, Rlimit { current, maximum }) in RAISED_LIMITS.into_iter().zip(*usual) {
        if current != maximum {
            // Without it a sandbox with many mounts is refused, in words.
            let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
        }
    }
}

/// The process that [`fork_ahead`] made: its number, and the session's end until the first session takes it.
static FORKED_AHEAD: Mutex<Option<(u32, Option<OwnedFd>)>> = Mutex::new(None);

/// Its number.
#[must_use]
pub fn forked_ahead_pid() -> Option<u32> {
    FORKED_AHEAD.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|one| one.0)
}

/// Makes the process by a fork, which costs half a thousand page faults less than to execute it. To be called before anything was
/// read of arguments and environment, and before there is a thread. Some, in the process itself: its status.
#[must_use]
#[expect(
    unsafe_code,
    reason = "fork: this process has one thread and the child does what it would do after execve"
)]
pub fn fork_ahead() -> Option<u8> {
    raise_limits();
    // If it fails, the process is executed when it is needed.
    let (of_this_process, theirs) = control::pair().ok()?;
    // SAFETY: this process is single-threaded, so the child may use everything that the parent may.
    if let nix::unistd::ForkResult::Parent { child } = unsafe { nix::unistd::fork() }.ok()? {
        let ahead = (child.as_raw().unsigned_abs(), Some(of_this_process));
        *FORKED_AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
        return None;
    }
    init::forget_what_was_given();
    let begun = || -> io::Result<u8> {
        let nothing = std::fs::File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&theirs)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        rustix::stdio::dup2_stderr(&nothing)?;
        rustix::process::chdir("/")?;
        drop((nothing, of_this_process, theirs));
        serve()
    };
    Some(begun().unwrap_or(init::INIT_FAILED_STATUS))
}

fn execute() -> io::Result<OwnedFd> {
    raise_limits();
    let (of_this_process, theirs) = control::pair()?;
    #[expect(clippy::disallowed_methods, reason = "sandboxes are made from it")]
    let mut command = Command::new("/proc/self/exe");
    // With `current_dir` the standard library forks; `posix_spawn` would reset every signal, in 126 system calls.
    command.arg0("agentsh").arg(VERB).env_clear().current_dir("/");
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(of_this_process)
}

/// Creates a pid 1 for every order on standard input until the session is gone. In a child: pid 1 itself.
#[must_use]
pub fn main() -> u8 {
    // A broken order has no sender to answer: the session sees closed sockets.
    serve().unwrap_or(init::INIT_FAILED_STATUS)
}

fn serve() -> io::Result<u8> {
    let socket = take_standard_input()?;
    let signals_before = prepare()?;
    let filters = seccomp::Filters::compile();
    know_the_processor();
    let mut left_behind = None;
    let mut given_up = Vec::new();
    // A socket error also means the end of the session.
    while let Ok(Some((order, descriptors))) = next_order(&socket, &mut given_up) {
        let mut descriptors = descriptors.into_iter();
        let control = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
        let (in_cgroup, tier) = match order {
            ZygoteRequest::Birth { in_cgroup, tier } => (in_cgroup, tier),
            ZygoteRequest::Mend => {
                in_a_child(|| {
                    remount_guards::send_result(control.as_fd(), remount_guards::work(descriptors.collect()))
                })?;
                continue;
            }
            ZygoteRequest::Visit { path } => {
                in_a_child(|| open_inside::child(control.as_fd(), path, descriptors.collect()))?;
                continue;
            }
            ZygoteRequest::Lend => {
                in_a_child(|| {
                    remount_guards::send_result(control.as_fd(), share_mounts::work(descriptors.collect()))
                })?;
                continue;
            }
            ZygoteRequest::Close => {
                given_up.push(control);
                given_up.extend(descriptors);
                continue;
            }
            ZygoteRequest::CleanUp { records, pid } => {
                left_behind = Some((PathBuf::from(OsString::from_vec(records)), pid));
                continue;
            }
        };
        let cgroup = descriptors.next();
        if in_cgroup != cgroup.is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let told = match clone(cgroup.as_ref().map(AsFd::as_fd), tier) {
            Ok(Some(ClonedInit { pid, pidfd })) => {
                control::send(control.as_fd(), &Answer::ClonedInit { pid }, &[pidfd.as_fd()])
            }
            Ok(None) => {
                drop((socket, cgroup, given_up));
                signals_before.thread_set_mask()?;
                return Ok(init::main(&control, &filters));
            }
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EIO);
                control::send(control.as_fd(), &Answer::NotBorn { error }, &[])
            }
        };
        // A session that gave this one up may still order others.
        drop(told);
    }
    if let Some((records, pid)) = left_behind {
        // However the session ended, its stubs are removed.
        stubs::clean_up_after(&records, pid);
    }
    // Which closes the deferred descriptors.
    std::process::exit(0)
}

/// Runs something that changes its process in a child, and waits.
#[expect(unsafe_code, reason = "fork: this process has one thread and the child leaves without returning")]
fn in_a_child(work: impl FnOnce()) -> io::Result<()> {
    // SAFETY: this process is single-threaded, so the child may use everything that the parent may.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => {
            work();
            std::process::exit(0)
        }
        nix::unistd::ForkResult::Parent { child } => {
            rustix::io::retry_on_intr(|| {
                nix::sys::wait::waitpid(child, None)
                    .map_err(|error| rustix::io::Errno::from_raw_os_error(error as i32))
            })?;
            Ok(())
        }
    }
}

/// Warms up libraries that query the processor on first use: on a virtual machine each CPUID costs about 20 us, and
/// children inherit the answers.
fn know_the_processor() {
    let _ = memchr::memchr(b'a', b"b");
    #[cfg(target_arch = "x86_64")]
    let _ = std::arch::is_x86_feature_detected!("avx2");
}

/// Waits for an order. Meanwhile it frees memory and closes released descriptors.
fn next_order(
    socket: &OwnedFd,
    given_up: &mut Vec<OwnedFd>,
) -> io::Result<Option<(ZygoteRequest, Vec<OwnedFd>)>> {
    const POLL_TIMEOUT_MS: u16 = 1000;
    /// Limit of released descriptors that stay open.
    const MAX_GIVEN_UP: usize = 64;
    if given_up.len() > MAX_GIVEN_UP {
        given_up.clear();
    }
    if poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::from(POLL_TIMEOUT_MS))
        == Ok(0)
    {
        given_up.clear();
        crate::memory::trim_heap();
    }
    control::receive(socket.as_fd())
}

/// Ends with the session, and ignores the terminal. Returns the previous signal mask.
fn prepare() -> nix::Result<SigSet> {
    nix::sys::prctl::set_name(c"agentsh")?;
    // A stopped or background job may still order.
    let mut blocked = reaper::awaited_signals();
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
        blocked.add(signal);
    }
    blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)
}

/// Moves standard input away, so that no other descriptor gets a standard number, and closes what the caller left
/// open.
#[expect(unsafe_code, reason = "close_range has no safe wrapper: it may close descriptors that others own")]
fn take_standard_input() -> io::Result<OwnedFd> {
    const FIRST_FREE_DESCRIPTOR: libc::c_int = libc::STDERR_FILENO + 1;
    // SAFETY: nothing was opened by this process yet, so no owner's descriptor vanishes under it.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST_FREE_DESCRIPTOR, u32::MAX, 0) };
    if closed != 0 {
        return Err(io::Error::last_os_error());
    }
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_FREE_DESCRIPTOR)?;
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    Ok(socket)
}

struct ClonedInit {
    pid: u32,
    pidfd: OwnedFd,
}

/// The constant in `libc` overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

fn flags(tier: Tier) -> i32 {
    let own = libc::CLONE_PARENT | libc::CLONE_PIDFD;
    match tier {
        Tier::Namespaces => NAMESPACES | own,
        Tier::Container => own,
    }
}

/// None in the child.
#[expect(
    unsafe_code,
    reason = "clone3 has no safe wrapper: the child returns into a copy of this address space"
)]
fn clone(cgroup: Option<BorrowedFd<'_>>, tier: Tier) -> io::Result<Option<ClonedInit>> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain old data for which all zeroes is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(flags(tier).unsigned_abs());
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
            Ok(Some(ClonedInit { pid, pidfd }))
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}
