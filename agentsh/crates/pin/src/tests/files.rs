use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::super::file::{Hasher, system_owned};
use super::super::{DigestCache, FileKey, Launcher, PinError, Progress, Role};
use super::{Machine, argv};

#[derive(Default)]
struct Memory {
    known: std::collections::BTreeMap<FileKey, [u8; 32]>,
    lookups: usize,
}

impl DigestCache for Memory {
    fn lookup(&mut self, key: &FileKey) -> Option<[u8; 32]> {
        self.lookups += 1;
        self.known.get(key).copied()
    }
    fn store(&mut self, key: FileKey, digest: [u8; 32]) {
        self.known.insert(key, digest);
    }
}

#[test]
fn a_program_is_found_once_and_its_links_are_followed() {
    let machine = Machine::new();
    let real = machine.program("apps/server-1.2", "\u{7f}ELF server");
    machine.link("opt/bin/server", &real);
    let resolved = machine.ok(&["server", "--port", "1"]);
    assert_eq!(resolved.launcher, Launcher::Direct);
    assert_eq!(resolved.program, real);
    assert_eq!(argv(&resolved), ["server", "--port", "1"], "as it was typed");
    assert_eq!(resolved.identity, format!("file:{}", real.display()));
    assert_eq!(resolved.files[0].role, Role::Executable);
    assert_eq!(resolved.files[0].sha256, <[u8; 32]>::from(Sha256::digest("\u{7f}ELF server")));
    assert_eq!(resolved.read_roots, [real]);
    assert_eq!(resolved.unpinned, None);
}

#[test]
fn windows_program_is_refused_where_wsl_would_start_it() {
    let machine = Machine::new();
    let (windows, linux) = (machine.program("opt/a.exe", "MZ\0"), machine.program("opt/a", "\u{7f}ELF"));
    let refused = super::super::command::of_linux(&windows, true).unwrap_err().to_string();
    assert!(refused.contains("a.exe, a program of Windows, cannot be pinned"), "{refused}");
    super::super::command::of_linux(&windows, false).unwrap();
    super::super::command::of_linux(&linux, true).unwrap();
}

#[test]
fn relative_and_empty_path_entries_are_ignored() {
    let mut machine = Machine::new();
    machine.program("project/server", "hostile");
    for path in ["", ":", ".", "./", ".:", "::relative"] {
        machine.path = OsString::from(path);
        assert!(matches!(machine.err(&["server"]), PinError::NotFound { .. }), "{path:?}");
    }
    machine.path = format!(".::{}", machine.at("opt/bin").display()).into();
    let good = machine.program("opt/bin/server", "good");
    assert_eq!(machine.ok(&["server"]).program, good);
    assert_eq!(machine.ok(&["./server"]).program, machine.at("project/server"));
}

#[test]
fn pin_of_a_file_that_cannot_be_executed_is_refused() {
    let machine = Machine::new();
    machine.file("project/plain", "no x bit");
    assert!(matches!(machine.err(&["./plain"]), PinError::NotExecutable { .. }));
    fs::create_dir(machine.at("project/folder")).unwrap();
    assert!(matches!(machine.err(&["./folder"]), PinError::NotRegular { kind: "directory", .. }));
    machine.link("project/loop", "loop");
    assert!(matches!(machine.err(&["./loop"]), PinError::Io { .. }));
    machine.link("project/nowhere", "missing");
    assert!(matches!(machine.err(&["./nowhere"]), PinError::Io { .. }));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        machine.at("project/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o755),
        0,
    )
    .unwrap();
    assert!(matches!(machine.err(&["./fifo"]), PinError::NotRegular { kind: "FIFO", .. }));
    assert!(matches!(machine.err(&[""]), PinError::NotFound { .. }));
    assert!(matches!(machine.err(&["a\0b"]), PinError::Io { .. } | PinError::NotFound { .. }));
}

#[test]
fn a_directory_or_plain_file_in_path_does_not_hide_the_program_behind_it() {
    let mut machine = Machine::new();
    fs::create_dir_all(machine.at("first/server")).unwrap();
    machine.file("second/server", "no x bit");
    let good = machine.program("opt/bin/server", "good");
    let parts = ["first", "second", "opt/bin"].map(|part| machine.at(part));
    machine.path = std::env::join_paths(parts).unwrap();
    assert_eq!(machine.ok(&["server"]).program, good);
}

#[test]
fn a_directory_in_path_that_may_not_be_searched_holds_nothing() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        // Root may search every directory; the suite tries this as a user.
        return;
    }
    let mut machine = Machine::new();
    machine.program("shut/server", "hidden");
    let good = machine.program("opt/bin/server", "good");
    let shut = machine.at("shut");
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o000)).unwrap();
    machine.path = std::env::join_paths([shut.clone(), machine.at("opt/bin")]).unwrap();
    assert_eq!(machine.ok(&["server"]).program, good);
    assert!(matches!(machine.err(&["absent"]), PinError::NotFound { .. }));
    fs::set_permissions(&shut, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn empty_program_has_the_digest_of_an_empty_text() {
    let machine = Machine::new();
    machine.program("project/empty", "");
    let resolved = machine.ok(&["./empty"]);
    assert_eq!((resolved.files[0].size, resolved.files[0].sha256), (0, Sha256::digest("").into()));
}

#[test]
fn the_kept_descriptor_reads_the_hashed_bytes_after_the_path_is_replaced() {
    let machine = Machine::new();
    let path = machine.program("project/server", "old");
    let resolved = machine.ok(&["./server"]);
    resolved.unchanged_since().unwrap();
    let other = machine.program("project/other", "new");
    fs::rename(other, &path).unwrap();
    let mut bytes = String::new();
    (&resolved.files[0].file).read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "old");
    let error = resolved.unchanged_since().unwrap_err();
    assert!(matches!(&error, PinError::ChangedSince { path: named } if *named == path), "{error}");
}

#[test]
fn a_write_with_the_old_timestamps_is_still_seen() {
    let machine = Machine::new();
    let path = machine.program("project/server", "old");
    let resolved = machine.ok(&["./server"]);
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "new").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
    assert!(resolved.unchanged_since().is_err());
}

#[test]
fn digest_cache_skips_recently_changed_files() {
    let machine = Machine::new();
    let young = machine.program("project/young", "text");
    let mut memory = Memory::default();
    let mut quiet = |_: Progress<'_>| ();
    let first = Hasher::new(&mut memory, &mut quiet).pin(&young, Role::Entry).unwrap();
    assert!(first.stamp.racy && memory.known.is_empty() && memory.lookups == 0);

    let old = Path::new("/etc/passwd");
    let pinned = Hasher::new(&mut memory, &mut quiet).pin(old, Role::Entry).unwrap();
    assert_eq!((memory.known.len(), memory.lookups), (1, 1));
    // The answer comes from the memory: a wrong one is believed.
    memory.known.values_mut().for_each(|digest| *digest = [7; 32]);
    let again = Hasher::new(&mut memory, &mut quiet).pin(old, Role::Entry).unwrap();
    assert_eq!((pinned.stamp, again.sha256), (again.stamp, [7; 32]));
}

#[test]
fn hashing_a_big_file_reports_progress() {
    let machine = Machine::new();
    let path = machine.program("project/big", "");
    fs::File::options().write(true).open(&path).unwrap().set_len(20 << 20).unwrap();
    let mut told = Vec::new();
    let mut listen = |progress: Progress<'_>| told.push((progress.done, progress.total));
    Hasher::new(&mut Memory::default(), &mut listen).pin(&path, Role::Entry).unwrap();
    assert_eq!(told, [(8 << 20, 20 << 20), (16 << 20, 20 << 20)]);
}

#[test]
fn a_link_is_not_opened_in_place_of_the_file() {
    let machine = Machine::new();
    let real = machine.file("project/real", "x");
    let link = machine.link("project/link", &real);
    machine.link("side", machine.at("project"));
    let mut memory = Memory::default();
    let mut quiet = |_: Progress<'_>| ();
    let mut hasher = Hasher::new(&mut memory, &mut quiet);
    assert!(hasher.pin(&link, Role::Entry).is_err());
    assert!(hasher.pin(&machine.at("side/real"), Role::Entry).is_err());
}

#[test]
fn unreadable_bytes_are_an_error() {
    let machine = Machine::new();
    let path = machine.program("project/secret", "x");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o111)).unwrap();
    // Root reads everything: the error is only there for others.
    if fs::metadata(&path).unwrap().uid() != 0 {
        assert!(matches!(machine.err(&["./secret"]), PinError::Unreadable { .. }));
    }
    let denied = PinError::io(&path, std::io::Error::from(std::io::ErrorKind::PermissionDenied));
    assert!(matches!(denied, PinError::Unreadable { .. }));
}

#[test]
fn only_paths_that_root_alone_can_replace_are_system_owned() {
    assert!(system_owned(Path::new("/usr/bin/env")) || fs::metadata("/usr").unwrap().uid() != 0);
    let machine = Machine::new();
    let path = machine.program("project/server", "x");
    assert!(!system_owned(&path), "below a directory that others may write");
    assert!(!system_owned(Path::new("relative")));
    assert!(!machine.ok(&["./server"]).files[0].system_owned);
}
