//! Repositories in what a sandbox may write: what git runs there, or reads to know what to run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Builder;
use crate::policy::builtin_paths;
use crate::sandbox::host::{Found, plain};
use crate::sandbox::plan::{Access, Kind};

/// Configurations that are read for one repository. Git itself stops at ten that include each other.
const MOST_CONFIGURATIONS: usize = 64;
/// Configurations of the user and of the machine, which hold for every repository; `~` is the home directory.
const EVERYWHERE: [&str; 3] = ["~/.gitconfig", "~/.config/git/config", "/etc/gitconfig"];

impl Builder<'_> {
    /// A `.git`, or a repository without a working tree. It becomes a mount point of its own, so that it cannot be moved
    /// away and made anew.
    pub(super) fn guard_entry(&mut self, git: &Path) {
        if !self.may_be_written(git) {
            return;
        }
        let parent = git.parent().unwrap_or(git);
        match self.host.look(git) {
            Some(Found::Directory) => {
                self.hold(git);
                if git.file_name() == Some(".git".as_ref()) {
                    self.guard_git(git, parent);
                } else {
                    self.guard_bare(git);
                }
            }
            // The working tree of a repository that lies elsewhere, perhaps in the project.
            Some(Found::File) => {
                self.read_only(git);
                let Some(found) = self.host.git_directory(git) else { return };
                if self.may_be_written(&found)
                    && self.host.look(&found) == Some(Found::Directory)
                    && self.link_to(&found).is_none()
                {
                    self.hold(&found);
                    self.guard_git(&found, parent);
                } else {
                    self.guard_configured(&found, parent);
                }
            }
            Some(Found::Symlink) => {
                self.layout.refused.push((git.to_owned(), "a repository behind a link cannot be guarded"));
                self.hide(git);
            }
            _ => {}
        }
    }

    /// A mount point, which can be neither moved nor removed.
    fn hold(&mut self, directory: &Path) {
        self.bind(directory, Access::ReadWrite, Kind::Directory);
    }

    /// A repository without a working tree is found by what it holds, which must therefore stay.
    pub(super) fn guard_bare(&mut self, git: &Path) {
        builtin_paths::GIT_BARE.iter().for_each(|name| self.hold(&git.join(name)));
        self.guard_git(git, git);
    }

    fn guard_git(&mut self, git: &Path, worktree: &Path) {
        self.guard_directory(git);
        self.guard_configured(git, worktree);
        // Submodules keep their hooks and configuration here, linked working trees the way back.
        match self.host.modules(git) {
            Some(found) => {
                for inner in &found.directories {
                    self.guard_directory(inner);
                    self.guard_configured(inner, inner);
                }
                found.links.iter().for_each(|link| self.hide(link));
            }
            None => self.layout.unsearched.push(git.to_owned()),
        }
    }

    fn guard_directory(&mut self, git: &Path) {
        for name in ["hooks", "config", "config.worktree", "commondir", "gitdir"] {
            self.read_only(&git.join(name));
        }
        // What is missing must not come into being either: `commondir` would send git elsewhere for all the others.
        self.stand_in(&git.join("hooks"), Kind::Directory);
        self.stand_in(&git.join("config.worktree"), Kind::File);
        self.stand_in(&git.join(builtin_paths::GIT_COMMON), Kind::File);
    }

    /// Hooks and configurations that lie where a configuration says. Git looks for hooks from the working tree, or from
    /// the repository where there is none.
    fn guard_configured(&mut self, git: &Path, worktree: &Path) {
        let common = self.host.common_directory(git);
        let directories: BTreeSet<&Path> = std::iter::once(git).chain(common.as_deref()).collect();
        let mut waiting: Vec<PathBuf> = EVERYWHERE.iter().map(|path| self.named_by_git(path, git)).collect();
        for directory in directories {
            waiting.extend(["config", "config.worktree"].map(|name| directory.join(name)));
        }
        let mut seen = BTreeSet::new();
        let mut bases = BTreeSet::from([git.to_owned(), worktree.to_owned()]);
        let mut hooks = Vec::new();
        while let Some(config) = waiting.pop() {
            if seen.len() >= MOST_CONFIGURATIONS {
                self.layout.unsearched.push(git.to_owned());
                break;
            }
            if !seen.insert(config.clone()) {
                continue;
            }
            let Some(found) = self.host.git_config(&config) else { continue };
            hooks.extend(found.hooks);
            bases.extend(found.worktrees.iter().map(|path| self.named_by_git(path, git)));
            let beside = config.parent().unwrap_or(git);
            for included in &found.includes {
                let included = self.named_by_git(included, beside);
                if self.may_be_written(&included) {
                    self.read_only(&included);
                    self.stand_in(&included, Kind::File);
                }
                waiting.push(included);
            }
        }
        let hooks: BTreeSet<PathBuf> =
            bases.iter().flat_map(|base| hooks.iter().map(|path| self.named_by_git(path, base))).collect();
        for hooks in hooks.iter().filter(|hooks| self.may_be_written(hooks)).collect::<Vec<_>>() {
            self.read_only(hooks);
            self.stand_in(hooks, Kind::Directory);
        }
    }

    /// A path as git reads it: `~/` is the home directory.
    fn named_by_git(&self, written: &str, base: &Path) -> PathBuf {
        match written.strip_prefix("~/") {
            Some(rest) => plain(&self.request.home.join(rest)),
            None => plain(&base.join(written)),
        }
    }
}
