//! From the rule table to a BPF program: architecture check, foreign-ABI check, then a binary search over
//! ranges of system call numbers.

use super::in_a_container::IN_A_CONTAINER;
use super::rule::{ArgumentCheck, Filter, Verdict};
use super::rules::RULES;
use crate::plan::Tier;

/// The layout of the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub k: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(pub Vec<Instruction>);

const LOAD_WORD: u16 = 0x20;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// x32 calls carry this bit on the same architecture value.
const X32_BIT: u32 = 0x4000_0000;

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ASK: u32 = 0x7FC0_0000;

/// `O_CREAT`, and of `O_TMPFILE` the bit that is not `O_DIRECTORY`.
const MAKES_A_FILE: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).unsigned_abs();

/// Of `memfd_create`: not executable, and cannot become so.
const MFD_NOEXEC_SEAL: u32 = 8;

/// What a range of numbers leads to.
#[derive(Clone, Copy, PartialEq)]
struct Range {
    first: u32,
    verdict: Verdict,
}

/// What happens to a call that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// EPERM, and nobody hears of it.
    Silent,
    /// Whoever holds the filter's listener hears of it, and answers EPERM.
    Told,
}

/// What the leaves of one program have in common.
#[derive(Clone, Copy)]
struct Leaves {
    filter: Filter,
    /// The value that a refused call gets.
    refused: u32,
}

/// The whole program. Deterministic, so a test can compare two builds.
#[must_use]
pub fn compile(filter: Filter, tier: Tier, refusal: Refusal) -> Program {
    let refused = match refusal {
        Refusal::Silent => errno(libc::EPERM),
        Refusal::Told => ASK,
    };
    let mut code = vec![
        statement(LOAD_WORD, ARCHITECTURE),
        jump(JUMP_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        statement(RETURN, KILL_PROCESS),
        statement(LOAD_WORD, NUMBER),
        jump(JUMP_AT_LEAST, X32_BIT, 0, 1),
        statement(RETURN, KILL_PROCESS),
    ];
    code.extend(search(&ranges(tier), Leaves { filter, refused }));
    Program(code)
}

/// Ranges that cover every number, neighbours of one verdict merged. A number that no rule names does not
/// exist in the sandbox.
fn ranges(tier: Tier) -> Vec<Range> {
    let mut table = std::collections::BTreeMap::new();
    let further = match tier {
        Tier::Namespaces => &[],
        Tier::Container => IN_A_CONTAINER,
    };
    for rule in RULES.iter().chain(further) {
        for number in rule.calls {
            table.insert(u32::try_from(*number).unwrap_or(u32::MAX), rule.verdict);
        }
    }
    let unknown = Verdict::Missing;
    let mut ranges = vec![Range { first: 0, verdict: unknown }];
    let mut push = |first: u32, verdict: Verdict| match ranges.last_mut() {
        Some(last) if last.verdict == verdict && verdict.is_plain() => {}
        Some(last) if last.first == first => last.verdict = verdict,
        _ => ranges.push(Range { first, verdict }),
    };
    for (&number, &verdict) in &table {
        push(number, verdict);
        if !table.contains_key(&(number + 1)) {
            push(number + 1, unknown);
        }
    }
    ranges
}

fn search(ranges: &[Range], leaves: Leaves) -> Vec<Instruction> {
    match ranges {
        [] => vec![statement(RETURN, errno(libc::ENOSYS))],
        [only] => leaf(only.verdict, leaves),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let (low, middle, high) = (search(low, leaves), high[0].first, search(high, leaves));
            let distance = u32::try_from(low.len()).unwrap_or(u32::MAX);
            // A conditional jump reaches 255 instructions; the unconditional one reaches all.
            let mut code = vec![jump(JUMP_AT_LEAST, middle, 0, 1), statement(JUMP_ALWAYS, distance)];
            code.extend(low);
            code.extend(high);
            code
        }
    }
}

fn leaf(verdict: Verdict, leaves: Leaves) -> Vec<Instruction> {
    match verdict {
        Verdict::Allow => vec![statement(RETURN, ALLOW)],
        Verdict::Refuse => vec![statement(RETURN, leaves.refused)],
        Verdict::Missing => vec![statement(RETURN, errno(libc::ENOSYS))],
        Verdict::Check(check) => argument_check(check, leaves),
        Verdict::Ask => vec![statement(RETURN, ASK)],
    }
}

fn argument_check(check: ArgumentCheck, leaves: Leaves) -> Vec<Instruction> {
    match check {
        ArgumentCheck::NewFile { flags, mode, forbidden } => vec![
            argument_word(flags),
            jump(JUMP_ANY_BIT, MAKES_A_FILE, 0, 3),
            argument_word(mode),
            jump(JUMP_ANY_BIT, forbidden, 0, 1),
            statement(RETURN, leaves.refused),
            statement(RETURN, ALLOW),
        ],
        ArgumentCheck::NoBits { argument, forbidden } => vec![
            argument_word(argument),
            jump(JUMP_ANY_BIT, forbidden, 0, 1),
            statement(RETURN, leaves.refused),
            statement(RETURN, ALLOW),
        ],
        ArgumentCheck::NotOneOf { argument, values } => {
            let mut code = vec![argument_word(argument)];
            for value in values {
                code.push(jump(JUMP_EQUAL, *value, 0, 1));
                code.push(statement(RETURN, errno(libc::EPERM)));
            }
            code.push(statement(RETURN, ALLOW));
            code
        }
        ArgumentCheck::OneOf { argument, values } => {
            let mut code = vec![argument_word(argument)];
            for value in values {
                code.push(jump(JUMP_EQUAL, *value, 0, 1));
                code.push(statement(RETURN, ALLOW));
            }
            code.push(statement(RETURN, errno(libc::EPERM)));
            code
        }
        ArgumentCheck::Oneself { kind } => vec![
            argument_word(0),
            jump(JUMP_EQUAL, kind, 0, 2),
            argument_word(1),
            jump(JUMP_EQUAL, 0, 1, 0),
            statement(RETURN, errno(libc::EPERM)),
            statement(RETURN, ALLOW),
        ],
        ArgumentCheck::Socket => socket_check(),
        ArgumentCheck::Stream => stream_check(),
        ArgumentCheck::ConnectedPair => {
            let mut code = vec![
                argument_word(0),
                jump(JUMP_EQUAL, libc::AF_UNIX.unsigned_abs(), 1, 0),
                statement(RETURN, errno(libc::EPERM)),
            ];
            code.extend(allowed_types(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET]));
            code.push(statement(RETURN, ALLOW));
            code
        }
        ArgumentCheck::MemoryFile => match leaves.filter {
            Filter::AllPrograms => vec![statement(RETURN, ALLOW)],
            Filter::ListedPrograms => vec![
                argument_word(1),
                jump(JUMP_ANY_BIT, MFD_NOEXEC_SEAL, 0, 1),
                statement(RETURN, ALLOW),
                // As on a kernel without it: programs that only want memory take their older path.
                statement(RETURN, errno(libc::ENOSYS)),
            ],
        },
    }
}

/// `socket(family, type, protocol)`: only what ordinary TCP, UDP and local programs use.
fn socket_check() -> Vec<Instruction> {
    const TYPE_MASK: u32 = 0xF;
    let stream_or_datagram = |refusal: i32| {
        [
            argument_word(1),
            statement(AND, TYPE_MASK),
            jump(JUMP_EQUAL, libc::SOCK_STREAM.unsigned_abs(), 2, 0),
            jump(JUMP_EQUAL, libc::SOCK_DGRAM.unsigned_abs(), 1, 0),
            statement(RETURN, errno(refusal)),
        ]
    };
    let mut internet = stream_or_datagram(libc::EPERM).to_vec();
    internet.push(argument_word(2));
    for protocol in [0, libc::IPPROTO_TCP.unsigned_abs(), libc::IPPROTO_UDP.unsigned_abs()] {
        internet.push(jump(JUMP_EQUAL, protocol, 0, 1));
        internet.push(statement(RETURN, ALLOW));
    }
    // Callers that try MPTCP first fall back to TCP on this error.
    internet.push(statement(RETURN, errno(libc::EPROTONOSUPPORT)));
    let netlink = [
        argument_word(2),
        jump(JUMP_EQUAL, libc::NETLINK_ROUTE.unsigned_abs(), 0, 1),
        statement(RETURN, ALLOW),
        statement(RETURN, errno(libc::EPROTONOSUPPORT)),
    ];
    let length = |block: &[Instruction]| u8::try_from(block.len()).unwrap_or(u8::MAX);
    let mut code = vec![
        argument_word(0),
        jump(JUMP_EQUAL, libc::AF_UNIX.unsigned_abs(), 0, 1),
        statement(RETURN, ALLOW),
        jump(JUMP_EQUAL, libc::AF_NETLINK.unsigned_abs(), 0, length(&netlink)),
    ];
    code.extend(netlink);
    code.extend([
        jump(JUMP_EQUAL, libc::AF_INET.unsigned_abs(), 2, 0),
        jump(JUMP_EQUAL, libc::AF_INET6.unsigned_abs(), 1, 0),
        statement(RETURN, errno(libc::EAFNOSUPPORT)),
    ]);
    code.extend(internet);
    code
}

/// Goes on behind it for these types, and refuses all others.
fn allowed_types(types: &[i32]) -> Vec<Instruction> {
    const TYPE_MASK: u32 = 0xF;
    let mut code = vec![argument_word(1), statement(AND, TYPE_MASK)];
    let mut left = u8::try_from(types.len()).unwrap_or(u8::MAX);
    for kind in types {
        code.push(jump(JUMP_EQUAL, kind.unsigned_abs(), left, 0));
        left = left.saturating_sub(1);
    }
    code.push(statement(RETURN, errno(libc::EPERM)));
    code
}

/// `socket(family, type, protocol)` where the network is everybody's: local and TCP streams, which reach nothing before
/// they are connected, and the kernel's description of interfaces.
fn stream_check() -> Vec<Instruction> {
    let mut local = allowed_types(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET]);
    local.push(statement(RETURN, ALLOW));
    let mut internet = allowed_types(&[libc::SOCK_STREAM]);
    internet.push(argument_word(2));
    for protocol in [0, libc::IPPROTO_TCP.unsigned_abs()] {
        internet.push(jump(JUMP_EQUAL, protocol, 0, 1));
        internet.push(statement(RETURN, ALLOW));
    }
    internet.push(statement(RETURN, errno(libc::EPROTONOSUPPORT)));
    let netlink = [
        argument_word(2),
        jump(JUMP_EQUAL, libc::NETLINK_ROUTE.unsigned_abs(), 0, 1),
        statement(RETURN, ALLOW),
        statement(RETURN, errno(libc::EPROTONOSUPPORT)),
    ];
    let length = |block: &[Instruction]| u8::try_from(block.len()).unwrap_or(u8::MAX);
    let mut code = vec![argument_word(0), jump(JUMP_EQUAL, libc::AF_UNIX.unsigned_abs(), 0, length(&local))];
    code.extend(local);
    code.push(jump(JUMP_EQUAL, libc::AF_NETLINK.unsigned_abs(), 0, length(&netlink)));
    code.extend(netlink);
    code.extend([
        jump(JUMP_EQUAL, libc::AF_INET.unsigned_abs(), 2, 0),
        jump(JUMP_EQUAL, libc::AF_INET6.unsigned_abs(), 1, 0),
        statement(RETURN, errno(libc::EAFNOSUPPORT)),
    ]);
    code.extend(internet);
    code
}

/// The low half: every argument checked here is an `int` or 32 bits of flags in the kernel.
fn argument_word(argument: u32) -> Instruction {
    statement(LOAD_WORD, ARGUMENTS + 8 * argument)
}

fn errno(number: i32) -> u32 {
    ERRNO | number.unsigned_abs()
}

fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, k }
}

fn jump(code: u16, k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code, jump_true, jump_false, k }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

    use super::*;

    /// Runs the program as the kernel would.
    fn run(number: u32, architecture: u32, arguments: [u32; 3]) -> u32 {
        run_under(Filter::AllPrograms, number, architecture, arguments)
    }

    fn run_under(filter: Filter, number: u32, architecture: u32, arguments: [u32; 3]) -> u32 {
        execute(&compile(filter, Tier::Namespaces, Refusal::Silent), number, architecture, arguments)
    }

    fn execute(program: &Program, number: u32, architecture: u32, arguments: [u32; 3]) -> u32 {
        let (mut at, mut accumulator, mut steps) = (0, 0, 0);
        loop {
            let instruction = program.0[at];
            at += 1;
            steps += 1;
            assert!(steps < 60, "the search is not a tree");
            let taken =
                |yes: bool| usize::from(if yes { instruction.jump_true } else { instruction.jump_false });
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

    fn call(number: i64, arguments: [u32; 3]) -> u32 {
        run(u32::try_from(number).unwrap(), AUDIT_ARCH_X86_64, arguments)
    }

    #[test]
    fn every_number_gets_the_verdict_of_its_rule() {
        for number in 0..700_i64 {
            let rule = RULES.iter().find(|rule| rule.calls.contains(&number));
            let expected = match rule.map(|rule| rule.verdict) {
                Some(Verdict::Allow) => ALLOW,
                Some(Verdict::Ask) => ASK,
                Some(Verdict::Refuse) => errno(libc::EPERM),
                Some(Verdict::Missing) | None => errno(libc::ENOSYS),
                Some(Verdict::Check(_)) => continue,
            };
            assert_eq!(call(number, [0; 3]), expected, "system call {number}");
        }
        assert_eq!(call(0x3FFF_FFFF, [0; 3]), errno(libc::ENOSYS));
    }

    /// Where somebody listens, nothing but the refusals is different, and none of them becomes anything else.
    #[test]
    fn what_is_refused_is_told_and_nothing_more() {
        let [silent, told] = [Refusal::Silent, Refusal::Told]
            .map(|refusal| compile(Filter::AllPrograms, Tier::Namespaces, refusal));
        let bits = libc::CLONE_NEWUSER.unsigned_abs() | 0o6000;
        for number in 0..700_u32 {
            for arguments in [[0; 3], [bits; 3], [0, bits, 0], [0, 0, bits]] {
                let [before, after] =
                    [&silent, &told].map(|program| execute(program, number, AUDIT_ARCH_X86_64, arguments));
                let is_told = after == ASK && before == errno(libc::EPERM);
                assert!(is_told || before == after, "system call {number} {arguments:?}");
            }
        }
        let chmod = u32::try_from(libc::SYS_chmod).unwrap();
        assert_eq!(execute(&told, chmod, AUDIT_ARCH_X86_64, [0, 0o2775, 0]), ASK);
        assert_eq!(execute(&told, chmod, AUDIT_ARCH_X86_64, [0, 0o775, 0]), ALLOW);
    }

    #[test]
    fn no_number_has_two_rules() {
        let mut seen = std::collections::BTreeSet::new();
        for rule in RULES {
            assert!(!rule.why.is_empty());
            for number in rule.calls {
                assert!(seen.insert(number), "system call {number} stands in two rules");
            }
        }
    }

    #[test]
    fn foreign_architectures_are_killed() {
        assert_eq!(run(1, 0x4000_0003, [0; 3]), KILL_PROCESS, "i386");
        assert_eq!(run(X32_BIT | 1, AUDIT_ARCH_X86_64, [0; 3]), KILL_PROCESS, "x32");
    }

    #[test]
    fn sockets_are_of_the_ordinary_kinds() {
        let socket = |family: i32, kind: i32, protocol: i32| {
            call(libc::SYS_socket, [family.unsigned_abs(), kind.unsigned_abs(), protocol.unsigned_abs()])
        };
        let cloexec = libc::SOCK_CLOEXEC;
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | cloexec, 0), ALLOW);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP), ALLOW);
        let pair = |family: i32| {
            call(libc::SYS_socketpair, [family.unsigned_abs(), libc::SOCK_STREAM.unsigned_abs(), 0])
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

    #[test]
    fn namespaces_and_terminal_injection_are_refused() {
        let newuser = libc::CLONE_NEWUSER.unsigned_abs();
        assert_eq!(call(libc::SYS_clone, [newuser, 0, 0]), errno(libc::EPERM));
        assert_eq!(call(libc::SYS_clone, [libc::SIGCHLD.unsigned_abs(), 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_unshare, [newuser, 0, 0]), errno(libc::EPERM));
        assert_eq!(call(libc::SYS_unshare, [libc::CLONE_FS.unsigned_abs(), 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_clone3, [0; 3]), errno(libc::ENOSYS));
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5412, 0]), errno(libc::EPERM), "TIOCSTI");
        assert_eq!(call(libc::SYS_ioctl, [0, 0x541C, 0]), errno(libc::EPERM), "TIOCLINUX");
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5423, 0]), errno(libc::EPERM), "TIOCSETD");
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5413, 0]), ALLOW, "TIOCGWINSZ");
    }

    #[test]
    fn where_programs_are_listed_memory_is_none() {
        let memory = |filter: Filter, flags: u32| {
            let number = u32::try_from(libc::SYS_memfd_create).unwrap();
            run_under(filter, number, AUDIT_ARCH_X86_64, [0, flags, 0])
        };
        assert_eq!(memory(Filter::AllPrograms, libc::MFD_CLOEXEC), ALLOW);
        assert_eq!(memory(Filter::ListedPrograms, libc::MFD_CLOEXEC), errno(libc::ENOSYS));
        assert_eq!(memory(Filter::ListedPrograms, libc::MFD_EXEC), errno(libc::ENOSYS));
        assert_eq!(memory(Filter::ListedPrograms, libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL), ALLOW);
    }

    #[test]
    fn in_a_container_other_processes_and_files_keep_what_they_have() {
        let program = compile(Filter::AllPrograms, Tier::Container, Refusal::Silent);
        let call = |number: i64, arguments: [u32; 3]| {
            execute(&program, u32::try_from(number).unwrap(), AUDIT_ARCH_X86_64, arguments)
        };
        for number in [
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setscheduler,
            libc::SYS_sched_setattr,
        ] {
            assert_eq!(call(number, [0, 0, 0]), ALLOW);
            assert_eq!(call(number, [4711, 0, 0]), errno(libc::EPERM));
        }
        for (number, process, of_user) in [(libc::SYS_setpriority, 0, 2), (libc::SYS_ioprio_set, 1, 3)] {
            assert_eq!(call(number, [process, 0, 10]), ALLOW);
            assert_eq!(call(number, [process, 4711, 10]), errno(libc::EPERM));
            assert_eq!(call(number, [of_user, 0, 10]), errno(libc::EPERM));
        }
        assert_eq!(call(libc::SYS_setxattr, [0; 3]), errno(libc::ENOSYS));
        assert_eq!(call(libc::SYS_fsetxattr, [0; 3]), ALLOW);
    }

    #[test]
    fn the_program_is_small() {
        let length = compile(Filter::ListedPrograms, Tier::Namespaces, Refusal::Told).0.len();
        assert!(length < 450, "{length} instructions");
    }
}
