//! Runs inside the test sandboxes: `agentsh __probe FACTS NAME…` tries what its layer must refuse and what it must
//! allow, and prints one JSON line for each name.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::attempt::{self, Try, errno};

/// Each of three processes takes this much of a limit of [`MEMORY_LIMIT`].
const MEMORY_PIECE: usize = 48 << 20;
pub const MEMORY_LIMIT: u64 = 64 << 20;
const MEMORY_PROCESSES: usize = 3;
/// Longer than the watchdog needs to look twice.
const MEMORY_HELD: Duration = Duration::from_millis(700);
pub const PIDS_LIMIT: u64 = 24;
const MAX_FORKS: usize = 100;
/// So little that a loop gets more even on a busy machine.
pub const CPU_PERCENT: u64 = 5;
/// Processor time and time on the wall, whichever ends first.
const SPIN_CPU: Duration = Duration::from_millis(15);
const SPIN_WALL: Duration = Duration::from_millis(1200);
/// The namespaces whose identity is compared with the host's.
pub const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// Shown writable to one probe, and opened by no Landlock rule: every refusal there is one of Landlock.
pub const LANDLOCK_ONLY: &str = "/run/landlock-only";

/// The facts about the outside that the inside needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProbeFacts {
    /// A process of the host.
    pub pid: i32,
    /// A listener on the host's loopback.
    pub port: u16,
    /// A listener on an abstract socket of the host.
    pub abstract_name: String,
    /// Key of a queue in the host's IPC namespace.
    pub queue: i32,
    pub home: PathBuf,
    pub project: PathBuf,
    /// A file without a grant.
    pub outside: PathBuf,
    /// A file whose pinned bytes are shown.
    pub pinned: PathBuf,
}

/// One probe's attempts and observations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub probe: String,
    /// Must be refused.
    pub forbidden: Vec<Try>,
    /// Must come through: a sandbox that refuses everything protects nothing anyone would use.
    pub allowed: Vec<Try>,
    pub facts: BTreeMap<String, String>,
}

/// Runs the probes named by the arguments.
#[must_use]
pub fn main(facts: &ProbeFacts, names: &[String]) -> u8 {
    for name in names {
        let mut answer = run(name, facts);
        answer.probe.clone_from(name);
        let Ok(mut line) = serde_json::to_vec(&answer) else { return 1 };
        line.push(b'\n');
        if std::io::stdout().write_all(&line).is_err() {
            return 1;
        }
    }
    if names.iter().any(|name| name == "linger") { wait_20_seconds() } else { 0 }
}

fn run(name: &str, facts: &ProbeFacts) -> Answer {
    match name {
        "namespaces" => namespaces(facts),
        "mounts" => mounts(facts),
        "network" => network(facts),
        "landlock" => landlock(),
        "seccomp" => Answer {
            forbidden: attempt::forbidden_calls(),
            allowed: vec![
                Try::new("unshare(0)", nix::sched::unshare(nix::sched::CloneFlags::empty())),
                Try::new(
                    "socket(AF_UNIX)",
                    std::os::unix::net::UnixDatagram::unbound().map_err(|e| errno(&e)),
                ),
            ],
            ..Answer::default()
        },
        "capabilities" => capabilities(),
        "no-new-privileges" => no_new_privileges(),
        "terminal" => terminal(),
        "identity" => identity(facts),
        "pinned" => probe_pinned_file(facts),
        "pids" => pids(),
        "cpu" => cpu(),
        "memory" => memory(),
        // Its children hold standard output; the line says that they all run.
        "linger" => lingering_children(),
        _ => Answer::default(),
    }
}

fn namespaces(facts: &ProbeFacts) -> Answer {
    let mut answer = Answer::default();
    for name in NAMESPACES {
        let link = std::fs::read_link(Path::new("/proc/self/ns").join(name)).unwrap_or_default();
        answer.facts.insert(name.to_owned(), link.display().to_string());
    }
    answer.facts.insert("uid_map".to_owned(), text("/proc/self/uid_map"));
    answer.facts.insert("uid".to_owned(), rustix::process::geteuid().as_raw().to_string());
    if is_foreign(facts.pid) {
        let process = nix::unistd::Pid::from_raw(facts.pid);
        answer.forbidden.push(Try::new("signal a host process", nix::sys::signal::kill(process, None)));
    }
    answer.forbidden.push(Try::new("open a host message queue", queue(facts.queue, false)));
    let own = u32::try_from(facts.queue).unwrap_or_default().wrapping_add(1).cast_signed();
    answer.allowed.push(Try::new("make an own message queue", queue(own, true)));
    answer
}

fn mounts(facts: &ProbeFacts) -> Answer {
    let hook = facts.project.join(".git/hooks/pre-commit");
    let mut forbidden = vec![
        Try::new("create /agentsh-doctor", attempt::create(Path::new("/agentsh-doctor"))),
        Try::new("create /usr/agentsh-doctor", attempt::create(Path::new("/usr/agentsh-doctor"))),
        Try::new("read a file nobody granted", attempt::read(&facts.outside)),
        Try::new("read ~/.ssh/id_doctor", attempt::read(&facts.home.join(".ssh/id_doctor"))),
        Try::new("change .git/hooks/pre-commit", attempt::append(&hook, "echo changed\n")),
    ];
    if is_foreign(facts.pid) {
        let stat = Path::new("/proc").join(facts.pid.to_string()).join("stat");
        forbidden.push(Try::new("see a host process in /proc", attempt::peek(&stat)));
    }
    let allowed = vec![
        Try::new("create a file in the project", attempt::create(&facts.project.join("made-inside"))),
        Try::new("read .git/hooks/pre-commit", attempt::read(&hook)),
        Try::new("create a file in /tmp", attempt::create(Path::new("/tmp/agentsh-doctor"))),
    ];
    Answer { forbidden, allowed, ..Answer::default() }
}

fn network(facts: &ProbeFacts) -> Answer {
    // Addresses that are reserved for documentation: no server is disturbed if one is reached after all.
    let (four, six) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let host: SocketAddr = (Ipv4Addr::LOCALHOST, facts.port).into();
    let forbidden = vec![
        Try::new("connect to 192.0.2.1:443", attempt::connect((four, 443).into())),
        Try::new("connect to [2001:db8::1]:443", attempt::connect((six, 443).into())),
        Try::new("send UDP to 192.0.2.1:53", attempt::send_datagram((four, 53).into())),
        Try::new("connect to the host's loopback", attempt::connect(host)),
        Try::new("connect to the host's abstract socket", attempt::connect_abstract(&facts.abstract_name)),
        Try::new("a socket to the hypervisor (vsock)", attempt::vsock()),
    ];
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr().map(|at| (listener, at)));
    let own = own.map_err(|error| errno(&error)).and_then(|(_listener, at)| attempt::connect(at));
    Answer {
        forbidden,
        allowed: vec![Try::new("connect to the sandbox's own loopback", own)],
        ..Answer::default()
    }
}

fn landlock() -> Answer {
    let closed = Path::new(LANDLOCK_ONLY);
    let there = closed.join("there");
    Answer {
        forbidden: vec![
            Try::new(
                "create a file where only Landlock says no",
                attempt::create(&closed.join("made-inside")),
            ),
            Try::new("append to a file where only Landlock says no", attempt::append(&there, "x")),
        ],
        allowed: vec![Try::new("read there", attempt::read(&there))],
        ..Answer::default()
    }
}

fn capabilities() -> Answer {
    let mut answer = Answer::default();
    for line in text("/proc/self/status").lines() {
        if let Some((name, value)) = line.split_once(":\t").filter(|(name, _)| name.starts_with("Cap")) {
            answer.facts.insert(name.to_owned(), value.to_owned());
        }
    }
    let device = nix::sys::stat::makedev(1, 3);
    let node = nix::sys::stat::mknod(
        "/tmp/device",
        nix::sys::stat::SFlag::S_IFCHR,
        nix::sys::stat::Mode::S_IRUSR,
        device,
    );
    answer.forbidden.push(Try::new("chroot", nix::unistd::chroot("/")));
    answer.forbidden.push(Try::new("make a device", node));
    answer.forbidden.push(Try::new("become root", nix::unistd::setuid(nix::unistd::Uid::from_raw(0))));
    answer
}

fn no_new_privileges() -> Answer {
    let mut answer = Answer::default();
    let is_set = nix::sys::prctl::get_no_new_privs();
    answer.facts.insert("set".to_owned(), is_set.is_ok_and(|set| set).to_string());
    answer.forbidden.push(attempt::regain_privileges());
    answer
}

fn terminal() -> Answer {
    // No terminal: without the filter the answer would be ENOTTY, and nothing could be typed anywhere.
    let forbidden = match std::fs::File::open("/dev/null") {
        Ok(file) => attempt::type_into_terminal(&file),
        Err(_) => Vec::new(),
    };
    Answer { forbidden, ..Answer::default() }
}

fn identity(facts: &ProbeFacts) -> Answer {
    let made = attempt::create(&facts.project.join("owned"));
    let mut answer =
        Answer { allowed: vec![Try::new("create a file in the project", made)], ..Answer::default() };
    answer.facts.insert("uid".to_owned(), rustix::process::geteuid().as_raw().to_string());
    answer
}

fn probe_pinned_file(facts: &ProbeFacts) -> Answer {
    let mut answer = Answer::default();
    answer
        .forbidden
        .push(Try::new("change the pinned file from inside", attempt::append(&facts.pinned, "x")));
    let bytes = attempt::read(&facts.pinned);
    answer.facts.insert(
        "bytes".to_owned(),
        String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned(),
    );
    answer.allowed.push(Try::new("read the pinned file", bytes));
    answer
}

fn pids() -> Answer {
    let (made, refused) = attempt::fork_until_refused(MAX_FORKS);
    let mut answer =
        Answer { forbidden: vec![Try::new("start one more process", refused)], ..Answer::default() };
    answer.facts.insert("made".to_owned(), made.to_string());
    answer
}

fn cpu() -> Answer {
    let started = Instant::now();
    let mut turns = 0_u64;
    while started.elapsed() < SPIN_WALL && attempt::processor_time() < SPIN_CPU {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
    Answer::default()
}

/// Three processes that together take more than the limit, each of them less.
fn memory() -> Answer {
    let children: Vec<_> = (0..MEMORY_PROCESSES)
        .map(|_| {
            attempt::in_child(|| {
                let mut piece: Vec<u8> = Vec::new();
                if piece.try_reserve_exact(MEMORY_PIECE).is_err() {
                    return 1;
                }
                piece.resize(MEMORY_PIECE, 1);
                std::hint::black_box(&piece);
                std::thread::sleep(MEMORY_HELD);
                0
            })
        })
        .collect();
    let mut answer = Answer::default();
    for child in children {
        use nix::sys::wait::{WaitStatus, waitpid};
        let result = match child.map(|child| waitpid(child, None)) {
            Ok(Ok(WaitStatus::Exited(_, 0))) => Ok(()),
            Ok(Ok(WaitStatus::Exited(..))) => Err(Errno::ENOMEM),
            Ok(Ok(WaitStatus::Signaled(..))) => Err(Errno::ECANCELED),
            Ok(Ok(_)) => Err(Errno::EINVAL),
            Ok(Err(error)) | Err(error) => Err(error),
        };
        answer.forbidden.push(Try::new("hold 48 MiB", result));
    }
    answer
}

fn lingering_children() -> Answer {
    let stay = || {
        std::thread::sleep(Duration::from_secs(20));
        0
    };
    let child = attempt::in_child(|| {
        // A separate session and a grandchild: as far as a process can get from its starter.
        let _ = nix::unistd::setsid();
        let _ = attempt::in_child(stay);
        stay()
    });
    Answer { allowed: vec![Try::new("start a daemon", child)], ..Answer::default() }
}

fn wait_20_seconds() -> u8 {
    std::thread::sleep(Duration::from_secs(20));
    0
}

/// A small number may be a process of the sandbox itself.
fn is_foreign(pid: i32) -> bool {
    pid > 64
}

fn queue(key: i32, make: bool) -> Result<(), Errno> {
    attempt::message_queue(key, make).map(drop)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
