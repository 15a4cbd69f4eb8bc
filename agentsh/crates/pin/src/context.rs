//! State of one resolution, from the command to the bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::file::{Hasher, PinnedFile, Role};
use super::search::Found;
use super::tree::{self, Code, PinnedTree, Selection};
use super::{Launcher, PinError, Removed, Request, Resolved};

/// Directories that every sandbox shows anyway.
const ALWAYS_SHOWN: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// Directories in which package managers keep packages and nothing else.
const INSTALLED_IN: [&str; 7] =
    ["node_modules", ".pnpm", ".yarn", ".bun", "site-packages", "dist-packages", "Cellar"];

pub(super) struct Context<'a> {
    pub request: &'a Request<'a>,
    pub hasher: Hasher<'a>,
    pub files: Vec<PinnedFile>,
    pub trees: Vec<PinnedTree>,
    env: BTreeMap<String, String>,
    /// The variables of `env` that a wrapper sets.
    worded: BTreeSet<String>,
    removed: Removed,
    /// Packages that the command line adds to the one that it starts.
    pub has_more_packages: bool,
    pub cwd: Option<PathBuf>,
    read_roots: BTreeSet<PathBuf>,
    alone_in: Vec<PathBuf>,
    unpinned: Vec<String>,
    inline: Option<Vec<u8>>,
}

/// The end of the way: what is executed.
#[derive(Debug)]
pub(super) struct Target {
    pub launcher: Launcher,
    pub identity: String,
    pub program: PathBuf,
    pub argv: Vec<OsString>,
}

impl<'a> Context<'a> {
    pub fn new(request: &'a Request<'a>, hasher: Hasher<'a>) -> Self {
        Self {
            request,
            hasher,
            files: Vec::new(),
            trees: Vec::new(),
            env: BTreeMap::new(),
            worded: BTreeSet::new(),
            removed: Removed::default(),
            has_more_packages: false,
            cwd: None,
            read_roots: BTreeSet::new(),
            alone_in: Vec::new(),
            unpinned: Vec::new(),
            inline: None,
        }
    }

    /// A variable as the process will see it.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .or_else(|| self.request.env.get(name).filter(|_| !self.removed.names(name)))
            .map(String::as_str)
            .filter(|v| !v.is_empty())
    }

    /// A variable that the interpreter needs.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.worded.remove(name);
        self.env.insert(name.to_owned(), value.into());
    }

    /// A variable out of the words of the command.
    pub fn set_by_words(&mut self, name: &str, value: &str) {
        self.worded.insert(name.to_owned());
        self.env.insert(name.to_owned(), value.to_owned());
    }

    /// `env -u NAME`.
    pub fn unset_variable(&mut self, name: &str) {
        self.worded.remove(name);
        self.env.remove(name);
        self.removed.names.insert(name.to_owned());
    }

    /// `env -i`.
    pub fn clear(&mut self) {
        self.worded.clear();
        self.env.clear();
        self.removed.all = true;
    }

    /// Pins one file, once; `path` has no links in it.
    pub fn file(&mut self, path: &Path, role: Role) -> Result<(), PinError> {
        if !self.files.iter().any(|file| file.path == path) {
            let file = self.hasher.pin(path, role)?;
            self.files.push(file);
        }
        Ok(())
    }

    /// Pins a tree and shows it to the program. A directory that an earlier tree holds whole is skipped.
    /// Directories of packages and of the project that the tree links to are trees of their own.
    pub fn tree(&mut self, name: &str, root: &Path, selection: Selection) -> Result<(), PinError> {
        let mut waiting = vec![(name.to_owned(), root.to_owned(), selection)];
        while let Some((name, root, selection)) = waiting.pop() {
            if self.holds(&root, selection.code) {
                continue;
            }
            let name = self.unique(name);
            let selection = Selection { hidden: self.hidden_in(&root), ..selection };
            let tree = tree::pin(&mut self.hasher, &name, &root, selection)?;
            for (link, directory) in tree.outside.iter().rev() {
                let place = format!("{name}/{}", link.display());
                let what = directory.display();
                if root.starts_with(directory) {
                    self.note(format!("{place} links to {what}, which is above it and is not pinned"));
                } else if !self.is_followed(&root, directory) {
                    self.note(format!(
                        "{place} links to {what}, which is neither visible nor pinned; to allow it: `filesystem: {{read: [\"{what}\"]}}`"
                    ));
                } else {
                    let same = Selection { code: tree.code(), ..Selection::default() };
                    waiting.push((place, directory.clone(), same));
                }
            }
            self.show(&root);
            self.trees.push(tree);
        }
        Ok(())
    }

    /// agentsh's own directory, if it is inside `root`.
    fn hidden_in(&self, root: &Path) -> Option<PathBuf> {
        let hidden = std::fs::canonicalize(self.request.hidden?).ok()?;
        let inside = hidden.strip_prefix(root).ok()?;
        (!inside.as_os_str().is_empty()).then(|| inside.to_owned())
    }

    /// Whether what a link in a tree leads to is a part of the program. The tree may come from strangers, or be the project
    /// that an agent writes in: its links must not show what else the person has.
    fn is_followed(&self, root: &Path, directory: &Path) -> bool {
        let project = self.project();
        let is_installed =
            || directory.iter().any(|part| INSTALLED_IN.iter().any(|name| part == OsStr::new(name)));
        ALWAYS_SHOWN.iter().any(|shown| directory.starts_with(shown))
            || root.starts_with(&project) && directory.starts_with(&project) && project != *directory
            || !self.is_personal(directory) && (is_installed() || self.is_workspace_of(root, directory))
    }

    /// The project, without links if they can be resolved.
    fn project(&self) -> PathBuf {
        let project = self.request.project;
        std::fs::canonicalize(project).unwrap_or_else(|_| project.to_owned())
    }

    /// A package next to the `node_modules` that links to it.
    fn is_workspace_of(&self, root: &Path, directory: &Path) -> bool {
        let modules = root.ancestors().find(|above| above.ends_with("node_modules"));
        let workspace = modules.and_then(Path::parent).filter(|workspace| !self.is_personal(workspace));
        workspace.is_some_and(|workspace| workspace != directory && directory.starts_with(workspace))
    }

    fn unique(&self, name: String) -> String {
        let taken = |name: &str| self.trees.iter().any(|tree| tree.name == name);
        if !taken(&name) {
            return name;
        }
        let numbered = (2..=self.trees.len() + 1).map(|number| format!("{name}~{number}"));
        numbered.into_iter().find(|name| !taken(name)).unwrap_or(name)
    }

    fn holds(&self, directory: &Path, code: Option<&Code>) -> bool {
        self.trees.iter().any(|tree| tree.holds(directory, code))
    }

    /// Whether the command may mean a file in a directory.
    pub fn counts(&self, directory: &Path) -> bool {
        self.request.not_below.is_none_or(|foreign| !directory.starts_with(foreign))
    }

    /// Something that the sandbox must show read-only.
    pub fn show(&mut self, path: &Path) {
        if !ALWAYS_SHOWN.iter().any(|shown| path.starts_with(shown)) {
            self.read_roots.insert(path.to_owned());
        }
    }

    /// A directory with unrelated personal files: never visible or pinned as a whole.
    pub fn is_personal(&self, directory: &Path) -> bool {
        let home = std::fs::canonicalize(self.request.home).unwrap_or_else(|_| self.request.home.to_owned());
        home.starts_with(directory)
            || [".local", ".local/bin", "bin"].iter().any(|part| home.join(part) == directory)
            || ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|place| Path::new(place) == directory)
    }

    /// Whether a directory holds the project, and is not it: with it everything next to the project would be shown.
    pub fn holds_project(&self, directory: &Path) -> bool {
        let project = self.project();
        project != directory && project.starts_with(directory)
    }

    /// A script in a directory that is not shown: it alone is.
    pub fn show_script(&mut self, script: &Path, directory: &Path) {
        self.show(script);
        self.note(format!("what the script loads from {}", directory.display()));
        if !self.alone_in.iter().any(|other| other == directory) {
            self.alone_in.push(directory.to_owned());
        }
    }

    /// Pins an interpreter, and shows the installation that it belongs to.
    pub fn interpreter(&mut self, found: &Found) -> Result<(), PinError> {
        self.file(&found.real, Role::Interpreter)?;
        self.show(&found.real);
        let binaries =
            found.real.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "bin"));
        if let Some(prefix) = binaries.and_then(Path::parent)
            && !self.is_personal(prefix)
        {
            self.show(prefix);
        }
        Ok(())
    }

    /// Something that no hash covers.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.unpinned.contains(&text) {
            self.unpinned.push(text);
        }
    }

    /// Program text that is on the command line.
    pub fn inline(&mut self, text: &[u8]) {
        let all = self.inline.get_or_insert_default();
        all.extend_from_slice(&(text.len() as u64).to_be_bytes());
        all.extend_from_slice(text);
    }

    pub fn finish(self, target: Target) -> Resolved {
        let shown = self
            .read_roots
            .iter()
            .filter(|root| !self.read_roots.iter().any(|other| other != *root && root.starts_with(other)));
        let mut env = self.env;
        let worded = self.worded.iter().filter_map(|name| env.remove_entry(name)).collect();
        let mut resolved = Resolved {
            launcher: target.launcher,
            identity: target.identity,
            program: target.program,
            argv: target.argv,
            env,
            worded,
            removed: self.removed,
            has_additions: self.has_more_packages || self.inline.is_some(),
            cwd: self.cwd,
            read_roots: shown.cloned().collect(),
            alone_in: self.alone_in,
            files: self.files,
            trees: self.trees,
            unpinned: (!self.unpinned.is_empty()).then(|| self.unpinned.join("; ")),
            digest: String::new(),
            inline: self.inline,
        };
        resolved.digest = resolved.compute_digest();
        resolved
    }
}
