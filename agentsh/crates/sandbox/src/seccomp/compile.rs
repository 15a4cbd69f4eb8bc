//! Compiles the rule table to BPF: architecture check, foreign-ABI check, binary search over system call numbers.

use super::calls::Architecture;
use super::container_rules::CONTAINER_RULES;
use super::files::{PATH_LOOKUPS, PathArgument};
use super::rule::{ArgumentCheck, Filter, Verdict};
use super::rules::RULES;
use crate::plan::{Identity, Tier};

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

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ASK: u32 = 0x7FC0_0000;
/// Like [`ASK`], replaced for a sandbox with guarded names: see [`Program::of`]. The kernel ignores the low half.
const NOTIFY_LOOKUPS: u32 = ASK | 1;

/// Flags of an open that changes the file.
pub(super) const WRITING: u32 = (libc::O_ACCMODE | libc::O_TRUNC).unsigned_abs();
/// `O_CREAT`, and of `O_TMPFILE` the bit that is not `O_DIRECTORY`.
pub(super) const FILE_CREATION: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).unsigned_abs();

/// A flag of `memfd_create`: not executable, and cannot become so.
const MFD_NOEXEC_SEAL: u32 = 8;

/// Replaced by the ids of a sandbox: see [`Program::of`].
const OWN_USER: u32 = 0xFFFF_FFFD;
const OWN_GROUP: u32 = 0xFFFF_FFFE;

impl Program {
    /// The program for a sandbox with these ids. With `hears_renames`, renames are reported first.
    #[must_use]
    pub fn of(&self, identity: Identity, hears_renames: bool) -> Self {
        let own = |instruction: &Instruction| {
            let k = match (instruction.code, instruction.k) {
                (JUMP_EQUAL, OWN_USER) => identity.uid,
                (JUMP_EQUAL, OWN_GROUP) => identity.gid,
                (RETURN, NOTIFY_LOOKUPS) => {
                    if hears_renames {
                        ASK
                    } else {
                        ALLOW
                    }
                }
                (_, k) => k,
            };
            Instruction { k, ..*instruction }
        };
        Self(self.0.iter().map(own).collect())
    }
}

/// The verdict for a range of numbers.
#[derive(Clone, Copy, PartialEq)]
struct Range {
    first: u32,
    verdict: Verdict,
}

/// The kernel's action for a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// EPERM without a report.
    Silent,
    /// EPERM after a report to the listener.
    Told,
    /// Like `Told`, and file lookups are reported too, before they continue.
    ToldWithFiles,
}

/// Parameters of one program's leaves.
#[derive(Clone, Copy)]
struct Leaves {
    filter: Filter,
    tier: Tier,
    /// The result of a refused call.
    refused: u32,
    /// The result of an allowed open.
    opens: u32,
    /// The result of an allowed open for writing.
    opens_to_write: u32,
    /// The result of an allowed call that may be reported.
    heard: u32,
}

/// The whole program. Deterministic, so that tests can compare builds.
#[must_use]
pub fn compile(filter: Filter, tier: Tier, refusal: Refusal) -> Program {
    compile_for(Architecture::NATIVE, filter, tier, refusal)
}

fn compile_for(architecture: Architecture, filter: Filter, tier: Tier, refusal: Refusal) -> Program {
    let refused = match refusal {
        Refusal::Silent => errno(libc::EPERM),
        Refusal::Told | Refusal::ToldWithFiles => ASK,
    };
    let (opens, asked) = match refusal {
        Refusal::ToldWithFiles => (ASK, PATH_LOOKUPS),
        _ => (ALLOW, [].as_slice()),
    };
    let heard = if tier == Tier::Namespaces && refusal != Refusal::Silent { NOTIFY_LOOKUPS } else { ALLOW };
    let opens_to_write = if opens == ASK { ASK } else { heard };
    let mut code = vec![
        statement(LOAD_WORD, ARCHITECTURE),
        jump(JUMP_EQUAL, architecture.audit(), 1, 0),
        statement(RETURN, KILL_PROCESS),
        statement(LOAD_WORD, NUMBER),
    ];
    if let Some(bit) = architecture.foreign_bit() {
        // A tracer (strace, proot) skips a call by the number -1; the kernel knows no negative number.
        code.extend([
            jump(JUMP_AT_LEAST, bit, 0, 2),
            jump(JUMP_AT_LEAST, 1 << 31, 1, 0),
            statement(RETURN, KILL_PROCESS),
        ]);
    }
    code.extend(search(
        &ranges(architecture, tier, asked),
        Leaves { filter, tier, refused, opens, opens_to_write, heard },
    ));
    Program(code)
}

/// Ranges that cover every number; neighbours with one verdict are merged. Unnamed numbers return ENOSYS.
fn ranges(architecture: Architecture, tier: Tier, asked: &[PathArgument]) -> Vec<Range> {
    let mut table = std::collections::BTreeMap::new();
    let further = match tier {
        Tier::Namespaces => &[],
        Tier::Container => CONTAINER_RULES,
    };
    for rule in RULES.iter().chain(further) {
        for number in rule.calls.iter().filter_map(|call| call.number_on(architecture)) {
            table.insert(number, rule.verdict);
        }
    }
    for number in asked.iter().filter_map(|looks| looks.call.number_on(architecture)) {
        if table.get(&number) == Some(&Verdict::Allow) {
            table.insert(number, Verdict::Ask);
        }
    }
    let unknown = Verdict::Missing;
    let mut ranges = vec![Range { first: 0, verdict: unknown }];
    let mut push = |first: u32, verdict: Verdict| match ranges.last_mut() {
        Some(last) if last.verdict == verdict => {}
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
            // A conditional jump reaches 255 instructions, an unconditional one all.
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
        Verdict::MissingFileHandler => vec![statement(RETURN, leaves.heard)],
    }
}

fn no_bits(argument: u32, forbidden: u32, leaves: Leaves, allowed: u32) -> Vec<Instruction> {
    vec![
        argument_word(argument),
        jump(JUMP_ANY_BIT, forbidden, 0, 1),
        statement(RETURN, leaves.refused),
        statement(RETURN, allowed),
    ]
}

fn argument_check(check: ArgumentCheck, leaves: Leaves) -> Vec<Instruction> {
    match check {
        ArgumentCheck::NewFile { flags, mode, forbidden } => vec![
            argument_word(flags),
            jump(JUMP_ANY_BIT, FILE_CREATION, 0, 3),
            argument_word(mode),
            jump(JUMP_ANY_BIT, forbidden, 0, 1),
            statement(RETURN, leaves.refused),
            argument_word(flags),
            jump(JUMP_ANY_BIT, WRITING, 0, 1),
            statement(RETURN, leaves.opens_to_write),
            statement(RETURN, leaves.opens),
        ],
        ArgumentCheck::NoBits { argument, forbidden } => no_bits(argument, forbidden, leaves, ALLOW),
        ArgumentCheck::NewName { mode, forbidden } => no_bits(mode, forbidden, leaves, leaves.heard),
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
        // Without a user namespace the kernel checks the ids.
        ArgumentCheck::OwnIds { .. } if leaves.tier == Tier::Container => vec![statement(RETURN, ALLOW)],
        ArgumentCheck::OwnIds { users, groups } => {
            const UNCHANGED: u32 = u32::MAX;
            let own = users.iter().map(|user| (user, OWN_USER));
            let own = own.chain(groups.iter().map(|group| (group, OWN_GROUP)));
            let own: Vec<_> = own.collect();
            let mut code = Vec::new();
            for (index, (argument, own_id)) in own.iter().enumerate() {
                // Over the remaining arguments and the allowing instruction.
                let to_the_end = u8::try_from((own.len() - index - 1) * 3 + 1).unwrap_or(u8::MAX);
                code.extend([
                    argument_word(**argument),
                    jump(JUMP_EQUAL, *own_id, 1, 0),
                    jump(JUMP_EQUAL, UNCHANGED, 0, to_the_end),
                ]);
            }
            code.extend([statement(RETURN, ALLOW), statement(RETURN, errno(libc::EPERM))]);
            code
        }
        ArgumentCheck::MemoryFile => match leaves.filter {
            Filter::AllPrograms => vec![statement(RETURN, ALLOW)],
            Filter::ListedPrograms => vec![
                argument_word(1),
                jump(JUMP_ANY_BIT, MFD_NOEXEC_SEAL, 0, 1),
                statement(RETURN, ALLOW),
                // ENOSYS, so that programs that only need memory fall back.
                statement(RETURN, errno(libc::ENOSYS)),
            ],
        },
    }
}

/// `socket(family, type, protocol)`: ordinary TCP, UDP and local sockets, and netlink for interfaces.
fn socket_check() -> Vec<Instruction> {
    let protocols = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
    family_check(vec![statement(RETURN, ALLOW)], &[libc::SOCK_STREAM, libc::SOCK_DGRAM], &protocols)
}

/// The same on a shared network: local and TCP streams, which reach nothing before `connect`.
fn stream_check() -> Vec<Instruction> {
    let mut local = allowed_types(&[libc::SOCK_STREAM, libc::SOCK_SEQPACKET]);
    local.push(statement(RETURN, ALLOW));
    family_check(local, &[libc::SOCK_STREAM], &[0, libc::IPPROTO_TCP])
}

/// `local` decides about local sockets, and these types and protocols of IPv4 and IPv6 are allowed.
fn family_check(local: Vec<Instruction>, types: &[i32], protocols: &[i32]) -> Vec<Instruction> {
    let mut internet = allowed_types(types);
    internet.push(argument_word(2));
    for protocol in protocols {
        internet.push(jump(JUMP_EQUAL, protocol.unsigned_abs(), 0, 1));
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

/// Continues for these types, and refuses all others.
fn allowed_types(types: &[i32]) -> Vec<Instruction> {
    const TYPE_MASK: u32 = 0xF;
    let mut code = vec![argument_word(1), statement(AND, TYPE_MASK)];
    for (kind, left) in types.iter().zip((1..=types.len()).rev()) {
        code.push(jump(JUMP_EQUAL, kind.unsigned_abs(), u8::try_from(left).unwrap_or(u8::MAX), 0));
    }
    code.push(statement(RETURN, errno(libc::EPERM)));
    code
}

/// The low half: every checked argument is an `int` or 32 bits of flags.
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
#[path = "compile_tests.rs"]
mod tests;
