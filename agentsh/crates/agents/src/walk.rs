//! All files of some kinds below a directory, or the reason why the list is incomplete. A skipped part could hide one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Launch;
use agentsh_base::missing::is_missing;

/// Files of the kinds that one directory may hold in all, as a rule.
pub(super) const MAX_FILES: usize = 500;
/// Entries for each of these files.
const MAX_ENTRIES: usize = 40;

/// The files whose names end in `.EXTENSION`, with links followed, by their real paths, except those below
/// directories that are `passed_over`. Empty if there is no such directory. A directory that cannot be searched
/// completely is hidden.
pub(super) fn files(
    folder: &Path,
    extensions: &[&str],
    passed_over: &[&str],
    most: usize,
    launch: &mut Launch,
) -> BTreeSet<PathBuf> {
    find_files(folder, extensions, passed_over, most).unwrap_or_else(|why| {
        let shown = folder.display().to_string();
        let shown = agentsh_base::escape::line(&shown);
        launch.notes.push(format!("{shown} is not passed to the agent: {why}"));
        launch.hidden.push(std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()));
        BTreeSet::new()
    })
}

fn find_files(
    folder: &Path,
    extensions: &[&str],
    passed_over: &[&str],
    most: usize,
) -> Result<BTreeSet<PathBuf>, String> {
    let is_one_of = |name: Option<&OsStr>, of: &[&str]| {
        name.is_some_and(|name| of.iter().any(|one| name.eq_ignore_ascii_case(one)))
    };
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
            if entries > most * MAX_ENTRIES || found.len() > most {
                return Err(format!("there are more than {most} files or {} entries", most * MAX_ENTRIES));
            }
            let path = entry.map_err(failed)?.path();
            match std::fs::metadata(&path) {
                Ok(kind) if kind.is_dir() && is_one_of(path.file_name(), passed_over) => {}
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(_) if is_one_of(path.extension(), extensions) => {
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
    fn walk_follows_links_once_and_is_bounded() {
        let place = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(place.path()).unwrap();
        let md = |folder: &Path| find_files(folder, &["md"], &["vendor"], MAX_FILES);
        assert_eq!(md(&root.join("none")), Ok(BTreeSet::new()));
        let deep = (0..40).fold(root.join("a"), |path, _| path.join("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("x.MD"), "").unwrap();
        fs::write(root.join("other.txt"), "").unwrap();
        fs::create_dir(root.join("a/vendor")).unwrap();
        fs::write(root.join("a/vendor/y.md"), "").unwrap();
        symlink(&root, deep.join("loop")).unwrap();
        symlink("../other.txt", root.join("a/link.md")).unwrap();
        symlink("nowhere", root.join("gone.md")).unwrap();
        assert_eq!(md(&root.join("a")), Ok([deep.join("x.MD"), root.join("other.txt")].into()));
        for number in 0..=MAX_FILES {
            fs::write(root.join(format!("{number}.md")), "").unwrap();
        }
        assert!(md(&root).unwrap_err().contains("more than"));
    }
}
