//! Rules that differ in the container tier.

use super::calls::*;
use super::rule::{ArgumentCheck, Rule, Verdict};
use super::rules::QUEUES;

/// `MSG_FASTOPEN`: sending connects.
const CONNECTS: u32 = 0x2000_0000;

/// Without namespaces, network, ports and queues are shared with the container.
pub const CONTAINER_RULES: &[Rule] = &[
    Rule {
        why: "The session reads the address once, checks it and connects; the program's own call never runs.",
        calls: &[SYS_connect],
        verdict: Verdict::Ask,
    },
    Rule {
        why: "A socket that sends without connecting reaches any address.",
        calls: &[SYS_socket],
        verdict: Verdict::Check(ArgumentCheck::Stream),
    },
    Rule {
        why: "A pair of datagram sockets can send to any local address.",
        calls: &[SYS_socketpair],
        verdict: Verdict::Check(ArgumentCheck::ConnectedPair),
    },
    Rule {
        why: "TCP Fast Open connects without `connect`.",
        calls: &[SYS_sendto, SYS_sendmmsg],
        verdict: Verdict::Check(ArgumentCheck::NoBits { argument: 3, forbidden: CONNECTS }),
    },
    Rule {
        why: "Same reason as sendto.",
        calls: &[SYS_sendmsg],
        verdict: Verdict::Check(ArgumentCheck::NoBits { argument: 2, forbidden: CONNECTS }),
    },
    Rule {
        why: "Other processes of the container could connect to a listener.",
        calls: &[SYS_listen],
        verdict: Verdict::Refuse,
    },
    Rule {
        why: "The limits of other processes of the same user must not change.",
        calls: &[SYS_prlimit64],
        verdict: Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0] }),
    },
    Rule {
        why: "The scheduling of other processes of the same user must not change.",
        calls: &[SYS_sched_setaffinity, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_setattr],
        verdict: Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0] }),
    },
    Rule {
        why: "Same reason as scheduling; PRIO_USER would change all processes of the user.",
        calls: &[SYS_setpriority],
        // PRIO_PROCESS of the caller
        verdict: Verdict::Check(ArgumentCheck::Oneself { kind: 0 }),
    },
    Rule {
        why: "Same reason as setpriority.",
        calls: &[SYS_ioprio_set],
        // IOPRIO_WHO_PROCESS of the caller
        verdict: Verdict::Check(ArgumentCheck::Oneself { kind: 1 }),
    },
    Rule {
        why: "Landlock does not protect extended attributes of files by name; the calls for open files stay.",
        calls: &[SYS_setxattr, SYS_lsetxattr, SYS_removexattr, SYS_lremovexattr],
        verdict: Verdict::Missing,
    },
    Rule {
        why: "Queues and shared memory belong to the container and outlive the sandbox.",
        calls: QUEUES,
        verdict: Verdict::Missing,
    },
];
