//! Packages that agentsh fetched: `trees/REGISTRY-HASH` holds a package with its dependencies, named by the hash of
//! its files; `requests/KEY` says which tree belongs to a server's command.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::file::{Hasher, hex};
use super::search;
use super::tree::{self, PinnedTree, Selection};
use super::{DigestCache, PinError, Progress};
use crate::policy::profile::Registry;

/// A package that is not on this machine, as a launcher's command line asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageRequest {
    pub registry: Registry,
    /// The specifications for the package manager: `name@^1`, `name[extra]>=2`. The first one provides the command.
    pub specs: Vec<String>,
}

/// The directory with the fetched packages of one server.
#[derive(Clone, Debug)]
pub struct Store {
    /// Absolute.
    pub root: PathBuf,
    /// The server that it was fetched for: each server's packages are renewed separately.
    pub owner: String,
}

impl PackageRequest {
    #[must_use]
    pub fn text(&self) -> String {
        self.specs.join(" ")
    }
}

impl Store {
    /// The file that says which tree answers a request.
    #[must_use]
    pub fn request(&self, wanted: &PackageRequest) -> PathBuf {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_be_bytes());
            hash.update(text);
        };
        field(directory_name(wanted.registry));
        field(&self.owner);
        wanted.specs.iter().for_each(|spec| field(spec));
        let digest = hex(&hash.finalize().into());
        self.root.join("requests").join(hex_of_digest(&digest))
    }

    /// The tree that answered the same request before.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn find(&self, wanted: &PackageRequest) -> Result<Option<PathBuf>, PinError> {
        let request = self.request(wanted);
        let Some(name) = search::text(&request, 4096)? else { return Ok(None) };
        let name = name.trim();
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if name.is_empty() || !is_plain {
            return Err(PinError::BadManifest { path: request, why: "does not name a tree".to_owned() });
        }
        Ok(search::directory(&self.trees().join(name)))
    }

    #[must_use]
    pub fn trees(&self) -> PathBuf {
        self.root.join("trees")
    }

    /// The name of a tree with these files.
    ///
    /// # Errors
    /// When a file cannot be read or does not belong into a tree.
    pub fn name(
        registry: Registry,
        root: &Path,
        cache: &mut dyn DigestCache,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<String, PinError> {
        let root = search::directory(&code(registry, root)).ok_or_else(|| PinError::BadManifest {
            path: root.to_owned(),
            why: "the package manager installed nothing".to_owned(),
        })?;
        let tree = tree::pin(&mut Hasher::new(cache, progress), "", &root, Selection::default())?;
        Ok(format!("{}-{}", directory_name(registry), content_hash(&tree)))
    }
}

/// The part of a stored tree that is loaded, and that its name covers.
fn code(registry: Registry, root: &Path) -> PathBuf {
    match registry {
        Registry::Npm => root.join("node_modules"),
        Registry::Pypi => root.to_owned(),
    }
}

/// A tree of the store must match its name.
pub(super) fn verify(store: &Store, trees: &[PinnedTree]) -> Result<(), PinError> {
    let Some(directory) = search::directory(&store.trees()) else { return Ok(()) };
    for tree in trees {
        let Ok(inside) = tree.root.strip_prefix(&directory) else { continue };
        let mut parts = inside.iter();
        let name = parts.next().and_then(|name| name.to_str()).unwrap_or_default();
        let is_code = match parts.next() {
            None => name.starts_with("pypi-"),
            Some(part) => name.starts_with("npm-") && part == "node_modules" && parts.next().is_none(),
        };
        if is_code && name.split_once('-').is_none_or(|(_, hash)| hash != content_hash(tree)) {
            return Err(PinError::StoreChanged { path: directory.join(name) });
        }
    }
    Ok(())
}

/// Over paths and bytes inside the tree. What a link names outside is left out: an interpreter of the system is
/// renewed without the package being another one.
fn content_hash(tree: &PinnedTree) -> String {
    let mut hash = Sha256::new();
    for (path, entry) in &tree.manifest {
        let entry = match entry.strip_prefix("link:") {
            Some(link) => link.split(' ').next().unwrap_or_default(),
            None => entry.as_str(),
        };
        for field in [path.as_os_str().as_encoded_bytes(), entry.as_bytes()] {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
    }
    hex_of_digest(&hex(&hash.finalize().into())).to_owned()
}

fn directory_name(registry: Registry) -> &'static str {
    match registry {
        Registry::Npm => "npm",
        Registry::Pypi => "pypi",
    }
}

fn hex_of_digest(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at the first surprise")]

    use super::*;
    use crate::NoCache;

    fn wanted(specs: &[&str]) -> PackageRequest {
        PackageRequest {
            registry: Registry::Npm,
            specs: specs.iter().map(|spec| (*spec).to_owned()).collect(),
        }
    }

    #[test]
    fn stored_request_is_keyed_by_server_registry_and_specs() {
        let store = |owner: &str| Store { root: "/store".into(), owner: owner.to_owned() };
        let of = |owner: &str, specs: &[&str]| store(owner).request(&wanted(specs));
        assert_eq!(of("a", &["x@1"]), of("a", &["x@1"]));
        assert_ne!(of("a", &["x@1"]), of("b", &["x@1"]));
        assert_ne!(of("a", &["x@1"]), of("a", &["x@2"]));
        assert_ne!(of("a", &["x", "y"]), of("a", &["xy"]));
        let pypi = PackageRequest { registry: Registry::Pypi, ..wanted(&["x@1"]) };
        assert_ne!(store("a").request(&pypi), of("a", &["x@1"]));
    }

    #[test]
    fn stored_tree_is_named_by_the_hash_of_its_files() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let name = |root: &str| {
            Store::name(Registry::Npm, &place.path().join(root), &mut NoCache, &mut |_| {}).unwrap()
        };
        write("a/node_modules/x/index.js", "1");
        write("b/node_modules/x/index.js", "1");
        write("b/package.json", "{}");
        assert_eq!(name("a"), name("b"));
        write("b/node_modules/x/index.js", "2");
        assert_ne!(name("a"), name("b"));
        assert!(Store::name(Registry::Npm, &place.path().join("c"), &mut NoCache, &mut |_| {}).is_err());
    }

    #[test]
    fn a_record_that_points_elsewhere_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let store = Store { root: place.path().to_owned(), owner: String::new() };
        let request = store.request(&wanted(&["x"]));
        assert_eq!(store.find(&wanted(&["x"])).unwrap(), None);
        std::fs::create_dir_all(request.parent().unwrap()).unwrap();
        for bad in ["", "../../etc", "/etc", "npm-1/../..", "a b"] {
            std::fs::write(&request, bad).unwrap();
            assert!(store.find(&wanted(&["x"])).is_err(), "{bad:?}");
        }
        std::fs::write(&request, "npm-00\n").unwrap();
        assert_eq!(store.find(&wanted(&["x"])).unwrap(), None);
        std::fs::create_dir_all(store.trees().join("npm-00")).unwrap();
        assert!(store.find(&wanted(&["x"])).unwrap().is_some());
    }
}
