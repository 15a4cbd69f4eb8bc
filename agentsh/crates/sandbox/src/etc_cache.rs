//! A cache of the `/etc` that a sandbox sees, from one start to the next: most of it is the same for every sandbox, and dozens of
//! small files would be read and written again each time.
//!
//! Two things are kept in the state directory, which no sandbox sees. First, which files and directories are small, until they
//! change. Second, for each plan a directory with everything that the plan makes in `/etc`, including copies of the small files; its
//! name is the hash of that content, and one mount shows it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::control::{decode, encoded};
use super::host::SmallTree;
use super::plan::{Access, Kind, Mount, NodeContent, Source};
use super::{proc_file, small_file};
use crate::types::FileKey;

/// Limits of all keys together, and of one copied file.
const MAX_BYTES: u64 = 4 << 20;
/// Old directories that are kept besides the newest one and those in use.
const MAX_KEPT: usize = 8;
/// With fewer entries, a mount costs more than the entries.
const MIN_ENTRIES: usize = 8;

/// The known small files and directories.
#[derive(Debug)]
pub struct Copies {
    file: PathBuf,
    known: RefCell<Option<BTreeMap<PathBuf, Copied>>>,
    is_changed: Cell<bool>,
}

/// A copy of one path, with everything that was looked at for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Copied {
    looked_at: SmallTree,
    is_small: bool,
}

impl Copies {
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self {
            file: state.join("etc").join("copies"),
            known: RefCell::default(),
            is_changed: Cell::new(false),
        }
    }

    /// The result of `look`, or a stored one if everything is unchanged. None for a path that changed a moment ago.
    pub fn get(&self, path: &Path, look: impl FnOnce() -> Option<SmallTree>) -> Option<SmallTree> {
        let mut known = self.known.borrow_mut();
        let known = known.get_or_insert_with(|| self.load().unwrap_or_default());
        if let Some(copied) = known.get(path).filter(|copied| is_unchanged(&copied.looked_at)) {
            return copied.is_small.then(|| copied.looked_at.clone());
        }
        self.is_changed.set(true);
        known.remove(path);
        let tree = look();
        let is_small = tree.is_some();
        let looked_at = tree.or_else(|| Some(vec![(path.to_owned(), key_of(path)?)]))?;
        let now = SystemTime::now();
        if !looked_at.iter().all(|(_, key)| key.is_settled(now)) {
            return None;
        }
        known.insert(path.to_owned(), Copied { looked_at: looked_at.clone(), is_small });
        is_small.then_some(looked_at)
    }

    fn load(&self) -> Option<BTreeMap<PathBuf, Copied>> {
        let text = small_file::read(&self.file, MAX_BYTES).ok()??;
        let (said, copies) = text.split_at_checked(HASH_BYTES)?;
        (hash(copies) == said).then(|| decode(copies).ok())?
    }

    /// Writes down what is new. Without it files are looked at again.
    pub fn save(&self) {
        if self.is_changed.replace(false)
            && let Some(known) = &*self.known.borrow()
            && let Ok(text) = encoded(known)
        {
            let _ = small_file::replace(&self.file, &[hash(&text).as_slice(), &text].concat());
        }
    }
}

const HASH_BYTES: usize = 32;

fn hash(bytes: &[u8]) -> [u8; HASH_BYTES] {
    Sha256::digest(bytes).into()
}

fn key_of(path: &Path) -> Option<FileKey> {
    path.symlink_metadata().ok().as_ref().map(FileKey::from)
}

fn is_unchanged(tree: &SmallTree) -> bool {
    tree.iter().all(|(path, key)| key_of(path) == Some(*key))
}

/// One entry of the directory that is mounted as `/etc`.
#[derive(Serialize)]
enum Entry<'p> {
    Made(&'p NodeContent),
    Copied(&'p SmallTree),
}

/// A directory that is shown as `/etc`. It is not removed while this value exists.
#[derive(Debug)]
pub struct EtcLock(#[expect(dead_code, reason = "it holds the lock")] File);

/// Replaces all files that a plan makes in `/etc`, and mounts there that may be copied and have nothing mounted over
/// them, by one mount. Changes nothing if there are few of them.
///
/// # Errors
/// When the directory cannot be made; the plan is as it was.
pub fn show_etc(
    state: &Path,
    mounts: &mut Vec<Mount>,
    copied: &BTreeMap<PathBuf, SmallTree>,
) -> io::Result<Option<EtcLock>> {
    const ETC: &str = "/etc";
    let is_made = |mount: &Mount| {
        matches!(
            mount.what,
            NodeContent::Directory { .. } | NodeContent::File { .. } | NodeContent::Symlink { .. }
        )
    };
    let in_etc = |mount: &&Mount| mount.target.starts_with(ETC) && mount.target != Path::new(ETC);
    let of_etc: Vec<&Mount> = mounts.iter().filter(in_etc).collect();
    let is_bare = |path: &Path| of_etc.iter().filter(|mount| mount.target.starts_with(path)).count() == 1;
    let copied: BTreeMap<&Path, &SmallTree> =
        copied.iter().map(|(path, tree)| (path.as_path(), tree)).filter(|(path, _)| is_bare(path)).collect();
    let others = of_etc.iter().filter(|mount| !is_made(mount));
    let others: BTreeSet<PathBuf> = others.map(|mount| mount.target.clone()).collect();
    let is_below_other = |target: &Path, itself: bool| {
        target.ancestors().skip(usize::from(!itself)).any(|above| others.contains(above))
    };
    let is_kept = |mount: &Mount| in_etc(&mount) && is_made(mount) && !is_below_other(&mount.target, true);
    let mut entries: BTreeMap<&Path, Entry<'_>> = BTreeMap::new();
    for mount in mounts.iter().filter(|mount| is_kept(mount)) {
        entries.insert(&mount.target, Entry::Made(&mount.what));
    }
    entries.extend(copied.iter().map(|(path, tree)| (*path, Entry::Copied(tree))));
    let is_etc = |mount: &Mount| mount.target == Path::new(ETC) || mount.target == Path::new("/");
    if entries.len() < MIN_ENTRIES || mounts.iter().any(is_etc) {
        return Ok(None);
    }
    // The directory and file on which the others are mounted.
    let (directory, file) =
        (NodeContent::Directory { mode: 0o755 }, NodeContent::File { content: Vec::new(), mode: 0o444 });
    let is_mounted = |mount: &Mount| {
        !is_made(mount)
            && !copied.contains_key(mount.target.as_path())
            && !is_below_other(&mount.target, false)
    };
    for mount in of_etc.iter().filter(|mount| is_mounted(mount)) {
        let is_file =
            matches!(mount.what, NodeContent::Bind { kind: Kind::File, .. } | NodeContent::Copy { .. });
        entries.insert(&mount.target, Entry::Made(if is_file { &file } else { &directory }));
    }
    let (path, in_use) = kept_directory(&state.join("etc"), &entries)?;
    // Before all mounts in it.
    let at = mounts.iter().position(|mount| in_etc(&mount)).unwrap_or_default();
    let copied: BTreeSet<PathBuf> = copied.into_keys().map(Path::to_owned).collect();
    mounts.retain(|mount| !is_kept(mount) && !copied.contains(&mount.target));
    let source = Source::Path { path, expect: None, no_links: false };
    let what = NodeContent::Bind { source, access: Access::ReadOnly, kind: Kind::Directory };
    mounts.insert(at, Mount { target: ETC.into(), what });
    Ok(Some(in_use))
}

/// The directory with these entries, made if it is missing.
fn kept_directory(place: &Path, entries: &BTreeMap<&Path, Entry<'_>>) -> io::Result<(PathBuf, EtcLock)> {
    // A directory from before a power loss may be on disk in parts.
    let boot = proc_file::value("/proc/sys/kernel/random/boot_id")?;
    let hash: String = agentsh_base::hex(hash(&encoded(&(boot, entries))?).iter().take(16));
    let (path, lock) = (place.join(&hash), place.join(format!("{hash}.lock")));
    let open =
        || OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&lock);
    let locked = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(place)?;
            open()?
        }
        opened => opened?,
    };
    rustix::io::retry_on_intr(|| rustix::fs::flock(&locked, FlockOperation::LockShared))?;
    if !path.is_dir() {
        remove_old(place);
        let new = place.join(format!("{hash}.new-{}", std::process::id()));
        make(&new, entries)?;
        match std::fs::rename(&new, &path) {
            // Another start has created it already.
            Err(_) if path.is_dir() => std::fs::remove_dir_all(&new)?,
            renamed => renamed?,
        }
    }
    Ok((path, EtcLock(locked)))
}

fn make(root: &Path, entries: &BTreeMap<&Path, Entry<'_>>) -> io::Result<()> {
    let set_mode = |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode));
    let make_directory = |path: &Path| -> io::Result<()> {
        for above in
            path.ancestors().take_while(|above| above.starts_with(root)).collect::<Vec<_>>().into_iter().rev()
        {
            if !above.is_dir() {
                std::fs::create_dir(above)?;
                set_mode(above, 0o755)?;
            }
        }
        Ok(())
    };
    // Left by a killed start.
    let _ = std::fs::remove_dir_all(root);
    make_directory(root)?;
    let place = |target: &Path| -> io::Result<PathBuf> {
        let path = root.join(target.strip_prefix("/etc").map_err(io::Error::other)?);
        path.parent().map_or(Ok(()), make_directory)?;
        Ok(path)
    };
    let mut directories = Vec::new();
    for (target, entry) in entries {
        let path = place(target)?;
        match entry {
            Entry::Made(NodeContent::Directory { mode }) => {
                make_directory(&path)?;
                directories.push((path, *mode));
            }
            Entry::Made(NodeContent::File { content, mode }) => {
                std::fs::write(&path, content)?;
                set_mode(&path, *mode)?;
            }
            Entry::Made(NodeContent::Symlink { to }) => symlink(to, &path)?,
            Entry::Made(_) => {}
            Entry::Copied(tree) => {
                for (from, _) in *tree {
                    let (path, mode) = (place(from)?, from.metadata()?.mode() & 0o777);
                    if from.is_dir() {
                        make_directory(&path)?;
                        for link in
                            std::fs::read_dir(from)?.flatten().filter(|entry| entry.path().is_symlink())
                        {
                            symlink(std::fs::read_link(link.path())?, path.join(link.file_name()))?;
                        }
                        directories.push((path, mode));
                    } else {
                        std::fs::write(&path, small_file::read(from, MAX_BYTES)?.unwrap_or_default())?;
                        set_mode(&path, mode)?;
                    }
                }
                if !is_unchanged(tree) {
                    return Err(io::Error::other(format!(
                        "{} changed while it was copied",
                        target.display()
                    )));
                }
            }
        }
    }
    directories.iter().try_for_each(|(path, mode)| set_mode(path, *mode))
}

/// Removes unused directories, the oldest first.
fn remove_old(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
    let locks = entries.filter(|path| path.extension().is_some_and(|extension| extension == "lock"));
    let mut locks: Vec<(Option<SystemTime>, PathBuf)> =
        locks.map(|path| (path.metadata().and_then(|found| found.modified()).ok(), path)).collect();
    locks.sort();
    for (_, lock) in locks.iter().take(locks.len().saturating_sub(MAX_KEPT)) {
        let Ok(opened) = File::open(lock) else { continue };
        if rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(lock.with_extension(""));
            let _ = std::fs::remove_file(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn mount(target: &str, what: NodeContent) -> Mount {
        Mount { target: target.into(), what }
    }

    fn file(content: &str) -> NodeContent {
        NodeContent::File { content: content.into(), mode: 0o644 }
    }

    fn bind(kind: Kind) -> NodeContent {
        let source = Source::Path { path: "/x".into(), expect: None, no_links: false };
        NodeContent::Bind { source, access: Access::ReadOnly, kind }
    }

    fn plan() -> Vec<Mount> {
        let mut mounts: Vec<Mount> =
            (0..MIN_ENTRIES).map(|number| mount(&format!("/etc/{number}"), file("x"))).collect();
        mounts.insert(0, mount("/etc/alternatives", bind(Kind::Directory)));
        mounts.insert(0, mount("/usr", bind(Kind::Directory)));
        mounts.extend([
            mount("/etc/empty", NodeContent::Directory { mode: 0o700 }),
            mount("/etc/deep/link", NodeContent::Symlink { to: "../0".into() }),
            mount("/etc/ssl/certs", bind(Kind::Directory)),
            mount("/etc/ssl/certs/own", file("covers")),
            mount("/etc/cache", bind(Kind::File)),
            mount("/etc/0", file("later")),
            mount("/tmp", NodeContent::Tmpfs { bytes: 1, mode: 0o755 }),
        ]);
        mounts
    }

    #[test]
    fn one_mount_shows_all_that_a_plan_makes_in_etc() {
        let state = tempfile::tempdir().unwrap();
        let mut mounts = plan();
        let in_use = show_etc(state.path(), &mut mounts, &BTreeMap::new()).unwrap().unwrap();
        let targets: Vec<&str> = mounts.iter().filter_map(|mount| mount.target.to_str()).collect();
        assert_eq!(
            targets,
            [
                "/usr",
                "/etc",
                "/etc/alternatives",
                "/etc/ssl/certs",
                "/etc/ssl/certs/own",
                "/etc/cache",
                "/tmp"
            ]
        );
        let NodeContent::Bind { source: Source::Path { path, .. }, .. } = &mounts[1].what else {
            unreachable!()
        };
        assert_eq!(std::fs::read_to_string(path.join("0")).unwrap(), "later");
        assert_eq!(std::fs::read_to_string(path.join("deep/link")).unwrap(), "later");
        assert_eq!(path.join("empty").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(
            path.join("ssl/certs").is_dir()
                && path.join("alternatives").is_dir()
                && path.join("cache").is_file()
        );
        // The same plan has the same directory, another one has another.
        let mut same = plan();
        let _second = show_etc(state.path(), &mut same, &BTreeMap::new()).unwrap().unwrap();
        assert_eq!(same, mounts);
        let mut other = plan();
        other.push(mount("/etc/more", file("")));
        let _third = show_etc(state.path(), &mut other, &BTreeMap::new()).unwrap().unwrap();
        assert_ne!(other[1], mounts[1]);
        drop(in_use);
    }

    #[test]
    fn a_plan_with_little_in_etc_or_another_etc_stays_as_it_is() {
        let state = tempfile::tempdir().unwrap();
        let mut little = vec![mount("/etc/one", file("x"))];
        assert!(show_etc(state.path(), &mut little, &BTreeMap::new()).unwrap().is_none());
        let mut whole = plan();
        whole.insert(1, mount("/etc", bind(Kind::Directory)));
        let before = whole.clone();
        assert!(show_etc(state.path(), &mut whole, &BTreeMap::new()).unwrap().is_none());
        assert_eq!(whole, before);
    }

    #[test]
    fn directories_that_nobody_shows_go_and_those_in_use_stay() {
        let state = tempfile::tempdir().unwrap();
        let mut in_use = None;
        for number in 0..MAX_KEPT + 4 {
            let mut mounts = plan();
            mounts.push(mount("/etc/number", file(&number.to_string())));
            let made = show_etc(state.path(), &mut mounts, &BTreeMap::new()).unwrap().unwrap();
            if number == 0 {
                in_use = Some((made, mounts[1].clone()));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let Some((_made, Mount { what: NodeContent::Bind { source: Source::Path { path, .. }, .. }, .. })) =
            in_use
        else {
            unreachable!()
        };
        assert!(path.is_dir());
        let kept = std::fs::read_dir(state.path().join("etc")).unwrap().flatten();
        let kept = kept.filter(|entry| entry.path().is_dir()).count();
        assert!(kept <= MAX_KEPT + 2, "{kept}");
    }

    #[test]
    fn small_tree_is_copied_unless_something_is_mounted_over_it() {
        let state = tempfile::tempdir().unwrap();
        // The machine's own: a plan names it by where it is.
        let (path, key) = (PathBuf::from("/etc/passwd"), key_of(Path::new("/etc/passwd")).unwrap());
        let copied = BTreeMap::from([(path.clone(), vec![(path.clone(), key)])]);
        let mut mounts = plan();
        mounts.push(mount("/etc/passwd", bind(Kind::File)));
        let before = mounts.clone();
        let _shown = show_etc(state.path(), &mut mounts, &copied).unwrap().unwrap();
        assert!(mounts.iter().all(|mount| mount.target != path));
        let NodeContent::Bind { source: Source::Path { path: kept, .. }, .. } = &mounts[1].what else {
            unreachable!()
        };
        assert_eq!(std::fs::read(kept.join("passwd")).unwrap(), std::fs::read(&path).unwrap());
        let mut covered = before.clone();
        covered.push(mount("/etc/passwd", file("covers")));
        let _shown = show_etc(state.path(), &mut covered, &copied).unwrap().unwrap();
        assert_eq!(covered.iter().filter(|mount| mount.target == path).count(), 2);
        // It changed after it was examined, so it is mounted.
        let other = BTreeMap::from([(path.clone(), vec![(path, FileKey { size: key.size + 1, ..key })])]);
        let mut changed = before.clone();
        assert!(show_etc(state.path(), &mut changed, &other).is_err());
        assert_eq!(changed, before);
    }

    #[test]
    fn cached_etc_copies_are_used_until_a_file_changes() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let tree = || Some(vec![(path.clone(), key_of(&path).unwrap())]);
        let copies = Copies::of(state.path());
        assert_eq!(copies.get(&path, tree), None, "it changed a moment ago");
        // The state after a while.
        let copied = Copied { looked_at: tree().unwrap(), is_small: true };
        copies.known.borrow_mut().as_mut().unwrap().insert(path.clone(), copied);
        copies.is_changed.set(true);
        copies.save();
        let copies = Copies::of(state.path());
        assert_eq!(copies.get(&path, || None), tree());
        std::fs::write(&path, "other").unwrap();
        assert_eq!(copies.get(&path, tree), None);
    }
}
