//! Symlinks of the host that exist inside, and their conflicts with granted paths.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::Grant;
use crate::plan::Access;

/// Maximum number of links followed in one path, as in the kernel.
pub const MAX_LINKS: usize = 40;

/// If somebody names a path through a link, a directory replaces the link, and the target is visible there too.
/// Removes such links and returns the grants that replace them. `shown` are the grants at targets.
#[must_use]
pub fn make_room(links: &mut BTreeMap<PathBuf, PathBuf>, named: &[PathBuf], shown: &[Grant]) -> Vec<Grant> {
    let is_in_the_way = |link: &&PathBuf| named.iter().any(|path| path.starts_with(link) && path != *link);
    let in_the_way: Vec<PathBuf> = links.keys().filter(is_in_the_way).cloned().collect();
    let mut more: Vec<Grant> = Vec::new();
    for link in in_the_way {
        let real = resolve(links, &link);
        let below = shown.iter().chain(&more).filter_map(|grant| grant.path.strip_prefix(&real).ok());
        let below = below.filter(|rest| !rest.as_os_str().is_empty()).map(|rest| link.join(rest));
        let here: Vec<Grant> = below.map(|path| Grant { path, access: Access::ReadOnly }).collect();
        more.extend(here);
        links.remove(&link);
    }
    more
}

/// A path with the links inside resolved.
#[must_use]
pub fn resolve(links: &BTreeMap<PathBuf, PathBuf>, path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let found = path.ancestors().find_map(|above| Some((above.to_owned(), links.get(above)?)));
        let Some((link, to)) = found else { break };
        let rest = path.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
        path = target(link.parent().unwrap_or(Path::new("/")), to);
        // An empty rest would end in a slash.
        path.extend(rest.components());
    }
    path
}

/// The target of a link in a directory, not resolved further.
#[must_use]
pub fn target(directory: &Path, to: &Path) -> PathBuf {
    let mut path = directory.to_owned();
    for part in to.components() {
        match part {
            Component::RootDir => path = PathBuf::from("/"),
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}
