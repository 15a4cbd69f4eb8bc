//! Calls that look for a file by its name: where somebody wants to know what a program would have needed, its filter asks about
//! them, and they go on.

use std::path::PathBuf;

use super::calls::{self, Call};
use super::compile::MAKES_A_FILE;
use super::rule::{ArgumentCheck, Verdict};
use super::rules::RULES;

/// Where such a call has its path, and the directory from which that counts.
#[derive(Clone, Copy, Debug)]
pub struct LooksFor {
    pub call: Call,
    pub path: usize,
    /// None: the working directory.
    pub directory: Option<usize>,
    /// `O_RDONLY` and so on; None: it is only looked at.
    pub flags: Option<usize>,
}

const fn looks(call: Call) -> LooksFor {
    LooksFor { call, path: 0, directory: None, flags: None }
}

const fn looks_in(call: Call) -> LooksFor {
    LooksFor { call, path: 1, directory: Some(0), flags: None }
}

/// All of them; older ones do not exist everywhere.
pub(super) const LOOKS_FOR_FILES: &[LooksFor] = &[
    LooksFor { flags: Some(1), ..looks(calls::SYS_open) },
    LooksFor { flags: Some(2), ..looks_in(calls::SYS_openat) },
    looks(calls::SYS_stat),
    looks(calls::SYS_lstat),
    looks(calls::SYS_access),
    looks(calls::SYS_chdir),
    looks(calls::SYS_execve),
    looks_in(calls::SYS_newfstatat),
    looks_in(calls::SYS_statx),
    looks_in(calls::SYS_faccessat),
    looks_in(calls::SYS_faccessat2),
];

/// A file that somebody looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFile {
    /// As it was written.
    pub path: PathBuf,
    /// The descriptor from which a relative path counts; None: the working directory.
    pub directory: Option<i32>,
    pub writes: bool,
}

/// Where a call that renames has its two paths, and the directories from which they count; `flags`: of which a call with any
/// does something else.
struct Renames {
    call: Call,
    from: LooksFor,
    to: LooksFor,
    flags: Option<usize>,
}

const fn renames(call: Call, flags: Option<usize>) -> Renames {
    let from = LooksFor { call, path: 1, directory: Some(0), flags: None };
    Renames { call, from, to: LooksFor { path: 3, directory: Some(2), ..from }, flags }
}

const RENAMES: &[Renames] = &[
    Renames {
        call: calls::SYS_rename,
        from: looks(calls::SYS_rename),
        to: LooksFor { path: 1, ..looks(calls::SYS_rename) },
        flags: None,
    },
    renames(calls::SYS_renameat, None),
    renames(calls::SYS_renameat2, Some(4)),
];

/// Something that is to be put in the place of whatever has the other name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub from: MissingFile,
    pub to: MissingFile,
}

/// The two places of a call that renames; None for others. Within: None where it would replace nothing.
pub(super) fn renamed(
    number: libc::c_long,
    arguments: &[u64; 6],
) -> Option<Option<(&'static LooksFor, &'static LooksFor)>> {
    let call = Call::of(number)?;
    let renames = RENAMES.iter().find(|renames| renames.call == call)?;
    let replaces = renames.flags.is_none_or(|flags| low(arguments.get(flags).copied()) == 0);
    Some(replaces.then_some((&renames.from, &renames.to)))
}

/// How the call of a number looks for a file; None for others.
#[must_use]
pub(super) fn of(number: libc::c_long) -> Option<&'static LooksFor> {
    let call = Call::of(number)?;
    LOOKS_FOR_FILES.iter().find(|looks| looks.call == call)
}

/// Whether the table lets a call with these arguments through. What they are is fixed: they are no memory.
#[must_use]
pub(super) fn goes_on(looks: &LooksFor, arguments: &[u64; 6]) -> bool {
    let rule = RULES.iter().find(|rule| rule.calls.contains(&looks.call));
    match rule.map(|rule| rule.verdict) {
        Some(Verdict::Allow) => true,
        Some(Verdict::Check(ArgumentCheck::NewFile { flags, mode, forbidden })) => {
            let [flags, mode] = [flags, mode].map(|index| low(arguments.get(index as usize).copied()));
            flags & MAKES_A_FILE == 0 || mode & forbidden == 0
        }
        _ => false,
    }
}

/// As the filter reads it.
pub(super) fn low(argument: Option<u64>) -> u32 {
    (argument.unwrap_or(u64::MAX) & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_filter_refuses_does_not_go_on() {
        let openat = of(libc::SYS_openat).unwrap();
        let makes = u64::from(libc::O_CREAT.unsigned_abs());
        assert!(goes_on(openat, &[0, 0, 0, 0o4755, 0, 0]));
        assert!(goes_on(openat, &[0, 0, makes, 0o644, 0, 0]));
        assert!(!goes_on(openat, &[0, 0, makes, 0o4755, 0, 0]));
        assert!(!goes_on(openat, &[0, 0, makes | 1 << 40, 0o2755, 0, 0]));
        assert!(of(libc::SYS_mount).is_none() && of(libc::SYS_write).is_none());
        for looks in LOOKS_FOR_FILES {
            assert!(
                looks.call.on(calls::Architecture::HERE).is_none() || goes_on(looks, &[0; 6]),
                "{looks:?}"
            );
        }
    }
}
