//! The system call table: what is allowed, and why. Any other call returns ENOSYS, so that newer programs fall back.

use super::calls::*;
use super::rule::{ArgumentCheck, Rule, Verdict, rules};

/// `F_SETLEASE`, and `F_SETDELEG` for directories.
const LEASES: &[u32] = &[1024, 1040];
/// CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET.
const NAMESPACES: u32 = 0x7E02_0000;
/// The same with CLONE_NEWTIME, whose bit `clone` uses for the exit signal.
const NAMESPACES_AND_TIME: u32 = NAMESPACES | 0x80;
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;
/// Terminal ioctls that type for the user, or whose effect outlives the program.
const TERMINAL_REQUESTS: &[u32] = &[
    0x5412, /* TIOCSTI: types */
    0x541C, /* TIOCLINUX: pastes */
    0x540C, /* TIOCEXCL: no other program can open it */
    0x5423, /* TIOCSETD: another line discipline, such as N_NULL, which passes no data */
    0x4B33, /* KDSKBMETA */
    0x4B3A, /* KDSETMODE: switches text off */
    0x4B45, /* KDSKBMODE: switches keys off */
    0x4B47, /* KDSKBENT: changes the key map of every console */
    0x4B49, /* KDSKBSENT: the same */
    0x4B4C, /* KDSETKEYCODE */
    0x4BFA, /* KDSKBDIACR */
    0x5602, /* VT_SETMODE: controls console switching */
    0x5606, /* VT_ACTIVATE: switches */
    0x560B, /* VT_LOCKSWITCH: locks */
];

/// System V and POSIX queues, semaphores and shared memory.
pub const QUEUES: &[Call] = &[
    SYS_shmget,
    SYS_shmat,
    SYS_shmdt,
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
];

pub const RULES: &[Rule] = rules! {
    /// These calls use open descriptors, or create pipes and event counters.
    &[
        SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
        SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice,
        SYS_copy_file_range, SYS_readahead, SYS_fadvise64, SYS_close, SYS_close_range, SYS_dup, SYS_dup2,
        SYS_dup3, SYS_flock, SYS_pipe, SYS_pipe2, SYS_eventfd, SYS_eventfd2
    ] => Verdict::Allow;
    /// Anonymous memory files are allowed; where a policy lists programs, only with MFD_NOEXEC_SEAL.
    &[SYS_memfd_create] => Verdict::Check(ArgumentCheck::MemoryFile);
    /// The memory escapes the limit, and the queue is shared by the whole machine; libraries use threads instead.
    &[
        SYS_memfd_secret, SYS_io_setup, SYS_io_destroy, SYS_io_getevents, SYS_io_pgetevents, SYS_io_submit,
        SYS_io_cancel
    ] => Verdict::Missing;
    /// The mount tree and Landlock decide which files these calls reach.
    &[
        SYS_stat, SYS_fstat, SYS_lstat, SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_access,
        SYS_faccessat, SYS_faccessat2, SYS_readlink, SYS_readlinkat, SYS_getdents, SYS_getdents64,
        SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_umask, SYS_ftruncate, SYS_fallocate, SYS_utime, SYS_utimes,
        SYS_futimesat, SYS_utimensat, SYS_fsync, SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range,
        SYS_cachestat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_getxattr, SYS_lgetxattr,
        SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr,
        SYS_fremovexattr, SYS_inotify_init, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
        SYS_chroot /* needs a capability that no program inside has */
    ] => Verdict::Allow;
    /// The session decides about guarded names, and reports what a mount refuses.
    &[
        SYS_rename, SYS_renameat, SYS_renameat2, SYS_link, SYS_linkat, SYS_unlink, SYS_unlinkat, SYS_mkdir,
        SYS_mkdirat, SYS_rmdir, SYS_symlink, SYS_symlinkat, SYS_truncate
    ] => Verdict::MissingFileHandler;
    /// Only one user and group exist inside; a change to another gets EPERM, as outside without root.
    &[
        SYS_chown, SYS_fchown, SYS_lchown
    ] => Verdict::Check(ArgumentCheck::OwnIds { users: &[1], groups: &[2] });
    /// Same reason as chown.
    &[SYS_fchownat] => Verdict::Check(ArgumentCheck::OwnIds { users: &[2], groups: &[3] });
    /// Same reason as chown.
    &[SYS_setuid] => Verdict::Check(ArgumentCheck::OwnIds { users: &[0], groups: &[] });
    /// Same reason as chown.
    &[SYS_setgid] => Verdict::Check(ArgumentCheck::OwnIds { users: &[], groups: &[0] });
    /// Same reason as chown.
    &[SYS_setreuid] => Verdict::Check(ArgumentCheck::OwnIds { users: &[0, 1], groups: &[] });
    /// Same reason as chown.
    &[SYS_setregid] => Verdict::Check(ArgumentCheck::OwnIds { users: &[], groups: &[0, 1] });
    /// Same reason as chown.
    &[SYS_setresuid] => Verdict::Check(ArgumentCheck::OwnIds { users: &[0, 1, 2], groups: &[] });
    /// Same reason as chown.
    &[SYS_setresgid] => Verdict::Check(ArgumentCheck::OwnIds { users: &[], groups: &[0, 1, 2] });
    /// A set-user-id file runs as its owner, which is root if root started agentsh.
    &[SYS_chmod, SYS_fchmod] => Verdict::Check(ArgumentCheck::NoBits { argument: 1, forbidden: SET_ID });
    /// Same reason as chmod.
    &[
        SYS_fchmodat, SYS_fchmodat2
    ] => Verdict::Check(ArgumentCheck::NoBits { argument: 2, forbidden: SET_ID });
    /// Same reason as chmod.
    &[SYS_mknod, SYS_creat] => Verdict::Check(ArgumentCheck::NewName { mode: 1, forbidden: SET_ID });
    /// Same reason as chmod.
    &[SYS_mknodat] => Verdict::Check(ArgumentCheck::NewName { mode: 2, forbidden: SET_ID });
    /// Same reason as chmod.
    &[SYS_open] => Verdict::Check(ArgumentCheck::NewFile { flags: 1, mode: 2, forbidden: SET_ID });
    /// Same reason as chmod.
    &[SYS_openat] => Verdict::Check(ArgumentCheck::NewFile { flags: 2, mode: 3, forbidden: SET_ID });
    /// The filter cannot see the mode behind its pointer; libraries fall back to openat.
    &[SYS_openat2] => Verdict::Missing;
    /// A process may manage its own memory.
    &[
        SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_msync, SYS_mincore, SYS_madvise, SYS_brk,
        SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_pkey_mprotect, SYS_pkey_alloc,
        SYS_pkey_free, SYS_membarrier, SYS_get_mempolicy, SYS_set_mempolicy, SYS_mbind,
        SYS_map_shadow_stack, SYS_mseal
    ] => Verdict::Allow;
    /// Processes start, signal and wait for others only in the sandbox's pid namespace.
    &[
        SYS_fork, SYS_vfork, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid,
        SYS_kill, SYS_tkill, SYS_tgkill, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_getpid, SYS_getppid,
        SYS_gettid, SYS_getpgid, SYS_getpgrp, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_set_tid_address,
        SYS_set_robust_list, SYS_get_robust_list, SYS_rseq, SYS_arch_prctl, SYS_prctl, SYS_restart_syscall,
        SYS_getcpu
    ] => Verdict::Allow;
    /// Signals reach only processes of the sandbox's pid namespace.
    &[
        SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending, SYS_rt_sigtimedwait,
        SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_rt_sigsuspend, SYS_sigaltstack, SYS_signalfd,
        SYS_signalfd4, SYS_pause, SYS_alarm
    ] => Verdict::Allow;
    /// Programs may read the time, set timers and sleep.
    &[
        SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_time,
        SYS_times, SYS_getitimer, SYS_setitimer, SYS_timer_create, SYS_timer_settime, SYS_timer_gettime,
        SYS_timer_getoverrun, SYS_timer_delete, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime
    ] => Verdict::Allow;
    /// Programs wait for events and synchronise threads.
    &[
        SYS_select, SYS_pselect6, SYS_poll, SYS_ppoll, SYS_epoll_create, SYS_epoll_create1, SYS_epoll_ctl,
        SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2, SYS_futex, SYS_futex_waitv, SYS_futex_wake,
        SYS_futex_wait, SYS_futex_requeue
    ] => Verdict::Allow;
    /// `socket` decides which kinds exist, and the network namespace decides what they reach.
    &[
        SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_getsockname, SYS_getpeername,
        SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg,
        SYS_recvmmsg, SYS_shutdown
    ] => Verdict::Allow;
    /// A process may read its own identity and lower its own limits.
    &[
        SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups,
        SYS_setgroups, SYS_setfsuid, SYS_setfsgid, SYS_capget, SYS_capset, SYS_uname, SYS_sysinfo,
        SYS_getrusage, SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_getpriority, SYS_setpriority,
        SYS_ioprio_get, SYS_ioprio_set, SYS_getrandom, SYS_ustat
    ] => Verdict::Allow;
    /// A process may schedule its own threads.
    &[
        SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_setaffinity, SYS_sched_getparam,
        SYS_sched_setparam, SYS_sched_getscheduler, SYS_sched_setscheduler, SYS_sched_get_priority_max,
        SYS_sched_get_priority_min, SYS_sched_rr_get_interval, SYS_sched_getattr, SYS_sched_setattr
    ] => Verdict::Allow;
    /// System V and POSIX queues belong to the sandbox's IPC namespace.
    QUEUES => Verdict::Allow;
    /// A program may restrict itself further.
    &[
        SYS_seccomp, SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self
    ] => Verdict::Allow;
    /// A new user namespace gives all capabilities and exposes more of the kernel.
    &[SYS_clone] => Verdict::Check(ArgumentCheck::NoBits { argument: 0, forbidden: NAMESPACES });
    /// Same reason as clone.
    &[SYS_unshare] => Verdict::Check(ArgumentCheck::NoBits { argument: 0, forbidden: NAMESPACES_AND_TIME });
    /// The filter cannot see the flags behind its pointer; libraries fall back to clone.
    &[SYS_clone3] => Verdict::Missing;
    /// A lease blocks programs of the host that open the file.
    &[SYS_fcntl] => Verdict::Check(ArgumentCheck::NotOneOf { argument: 1, values: LEASES });
    /// These requests type into the user's terminal or make it unusable.
    &[SYS_ioctl] => Verdict::Check(ArgumentCheck::NotOneOf { argument: 1, values: TERMINAL_REQUESTS });
    /// Only stream and datagram sockets of the local and internet families; no raw, packet, vsock or crypto sockets.
    &[SYS_socket] => Verdict::Check(ArgumentCheck::Socket);
    /// Only pairs of local sockets; for another family the call runs the same kernel code as `socket`.
    // AF_UNIX
    &[SYS_socketpair] => Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[1] });
    /// Only the query and the Linux personality, with or without address randomisation.
    &[
        SYS_personality
    ] => Verdict::Check(ArgumentCheck::OneOf { argument: 0, values: &[0, 0xFFFF_FFFF, 0x0004_0000] });
    /// io_uring uses sockets and files past this filter; libraries fall back to epoll.
    &[SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register] => Verdict::Missing;
    /// Debuggers and sanitizers may use processes of the sandbox's pid namespace; pid 1 is not dumpable.
    &[SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp] => Verdict::Allow;
    /// These calls take memory or descriptors of other processes, and no debugger needs them.
    &[
        SYS_pidfd_getfd, SYS_process_madvise, SYS_process_mrelease, SYS_move_pages, SYS_migrate_pages
    ] => Verdict::Refuse;
    /// The sandbox is built from mounts and namespaces, which it must not change.
    &[
        SYS_mount, SYS_umount2, SYS_pivot_root, SYS_mount_setattr, SYS_open_tree, SYS_move_mount,
        SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_setns, SYS_open_by_handle_at,
        SYS_name_to_handle_at, SYS_open_tree_attr
    ] => Verdict::Refuse;
    /// The keyrings belong to the user who started agentsh.
    &[SYS_keyctl, SYS_add_key, SYS_request_key] => Verdict::Refuse;
    /// These calls expose much of the kernel, and other processes.
    &[
        SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_fanotify_init, SYS_fanotify_mark,
        SYS_lookup_dcookie
    ] => Verdict::Refuse;
    /// These calls affect the whole machine.
    &[
        SYS_reboot, SYS_kexec_load, SYS_kexec_file_load, SYS_init_module, SYS_finit_module,
        SYS_delete_module, SYS_swapon, SYS_swapoff, SYS_sethostname, SYS_setdomainname, SYS_settimeofday,
        SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_syslog, SYS_acct, SYS_quotactl,
        SYS_quotactl_fd, SYS_iopl, SYS_ioperm, SYS_vhangup, SYS_modify_ldt
    ] => Verdict::Refuse;
};
