//! What the caller of `agentsh run` passed besides text: arguments that are not UTF-8, and descriptors that arguments
//! name, such as `<(...)`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, Gid, Uid};

use agentsh_sandbox::host::normalised_path;
use agentsh_sandbox::plan::Identity;

/// Shells start at 63 and count down.
const MAX_NAMED_DESCRIPTOR: u32 = 255;

/// The original command line.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// As text, with replacement characters.
    pub words: Vec<String>,
    /// The original bytes of words that are not UTF-8.
    bytes: BTreeMap<String, OsString>,
    descriptors: Rc<Vec<(u32, OwnedFd)>>,
}

impl CommandLine {
    /// Call before opening descriptors, because arguments name them by number.
    #[must_use]
    pub fn take(arguments: Vec<OsString>) -> Self {
        let mut given = Self::default();
        let mut descriptors = BTreeMap::new();
        for argument in arguments {
            for number in named_descriptors(&argument) {
                if !descriptors.contains_key(&number)
                    && let Some(open) = reopen(number)
                {
                    descriptors.insert(number, open);
                }
            }
            let word = argument.into_string().unwrap_or_else(|bytes| {
                let mut word = bytes.to_string_lossy().into_owned();
                while given.bytes.get(&word).is_some_and(|other| *other != bytes) {
                    word.push(char::REPLACEMENT_CHARACTER);
                }
                given.bytes.insert(word.clone(), bytes);
                word
            });
            given.words.push(word);
        }
        given.descriptors = Rc::new(descriptors.into_iter().collect());
        given
    }

    #[must_use]
    pub fn argument(&self, word: OsString) -> OsString {
        let bytes = word.to_str().and_then(|word| self.bytes.get(word));
        bytes.cloned().unwrap_or(word)
    }

    /// Duplicates of named descriptors, with their numbers.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn descriptors(&self) -> io::Result<Vec<(u32, OwnedFd)>> {
        self.descriptors.iter().map(|(number, open)| Ok((*number, open.try_clone()?))).collect()
    }

    /// Changes the owner of pipes: if root started agentsh, the sandbox's user could not open `/dev/stderr`.
    pub fn hand_pipes_to(&self, identity: Identity, streams: &[BorrowedFd<'_>]) {
        if !identity.from_root {
            return;
        }
        let named = self.descriptors.iter().map(|(_, open)| std::os::fd::AsFd::as_fd(open));
        for stream in streams.iter().copied().chain(named) {
            let is_pipe = rustix::fs::fstat(stream).is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode) == FileType::Fifo && stat.st_nlink == 1
            });
            if is_pipe && is_unnamed(stream) {
                let (user, group) = (Uid::from_raw(identity.host_uid), Gid::from_raw(identity.host_gid));
                // If it fails, only opening by name fails.
                let _ = rustix::fs::fchown(stream, Some(user), Some(group));
            }
        }
    }
}

/// Project scripts as typed, by real path: pinning resolves links, but scripts look next to their typed name.
#[must_use]
pub fn scripts(project: &Path, directory: &Path, typed: &[String]) -> BTreeMap<OsString, OsString> {
    let mut found = BTreeMap::new();
    for word in typed {
        let path = normalised_path(&directory.join(word));
        let is_there = path.starts_with(project) && path.symlink_metadata().is_ok();
        let real = is_there.then(|| path.canonicalize().ok()).flatten();
        if let Some(real) = real.filter(|real| {
            real.is_file() && real.to_str().is_none_or(|real| !typed.iter().any(|word| word == real))
        }) {
            found.entry(real.into_os_string()).or_insert_with(|| word.into());
        }
    }
    found
}

/// An anonymous pipe.
fn is_unnamed(stream: BorrowedFd<'_>) -> bool {
    const PIPEFS: rustix::fs::FsWord = 0x5049_5045;
    rustix::fs::fstatfs(stream).is_ok_and(|found| found.f_type == PIPEFS)
}

/// Non-standard descriptors that an argument names.
fn named_descriptors(argument: &OsStr) -> Vec<u32> {
    const PLACES: [&[u8]; 2] = [b"/dev/fd/", b"/proc/self/fd/"];
    let bytes = argument.as_bytes();
    let mut found = Vec::new();
    for place in PLACES {
        for at in memchr::memmem::find_iter(bytes, place) {
            let digits = bytes.get(at + place.len()..).unwrap_or_default();
            let length = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
            let number =
                digits.get(..length).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
            found.extend(number.filter(|number| (3..=MAX_NAMED_DESCRIPTOR).contains(number)));
        }
    }
    found
}

/// Reopens a pipe or regular file, as `/dev/fd` does. Nothing else is passed on.
fn reopen(number: u32) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{number}");
    let kind = std::fs::metadata(&path).ok()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return None;
    }
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or_default().trim();
    let access = i32::from_str_radix(flags, 8).ok()? & libc::O_ACCMODE;
    let mut options = File::options();
    options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
    options.open(path).ok().map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn descriptors_are_found_wherever_an_argument_names_them() {
        let named = |text: &str| named_descriptors(OsStr::new(text));
        assert_eq!(named("/dev/fd/63"), [63]);
        assert_eq!(named("--config=/proc/self/fd/12,/dev/fd/3"), [3, 12]);
        assert_eq!(named("/dev/fd/2 /dev/fd/256 /dev/fd/ /dev/fd/x"), [0_u32; 0]);
    }

    #[test]
    fn arguments_of_any_bytes_come_back_as_they_were() {
        let odd = [b"a\xff".to_vec(), b"a\xfe".to_vec(), b"a".to_vec()].map(OsString::from_vec);
        let given = CommandLine::take(odd.to_vec());
        assert_eq!(given.words.len(), 3);
        let back: Vec<OsString> = given.words.iter().map(|word| given.argument(word.into())).collect();
        assert_eq!(back, odd);
    }
}
