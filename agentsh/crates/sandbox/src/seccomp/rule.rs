//! One line of the table of system calls.

use serde::{Deserialize, Serialize};

use super::calls::Call;

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub why: &'static str,
    pub calls: &'static [Call],
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
    /// Whoever holds the filter's listener does it instead.
    Ask,
    /// Allowed; where files are guarded by name, whoever holds the filter's listener hears of it first.
    Hear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentCheck {
    /// None of these bits is set.
    NoBits {
        argument: u32,
        forbidden: u32,
    },
    /// As `NoBits` of the mode, where the flags make a file; elsewhere the mode means nothing.
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
    /// Of a process (the value that says so), and of the caller itself.
    Oneself {
        kind: u32,
    },
    Socket,
    /// As `Socket`, of streams alone: what has no connection can be sent anywhere.
    Stream,
    /// A pair of local sockets that are connected for good.
    ConnectedPair,
    /// These arguments name the sandbox's own user and group, or leave what there is.
    OwnIds {
        users: &'static [u32],
        groups: &'static [u32],
    },
    /// Everything, or under [`Filter::ListedPrograms`] what asks for memory that cannot be executed.
    MemoryFile,
}

/// Which filter a sandbox gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Filter {
    /// Everything that can be read may be executed.
    AllPrograms,
    /// A policy lists what may be executed.
    ListedPrograms,
}
