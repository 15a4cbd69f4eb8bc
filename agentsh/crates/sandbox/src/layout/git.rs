//! Repositories in what a sandbox may write: what git runs there, or reads to know what to run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{Builder, StandIn};
use crate::git_config::{GitConfig, program_of};
use crate::host::{PathKind, Repositories, plain, repository_names};
use crate::plan::{Access, Kind, NodeContent};
use crate::policy::builtin_paths;

/// Configurations that are read for one repository. Git itself stops at ten that include each other.
const MAX_CONFIGURATIONS: usize = 64;

impl Builder<'_> {
    /// Every repository in a writable directory, and what the one around it says. False: there is too much, and nothing is
    /// written.
    pub(super) fn guard_repositories(&mut self, directory: &Path) -> bool {
        let found = self.host.repositories(directory);
        let own: Vec<PathBuf> = repository_names().map(|name| directory.join(name)).collect();
        self.layout.repositories.extend(found.found.iter().chain(&own).cloned());
        let (hidden, fits) = too_many(directory, &found, self.host.most_mounts());
        if !fits {
            let why = "it holds more files or repositories than can be guarded; it is read-only inside";
            self.refuse(directory, why);
            self.granted.insert(directory.to_owned(), Access::ReadOnly);
            return false;
        }
        for path in &hidden {
            self.refuse(path, "it holds more repositories than can be guarded; it is empty inside");
            self.hide(path);
        }
        let is_shown = |path: &&PathBuf| !hidden.iter().any(|hidden| path.starts_with(hidden));
        for entry in &own {
            self.guard_entry(entry);
        }
        for entry in found.found.iter().filter(is_shown) {
            // The grant itself is a mount point already.
            if entry == directory { self.guard_bare(entry) } else { self.guard_entry(entry) }
        }
        for closed in found.closed.iter().filter(is_shown) {
            self.hide_closed(closed);
        }
        self.guard_from_around(directory);
        let (said, _) = self.said_by_git(Vec::new(), directory);
        self.layout.in_repositories.extend(said.relative());
        if self.host.look(&directory.join(".git")).is_none() {
            // It may become one, by the user's own hand.
            self.guard_said(&said, &BTreeSet::from([directory.to_owned()]), directory);
        }
        true
    }

    /// What the repository around a directory says about hooks and programs may lie in the directory.
    fn guard_from_around(&mut self, directory: &Path) {
        let around = directory.ancestors().skip(1);
        let Some(worktree) = around.into_iter().find(|above| self.host.look(&above.join(".git")).is_some())
        else {
            return;
        };
        let git = worktree.join(".git");
        let git = self.host.git_directory(&git).unwrap_or(git);
        self.guard_configured(&git, worktree);
        for repository in std::iter::once(git.clone()).chain(self.host.common_directory(&git)) {
            if self.host.look(&repository.join("hooks")) == Some(PathKind::Directory) {
                self.follow_links_in(&repository.join("hooks"), &mut { MAX_HOOKS });
            }
        }
    }

    /// A `.git`, or a repository without a working tree. It becomes a mount point of its own, so that it cannot be moved
    /// away and made anew.
    pub(super) fn guard_entry(&mut self, git: &Path) {
        if !self.may_be_written(git) {
            return;
        }
        let parent = git.parent().unwrap_or(git);
        let mut others = builtin_paths::OTHER_REPOSITORIES.iter();
        let other = others.find(|(name, _)| git.file_name() == Some(name.as_ref()));
        match self.host.look(git) {
            Some(PathKind::Closed) => self.hide_closed(git),
            Some(PathKind::Directory) if self.is_closed(git) => self.hide_closed(git),
            Some(PathKind::Directory) => {
                self.hold(git);
                if let Some((_, files)) = other {
                    self.guard_other(git, files);
                } else if git.file_name() == Some(".git".as_ref()) {
                    self.guard_git(git, parent);
                    // Nobody moves what is granted itself.
                    if !self.granted.contains_key(parent) && self.is_whole(git) {
                        self.movable.insert(git.to_owned());
                    }
                } else {
                    self.guard_bare(git);
                }
            }
            // The working tree of a repository that lies elsewhere, perhaps in the project.
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
            // Where the repository is shown, a file that git reads as the link, and that nobody can replace.
            Some(PathKind::Symlink) => {
                match self.host.canonical(git).filter(|end| self.granted.contains_key(end)) {
                    Some(end) => {
                        let content = [b"gitdir: ", end.as_os_str().as_encoded_bytes(), b"\n"].concat();
                        self.push(git, NodeContent::File { content, mode: 0o444 });
                        self.layout.repositories.push(end);
                    }
                    None => {
                        self.refuse(git, "it is a link to a repository that is not shown");
                        self.hide(git);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether nothing that git runs or reads lies elsewhere: wherever the directory around is moved, it means the same, and its
    /// guards move with it.
    fn is_whole(&self, git: &Path) -> bool {
        let says_nothing = |config: GitConfig| config == GitConfig::default();
        let is_plain = |(_, kind): (_, PathKind)| kind == PathKind::File;
        // Stand-ins say nothing, or that everything is where it is.
        let config = git.join("config");
        (self.host.look(&config).is_none() || self.host.git_config(&config).is_some_and(says_nothing))
            && self.host.git_config(&git.join("config.worktree")).is_none_or(says_nothing)
            && self.host.common_directory(git).is_none_or(|common| common == git)
            && self
                .host
                .modules(git)
                .is_some_and(|found| found.directories.is_empty() && found.links.is_empty())
            && self.host.names(&git.join("hooks")).is_none_or(|hooks| hooks.into_iter().all(is_plain))
    }

    /// The files of another system in which programs are named.
    fn guard_other(&mut self, repository: &Path, files: &[&str]) {
        for name in files {
            let path = repository.join(name);
            self.read_only(&path);
            let may_come =
                path.parent().is_some_and(|above| self.host.look(above) == Some(PathKind::Directory));
            if may_come && *name != "sharedpath" {
                self.stand_in(&path, StandIn::File);
            }
        }
    }

    /// A directory that its owner cannot enter, or list.
    fn is_closed(&self, directory: &Path) -> bool {
        self.host.look(&directory.join("config")) == Some(PathKind::Closed)
            || self.host.names(directory).is_none()
    }

    fn is_shown_directory(&self, path: &Path) -> bool {
        self.may_be_written(path)
            && self.host.look(path) == Some(PathKind::Directory)
            && self.link_to(path).is_none()
            && !self.is_closed(path)
    }

    /// A mount point, which can be neither moved nor removed.
    fn hold(&mut self, directory: &Path) {
        self.bind(directory, Access::ReadWrite, Kind::Directory);
    }

    /// A repository without a working tree is found by what it holds, which must therefore stay.
    pub(super) fn guard_bare(&mut self, git: &Path) {
        for name in builtin_paths::GIT_BARE {
            let directory = git.join(name);
            // A link leads git elsewhere, and what is guarded stays here.
            if self.host.look(&directory) == Some(PathKind::Directory) {
                self.hold(&directory);
            }
        }
        self.guard_git(git, git);
    }

    fn guard_git(&mut self, git: &Path, worktree: &Path) {
        self.guard_directory(git);
        self.guard_configured(git, worktree);
        // A repository that shares the configuration and hooks of another one in the project.
        let common = self.host.common_directory(git).filter(|common| common != git);
        if let Some(common) = common.filter(|common| self.is_shown_directory(common))
            && self.followed.insert(common.clone())
        {
            self.hold(&common);
            self.guard_directory(&common);
        }
        // Submodules keep their hooks and configuration here, linked working trees the way back.
        match self.host.modules(git) {
            Some(found) => {
                for inner in &found.directories {
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
        // What is missing must not come into being either: `commondir` would send git elsewhere for all the others.
        self.stand_in(&git.join("hooks"), StandIn::Directory);
        // Git reads a repository without one, and whoever made one would say what git runs.
        self.stand_in(&git.join("config"), StandIn::File);
        self.stand_in(&git.join("config.worktree"), StandIn::File);
        self.stand_in(&git.join(builtin_paths::GIT_COMMON), StandIn::File);
    }

    /// Hooks and configurations that lie where a configuration says. Git looks for hooks from the working tree, or from
    /// the repository where there is none.
    fn guard_configured(&mut self, git: &Path, worktree: &Path) {
        let common = self.host.common_directory(git);
        let directories: BTreeSet<&Path> = std::iter::once(git).chain(common.as_deref()).collect();
        let own = directories
            .into_iter()
            .flat_map(|directory| ["config", "config.worktree"].map(|name| directory.join(name)));
        let (said, worktrees) = self.said_by_git(own.collect(), git);
        let mut bases = BTreeSet::from([git.to_owned(), worktree.to_owned()]);
        bases.extend(worktrees);
        self.guard_said(&said, &bases, worktree);
    }

    /// What these configurations say, and those that hold for every repository, with all that they include; and the working
    /// trees that they name.
    fn said_by_git(&mut self, mut waiting: Vec<PathBuf>, git: &Path) -> (GitConfig, Vec<PathBuf>) {
        for everywhere in &self.rules.git.files {
            // Whoever may write to where it lies would speak for every repository.
            if self.may_be_written(everywhere) && self.followed.insert(everywhere.clone()) {
                self.read_only(everywhere);
                self.stand_in(everywhere, StandIn::File);
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
                if matches!(self.host.look(&config), Some(PathKind::File | PathKind::Closed))
                    && self.may_be_written(git)
                {
                    // What it says is not known, and it may be opened from inside.
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
                    self.stand_in(&included, StandIn::File);
                }
                waiting.push(included);
            }
        }
        (said, worktrees)
    }

    /// Hooks and programs, seen from where git may look for them. It starts programs from the working tree.
    fn guard_said(&mut self, said: &GitConfig, bases: &BTreeSet<PathBuf>, worktree: &Path) {
        let hooks: BTreeSet<PathBuf> = bases
            .iter()
            .flat_map(|base| said.hooks.iter().map(|path| self.named_by_git(path, base)))
            .collect();
        let commands: Vec<String> = said.commands.iter().chain(&said.programs).cloned().collect();
        self.guard_commands(&commands, bases);
        for program in said.programs.iter().filter_map(|command| program_of(command)) {
            let path = self.named_by_git(program, worktree);
            if self.may_be_written(&path) && self.host.look(&path).is_none() {
                self.stand_in(&path, StandIn::File);
            }
        }
        for hooks in hooks.iter().filter(|hooks| self.may_be_written(hooks)).collect::<Vec<_>>() {
            self.read_only(hooks);
            self.stand_in(hooks, StandIn::Directory);
        }
    }

    /// Programs of the project that a configuration names: filters, aliases, helpers.
    fn guard_commands(&mut self, commands: &[String], bases: &BTreeSet<PathBuf>) {
        let is_between = |letter: char| letter.is_whitespace() || "!\"';&|()=".contains(letter);
        let words: BTreeSet<&str> = commands.iter().flat_map(|command| command.split(is_between)).collect();
        for word in words.into_iter().filter(|word| !word.is_empty()) {
            for base in bases {
                let path = self.named_by_git(word, base);
                if self.may_be_written(&path)
                    && matches!(self.host.look(&path), Some(PathKind::File | PathKind::Symlink))
                    && self.followed.insert(path.clone())
                {
                    self.read_only(&path);
                }
            }
        }
    }

    /// A path as git reads it: `~/` is the home directory, and `~name/` that of somebody else.
    fn named_by_git(&self, written: &str, base: &Path) -> PathBuf {
        let Some(rest) = written.strip_prefix('~') else { return plain(&base.join(written)) };
        let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let home = if user.is_empty() { Some(self.rules.home.clone()) } else { self.host.home_of(user) };
        home.map_or_else(|| plain(&base.join(written)), |home| plain(&home.join(rest)))
    }
}

/// Repositories for which a sandbox gets guards, and the mounts that each takes.
const MAX_REPOSITORIES: usize = 2_000;
const MOUNTS_EACH: usize = 9;
/// Directories that are hidden because they hold too many.
const MAX_HIDDEN: usize = 100;
/// Hooks of one repository in which links are looked for.
pub(super) const MAX_HOOKS: usize = 10_000;

/// The directories at the top that hold too many repositories, the fullest first, and whether the rest can be guarded.
fn too_many(directory: &Path, found: &Repositories, most_mounts: usize) -> (Vec<PathBuf>, bool) {
    let mut total = found.found.len() + found.closed.len();
    if found.is_cut {
        return (Vec::new(), false);
    }
    // Some are for everything else.
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
