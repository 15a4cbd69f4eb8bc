//! All files of one kind below a directory, or the reason why the list is incomplete. A skipped part could hide one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agentsh_base::missing::is_missing;

/// Files of the kind, and entries of any, that one directory may hold in all.
const MAX_FILES: usize = 500;
const MAX_ENTRIES: usize = 20_000;

/// The files whose names end in `.EXTENSION`, with links followed, by their real paths. Empty if there is no such directory.
///
/// # Errors
/// What cannot be looked at, or that there is too much.
pub(super) fn files(folder: &Path, extension: &str) -> Result<BTreeSet<PathBuf>, String> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut open, mut entries) = (vec![folder.to_owned()], 0);
    while let Some(directory) = open.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        let real = match std::fs::canonicalize(&directory) {
            Ok(real) => real,
            Err(error) if is_missing(&error) => continue,
            Err(error) => return Err(failed(error)),
        };
        if !seen.insert(real.clone()) {
            continue;
        }
        let listed = match std::fs::read_dir(&real) {
            Err(error) if is_missing(&error) => continue,
            listed => listed.map_err(failed)?,
        };
        for entry in listed {
            entries += 1;
            if entries > MAX_ENTRIES || found.len() > MAX_FILES {
                return Err(format!("there are more than {MAX_FILES} files or {MAX_ENTRIES} entries"));
            }
            let path = entry.map_err(failed)?.path();
            match std::fs::metadata(&path) {
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(_) if path.extension().is_some_and(|end| end.eq_ignore_ascii_case(extension)) => {
                    found.insert(std::fs::canonicalize(&path).map_err(failed)?);
                }
                Ok(_) => {}
                // A link that leads nowhere.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_once_and_too_much_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        assert_eq!(files(&root.join("none"), "md"), Ok(BTreeSet::new()));
        let deep = (0..40).fold(root.join("a"), |path, _| path.join("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x.MD"), "").unwrap();
        fs::write(root.join("other.txt"), "").unwrap();
        symlink(&root, deep.join("loop")).unwrap();
        symlink("../other.txt", root.join("a/link.md")).unwrap();
        symlink("nowhere", root.join("gone.md")).unwrap();
        assert_eq!(files(&root.join("a"), "md"), Ok([deep.join("x.MD"), root.join("other.txt")].into()));
        for number in 0..=MAX_FILES {
            fs::write(root.join(format!("{number}.md")), "").unwrap();
        }
        assert!(files(&root, "md").unwrap_err().contains("more than"));
    }
}
