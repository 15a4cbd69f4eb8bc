//! Reports refused system calls, because the program sees only EPERM: to the user, the journal and `agentsh why`.

use std::collections::BTreeMap;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_host::Record;
use agentsh_sandbox::seccomp::{Call, calls};
use agentsh_store::{Event, escape};

/// Limit of remembered kinds per session.
const MAX_DIFFERENT: usize = 200;
/// Limit of reported kinds; the journal has all.
const MAX_SHOWN: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub struct Purpose {
    pub what: &'static str,
    pub why: &'static str,
    pub instead: &'static str,
}

const NAMESPACES: Purpose = Purpose {
    what: "a namespace of its own",
    why: "it would give all capabilities and expose more of the kernel",
    instead: "run it outside, or turn it off (Chromium: `--no-sandbox`)",
};
const MOUNTS: Purpose = Purpose {
    what: "a mount",
    why: "the sandbox is built from mounts",
    instead: "mount it outside, and add the path to `filesystem.read` or `filesystem.write`",
};
const SET_ID: Purpose = Purpose {
    what: "a set-user-id or set-group-id bit",
    why: "such a file runs with its owner's rights, also outside",
    instead: "leave out the bit, or set it outside with `chmod`",
};
const KEYS: Purpose = Purpose {
    what: "keys of the kernel's keyring",
    why: "they belong to the user who started agentsh",
    instead: "add the secret to `credentials`",
};
const OTHERS: Purpose = Purpose {
    what: "memory or descriptors of other processes",
    why: "debuggers do not need this",
    instead: "run it outside",
};
const COUNTERS: Purpose = Purpose {
    what: "counters, programs or page faults of the kernel",
    why: "they expose much of the kernel, and other processes",
    instead: "run it outside",
};
/// Programs try it and continue without: it is recorded but not printed.
const FILE_EVENTS: Purpose = Purpose {
    what: "file events of the whole machine",
    why: "they name files of every process",
    instead: "watch directories (inotify), which works",
};
const MACHINE: Purpose = Purpose {
    what: "a setting of the machine itself",
    why: "it affects the whole machine",
    instead: "run it outside",
};

#[must_use]
pub fn purpose_of_call(number: libc::c_long) -> &'static Purpose {
    Call::of(number).map_or(&MACHINE, of_call)
}

fn of_call(call: Call) -> &'static Purpose {
    match call {
        calls::SYS_unshare | calls::SYS_clone | calls::SYS_setns => &NAMESPACES,
        calls::SYS_mount
        | calls::SYS_umount2
        | calls::SYS_pivot_root
        | calls::SYS_mount_setattr
        | calls::SYS_open_tree
        | calls::SYS_move_mount
        | calls::SYS_fsopen
        | calls::SYS_fsconfig
        | calls::SYS_fsmount
        | calls::SYS_fspick
        | calls::SYS_open_by_handle_at
        | calls::SYS_name_to_handle_at
        | calls::SYS_open_tree_attr => &MOUNTS,
        calls::SYS_chmod
        | calls::SYS_fchmod
        | calls::SYS_fchmodat
        | calls::SYS_fchmodat2
        | calls::SYS_mknod
        | calls::SYS_mknodat
        | calls::SYS_creat
        | calls::SYS_open
        | calls::SYS_openat => &SET_ID,
        calls::SYS_pidfd_getfd
        | calls::SYS_process_madvise
        | calls::SYS_process_mrelease
        | calls::SYS_move_pages
        | calls::SYS_migrate_pages => &OTHERS,
        calls::SYS_keyctl | calls::SYS_add_key | calls::SYS_request_key => &KEYS,
        calls::SYS_bpf | calls::SYS_perf_event_open | calls::SYS_userfaultfd | calls::SYS_lookup_dcookie => {
            &COUNTERS
        }
        calls::SYS_fanotify_init | calls::SYS_fanotify_mark => &FILE_EVENTS,
        _ => &MACHINE,
    }
}

/// The rule that decides.
#[must_use]
pub fn rule() -> RuleRef {
    RuleRef { id: "system calls".to_owned(), file: "built-in".to_owned(), line: 0 }
}

/// Refused calls by program name and purpose.
#[derive(Debug, Default)]
pub struct Calls(std::cell::RefCell<BTreeMap<(String, &'static str), &'static Purpose>>);

impl Calls {
    /// Reports the first refused call of its kind: program, call and sandbox.
    pub fn report_first(
        &self,
        record: &Record,
        server: Option<&ServerId>,
        program: &str,
        call: libc::c_long,
    ) {
        let purpose = purpose_of_call(call);
        if let Some(number) = self.add(program, purpose) {
            report_refused_call(record, server, program, purpose, number);
        }
    }

    /// True for the first of its kind. None: too many kinds.
    fn add(&self, program: &str, purpose: &'static Purpose) -> Option<usize> {
        let mut calls = self.0.borrow_mut();
        let key = (program.to_owned(), purpose.what);
        if calls.len() >= MAX_DIFFERENT || calls.contains_key(&key) {
            return None;
        }
        calls.insert(key, purpose);
        Some(calls.len())
    }

    /// A program's refused call.
    #[must_use]
    pub fn of(&self, program: &str) -> Option<&'static Purpose> {
        // The kernel truncates names.
        let short = program.get(..15).unwrap_or(program);
        self.0.borrow().iter().find(|((name, _), _)| name == short).map(|(_, purpose)| *purpose)
    }
}

fn report_refused_call(
    record: &Record,
    server: Option<&ServerId>,
    program: &str,
    purpose: &Purpose,
    number: usize,
) {
    let Purpose { what, why, instead } = purpose;
    let who = server.map_or(String::new(), |id| format!(" of server '{}'", escape::line(&id.0)));
    let shown = escape::line(program);
    match number.cmp(&MAX_SHOWN) {
        _ if purpose == &FILE_EVENTS => {}
        std::cmp::Ordering::Less | std::cmp::Ordering::Equal => record.note(&format!(
            "refused {what} to '{shown}'{who}: {why}, by {}; no policy allows it: {instead}",
            rule()
        )),
        std::cmp::Ordering::Greater if number == MAX_SHOWN + 1 => {
            record.note("more system calls were refused; `agentsh report` lists them all");
        }
        std::cmp::Ordering::Greater => {}
    }
    record.journal.record(Event::CallRefused {
        server_id: server.cloned(),
        program: program.to_owned(),
        what: (*what).to_owned(),
        detail: format!("{why}; no policy allows it: {instead}"),
        rule: rule(),
    });
}

/// Programs that need rights or services that no sandbox has, and fail before a system call.
#[must_use]
pub fn works_outside(program: &str) -> Option<&'static Purpose> {
    const RIGHTS: Purpose = Purpose {
        what: "the rights of another user",
        why: "nothing inside ever gains rights (no_new_privs)",
        instead: "run it outside",
    };
    const DAEMON: Purpose = Purpose {
        what: "a daemon that starts containers",
        why: "its socket gives access to the whole machine",
        instead: "run it outside; a database can run inside as an ordinary program",
    };
    const SERVICES: Purpose = Purpose {
        what: "services of the machine",
        why: "they run outside of every sandbox",
        instead: "run it outside",
    };
    match program {
        "sudo" | "su" | "doas" | "pkexec" | "newgrp" | "runuser" => Some(&RIGHTS),
        "docker" | "docker-compose" | "podman" | "nerdctl" | "buildah" | "minikube" | "kind" => Some(&DAEMON),
        "systemctl" | "service" | "journalctl" | "loginctl" => Some(&SERVICES),
        "mount" | "umount" | "fusermount" | "fusermount3" | "losetup" => Some(&MOUNTS),
        "unshare" | "nsenter" | "bwrap" => Some(&NAMESPACES),
        "perf" | "bpftrace" => Some(&COUNTERS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentsh_sandbox::seccomp::{RULES, Verdict};

    /// A call without an entry is refused to protect the machine; a call that is refused for another reason has its
    /// own entry.
    #[test]
    fn every_refused_call_has_its_purpose() {
        let mut machine = 0;
        for rule in RULES.iter().filter(|rule| rule.verdict == Verdict::Refuse) {
            for call in rule.calls {
                let is_of_machine = of_call(*call) == &MACHINE;
                assert_eq!(is_of_machine, rule.why.contains("whole machine"), "{call:?}: {}", rule.why);
                machine += usize::from(is_of_machine);
            }
        }
        assert!(machine > 10);
        assert_eq!(purpose_of_call(libc::SYS_fchmodat), &SET_ID);
    }

    #[test]
    fn refused_system_call_is_reported_once_for_each_kind() {
        let calls = Calls::default();
        assert_eq!(calls.add("a-long-name-of-a", &SET_ID), Some(1));
        assert_eq!(calls.add("unshare", &NAMESPACES), Some(2));
        assert_eq!(calls.add("unshare", &NAMESPACES), None);
        assert_eq!(calls.of("unshare"), Some(&NAMESPACES));
        assert_eq!(calls.of("other"), None);
        for number in 0..1000 {
            calls.add(&number.to_string(), &SET_ID);
        }
        assert_eq!(calls.0.borrow().len(), MAX_DIFFERENT);
    }
}
