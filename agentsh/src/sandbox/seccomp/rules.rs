//! The table: which system calls exist inside a sandbox, and why. What no rule names answers "no such call",
//! so that a program written for a newer kernel falls back.

use libc::*;

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub why: &'static str,
    pub calls: &'static [c_long],
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// EPERM: known, and not here.
    Refuse,
    /// ENOSYS: as on a kernel without it, so that libraries take their older path.
    Missing,
    Check(ArgumentCheck),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentCheck {
    NoNamespaceFlags { argument: u32, forbidden: u32 },
    NotOneOf { argument: u32, values: &'static [u32] },
    OneOf { argument: u32, values: &'static [u32] },
    Socket,
}

impl Verdict {
    /// Plain verdicts of neighbouring numbers may share one leaf of the tree.
    #[must_use]
    pub fn is_plain(self) -> bool {
        !matches!(self, Self::Check(_))
    }
}

/// CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET.
const NAMESPACES: u32 = 0x7E02_0000;
/// The same and CLONE_NEWTIME, whose bit `clone` uses for the exit signal.
const NAMESPACES_AND_TIME: u32 = NAMESPACES | 0x80;
const TIOCSTI_REQUEST: u32 = 0x5412;
const TIOCLINUX_REQUEST: u32 = 0x541C;

pub const RULES: &[Rule] = &[
    Rule {
        why: "read and write what is already open",
        calls: &[
            SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_preadv2,
            SYS_pwritev2, SYS_lseek, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice, SYS_copy_file_range, SYS_readahead,
            SYS_fadvise64, SYS_close, SYS_close_range, SYS_dup, SYS_dup2, SYS_dup3, SYS_fcntl, SYS_flock, SYS_pipe,
            SYS_pipe2, SYS_eventfd, SYS_eventfd2, SYS_memfd_create, 447, /* memfd_secret: only hides memory from the kernel */
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "open, look at and change files; the mount tree and Landlock decide which",
        calls: &[
            SYS_open, SYS_openat, SYS_openat2, SYS_creat, SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx,
            SYS_statfs, SYS_fstatfs, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_readlink, SYS_readlinkat, SYS_getdents,
            SYS_getdents64, SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_rename, SYS_renameat, SYS_renameat2, SYS_mkdir,
            SYS_mkdirat, SYS_rmdir, SYS_link, SYS_linkat, SYS_unlink, SYS_unlinkat, SYS_symlink, SYS_symlinkat, SYS_chmod,
            SYS_fchmod, SYS_fchmodat, 452, /* fchmodat2 */ SYS_chown, SYS_fchown, SYS_lchown, SYS_fchownat, SYS_umask,
            SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_utime, SYS_utimes, SYS_futimesat, SYS_utimensat, SYS_fsync,
            SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range, SYS_mknod, SYS_mknodat, 451, /* cachestat */
            SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr,
            SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_inotify_init,
            SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_chroot, /* needs a capability nobody has */
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "own memory",
        calls: &[
            SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_msync, SYS_mincore, SYS_madvise, SYS_brk, SYS_mlock,
            SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_pkey_mprotect, SYS_pkey_alloc, SYS_pkey_free,
            SYS_membarrier, SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind, 453, /* map_shadow_stack */ 462, /* mseal */
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "start, wait for and end processes of the sandbox's own pid namespace",
        calls: &[
            SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_kill,
            SYS_tkill, SYS_tgkill, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid,
            SYS_getpgrp, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_set_tid_address, SYS_set_robust_list,
            SYS_get_robust_list, SYS_rseq, SYS_arch_prctl, SYS_prctl, SYS_restart_syscall, SYS_getcpu,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "signals to oneself and one's children",
        calls: &[
            SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait,
            SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_rt_sigsuspend, SYS_sigaltstack, SYS_signalfd, SYS_signalfd4,
            SYS_pause, SYS_alarm,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "time, timers and sleeping",
        calls: &[
            SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time, SYS_times,
            SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun,
            SYS_timer_delete, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "wait for many things at once, and threads",
        calls: &[
            SYS_select, SYS_pselect6, SYS_poll, SYS_ppoll, SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl,
            SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_futex, SYS_futex_waitv, 454, 455, 456, /* futex_wake, wait, requeue */
            SYS_io_setup, SYS_io_destroy, SYS_io_getevents, 333, /* io_pgetevents */ SYS_io_submit, SYS_io_cancel,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "use sockets of the kinds that `socket` gives; the network namespace decides where they reach",
        calls: &[
            SYS_socketpair, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_getsockname, SYS_getpeername,
            SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg,
            SYS_shutdown,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "ask who and where one is, and lower one's own limits",
        calls: &[
            SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setuid,
            SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups, SYS_setfsuid,
            SYS_setfsgid, SYS_capget, SYS_capset, SYS_uname, SYS_sysinfo, SYS_getrusage, SYS_getrlimit, SYS_setrlimit,
            SYS_prlimit64, SYS_getpriority, SYS_setpriority, SYS_ioprio_get, SYS_ioprio_set, SYS_getrandom, SYS_ustat,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "scheduling of one's own threads",
        calls: &[
            SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam,
            SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
            SYS_sched_rr_get_interval, SYS_sched_getattr, SYS_sched_setattr,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "System V and POSIX queues of the sandbox's own IPC namespace",
        calls: &[
            SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semtimedop, SYS_semctl, SYS_msgget,
            SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open, SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive,
            SYS_mq_notify, SYS_mq_getsetattr,
        ],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "a program may sandbox itself further",
        calls: &[SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self],
        verdict: Verdict::Allow,
    },
    Rule {
        why: "a new user namespace brings every capability back over fresh kernel surface",
        calls: &[SYS_clone],
        verdict: Verdict::Check(ArgumentCheck::NoNamespaceFlags { argument: 0, forbidden: NAMESPACES }),
    },
    Rule {
        why: "as clone",
        calls: &[SYS_unshare],
        verdict: Verdict::Check(ArgumentCheck::NoNamespaceFlags { argument: 0, forbidden: NAMESPACES_AND_TIME }),
    },
    Rule {
        why: "its flags stand behind a pointer where no filter can see them; libraries fall back to clone",
        calls: &[SYS_clone3],
        verdict: Verdict::Missing,
    },
    Rule {
        why: "TIOCSTI and TIOCLINUX type into the terminal of the person who started agentsh",
        calls: &[SYS_ioctl],
        verdict: Verdict::Check(ArgumentCheck::NotOneOf { argument: 1, values: &[TIOCSTI_REQUEST, TIOCLINUX_REQUEST] }),
    },
    Rule {
        why: "stream and datagram sockets of local and internet families; no raw, packet, vsock or crypto sockets",
        calls: &[SYS_socket],
        verdict: Verdict::Check(ArgumentCheck::Socket),
    },
    Rule {
        why: "only the query and the ordinary Linux personality, with or without address randomisation",
        calls: &[SYS_personality],
        verdict: Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0, 0xFFFF_FFFF, 0x0004_0000] }),
    },
    Rule {
        why: "sockets and files without the calls that are filtered here; libraries fall back to epoll",
        calls: &[SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register],
        verdict: Verdict::Missing,
    },
    Rule {
        why: "look into or steer other processes",
        calls: &[SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp, SYS_process_madvise, SYS_process_mrelease, SYS_move_pages, SYS_migrate_pages],
        verdict: Verdict::Refuse,
    },
    Rule {
        why: "change the mount tree or join another namespace",
        calls: &[
            SYS_mount, SYS_umount2, SYS_pivot_root, SYS_mount_setattr, SYS_open_tree, SYS_move_mount, SYS_fsopen,
            SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_setns, SYS_open_by_handle_at, SYS_name_to_handle_at, 467, /* open_tree_attr */
        ],
        verdict: Verdict::Refuse,
    },
    Rule {
        why: "keys of the user who started agentsh",
        calls: &[SYS_keyctl, SYS_add_key, SYS_request_key],
        verdict: Verdict::Refuse,
    },
    Rule {
        why: "kernel programs, counters and page faults handled by the caller: rich attack surface nobody needs",
        calls: &[SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_fanotify_init, SYS_fanotify_mark, SYS_lookup_dcookie],
        verdict: Verdict::Refuse,
    },
    Rule {
        why: "the machine itself",
        calls: &[
            SYS_reboot, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module, SYS_delete_module,
            SYS_swapon, SYS_swapoff, SYS_sethostname, SYS_setdomainname, SYS_settimeofday, SYS_clock_settime,
            SYS_clock_adjtime, SYS_adjtimex, SYS_syslog, SYS_acct, SYS_quotactl, SYS_quotactl_fd, SYS_iopl, SYS_ioperm,
            SYS_vhangup, SYS_modify_ldt,
        ],
        verdict: Verdict::Refuse,
    },
];
