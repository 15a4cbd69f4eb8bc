//! The user's toolchains, shown to the agent: the targets of PATH, read-only, without credentials. Downloads and
//! builds go to directories of the project, so that nothing written inside is used outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use agentsh_base::real_paths::RealPaths;
use agentsh_policy::builtin_paths::HOME_MASKS;
use agentsh_policy::toolchains::{self, expand};
use agentsh_sandbox::cached_host::CachedHost;
use agentsh_sandbox::host::RealHost;
use agentsh_sandbox::layout::{OWN_DIRECTORY, is_system};
use agentsh_sandbox::plan::{Access, UPPER, WORK};
use agentsh_sandbox::spec::{CacheLayer, Contribution, EnvChange, Feature, Grant, RelocatedPath, resolve};

use super::Context;

mod links;

use links::behind_links;

/// The visible parts of the user's toolchains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchains {
    /// Ids of the tables that apply.
    pub found: Vec<String>,
    pub grants: Vec<Grant>,
    /// Links that lead to shown paths, with their targets as written.
    pub links: BTreeMap<PathBuf, PathBuf>,
    pub hidden: Vec<PathBuf>,
    /// Places of caches inside.
    pub caches: BTreeSet<PathBuf>,
    /// Names of variables that pass.
    pub env: BTreeSet<String>,
    /// Variables that are set if they are missing.
    pub set: BTreeMap<String, String>,
}

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub struct SearchContext<'a> {
    pub host: &'a RealHost,
    pub home: &'a Path,
    pub project: &'a Path,
    pub env: &'a BTreeMap<String, String>,
    /// Directories of agentsh itself, and those that hold the user's configuration.
    pub own: [&'a Path; 3],
}

impl<'a> From<&'a Context> for SearchContext<'a> {
    fn from(context: &'a Context) -> Self {
        let own = [&context.state, &context.data, &context.config].map(PathBuf::as_path);
        Self { host: &context.host, home: &context.home, project: &context.project, env: &context.env, own }
    }
}

impl Toolchains {
    /// The contribution to the agent's sandbox, without caches.
    #[must_use]
    pub fn contribution(&self) -> Contribution {
        let pass = self.env.iter().cloned().map(EnvChange::Pass);
        let set = self.set.iter().map(|(name, value)| EnvChange::Default(name.clone(), value.clone()));
        let part = Contribution::new(Feature::Toolchains)
            .granting(self.grants.iter().cloned())
            .hiding(self.hidden.iter().cloned());
        Contribution { links: self.links.clone(), environment: pass.chain(set).collect(), ..part }
    }
}

/// Only reads files. Starts nothing.
#[must_use]
pub fn find<'a>(around: impl Into<SearchContext<'a>>, paths: &RealPaths) -> Toolchains {
    let around = around.into();
    let home = around.home.display().to_string();
    let mut out = Toolchains::default();
    let mut shown = BTreeSet::new();
    let host = CachedHost::new(around.host);
    let programs = program_directories(&around, paths);
    // Dozens of names are asked for in each, here or for the guards.
    let below_home = ["", ".config", ".local", ".local/share"].map(|below| around.home.join(below));
    programs.iter().chain(&below_home).for_each(|one| host.read(one));
    for table in toolchains::builtin() {
        let place = |path: &String| expand(path, &home, around.env).map(PathBuf::from);
        let is_there = table.detect.iter().filter_map(place).any(|path| host.exists(&path));
        if !is_there
            && !table.programs.iter().any(|program| programs.iter().any(|at| host.is_file(&at.join(program))))
        {
            continue;
        }
        shown.extend(table.read.iter().filter_map(place));
        out.hidden.extend(table.hide.iter().filter_map(place).filter(|path| host.exists(path)));
        out.hidden.extend(table.hide_tokens.iter().filter_map(place).filter(|path| holds_token(path)));
        let caches = table.cache.iter().filter_map(place).filter(|path| may_hold_cache(path, &around));
        out.caches.extend(caches);
        out.env.extend(table.env);
        out.set.extend(table.set);
        out.found.push(table.id);
    }
    shown.extend(on_path(&around, paths));
    let shown = behind_links(shown, &around, paths);
    out.grants = shown.paths.into_iter().map(|path| Grant { path, access: Access::ReadOnly }).collect();
    out.links = shown.links;
    if !out.links.is_empty() {
        let masks = HOME_MASKS.iter().map(|(mask, _)| around.home.join(mask));
        let named: Vec<PathBuf> = masks.chain(out.hidden.iter().cloned()).collect();
        out.hidden.extend(real_paths(&named));
    }
    // No mount point for a cache can be made in a read-only directory.
    let grants = &out.grants;
    let is_there = |cache: &Path| !around.host.is_missing(cache) && cache.is_dir();
    out.caches.retain(|cache| is_there(cache) || !grants.iter().any(|grant| cache.starts_with(&grant.path)));
    out
}

/// The real paths of hidden names, because links may show them under others.
pub fn real_paths(hidden: &[PathBuf]) -> Vec<PathBuf> {
    hidden.iter().filter_map(|path| path.canonicalize().ok().filter(|real| real != path)).collect()
}

/// Whether a configuration names a token, a password or a secret, or has one in an address. What cannot be read holds one.
fn holds_token(file: &Path) -> bool {
    const MAX_BYTES: u64 = 1 << 20;
    const WORDS: [&str; 6] = ["token", "password", "secret", "api_key", "apikey", "_pat"];
    let Ok(found) = file.metadata() else { return false };
    if found.len() > MAX_BYTES {
        return true;
    }
    let Ok(text) = std::fs::read_to_string(file) else { return true };
    let mut lines =
        text.lines().map(|line| line.trim().to_ascii_lowercase()).filter(|line| !line.starts_with('#'));
    let is_secret = |line: String| {
        // A way to keep tokens, and none of them.
        let line = line.replace("cargo:token", "");
        let authority = line.split_once("://").and_then(|(_, rest)| rest.split('/').next());
        authority.is_some_and(|authority| authority.contains('@'))
            || line.contains(['=', ':']) && WORDS.iter().any(|word| line.contains(word))
    };
    lines.any(is_secret)
}

/// Directories of PATH, each once, with their links followed.
fn program_directories(around: &SearchContext<'_>, paths: &RealPaths) -> BTreeSet<PathBuf> {
    let path = around.env.get("PATH").map(String::as_str).unwrap_or_default();
    let directories = path.split(':').map(Path::new).filter(|directory| directory.is_absolute());
    let others = directories.filter(|directory| !directory.starts_with(around.project));
    others.filter_map(|directory| paths.canonical(directory)).collect()
}

/// Directories of PATH that are in no table, with the installation around a `bin`, and with the packages whose
/// programs an npm `.bin` names.
fn on_path(around: &SearchContext<'_>, paths: &RealPaths) -> Vec<PathBuf> {
    let path = around.env.get("PATH").map(String::as_str).unwrap_or_default();
    let mut found = Vec::new();
    for directory in path.split(':').map(PathBuf::from) {
        // System directories are visible anyway, with what is installed around them.
        if paths.canonical(&directory).is_some_and(|real| is_system(&real)) {
            continue;
        }
        // By the real path, because a link to the `bin` of an installation is in another directory.
        found.extend(
            links::end(&directory, around, paths).iter().flat_map(|real| installed_around(real, around)),
        );
        let packages = directory.parent().filter(|_| directory.ends_with("node_modules/.bin"));
        found.push(packages.unwrap_or(&directory).to_owned());
    }
    found
}

/// Directories next to a `bin` in an installation of any tool.
const PREFIX: [&str; 12] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "include", "man", "doc", "docs", "locale"];
/// Like [`PREFIX`], but never visible, because configuration may contain secrets.
const CONFIGURATION: [&str; 3] = ["etc", "ssl", "var"];
/// Files at the top of toolchains with another layout. Everything in such a directory belongs to the toolchain.
const MARKERS: &[(&str, &[&str])] = &[
    ("Go", &["VERSION", "src/runtime"]),
    ("Java", &["release", "lib/modules"]),
    ("Java 8", &["release", "jre/lib"]),
    ("conda", &["conda-meta"]),
    ("Homebrew", &["Cellar"]),
    ("Dart", &["version", "lib/core"]),
];

/// The installation around a `bin`, only if the whole has the usual layout. Otherwise the directory may contain personal files
/// (`~/dotfiles/bin`), and only the `bin` is visible.
fn installed_around(directory: &Path, around: &SearchContext<'_>) -> Vec<PathBuf> {
    let above = directory.parent().filter(|_| directory.ends_with("bin"));
    let is_own = |above: &&Path| {
        !is_system(above)
            && **above != around.home.join(".local")
            && !around.home.starts_with(above)
            && !around.project.starts_with(above)
    };
    above.filter(is_own).map(installed_in).unwrap_or_default()
}

/// Directories of an installation, and the files by which its programs know where they are.
fn installed_in(root: &Path) -> Vec<PathBuf> {
    const OF_PROGRAMS: [&str; 5] = ["pyvenv.cfg", "VERSION", "version", "release", "go.env"];
    const MAX_ENTRIES: usize = 64;
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.map(|entry| entry.path()).partition(|path| path.is_dir());
    let is_called = |path: &Path, names: &[&str]| names.iter().any(|name| path.ends_with(name));
    let is_dotted =
        |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let is_marked = MARKERS.iter().any(|(_, marks)| marks.iter().all(|mark| root.join(mark).exists()));
    // A project may be an environment of Python itself, or be laid out as an installation.
    let is_project = root.join(".git").exists();
    let is_environment = root.join("pyvenv.cfg").exists();
    if is_environment && is_project {
        let of_python = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
        };
        let libraries =
            std::fs::read_dir(root.join("lib")).into_iter().flatten().flatten().map(|entry| entry.path());
        return libraries.filter(of_python).chain([root.join("include"), root.join("pyvenv.cfg")]).collect();
    }
    let is_prefix = directories.iter().any(|path| is_called(path, &["lib", "libexec", "share", "include"]))
        && directories
            .iter()
            .all(|path| is_called(path, &PREFIX) || is_called(path, &CONFIGURATION) || is_dotted(path));
    if !is_marked && !is_prefix && !is_environment {
        return Vec::new();
    }
    let is_shown = |path: &PathBuf| match is_marked || is_prefix {
        true => !is_dotted(path) && (is_marked || !is_called(path, &CONFIGURATION)),
        false => is_called(path, &PREFIX),
    };
    let directories = directories.into_iter().filter(is_shown);
    let files = files.into_iter().filter(|path| is_called(path, &OF_PROGRAMS));
    let mut shown: Vec<PathBuf> = directories.chain(files).collect();
    shown.sort();
    shown.truncate(MAX_ENTRIES);
    shown
}

/// Private in every sandbox, or part of the running system.
const PRIVATE: [&str; 7] = ["/tmp", "/var", "/run", "/proc", "/sys", "/dev", "/etc"];

/// Never the home or something that holds it, the project, or what everybody sees anyway.
fn may_be_shown(path: &Path, around: &SearchContext<'_>) -> bool {
    is_plain(path)
        && path.exists()
        && !around.home.starts_with(path)
        && !is_system(path)
        && !path.starts_with(around.project)
        && !around.project.starts_with(path)
        && (path.starts_with(around.home) || !PRIVATE.iter().any(|place| path.starts_with(place)))
        && around.own.iter().all(|own| !own.starts_with(path))
}

/// Only below the home, because other directories are shared with other users.
fn may_hold_cache(path: &Path, around: &SearchContext<'_>) -> bool {
    is_plain(path) && path.starts_with(around.home) && !path.starts_with(around.project)
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().count() > 2
        && !path.components().any(|part| part == Component::ParentDir)
}

/// The caches of one run.
#[derive(Debug, Default)]
pub struct Caches {
    /// Directories of the project's own: place below `base` and inside.
    pub own: Vec<(PathBuf, PathBuf)>,
    /// Their directory on the host: next to the layers, which no sandbox sees.
    base: PathBuf,
    /// The user's caches, each below a layer of the project.
    pub layers: Vec<CacheLayer>,
    /// Held while the run lasts: a layer can be mounted once.
    lock: Option<File>,
}

impl Caches {
    #[must_use]
    pub fn contribution(&self) -> Contribution {
        // One mount for all of them.
        let inside = Path::new(OWN_DIRECTORY).join("caches");
        let link = |(below, at): &(PathBuf, PathBuf)| (at.clone(), inside.join(below));
        let links: BTreeMap<PathBuf, PathBuf> = self.own.iter().map(link).collect();
        let shown = RelocatedPath { host: self.base.clone(), inside, access: Access::ReadWrite };
        let elsewhere = if links.is_empty() { Vec::new() } else { vec![shown] };
        Contribution { elsewhere, links, caches: self.layers.clone(), ..Contribution::new(Feature::Caches) }
    }
}

/// Runs in one project at a time that have layers of their own; more share what they write, without the user's.
const MAX_AT_ONCE: usize = 16;

/// Mounts the project's caches at these paths, above the user's, unless one of `hidden` is in them; what is written stays with
/// the project. `links` are those of the sandbox.
///
/// # Errors
/// When a directory cannot be made.
pub fn caches<'p>(
    context: &Context,
    places: impl Iterator<Item = &'p PathBuf>,
    links: &BTreeMap<PathBuf, PathBuf>,
    hidden: &[PathBuf],
) -> std::io::Result<Caches> {
    let project = Sha256::digest(context.project.as_os_str().as_encoded_bytes());
    let project: String = agentsh_base::hex(project.iter().take(8));
    let base = context.data.join("caches").join(project);
    let make = |path: &Path| match path.is_dir() {
        // Another run may have made it since it was listed.
        true if !context.host.is_missing(path) => Ok(()),
        _ => {
            context.host.forget_listings();
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
        }
    };
    let own = base.join("own");
    let mut made = Caches { base: own.clone(), ..Caches::default() };
    let mut slot = None;
    for inside in places {
        let Ok(rest) = inside.strip_prefix(&context.home) else { continue };
        let is_hidden = hidden.iter().any(|path| path.starts_with(inside) || inside.starts_with(path));
        let lower = Some(inside).filter(|inside| !context.host.is_missing(inside));
        let lower = lower.and_then(|lower| context.paths.canonical(lower));
        let lower = lower.filter(|lower| lower.is_dir() && !is_hidden);
        let lower = lower.filter(|lower| !hidden.iter().any(|path| path.starts_with(lower)));
        let inside = &resolve(links, inside);
        if lower.is_some() && slot.is_none() {
            let taken = free_slot(&base)?;
            slot = Some(taken.map(|(directory, lock)| {
                made.lock = Some(lock);
                directory
            }));
        }
        match (lower, &slot) {
            (Some(lower), Some(Some(slot))) => {
                let layer = slot.join(rest.to_string_lossy().replace('/', "%"));
                make(&layer.join(UPPER))?;
                make(&layer.join(WORK))?;
                made.layers.push(CacheLayer { lower, layer, inside: inside.clone() });
            }
            _ => {
                make(&own.join(rest))?;
                made.own.push((rest.to_owned(), inside.clone()));
            }
        }
    }
    Ok(made)
}

/// Layers that no other run in this project has mounted.
fn free_slot(base: &Path) -> std::io::Result<Option<(PathBuf, File)>> {
    for number in 0..MAX_AT_ONCE {
        let directory = base.join(format!("layers-{number}"));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let lock = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join("lock"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some((directory, lock))),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    /// Names of what is shown next to the `bin` of a directory with these entries.
    fn shown(entries: &[&str]) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        for entry in entries {
            let path = place.path().join(entry);
            match entry.strip_suffix('/') {
                Some(_) => std::fs::create_dir_all(path).unwrap(),
                None => {
                    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                    std::fs::write(path, "").unwrap();
                }
            }
        }
        let names = installed_in(place.path());
        names.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn installations_are_shown_and_other_directories_with_a_bin_are_not() {
        assert_eq!(shown(&["bin/", "lib/", "share/", ".env", "README"]), ["bin", "lib", "share"]);
        assert_eq!(
            shown(&["bin/", "lib/", "etc/", ".cache/"]),
            ["bin", "lib"],
            "configuration stays outside"
        );
        assert!(shown(&["bin/", "lib/", "secrets/"]).is_empty(), "dotfiles");
        assert!(shown(&["bin/", "lib/", "src/", "tests/"]).is_empty(), "a project");
        assert_eq!(shown(&["bin/", "lib/", ".git/"]), ["bin", "lib"], "installed by a clone");
        assert!(shown(&["bin/", "secrets/"]).is_empty());
        assert_eq!(
            shown(&["bin/", "pkg/", "api/", "src/runtime/", "VERSION"]),
            ["VERSION", "api", "bin", "pkg", "src"]
        );
        assert_eq!(shown(&["bin/", "conf/", "lib/modules", "release"]), ["bin", "conf", "lib", "release"]);
    }
}
