//! The process that every pid 1 is born from: agentsh, executed once more when a session opens, with an
//! empty environment and one thread.
//!
//! Nothing of the session is in its memory, so nothing of it can be in a sandbox; and what a program does when it
//! starts (half a millisecond where the processor's description is asked of a hypervisor) is done once, not for every
//! sandbox. A child of it is the session's own child (`CLONE_PARENT`): the session waits for it, and dies with it.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use super::control::{self, Answer, ZygoteRequest};
use super::plan::Tier;
use super::{init, lend, mend, placeholders, reaper, seccomp, visit};

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
            raise_limits();
            *socket = Some(execute()?);
        }
        Ok(())
    }

    /// Orders a pid 1 in namespaces of its own where the tier has them, and in this cgroup. Gives the session's end of its control socket,
    /// on which [`Answer::Born`] arrives first; closed without it when the process died meanwhile.
    ///
    /// # Errors
    /// When the process cannot be had.
    pub fn order(&self, cgroup: Option<BorrowedFd<'_>>, tier: Tier) -> io::Result<OwnedFd> {
        let with: Vec<BorrowedFd<'_>> = cgroup.into_iter().collect();
        self.ask(&ZygoteRequest::Birth { in_cgroup: cgroup.is_some(), tier }, &with)
    }

    /// Has stand-ins removed when this process is gone, however it ends.
    ///
    /// # Errors
    /// When the process cannot be had.
    pub fn clean_up_after_me(&self, records: &std::path::Path) -> io::Result<()> {
        let records = records.as_os_str().as_encoded_bytes().to_vec();
        self.ask(&ZygoteRequest::CleanUp { records, pid: std::process::id() }, &[]).map(drop)
    }

    /// Gives up descriptors without a wait for their last `close`.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer(self.socket.borrow().as_ref().and_then(|socket| socket.try_clone().ok()))
    }

    /// Sends an order. Gives the end of the socket on which it is answered.
    ///
    /// # Errors
    /// When the process cannot be had.
    pub fn ask(&self, order: &ZygoteRequest, with: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
        let (ours, theirs) = control::pair()?;
        let descriptors: Vec<BorrowedFd<'_>> =
            std::iter::once(theirs.as_fd()).chain(with.iter().copied()).collect();
        let send = || {
            let socket = self.socket.borrow();
            let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            control::send(socket.as_fd(), order, &descriptors)
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

/// Hands descriptors to the [`Zygote`], which closes them when nothing else is to be done, at the latest when it ends. For any
/// thread.
///
/// The last `close` of an inotify instance or a packet socket waits for a grace period of RCU, 8 to 20 ms. On a thread of
/// the session it would delay the end of the process, which has ended when its last thread has.
#[derive(Debug)]
pub struct Closer(Option<OwnedFd>);

impl Closer {
    /// Has descriptors closed whose last `close` waits in the kernel. Where the process is gone, a thread of their own does it.
    pub fn close(&self, descriptors: Vec<OwnedFd>) {
        if descriptors.is_empty() {
            return;
        }
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        match &self.0 {
            Some(socket) if control::send(socket.as_fd(), &ZygoteRequest::Close, &borrowed).is_ok() => {}
            _ => {
                drop(borrowed);
                // Where there is no thread for it, they are closed here.
                let _ = std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(descriptors));
            }
        }
    }
}

/// The soft limits on open files and on the size of a file that agentsh was started with.
static USUAL_LIMITS: OnceLock<(u64, Option<u64>)> = OnceLock::new();

#[must_use]
pub fn usual_limits() -> (u64, Option<u64>) {
    *USUAL_LIMITS.get_or_init(|| {
        use rustix::process::{Resource, getrlimit};
        let open_files = getrlimit(Resource::Nofile).current;
        (open_files.unwrap_or(u64::MAX), getrlimit(Resource::Fsize).current)
    })
}

/// Each mount of a sandbox is open for a moment, and the record grows. What the user may have at most is enough for what is asked.
fn raise_limits() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let _ = usual_limits();
    for resource in [Resource::Nofile, Resource::Fsize] {
        let maximum = getrlimit(resource).maximum;
        // Without it a sandbox with many mounts is refused, in words.
        let _ = setrlimit(resource, Rlimit { current: maximum, maximum });
    }
}

fn execute() -> io::Result<OwnedFd> {
    let (ours, theirs) = control::pair()?;
    #[expect(clippy::disallowed_methods, reason = "sandboxes are made from it")]
    let mut command = Command::new("/proc/self/exe");
    // A change of directory makes the standard library fork: `posix_spawn` of the C library asks after every signal, in 126
    // system calls.
    command.arg0("agentsh").arg(VERB).env_clear().current_dir("/");
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(ours)
}

/// Bears a pid 1 for every order on standard input, until the session is gone. In a child: pid 1 itself.
#[must_use]
pub fn main() -> u8 {
    // A broken order has no sender that could be told: the session sees its sockets close.
    serve().unwrap_or(init::INIT_FAILED_STATUS)
}

fn serve() -> io::Result<u8> {
    let socket = take_standard_input()?;
    let signals_before = prepare()?;
    let filters = seccomp::Filters::compile();
    know_the_processor();
    let mut left_behind = None;
    let mut given_up = Vec::new();
    // An error of the socket is the session's end too.
    while let Ok(Some((order, descriptors))) = next_order(&socket, &mut given_up) {
        let mut descriptors = descriptors.into_iter();
        let control = descriptors.next().ok_or(io::ErrorKind::InvalidData)?;
        let (in_cgroup, tier) = match order {
            ZygoteRequest::Birth { in_cgroup, tier } => (in_cgroup, tier),
            ZygoteRequest::Mend => {
                in_a_child(|| mend::child(control.as_fd(), descriptors.collect()))?;
                continue;
            }
            ZygoteRequest::Visit { path } => {
                in_a_child(|| visit::child(control.as_fd(), path, descriptors.collect()))?;
                continue;
            }
            ZygoteRequest::Lend => {
                in_a_child(|| lend::child(control.as_fd(), descriptors.collect()))?;
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
            Ok(Some(Born { pid, pidfd })) => {
                control::send(control.as_fd(), &Answer::Born { pid }, &[pidfd.as_fd()])
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
        // However the session ended: what it made in somebody's project is removed.
        placeholders::clean_up_after(&records, pid);
    }
    // Which closes what was given up.
    std::process::exit(0)
}

/// Runs something that changes the process which does it, and waits for its end.
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

/// Libraries that have a faster way on some processors ask the processor when they are first used, and on a virtual
/// machine each question costs some 20 us. Every child has the answers of its parent.
fn know_the_processor() {
    let _ = memchr::memchr(b'a', b"b");
    #[cfg(target_arch = "x86_64")]
    let _ = std::arch::is_x86_feature_detected!("avx2");
}

/// Waits small: what is not needed for a while leaves memory, and what was given up is closed.
fn next_order(
    socket: &OwnedFd,
    given_up: &mut Vec<OwnedFd>,
) -> io::Result<Option<(ZygoteRequest, Vec<OwnedFd>)>> {
    const A_WHILE_MS: u16 = 1000;
    /// More than a session with many short-lived sandboxes may leave open.
    const MAX_GIVEN_UP: usize = 64;
    if given_up.len() > MAX_GIVEN_UP {
        given_up.clear();
    }
    if poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::from(A_WHILE_MS)) == Ok(0) {
        given_up.clear();
        crate::memory::trim_heap();
    }
    control::receive(socket.as_fd())
}

/// Ends with the session, whose end it sees on the socket; is none of the terminal's business. Gives the signal mask of before.
fn prepare() -> nix::Result<SigSet> {
    nix::sys::prctl::set_name(c"agentsh")?;
    // A job that is stopped, or in the background, may still order.
    let mut blocked = reaper::awaited();
    for signal in [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU] {
        blocked.add(signal);
    }
    blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)
}

/// Moved away, so that no other descriptor gets a standard number. What the caller of agentsh left open is closed.
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

struct Born {
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
fn clone(cgroup: Option<BorrowedFd<'_>>, tier: Tier) -> io::Result<Option<Born>> {
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
            Ok(Some(Born { pid, pidfd }))
        }
        Err(_) => Err(io::Error::last_os_error()),
    }
}
