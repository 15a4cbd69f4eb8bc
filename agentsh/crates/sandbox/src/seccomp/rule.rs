//! One row of the system call table.

use serde::{Deserialize, Serialize};

use super::calls::Call;

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub why: &'static str,
    pub calls: &'static [Call],
    pub verdict: Verdict,
}

/// A table of rules: above each its reason, then its calls and what happens to them.
macro_rules! rules {
    ($($(#[doc = $why:literal])+ $calls:expr => $verdict:expr;)*) => {
        &[$($crate::seccomp::rule::Rule {
            why: agentsh_base::without_margin(concat!($($why),+)),
            calls: $calls,
            verdict: $verdict,
        }),*]
    };
}
pub(super) use rules;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// EPERM: a known call that is not allowed.
    Refuse,
    /// ENOSYS, so that libraries fall back.
    Missing,
    Check(ArgumentCheck),
    /// The listener does it instead.
    Ask,
    /// Allowed; reported to the listener first if files are guarded by name.
    MissingFileHandler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentCheck {
    /// None of these bits may be set.
    NoBits {
        argument: u32,
        forbidden: u32,
    },
    /// Like `NoBits` for a call that makes a file: reported as [`Verdict::MissingFileHandler`].
    NewName {
        mode: u32,
        forbidden: u32,
    },
    /// Like `NoBits` of the mode, if the flags create a file; otherwise the mode has no meaning.
    NewFile {
        flags: u32,
        mode: u32,
        forbidden: u32,
    },
    NotOneOf {
        argument: u32,
        values: &'static [u32],
    },
    OneOf {
        argument: u32,
        values: &'static [u32],
    },
    /// The argument kind must be a process (this value), and the id the caller's own.
    Oneself {
        kind: u32,
    },
    Socket,
    /// Like `Socket`, only streams: datagrams could be sent anywhere.
    Stream,
    /// A permanently connected pair of local sockets.
    ConnectedPair,
    /// These arguments are the sandbox's user and group, or unchanged.
    OwnIds {
        users: &'static [u32],
        groups: &'static [u32],
    },
    /// Anything, or under [`Filter::ListedPrograms`] only non-executable memory.
    MemoryFile,
}

/// The filter of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    /// Every readable file may be executed.
    AllPrograms,
    /// The policy lists executable files.
    ListedPrograms,
}
