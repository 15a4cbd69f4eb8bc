//! Files that run automatically outside: applied only if the user names them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Name;
use super::changes::Trees;
use super::directory_handle::Kind;
use agentsh_policy::builtin_paths::{
    GIT_BARE, GIT_OBEYED, GIT_OBEYS, NESTED_READ_ONLY, OTHER_REPOSITORIES, PROJECT_READ_ONLY, Tier,
    WhenChanged,
};
use agentsh_sandbox::host::{RealHost, normalised_path};
use agentsh_sandbox::layout;
use agentsh_sandbox::plan::{Access, Mount, NodeContent};
use agentsh_sandbox::spec::{NamedKind, PathRules};

/// The guarded paths of one project.
pub struct Guarded {
    /// Paths that the project's own configuration runs, and other paths that a live run would guard; relative.
    found: BTreeMap<PathBuf, &'static str>,
    /// Directories at whose top no file may appear that runs because of its name; relative.
    tops: BTreeSet<PathBuf>,
    /// Paths that the policy of the run allows; relative.
    lifted: Vec<PathBuf>,
    /// Directories of the project in which a shell searches for commands; relative.
    commands: BTreeSet<PathBuf>,
    /// The others.
    path: Vec<PathBuf>,
    /// Paths in each working tree that the user's git runs, or searches for what it runs.
    in_repositories: BTreeSet<PathBuf>,
}

/// The paths that a run guards in its project, by its start directory, the home and the environment; relative.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct GuardedPaths {
    paths: BTreeSet<Name>,
    tops: BTreeSet<Name>,
    #[serde(default)]
    commands: BTreeSet<Name>,
    #[serde(default)]
    in_repositories: BTreeSet<Name>,
}

impl GuardedPaths {
    /// Asks what a run on the project itself would guard.
    #[must_use]
    pub fn of(rules: &PathRules) -> Self {
        let is_guard = |mount: &&Mount| match &mount.what {
            NodeContent::Bind { access, .. } => *access == Access::ReadOnly,
            NodeContent::Tmpfs { .. } | NodeContent::File { .. } => true,
            _ => false,
        };
        let layout = layout::guards(rules, &RealHost::default());
        let guards = layout.guards.iter().filter(is_guard).map(|mount| &mount.target);
        // What is in a working tree is an ordinary file.
        let expected = layout.expected.iter().filter(|(_, named)| named.kind != NamedKind::Tree);
        let paths =
            guards.chain(layout.stubs.iter().map(|(path, _)| path)).chain(expected.map(|(path, _)| path));
        let below = |path: &PathBuf| path.strip_prefix(&rules.project).ok().map(|path| Name(path.to_owned()));
        Self {
            paths: paths.filter_map(below).filter(|path| !path.0.as_os_str().is_empty()).collect(),
            tops: layout.worked_in.iter().filter_map(below).collect(),
            commands: layout.commands.iter().filter_map(below).collect(),
            in_repositories: layout.in_repositories.iter().cloned().map(Name).collect(),
        }
    }

    /// Whether a run on the project itself would guard a path, which is relative.
    #[must_use]
    pub fn hold(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.paths.contains(&Name(above.to_owned())))
    }
}

const BY_CONFIGURATION: &str = "runs automatically outside, or names what does";
const LEADS_AWAY: &str = "leads to other files in place of what runs automatically outside";
const OF_A_REPOSITORY: &str = "git runs it, or reads in it what to run";

impl Guarded {
    /// The paths that the run would have guarded, and those of the current tables and configurations.
    #[must_use]
    pub fn of(rules: &PathRules, of_run: &GuardedPaths, path: &str) -> Self {
        let now = GuardedPaths::of(rules);
        let path = path.split(':').map(|directory| normalised_path(&rules.project.join(directory)));
        let (written, path): (Vec<_>, Vec<_>) =
            path.partition(|directory| directory.starts_with(&rules.project));
        let below = |path: &PathBuf| path.strip_prefix(&rules.project).ok().map(Path::to_owned);
        let tops = now.tops.iter().chain(&of_run.tops).map(|top| top.0.clone());
        Self {
            found: now
                .paths
                .iter()
                .chain(&of_run.paths)
                .map(|path| (path.0.clone(), BY_CONFIGURATION))
                .collect(),
            tops: tops.chain([PathBuf::new()]).collect(),
            lifted: rules.unmasked.iter().filter_map(below).collect(),
            commands: written
                .iter()
                .filter_map(below)
                .chain(of_run.commands.iter().map(|one| one.0.clone()))
                .collect(),
            path,
            in_repositories: now
                .in_repositories
                .iter()
                .chain(&of_run.in_repositories)
                .map(|named| named.0.clone())
                .collect(),
        }
    }

    /// By the table for the top of a project.
    fn of_top(&self, path: &Path, now: Option<Kind>) -> Option<&'static str> {
        self.tops.iter().find_map(|top| of_project(path.strip_prefix(top).ok()?, now))
    }

    /// Whether a shell would start a new file in place of another command.
    fn is_command(&self, path: &Path, trees: &Trees) -> bool {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
        self.commands.contains(above)
            && trees.project.stamp(path).is_ok_and(|before| before.is_none())
            && self.path.iter().any(|directory| directory.join(name).exists())
    }

    /// Whether git would run a path, or something behind it, in the repository around it, which may be new.
    fn is_in_working_tree(&self, path: &Path, now: Option<Kind>, trees: &Trees) -> bool {
        let is_repository = |top: &Path| {
            let entry = top.join(".git");
            [&trees.upper, &trees.project].iter().any(|tree| {
                tree.stamp(&entry).ok().flatten().is_some_and(|found| found.kind != Kind::Whiteout)
            })
        };
        path.ancestors().skip(1).any(|top| {
            let below = path.strip_prefix(top).unwrap_or(path);
            let is_named = |named: &PathBuf| {
                below.starts_with(named) || now == Some(Kind::Link) && named.starts_with(below)
            };
            self.in_repositories.iter().any(is_named) && is_repository(top)
        })
    }

    /// Whether a path is on the way to a guarded one, so that a link there leads to another file in its place.
    fn is_above_guarded(&self, path: &Path) -> bool {
        let guarded = self.found.keys().chain(&self.tops).chain(&self.commands);
        guarded.into_iter().any(|guarded| guarded.starts_with(path))
    }

    /// Whether a person who names this path includes guarded files, because the path itself is guarded.
    #[must_use]
    pub fn is_named_by(&self, path: &Path, trees: &Trees) -> bool {
        let kind = Some(Kind::Directory);
        self.of_top(path, kind).is_some()
            || of_repository(path, kind, trees).is_some()
            || path.ancestors().any(|above| {
                // A new directory stands here for what is guarded below it.
                let is_new = || trees.project.stamp(above).is_ok_and(|before| before.is_none());
                self.found.contains_key(above) && !(above == path && is_new())
            })
    }

    /// Why a change of this path is guarded.
    #[must_use]
    pub fn guard_reason(&self, path: &Path, now: Option<Kind>, trees: &Trees) -> Option<String> {
        if path.ancestors().any(|above| self.lifted.iter().any(|lifted| lifted == above)) {
            return None;
        }
        let is_sample = path.extension().is_some_and(|end| end == "sample");
        let is_plain_directory = now == Some(Kind::Directory);
        let why = self
            .of_top(path, now)
            .or_else(|| (!is_sample).then(|| of_repository(path, now, trees)).flatten())
            .or_else(|| self.is_command(path, trees).then_some("runs instead of a command of the same name"))
            .or_else(|| {
                path.ancestors().find_map(|above| self.found.get(above).copied()).filter(|_| !is_sample)
            })
            .or_else(|| self.is_in_working_tree(path, now, trees).then_some(OF_A_REPOSITORY))
            .or_else(|| (now == Some(Kind::Link) && self.is_above_guarded(path)).then_some(LEADS_AWAY))?;
        // An empty directory runs nothing.
        (!is_plain_directory).then(|| why.to_owned())
    }
}

/// By the table for the top of a project.
fn of_project(path: &Path, now: Option<Kind>) -> Option<&'static str> {
    let top = path.iter().next()?;
    for entry in PROJECT_READ_ONLY.iter().filter(|entry| entry.tier == Tier::Runs) {
        let guarded = Path::new(entry.path);
        // A sample hook is named by the other tables.
        if entry.path.starts_with(".git/") {
            continue;
        }
        let is_it = path.starts_with(guarded)
            || (entry.is_pattern() && top.to_str().is_some_and(|name| entry.matches(name)));
        // Something in its way leads elsewhere.
        let is_above = guarded.starts_with(path) && matches!(now, Some(Kind::Link | Kind::File));
        if is_it || is_above {
            return Some(entry.why);
        }
    }
    None
}

/// Directories of a repository in which names are those of branches and objects.
const NAMES_OF_OTHERS: [&str; 3] = ["refs", "logs", "objects"];
/// Files of a repository that name programs to run, or the location of such files.
const CONTROL_FILES: [&str; 4] = ["config", "config.worktree", "commondir", "gitdir"];

/// In a repository at any depth.
fn of_repository(path: &Path, now: Option<Kind>, trees: &Trees) -> Option<&'static str> {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap_or("\u{FFFD}")).collect();
    for (at, part) in parts.iter().enumerate() {
        let inside = parts.get(at + 1..).unwrap_or_default();
        if *part == ".git" {
            // Anything but a directory points git to another place.
            if inside.is_empty() && matches!(now, Some(Kind::File | Kind::Link)) {
                return Some("redirects git to other configuration and hooks");
            }
            let rest: PathBuf = inside.iter().collect();
            let obeyed = GIT_OBEYS.iter().filter(|(_, when, _)| *when != WhenChanged::Told);
            if let Some((.., why)) = obeyed.into_iter().find(|(name, ..)| rest.starts_with(name)) {
                return Some(why);
            }
            if rest == Path::new("packed-refs") && replaces_objects(path, trees) {
                return Some("replaces one object with another");
            }
            if inside.first().is_some_and(|first| NAMES_OF_OTHERS.contains(first)) {
                return (inside.len() == 1 && now == Some(Kind::Link)).then_some(OF_A_REPOSITORY);
            }
            if says_what_runs(inside) || now == Some(Kind::Link) && !inside.is_empty() {
                return Some(OF_A_REPOSITORY);
            }
        }
        if let Some((_, files)) = OTHER_REPOSITORIES.iter().find(|(name, _)| name == part) {
            let rest: PathBuf = inside.iter().collect();
            let is_link = matches!(now, Some(Kind::File | Kind::Link));
            let is_it =
                |file: &&str| rest == Path::new(file) || is_link && Path::new(file).starts_with(&rest);
            if files.iter().any(is_it) {
                return NESTED_READ_ONLY
                    .iter()
                    .find(|(named, _)| named.starts_with(part))
                    .map(|(_, why)| *why)
                    .or(Some(OF_A_REPOSITORY));
            }
        }
    }
    if parts.contains(&".git") {
        return None;
    }
    // A repository without a working tree is recognised by its files. They may appear one after the other, so a configuration
    // or hook is guarded next to a HEAD, and a HEAD next to those.
    let holds = |directory: &Path, name: &str| {
        let is_there = |tree: &super::directory_handle::DirectoryHandle| {
            let found = tree.stamp(&directory.join(name)).ok().flatten();
            found.is_some_and(|found| found.kind != Kind::Whiteout)
        };
        is_there(&trees.upper) || is_there(&trees.project)
    };
    let is_repository = |top: &Path| holds(top, "HEAD") || GIT_BARE.iter().all(|name| holds(top, name));
    let mut tops = path.ancestors().skip(1).filter(|above| {
        path.strip_prefix(above).is_ok_and(|rest| {
            says_what_runs(&rest.iter().filter_map(|part| part.to_str()).collect::<Vec<_>>())
        })
    });
    let completes = path.file_name().is_some_and(|name| name == "HEAD")
        && path
            .parent()
            .is_some_and(|top| holds(top, "hooks") || CONTROL_FILES.iter().any(|name| holds(top, name)));
    (completes || tops.any(is_repository)).then_some(OF_A_REPOSITORY)
}

/// Whether packed refs replace objects. Too long ones may.
fn replaces_objects(path: &Path, trees: &Trees) -> bool {
    const MAX_BYTES: u64 = 16 << 20;
    let content = trees.upper.content(path, MAX_BYTES).ok().flatten();
    content.is_none_or(|content| String::from_utf8_lossy(&content).contains(" refs/replace/"))
}

fn says_what_runs(inside: &[&str]) -> bool {
    let (file, directories) = GIT_OBEYED;
    inside.contains(&"hooks")
        || inside.first().is_some_and(|first| directories.contains(first) || *first == file)
        || inside.last().is_some_and(|name| CONTROL_FILES.contains(name))
}
