//! Attacks that a sandboxed program tries. Shared by `doctor` and `demo`; an attack that succeeds does as little harm
//! as possible.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use libc::c_long;
use nix::errno::Errno;
use nix::unistd::{ForkResult, Pid};
use serde::{Deserialize, Serialize};

/// How long a connection may take before it counts as failed.
const CONNECT_LIMIT: Duration = Duration::from_millis(400);
const NETLINK_KOBJECT_UEVENT: c_long = 15;
/// `TIOCSTI`, and then the same with bits that the kernel ignores.
const TERMINAL_REQUESTS: [(&str, u64); 3] = [
    ("ioctl(TIOCSTI)", libc::TIOCSTI),
    ("ioctl(TIOCSTI + 2^32)", libc::TIOCSTI | 1 << 32),
    ("ioctl(TIOCLINUX)", 0x541C),
];

/// One attempt and the kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    pub what: String,
    /// Name of the errno; None: it came through.
    pub error: Option<String>,
    /// Number of the system call that the filter was asked about, where that is the point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<i64>,
    /// The rule that an answer named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Try {
    pub fn new<T>(what: impl Into<String>, result: Result<T, Errno>) -> Self {
        Self {
            what: what.into(),
            error: result.err().map(|errno| format!("{errno:?}")),
            call: None,
            rule: None,
        }
    }

    /// An attempt whose answer did not come from the kernel.
    pub fn answered(what: impl Into<String>, error: Option<String>, rule: Option<String>) -> Self {
        Self { what: what.into(), error, call: None, rule }
    }

    fn of_call<T>(what: &str, number: c_long, result: Result<T, Errno>) -> Self {
        Self { call: Some(number), ..Self::new(what, result) }
    }

    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.error.is_some()
    }

    /// `name: EPERM`, or `name: came through`.
    #[must_use]
    pub fn display_text(&self) -> String {
        format!("{}: {}", self.what, self.error.as_deref().unwrap_or("came through"))
    }
}

/// The error number of an error of the standard library; a timeout has none.
#[must_use]
pub fn errno(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number),
        None if error.kind() == io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
        None => Errno::EIO,
    }
}

pub fn read(path: &Path) -> Result<Vec<u8>, Errno> {
    fs::read(path).map_err(|error| errno(&error))
}

/// Reads the first bytes: some files of `/proc` have no end.
pub fn peek(path: &Path) -> Result<(), Errno> {
    use std::io::Read;
    let mut buffer = [0; 16];
    fs::File::open(path).and_then(|mut file| file.read(&mut buffer)).map(drop).map_err(|error| errno(&error))
}

/// Makes a new file.
pub fn create(path: &Path) -> Result<(), Errno> {
    OpenOptions::new().write(true).create_new(true).open(path).map(drop).map_err(|error| errno(&error))
}

pub fn append(path: &Path, text: &str) -> Result<(), Errno> {
    OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| errno(&error))
}

pub fn connect(address: SocketAddr) -> Result<(), Errno> {
    TcpStream::connect_timeout(&address, CONNECT_LIMIT).map(drop).map_err(|error| errno(&error))
}

pub fn send_datagram(to: SocketAddr) -> Result<(), Errno> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let sent = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        socket.send(b"?")?;
        // If every address is the sandbox's own, the kernel reports at once that nobody listens.
        socket.set_read_timeout(Some(CONNECT_LIMIT))?;
        match socket.recv(&mut [0; 1]) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(error),
            _ => Ok(()),
        }
    });
    sent.map_err(|error| errno(&error))
}

pub fn connect_abstract(name: &str) -> Result<(), Errno> {
    std::os::unix::net::SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixStream::connect_addr(&address))
        .map(drop)
        .map_err(|error| errno(&error))
}

/// The family in which a virtual machine speaks to what it runs on.
pub fn vsock() -> Result<(), Errno> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    socket(AddressFamily::Vsock, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map(drop)
}

/// System calls that the filter refuses, each chosen so that without the filter the answer would be another one.
#[must_use]
pub fn forbidden_calls() -> Vec<Try> {
    let plain = [
        ("unshare(CLONE_NEWUSER)", libc::SYS_unshare, [c_long::from(libc::CLONE_NEWUSER), 0, 0]),
        ("clone3", libc::SYS_clone3, [0; 3]),
        ("mount", libc::SYS_mount, [0; 3]),
        ("io_setup", libc::SYS_io_setup, [0; 3]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [-1, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0, -3, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0; 3]),
        ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0]),
        ("setns", libc::SYS_setns, [-1, 0, 0]),
        (
            "socket(kernel events)",
            libc::SYS_socket,
            [c_long::from(libc::AF_NETLINK), c_long::from(libc::SOCK_RAW), NETLINK_KOBJECT_UEVENT],
        ),
    ];
    plain
        .into_iter()
        .map(|(what, number, words)| Try::of_call(what, number, in_throw_away(|| call(number, words))))
        .collect()
}

/// Tries to type into a terminal: a byte that does nothing.
pub fn type_into_terminal(terminal: impl AsFd) -> Vec<Try> {
    TERMINAL_REQUESTS
        .iter()
        .map(|(what, request)| Try::of_call(what, libc::SYS_ioctl, inject(terminal.as_fd(), *request)))
        .collect()
}

#[expect(unsafe_code, reason = "no safe wrapper offers a request that nobody should make")]
fn inject(terminal: std::os::fd::BorrowedFd<'_>, request: u64) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let byte = [0_u8; 8];
    // SAFETY: both requests read at most eight bytes from a buffer that outlives the call. The raw system call,
    // because the wrapper in libc would cut the request down to what it should be.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, terminal.as_raw_fd(), request, byte.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Tries to look into another process: its environment and its memory.
#[must_use]
pub fn inspect_process(pid: i32) -> Vec<Try> {
    let directory = Path::new("/proc").join(pid.to_string());
    ["environ", "mem", "root", "fd"]
        .iter()
        .map(|name| {
            let path = directory.join(name);
            let result = if matches!(*name, "root" | "fd") {
                fs::read_dir(&path).map(drop).map_err(|error| errno(&error))
            } else {
                peek(&path)
            };
            Try::new(format!("read {}", path.display()), result)
        })
        .collect()
}

/// Tries to switch `no_new_privs` off again.
#[must_use]
pub fn regain_privileges() -> Try {
    let number = libc::SYS_prctl;
    let words = [c_long::from(libc::PR_SET_NO_NEW_PRIVS), 0, 0];
    Try::new("switch no_new_privs off", call(number, words))
}

/// Opens the System V message queue of a key, or makes a new one.
///
/// # Errors
/// The kernel's answer.
pub fn message_queue(key: i32, make: bool) -> Result<c_long, Errno> {
    let flags = if make { libc::IPC_CREAT | libc::IPC_EXCL | 0o600 } else { 0 };
    call(libc::SYS_msgget, [c_long::from(key), c_long::from(flags), 0])
}

/// # Errors
/// The kernel's answer.
pub fn remove_message_queue(queue: c_long) -> Result<(), Errno> {
    call(libc::SYS_msgctl, [queue, c_long::from(libc::IPC_RMID), 0]).map(drop)
}

/// The processor time that this process has used.
#[must_use]
pub fn processor_time() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    // It cannot fail for the calling process; a loop that waits for more also has a wall-clock limit.
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |used| {
        let microseconds = (used.user_time() + used.system_time()).num_microseconds();
        Duration::from_micros(microseconds.unsigned_abs())
    })
}

/// Starts processes until one is refused, at most `most`; they are gone when this returns. How many there were,
/// and the answer to the last one.
pub fn fork_until_refused(most: usize) -> (usize, Result<(), Errno>) {
    let mut children = Vec::new();
    let mut result = Ok(());
    while children.len() < most {
        match in_child(|| {
            // It lives until it is killed, or for five seconds.
            std::thread::sleep(Duration::from_secs(5));
            0
        }) {
            Ok(child) => children.push(child),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    for child in &children {
        // Both can only fail for a child that is gone already.
        let _ = nix::sys::signal::kill(*child, nix::sys::signal::Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(*child, None);
    }
    (children.len(), result)
}

/// Like the above, in a child process: a call that succeeds must not change the process that reports it.
fn in_throw_away<T>(attempt: impl FnOnce() -> Result<T, Errno>) -> Result<(), Errno> {
    use nix::sys::wait::{WaitStatus, waitpid};
    let child = in_child(|| attempt().err().map_or(0, |errno| errno as i32))?;
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
            Ok(WaitStatus::Exited(_, number)) => return Err(Errno::from_raw(number)),
            // Ended by the kernel for having tried.
            Ok(WaitStatus::Signaled(..)) => return Err(Errno::ECANCELED),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Runs `work` in a child process of a process that has one thread.
///
/// # Errors
/// When no process may be started.
#[expect(unsafe_code, reason = "fork: the callers are the hidden verbs, which have one thread")]
pub fn in_child(work: impl FnOnce() -> i32) -> Result<Pid, Errno> {
    // SAFETY: the hidden verbs that attempt things start no threads, so the child may allocate and lock.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = work();
            // SAFETY: no destructor or buffer of the parent may run twice, which is what `_exit` is for.
            unsafe { libc::_exit(code) }
        }
    }
}

/// One bare system call with numbers or null pointers as arguments.
#[expect(unsafe_code, reason = "calls that nobody should make have no safe wrappers")]
fn call(number: c_long, [first, second, third]: [c_long; 3]) -> Result<c_long, Errno> {
    // SAFETY: no caller passes an address, so the kernel can write into no memory of ours; all remaining
    // arguments are null.
    let result =
        unsafe { libc::syscall(number, first, second, third, 0 as c_long, 0 as c_long, 0 as c_long) };
    Errno::result(result)
}
