//! Skills and plugins: directories of texts and programs, in the places where agents look for them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

use super::{Kind, json, read};

/// Trees that are looked at, names in a place where they are looked for, files and directories of one, and bytes of all.
pub const MAX_TREES: usize = 500;
const MAX_NAMES: usize = 10_000;
const MAX_ENTRIES: usize = 2_000;
const MAX_BYTES: u64 = 64 << 20;
const DEPTH: usize = 16;
/// Nothing loads from there. Not `__pycache__`, because Python loads its content instead of the source.
const SKIPPED: &str = ".git";

/// Directories in which an agent looks for skills, below the home and below the project. Each entry in them
/// is a skill.
const SKILLS: &[(&str, &[&str])] = &[
    ("claude", &[".claude/skills"]),
    ("codex", &[".codex/skills", ".agents/skills"]),
    ("gemini", &[".gemini/skills", ".gemini/extensions", ".agents/skills"]),
    ("qwen", &[".qwen/skills", ".qwen/extensions"]),
    ("opencode", &[".opencode/skills", ".config/opencode/skills", ".claude/skills", ".agents/skills"]),
    ("cursor", &[".cursor/skills", ".claude/skills"]),
    ("amp", &[".agents/skills", ".config/agents/skills", ".claude/skills"]),
    ("copilot", &[".github/skills", ".copilot/skills", ".claude/skills"]),
    ("goose", &[".agents/skills", ".claude/skills"]),
];
/// Claude Code's list of the plugins that the user has installed, and Codex's directory of them.
const CLAUDE_PLUGINS: &str = ".claude/plugins/installed_plugins.json";
const CLAUDE_PLUGINS_PLACE: &str = ".claude/plugins";
const CODEX_PLUGINS: &str = ".codex/plugins/cache";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// `skill:NAME@PLACE` or `plugin:NAME@PLACE`: what two agents know by one name is not one tree. A place has a slash in
    /// it and a name has none, so that no two are called the same.
    pub name: String,
    pub root: PathBuf,
    /// The directory below which links were looked for.
    top: PathBuf,
    /// It is in the project, and not in the user's home.
    pub of_project: bool,
    /// It is reached by a link. Its content may be anything, so none of it is kept.
    pub is_linked: bool,
}

/// The name of a tree without its place.
#[must_use]
pub fn short_name(name: &str) -> Option<&str> {
    let (short, place) = name.rsplit_once('@')?;
    let is_tree = short.starts_with("skill:") || short.starts_with("plugin:");
    (is_tree && place.contains('/')).then_some(short)
}

/// The trees that an agent takes up.
#[derive(Debug, Default)]
pub struct Found {
    pub trees: Vec<Tree>,
    /// Entries beyond the limit, with their paths.
    pub left_out: Vec<(String, PathBuf)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Over all of it.
    pub digest: String,
    /// SHA-256 as hex digits by path.
    pub manifest: BTreeMap<String, String>,
    /// The texts of files, by their hash. Never from behind a link, because that may be a secret.
    pub texts: BTreeMap<String, Vec<u8>>,
}

/// The trees that an agent takes up. What cannot be looked at is not there. First what the user has installed: a project can
/// bring any number of them.
#[must_use]
pub fn find(kind: Kind, home: &Path, project: &Path) -> Found {
    let mut found = Found::default();
    let plugin = |name: String, place: &str, root: PathBuf| {
        let top = if root.starts_with(home) { home } else { root.parent().unwrap_or(&root) }.to_owned();
        let is_linked = has_link(&top, root.strip_prefix(&top).unwrap_or(&root));
        Tree { name: format!("plugin:{name}@{place}"), root, top, of_project: false, is_linked }
    };
    match kind.name() {
        "claude" => {
            for (name, root) in listed_plugins(&home.join(CLAUDE_PLUGINS)) {
                found.add(plugin(name, CLAUDE_PLUGINS_PLACE, root));
            }
        }
        "codex" => {
            for (market, _) in found.directories(home, CODEX_PLUGINS) {
                let place = format!("{CODEX_PLUGINS}/{market}");
                for (name, root) in found.directories(home, &place) {
                    found.add(plugin(format!("{name}@{market}"), CODEX_PLUGINS, root));
                }
            }
        }
        _ => {}
    }
    let places = SKILLS.iter().find(|(agent, _)| *agent == kind.name()).map_or(&[][..], |(_, places)| places);
    let mut tops = vec![(home, false)];
    // An agent that is started in the home has one of them.
    if home != project {
        tops.push((project, true));
    }
    for (top, of_project) in tops {
        for place in places {
            for (name, root) in found.directories(top, place) {
                let is_linked = has_link(top, &Path::new(place).join(root.file_name().unwrap_or_default()));
                let (name, top) = (format!("skill:{name}@{place}"), top.to_owned());
                found.add(Tree { name, root, top, of_project, is_linked });
            }
        }
    }
    found
}

impl Found {
    fn add(&mut self, tree: Tree) {
        match self.trees.len() < MAX_TREES {
            true => self.trees.push(tree),
            false => self.left_out.push((tree.name, tree.root)),
        }
    }

    /// The directories in one, links followed.
    fn directories(&mut self, top: &Path, place: &str) -> Vec<(String, PathBuf)> {
        let directory = top.join(place);
        let mut entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .by_ref()
            .take(MAX_NAMES)
            .filter(|entry| entry.path().is_dir())
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .collect();
        if entries.next().is_some() {
            self.left_out.push((format!("more than {MAX_NAMES} entries of {place}"), directory));
        }
        found.sort();
        found
    }
}

/// Whether a part of this path below a directory is a link.
fn has_link(top: &Path, below: &Path) -> bool {
    below.ancestors().filter(|part| !part.as_os_str().is_empty()).any(|part| top.join(part).is_symlink())
}

/// The plugins of Claude Code's list, at any path.
fn listed_plugins(list: &Path) -> Vec<(String, PathBuf)> {
    let Ok(Some(text)) = read::text(list, read::LIMIT) else { return Vec::new() };
    let Ok(list) = json::parse(&text, list) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, places) in list.get("plugins").and_then(serde_json::Value::as_object).into_iter().flatten() {
        // One entry for each place of installation; older lists have a single one.
        let places = places.as_array().map_or_else(|| std::slice::from_ref(places), Vec::as_slice);
        let root = places.iter().find_map(|place| place.get("installPath")?.as_str());
        found.extend(root.map(|root| (name.clone(), PathBuf::from(root))));
    }
    found
}

/// Reads a tree. `left`: bytes that may still be read, of all trees.
///
/// # Errors
/// Part of the tree cannot be read, or it is too large.
pub fn read(tree: &Tree, left: &mut u64) -> Result<Content, String> {
    let mut walk = Walk { tree, left, entries: 0, content: Content::default() };
    let root = open(tree).map_err(|error| walk.error_text(Path::new(""), error))?;
    walk.directory(root, Path::new(""), DEPTH)?;
    let mut content = walk.content;
    let mut hasher = Sha256::new();
    for (path, hash) in &content.manifest {
        hasher.update(format!("{}:{path}{hash}", path.len()));
    }
    content.digest = format!("sha256:{}", agentsh_base::hex(&hasher.finalize()));
    Ok(content)
}

/// The tree was not a link when it was found, and must not be one now.
fn open(tree: &Tree) -> rustix::io::Result<OwnedFd> {
    if tree.is_linked {
        return rustix::fs::openat(CWD, &tree.root, DIRECTORY, Mode::empty());
    }
    let top = rustix::fs::openat(CWD, &tree.top, DIRECTORY, Mode::empty())?;
    let below = tree.root.strip_prefix(&tree.top).unwrap_or(&tree.root);
    let mut directory = top;
    for part in below {
        directory = rustix::fs::openat(&directory, part, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

/// The bytes that may be read of all trees of a session.
#[must_use]
pub fn budget() -> u64 {
    MAX_BYTES
}

struct Walk<'a> {
    tree: &'a Tree,
    left: &'a mut u64,
    /// Files and directories so far.
    entries: usize,
    content: Content,
}

/// Never waits for the other end of a pipe.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const DIRECTORY: OFlags = FILE.union(OFlags::DIRECTORY);

impl Walk<'_> {
    /// Every name is opened in the directory that was listed: anything that takes its place in the meantime is not followed.
    fn directory(&mut self, directory: OwnedFd, below: &Path, depth: usize) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or("its directories are too deep")?;
        let entries = Dir::read_from(&directory).map_err(|error| self.error_text(below, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.error_text(below, error))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(format!("it has more than {MAX_ENTRIES} files and directories"));
            }
            self.entry(&directory, name, &below.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, name: &OsStr, path: &Path, depth: usize) -> Result<(), String> {
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = FileType::from_raw_mode(stat.map_err(|error| self.error_text(path, error))?.st_mode);
        let shown = path.to_string_lossy().into_owned();
        let open = |flags| rustix::fs::openat(directory, name, flags, Mode::empty());
        let bytes = match kind {
            FileType::Directory if name == SKIPPED => return Ok(()),
            FileType::Directory => {
                let inner =
                    open(DIRECTORY | OFlags::NOFOLLOW).map_err(|error| self.error_text(path, error))?;
                return self.directory(inner, path, depth);
            }
            // A link counts by its target's path and type.
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(directory, name, Vec::new());
                let to = to.map_err(|error| self.error_text(path, error))?;
                self.content.manifest.insert(format!("{shown} ->"), sha256(to.to_bytes()));
                if !leads_to_file(directory, name) {
                    return Ok(());
                }
                let file = open(FILE).map_err(|error| self.error_text(path, error))?;
                self.bytes(file, path)?
            }
            FileType::RegularFile => {
                let file = open(FILE | OFlags::NOFOLLOW).map_err(|error| self.error_text(path, error))?;
                self.bytes(file, path)?
            }
            _ => None,
        };
        let Some(bytes) = bytes else { return Ok(()) };
        let hash = sha256(&bytes);
        self.content.manifest.insert(shown, hash.clone());
        if kind != FileType::Symlink && !self.tree.is_linked {
            self.content.texts.insert(hash, bytes);
        }
        Ok(())
    }

    /// The bytes of a file; None for anything else.
    fn bytes(&mut self, file: OwnedFd, path: &Path) -> Result<Option<Vec<u8>>, String> {
        let stat = rustix::fs::fstat(&file).map_err(|error| self.error_text(path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(*self.left + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.error_text(path, error))?;
        *self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| format!("skills and plugins contain more than {} MiB in all", MAX_BYTES >> 20))?;
        Ok(Some(bytes))
    }

    fn error_text(&self, below: &Path, error: impl Into<std::io::Error>) -> String {
        format!("{}: {}", self.tree.root.join(below).display(), error.into())
    }
}

fn leads_to_file(directory: impl AsFd, name: &OsStr) -> bool {
    rustix::fs::statat(directory, name, AtFlags::empty())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn sha256(bytes: &[u8]) -> String {
    agentsh_base::hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn skills_and_plugins_are_found_where_the_agent_looks() {
        let place = tempfile::tempdir().unwrap();
        let (home, project) = (place.path().join("home"), place.path().join("project"));
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(home.join(".claude/skills/review/SKILL.md"), "Read the diff.");
        write(home.join(".codex/skills/other/SKILL.md"), "x");
        write(project.join(".claude/skills/ship/SKILL.md"), "Ship it.");
        let plugin = home.join("elsewhere/tools");
        write(plugin.join("commands/go.md"), "Go.");
        let list = serde_json::json!({"version": 2, "plugins": {"tools@market": [{"installPath": plugin}]}});
        write(home.join(CLAUDE_PLUGINS), &list.to_string());
        let claude = Kind::named("claude").unwrap();
        let found = find(claude, &home, &project).trees;
        let names: Vec<_> = found.iter().map(|tree| (tree.name.as_str(), tree.of_project)).collect();
        let expected = [
            ("plugin:tools@market@.claude/plugins", false),
            ("skill:review@.claude/skills", false),
            ("skill:ship@.claude/skills", true),
        ];
        assert_eq!(names, expected);
        assert_eq!(short_name(names[0].0), Some("plugin:tools@market"));
        assert_eq!(short_name(names[1].0), Some("skill:review"));
        assert_eq!(short_name("skill:a@b"), None);

        let digest = || read(&found[1], &mut budget()).unwrap().digest;
        let first = digest();
        assert_eq!(first, digest());
        symlink("/nowhere", home.join(".claude/skills/review/link")).unwrap();
        let linked = digest();
        assert_ne!(first, linked);
        write(home.join(".claude/skills/review/run.sh"), "curl");
        assert_ne!(linked, digest());
        let before = digest();
        write(home.join(".claude/skills/review/__pycache__/helper.cpython-312.pyc"), "code");
        assert_ne!(before, digest(), "Python imports it");
        assert!(read(&found[1], &mut 3).unwrap_err().contains("MiB"));
        (0..MAX_ENTRIES).for_each(|name| {
            fs::create_dir_all(home.join(format!(".claude/skills/review/empty/{name}"))).unwrap();
        });
        assert!(read(&found[1], &mut budget()).unwrap_err().contains("directories"));
    }

    #[test]
    fn symlink_target_in_a_skill_counts_and_is_not_stored() {
        let place = tempfile::tempdir().unwrap();
        let (home, project) = (place.path().join("home"), place.path().join("project"));
        let (secret, skills) = (home.join("secret"), project.join(".claude/skills"));
        fs::create_dir_all(&secret).unwrap();
        fs::write(secret.join("key"), "SECRET").unwrap();
        fs::create_dir_all(skills.join("file")).unwrap();
        fs::write(skills.join("file/SKILL.md"), "plain").unwrap();
        symlink(secret.join("key"), skills.join("file/k")).unwrap();
        symlink(&secret, skills.join("whole")).unwrap();
        let found = find(Kind::named("claude").unwrap(), &home, &project).trees;
        let contents: Vec<_> = found.iter().map(|tree| read(tree, &mut budget()).unwrap()).collect();
        assert!(contents[0].manifest.contains_key("k") && contents[1].manifest.contains_key("key"));
        assert_eq!(contents[0].texts.values().collect::<Vec<_>>(), [b"plain"]);
        assert!(contents[1].texts.is_empty());
        // A directory that becomes a link after it was found is not followed.
        let plain = found.iter().find(|tree| !tree.is_linked).unwrap();
        fs::rename(skills.join("file"), skills.join("other")).unwrap();
        symlink(&secret, skills.join("file")).unwrap();
        assert!(read(plain, &mut budget()).is_err());
        fs::remove_file(skills.join("file")).unwrap();
        fs::rename(skills.join("other"), skills.join("file")).unwrap();
        read(plain, &mut budget()).unwrap();
        // And where the place itself is a link.
        fs::rename(&skills, place.path().join("moved")).unwrap();
        symlink(place.path(), &skills).unwrap();
        let found = find(Kind::named("claude").unwrap(), &home, &project).trees;
        assert!(!found.is_empty() && found.iter().all(|tree| tree.is_linked));
    }

    /// A directory is swapped for a link to a secret while it is read.
    #[test]
    fn directory_replaced_by_a_symlink_during_the_walk_is_not_followed() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let place = tempfile::tempdir().unwrap();
        let (home, secret) = (place.path().join("home"), place.path().join("secret"));
        let inner = home.join(".claude/skills/s/d");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(&secret).unwrap();
        fs::write(inner.join("key"), "plain").unwrap();
        fs::write(secret.join("key"), "SECRET").unwrap();
        let link = place.path().join("link");
        symlink(&secret, &link).unwrap();
        let tree = &find(Kind::named("claude").unwrap(), &home, &home).trees[0];
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, &inner, CWD, &link, flags).unwrap();
                }
            });
            let kept = (0..2000).filter_map(|_| read(tree, &mut budget()).ok());
            let leaks = kept.filter(|content| content.texts.values().any(|text| text == b"SECRET")).count();
            is_done.store(true, Ordering::Relaxed);
            assert_eq!(leaks, 0);
        });
    }
}
