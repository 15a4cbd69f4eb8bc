//! Reads the commit of a repository without git, at the start and end of every session.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agentsh_base::small_file;

/// Limit of a ref file.
const MAX_NAME_BYTES: u64 = 4 << 10;
/// Limit of packed refs.
const MAX_PACKED_BYTES: u64 = 16 << 20;
/// From the end of the log of HEAD.
const MAX_LOG_BYTES: u64 = 64 << 10;
/// Linked working trees in the project whose logs are read.
const MAX_TREES: usize = 256;

/// The repository of a working tree, whose content is untrusted.
pub struct Repository {
    /// What belongs to this working tree alone.
    pub own: PathBuf,
    pub common: PathBuf,
    /// The commit. None: there is none.
    pub head: Option<String>,
}

impl Repository {
    /// None: not a working tree.
    #[must_use]
    pub fn of(project: &Path) -> Option<Self> {
        let dot = project.join(".git");
        let (own, said) = match name(&dot.join("HEAD")) {
            Some(said) => (dot, said),
            None => {
                let own = project.join(name(&dot)?.strip_prefix("gitdir:")?.trim());
                let said = name(&own.join("HEAD"))?;
                (own, said)
            }
        };
        let common = name(&own.join("commondir")).map_or(own.clone(), |named| own.join(named.trim()));
        let head = match said.strip_prefix("ref:").map(str::trim) {
            None => Some(said),
            Some(branch) => name(&common.join(branch)).or_else(|| packed_head(&common, branch)),
        };
        // A ref may name any file, so only a commit id is accepted.
        let head = head.map(|id| id.trim().to_owned()).filter(|id| is_id(id));
        Some(Self { own, common, head })
    }
}

#[must_use]
pub fn head(project: &Path) -> Option<String> {
    Repository::of(project)?.head
}

/// Like [`head`], and other commits at which HEAD stood since a time in seconds since 1970, by git's log of it, or that of a
/// linked working tree inside the project. It has those of branches that were left again, and those that were replaced or
/// dropped; a commit with its child is named by the child.
#[must_use]
pub fn head_and_left(
    project: &Path,
    repository: Option<&Repository>,
    since: u64,
) -> (Option<String>, Vec<String>) {
    let Some(Repository { own, common, head }) = repository else { return (None, Vec::new()) };
    let linked =
        std::fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_inside = |tree: &PathBuf| {
        let dot = name(&tree.join("gitdir")).and_then(|dot| tree.join(dot.trim()).canonicalize().ok());
        dot.zip(project.canonicalize().ok()).is_some_and(|(dot, project)| dot.starts_with(project))
    };
    let others = linked.filter(|tree| tree != own).filter(is_inside).take(MAX_TREES);
    let trees = others.chain([own.clone()]);
    let log: String = trees.filter_map(|tree| log(&tree)).collect();
    let (mut left, mut parents) = (BTreeSet::new(), BTreeSet::new());
    for line in log.lines() {
        // `OLD NEW NAME <ADDRESS> SECONDS ZONE`, a tab, and what was done.
        let Some((entry, done)) = line.split_once('\t') else { continue };
        let (mut ids, mut behind) = (entry.split(' '), entry.rsplit(' '));
        let (old, new) = (ids.next().unwrap_or_default(), ids.next().unwrap_or_default());
        let time = behind.nth(1).and_then(|time| time.parse::<u64>().ok());
        if is_id(new) && time.is_some_and(|time| time >= since) {
            left.insert(new);
            parents.extend(Some(old).filter(|_| done.starts_with("commit:")));
        }
    }
    let is_left = |id: &&str| Some(*id) != head.as_deref() && !parents.contains(id);
    let left = left.iter().copied().filter(is_left).map(str::to_owned).collect();
    (head.clone(), left)
}

fn log(own: &Path) -> Option<String> {
    // A pipe would wait for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::File::options().read(true).custom_flags(flags).open(own.join("logs/HEAD")).ok()?;
    let size = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    let start = size.saturating_sub(MAX_LOG_BYTES);
    let mut content = vec![0; usize::try_from(size - start).ok()?];
    file.read_exact_at(&mut content, start).ok()?;
    Some(String::from_utf8_lossy(&content).into_owned())
}

fn name(path: &Path) -> Option<String> {
    small_file::text(path, MAX_NAME_BYTES)
}

/// The name of a commit, a tree or a file in full.
pub(crate) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn packed_head(common: &Path, branch: &str) -> Option<String> {
    let text = small_file::text(common.join("packed-refs"), MAX_PACKED_BYTES)?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(_, name)| *name == branch).map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn head_commit_is_found_in_every_ref_storage() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        let found = |project: &str| head(&place.path().join(project));
        assert_eq!(found("main"), None);
        write("main/.git/HEAD", "ref: refs/heads/trunk\n");
        assert_eq!(found("main"), None, "no commit yet");
        write("main/.git/packed-refs", &format!("# pack-refs\n{one} refs/heads/trunk\n"));
        assert_eq!(found("main"), Some(one.clone()));
        write("main/.git/refs/heads/trunk", &format!("{two}\n"));
        assert_eq!(found("main"), Some(two));
        write("main/.git/worktrees/side/HEAD", &format!("{one}\n"));
        write("main/.git/worktrees/side/commondir", "../..\n");
        write("side/.git", &format!("gitdir: {}\n", place.path().join("main/.git/worktrees/side").display()));
        assert_eq!(found("side"), Some(one.clone()), "detached");
        write("main/.git/worktrees/side/HEAD", "ref: refs/heads/trunk\n");
        write("main/.git/refs/heads/trunk", "a secret\n");
        assert_eq!(found("side"), None, "nothing but a commit is read");
    }

    #[test]
    fn commits_that_head_left_are_read_from_its_log() {
        let place = tempfile::tempdir().unwrap();
        let git = place.path().join(".git");
        std::fs::create_dir_all(git.join("logs")).unwrap();
        let id = |digit: char| digit.to_string().repeat(40);
        std::fs::write(git.join("HEAD"), id('1')).unwrap();
        let left = || head_and_left(place.path(), Repository::of(place.path()).as_ref(), 100);
        assert_eq!(left(), (Some(id('1')), Vec::new()));
        let line = |old, new, time: &str, done: &str| {
            format!("{} {} A B <a@b> {time} +0100\t{done}\n", id(old), id(new))
        };
        let log = [
            line('1', '9', "99", "commit: before the session"),
            line('9', '1', "100", "checkout: moving from a to b"),
            line('1', '2', "101", "commit: on another branch"),
            line('2', '3', "102", "commit: its child"),
            line('3', '1', "103", "checkout: back"),
            line('1', '4', "104", "commit (amend): again"),
            line('4', '1', "soon", "reset: moving to HEAD~1"),
            "0 x\tno entry\n".to_owned(),
        ];
        std::fs::write(git.join("logs/HEAD"), log.concat()).unwrap();
        assert_eq!(left(), (Some(id('1')), vec![id('3'), id('4')]));
        // Only the end of a longer log is read.
        let log = line('1', '5', "101", "reset: long ago").repeat(1000) + &log.concat();
        std::fs::write(git.join("logs/HEAD"), log).unwrap();
        assert_eq!(left().1, [id('3'), id('4'), id('5')]);
        // A working tree inside counts, one elsewhere does not.
        let elsewhere = tempfile::tempdir().unwrap();
        for (tree, at, made) in [("in", place.path(), '6'), ("out", elsewhere.path(), '7')] {
            let own = git.join("worktrees").join(tree);
            std::fs::create_dir_all(own.join("logs")).unwrap();
            std::fs::write(at.join("dot"), "").unwrap();
            std::fs::write(own.join("gitdir"), format!("{}\n", at.join("dot").display())).unwrap();
            std::fs::write(own.join("logs/HEAD"), line('1', made, "102", "commit: there")).unwrap();
        }
        assert_eq!(left().1, [id('3'), id('4'), id('5'), id('6')]);
        std::fs::remove_dir_all(git.join("worktrees")).unwrap();
        std::fs::remove_file(git.join("logs/HEAD")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            git.join("logs/HEAD"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        assert_eq!(left().1, Vec::<String>::new());
    }
}
