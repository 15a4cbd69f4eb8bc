//! Symlinks of PATH and their targets: `~/.local/bin/tool -> ../tool-1.2/bin/tool`. Targets are mounted where they
//! are, and the links exist inside too, so that a program finds what was installed with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::{PRIVATE, SearchContext, installed_around, is_plain, may_be_shown};
use agentsh_base::real_paths::RealPaths;
use agentsh_policy::builtin_paths::HOME_MASKS;
use agentsh_sandbox::layout::is_system;
use agentsh_sandbox::spec::MAX_LINKS;

/// Entries of a directory of PATH that are looked at.
const MAX_ENTRIES: usize = 4_000;
/// Limit of programs of PATH in other directories; further ones are not shown.
const MAX_ELSEWHERE: usize = 256;

/// The visible paths, and the links that lead to them.
#[derive(Debug, Default)]
pub(super) struct VisiblePaths {
    pub paths: BTreeSet<PathBuf>,
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// Each of `paths` where it really is, and with those that are directories of PATH the programs that links in them name.
pub(super) fn behind_links(
    named: BTreeSet<PathBuf>,
    around: &SearchContext<'_>,
    paths: &RealPaths,
) -> VisiblePaths {
    let mut shown = VisiblePaths::default();
    for path in named {
        shown.add(&path, around, paths);
    }
    let on_path = around.env.get("PATH").map(String::as_str).unwrap_or_default();
    let mut room = MAX_ELSEWHERE;
    for directory in on_path.split(':').map(PathBuf::from) {
        // A path that cannot be followed is missing, or the project could change it.
        let Some(real) = paths.canonical(&directory) else { continue };
        if !shown.paths.contains(&real) {
            continue;
        }
        let Ok(entries) = fs::read_dir(&real) else { continue };
        let entries = entries.flatten().take(MAX_ENTRIES);
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        let mut links: Vec<PathBuf> = links.map(|entry| entry.path()).collect();
        links.sort();
        for link in links {
            shown.add_program(&link, around, paths, &mut room);
        }
    }
    shown
}

impl VisiblePaths {
    fn add(&mut self, path: &Path, around: &SearchContext<'_>, paths: &RealPaths) {
        if around.host.is_missing(path) || paths.canonical(path).is_none() {
            return;
        }
        match follow(path, around, paths) {
            // The target of links may be visible, or is visible to everybody.
            Some(way) if !way.links.is_empty() && (is_system(&way.end) || may_be_shown(&way.end, around)) => {
                self.keep(way, around);
            }
            _ if may_be_shown(path, around) => drop(self.paths.insert(path.to_owned())),
            _ => {}
        }
    }

    /// A program that a link of PATH names, with what is installed around it.
    fn add_program(&mut self, link: &Path, around: &SearchContext<'_>, paths: &RealPaths, room: &mut usize) {
        let Some(way) = follow(link, around, paths) else { return };
        let is_program =
            way.end.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        // The user's name for it is not a reason to show what is never visible.
        let is_secret = HOME_MASKS.iter().any(|(mask, _)| way.end.starts_with(around.home.join(mask)));
        if !is_program || is_secret || self.holds(&way.end) || *room == 0 {
            return;
        }
        if is_system(&way.end) {
            self.keep(way, around);
            return;
        }
        if !may_be_shown(&way.end, around) {
            return;
        }
        *room -= 1;
        let installed = way.end.parent().map(|directory| installed_around(directory, around));
        let installed = installed.into_iter().flatten().filter(|path| may_be_shown(path, around));
        let installed: Vec<PathBuf> = installed.filter(|path| !self.holds(path)).collect();
        // Some are links themselves, as `lib64` of a virtual environment is.
        installed.iter().for_each(|path| self.add(path, around, paths));
        self.keep(way, around);
    }

    fn keep(&mut self, way: LinkChain, around: &SearchContext<'_>) {
        let is_own = |link: &Path| {
            is_system(link)
                || PRIVATE.iter().any(|place| link.starts_with(place) && !link.starts_with(around.home))
        };
        let links = way.links.into_iter().filter(|(link, _)| !is_own(link) && !self.holds(link));
        self.links.extend(links.collect::<Vec<_>>());
        if !is_system(&way.end) && !self.holds(&way.end) && may_be_shown(&way.end, around) {
            self.paths.insert(way.end);
        }
    }

    fn holds(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.paths.contains(above))
    }
}

/// The chain of links from a name to its target.
#[derive(Debug)]
struct LinkChain {
    links: Vec<(PathBuf, PathBuf)>,
    end: PathBuf,
}

/// Where a path leads, unless a link in the project is on the way: its author does not decide what is shown.
pub(super) fn end(path: &Path, around: &SearchContext<'_>, paths: &RealPaths) -> Option<PathBuf> {
    follow(path, around, paths).map(|way| way.end)
}

/// None if nothing is there, if links form a loop, or if the project could change one of them.
fn follow(path: &Path, around: &SearchContext<'_>, paths: &RealPaths) -> Option<LinkChain> {
    if !is_plain(path) {
        return None;
    }
    let mut links = Vec::new();
    let mut waiting: Vec<PathBuf> = parts(path);
    let mut at = PathBuf::from("/");
    while let Some(part) = waiting.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(part);
        // Inside, the home and the project are at their given paths.
        let is_above = around.home.starts_with(&next) || around.project.starts_with(&next);
        match paths.link(&next) {
            Some(to) if !is_above => {
                if links.len() == MAX_LINKS || next.starts_with(around.project) {
                    return None;
                }
                if to.is_absolute() {
                    at = PathBuf::from("/");
                }
                waiting.extend(parts(&to));
                links.push((next, to));
            }
            None if !paths.is_there(&next) => return None,
            _ => at = next,
        }
    }
    at.exists().then_some(LinkChain { links, end: at })
}

/// From the last to the first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    let mut parts: Vec<PathBuf> = parts.collect();
    parts.reverse();
    parts
}
