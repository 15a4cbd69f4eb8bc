//! The toolchains of the user, shown to his agent: what PATH leads to is there, read-only, without its credentials. What
//! tools fetch and build goes into directories of the project's own, so that nothing written inside is used outside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use crate::policy::builtin_paths::HOME_MASKS;
use crate::policy::toolchains::{self, expand};
use crate::sandbox::layout::{CacheLayer, Grant, is_system};
use crate::sandbox::plan::{Access, UPPER, WORK};

use super::Context;

mod links;

use links::behind_links;

/// What is shown of the user's toolchains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchains {
    /// Ids of the tables that apply.
    pub found: Vec<String>,
    pub grants: Vec<Grant>,
    /// Links that lead to what is shown, with what they say.
    pub links: BTreeMap<PathBuf, PathBuf>,
    pub hidden: Vec<PathBuf>,
    /// Places of caches inside.
    pub caches: BTreeSet<PathBuf>,
    /// Names of variables that pass.
    pub env: BTreeSet<String>,
    /// Variables that are set where they are not.
    pub set: BTreeMap<String, String>,
}

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    pub home: &'a Path,
    pub project: &'a Path,
    pub env: &'a BTreeMap<String, String>,
    /// Directories of agentsh itself, and those that hold the user's configuration.
    pub own: [&'a Path; 3],
}

impl<'a> From<&'a Context> for Around<'a> {
    fn from(context: &'a Context) -> Self {
        let own = [&context.state, &context.data, &context.config].map(PathBuf::as_path);
        Self { home: &context.home, project: &context.project, env: &context.env, own }
    }
}

impl Toolchains {
    /// Where the user names something by way of a link, a directory stands in its place: what it leads to is shown there too.
    pub fn make_room<'p>(&mut self, named: impl Iterator<Item = &'p Path>) {
        let named: Vec<&Path> = named.collect();
        let is_in_the_way = |link: &&PathBuf| named.iter().any(|path| path.starts_with(link) && path != link);
        let links: Vec<PathBuf> = self.links.keys().filter(is_in_the_way).cloned().collect();
        for link in links {
            let real = self.real(&link);
            let below = self.grants.iter().filter_map(|grant| grant.path.strip_prefix(&real).ok());
            let below = below.filter(|rest| !rest.as_os_str().is_empty()).map(|rest| link.join(rest));
            let more: Vec<Grant> = below.map(|path| Grant { path, access: Access::ReadOnly }).collect();
            self.grants.extend(more);
            self.links.remove(&link);
        }
    }

    /// Where a path is inside: what its links say.
    fn real(&self, path: &Path) -> PathBuf {
        let mut path = path.to_owned();
        for _ in 0..links::MOST_LINKS {
            let found = path.ancestors().find_map(|above| Some((above.to_owned(), self.links.get(above)?)));
            let Some((link, to)) = found else { break };
            let rest = path.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
            path = links::from(link.parent().unwrap_or(Path::new("/")), to);
            // An empty rest would end in a slash.
            path.extend(rest.components());
        }
        path
    }
}

/// Looks at what is there. Starts nothing.
#[must_use]
pub fn find<'a>(around: impl Into<Around<'a>>) -> Toolchains {
    let around = around.into();
    let home = around.home.display().to_string();
    let mut out = Toolchains::default();
    let mut shown = BTreeSet::new();
    for table in toolchains::builtin() {
        let place = |path: &String| expand(path, &home, around.env).map(PathBuf::from);
        let is_there = table.detect.iter().filter_map(place).any(|path| path.exists());
        if !is_there && !table.programs.iter().any(|program| has_program(&around, program)) {
            continue;
        }
        shown.extend(table.read.iter().filter_map(place));
        out.hidden.extend(table.hide.iter().filter_map(place).filter(|path| path.exists()));
        out.hidden.extend(table.hide_tokens.iter().filter_map(place).filter(|path| holds_token(path)));
        let caches = table.cache.iter().filter_map(place).filter(|path| may_hold_cache(path, &around));
        out.caches.extend(caches);
        out.env.extend(table.env);
        out.set.extend(table.set);
        out.found.push(table.id);
    }
    shown.extend(on_path(&around));
    let shown = behind_links(shown, &around);
    out.grants = shown.paths.into_iter().map(|path| Grant { path, access: Access::ReadOnly }).collect();
    out.links = shown.links;
    if !out.links.is_empty() {
        let masks = HOME_MASKS.iter().map(|(mask, _)| around.home.join(mask));
        let named: Vec<PathBuf> = masks.chain(out.hidden.iter().cloned()).collect();
        out.hidden.extend(elsewhere(&named));
    }
    // In what is read-only no place can be made for one.
    let grants = &out.grants;
    out.caches.retain(|cache| cache.is_dir() || !grants.iter().any(|grant| cache.starts_with(&grant.path)));
    out
}

/// Where what is hidden by its name really lies: links may show it by another one.
pub fn elsewhere(hidden: &[PathBuf]) -> Vec<PathBuf> {
    hidden.iter().filter_map(|path| path.canonicalize().ok().filter(|real| real != path)).collect()
}

/// Whether a configuration names a token, a password or a secret, or has one in an address. What cannot be read holds one.
fn holds_token(file: &Path) -> bool {
    const MOST_BYTES: u64 = 1 << 20;
    const WORDS: [&str; 6] = ["token", "password", "secret", "api_key", "apikey", "_pat"];
    let Ok(found) = file.metadata() else { return false };
    if found.len() > MOST_BYTES {
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

fn has_program(around: &Around<'_>, program: &str) -> bool {
    let path = around.env.get("PATH").map(String::as_str).unwrap_or_default();
    let directories = path.split(':').map(Path::new).filter(|directory| directory.is_absolute());
    directories
        .filter(|directory| !directory.starts_with(around.project))
        .any(|at| at.join(program).is_file())
}

/// Directories of PATH that no table knows: shown as they are, with what is installed around a `bin`, and with the packages whose
/// programs a `.bin` of npm names.
fn on_path(around: &Around<'_>) -> Vec<PathBuf> {
    let path = around.env.get("PATH").map(String::as_str).unwrap_or_default();
    let mut found = Vec::new();
    for directory in path.split(':').map(PathBuf::from) {
        // Where it is, not how it is called: a link to the `bin` of an installation lies in another directory.
        found.extend(links::end(&directory, around).iter().flat_map(|real| installed_around(real, around)));
        let packages = directory.parent().filter(|_| directory.ends_with("node_modules/.bin"));
        found.push(packages.unwrap_or(&directory).to_owned());
    }
    found
}

/// What is installed around a `bin`. None of it where the home, the project or what programs of the user share lies there too.
fn installed_around(directory: &Path, around: &Around<'_>) -> Vec<PathBuf> {
    let above = directory.parent().filter(|_| directory.ends_with("bin"));
    let is_installation = |above: &&Path| {
        ["lib", "libexec", "share", "include"].iter().any(|name| above.join(name).is_dir())
            && **above != around.home.join(".local")
            && !around.home.starts_with(above)
            && !around.project.starts_with(above)
    };
    above.filter(is_installation).into_iter().flat_map(installed_in).collect()
}

/// Directories of an installation; who else keeps something there keeps it in files, or under a name with a dot.
fn installed_in(root: &Path) -> Vec<PathBuf> {
    /// Files by which programs know where they are.
    const OF_PROGRAMS: [&str; 5] = ["pyvenv.cfg", "VERSION", "version", "release", "go.env"];
    const MOST: usize = 64;
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let is_shown = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let is_directory = entry.path().is_dir();
        is_directory && !name.as_encoded_bytes().starts_with(b".")
            || !is_directory && OF_PROGRAMS.iter().any(|file| name == *file)
    };
    let mut shown: Vec<PathBuf> = entries.filter(is_shown).map(|entry| entry.path()).collect();
    shown.sort();
    shown.truncate(MOST);
    shown
}

/// Of their own in every sandbox, or part of the running system.
const PRIVATE: [&str; 7] = ["/tmp", "/var", "/run", "/proc", "/sys", "/dev", "/etc"];

/// Never the home or something that holds it, the project, or what everybody sees anyway.
fn may_be_shown(path: &Path, around: &Around<'_>) -> bool {
    is_plain(path)
        && path.exists()
        && !around.home.starts_with(path)
        && !is_system(path)
        && !path.starts_with(around.project)
        && !around.project.starts_with(path)
        && (path.starts_with(around.home) || !PRIVATE.iter().any(|place| path.starts_with(place)))
        && around.own.iter().all(|own| !own.starts_with(path))
}

/// Below the home alone: what lies elsewhere is shared with others.
fn may_hold_cache(path: &Path, around: &Around<'_>) -> bool {
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
    /// Directories of the project's own: place on the host and inside.
    pub own: Vec<(PathBuf, PathBuf)>,
    /// Those of the user, each below a layer of the project's own.
    pub layers: Vec<CacheLayer>,
    /// Held while the run lasts: a layer can be mounted once.
    lock: Option<File>,
}

impl Caches {
    /// Places inside.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        let layers = self.layers.iter().map(|cache| cache.inside.clone());
        self.own.iter().map(|(_, inside)| inside.clone()).chain(layers).collect()
    }
}

/// Runs in one project at a time that have layers of their own; more share what they write, without the user's.
const MOST_AT_ONCE: usize = 16;

/// Makes the project's caches. What the user has is below, unless one of `hidden` lies there; what is written stays with
/// the project.
///
/// # Errors
/// When a directory cannot be made.
pub fn caches(context: &Context, toolchains: &Toolchains, hidden: &[PathBuf]) -> std::io::Result<Caches> {
    let project = Sha256::digest(context.project.as_os_str().as_encoded_bytes());
    let project: String = project.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let base = context.data.join("caches").join(project);
    let make = |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    let mut made = Caches::default();
    let mut slot = None;
    for inside in &toolchains.caches {
        let Ok(rest) = inside.strip_prefix(&context.home) else { continue };
        let is_hidden = hidden.iter().any(|path| path.starts_with(inside) || inside.starts_with(path));
        let lower = inside.canonicalize().ok().filter(|lower| lower.is_dir() && !is_hidden);
        let lower = lower.filter(|lower| !hidden.iter().any(|path| path.starts_with(lower)));
        let inside = &toolchains.real(inside);
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
                let host = base.join(rest);
                make(&host)?;
                made.own.push((host, inside.clone()));
            }
        }
    }
    Ok(made)
}

/// Layers that no other run in this project has mounted.
fn free_slot(base: &Path) -> std::io::Result<Option<(PathBuf, File)>> {
    for number in 0..MOST_AT_ONCE {
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
