//! System calls that look up files by name. With `--learn` or `--tell-files` the filter reports them to the session and
//! lets them continue.

use std::path::{Path, PathBuf};

use crate::host::normalised_path;

use super::calls::{self, Call};
use super::compile::{FILE_CREATION, WRITING};
use super::rule::{ArgumentCheck, Verdict};
use super::rules::RULES;

/// Which arguments are the path and its directory.
#[derive(Clone, Copy, Debug)]
pub struct PathArgument {
    pub call: Call,
    pub path: usize,
    /// None: the working directory.
    pub directory: Option<usize>,
    /// `O_RDONLY` and so on; None: a lookup without opening.
    pub flags: Option<usize>,
}

const fn path_lookup(call: Call) -> PathArgument {
    PathArgument { call, path: 0, directory: None, flags: None }
}

const fn looks_in(call: Call) -> PathArgument {
    PathArgument { call, path: 1, directory: Some(0), flags: None }
}

/// All path lookups; older calls do not exist on every architecture.
pub(super) const PATH_LOOKUPS: &[PathArgument] = &[
    PathArgument { flags: Some(1), ..path_lookup(calls::SYS_open) },
    PathArgument { flags: Some(2), ..looks_in(calls::SYS_openat) },
    path_lookup(calls::SYS_stat),
    path_lookup(calls::SYS_lstat),
    path_lookup(calls::SYS_access),
    path_lookup(calls::SYS_chdir),
    path_lookup(calls::SYS_execve),
    looks_in(calls::SYS_newfstatat),
    looks_in(calls::SYS_statx),
    looks_in(calls::SYS_faccessat),
    looks_in(calls::SYS_faccessat2),
];

/// A file that a program looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingFile {
    /// The path as the program passed it.
    pub path: PathBuf,
    /// The directory descriptor of a relative path; None: the working directory.
    pub directory: Option<i32>,
    pub writes: bool,
}

impl MissingFile {
    /// The absolute path in the view of process `pid`, not resolved; None if it is unknown.
    #[must_use]
    pub fn absolute(&self, pid: u32) -> Option<PathBuf> {
        if self.path.as_os_str().is_empty() {
            return None;
        }
        let from = if self.path.is_absolute() {
            PathBuf::from("/")
        } else {
            let process = Path::new("/proc").join(pid.to_string());
            let link = match self.directory {
                Some(number) => process.join("fd").join(number.to_string()),
                None => process.join("cwd"),
            };
            std::fs::read_link(link).ok().filter(|directory| directory.is_absolute())?
        };
        Some(normalised_path(&from.join(&self.path)))
    }
}

/// Which arguments of a rename or link call are the paths and their directories.
struct Renames {
    call: Call,
    from: PathArgument,
    to: PathArgument,
    /// With any flag but `RENAME_NOREPLACE` the call does something else.
    flags: Option<usize>,
    is_link: bool,
}

const fn renames(call: Call, flags: Option<usize>, is_link: bool) -> Renames {
    let from = PathArgument { call, path: 1, directory: Some(0), flags: None };
    Renames { call, from, to: PathArgument { path: 3, directory: Some(2), ..from }, flags, is_link }
}

const fn renames_here(call: Call, is_link: bool) -> Renames {
    Renames {
        call,
        from: path_lookup(call),
        to: PathArgument { path: 1, ..path_lookup(call) },
        flags: None,
        is_link,
    }
}

const RENAMES: &[Renames] = &[
    renames_here(calls::SYS_rename, false),
    renames(calls::SYS_renameat, None, false),
    renames(calls::SYS_renameat2, Some(4), false),
    renames_here(calls::SYS_link, true),
    renames(calls::SYS_linkat, Some(4), true),
];

/// A file that gets another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenameCall {
    pub from: MissingFile,
    pub to: MissingFile,
    /// An existing name is not replaced: the call fails.
    pub only_new: bool,
    /// A link: the old name stays.
    pub is_link: bool,
}

/// How a call gives something another name.
pub(super) struct NewName {
    pub from: &'static PathArgument,
    pub to: &'static PathArgument,
    pub only_new: bool,
    pub is_link: bool,
}

/// None for other calls. Inner None: the call gives no file a new name.
pub(super) fn new_name(number: libc::c_long, arguments: &[u64; 6]) -> Option<Option<NewName>> {
    let call = Call::of(number)?;
    let Renames { from, to, flags, is_link, .. } = RENAMES.iter().find(|renames| renames.call == call)?;
    let flags = flags.map_or(0, |flags| low_half(arguments.get(flags).copied()));
    let only_new = *is_link || flags == libc::RENAME_NOREPLACE;
    let is_plain = flags == 0 || only_new && !is_link;
    Some(is_plain.then_some(NewName { from, to, only_new, is_link: *is_link }))
}

/// The effect of a call on the file that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEffect {
    /// Creates it if missing.
    Makes,
    /// Changes it if it exists.
    Changes,
    /// Either.
    Writes,
    /// Removes its name, unless it is a directory.
    Unlinks,
    /// Removes an empty directory.
    RemovesDirectory,
}

/// Calls that change a file by name, except renames and links.
const CHANGING_CALLS: &[(PathArgument, FileEffect)] = &[
    (PathArgument { flags: Some(1), ..path_lookup(calls::SYS_open) }, FileEffect::Writes),
    (PathArgument { flags: Some(2), ..looks_in(calls::SYS_openat) }, FileEffect::Writes),
    (path_lookup(calls::SYS_creat), FileEffect::Writes),
    (path_lookup(calls::SYS_truncate), FileEffect::Changes),
    (path_lookup(calls::SYS_mknod), FileEffect::Makes),
    (looks_in(calls::SYS_mknodat), FileEffect::Makes),
    (path_lookup(calls::SYS_unlink), FileEffect::Unlinks),
    (looks_in(calls::SYS_unlinkat), FileEffect::Unlinks),
    (path_lookup(calls::SYS_rmdir), FileEffect::RemovesDirectory),
    (path_lookup(calls::SYS_mkdir), FileEffect::Makes),
    (looks_in(calls::SYS_mkdirat), FileEffect::Makes),
    (PathArgument { path: 1, ..path_lookup(calls::SYS_symlink) }, FileEffect::Makes),
    (PathArgument { path: 2, directory: Some(1), ..path_lookup(calls::SYS_symlinkat) }, FileEffect::Makes),
];

/// The effect of a call, and its file. None for reads and refused calls.
pub(super) fn file_effect(
    number: libc::c_long,
    arguments: &[u64; 6],
) -> Option<(&'static PathArgument, FileEffect)> {
    let call = Call::of(number)?;
    let (looks, touch) = CHANGING_CALLS.iter().find(|(looks, _)| looks.call == call)?;
    if !goes_on(looks, arguments) {
        return None;
    }
    let Some(flags) = looks.flags else {
        let is_directory = call == calls::SYS_unlinkat
            && low_half(arguments.get(2).copied()) & libc::AT_REMOVEDIR.unsigned_abs() != 0;
        return Some((looks, if is_directory { FileEffect::RemovesDirectory } else { *touch }));
    };
    let flags = low_half(arguments.get(flags).copied());
    let has = |bits: libc::c_int| flags & bits.unsigned_abs() == bits.unsigned_abs();
    let touch = match (has(libc::O_CREAT), has(libc::O_EXCL)) {
        (true, true) => FileEffect::Makes,
        (true, false) => FileEffect::Writes,
        (false, _) => FileEffect::Changes,
    };
    (flags & WRITING != 0).then_some((looks, touch))
}

/// How a call looks up a file; None for others.
#[must_use]
pub(super) fn of(number: libc::c_long) -> Option<&'static PathArgument> {
    let call = Call::of(number)?;
    PATH_LOOKUPS.iter().find(|looks| looks.call == call)
}

/// Whether the table allows a call with these arguments, which are not pointers.
#[must_use]
pub(super) fn goes_on(looks: &PathArgument, arguments: &[u64; 6]) -> bool {
    let rule = RULES.iter().find(|rule| rule.calls.contains(&looks.call));
    match rule.map(|rule| rule.verdict) {
        Some(Verdict::Allow | Verdict::MissingFileHandler) => true,
        Some(Verdict::Check(ArgumentCheck::NewName { mode, forbidden })) => {
            low_half(arguments.get(mode as usize).copied()) & forbidden == 0
        }
        Some(Verdict::Check(ArgumentCheck::NewFile { flags, mode, forbidden })) => {
            let [flags, mode] = [flags, mode].map(|index| low_half(arguments.get(index as usize).copied()));
            flags & FILE_CREATION == 0 || mode & forbidden == 0
        }
        _ => false,
    }
}

/// The value as the filter reads it.
pub(super) fn low_half(argument: Option<u64>) -> u32 {
    (argument.unwrap_or(u64::MAX) & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_calls_that_the_filter_refuses_do_not_continue() {
        let openat = of(libc::SYS_openat).unwrap();
        let makes = u64::from(libc::O_CREAT.unsigned_abs());
        assert!(goes_on(openat, &[0, 0, 0, 0o4755, 0, 0]));
        assert!(goes_on(openat, &[0, 0, makes, 0o644, 0, 0]));
        assert!(!goes_on(openat, &[0, 0, makes, 0o4755, 0, 0]));
        assert!(!goes_on(openat, &[0, 0, makes | 1 << 40, 0o2755, 0, 0]));
        assert_eq!(
            file_effect(libc::SYS_openat, &[0, 0, makes | 1, 0o644, 0, 0]).unwrap().1,
            FileEffect::Writes
        );
        assert!(file_effect(libc::SYS_openat, &[0, 0, makes | 1, 0o4755, 0, 0]).is_none());
        assert!(file_effect(libc::SYS_openat, &[0, 0, 0, 0, 0, 0]).is_none());
        let truncates = u64::from(libc::O_TRUNC.unsigned_abs());
        assert_eq!(
            file_effect(libc::SYS_openat, &[0, 0, truncates, 0, 0, 0]).unwrap().1,
            FileEffect::Changes
        );
        assert_eq!(file_effect(libc::SYS_mknodat, &[0, 0, 0o644, 0, 0, 0]).unwrap().1, FileEffect::Makes);
        assert!(file_effect(libc::SYS_mknodat, &[0, 0, 0o4644, 0, 0, 0]).is_none());
        let removes = |flags: libc::c_int| {
            file_effect(libc::SYS_unlinkat, &[0, 0, flags.unsigned_abs().into(), 0, 0, 0]).unwrap().1
        };
        assert_eq!(removes(0), FileEffect::Unlinks);
        assert_eq!(removes(libc::AT_REMOVEDIR), FileEffect::RemovesDirectory);
        assert!(of(libc::SYS_mount).is_none() && of(libc::SYS_write).is_none());
        for looks in PATH_LOOKUPS {
            assert!(
                looks.call.number_on(calls::Architecture::NATIVE).is_none() || goes_on(looks, &[0; 6]),
                "{looks:?}"
            );
        }
    }
}
