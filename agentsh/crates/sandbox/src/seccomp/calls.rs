//! Numbers of the system calls that rules name, for both architectures, so that tests compare both filters on any
//! machine. The compiler compares the native column with `libc`.

#![expect(
    non_upper_case_globals,
    reason = "the names are those of the kernel's headers, as `libc` writes them"
)]

use libc::c_long;

/// One system call. Older ones do not exist on newer architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    x86_64: Option<u16>,
    aarch64: Option<u16>,
}

/// The architecture of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    /// The kernel's name for it (`AUDIT_ARCH_*`).
    #[must_use]
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xC000_003E,
            Self::Aarch64 => 0xC000_00B7,
        }
    }

    /// The bit of another ABI's calls with the same architecture: x32 on x86-64.
    #[must_use]
    pub const fn foreign_bit(self) -> Option<u32> {
        match self {
            Self::X86_64 => Some(0x4000_0000),
            Self::Aarch64 => None,
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!(
    "the system calls of this architecture are not in the table: agentsh is for x86-64 and aarch64"
);

impl Call {
    #[must_use]
    pub fn number_on(&self, architecture: Architecture) -> Option<u32> {
        match architecture {
            Architecture::X86_64 => self.x86_64,
            Architecture::Aarch64 => self.aarch64,
        }
        .map(u32::from)
    }

    /// The call of a number, here.
    #[must_use]
    pub fn of(number: c_long) -> Option<Self> {
        let number = u32::try_from(number).ok()?;
        ALL.iter().copied().find(|call| call.number_on(Architecture::NATIVE) == Some(number))
    }
}

macro_rules! number {
    (-) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}

/// `libc` says the same, except about what it does not know yet (`new`).
macro_rules! as_libc_says {
    ($name:ident - $($new:ident)?) => {};
    ($name:ident $number:literal) => {
        const _: () = assert!(libc::$name == $number, stringify!($name));
    };
    ($name:ident $number:literal new) => {};
}

/// Name, number on x86-64, number on aarch64.
macro_rules! calls {
    ($($name:ident $x86_64:tt $aarch64:tt $($new:ident)?;)*) => {
        $(
            pub const $name: Call =
                Call { name: stringify!($name), x86_64: number!($x86_64), aarch64: number!($aarch64) };
            #[cfg(target_arch = "x86_64")]
            as_libc_says!($name $x86_64 $($new)?);
            #[cfg(target_arch = "aarch64")]
            as_libc_says!($name $aarch64 $($new)?);
        )*
        pub const ALL: &[Call] = &[$($name),*];
    };
}

calls! {
    SYS_read 0 63; SYS_write 1 64; SYS_open 2 -; SYS_close 3 57; SYS_stat 4 -; SYS_fstat 5 80; SYS_lstat 6 -;
    SYS_poll 7 -; SYS_lseek 8 62; SYS_mmap 9 222; SYS_mprotect 10 226; SYS_munmap 11 215; SYS_brk 12 214;
    SYS_rt_sigaction 13 134; SYS_rt_sigprocmask 14 135; SYS_rt_sigreturn 15 139; SYS_ioctl 16 29;
    SYS_pread64 17 67; SYS_pwrite64 18 68; SYS_readv 19 65; SYS_writev 20 66; SYS_access 21 -; SYS_pipe 22 -;
    SYS_select 23 -; SYS_sched_yield 24 124; SYS_mremap 25 216; SYS_msync 26 227; SYS_mincore 27 232;
    SYS_madvise 28 233; SYS_shmget 29 194; SYS_shmat 30 196; SYS_shmctl 31 195; SYS_dup 32 23; SYS_dup2 33 -;
    SYS_pause 34 -; SYS_nanosleep 35 101; SYS_getitimer 36 102; SYS_alarm 37 -; SYS_setitimer 38 103;
    SYS_getpid 39 172; SYS_sendfile 40 71; SYS_socket 41 198; SYS_connect 42 203; SYS_accept 43 202;
    SYS_sendto 44 206; SYS_recvfrom 45 207; SYS_sendmsg 46 211; SYS_recvmsg 47 212; SYS_shutdown 48 210;
    SYS_bind 49 200; SYS_listen 50 201; SYS_getsockname 51 204; SYS_getpeername 52 205; SYS_socketpair 53 199;
    SYS_setsockopt 54 208; SYS_getsockopt 55 209; SYS_clone 56 220; SYS_fork 57 -; SYS_vfork 58 -;
    SYS_execve 59 221; SYS_exit 60 93; SYS_wait4 61 260; SYS_kill 62 129; SYS_uname 63 160; SYS_semget 64 190;
    SYS_semop 65 193; SYS_semctl 66 191; SYS_shmdt 67 197; SYS_msgget 68 186; SYS_msgsnd 69 189;
    SYS_msgrcv 70 188; SYS_msgctl 71 187; SYS_fcntl 72 25; SYS_flock 73 32; SYS_fsync 74 82;
    SYS_fdatasync 75 83; SYS_truncate 76 45; SYS_ftruncate 77 46; SYS_getdents 78 -; SYS_getcwd 79 17;
    SYS_chdir 80 49; SYS_fchdir 81 50; SYS_rename 82 -; SYS_mkdir 83 -; SYS_rmdir 84 -; SYS_creat 85 -;
    SYS_link 86 -; SYS_unlink 87 -; SYS_symlink 88 -; SYS_readlink 89 -; SYS_chmod 90 -; SYS_fchmod 91 52;
    SYS_chown 92 -; SYS_fchown 93 55; SYS_lchown 94 -; SYS_umask 95 166; SYS_gettimeofday 96 169;
    SYS_getrlimit 97 163; SYS_getrusage 98 165; SYS_sysinfo 99 179; SYS_times 100 153; SYS_ptrace 101 117;
    SYS_getuid 102 174; SYS_syslog 103 116; SYS_getgid 104 176; SYS_setuid 105 146; SYS_setgid 106 144;
    SYS_geteuid 107 175; SYS_getegid 108 177; SYS_setpgid 109 154; SYS_getppid 110 173; SYS_getpgrp 111 -;
    SYS_setsid 112 157; SYS_setreuid 113 145; SYS_setregid 114 143; SYS_getgroups 115 158;
    SYS_setgroups 116 159; SYS_setresuid 117 147; SYS_getresuid 118 148; SYS_setresgid 119 149;
    SYS_getresgid 120 150; SYS_getpgid 121 155; SYS_setfsuid 122 151; SYS_setfsgid 123 152; SYS_getsid 124 156;
    SYS_capget 125 90; SYS_capset 126 91; SYS_rt_sigpending 127 136; SYS_rt_sigtimedwait 128 137;
    SYS_rt_sigqueueinfo 129 138; SYS_rt_sigsuspend 130 133; SYS_sigaltstack 131 132; SYS_utime 132 -;
    SYS_mknod 133 -; SYS_personality 135 92; SYS_ustat 136 -; SYS_statfs 137 43; SYS_fstatfs 138 44;
    SYS_getpriority 140 141; SYS_setpriority 141 140; SYS_sched_setparam 142 118; SYS_sched_getparam 143 121;
    SYS_sched_setscheduler 144 119; SYS_sched_getscheduler 145 120; SYS_sched_get_priority_max 146 125;
    SYS_sched_get_priority_min 147 126; SYS_sched_rr_get_interval 148 127; SYS_mlock 149 228;
    SYS_munlock 150 229; SYS_mlockall 151 230; SYS_munlockall 152 231; SYS_vhangup 153 58; SYS_modify_ldt 154 -;
    SYS_pivot_root 155 41; SYS_prctl 157 167; SYS_arch_prctl 158 -; SYS_adjtimex 159 171; SYS_setrlimit 160 164;
    SYS_chroot 161 51; SYS_sync 162 81; SYS_acct 163 89; SYS_settimeofday 164 170; SYS_mount 165 40;
    SYS_umount2 166 39; SYS_swapon 167 224; SYS_swapoff 168 225; SYS_reboot 169 142; SYS_sethostname 170 161;
    SYS_setdomainname 171 162; SYS_iopl 172 -; SYS_ioperm 173 -; SYS_init_module 175 105;
    SYS_delete_module 176 106; SYS_quotactl 179 60; SYS_gettid 186 178; SYS_readahead 187 213;
    SYS_setxattr 188 5; SYS_lsetxattr 189 6; SYS_fsetxattr 190 7; SYS_getxattr 191 8; SYS_lgetxattr 192 9;
    SYS_fgetxattr 193 10; SYS_listxattr 194 11; SYS_llistxattr 195 12; SYS_flistxattr 196 13;
    SYS_removexattr 197 14; SYS_lremovexattr 198 15; SYS_fremovexattr 199 16; SYS_tkill 200 130; SYS_time 201 -;
    SYS_futex 202 98; SYS_sched_setaffinity 203 122; SYS_sched_getaffinity 204 123; SYS_io_setup 206 0;
    SYS_io_destroy 207 1; SYS_io_getevents 208 4; SYS_io_submit 209 2; SYS_io_cancel 210 3;
    SYS_lookup_dcookie 212 18; SYS_epoll_create 213 -; SYS_getdents64 217 61; SYS_set_tid_address 218 96;
    SYS_restart_syscall 219 128; SYS_semtimedop 220 192; SYS_fadvise64 221 223; SYS_timer_create 222 107;
    SYS_timer_settime 223 110; SYS_timer_gettime 224 108; SYS_timer_getoverrun 225 109;
    SYS_timer_delete 226 111; SYS_clock_settime 227 112; SYS_clock_gettime 228 113; SYS_clock_getres 229 114;
    SYS_clock_nanosleep 230 115; SYS_exit_group 231 94; SYS_epoll_wait 232 -; SYS_epoll_ctl 233 21;
    SYS_tgkill 234 131; SYS_utimes 235 -; SYS_mbind 237 235; SYS_set_mempolicy 238 237;
    SYS_get_mempolicy 239 236; SYS_mq_open 240 180; SYS_mq_unlink 241 181; SYS_mq_timedsend 242 182;
    SYS_mq_timedreceive 243 183; SYS_mq_notify 244 184; SYS_mq_getsetattr 245 185; SYS_kexec_load 246 104;
    SYS_waitid 247 95; SYS_add_key 248 217; SYS_request_key 249 218; SYS_keyctl 250 219; SYS_ioprio_set 251 30;
    SYS_ioprio_get 252 31; SYS_inotify_init 253 -; SYS_inotify_add_watch 254 27; SYS_inotify_rm_watch 255 28;
    SYS_migrate_pages 256 238; SYS_openat 257 56; SYS_mkdirat 258 34; SYS_mknodat 259 33; SYS_fchownat 260 54;
    SYS_futimesat 261 -; SYS_newfstatat 262 79; SYS_unlinkat 263 35; SYS_renameat 264 38; SYS_linkat 265 37;
    SYS_symlinkat 266 36; SYS_readlinkat 267 78; SYS_fchmodat 268 53; SYS_faccessat 269 48; SYS_pselect6 270 72;
    SYS_ppoll 271 73; SYS_unshare 272 97; SYS_set_robust_list 273 99; SYS_get_robust_list 274 100;
    SYS_splice 275 76; SYS_tee 276 77; SYS_sync_file_range 277 84; SYS_vmsplice 278 75; SYS_move_pages 279 239;
    SYS_utimensat 280 88; SYS_epoll_pwait 281 22; SYS_signalfd 282 -; SYS_timerfd_create 283 85;
    SYS_eventfd 284 -; SYS_fallocate 285 47; SYS_timerfd_settime 286 86; SYS_timerfd_gettime 287 87;
    SYS_accept4 288 242; SYS_signalfd4 289 74; SYS_eventfd2 290 19; SYS_epoll_create1 291 20; SYS_dup3 292 24;
    SYS_pipe2 293 59; SYS_inotify_init1 294 26; SYS_preadv 295 69; SYS_pwritev 296 70;
    SYS_rt_tgsigqueueinfo 297 240; SYS_perf_event_open 298 241; SYS_recvmmsg 299 243; SYS_fanotify_init 300 262;
    SYS_fanotify_mark 301 263; SYS_prlimit64 302 261; SYS_name_to_handle_at 303 264;
    SYS_open_by_handle_at 304 265; SYS_clock_adjtime 305 266; SYS_syncfs 306 267; SYS_sendmmsg 307 269;
    SYS_setns 308 268; SYS_getcpu 309 168; SYS_process_vm_readv 310 270; SYS_process_vm_writev 311 271;
    SYS_kcmp 312 272; SYS_finit_module 313 273; SYS_sched_setattr 314 274; SYS_sched_getattr 315 275;
    SYS_renameat2 316 276; SYS_seccomp 317 277; SYS_getrandom 318 278; SYS_memfd_create 319 279;
    SYS_kexec_file_load 320 294; SYS_bpf 321 280; SYS_execveat 322 281; SYS_userfaultfd 323 282;
    SYS_membarrier 324 283; SYS_mlock2 325 284; SYS_copy_file_range 326 285; SYS_preadv2 327 286;
    SYS_pwritev2 328 287; SYS_pkey_mprotect 329 288; SYS_pkey_alloc 330 289; SYS_pkey_free 331 290;
    SYS_statx 332 291; SYS_io_pgetevents 333 292 new; SYS_rseq 334 293; SYS_pidfd_send_signal 424 424;
    SYS_io_uring_setup 425 425; SYS_io_uring_enter 426 426; SYS_io_uring_register 427 427;
    SYS_open_tree 428 428; SYS_move_mount 429 429; SYS_fsopen 430 430; SYS_fsconfig 431 431;
    SYS_fsmount 432 432; SYS_fspick 433 433; SYS_pidfd_open 434 434; SYS_clone3 435 435;
    SYS_close_range 436 436; SYS_openat2 437 437; SYS_pidfd_getfd 438 438; SYS_faccessat2 439 439;
    SYS_process_madvise 440 440; SYS_epoll_pwait2 441 441; SYS_mount_setattr 442 442; SYS_quotactl_fd 443 443;
    SYS_landlock_create_ruleset 444 444; SYS_landlock_add_rule 445 445; SYS_landlock_restrict_self 446 446;
    SYS_memfd_secret 447 447; SYS_process_mrelease 448 448; SYS_futex_waitv 449 449; SYS_cachestat 451 451 new;
    SYS_fchmodat2 452 452 new; SYS_map_shadow_stack 453 453 new; SYS_futex_wake 454 454 new;
    SYS_futex_wait 455 455 new; SYS_futex_requeue 456 456 new; SYS_mseal 462 462;
    SYS_open_tree_attr 467 467 new;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::collections::BTreeSet;

    use super::super::container_rules::CONTAINER_RULES;
    use super::super::rule::Verdict;
    use super::super::rules::RULES;
    use super::*;

    /// Calls of x86-64 alone, and those that aarch64 has instead; `None` for calls about the processor.
    const OLDER: &[(Call, Option<Call>)] = &[
        (SYS_open, Some(SYS_openat)),
        (SYS_creat, Some(SYS_openat)),
        (SYS_chmod, Some(SYS_fchmodat)),
        (SYS_mknod, Some(SYS_mknodat)),
        (SYS_dup2, Some(SYS_dup3)),
        (SYS_pipe, Some(SYS_pipe2)),
        (SYS_eventfd, Some(SYS_eventfd2)),
        (SYS_signalfd, Some(SYS_signalfd4)),
        (SYS_inotify_init, Some(SYS_inotify_init1)),
        (SYS_epoll_create, Some(SYS_epoll_create1)),
        (SYS_epoll_wait, Some(SYS_epoll_pwait)),
        (SYS_poll, Some(SYS_ppoll)),
        (SYS_select, Some(SYS_pselect6)),
        (SYS_stat, Some(SYS_newfstatat)),
        (SYS_lstat, Some(SYS_newfstatat)),
        (SYS_ustat, Some(SYS_statfs)),
        (SYS_access, Some(SYS_faccessat)),
        (SYS_readlink, Some(SYS_readlinkat)),
        (SYS_getdents, Some(SYS_getdents64)),
        (SYS_rename, Some(SYS_renameat2)),
        (SYS_mkdir, Some(SYS_mkdirat)),
        (SYS_rmdir, Some(SYS_unlinkat)),
        (SYS_unlink, Some(SYS_unlinkat)),
        (SYS_link, Some(SYS_linkat)),
        (SYS_symlink, Some(SYS_symlinkat)),
        (SYS_chown, Some(SYS_fchownat)),
        (SYS_lchown, Some(SYS_fchownat)),
        (SYS_utime, Some(SYS_utimensat)),
        (SYS_utimes, Some(SYS_utimensat)),
        (SYS_futimesat, Some(SYS_utimensat)),
        (SYS_getpgrp, Some(SYS_getpgid)),
        (SYS_pause, Some(SYS_ppoll)),
        (SYS_alarm, Some(SYS_setitimer)),
        (SYS_time, Some(SYS_clock_gettime)),
        (SYS_fork, None),
        (SYS_vfork, None),
        (SYS_arch_prctl, None),
        (SYS_iopl, None),
        (SYS_ioperm, None),
        (SYS_modify_ldt, None),
    ];

    fn verdict(call: Call) -> Verdict {
        RULES.iter().find(|rule| rule.calls.contains(&call)).unwrap().verdict
    }

    #[test]
    fn system_call_names_and_numbers_are_unique() {
        let names: BTreeSet<&str> = ALL.iter().map(|call| call.name).collect();
        assert_eq!(names.len(), ALL.len());
        for architecture in [Architecture::X86_64, Architecture::Aarch64] {
            let mut numbers = BTreeSet::new();
            for call in ALL {
                assert!(call.number_on(architecture).is_none_or(|number| numbers.insert(number)), "{call:?}");
            }
            assert!(numbers.len() > 300);
        }
        // Newer calls have one number everywhere.
        for call in ALL.iter().filter(|call| call.x86_64.is_some_and(|number| number >= 424)) {
            assert_eq!(call.x86_64, call.aarch64, "{call:?}");
        }
        assert_eq!(Call::of(libc::SYS_execve), Some(SYS_execve));
        assert_eq!(Call::of(4000), None);
    }

    /// Every call of the table has a rule, so no column says more than the other one.
    #[test]
    fn every_call_has_a_rule() {
        for call in ALL {
            let ruled = RULES.iter().chain(CONTAINER_RULES).any(|rule| rule.calls.contains(call));
            assert!(ruled, "{call:?}");
        }
    }

    /// The list of calls that one architecture lacks; their replacements get the same verdict.
    #[test]
    fn both_architectures_are_given_the_same() {
        let lacking: Vec<&str> =
            ALL.iter().filter(|call| call.x86_64.is_none()).map(|call| call.name).collect();
        assert!(lacking.is_empty(), "{lacking:?}");
        let only_x86: BTreeSet<&str> =
            ALL.iter().filter(|call| call.aarch64.is_none()).map(|call| call.name).collect();
        assert_eq!(only_x86, OLDER.iter().map(|(older, _)| older.name).collect());
        for (older, newer) in OLDER {
            let Some(newer) = newer else { continue };
            let same = match (verdict(*older), verdict(*newer)) {
                (Verdict::Check(_), Verdict::Check(_)) => true,
                (one, other) => one == other,
            };
            assert!(same, "{older:?} {newer:?}");
        }
    }
}
