//! Links of the host that exist inside too, and what has to give way to what a person named.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::Grant;
use crate::plan::Access;

/// Links that are followed on one way, as the kernel does.
pub const MAX_LINKS: usize = 40;

/// Where somebody names something by way of a link, a directory stands in its place: what it leads to is shown there too.
/// Takes such links away, and gives the grants that take their place. `shown` is what is granted where links lead.
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

/// Where a path is inside: what its links say.
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

/// Where a link that lies in a directory leads, by its letters.
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
