//! From a plan to a running pid 1: `clone3` into the cgroup and all namespaces, then re-execution of agentsh
//! as [`super::init`].

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::caps;
use super::cgroup::Cgroup;
use super::control::{self, Answer};
use super::network::Sockets;
use super::plan::{Identity, Plan};
use super::report::Enforcement;
use super::stage::{At, StageError};

/// Descriptor numbers on the far side of the re-execution.
pub const CONTROL: RawFd = 3;
pub const PLAN: RawFd = 4;
pub const FIRST_PASSED: RawFd = 5;
/// Descriptors are first moved up here, so that placing one never overwrites another. In the child: growing the
/// descriptor table of a process with threads waits for an RCU grace period, 20 ms.
const PARKING: RawFd = 512;

/// Everything one sandbox needs beside its plan.
pub struct Launch<'a> {
    pub plan: &'a Plan,
    /// stdin, stdout, stderr of the program.
    pub stdio: [BorrowedFd<'a>; 3],
    /// In the order of the plan's descriptor indexes.
    pub passed: Vec<OwnedFd>,
    pub cgroup: Option<&'a Cgroup>,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot start the sandbox of {label}: {source}")]
    Kernel { label: String, source: StageError },
    #[error("cannot start {label}: {message}")]
    Init { label: String, message: String, missing: bool },
    #[error("the sandbox of {label} ended before its program started")]
    Vanished { label: String },
}

/// A sandbox whose program has been started. Dropping it kills everything inside.
#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    /// Taken by whoever serves them; unserved, every connection waits in vain.
    pub sockets: Option<Sockets>,
    pub enforcement: Vec<Enforcement>,
    label: String,
    pidfd: AsyncFd<OwnedFd>,
    control: AsyncFd<OwnedFd>,
    ended: Option<u8>,
}

/// Starts pid 1 and waits until everything is in place and the program is about to be executed.
///
/// # Errors
/// The step that failed, in words; nothing is left running.
pub async fn spawn(launch: Launch<'_>) -> Result<Child, SpawnError> {
    let label = launch.plan.label.clone();
    let kernel = |source| SpawnError::Kernel { label: label.clone(), source };
    let (ours, theirs) = control::pair().at("make the control socket").map_err(kernel)?;
    let born = clone_init(&launch, &theirs).map_err(kernel)?;
    drop(theirs);
    drop(launch.passed);
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
        .at("prepare the control socket")
        .map_err(kernel)?;
    let mut child = Child {
        pid: born.pid.unsigned_abs(),
        sockets: None,
        enforcement: Vec::new(),
        label: label.clone(),
        pidfd: watch(born.pidfd, Interest::READABLE).at("watch pid 1").map_err(kernel)?,
        control: watch(ours, Interest::READABLE).at("watch the control socket").map_err(kernel)?,
        ended: None,
    };
    write_id_maps(born.pid, launch.plan.identity).map_err(kernel)?;
    rustix::io::write(child.control.get_ref(), &[control::GO]).at("release pid 1").map_err(kernel)?;
    match child.answer().await.at("hear from pid 1").map_err(kernel)? {
        Some((Answer::Ready { enforcement }, sockets)) => {
            child.enforcement = enforcement;
            child.sockets = Sockets::from_descriptors(sockets);
            Ok(child)
        }
        Some((Answer::Failed { message, missing }, _)) => {
            child.exit().await;
            Err(SpawnError::Init { label, message, missing })
        }
        None => Err(SpawnError::Vanished { label }),
    }
}

impl Child {
    /// The program's exit status, 128+n for signal n. May be awaited again after it was cancelled.
    pub async fn exit(&mut self) -> u8 {
        if let Some(status) = self.ended {
            return status;
        }
        loop {
            let status = match self.pidfd.readable().await {
                Ok(mut guard) => {
                    let status = wait(self.pidfd.get_ref().as_fd());
                    if status.is_none() {
                        guard.clear_ready();
                    }
                    status
                }
                Err(_) => Some(u8::MAX),
            };
            if let Some(status) = status {
                self.ended = Some(status);
                return status;
            }
        }
    }

    /// After `exit`: why the program could not be executed, when that is the reason.
    #[must_use]
    pub fn execution_error(&self) -> Option<SpawnError> {
        match control::receive(self.control.get_ref().as_fd()) {
            Ok(Some((Answer::Failed { message, missing }, _))) => {
                Some(SpawnError::Init { label: self.label.clone(), message, missing })
            }
            _ => None,
        }
    }

    /// To pid 1, which passes it on to the program.
    pub fn signal(&self, signal: rustix::process::Signal) {
        signal_pidfd(self.pidfd.get_ref().as_fd(), signal);
    }

    /// Kills pid 1, and with it everything in its pid namespace.
    pub fn kill(&self) {
        signal_pidfd(self.pidfd.get_ref().as_fd(), rustix::process::Signal::KILL);
    }

    async fn answer(&self) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
        self.control.async_io(Interest::READABLE, |socket| control::receive(socket.as_fd())).await
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
            // SIGKILL cannot be refused: this returns as soon as the kernel has torn the namespace down.
            let _ = nix::sys::wait::waitid(
                nix::sys::wait::Id::PIDFd(self.pidfd.get_ref().as_fd()),
                nix::sys::wait::WaitPidFlag::WEXITED,
            );
        }
    }
}

struct Born {
    pid: i32,
    pidfd: OwnedFd,
}

/// What the child needs, all made before the clone: afterwards it may only make system calls.
struct Ready {
    executable: OwnedFd,
    placements: Vec<Placement>,
}

/// A descriptor and the number that it gets. The owners outlive the clone.
struct Placement {
    from: RawFd,
    to: RawFd,
}

fn clone_init(launch: &Launch<'_>, control: &OwnedFd) -> Result<Born, StageError> {
    let plan = plan_file(launch.plan).at("write the plan")?;
    let standard = launch.stdio.iter().enumerate().map(|(number, fd)| (fd.as_raw_fd(), number));
    let fixed = [(control.as_raw_fd(), CONTROL as usize), (plan.as_raw_fd(), PLAN as usize)];
    let passed =
        launch.passed.iter().enumerate().map(|(index, fd)| (fd.as_raw_fd(), FIRST_PASSED as usize + index));
    let placements = standard
        .chain(fixed)
        .chain(passed)
        .map(|(from, to)| Placement { from, to: RawFd::try_from(to).unwrap_or(RawFd::MAX) })
        .collect();
    let executable = rustix::fs::open(
        "/proc/self/exe",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .at("open agentsh's own executable")?;
    let mut ready = Ready { executable, placements };
    clone(&mut ready, launch.cgroup.and_then(Cgroup::unified))
        .at("clone3 (are user namespaces allowed here?)")
}

fn plan_file(plan: &Plan) -> io::Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(&serde_json::to_vec(plan)?)?;
    Ok(file.into())
}

/// The constant in `libc` overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

#[expect(
    unsafe_code,
    reason = "clone3 has no safe wrapper: the child returns into a copy of this address space"
)]
fn clone(ready: &mut Ready, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Born> {
    let mut pidfd: RawFd = -1;
    // SAFETY: `clone_args` is plain old data for which all zeroes is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(NAMESPACES.unsigned_abs()) | u64::from(libc::CLONE_PIDFD.unsigned_abs());
    arguments.pidfd = (&raw mut pidfd) as u64;
    arguments.exit_signal = libc::SIGCHLD.unsigned_abs().into();
    if let Some(directory) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = directory.as_raw_fd().unsigned_abs().into();
    }
    // SAFETY: without CLONE_VM the child has its own copy of this memory and of this thread's stack. The
    // arguments are initialised and outlive the call; `pidfd` is written in the parent only. Other threads do
    // not exist in the child, so it must not allocate or lock: `child` makes bare system calls and never returns.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    match pid {
        0 => child(ready),
        pid if pid > 0 => {
            // SAFETY: clone3 succeeded with CLONE_PIDFD, so this is a fresh descriptor that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Born { pid: i32::try_from(pid).unwrap_or(0), pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// In the child: place descriptors, keep capabilities over the execve, execute agentsh again.
#[expect(unsafe_code, reason = "between clone and execve only bare system calls are allowed")]
fn child(ready: &mut Ready) -> ! {
    const EMPTY: [*const libc::c_char; 1] = [std::ptr::null()];
    let name: &CStr = c"agentsh";
    let verb: &CStr = c"__init";
    let argv = [name.as_ptr(), verb.as_ptr(), std::ptr::null()];
    // SAFETY: every call takes plain numbers or pointers to memory that lives on this stack or in `ready`;
    // none allocates, and `_exit` runs no destructors of the copied address space.
    unsafe {
        for placement in &mut ready.placements {
            placement.from = libc::fcntl(placement.from, libc::F_DUPFD_CLOEXEC, PARKING);
        }
        for placement in &ready.placements {
            if libc::syscall(libc::SYS_dup3, placement.from, placement.to, 0) < 0 {
                libc::_exit(125);
            }
        }
        keep_capabilities();
        libc::syscall(
            libc::SYS_execveat,
            ready.executable.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            EMPTY.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        libc::_exit(125)
    }
}

/// The new user namespace gives every capability, but an execve under an unmapped id would lose them all;
/// ambient ones survive. Those that init builds with are enough; it drops them before it starts the program.
#[expect(unsafe_code, reason = "between clone and execve only bare system calls are allowed")]
unsafe fn keep_capabilities() {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let kept = caps::WHILE_BUILDING.bits();
    let header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: the structures have the layout of version 3 of capget and capset, and live on this stack.
    unsafe {
        libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr());
        for (half, shift) in data.iter_mut().zip([0, 32]) {
            half.inheritable = half.permitted & (kept >> shift) as u32;
        }
        libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr());
        for capability in 0..u64::BITS {
            if kept & (1 << capability) != 0 {
                libc::syscall(
                    libc::SYS_prctl,
                    libc::PR_CAP_AMBIENT,
                    libc::PR_CAP_AMBIENT_RAISE,
                    capability,
                    0,
                    0,
                );
            }
        }
    }
}

/// One id each, never host 0. An ordinary user may map only its own ids and must give up `setgroups` first.
fn write_id_maps(pid: i32, identity: Identity) -> Result<(), StageError> {
    let directory = Path::new("/proc").join(pid.to_string());
    let write = |name: &str, text: &str| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(directory.join(name))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .on("write", name)
    };
    if !identity.from_root {
        write("setgroups", "deny")?;
    }
    let Identity { host_uid, host_gid, .. } = identity;
    write("uid_map", &format!("{host_uid} {host_uid} 1"))?;
    write("gid_map", &format!("{host_gid} {host_gid} 1"))
}

#[expect(
    unsafe_code,
    reason = "tokio asks for the promise that the descriptor stays open while it is watched"
)]
pub(crate) fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `AsyncFd` owns the descriptor and hands out only shared references to it.
    unsafe { AsyncFd::register_with_interest(descriptor, interest) }.map_err(Into::into)
}

fn wait(pidfd: BorrowedFd<'_>) -> Option<u8> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    match waitid(Id::PIDFd(pidfd), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Exited(_, status)) => Some(u8::try_from(status & 0xFF).unwrap_or(u8::MAX)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(128 + u8::try_from(signal as i32).unwrap_or(0)),
        Ok(_) | Err(nix::errno::Errno::EINTR) => None,
        Err(_) => Some(u8::MAX),
    }
}

/// A process that has already ended is not an error.
fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: rustix::process::Signal) {
    let _ = rustix::process::pidfd_send_signal(pidfd, signal);
}
