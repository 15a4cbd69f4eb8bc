//! Guards of git repositories below writable directories: what git runs there, and files that name what it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Builder, Stub};
use crate::git_config::{GitConfig, program_of, started_by};
use crate::host::{PathKind, Repositories, normalised_path, repository_names};
use crate::plan::{Access, Kind, NodeContent};
use crate::policy::builtin_paths;
use crate::spec::{NamedFile, NamedKind};

/// Limit of configurations per repository. git itself stops at ten nested includes.
const MAX_CONFIGURATIONS: usize = 64;

impl Builder<'_> {
    /// Guards every repository in a writable directory. False: there are too many, and the directory is read-only.
    pub(super) fn guard_repositories(&mut self, directory: &Path) -> bool {
        let found = self.host.repositories(directory);
        let own: Vec<PathBuf> = repository_names().map(|name| directory.join(name)).collect();
        self.layout.obeyed_in.extend(found.obeyed_in.iter().cloned());
        self.layout.repositories.extend(found.found.iter().chain(&own).cloned());
        let (hidden, fits) = too_many(directory, &found, self.host.most_mounts());
        if !fits {
            let why = "it contains more files or repositories than can be guarded; it is read-only inside";
            self.refuse(directory, why);
            self.granted.insert(directory.to_owned(), Access::ReadOnly);
            return false;
        }
        for path in &hidden {
            self.refuse(path, "it contains more repositories than can be guarded; it is empty inside");
            self.hide(path);
        }
        let is_shown = |path: &&PathBuf| !hidden.iter().any(|hidden| path.starts_with(hidden));
        for entry in &own {
            self.guard_entry(entry);
        }
        for entry in found.found.iter().filter(is_shown) {
            // A grant is a mount point already.
            if entry == directory { self.guard_bare(entry) } else { self.guard_entry(entry) }
        }
        for closed in found.closed.iter().filter(is_shown) {
            self.hide_closed(closed);
        }
        self.guard_from_around(directory);
        let (said, _) = self.said_by_git(Vec::new(), directory);
        self.layout.in_repositories.extend(said.relative());
        if self.host.path_kind(&directory.join(".git")).is_none() {
            // The user could turn it into a repository.
            self.guard_said(&said, &BTreeSet::from([directory.to_owned()]), directory);
        }
        true
    }

    /// Hooks and programs of a repository may lie in its subdirectory.
    fn guard_from_around(&mut self, directory: &Path) {
        let around = directory.ancestors().skip(1);
        let Some(worktree) =
            around.into_iter().find(|above| self.host.path_kind(&above.join(".git")).is_some())
        else {
            return;
        };
        let git = worktree.join(".git");
        let git = self.host.git_directory(&git).unwrap_or(git);
        self.guard_configured(&git, worktree);
        for repository in std::iter::once(git.clone()).chain(self.host.common_directory(&git)) {
            if self.host.path_kind(&repository.join("hooks")) == Some(PathKind::Directory) {
                self.follow_links_in(&repository.join("hooks"), &mut { MAX_HOOKS });
            }
        }
    }

    /// A `.git`, or a bare repository. As a mount point it cannot be moved away and replaced.
    pub(super) fn guard_entry(&mut self, git: &Path) {
        if !self.may_be_written(git) || self.rules.unfinished.contains(git) {
            return;
        }
        let parent = git.parent().unwrap_or(git);
        let mut others = builtin_paths::OTHER_REPOSITORIES.iter();
        let other = others.find(|(name, _)| git.file_name() == Some(name.as_ref()));
        match self.host.path_kind(git) {
            Some(PathKind::Closed) => self.hide_closed(git),
            Some(PathKind::Directory) if self.is_closed(git) => self.hide_closed(git),
            Some(PathKind::Directory) => {
                self.hold(git);
                if let Some((_, files)) = other {
                    self.guard_other(git, files);
                } else if git.file_name() == Some(".git".as_ref()) {
                    self.guard_git(git, parent);
                    // A grant cannot be moved.
                    if !self.granted.contains_key(parent) && self.is_whole(git) {
                        self.movable.insert(git.to_owned());
                    }
                } else {
                    self.guard_bare(git);
                }
            }
            // The working tree of a repository elsewhere, perhaps in the project.
            Some(PathKind::File) if other.is_none() => {
                self.read_only(git);
                let Some(found) = self.host.git_directory(git) else { return };
                self.layout.repositories.push(found.clone());
                if self.is_shown_directory(&found) {
                    self.hold(&found);
                    self.guard_git(&found, parent);
                } else {
                    self.guard_configured(&found, parent);
                }
            }
            // If the repository is visible: a file that git reads like the link, and that cannot be replaced.
            Some(PathKind::Symlink) => match self.host.canonical(git) {
                Some(end) if self.granted.contains_key(&end) || self.is_shown_directory(&end) => {
                    if !self.granted.contains_key(&end) {
                        self.hold(&end);
                        self.guard_git(&end, parent);
                    }
                    let content = [b"gitdir: ", end.as_os_str().as_encoded_bytes(), b"\n"].concat();
                    self.push(git, NodeContent::File { content, mode: 0o444 });
                    self.layout.repositories.push(end);
                }
                end => {
                    let there = "it is a link to a repository that is not shown";
                    self.refuse(git, if end.is_some() { there } else { "it is a link that leads nowhere" });
                    self.hide(git);
                }
            },
            _ => {}
        }
    }

    /// Whether git uses nothing outside the repository, so that it can be moved with its guards.
    fn is_whole(&self, git: &Path) -> bool {
        let says_nothing = |config: GitConfig| config == GitConfig::default();
        let is_plain = |(_, kind): (_, PathKind)| kind == PathKind::File;
        // Stubs are empty, or contain defaults.
        let config = git.join("config");
        (self.host.path_kind(&config).is_none() || self.host.git_config(&config).is_some_and(says_nothing))
            && self.host.git_config(&git.join("config.worktree")).is_none_or(says_nothing)
            && self.host.common_directory(git).is_none_or(|common| common == git)
            && self
                .host
                .modules(git)
                .is_some_and(|found| found.directories.is_empty() && found.links.is_empty())
            && self.host.names(&git.join("hooks")).is_none_or(|hooks| hooks.into_iter().all(is_plain))
    }

    /// Files of other version control systems that name programs.
    fn guard_other(&mut self, repository: &Path, files: &[&str]) {
        for name in files {
            let path = repository.join(name);
            self.read_only(&path);
            let above = path.parent().unwrap_or(repository);
            match self.host.path_kind(above) {
                Some(PathKind::Directory) if *name != "sharedpath" => self.add_stub(&path, Stub::File),
                // It says where the directory is: in a second workspace of Jujutsu.
                Some(PathKind::File) => self.read_only(above),
                _ => {}
            }
        }
    }

    /// A directory that its owner cannot enter or list.
    fn is_closed(&self, directory: &Path) -> bool {
        self.host.path_kind(&directory.join("config")) == Some(PathKind::Closed)
            || self.host.names(directory).is_none()
    }

    fn is_shown_directory(&self, path: &Path) -> bool {
        self.may_be_written(path)
            && self.host.path_kind(path) == Some(PathKind::Directory)
            && self.link_to(path).is_none()
            && !self.is_closed(path)
    }

    /// Makes a mount point, which cannot be moved or removed.
    fn hold(&mut self, directory: &Path) {
        self.bind(directory, Access::ReadWrite, Kind::Directory);
    }

    /// Guards the files by which git recognises a bare repository.
    pub(super) fn guard_bare(&mut self, git: &Path) {
        for name in builtin_paths::GIT_BARE {
            let directory = git.join(name);
            // A link leads git elsewhere; the guards stay here.
            if self.host.path_kind(&directory) == Some(PathKind::Directory) {
                self.hold(&directory);
            }
        }
        self.guard_git(git, git);
    }

    fn guard_git(&mut self, git: &Path, worktree: &Path) {
        if self.rules.unfinished.contains(git) {
            return;
        }
        self.guard_directory(git);
        self.guard_configured(git, worktree);
        // A repository that uses the configuration and hooks of another one in the project.
        let common = self.host.common_directory(git).filter(|common| common != git);
        if let Some(common) = common.filter(|common| self.is_shown_directory(common))
            && self.followed.insert(common.clone())
        {
            self.hold(&common);
            self.guard_directory(&common);
        }
        // Submodules have hooks and configuration here; linked worktrees have the path back.
        match self.host.modules(git) {
            Some(found) => {
                for inner in found.directories.iter().filter(|inner| !self.rules.unfinished.contains(*inner))
                {
                    self.layout.repositories.push(inner.clone());
                    self.guard_directory(inner);
                    self.guard_configured(inner, inner);
                }
                found.links.iter().for_each(|link| self.hide(link));
            }
            None => self.layout.unsearched.push(git.to_owned()),
        }
    }

    fn guard_directory(&mut self, git: &Path) {
        let (file, directories) = builtin_paths::GIT_OBEYED;
        for name in ["hooks", "config", "config.worktree", "commondir", "gitdir", file] {
            self.read_only(&git.join(name));
        }
        for directory in directories.map(|name| git.join(name)) {
            if self.host.names(&directory).is_some_and(|names| !names.is_empty()) {
                self.read_only(&directory);
            }
        }
        self.add_stub(&git.join("hooks"), Stub::Directory);
        // git accepts a repository without `config`, and a new one could name programs.
        self.add_stub(&git.join("config"), Stub::File);
        self.add_stub(&git.join("config.worktree"), Stub::File);
        // It would redirect git for all others. With any, git takes a repository of reftables for a linked working tree.
        let common = git.join(builtin_paths::GIT_COMMON);
        if self.host.path_kind(&git.join("reftable")).is_some() && self.host.path_kind(&common).is_none() {
            let why = "it redirects git to other configuration and hooks".to_owned();
            self.layout.expected.insert(common, NamedFile { kind: NamedKind::File, why });
        } else {
            self.add_stub(&common, Stub::File);
        }
    }

    /// Hooks and configurations at the places that a configuration names. git resolves hooks from the working tree, or
    /// from a bare repository.
    fn guard_configured(&mut self, git: &Path, worktree: &Path) {
        let common = self.host.common_directory(git);
        let directories: BTreeSet<&Path> = std::iter::once(git).chain(common.as_deref()).collect();
        let own = directories
            .into_iter()
            .flat_map(|directory| ["config", "config.worktree"].map(|name| directory.join(name)));
        let (said, worktrees) = self.said_by_git(own.collect(), git);
        for named in said.paths() {
            let users = self.named_by_git(named, worktree);
            self.layout.in_repository.insert((git.to_owned(), named.into(), users));
        }
        let written: Vec<&PathBuf> = worktrees.iter().filter(|tree| self.may_be_written(tree)).collect();
        for tree in written {
            self.layout.expected.entry(tree.clone()).or_insert_with(NamedFile::tree);
        }
        let mut bases = BTreeSet::from([git.to_owned(), worktree.to_owned()]);
        bases.extend(worktrees);
        self.guard_said(&said, &bases, worktree);
    }

    /// Reads these configurations, with the global ones, all their includes, and the working trees that they name.
    fn said_by_git(&mut self, mut waiting: Vec<PathBuf>, git: &Path) -> (GitConfig, Vec<PathBuf>) {
        for everywhere in &self.rules.git.files {
            // Whoever can write its directory speaks for every repository.
            if self.may_be_written(everywhere) && self.followed.insert(everywhere.clone()) {
                self.read_only(everywhere);
                self.add_stub(everywhere, Stub::File);
            }
            waiting.push(everywhere.clone());
        }
        let mut seen = BTreeSet::new();
        let mut said = self.rules.git.said.clone();
        let mut worktrees = Vec::new();
        while let Some(config) = waiting.pop() {
            if seen.len() >= MAX_CONFIGURATIONS {
                self.layout.unsearched.push(git.to_owned());
                break;
            }
            if !seen.insert(config.clone()) {
                continue;
            }
            let Some(found) = self.host.git_config(&config) else {
                if matches!(self.host.path_kind(&config), Some(PathKind::File | PathKind::Closed))
                    && self.may_be_written(git)
                {
                    // Its content is unknown, and it may be opened from inside.
                    self.hide_closed(git);
                }
                continue;
            };
            said.hooks.extend(found.hooks);
            said.programs.extend(found.programs);
            said.commands.extend(found.commands);
            worktrees.extend(found.worktrees.iter().map(|path| self.named_by_git(path, git)));
            let beside = config.parent().unwrap_or(git);
            for included in &found.includes {
                let included = self.named_by_git(included, beside);
                if self.may_be_written(&included) {
                    self.read_only(&included);
                    self.add_stub(&included, Stub::File);
                }
                waiting.push(included);
            }
        }
        (said, worktrees)
    }

    /// Guards hooks and programs from where git may look for them: it starts programs in the working tree.
    fn guard_said(&mut self, said: &GitConfig, bases: &BTreeSet<PathBuf>, worktree: &Path) {
        let hooks: BTreeSet<PathBuf> = bases
            .iter()
            .flat_map(|base| said.hooks.iter().map(|path| self.named_by_git(path, base)))
            .collect();
        let commands: Vec<String> = said.commands.iter().chain(&said.programs).cloned().collect();
        self.guard_commands(&commands, bases);
        for program in said.programs.iter().filter_map(|command| program_of(command)) {
            let path = self.named_by_git(program, worktree);
            if self.may_be_written(&path) && self.host.path_kind(&path).is_none() {
                self.add_stub(&path, Stub::File);
            }
        }
        for program in said.commands.iter().flat_map(|command| started_by(command)) {
            let path = self.named_by_git(program, worktree);
            if self.may_be_written(&path) && self.host.path_kind(&path).is_none() {
                let why = "git's configuration names it as a command".to_owned();
                self.layout.expected.entry(path).or_insert(NamedFile { kind: NamedKind::File, why });
            }
        }
        for hooks in &hooks {
            if self.may_be_written(hooks) {
                self.read_only(hooks);
                self.add_stub(hooks, Stub::Directory);
                let is_plain = self.rules.layer.is_none() && self.link_to(hooks).is_none();
                if let Some(files) = self.host.generated_files(hooks).filter(|_| is_plain) {
                    self.remade.insert(hooks.clone(), files);
                }
            } else if self.nearest_grant(hooks).is_none()
                && !super::is_system(hooks)
                && self.host.path_kind(hooks).is_some()
                && self.followed.insert(hooks.clone())
            {
                let why =
                    "git's hooks are there (core.hooksPath), so git inside runs none; `--read` shows them";
                self.refuse(hooks, why);
            }
        }
    }

    /// Guards programs of the project that a configuration names: filters, aliases, helpers.
    fn guard_commands(&mut self, commands: &[String], bases: &BTreeSet<PathBuf>) {
        let is_between = |letter: char| letter.is_whitespace() || "!\"';&|()=".contains(letter);
        let mut wanted = BTreeSet::new();
        for command in commands {
            let words: Vec<&str> = command.split(is_between).filter(|word| !word.is_empty()).collect();
            let behind = |verb: &[&str]| -> Vec<&str> {
                let pairs = words.iter().zip(words.iter().skip(1));
                pairs.filter(|(word, _)| verb.contains(word)).map(|(_, next)| *next).collect()
            };
            let modules = behind(&["-m"]).into_iter().map(|name| name.replace('.', "/"));
            let modules = modules.flat_map(|name| [format!("{name}.py"), format!("{name}/__main__.py")]);
            let names: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(modules).collect();
            for base in bases {
                let entered = behind(&["cd", "pushd"]).into_iter().map(|name| self.named_by_git(name, base));
                for base in entered.chain([base.clone()]) {
                    wanted.extend(names.iter().map(|name| self.named_by_git(name, &base)));
                }
            }
        }
        for path in wanted {
            if self.may_be_written(&path)
                && !self.is_written_by_git(&path)
                && matches!(self.host.path_kind(&path), Some(PathKind::File | PathKind::Symlink))
                && self.followed.insert(path.clone())
            {
                self.read_only(&path);
            }
        }
    }

    /// Whether git itself writes a file for most of its commands: `HEAD`, `ORIG_HEAD`, `index`. A command names it as a commit.
    fn is_written_by_git(&self, path: &Path) -> bool {
        let is_own = |name: &str| {
            ["index", "packed-refs"].contains(&name)
                || name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        };
        path.file_name().and_then(|name| name.to_str()).is_some_and(is_own)
            && path
                .parent()
                .is_some_and(|git| self.host.path_kind(&git.join("objects")) == Some(PathKind::Directory))
    }

    /// A path as git resolves it: `~/` is the home, `~name/` another user's.
    fn named_by_git(&self, written: &str, base: &Path) -> PathBuf {
        let Some(rest) = written.strip_prefix('~') else { return normalised_path(&base.join(written)) };
        let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let home = if user.is_empty() { Some(self.rules.home.clone()) } else { self.host.home_of(user) };
        home.map_or_else(|| normalised_path(&base.join(written)), |home| normalised_path(&home.join(rest)))
    }
}

/// Limit of guarded repositories per sandbox, and mounts for each.
const MAX_REPOSITORIES: usize = 2_000;
const MOUNTS_EACH: usize = 9;
/// Maximum number of directories that are hidden because they contain too many repositories.
const MAX_HIDDEN: usize = 100;
/// Limit of hooks of one repository that are checked for links.
pub(super) const MAX_HOOKS: usize = 10_000;

/// The top-level directories with too many repositories, the fullest first, and whether the others can be guarded.
fn too_many(directory: &Path, found: &Repositories, most_mounts: usize) -> (Vec<PathBuf>, bool) {
    let mut total = found.found.len() + found.closed.len();
    if found.is_cut {
        return (Vec::new(), false);
    }
    // The rest is for everything else.
    let most = (most_mounts.saturating_sub(500) / MOUNTS_EACH).min(MAX_REPOSITORIES);
    let mut groups: BTreeMap<PathBuf, usize> = BTreeMap::new();
    if total > most {
        for path in found.found.iter().chain(&found.closed) {
            let first = path.strip_prefix(directory).ok().and_then(|below| below.iter().next());
            *groups.entry(directory.join(first.unwrap_or_default())).or_default() += 1;
        }
    }
    let mut groups: Vec<(usize, PathBuf)> = groups.into_iter().map(|(path, count)| (count, path)).collect();
    groups.sort();
    let mut hidden = Vec::new();
    while total > most && hidden.len() < MAX_HIDDEN {
        let Some((count, path)) = groups.pop() else { break };
        total -= count;
        hidden.push(path);
    }
    (hidden, total <= most)
}
