#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

use super::super::calls::*;
use super::*;

const BOTH: [Architecture; 2] = [Architecture::X86_64, Architecture::Aarch64];

/// A program of one architecture, wherever this runs.
#[derive(Clone)]
struct Compiled {
    architecture: Architecture,
    program: Program,
}

impl Compiled {
    fn new(architecture: Architecture, filter: Filter, tier: Tier, refusal: Refusal) -> Self {
        Self { architecture, program: compile_for(architecture, filter, tier, refusal) }
    }

    /// As most sandboxes have it, on each architecture.
    fn plain() -> [Self; 2] {
        BOTH.map(|here| Self::new(here, Filter::AllPrograms, Tier::Namespaces, Refusal::Silent))
    }

    fn number(&self, number: u32, arguments: [u32; 3]) -> u32 {
        execute(&self.program, number, self.architecture.audit(), arguments)
    }

    fn call(&self, call: Call, arguments: [u32; 3]) -> u32 {
        self.number(call.number_on(self.architecture).unwrap(), arguments)
    }
}

/// Runs the program as the kernel would.
fn execute(program: &Program, number: u32, architecture: u32, arguments: [u32; 3]) -> u32 {
    let (mut at, mut accumulator, mut steps) = (0, 0, 0);
    loop {
        let instruction = program.0[at];
        at += 1;
        steps += 1;
        assert!(steps < 60, "the search is not a tree");
        let taken = |yes: bool| usize::from(if yes { instruction.jump_true } else { instruction.jump_false });
        match instruction.code {
            LOAD_WORD => {
                accumulator = match instruction.k {
                    NUMBER => number,
                    ARCHITECTURE => architecture,
                    offset => arguments[((offset - ARGUMENTS) / 8) as usize],
                }
            }
            JUMP_ALWAYS => at += instruction.k as usize,
            JUMP_EQUAL => at += taken(accumulator == instruction.k),
            JUMP_AT_LEAST => at += taken(accumulator >= instruction.k),
            JUMP_ANY_BIT => at += taken(accumulator & instruction.k != 0),
            AND => accumulator &= instruction.k,
            RETURN => return instruction.k,
            other => panic!("unknown instruction {other}"),
        }
    }
}

#[test]
fn seccomp_verdict_of_every_number_follows_its_rule() {
    for here in Compiled::plain() {
        for number in 0..700_u32 {
            let is_named = |call: &Call| call.number_on(here.architecture) == Some(number);
            let rule = RULES.iter().find(|rule| rule.calls.iter().any(is_named));
            let expected = match rule.map(|rule| rule.verdict) {
                Some(Verdict::Allow | Verdict::MissingFileHandler) => ALLOW,
                Some(Verdict::Ask) => ASK,
                Some(Verdict::Refuse) => errno(libc::EPERM),
                Some(Verdict::Missing) | None => errno(libc::ENOSYS),
                Some(Verdict::Check(_)) => continue,
            };
            assert_eq!(here.number(number, [0; 3]), expected, "{:?} {number}", here.architecture);
        }
        assert_eq!(here.number(0x3FFF_FFFF, [0; 3]), errno(libc::ENOSYS));
    }
}

const IDENTITY: Identity = Identity::of(1000, 100);

/// With a listener only the refusals are different, and none of them changes. If names are
/// guarded, only calls that change names are reported.
#[test]
fn listener_hears_refused_calls_and_nothing_more() {
    for here in BOTH {
        let compiled = |refusal, hears_renames| {
            let mut compiled = Compiled::new(here, Filter::AllPrograms, Tier::Namespaces, refusal);
            compiled.program = compiled.program.of(IDENTITY, hears_renames);
            compiled
        };
        let [silent, told] = [Refusal::Silent, Refusal::Told].map(|refusal| compiled(refusal, false));
        let hearing = compiled(Refusal::Told, true);
        let bits = libc::CLONE_NEWUSER.unsigned_abs() | 0o6000;
        for number in 0..700_u32 {
            for arguments in [[0; 3], [bits; 3], [0, bits, 0], [0, 0, bits]] {
                let [before, after] = [&silent, &told].map(|program| program.number(number, arguments));
                let is_told = after == ASK && before == errno(libc::EPERM);
                assert!(is_told || before == after, "{here:?} {number} {arguments:?}");
                let is_named = |call: &Call| call.number_on(here) == Some(number);
                let hears = |verdict: Verdict| match verdict {
                    Verdict::MissingFileHandler => true,
                    Verdict::Check(ArgumentCheck::NewName { .. }) => after == ALLOW,
                    _ => false,
                };
                let is_heard =
                    RULES.iter().any(|rule| hears(rule.verdict) && rule.calls.iter().any(is_named));
                assert_eq!(hearing.number(number, arguments), if is_heard { ASK } else { after }, "{number}");
            }
        }
        for (flags, heard) in [(libc::O_RDONLY, ALLOW), (libc::O_WRONLY, ASK), (libc::O_RDWR, ASK)] {
            assert_eq!(told.call(SYS_openat, [0, 0, flags.unsigned_abs()]), ALLOW);
            assert_eq!(hearing.call(SYS_openat, [0, 0, flags.unsigned_abs()]), heard);
        }
        assert_eq!(told.call(SYS_fchmodat, [0, 0, 0o2775]), ASK);
        assert_eq!(told.call(SYS_fchmodat, [0, 0, 0o775]), ALLOW);
    }
}

#[test]
fn system_calls_have_at_most_one_rule() {
    let mut seen = std::collections::BTreeSet::new();
    for rule in RULES {
        assert!(!rule.why.is_empty());
        for call in rule.calls {
            assert!(seen.insert(call.name), "{} stands in two rules", call.name);
        }
    }
}

#[test]
fn foreign_architectures_are_killed() {
    let [x86, arm] = Compiled::plain();
    let [of_x86, of_arm] = BOTH.map(Architecture::audit);
    assert_eq!(execute(&x86.program, 1, 0x4000_0003, [0; 3]), KILL_PROCESS, "i386");
    assert_eq!(execute(&x86.program, 0x4000_0001, of_x86, [0; 3]), KILL_PROCESS, "x32");
    assert_eq!(execute(&x86.program, u32::MAX, of_x86, [0; 3]), errno(libc::ENOSYS), "skipped by a tracer");
    assert_eq!(execute(&x86.program, 1, of_arm, [0; 3]), KILL_PROCESS);
    assert_eq!(execute(&arm.program, 1, 0x4000_0028, [0; 3]), KILL_PROCESS, "arm of 32 bits");
    assert_eq!(execute(&arm.program, 1, of_x86, [0; 3]), KILL_PROCESS);
    assert_eq!(execute(&arm.program, 0x4000_0001, of_arm, [0; 3]), errno(libc::ENOSYS));
}

#[test]
fn seccomp_allows_only_ordinary_sockets() {
    for here in Compiled::plain() {
        let socket = |family: i32, kind: i32, protocol: i32| {
            here.call(SYS_socket, [family.unsigned_abs(), kind.unsigned_abs(), protocol.unsigned_abs()])
        };
        let cloexec = libc::SOCK_CLOEXEC;
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | cloexec, 0), ALLOW);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP), ALLOW);
        let pair = |family: i32| {
            here.call(SYS_socketpair, [family.unsigned_abs(), libc::SOCK_STREAM.unsigned_abs(), 0])
        };
        assert_eq!(pair(libc::AF_UNIX), ALLOW);
        assert_ne!(pair(libc::AF_VSOCK), ALLOW);
        assert_ne!(pair(libc::AF_TIPC), ALLOW);
        assert_eq!(socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE), ALLOW);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP), errno(libc::EPERM));
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM, 262), errno(libc::EPROTONOSUPPORT), "MPTCP");
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM, 132), errno(libc::EPROTONOSUPPORT), "SCTP");
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 9), errno(libc::EPROTONOSUPPORT), "audit");
        for family in [17, 38, 40, 44, 15, 21, 29, 30, 31, 43] {
            assert_eq!(socket(family, libc::SOCK_STREAM, 0), errno(libc::EAFNOSUPPORT), "family {family}");
        }
    }
}

#[test]
fn namespaces_and_terminal_injection_are_refused() {
    let newuser = libc::CLONE_NEWUSER.unsigned_abs();
    for here in Compiled::plain() {
        assert_eq!(here.call(SYS_clone, [newuser, 0, 0]), errno(libc::EPERM));
        assert_eq!(here.call(SYS_clone, [libc::SIGCHLD.unsigned_abs(), 0, 0]), ALLOW);
        assert_eq!(here.call(SYS_unshare, [newuser, 0, 0]), errno(libc::EPERM));
        assert_eq!(here.call(SYS_unshare, [libc::CLONE_FS.unsigned_abs(), 0, 0]), ALLOW);
        assert_eq!(here.call(SYS_clone3, [0; 3]), errno(libc::ENOSYS));
        assert_eq!(here.call(SYS_ioctl, [0, 0x5412, 0]), errno(libc::EPERM), "TIOCSTI");
        assert_eq!(here.call(SYS_ioctl, [0, 0x541C, 0]), errno(libc::EPERM), "TIOCLINUX");
        assert_eq!(here.call(SYS_ioctl, [0, 0x5423, 0]), errno(libc::EPERM), "TIOCSETD");
        assert_eq!(here.call(SYS_ioctl, [0, 0x5413, 0]), ALLOW, "TIOCGWINSZ");
    }
}

/// The requests and bits that the filter names by number are those of this architecture too.
#[test]
fn seccomp_constants_match_this_architecture() {
    assert_eq!(libc::TIOCSTI, 0x5412);
    assert_eq!(libc::TIOCSETD, 0x5423);
    assert_eq!(libc::TIOCEXCL, 0x540C);
    assert_eq!(FILE_CREATION, 0o20_000_100);
}

#[test]
fn memfd_is_never_executable_where_programs_are_listed() {
    for here in BOTH {
        let memory = |filter: Filter, flags: u32| {
            Compiled::new(here, filter, Tier::Namespaces, Refusal::Silent)
                .call(SYS_memfd_create, [0, flags, 0])
        };
        assert_eq!(memory(Filter::AllPrograms, libc::MFD_CLOEXEC), ALLOW);
        assert_eq!(memory(Filter::ListedPrograms, libc::MFD_CLOEXEC), errno(libc::ENOSYS));
        assert_eq!(memory(Filter::ListedPrograms, libc::MFD_EXEC), errno(libc::ENOSYS));
        assert_eq!(memory(Filter::ListedPrograms, libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL), ALLOW);
    }
}

#[test]
fn seccomp_in_the_container_tier_protects_other_processes_and_files() {
    for here in BOTH {
        let here = Compiled::new(here, Filter::AllPrograms, Tier::Container, Refusal::Silent);
        for call in [SYS_sched_setaffinity, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_setattr] {
            assert_eq!(here.call(call, [0, 0, 0]), ALLOW);
            assert_eq!(here.call(call, [4711, 0, 0]), errno(libc::EPERM));
        }
        for (call, process, of_user) in [(SYS_setpriority, 0, 2), (SYS_ioprio_set, 1, 3)] {
            assert_eq!(here.call(call, [process, 0, 10]), ALLOW);
            assert_eq!(here.call(call, [process, 4711, 10]), errno(libc::EPERM));
            assert_eq!(here.call(call, [of_user, 0, 10]), errno(libc::EPERM));
        }
        assert_eq!(here.call(SYS_setxattr, [0; 3]), errno(libc::ENOSYS));
        assert_eq!(here.call(SYS_fsetxattr, [0; 3]), ALLOW);
        assert_eq!(here.call(SYS_connect, [0; 3]), ASK);
    }
}

/// Other ids are refused as to an ordinary user: the kernel would say that they mean nothing here.
#[test]
fn seccomp_allows_only_own_ids() {
    let refused = errno(libc::EPERM);
    for mut here in Compiled::plain() {
        here.program = here.program.of(IDENTITY, false);
        for (call, arguments, expected) in [
            (SYS_fchown, [3, 1000, 100], ALLOW),
            (SYS_fchown, [3, u32::MAX, u32::MAX], ALLOW),
            (SYS_fchown, [3, 1000, u32::MAX], ALLOW),
            (SYS_fchown, [3, 0, 100], refused),
            (SYS_fchown, [3, 1000, 1000], refused),
            (SYS_fchown, [3, u32::MAX, 0], refused),
            (SYS_setresuid, [1000, u32::MAX, 1000], ALLOW),
            (SYS_setresuid, [1000, 1000, 0], refused),
            (SYS_setgid, [100, 0, 0], ALLOW),
            (SYS_setgid, [1000, 0, 0], refused),
        ] {
            assert_eq!(here.call(call, arguments), expected, "{call:?} {arguments:?}");
        }
    }
    // Without a user namespace there are all of them, and the kernel decides.
    let outside = Compiled::new(Architecture::X86_64, Filter::AllPrograms, Tier::Container, Refusal::Silent);
    assert_eq!(outside.call(SYS_fchown, [3, 0, 0]), ALLOW);
}

#[test]
fn seccomp_program_is_small() {
    for here in BOTH {
        let told = Compiled::new(here, Filter::ListedPrograms, Tier::Namespaces, Refusal::Told);
        let length = told.program.0.len();
        assert!(length < 545, "{length} instructions for {here:?}");
    }
}
