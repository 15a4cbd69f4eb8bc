//! Starts a program from a plan. Pid 1 is created while the plan is made.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::control::{self, Answer, Cause, Handover};
use super::mount_list::MountList;
use super::network::{self, Sockets};
use super::plan::{Identity, Plan, Tier};
use super::remount_guards::Namespaces;
use super::report::Enforcement;
use super::seccomp::listener::Listener;
use super::stage::{StageContext, StageError};
use super::zygote::Zygote;

/// The inputs of a launch besides its plan.
pub struct Launch<'a> {
    pub plan: &'a Plan,
    /// stdin, stdout, stderr of the program.
    pub stdio: [BorrowedFd<'a>; 3],
    /// In the order of the plan's indexes.
    pub passed: Vec<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot start the sandbox of {label}: {source}")]
    Kernel { label: String, source: StageError },
    #[error("cannot start {label}: {message}")]
    Init { label: String, message: String, cause: Cause },
    #[error("the sandbox of {label} ended before its program started")]
    Vanished { label: String },
}

/// A sandbox with a started program. Dropping it kills everything inside.
#[derive(Debug)]
pub struct Child {
    pub pid: u32,
    /// Taken by the service; until then connections wait.
    pub sockets: Option<Sockets>,
    /// Taken by the responder of refused calls and, without namespaces, connections. Without it such calls fail.
    pub listener: Option<Listener>,
    pub enforcement: Vec<Enforcement>,
    /// Taken by the thread that restores guards.
    pub namespaces: Option<Namespaces>,
    /// None when it could not be opened.
    pub mounted: Option<MountList>,
    label: String,
    tier: Tier,
    pidfd: AsyncFd<OwnedFd>,
    control: AsyncFd<OwnedFd>,
    ended: Cell<Option<u8>>,
    /// The program was stopped, which was not reported yet.
    stopped: Cell<bool>,
    /// SIGINT ended the program.
    interrupted: Cell<bool>,
    /// An error that arrived while something else was awaited.
    failed: RefCell<Option<(String, Cause)>>,
}

/// A pid 1 that waits for its plan. Dropping it ends it.
#[derive(Debug)]
pub struct WaitingInit {
    label: String,
    /// None after the start.
    control: Option<OwnedFd>,
}

/// Orders a pid 1 in new namespaces. Attach programs to its cgroup before.
///
/// # Errors
/// When there is no zygote.
pub fn order(zygote: &Zygote, label: &str, cgroup: &Cgroup, tier: Tier) -> Result<WaitingInit, SpawnError> {
    let control = zygote.order(cgroup.unified(), tier).at("execute agentsh for the sandbox");
    let control = control.map_err(|source| SpawnError::Kernel { label: label.to_owned(), source })?;
    Ok(WaitingInit { label: label.to_owned(), control: Some(control) })
}

impl WaitingInit {
    /// Sends the plan and waits until the program is about to be executed.
    ///
    /// # Errors
    /// The failed step, in words; nothing keeps running.
    pub async fn start(mut self, launch: Launch<'_>) -> Result<Child, SpawnError> {
        let label = std::mem::take(&mut self.label);
        let kernel = |source| SpawnError::Kernel { label: label.clone(), source };
        let vanished = || SpawnError::Vanished { label: label.clone() };
        let control = self.control.take().ok_or_else(vanished)?;
        nix::fcntl::fcntl(&control, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
            .at("prepare the control socket")
            .map_err(kernel)?;
        let control = watch(control, Interest::READABLE).at("watch the control socket").map_err(kernel)?;
        let (pid, pidfd) = match answer(&control).await.at("wait for pid 1").map_err(kernel)? {
            Some((Answer::ClonedInit { pid }, mut descriptors)) => {
                (pid, descriptors.pop().ok_or_else(vanished)?)
            }
            Some((Answer::NotBorn { error }, _)) => {
                let error: Result<Child, _> = Err(io::Error::from_raw_os_error(error));
                return error.at("clone3 (are user namespaces allowed here?)").map_err(kernel);
            }
            _ => return Err(vanished()),
        };
        let mut child = Child {
            pid,
            sockets: None,
            listener: None,
            tier: launch.plan.tier,
            enforcement: Vec::new(),
            mounted: None,
            // Now, because once it is not dumpable its files in /proc are closed to its own user.
            namespaces: match launch.plan.tier {
                Tier::Namespaces => {
                    Some(Namespaces::of(pid).at("open the namespaces of pid 1").map_err(kernel)?)
                }
                Tier::Container => None,
            },
            label: label.clone(),
            pidfd: watch(pidfd, Interest::READABLE).at("watch pid 1").map_err(kernel)?,
            control,
            ended: Cell::new(None),
            stopped: Cell::new(false),
            interrupted: Cell::new(false),
            failed: RefCell::default(),
        };
        if child.tier == Tier::Namespaces {
            write_id_maps(pid, launch.plan.identity).map_err(kernel)?;
        }
        hand_over(child.control.get_ref().as_fd(), &launch).map_err(kernel)?;
        drop(launch);
        match answer(&child.control).await.at("wait for pid 1").map_err(kernel)? {
            Some((Answer::Ready { enforcement }, mut sockets)) if child.tier == Tier::Container => {
                child.enforcement = enforcement;
                child.listener = sockets.pop().map(Listener::from);
                Ok(child)
            }
            Some((Answer::Ready { enforcement }, mut sockets)) => {
                let mut mounted = MountList::from_descriptor(&mut sockets);
                child.listener = sockets.pop_if(|last| !network::is_socket(last)).map(Listener::from);
                mounted = mounted.or_else(|| MountList::from_descriptor(&mut sockets));
                child.mounted = mounted;
                child.enforcement = enforcement;
                child.sockets = Sockets::from_descriptors(sockets);
                Ok(child)
            }
            Some((Answer::Failed { message, cause }, _)) => {
                child.exit().await;
                Err(SpawnError::Init { label, message, cause })
            }
            _ => Err(SpawnError::Vanished { label }),
        }
    }
}

impl Drop for WaitingInit {
    fn drop(&mut self) {
        /// Longer than a start takes on a busy machine.
        const START_TIMEOUT: Duration = Duration::from_secs(1);
        let Some(control) = self.control.take() else { return };
        // Pid 1 sees the closed socket and exits; it has to be reaped.
        let _ = rustix::net::shutdown(&control, rustix::net::Shutdown::Write);
        let _ = rustix::net::sockopt::set_socket_timeout(
            &control,
            rustix::net::sockopt::Timeout::Recv,
            Some(START_TIMEOUT),
        );
        if let Ok(Some((Answer::ClonedInit { .. }, descriptors))) = control::receive(control.as_fd()) {
            descriptors.iter().for_each(|pidfd| end(pidfd.as_fd()));
        }
    }
}

fn hand_over(control: BorrowedFd<'_>, launch: &Launch<'_>) -> Result<(), StageError> {
    let plan = plan_file(launch.plan).at("write the plan")?;
    let [stdin, stdout, stderr] = launch.stdio;
    control::send(
        control,
        &Handover::Go { passed: launch.passed.len() },
        &[plan.as_fd(), stdin, stdout, stderr],
    )
    .at("release pid 1")?;
    let passed: Vec<BorrowedFd<'_>> = launch.passed.iter().map(AsFd::as_fd).collect();
    for some in passed.chunks(control::MAX_DESCRIPTORS) {
        control::send(control, &Handover::Passed { count: some.len() }, some)
            .at("pass descriptors to pid 1")?;
    }
    Ok(())
}

fn plan_file(plan: &Plan) -> io::Result<OwnedFd> {
    let descriptor = rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(descriptor);
    file.write_all(&control::encoded(plan)?)?;
    Ok(file.into())
}

async fn answer(control: &AsyncFd<OwnedFd>) -> io::Result<Option<(Answer, Vec<OwnedFd>)>> {
    control.async_io(Interest::READABLE, |socket| control::receive(socket.as_fd())).await
}

impl Child {
    /// The program's exit status, 128+n for signal n. Can be awaited again after cancellation.
    pub async fn exit(&self) -> u8 {
        if let Some(status) = self.ended.get() {
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
                self.ended.set(Some(status));
                return status;
            }
        }
    }

    /// After `exit`: why the program could not be executed, if so.
    #[must_use]
    pub fn execution_error(&self) -> Option<SpawnError> {
        while let Ok(Some((word, _))) = control::receive(self.control.get_ref().as_fd()) {
            self.keep(word);
        }
        let (message, cause) = self.failed.take()?;
        Some(SpawnError::Init { label: self.label.clone(), message, cause })
    }

    /// After `execution_error`: whether SIGINT ended the program.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.interrupted.get()
    }

    fn keep(&self, word: Answer) {
        match word {
            Answer::Failed { message, cause } => drop(self.failed.replace(Some((message, cause)))),
            Answer::Interrupted => self.interrupted.set(true),
            _ => {}
        }
    }

    /// Resolves when the program was stopped and stays stopped. Can be awaited again after cancellation.
    pub async fn wait_until_stopped(&self) {
        /// Longer than a signal takes to reach a whole process group.
        const SETTLE_DELAY: Duration = Duration::from_millis(20);
        loop {
            let next = answer(&self.control);
            let heard = if self.stopped.get() {
                let Ok(heard) = tokio::time::timeout(SETTLE_DELAY, next).await else {
                    self.stopped.set(false);
                    return;
                };
                heard
            } else {
                next.await
            };
            match heard {
                Ok(Some((word, _))) => {
                    self.stopped.set(word == Answer::Stopped);
                    self.keep(word);
                }
                Ok(None) | Err(_) => std::future::pending().await,
            }
        }
    }

    /// To pid 1, which forwards it to the program.
    pub fn signal(&self, signal: rustix::process::Signal) {
        signal_pidfd(self.pidfd.get_ref().as_fd(), signal);
    }

    /// A second handle to pid 1, for another thread that may have to end it.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.pidfd.get_ref().try_clone()
    }

    /// Kills pid 1, and with it its pid namespace. Without a namespace, pid 1 is asked to kill everything.
    pub fn kill(&self) {
        if self.tier == Tier::Container {
            // pid 1 sees that the session has gone.
            let _ = rustix::net::shutdown(self.control.get_ref(), rustix::net::Shutdown::Both);
            return;
        }
        signal_pidfd(self.pidfd.get_ref().as_fd(), rustix::process::Signal::KILL);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended.get().is_some() {
            return;
        }
        if self.tier == Tier::Container {
            self.kill();
            collect(self.pidfd.get_ref().as_fd());
        } else {
            end(self.pidfd.get_ref().as_fd());
        }
    }
}

/// Kills and reaps a pid 1.
fn end(pidfd: BorrowedFd<'_>) {
    signal_pidfd(pidfd, rustix::process::Signal::KILL);
    // SIGKILL cannot be ignored: this returns when the namespace is gone.
    collect(pidfd);
}

fn collect(pidfd: BorrowedFd<'_>) {
    let _ = nix::sys::wait::waitid(nix::sys::wait::Id::PIDFd(pidfd), nix::sys::wait::WaitPidFlag::WEXITED);
}

/// Maps one user and group id, never host 0. An ordinary user may map only its own, and must give up `setgroups`
/// first.
fn write_id_maps(pid: u32, identity: Identity) -> Result<(), StageError> {
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
    let Identity { host_uid, host_gid, uid, gid, .. } = identity;
    write("uid_map", &format!("{uid} {host_uid} 1"))?;
    write("gid_map", &format!("{gid} {host_gid} 1"))
}

/// Signals when a descriptor can be read or written.
///
/// # Errors
/// When the kernel cannot watch it.
#[expect(
    unsafe_code,
    reason = "tokio asks for the promise that the descriptor stays open while it is watched"
)]
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
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

/// Kills a sandbox by a [`Child::handle`].
pub fn kill(handle: BorrowedFd<'_>) {
    signal_pidfd(handle, rustix::process::Signal::KILL);
}

/// A process that has already ended is not an error.
fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: rustix::process::Signal) {
    let _ = rustix::process::pidfd_send_signal(pidfd, signal);
}
