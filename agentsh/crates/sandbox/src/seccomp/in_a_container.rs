//! What is different in the weaker tier, where there are no namespaces.

use super::calls::*;
use super::rule::{ArgumentCheck, Rule, Verdict};

/// `MSG_FASTOPEN`: connects by sending.
const CONNECTS: u32 = 0x2000_0000;

/// What is different where there are no namespaces: the network, its ports and the queues are those of everybody.
pub const IN_A_CONTAINER: &[Rule] = &[
    Rule {
        why: "where a connection goes is read once, judged, and dialled by the session: the program's own call never runs",
        calls: &[SYS_connect],
        verdict: Verdict::Ask,
    },
    Rule {
        why: "a socket that can send without being connected reaches whom it wants",
        calls: &[SYS_socket],
        verdict: Verdict::Check(ArgumentCheck::Stream),
    },
    Rule {
        why: "as socket: a pair of datagram sockets can send to any local address",
        calls: &[SYS_socketpair],
        verdict: Verdict::Check(ArgumentCheck::ConnectedPair),
    },
    Rule {
        why: "TCP Fast Open connects without connect",
        calls: &[SYS_sendto, SYS_sendmmsg],
        verdict: Verdict::Check(ArgumentCheck::NoBits { argument: 3, forbidden: CONNECTS }),
    },
    Rule {
        why: "as sendto",
        calls: &[SYS_sendmsg],
        verdict: Verdict::Check(ArgumentCheck::NoBits { argument: 2, forbidden: CONNECTS }),
    },
    Rule {
        why: "a listener here is reachable from the container's neighbours",
        calls: &[SYS_listen],
        verdict: Verdict::Refuse,
    },
    Rule {
        why: "limits of other processes of the same user",
        calls: &[SYS_prlimit64],
        verdict: Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0] }),
    },
    Rule {
        why: "the processors and the turn of other processes of the same user",
        calls: &[SYS_sched_setaffinity, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_setattr],
        verdict: Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0] }),
    },
    Rule {
        why: "as scheduling; of a user it would be all processes",
        calls: &[SYS_setpriority],
        // PRIO_PROCESS, and oneself
        verdict: Verdict::Check(ArgumentCheck::Oneself { kind: 0 }),
    },
    Rule {
        why: "as setpriority",
        calls: &[SYS_ioprio_set],
        // IOPRIO_WHO_PROCESS, and oneself
        verdict: Verdict::Check(ArgumentCheck::Oneself { kind: 1 }),
    },
    Rule {
        why: "attributes of any file that the user owns, by its name, of which Landlock says nothing; what is open has them",
        calls: &[SYS_setxattr, SYS_lsetxattr, SYS_removexattr, SYS_lremovexattr],
        verdict: Verdict::Missing,
    },
    Rule {
        why: "queues and memory that belong to the container, and outlive the sandbox",
        calls: &[
            SYS_shmget,
            SYS_shmat,
            SYS_shmctl,
            SYS_semget,
            SYS_semop,
            SYS_semtimedop,
            SYS_semctl,
            SYS_msgget,
            SYS_msgsnd,
            SYS_msgrcv,
            SYS_msgctl,
            SYS_mq_open,
            SYS_mq_unlink,
            SYS_mq_timedsend,
            SYS_mq_timedreceive,
            SYS_mq_notify,
            SYS_mq_getsetattr,
        ],
        verdict: Verdict::Missing,
    },
];
