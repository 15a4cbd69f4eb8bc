//! System calls that the filter passes to the session (seccomp user notification).
//!
//! For `connect` the session reads the address once, connects a socket of its own and installs it in the program. Later
//! changes of the program's memory or descriptors have no effect (decision 270).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;

use super::files::{self, FileEffect, MissingFile, PathArgument, RenameCall};

/// `SECCOMP_ADDFD_FLAG_SETFD`.
const IN_PLACE_OF: u32 = 1;

/// `PATH_MAX`.
const MAX_PATH: usize = 4096;

/// The largest socket address.
const MAX_LENGTH: u64 = 128;

/// Calls that were received and not answered, by their id, with thread and listener. No signal ends their wait.
static HELD_CALLS: Mutex<BTreeMap<u64, (u32, Weak<OwnedFd>)>> = Mutex::new(BTreeMap::new());

fn held_calls() -> MutexGuard<'static, BTreeMap<u64, (u32, Weak<OwnedFd>)>> {
    HELD_CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Interrupts the calls of these threads, each of which must have a signal pending: the kernel repeats them.
pub(crate) fn interrupt(threads: &[u32]) {
    const ERESTARTSYS: i32 = 512;
    held_calls().retain(|id, (thread, listener)| {
        let is_meant = threads.contains(thread);
        if let Some(listener) = listener.upgrade().filter(|_| is_meant) {
            let _ =
                send(&listener, libc::seccomp_notif_resp { id: *id, val: 0, error: -ERESTARTSYS, flags: 0 });
        }
        !is_meant
    });
}

/// A `connect` that waits for an answer.
#[derive(Debug)]
pub struct PendingConnect {
    id: u64,
    pub pid: u32,
    descriptor: RawFd,
    pub to: Address,
}

/// A refused call whose caller waits for the answer.
#[derive(Debug)]
pub struct NotifiedCall {
    id: u64,
    pub pid: u32,
    /// Its number.
    pub call: libc::c_long,
    arguments: [u64; 6],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Internet(SocketAddr),
    /// As written; it may be relative.
    Path(PathBuf),
    /// Of an unsupported family, or unreadable.
    Other,
}

/// Receives the calls of one sandbox. On drop, every such call fails.
#[derive(Debug)]
pub struct Listener(Arc<OwnedFd>);

impl From<OwnedFd> for Listener {
    #[expect(unsafe_code, reason = "the kernel's interface is an ioctl that no dependency wraps")]
    fn from(descriptor: OwnedFd) -> Self {
        /// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the caller hands its processor over. Not before Linux 6.6.
        const SYNCHRONOUS: u64 = 1;
        let set = libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS;
        // SAFETY: the argument is a number; the kernel reads and writes no memory.
        let _ = unsafe { libc::ioctl(descriptor.as_raw_fd(), set, SYNCHRONOUS) };
        Self(Arc::new(descriptor))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// The next call; None if its caller is gone. Call it when the descriptor is readable.
    ///
    /// # Errors
    /// When no process is left that could call.
    pub fn next(&self) -> io::Result<Option<PendingConnect>> {
        let Some(heard) = self.receive_call()? else { return Ok(None) };
        let [descriptor, at, length, ..] = heard.data.args;
        let bytes = read(heard.pid, at, length.min(MAX_LENGTH)).unwrap_or_default();
        // The memory is the caller's only if it still waits.
        if !self.is_waiting(heard.id) {
            held_calls().remove(&heard.id);
            return Ok(None);
        }
        // An `int` in the kernel: the low half.
        let descriptor = RawFd::from_ne_bytes((descriptor as u32).to_ne_bytes());
        Ok(Some(PendingConnect { id: heard.id, pid: heard.pid, descriptor, to: address(&bytes) }))
    }

    /// The next call of a filter that only reports refusals; None as in [`Listener::next`], and if there is none.
    ///
    /// # Errors
    /// When no process is left that could call.
    pub fn next_refused(&self) -> io::Result<Option<NotifiedCall>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        // Receiving would block.
        let mut wanted = [PollFd::new(&*self.0, PollFlags::IN)];
        poll(&mut wanted, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if !wanted[0].revents().contains(PollFlags::IN) {
            return Ok(None);
        }
        let Some(heard) = self.receive_call()? else { return Ok(None) };
        let (call, arguments) = (heard.data.nr.into(), heard.data.args);
        Ok(Some(NotifiedCall { id: heard.id, pid: heard.pid, call, arguments }))
    }

    /// The file that an allowed call looks for ([`Refusal::ToldWithFiles`]); None for a refused one. The caller can
    /// change the path, so it may be listed, but decides nothing.
    ///
    /// [`Refusal::ToldWithFiles`]: super::Refusal::ToldWithFiles
    #[must_use]
    pub fn looked_for(&self, heard: &NotifiedCall) -> Option<MissingFile> {
        let looks = files::of(heard.call).filter(|looks| files::goes_on(looks, &heard.arguments))?;
        let mut wanted = missing_file(heard, looks);
        if !self.is_waiting(heard.id) {
            wanted.path = PathBuf::new();
        }
        Some(wanted)
    }

    /// The names of a rename or link call, if one of them `matters`. None for other calls; inner None: it continues.
    /// The caller can change both paths.
    #[must_use]
    pub fn rename_call(
        &self,
        heard: &NotifiedCall,
        matters: impl Fn(&RenameCall) -> bool,
    ) -> Option<Option<RenameCall>> {
        let Some(name) = files::new_name(heard.call, &heard.arguments)? else { return Some(None) };
        let (from, to) = (missing_file(heard, name.from), missing_file(heard, name.to));
        let renamed = RenameCall { from, to, only_new: name.only_new, is_link: name.is_link };
        Some(Some(renamed).filter(|renamed| matters(renamed) && self.is_waiting(heard.id)))
    }

    /// What an allowed call does to which file. None for renames, links and other calls. The caller can change the
    /// path.
    #[must_use]
    pub fn file_effect(&self, heard: &NotifiedCall) -> Option<(MissingFile, FileEffect)> {
        let (looks, touch) = files::file_effect(heard.call, &heard.arguments)?;
        let mut wanted = missing_file(heard, looks);
        if !self.is_waiting(heard.id) {
            wanted.path = PathBuf::new();
        }
        Some((wanted, touch))
    }

    /// Continues a call. Only for results of [`Listener::looked_for`], [`Listener::rename_call`] or [`Listener::file_effect`].
    pub fn go_on(&self, heard: &NotifiedCall) {
        const CONTINUE: u32 = 1;
        let may = files::new_name(heard.call, &heard.arguments).is_some()
            || files::file_effect(heard.call, &heard.arguments).is_some()
            || files::of(heard.call).is_some_and(|looks| files::goes_on(looks, &heard.arguments));
        let (error, flags) = if may { (0, CONTINUE) } else { (-libc::EPERM, 0) };
        let _ = self.send(libc::seccomp_notif_resp { id: heard.id, val: 0, error, flags });
    }

    /// Answers the caller with a refusal.
    pub fn refuse(&self, refused: &NotifiedCall) {
        let _ = self.answer(refused.id, libc::EPERM);
    }

    /// Answers the caller with the outcome of what the session did for it.
    ///
    /// # Errors
    /// When it does not wait any more: it may try again.
    pub fn done(&self, heard: &NotifiedCall, outcome: Result<(), Errno>) -> io::Result<()> {
        self.answer(heard.id, outcome.err().map_or(0, Errno::raw_os_error))
    }

    #[expect(unsafe_code, reason = "the kernel's interface is an ioctl that no dependency wraps")]
    fn receive_call(&self) -> io::Result<Option<libc::seccomp_notif>> {
        // SAFETY: plain old data for which all zeroes is a valid value, and which the kernel wants zeroed.
        let mut heard: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `seccomp_notif`, which outlives the call.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut heard) } != 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        held_calls().insert(heard.id, (heard.pid, Arc::downgrade(&self.0)));
        Ok(Some(heard))
    }

    #[expect(unsafe_code, reason = "the kernel's interface is an ioctl that no dependency wraps")]
    fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the kernel reads one number, which outlives the call.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
    }

    /// Replaces the caller's socket by a connected one and answers.
    ///
    /// # Errors
    /// When the caller has no socket there, or is gone; it gets the error.
    #[expect(unsafe_code, reason = "the kernel's interface is an ioctl that no dependency wraps")]
    pub fn answer_connected(&self, asked: &PendingConnect, socket: &OwnedFd) -> io::Result<()> {
        let (flags, closes) = self.state_of(asked)?;
        if flags & libc::O_NONBLOCK.unsigned_abs() != 0 {
            rustix::io::ioctl_fionbio(socket, true)?;
        }
        let place = libc::seccomp_notif_addfd {
            id: asked.id,
            flags: IN_PLACE_OF,
            srcfd: socket.as_raw_fd().unsigned_abs(),
            newfd: asked.descriptor.unsigned_abs(),
            newfd_flags: if closes { libc::O_CLOEXEC.unsigned_abs() } else { 0 },
        };
        // SAFETY: the kernel reads one `seccomp_notif_addfd`, which outlives the call.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const place) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.answer(asked.id, 0)
    }

    /// The flags of the caller's socket, and whether it is closed when a program is executed.
    fn state_of(&self, asked: &PendingConnect) -> io::Result<(u32, bool)> {
        let (pid, number) = (asked.pid, asked.descriptor);
        let what = std::fs::read_link(format!("/proc/{pid}/fd/{number}"))?;
        if !what.as_os_str().as_encoded_bytes().starts_with(b"socket:") {
            return Err(Errno::NOTSOCK.into());
        }
        let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"))?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default().trim();
        let flags = u32::from_str_radix(flags, 8).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok((flags, flags & libc::O_CLOEXEC.unsigned_abs() != 0))
    }

    /// Answers the caller with the error of its connection.
    pub fn answer_refused(&self, asked: &PendingConnect, errno: i32) {
        let _ = self.answer(asked.id, errno);
    }

    fn answer(&self, id: u64, errno: i32) -> io::Result<()> {
        self.send(libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 })
    }

    /// An error also if it was interrupted.
    fn send(&self, answer: libc::seccomp_notif_resp) -> io::Result<()> {
        held_calls().remove(&answer.id).ok_or(Errno::NOENT)?;
        send(&self.0, answer)
    }
}

#[expect(unsafe_code, reason = "the kernel's interface is an ioctl that no dependency wraps")]
fn send(listener: &OwnedFd, answer: libc::seccomp_notif_resp) -> io::Result<()> {
    // SAFETY: the kernel reads one `seccomp_notif_resp`, which outlives the call.
    let sent =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The path of a call and its directory.
fn missing_file(heard: &NotifiedCall, looks: &PathArgument) -> MissingFile {
    let argument = |index: usize| heard.arguments.get(index).copied();
    let path = argument(looks.path).map(|at| text(heard.pid, at)).unwrap_or_default();
    let flags = looks.flags.map_or(0, |flags| files::low_half(argument(flags)));
    let directory = looks.directory.map(|index| files::low_half(argument(index)).cast_signed());
    MissingFile {
        path: std::ffi::OsString::from_vec(path).into(),
        directory: directory.filter(|directory| *directory != libc::AT_FDCWD),
        writes: flags & (libc::O_ACCMODE | libc::O_CREAT).unsigned_abs() != 0,
    }
}

/// One call, so that a program with many renames cannot keep the session busy.
fn read(pid: u32, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).unwrap_or(0);
    let mut bytes = vec![0; length];
    let base = usize::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    let mut here = [io::IoSliceMut::new(&mut bytes)];
    let there = [nix::sys::uio::RemoteIoVec { base, len: length }];
    let read = nix::sys::uio::process_vm_readv(pid, &mut here, &there)?;
    if read == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A NUL-terminated text, read page by page, because the next page may be unmapped. Empty if unreadable.
fn text(pid: u32, mut at: u64) -> Vec<u8> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while text.len() < MAX_PATH {
        let length = PAGE - at % PAGE;
        let Ok(bytes) = read(pid, at, length) else { return Vec::new() };
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            text.extend(bytes.into_iter().take(end));
            return text;
        }
        text.extend(bytes);
        at = at.saturating_add(length);
    }
    Vec::new()
}

/// A `sockaddr` of the caller.
fn address(bytes: &[u8]) -> Address {
    let family = bytes.first_chunk().map_or(0, |family| i32::from(u16::from_ne_bytes(*family)));
    let port = || Some(u16::from_be_bytes(*bytes.get(2..4)?.first_chunk()?));
    let found = match family {
        libc::AF_INET => {
            let ip = bytes.get(4..8).and_then(|ip| ip.first_chunk::<4>()).copied();
            ip.zip(port()).map(|(ip, port)| SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 => {
            let ip = bytes.get(8..24).and_then(|ip| ip.first_chunk::<16>()).copied();
            let ip = ip.map(|ip| IpAddr::V6(Ipv6Addr::from(ip)).to_canonical());
            ip.zip(port()).map(|(ip, port)| SocketAddr::new(ip, port))
        }
        libc::AF_UNIX => {
            let path = bytes.get(2..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
            // Abstract addresses begin with NUL; none is known here.
            let path = std::ffi::OsString::from_vec(path.to_vec());
            return if path.is_empty() { Address::Other } else { Address::Path(path.into()) };
        }
        _ => None,
    };
    found.map_or(Address::Other, Address::Internet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seccomp_listener_reads_socket_addresses_as_the_kernel_does() {
        let mut v4 = vec![2, 0, 0x01, 0xBB, 127, 0, 0, 1];
        v4.resize(16, 0);
        assert_eq!(address(&v4), Address::Internet(([127, 0, 0, 1], 443).into()));
        let mut mapped = vec![10, 0, 0, 80, 0, 0, 0, 0];
        mapped.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1]);
        assert_eq!(address(&mapped), Address::Internet(([10, 0, 0, 1], 80).into()));
        assert_eq!(address(b"\x01\0/run/x\0rest"), Address::Path("/run/x".into()));
        assert_eq!(address(b"\x01\0\0abstract"), Address::Other);
        assert_eq!(address(&v4[..6]), Address::Other);
        assert_eq!(address(&[]), Address::Other);
    }
}
