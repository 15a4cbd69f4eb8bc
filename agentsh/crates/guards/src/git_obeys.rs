//! Files of a repository that git obeys, besides objects, refs and guarded files (gitrepository-layout(5)). They can
//! make git show other commits than it pushes, so their content is compared with that before the run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agentsh_base::small_file;
use agentsh_base::types::FileKey;
use agentsh_host::copies::{Copy, write_anew_without_links};
use agentsh_host::undo::SavedVersions;
use agentsh_policy::builtin_paths::{GIT_OBEYS, WhenChanged};
use agentsh_sandbox::host::OWNER_READS;

use super::disarm_new::{DisarmOutcome, is_in_one_of, open_on_the_way};

/// Paths relative to the repository, and what they say.
pub type ObeyedFiles = BTreeSet<(PathBuf, Vec<u8>)>;

const PACKED: &str = "packed-refs";
/// So many refs make git itself useless.
const MAX_PACKED_BYTES: u64 = 1 << 30;
/// A longer file is known by its size and times.
const MAX_BYTES: u64 = 64 << 10;

/// Paths that are set aside or removed if they are new.
#[must_use]
pub fn obeyed_files(git: &Path) -> ObeyedFiles {
    let mut found: ObeyedFiles = replaced_objects(git).into_iter().flatten().collect();
    found.extend(in_files(git, false).into_iter().map(|(name, content, _)| (name, content)));
    found
}

/// Removes what was not there before. A cache goes without a word: git makes it again.
pub fn set_aside_new(
    git: &Path,
    before: &ObeyedFiles,
    roots: &[PathBuf],
    aside: &SavedVersions,
    done: &mut DisarmOutcome,
) {
    for (name, content, when) in in_files(git, true) {
        let path = git.join(&name);
        if before.contains(&(name, content)) || path.symlink_metadata().is_err() {
            continue;
        }
        // A written file is in a root; otherwise a link on the way is new.
        let real = path.parent().and_then(|above| above.canonicalize().ok()).unwrap_or_default();
        let real = real.join(path.file_name().unwrap_or_default());
        let link =
            path.ancestors().take_while(|above| *above != git).filter(|above| above.is_symlink()).last();
        let written = Some(real.as_path()).filter(|real| is_in_one_of(real, roots)).or(link).unwrap_or(&path);
        match when {
            WhenChanged::Removed if fs::remove_file(written).is_ok() => {}
            _ => done.set_aside(written, &Copy::of_own(written), aside),
        }
    }
    let mut packed_now = replaced_objects(git);
    if packed_now.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
        open_on_the_way(git, Path::new(PACKED));
        packed_now = replaced_objects(git);
    }
    let new: BTreeSet<_> = packed_now.into_iter().flatten().filter(|entry| !before.contains(entry)).collect();
    if !new.is_empty() {
        let path = git.join(PACKED);
        let names = new.iter().map(|(name, _)| format!("{} (in {PACKED})", name.display())).collect();
        for (name, id) in &new {
            let content = [id.as_slice(), b"\n"].concat();
            let _ = aside.keep(&git.join(name), &Copy::File { content, mode: 0o644 });
        }
        done.record_rewrite(&path, names, remove_packed_refs(&path, &new));
    }
}

/// Rewrites the packed refs without some, and without what they were peeled to.
fn remove_packed_refs(path: &Path, gone: &ObeyedFiles) -> io::Result<()> {
    let text = small_file::read(path, MAX_PACKED_BYTES)?.unwrap_or_default();
    let mut is_gone = false;
    let left = text.split_inclusive(|byte| *byte == b'\n').filter(|line| {
        is_gone = match line.first() {
            Some(b'^') => is_gone,
            _ => parse_replacement(line).is_some_and(|entry| gone.contains(&entry)),
        };
        !is_gone
    });
    write_anew_without_links(path, &left.collect::<Vec<_>>().concat(), 0o644)
}

/// Replaced objects among the packed refs.
fn replaced_objects(git: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let text = small_file::read(git.join(PACKED), MAX_PACKED_BYTES)?.unwrap_or_default();
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse_replacement).collect())
}

/// `ID refs/replace/ID`
fn parse_replacement(line: &[u8]) -> Option<(PathBuf, Vec<u8>)> {
    let line = line.trim_ascii_end();
    let end = line.iter().position(|byte| *byte == b' ')?;
    let (id, name) = (line.get(..end)?, line.get(end + 1..)?);
    name.starts_with(b"refs/replace/").then(|| (OsStr::from_bytes(name).into(), id.to_vec()))
}

/// `opens`: what is closed to its owner is opened.
fn in_files(git: &Path, opens: bool) -> Vec<(PathBuf, Vec<u8>, WhenChanged)> {
    let mut found = Vec::new();
    for (name, when, _) in GIT_OBEYS.iter().filter(|(_, when, _)| *when != WhenChanged::Told) {
        let mut open = vec![PathBuf::from(name)];
        while let Some(name) = open.pop() {
            let path = git.join(&name);
            let mut stands = path.symlink_metadata();
            let is_closed = |stands: &io::Result<Metadata>| match stands {
                Ok(found) => found.is_dir() && found.mode() & OWNER_READS != OWNER_READS,
                Err(error) => error.kind() == ErrorKind::PermissionDenied,
            };
            if opens && is_closed(&stands) {
                open_on_the_way(git, &name);
                stands = path.symlink_metadata();
            }
            let Ok(stands) = stands else { continue };
            let key = || format!("{:?}", FileKey::from(&stands)).into_bytes();
            let content = if stands.is_dir() {
                let names = fs::read_dir(&path).into_iter().flatten().flatten();
                open.extend(names.map(|entry| name.join(entry.file_name())));
                continue;
            } else if stands.is_symlink() {
                fs::read_link(&path).map(|to| to.into_os_string().into_vec()).unwrap_or_default()
            } else if *when == WhenChanged::Removed {
                key()
            } else {
                let content = small_file::read(&path, MAX_BYTES).ok().flatten();
                content.map_or_else(key, |content| content.trim_ascii_end().to_vec())
            };
            found.push((name, content, *when));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn new_replace_refs_and_grafts_are_removed_and_old_ones_stay() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().canonicalize().unwrap();
        let (git, elsewhere) = (top.join("p/.git"), top.join("other"));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let (old, new) = ("1".repeat(40), "2".repeat(40));
        write(&git.join("refs/replace").join(&old), &format!("{new}\n"));
        write(&git.join("objects/info/commit-graph"), "old");
        let before = obeyed_files(&git);
        // git packs what was there.
        fs::remove_file(git.join("refs/replace").join(&old)).unwrap();
        let rest = format!("# pack-refs with: peeled\n{new} refs/heads/m\n{new} refs/replace/{old}\n");
        write(
            &git.join(PACKED),
            &format!("{rest}{old} refs/replace/{new}\n^{new}\n{old} refs/tags/t\n^{new}\n"),
        );
        fs::write(git.join("objects/info/commit-graph"), "new, and longer").unwrap();
        write(&git.join("objects/info/commit-graphs/graph-1.graph"), "");
        write(&elsewhere.join("grafts"), "x");
        std::os::unix::fs::symlink(&elsewhere, git.join("info")).unwrap();
        let aside = SavedVersions::new(&top.join("state"), "s");
        let mut done = DisarmOutcome::default();
        set_aside_new(&git, &before, &[top.join("p")], &aside, &mut done);
        assert_eq!(
            fs::read_to_string(git.join(PACKED)).unwrap(),
            format!("{rest}{old} refs/tags/t\n^{new}\n")
        );
        assert!(obeyed_files(&git).is_subset(&before) && !git.join("info").is_symlink(), "{done:?}");
        assert!(elsewhere.join("grafts").exists(), "it is somebody else's");
        assert!(done.names.len() == 2 && !done.is_incomplete, "{done:?}");
    }
}
