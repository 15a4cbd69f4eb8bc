//! Directories in which one file has several names (decision 480): case-insensitive ones, and those with DOS short
//! names. A mount over one name does not cover the others, so nothing there can be guarded or hidden.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::wsl;

/// Windows drives in WSL 2, and shared directories of virtual machines.
const PLAN9: u64 = 0x0102_1997;
/// File systems where another system compares names. A case-folding file system of this kernel (ext4, vfat) has one
/// entry for all spellings, so mounts cover them.
const COMPARED_ELSEWHERE: [u64; 7] = [
    PLAN9,
    0x6573_5546, // FUSE, virtiofs
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB 2
    0x786F_4256, // shared folders of VirtualBox
];
/// Limit of names that are tried in another case.
const MAX_NAMES: usize = 100;

/// Whether a file in a directory may have a second name.
#[must_use]
pub fn has_name_aliases(directory: &Path) -> bool {
    let Ok(found) = rustix::fs::statfs(directory) else { return false };
    // A word with a sign, of which 32 bits count.
    let kind = found.f_type.cast_unsigned() & u64::from(u32::MAX);
    judge(kind, wsl::current().is_some(), || answers_in_other_letters(directory))
}

fn judge(kind: u64, is_wsl: bool, answers: impl FnOnce() -> bool) -> bool {
    match kind {
        // NTFS has short names even if case-sensitive.
        PLAN9 if is_wsl => true,
        kind => COMPARED_ELSEWHERE.contains(&kind) && answers(),
    }
}

/// Looks up existing names in the opposite case. Names without letters show nothing.
fn answers_in_other_letters(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else { return true };
    let names = entries.take(MAX_NAMES).flatten().map(|entry| directory.join(entry.file_name()));
    let device = |path: &Path| path.symlink_metadata().ok().map(|found| found.dev());
    // The directory's own name counts too, unless it is a mount point.
    let above = directory.parent().filter(|above| device(above) == device(directory));
    let own = above.is_some().then(|| directory.to_owned());
    names.chain(own).find_map(|path| answers_to_another(&path)).unwrap_or(true)
}

/// Whether a file is found under its name in the opposite case; None without letters.
fn answers_to_another(path: &Path) -> Option<bool> {
    let name = path.file_name()?.as_bytes();
    let turned: Vec<u8> =
        name.iter()
            .map(|byte| {
                if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
            })
            .collect();
    if turned == name {
        return None;
    }
    let id = |path: &Path| path.symlink_metadata().ok().map(|found| (found.dev(), found.ino()));
    let turned = path.with_file_name(std::ffi::OsString::from_vec(turned));
    Some(id(path).is_some_and(|id_of_it| id(&turned) == Some(id_of_it)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn case_insensitivity_is_decided_by_file_system_and_then_by_a_trial() {
        assert!(judge(PLAN9, true, || false), "a drive of Windows has short names");
        assert!(!judge(PLAN9, false, || false), "a shared directory of a machine with Linux");
        assert!(judge(PLAN9, false, || true) && judge(0x6573_5546, true, || true));
        let ext4 = 0xEF53;
        assert!(!judge(ext4, true, || true), "the kernel compares itself");
    }

    #[test]
    fn case_insensitivity_trial_uses_the_other_case() {
        let place = tempfile::tempdir().unwrap();
        let project = place.path().join("project");
        std::fs::create_dir(&project).unwrap();
        assert!(!answers_in_other_letters(&project), "by its own name");
        std::fs::write(project.join("12"), "").unwrap();
        std::fs::write(project.join("Read.me"), "").unwrap();
        assert!(!answers_in_other_letters(&project));
        // As it looks where names are compared without their case.
        std::fs::hard_link(project.join("Read.me"), project.join("rEAD.ME")).unwrap();
        assert!(answers_in_other_letters(&project));
        assert!(!has_name_aliases(&project), "and this file system is one of Linux");
    }

    #[test]
    fn case_insensitivity_trial_needs_a_name_with_letters() {
        assert_eq!(answers_to_another(Path::new("/1-2")), None);
        assert!(answers_in_other_letters(Path::new("/nowhere/at/all")), "what cannot be looked into");
    }
}
