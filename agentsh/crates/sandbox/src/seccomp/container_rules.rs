//! Rules that differ in the container tier.

use super::calls::*;
use super::rule::{ArgumentCheck, Rule, Verdict, rules};
use super::rules::QUEUES;

/// `MSG_FASTOPEN`: sending connects.
const CONNECTS: u32 = 0x2000_0000;

/// Without namespaces, network, ports and queues are shared with the container.
pub const CONTAINER_RULES: &[Rule] = rules! {
    /// The session reads the address once, checks it and connects; the program's own call never runs.
    &[SYS_connect] => Verdict::Ask;
    /// A socket that sends without connecting reaches any address.
    &[SYS_socket] => Verdict::Check(ArgumentCheck::Stream);
    /// A pair of datagram sockets can send to any local address.
    &[SYS_socketpair] => Verdict::Check(ArgumentCheck::ConnectedPair);
    /// TCP Fast Open connects without `connect`.
    &[SYS_sendto, SYS_sendmmsg] => Verdict::Check(ArgumentCheck::NoBits { argument: 3, forbidden: CONNECTS });
    /// Same reason as sendto.
    &[SYS_sendmsg] => Verdict::Check(ArgumentCheck::NoBits { argument: 2, forbidden: CONNECTS });
    /// Other processes of the container could connect to a listener.
    &[SYS_listen] => Verdict::Refuse;
    /// The limits of other processes of the same user must not change.
    &[SYS_prlimit64] => Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0] });
    /// The scheduling of other processes of the same user must not change.
    &[
        SYS_sched_setaffinity, SYS_sched_setparam, SYS_sched_setscheduler, SYS_sched_setattr
    ] => Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0] });
    /// Same reason as scheduling; PRIO_USER would change all processes of the user.
    // PRIO_PROCESS of the caller
    &[SYS_setpriority] => Verdict::Check(ArgumentCheck::Oneself { kind: 0 });
    /// Same reason as setpriority.
    // IOPRIO_WHO_PROCESS of the caller
    &[SYS_ioprio_set] => Verdict::Check(ArgumentCheck::Oneself { kind: 1 });
    /// Landlock does not protect extended attributes of files by name; the calls for open files stay.
    &[SYS_setxattr, SYS_lsetxattr, SYS_removexattr, SYS_lremovexattr] => Verdict::Missing;
    /// Queues and shared memory belong to the container and outlive the sandbox.
    QUEUES => Verdict::Missing;
};
