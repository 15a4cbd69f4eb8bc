//! Pid 1 of a sandbox: from a process in new namespaces to the pinned program, in one sequence. Starts with an empty
//! environment and its control socket. Only applies the plan; comments explain the order.

use std::ffi::{CStr, CString, OsString, c_char};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{ForkResult, Gid, Uid};

use super::control::{self, Answer, Cause, Handover};
use super::mount_list::MountList;
use super::plan::{Identity, Plan, Terminal, Tier};
use super::report::{Enforcement, State};
use super::stage::{StageContext, StageError};
use super::{caps, container, landlock, limits, mount, network, reaper, seccomp};

/// The exit status of a pid 1 that failed.
pub const INIT_FAILED_STATUS: u8 = 125;

/// Runs the plan that arrives on the control socket and returns pid 1's exit status.
#[must_use]
pub fn main(control: &OwnedFd, filters: &seccomp::Filters) -> u8 {
    let status = match descend(control, filters) {
        Ok(status) => status,
        Err(error) => {
            let cause = if error.stage == EXECUTE { Cause::of(&error.source) } else { Cause::Other };
            // The session reports it, if it still exists.
            let _ =
                control::send(control.as_fd(), &Answer::Failed { message: error.to_string(), cause }, &[]);
            INIT_FAILED_STATUS.into()
        }
    };
    u8::try_from(status).unwrap_or(u8::MAX)
}

const EXECUTE: &str = "execute";
const SHELL: &CStr = c"/bin/sh";

fn descend(control: &OwnedFd, filters: &seccomp::Filters) -> Result<i32, StageError> {
    let (plan, mut passed) = wait_for_go(control)?;
    if plan.tier == Tier::Container {
        let numbered = take_numbered(&plan, &mut passed)?;
        return container::descend(&plan, control, numbered);
    }
    caps::keep_for_setup()?;
    let users_mask = rustix::process::umask(rustix::fs::Mode::empty());

    // The cgroups first, so that all memory below is charged; their namespace is rooted where we are now.
    for descriptor in &plan.join {
        let tasks = passed.get_mut(*descriptor).and_then(Option::take);
        let tasks = tasks.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound)).at("find the cgroup")?;
        rustix::io::write(&tasks, b"0").at("join the cgroup")?;
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWCGROUP).at("unshare the cgroup namespace")?;

    // Sources are opened with the launcher's own id, which may read what the sandbox id may not traverse to.
    let sources = mount::open_sources(&plan.mounts, &plan.executable, &mut passed)?;
    if plan.identity.from_root {
        become_the_sandbox_user(plan.identity)?;
    }
    // After the ids, because changing them clears it: when the session dies, pid 1 and its namespace die.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).at("arm the parent-death signal")?;
    still_supervised(control)?;

    let numbered = take_numbered(&plan, &mut passed)?;
    drop(passed);
    let root = mount::Root::begin()?;
    nix::unistd::sethostname("agentsh").at("set the host name")?;
    let sockets = network::prepare(&plan.network, plan.published)?;
    let less = root.build(&plan.mounts, &plan.executable, sources)?;
    rustix::process::umask(users_mask);

    // For the session, which may not be shown our files in /proc.
    let mounted = MountList::open_own().ok();
    // From here on only restrictions, which bind pid 1 as well as the program.
    limits::apply(&plan.limits)?;
    let short = limits::lower_shares(&plan.limits);
    let (mut enforcement, listener) = restrict(&plan, filters, &numbered)?;
    enforcement.extend(less);
    enforcement.extend(short);
    // The listener comes last.
    let descriptors: Vec<_> = sockets
        .iter()
        .map(AsFd::as_fd)
        .chain(mounted.as_ref().map(AsFd::as_fd))
        .chain(listener.as_ref().map(AsFd::as_fd))
        .collect();
    control::send(control.as_fd(), &Answer::Ready { enforcement }, &descriptors).at("tell the session")?;
    // The program must not hold the listener with which it could answer itself.
    drop((sockets, mounted, listener));

    let signals = reaper::awaited_signals();
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).at("block signals")?;
    start(&plan, control, &before, numbered)
}

/// If root started agentsh, the ids are entered instead of inherited.
pub(super) fn become_the_sandbox_user(identity: Identity) -> Result<(), StageError> {
    nix::unistd::setgroups(&[]).at("leave supplementary groups")?;
    let gid = Gid::from_raw(identity.gid);
    nix::unistd::setresgid(gid, gid, gid).at("become the sandbox group")?;
    let uid = Uid::from_raw(identity.uid);
    nix::unistd::setresuid(uid, uid, uid).at("become the sandbox user")
}

/// Landlock before the filter: its calls are refused afterwards only to the curious, but order costs nothing.
fn restrict(
    plan: &Plan,
    filters: &seccomp::Filters,
    numbered: &[(u32, OwnedFd)],
) -> Result<(Vec<Enforcement>, Option<OwnedFd>), StageError> {
    nix::sys::prctl::set_no_new_privs().at("set no_new_privs")?;
    let landlock = landlock::apply(&plan.landlock, &plan.mounts, plan.tier, numbered)?;
    if landlock.state == State::Absent && !plan.allow_degraded {
        return Err(io::Error::other(landlock.why)).at("apply Landlock (--allow-degraded runs without it)");
    }
    caps::drop_all()?;
    let hears = (plan.tells_files, plan.hears_renames);
    let listener = seccomp::install_and_tell(filters, plan.executable.filter(), plan.identity, hears)?;
    let enforcement = vec![
        Enforcement::enforced("namespaces", "user, mount, pid, network, ipc, uts and cgroup"),
        landlock,
        Enforcement::enforced("seccomp", "default deny"),
        Enforcement::enforced("capabilities", "none, no_new_privs"),
    ];
    Ok((enforcement, listener))
}

#[expect(unsafe_code, reason = "fork: this process has one thread and the child goes straight to execve")]
pub(super) fn start(
    plan: &Plan,
    control: &OwnedFd,
    signals_before: &SigSet,
    numbered: Vec<(u32, OwnedFd)>,
) -> Result<i32, StageError> {
    let prepared = Prepared::new(plan).at("prepare the program's arguments")?;
    // Not dumpable, so that the program, which has the same user id, cannot use /proc/1/mem and ptrace. Before the
    // fork; execve resets it in the child.
    nix::sys::prctl::set_dumpable(false).at("make pid 1 not dumpable")?;
    if plan.terminal == Terminal::OwnGroup {
        // A shell that continues the job reaches agentsh alone, which gives the terminal away first.
        let itself = nix::unistd::Pid::from_raw(0);
        nix::unistd::setpgid(itself, itself).at("leave the process group")?;
    }
    // SAFETY: this process is single-threaded, so the child may use everything that the parent may.
    match unsafe { nix::unistd::fork() }.at("fork")? {
        ForkResult::Child => {
            let above = numbered.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
            let control = rustix::io::fcntl_dupfd_cloexec(control, above.cast_signed());
            let control = control.at("keep the control socket")?;
            let error = execute(plan, &prepared, signals_before, &numbered);
            // Only the program is what a shell reports as missing: `env -C` with a missing directory is 125.
            let cause = if error.stage == EXECUTE { Cause::of(&error.source) } else { Cause::Other };
            let _ =
                control::send(control.as_fd(), &Answer::Failed { message: error.to_string(), cause }, &[]);
            std::process::exit(if cause == Cause::Missing { 127 } else { 126 });
        }
        ForkResult::Parent { child } => {
            drop(numbered);
            for standard in 0..3 {
                // Only the program may hold the ends of its pipes, so that its exit ends them.
                let _ = nix::unistd::close(standard);
            }
            Ok(reaper::run(child, control.as_fd(), plan.terminal))
        }
    }
}

struct Prepared {
    path: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Prepared {
    fn new(plan: &Plan) -> io::Result<Self> {
        let strings = |list: &[OsString]| -> Result<Vec<CString>, std::ffi::NulError> {
            list.iter().map(|item| CString::new(item.as_bytes())).collect()
        };
        Ok(Self {
            path: CString::new(plan.program.path.as_os_str().as_bytes())?,
            argv: strings(&plan.program.argv)?,
            env: strings(&plan.program.env)?,
        })
    }
}

/// Returns only when the program could not be executed.
fn execute(
    plan: &Plan,
    prepared: &Prepared,
    signals_before: &SigSet,
    numbered: &[(u32, OwnedFd)],
) -> StageError {
    let attempt = || -> Result<(), StageError> {
        if plan.tier == Tier::Container {
            // No pid namespace ends with pid 1.
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).at("arm the parent-death signal")?;
        }
        match plan.terminal {
            Terminal::NewSession => drop(nix::unistd::setsid().at("leave the terminal")?),
            Terminal::OwnGroup => lead_a_group().at("make a process group")?,
            Terminal::Keep => {}
        }
        let workdir = &plan.program.workdir;
        nix::unistd::chdir(workdir).on("change directory to", workdir.display())?;
        landlock::isolate_from_pid_1()?;
        as_programs_start(plan.ignored).at("restore signals")?;
        signals_before.thread_set_mask().at("restore signals")?;
        close_from(3).at("close descriptors")?;
        for (number, open) in numbered {
            move_to_number(open, *number).at("place descriptors")?;
        }
        let mut executed = nix::unistd::execve(&prepared.path, &prepared.argv, &prepared.env);
        if executed == Err(Errno::ENOEXEC) && is_text(&plan.program.path) {
            let rest = prepared.argv.iter().skip(1).map(CString::as_c_str);
            let argv: Vec<&CStr> = [SHELL, &prepared.path].into_iter().chain(rest).collect();
            executed = nix::unistd::execve(SHELL, &argv, &prepared.env);
        }
        executed.map(|_| ()).on(EXECUTE, plan.program.path.display())
    };
    attempt().err().unwrap_or(StageError {
        stage: EXECUTE,
        detail: String::new(),
        source: io::Error::other("returned"),
    })
}

/// Shells and `execvp` give a text without `#!` to the shell. The header of a program for another machine has a zero byte.
fn is_text(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_end(&mut head));
    read.is_ok() && !head.contains(&0) && !head.starts_with(b"\x7fELF")
}

/// Programs inside name process groups by ids of their pid namespace. agentsh's group has none there, so a shell could
/// not return the terminal to it.
fn lead_a_group() -> nix::Result<()> {
    let itself = nix::unistd::Pid::from_raw(0);
    nix::unistd::setpgid(itself, itself)?;
    let Ok(terminal) = File::options().read(true).write(true).open("/dev/tty") else { return Ok(()) };
    // Not in the foreground yet, and not to be stopped for asking.
    let mut asks = SigSet::empty();
    asks.add(Signal::SIGTTOU);
    let before = asks.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let taken = nix::unistd::tcsetpgrp(&terminal, nix::unistd::getpgrp());
    before.thread_set_mask()?;
    // EIO: the terminal was hung up.
    taken.or_else(|error| if error == nix::errno::Errno::ENOTTY { Ok(()) } else { Err(error) })
}

/// Restores signals: the Rust runtime ignores SIGPIPE, and the C library ignores two in spawned processes. What the
/// caller of agentsh ignores (`nohup`) stays ignored.
fn as_programs_start(ignored: u64) -> io::Result<()> {
    const THREAD_LIBRARY_SIGNALS: [libc::c_int; 2] = [32, 33];
    let ours = OWN_SIGNALS.into_iter().filter(|signal| ignored & (1 << signal) == 0);
    ours.chain(THREAD_LIBRARY_SIGNALS).try_for_each(|signal| action(signal, Some(libc::SIG_DFL)).map(drop))
}

/// Signals that agentsh ignores: SIGPIPE and SIGXFSZ; the failed write reports the same.
const OWN_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// The signals that the caller of agentsh ignores too, as bits.
static IGNORED_BY_CALLER: AtomicU64 = AtomicU64::new(0);

/// The same for a [`Plan`].
#[must_use]
pub fn ignored_by_caller() -> u64 {
    IGNORED_BY_CALLER.load(Ordering::Relaxed)
}

#[used]
#[expect(
    unsafe_code,
    reason = "the runtime sets SIGPIPE before `main`: what it was is known only before that"
)]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(libc::c_int, *mut *mut c_char) = look_at_start;

extern "C" fn look_at_start(count: libc::c_int, words: *mut *mut c_char) {
    WORDS.0.store(words, Ordering::Relaxed);
    WORDS.1.store(usize::try_from(count).unwrap_or(0), Ordering::Relaxed);
    let is_ignored = |signal: &libc::c_int| action(*signal, None).is_ok_and(|action| action == libc::SIG_IGN);
    for signal in OWN_SIGNALS.into_iter().filter(is_ignored) {
        IGNORED_BY_CALLER.fetch_or(1 << signal, Ordering::Relaxed);
    }
}

/// The words of the command line and how many there are, as the C library hands them to what runs before `main`. The variables follow.
static WORDS: (AtomicPtr<*mut c_char>, AtomicUsize) =
    (AtomicPtr::new(std::ptr::null_mut()), AtomicUsize::new(0));

/// A word of the command line, without a copy of it.
#[must_use]
#[expect(unsafe_code, reason = "the standard library hands out copies, which stay in memory")]
pub fn argument(number: usize) -> Option<&'static str> {
    let is_there = number < WORDS.1.load(Ordering::Relaxed);
    // SAFETY: the kernel put so many words there, each with a zero at its end; nobody writes to them but `forget_what_was_given`, whose
    // caller has none of them.
    let word = is_there.then(|| unsafe { CStr::from_ptr(*WORDS.0.load(Ordering::Relaxed).add(number)) });
    word.and_then(|word| word.to_str().ok())
}

/// Clears the command line and all variables, where the kernel put them. What is left is a name for the process.
#[expect(unsafe_code, reason = "the standard library forgets none of them")]
pub(super) fn forget_what_was_given() {
    const NAME: &[u8] = b"agentsh\0__init";
    let (words, count) = (WORDS.0.load(Ordering::Relaxed), WORDS.1.load(Ordering::Relaxed));
    // SAFETY: this process has one thread, in which nothing refers to a word or a variable but these two lists, each
    // with a null pointer at its end. What they point to ends with a zero and may be written; the words are adjacent.
    let clear = |text: *mut c_char| unsafe {
        let length = libc::strlen(text);
        std::ptr::write_bytes(text, 0, length);
        length + 1
    };
    if count > 0 {
        // SAFETY: as above.
        unsafe {
            let room: usize = (0..count).map(|number| clear(*words.add(number))).sum();
            let variables = words.add(count + 1);
            let mut next = variables;
            while !(*next).is_null() {
                clear(*next);
                next = next.add(1);
            }
            *variables = std::ptr::null_mut();
            std::ptr::copy_nonoverlapping(NAME.as_ptr(), (*words).cast(), NAME.len().min(room));
        }
    }
}

/// The caller of agentsh may have ignored SIGCHLD, as daemons do: the kernel would discard the exit statuses of our children.
///
/// # Errors
/// Those of the kernel.
pub fn take_signals() -> io::Result<()> {
    action(libc::SIGXFSZ, Some(libc::SIG_IGN))?;
    action(libc::SIGCHLD, Some(libc::SIG_DFL)).map(drop)
}

/// Ends this process as SIGINT ends a program that has no answer to it: a shell with a loop or a script around it ends
/// them only then. Returns if it cannot.
pub fn end_by_interrupt() {
    if action(libc::SIGINT, Some(libc::SIG_DFL)).is_ok() {
        let _ = nix::sys::signal::raise(Signal::SIGINT);
    }
}

/// Sets the action of a signal, and returns the old one.
#[expect(unsafe_code, reason = "the C library's sigaction refuses its own signals")]
fn action(signal: libc::c_int, now: Option<libc::sighandler_t>) -> io::Result<libc::sighandler_t> {
    const SET_BYTES: usize = 8;
    // The kernel's `sigaction`, with no flags.
    let now = now.map(|now| [now, 0, 0, 0]);
    let mut before = [0_usize; 4];
    let new = now.as_ref().map_or(std::ptr::null(), |now| now.as_ptr());
    // SAFETY: the kernel reads and writes one `sigaction` each, which is no larger than these, and they outlive the call. No handler
    // is installed: it is ignored, or does what is the default.
    let set = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, before.as_mut_ptr(), SET_BYTES) };
    if set == 0 { Ok(before[0]) } else { Err(io::Error::last_os_error()) }
}

/// Moves descriptors of the plan away from their final numbers.
fn take_numbered(plan: &Plan, passed: &mut [Option<OwnedFd>]) -> Result<Vec<(u32, OwnedFd)>, StageError> {
    let highest = plan.program.descriptors.iter().map(|(number, _)| *number).max().unwrap_or(0);
    let lowest = i32::try_from(highest).unwrap_or(i32::MAX).saturating_add(1);
    let take = |(number, index): &(u32, usize)| {
        let open = passed.get_mut(*index).and_then(Option::take);
        let open = open.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok((*number, rustix::io::fcntl_dupfd_cloexec(&open, lowest)?))
    };
    plan.program.descriptors.iter().map(take).collect::<io::Result<_>>().at("find a descriptor")
}

/// Open under this number when the program is executed.
#[expect(unsafe_code, reason = "dup2 has no safe wrapper: it may close a descriptor that others own")]
fn move_to_number(open: &OwnedFd, number: u32) -> io::Result<()> {
    let number = libc::c_int::try_from(number).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the control socket and the descriptors still to be placed are above all of these numbers; any other owner of this
    // number is closed by execve, which comes next.
    match unsafe { libc::dup2(open.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Closes everything from `first` on at execve; until then the control socket can report an error.
#[expect(unsafe_code, reason = "close_range has no safe wrapper: it may close descriptors that others own")]
fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed now, so no owner's descriptor vanishes under it.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The plan, and its descriptors in the order of its indexes. The standard ones take their places.
fn wait_for_go(control: &OwnedFd) -> Result<(Plan, Vec<Option<OwnedFd>>), StageError> {
    const WAIT: &str = "wait for the session";
    let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let (Handover::Go { passed: count }, descriptors) =
        control::receive(control.as_fd()).at(WAIT)?.ok_or_else(gone).at(WAIT)?
    else {
        return Err(wrong()).at(WAIT);
    };
    let Ok([plan, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(descriptors) else {
        return Err(wrong()).at(WAIT);
    };
    let mut passed = Vec::with_capacity(count);
    while passed.len() < count {
        let (Handover::Passed { count: sent }, more) =
            control::receive(control.as_fd()).at(WAIT)?.ok_or_else(gone).at(WAIT)?
        else {
            return Err(wrong()).at(WAIT);
        };
        if sent == 0 || sent != more.len() {
            return Err(wrong()).at(WAIT);
        }
        passed.extend(more.into_iter().map(Some));
    }
    rustix::stdio::dup2_stdin(stdin).at("place standard input")?;
    rustix::stdio::dup2_stdout(stdout).at("place standard output")?;
    rustix::stdio::dup2_stderr(stderr).at("place standard error")?;
    Ok((read_sent(plan)?, passed))
}

fn still_supervised(control: &OwnedFd) -> Result<(), StageError> {
    let mut byte = [0];
    match nix::sys::socket::recv(control.as_raw_fd(), &mut byte, nix::sys::socket::MsgFlags::MSG_DONTWAIT) {
        Err(nix::errno::Errno::EAGAIN) => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)).at("check that the session lives"),
    }
}

/// A value too large for a packet, sent as a memory file.
pub(super) fn read_sent<T: serde::de::DeserializeOwned>(file: OwnedFd) -> Result<T, StageError> {
    let file = File::from(file);
    let size = file.metadata().at("look at the plan")?.len();
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0).at("read the plan")?;
    control::decode(&bytes).at("understand the plan")
}
