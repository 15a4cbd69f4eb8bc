//! All packages that a program would run, from its pinned trees: lock files, names of installed distributions, and
//! manifests.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use agentsh_advisories::{Ecosystem, Package};
use agentsh_pin::{PinnedTree, Resolved, TreeSource};

/// Manifests that are read, and the largest one, in bytes.
const MAX_MANIFESTS: usize = 5000;
const MAX_MANIFEST: u64 = 1 << 20;

/// The packages of a program, itself included.
#[must_use]
pub fn of(resolved: &Resolved) -> BTreeSet<Package> {
    let mut packages = of_identity(&resolved.identity);
    for tree in &resolved.trees {
        of_tree(tree, &mut packages);
    }
    packages
}

/// The package that an identity of a pin names, alone.
#[must_use]
pub fn of_identity(identity: &str) -> BTreeSet<Package> {
    Package::parse(identity).into_iter().collect()
}

fn of_tree(tree: &PinnedTree, packages: &mut BTreeSet<Package>) {
    let ecosystem = match tree.source {
        TreeSource::NpmLock => Some(Ecosystem::Npm),
        TreeSource::UvLock => Some(Ecosystem::Pypi),
        TreeSource::Files => None,
    };
    for listed in tree.packages.values() {
        packages.extend(ecosystem.map(|ecosystem| Package::new(ecosystem, &listed.name, &listed.version)));
    }
    let mut read = 0;
    for path in tree.manifest.keys() {
        if let Some(found) = distribution(path) {
            packages.insert(found);
        } else if is_manifest(tree, path) && read < MAX_MANIFESTS {
            // Read even next to a lock file, which may be outdated.
            read += 1;
            packages.extend(manifest(&tree.root.join(path)));
        }
    }
}

/// The file that Python's installers write: `NAME-VERSION.dist-info/METADATA`.
fn distribution(path: &Path) -> Option<Package> {
    let is_metadata = path.file_name().is_some_and(|name| name == "METADATA");
    let directory = path.parent().filter(|_| is_metadata)?.file_name()?.to_str()?;
    let (name, version) = directory.strip_suffix(".dist-info")?.rsplit_once('-')?;
    Some(Package::new(Ecosystem::Pypi, name, version))
}

/// `NAME/package.json` directly in a `node_modules`, or that of the tree itself.
fn is_manifest(tree: &PinnedTree, path: &Path) -> bool {
    if path.file_name().is_none_or(|name| name != "package.json") {
        return false;
    }
    let whole = tree.root.join(path);
    let mut above = whole.iter().rev().skip(2).map(|part| part.to_str().unwrap_or_default());
    match above.next() {
        _ if path.iter().count() == 1 => true,
        Some("node_modules") => true,
        Some(scope) => scope.starts_with('@') && above.next() == Some("node_modules"),
        None => false,
    }
}

fn manifest(path: &Path) -> Option<Package> {
    let fits = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MAX_MANIFEST);
    let text = fits.then(|| std::fs::read_to_string(path).ok()).flatten()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let member = |name: &str| value.get(name).and_then(Value::as_str);
    Some(Package::new(Ecosystem::Npm, member("name")?, member("version")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_known_by_their_directories() {
        let of = |path: &str| distribution(Path::new(path)).map(|package| package.to_string());
        let path = "lib/python3.11/site-packages/My_Server-1.0.post1.dist-info/METADATA";
        assert_eq!(of(path).as_deref(), Some("pypi:my-server@1.0.post1"));
        assert_eq!(of("x/My_Server-1.0.dist-info/RECORD"), None);
        assert_eq!(of("METADATA"), None);
    }
}
