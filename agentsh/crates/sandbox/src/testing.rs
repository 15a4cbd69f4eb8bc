//! A host as a table, to test layouts without files.

#![allow(clippy::panic, reason = "a test may stop at the first surprise")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::git_config::{self, GitConfig};
use super::host::{Host, Modules, PathKind, Repositories, normalised_path};
use super::plan::{Access, Identity, Terminal};
use super::spec::{GitEverywhere, PathRules, Placed, Process, ProcessKind, SandboxSpec};
use crate::policy::builtin_paths::{GIT_BARE, GIT_COMMON, OTHER_REPOSITORIES};
use crate::policy::limits::ResolvedLimits;

/// A server that may write the project, and gets nothing else.
#[must_use]
pub fn spec(home: &str, project: &str) -> SandboxSpec {
    SandboxSpec {
        process: Process {
            kind: ProcessKind::Server,
            label: "test".to_owned(),
            identity: Identity::of(1000, 1000),
            user: "u".to_owned(),
            program: "/usr/bin/true".into(),
            argv: vec!["true".into()],
            workdir: project.into(),
            descriptors: Vec::new(),
            raw_environment: Vec::new(),
            pinned: Vec::new(),
            terminal: Terminal::NewSession,
            terminal_device: None,
            bridge: None,
            limits: ResolvedLimits { memory: 1 << 30, pids: 512, open_files: 4096, cpu_percent: 400 },
            allow_degraded: false,
            reports_files: false,
        },
        paths: PathRules {
            home: home.into(),
            project: project.into(),
            project_access: Some(Access::ReadWrite),
            stubs: true,
            shared_sockets: true,
            git: GitEverywhere {
                files: vec![Path::new(home).join(".gitconfig"), "/etc/gitconfig".into()],
                ..GitEverywhere::default()
            },
            private_bytes: 1 << 20,
            ..PathRules::default()
        },
        placed: Placed::default(),
        environment: BTreeMap::new(),
        stripped: Vec::new(),
        network: Default::default(),
        notices: Vec::new(),
        enforcement: Vec::new(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    File(String),
    Link(PathBuf),
    Special,
    Closed,
}

/// A file tree for tests.
#[derive(Clone, Debug)]
pub struct FakeHost {
    entries: BTreeMap<PathBuf, Entry>,
    /// Directories in which nothing can be made.
    pub unwritable: BTreeSet<PathBuf>,
    /// Directories whose files have other names too, with what lies below.
    pub ambiguous: BTreeSet<PathBuf>,
    pub most_mounts: usize,
    /// Number of look-ups.
    pub looks: std::cell::Cell<usize>,
}

impl FakeHost {
    /// `/a/b` is a file, `/a/b = TEXT` one that says something, `/a/` a directory, `/a -> b` a link, `/a !` a directory that
    /// its own user may not enter, `/a ?` a socket. What lies above comes by itself.
    #[must_use]
    pub fn of(lines: &[&str]) -> Self {
        let mut host = Self {
            entries: BTreeMap::new(),
            unwritable: BTreeSet::new(),
            ambiguous: BTreeSet::new(),
            most_mounts: 10_000,
            looks: std::cell::Cell::default(),
        };
        for line in lines {
            let (path, entry) = if let Some((path, text)) = line.split_once(" = ") {
                (path, Entry::File(text.to_owned()))
            } else if let Some((path, to)) = line.split_once(" -> ") {
                (path, Entry::Link(to.into()))
            } else if let Some(path) = line.strip_suffix(" !") {
                (path, Entry::Closed)
            } else if let Some(path) = line.strip_suffix(" ?") {
                (path, Entry::Special)
            } else if let Some(path) = line.strip_suffix('/') {
                (path, Entry::Directory)
            } else {
                (*line, Entry::File(String::new()))
            };
            let path = PathBuf::from(path);
            for above in path.ancestors().skip(1) {
                host.entries.entry(above.to_owned()).or_insert(Entry::Directory);
            }
            host.entries.insert(path, entry);
        }
        host
    }

    /// The entry itself, with the links above it followed.
    fn entry(&self, path: &Path) -> Option<&Entry> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return self.entries.get(path);
        };
        let above = self.follow(above, 40)?;
        match self.entries.get(&above) {
            Some(Entry::Closed) => Some(&Entry::Closed),
            _ => self.entries.get(&above.join(name)),
        }
    }

    fn follow(&self, path: &Path, budget: usize) -> Option<PathBuf> {
        let mut at = PathBuf::new();
        for part in path.components() {
            if part == Component::ParentDir {
                at.pop();
                continue;
            }
            at.push(part);
            if let Some(Entry::Link(to)) = self.entries.get(&at) {
                let next = normalised_path(&at.parent()?.join(to));
                at = self.follow(&next, budget.checked_sub(1)?)?;
            }
        }
        Some(at)
    }

    fn text(&self, path: &Path) -> Option<&str> {
        match self.entry(path)? {
            Entry::File(text) => Some(text),
            _ => None,
        }
    }

    fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Entry)> {
        self.entries.iter().filter(move |(path, _)| path.starts_with(directory) && *path != directory)
    }

    fn is_directory(&self, path: &Path) -> bool {
        self.entry(path) == Some(&Entry::Directory)
    }
}

impl Host for FakeHost {
    fn path_kind(&self, path: &Path) -> Option<PathKind> {
        self.looks.set(self.looks.get() + 1);
        Some(match self.entry(path)? {
            Entry::Directory | Entry::Closed if self.entries.get(path) == Some(&Entry::Closed) => {
                PathKind::Directory
            }
            Entry::Directory => PathKind::Directory,
            Entry::File(_) => PathKind::File,
            Entry::Link(_) => PathKind::Symlink,
            Entry::Special => PathKind::Special,
            Entry::Closed => PathKind::Closed,
        })
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        match self.entry(path)? {
            Entry::Link(to) => Some(to.clone()),
            _ => None,
        }
    }

    fn has_other_names(&self, directory: &Path) -> bool {
        directory.ancestors().any(|above| self.ambiguous.contains(above))
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        let end = self.follow(path, 40)?;
        self.entries.contains_key(&end).then_some(end)
    }

    fn repositories(&self, directory: &Path) -> Repositories {
        let mut out = Repositories::default();
        let is_own = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            name == ".git" || OTHER_REPOSITORIES.iter().any(|(other, _)| name == *other)
        };
        for (path, entry) in self.below(directory) {
            let inside = path.ancestors().skip(1).take_while(|above| *above != directory).any(is_own);
            if inside {
                continue;
            }
            if is_own(path) {
                if path.parent() != Some(directory) {
                    out.found.push(path.clone());
                }
            } else if *entry == Entry::Closed {
                out.closed.push(path.clone());
            } else if GIT_BARE.iter().all(|name| self.is_directory(&path.join(name))) {
                out.found.push(path.clone());
            }
        }
        out
    }

    fn names(&self, directory: &Path) -> Option<Vec<(OsString, PathKind)>> {
        if self.entries.get(directory) == Some(&Entry::Closed) {
            return None;
        }
        let inner = self.entries.keys().filter(|path| path.parent() == Some(directory));
        Some(inner.filter_map(|path| Some((path.file_name()?.to_owned(), self.path_kind(path)?))).collect())
    }

    fn is_empty(&self, path: &Path) -> bool {
        match self.entry(path) {
            Some(Entry::File(text)) => text.is_empty(),
            Some(Entry::Directory) => self.below(path).next().is_none(),
            _ => false,
        }
    }

    fn most_mounts(&self) -> usize {
        self.most_mounts
    }

    fn may_make_in(&self, directory: &Path) -> bool {
        !self.unwritable.contains(directory)
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        Some(Path::new("/home").join(user)).filter(|home| self.is_directory(home))
    }

    fn disks(&self) -> Vec<(crate::host::Links, PathBuf)> {
        Vec::new()
    }

    fn account(&self, _uid: u32, _users: &str) -> (Option<String>, Option<PathBuf>) {
        (None, None)
    }

    fn modules(&self, git: &Path) -> Option<Modules> {
        let mut out = Modules::default();
        for place in ["modules", "worktrees"].map(|name| git.join(name)) {
            for (path, entry) in self.below(&place) {
                match entry {
                    Entry::Directory if self.entries.contains_key(&path.join("HEAD")) => {
                        out.directories.push(path.clone());
                    }
                    Entry::Link(_) => out.links.push(path.clone()),
                    _ => {}
                }
            }
        }
        Some(out)
    }

    fn git_directory(&self, file: &Path) -> Option<PathBuf> {
        let named = self.text(file)?.strip_prefix("gitdir:")?.trim();
        Some(normalised_path(&file.parent()?.join(named)))
    }

    fn common_directory(&self, git: &Path) -> Option<PathBuf> {
        Some(self.text(&git.join(GIT_COMMON))?.trim())
            .filter(|named| !named.is_empty())
            .map(|named| normalised_path(&git.join(named)))
    }

    fn git_config(&self, config: &Path) -> Option<GitConfig> {
        self.text(config).map(git_config::parse)
    }
}
