//! Repositories outside the project that its git uses: the repository of a submodule, linked worktree or link, and
//! remotes that are directories of this machine. Each is visible once the user has agreed; its hooks and configuration
//! are guarded like the project's.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use agentsh_base::small_file;
use agentsh_sandbox::git_config::entries;
use agentsh_sandbox::host::normalised_path;
use agentsh_sandbox::layout::is_system;
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{Contribution, Feature, Grant};

use super::{Context, agreements};

/// Maximum size of one configuration or pointer file of git.
const MAX_BYTES: u64 = 256 << 10;

/// The repositories that the user agreed to; `agree` does so now. With `review` they may only be read: they have no
/// layer.
///
/// # Errors
/// When an agreement cannot be remembered.
pub fn contribution(context: &Context, agree: bool, review: bool) -> std::io::Result<Contribution> {
    let found = find(context);
    let mut part = Contribution::new(Feature::Repositories);
    if found.is_empty() {
        return Ok(part);
    }
    let known = agreements::load(&context.state);
    let mut grants = Vec::new();
    for (path, what) in found {
        let key = key(&context.project, &path);
        let shown = agentsh_store::escape::line(&path.to_string_lossy()).into_owned();
        // One message for a repository and its parts elsewhere.
        let is_part = matches!(what, SHARED_PART | SHARED_OBJECTS);
        if agree && !known.contains(&key) {
            agreements::add(&context.state, &key)?;
            part.notices
                .push(format!("{shown} ({what}) is visible inside, in this and later runs in this project"));
        } else if !known.contains(&key) {
            if !is_part {
                part.notices.push(format!(
                    "{shown} ({what}) is not visible inside, so git cannot use it; `agentsh run --agree` makes \
                     it visible, also in later runs"
                ));
            }
            continue;
        }
        if review && what != BORROWED_OBJECTS {
            part.notices
                .push(format!("{} is outside the project: with --review it is read-only", path.display()));
        }
        let may_be_written = !review && !matches!(what, SHARED_PART | BORROWED_OBJECTS);
        let access = if may_be_written { Access::ReadWrite } else { Access::ReadOnly };
        grants.push(Grant { path, access });
    }
    Ok(part.granting(grants))
}

fn key(project: &Path, repository: &Path) -> String {
    let mut hash = Sha256::new();
    for part in [Path::new("repository"), project, repository] {
        hash.update(part.as_os_str().as_encoded_bytes());
        hash.update([0]);
    }
    agentsh_base::hex(&hash.finalize())
}

/// A part of a repository that is stored elsewhere.
const SHARED_PART: &str = "the shared part of this working tree's repository";
const SHARED_OBJECTS: &str = "the objects of this working tree's repository";

const BORROWED_OBJECTS: &str = "objects that this repository borrows";
/// Directories of them.
const MAX_BORROWED: usize = 16;

/// The paths to which git is led from the project, with their kind.
fn find(context: &Context) -> BTreeMap<PathBuf, &'static str> {
    let mut found = BTreeMap::new();
    let own = configurations(context).1;
    if let Some(own) = &own {
        found.insert(own.clone(), "the repository of this working tree");
        found.extend(parts_elsewhere(own));
    }
    let objects = own.unwrap_or_else(|| context.project.join(".git")).join("objects");
    for remote in remotes(context) {
        found.entry(remote).or_insert("a remote of this repository");
    }
    found.retain(|path, what| {
        let is_part = matches!(*what, SHARED_PART | SHARED_OBJECTS);
        (is_part || is_repository(path)) && may_be_shown(path, context)
    });
    let mut borrowed = borrowed(objects);
    borrowed.retain(|path| {
        may_be_shown(path, context) && !path.ancestors().any(|above| found.contains_key(above))
    });
    found.extend(borrowed.into_iter().map(|path| (path, BORROWED_OBJECTS)));
    found
}

/// Object directories that a repository reads in addition to its own (`git clone --shared`), recursively.
fn borrowed(objects: PathBuf) -> BTreeSet<PathBuf> {
    let (mut found, mut open) = (BTreeSet::new(), vec![objects]);
    while let Some(objects) = open.pop().filter(|_| found.len() < MAX_BORROWED) {
        let text = read_bounded(&objects.join("info/alternates")).unwrap_or_default();
        let named = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let named = named.filter_map(|line| normalised_path(&objects.join(line)).canonicalize().ok());
        open.extend(named.filter(|path| path.join("pack").is_dir() && found.insert(path.clone())));
    }
    found
}

/// Directories that links in a repository lead to, as those of Google's repo tool do.
fn parts_elsewhere(repository: &Path) -> Vec<(PathBuf, &'static str)> {
    let part = |name: &str| {
        let link = repository.join(name);
        let end = link.is_symlink().then(|| link.canonicalize().ok()).flatten()?;
        // Objects are named by their content, so the directory itself is shown.
        let is_objects = name == "objects" && end.join("pack").is_dir();
        let is_part = end.is_dir() && end.ends_with(name) && !end.starts_with(repository);
        is_part.then_some((end, if is_objects { SHARED_OBJECTS } else { SHARED_PART }))
    };
    ["objects", "hooks", "info", "rr-cache"].into_iter().filter_map(part).collect()
}

/// The configuration of the project's repository, and that repository if it lies elsewhere.
fn configurations(context: &Context) -> (PathBuf, Option<PathBuf>) {
    let dot = context.project.join(".git");
    let elsewhere = repository_elsewhere(&dot);
    let config = elsewhere.as_ref().unwrap_or(&dot).join("config");
    (config, elsewhere)
}

/// The addresses of the project's remotes, each with the configuration that names it. Read once.
#[must_use]
pub fn addresses(context: &Context) -> Vec<(String, PathBuf)> {
    let config = read_config(context);
    config.urls.iter().map(|url| (url.clone(), config.path.clone())).collect()
}

/// The configuration of the project's repository, which may be missing.
#[must_use]
pub fn config_file(context: &Context) -> &Path {
    &read_config(context).path
}

/// Files that the configuration of the project's repository includes, as it writes them, and the directory of it.
#[must_use]
pub fn includes(context: &Context) -> (&[String], &Path) {
    let config = read_config(context);
    (&config.includes, config.path.parent().unwrap_or(&config.path))
}

fn read_config(context: &Context) -> &RepositoryConfig {
    context.repository_config.get_or_init(|| RepositoryConfig::read(configurations(context).0))
}

/// Addresses from which a repository fetches.
#[must_use]
pub fn addresses_in(repository: &Path) -> Vec<String> {
    RepositoryConfig::read(repository.join("config")).urls
}

/// The same, from the text of its configuration.
#[must_use]
pub fn addresses_of(config: &str) -> Vec<String> {
    RepositoryConfig::of(config, PathBuf::new()).urls
}

/// What a repository's configuration names elsewhere.
#[derive(Clone, Debug, Default)]
pub struct RepositoryConfig {
    path: PathBuf,
    /// Addresses to fetch from.
    urls: Vec<String>,
    /// Addresses to push to.
    push_urls: Vec<String>,
    includes: Vec<String>,
}

impl RepositoryConfig {
    fn read(path: PathBuf) -> Self {
        Self::of(&read_bounded(&path).unwrap_or_default(), path)
    }

    fn of(text: &str, path: PathBuf) -> Self {
        let mut found = Self::default();
        for entry in entries(text) {
            let list = match (entry.section.as_str(), entry.key.as_str()) {
                ("remote", "url") => &mut found.urls,
                ("remote", "pushurl") => &mut found.push_urls,
                ("include" | "includeif", "path") => &mut found.includes,
                _ => continue,
            };
            list.extend(entry.value);
        }
        Self { path, ..found }
    }
}

/// The repository of a working tree that has it elsewhere. The one of a linked working tree has to say so too.
fn repository_elsewhere(dot: &Path) -> Option<PathBuf> {
    let kind = dot.symlink_metadata().ok()?.file_type();
    if kind.is_symlink() {
        return dot.canonicalize().ok().filter(|end| end.is_dir());
    }
    if kind.is_dir() {
        return None;
    }
    let text = read_bounded(dot)?;
    let named = text.lines().find_map(|line| line.strip_prefix("gitdir:"))?.trim();
    let own = normalised_path(&dot.parent()?.join(named)).canonicalize().ok()?;
    if own.join("commondir").symlink_metadata().is_err() {
        // A submodule, or `--separate-git-dir`.
        return Some(own);
    }
    let back = read_bounded(&own.join("gitdir"))?;
    let back = normalised_path(&own.join(back.trim())).canonicalize().ok()?;
    if back != dot.canonicalize().ok()? {
        return None;
    }
    let common = read_bounded(&own.join("commondir"))?;
    normalised_path(&own.join(common.trim())).canonicalize().ok().filter(|main| own.starts_with(main))
}

/// Remotes that are directories.
fn remotes(context: &Context) -> BTreeSet<PathBuf> {
    let config = read_config(context);
    let paths = config.urls.iter().chain(&config.push_urls).filter_map(|url| {
        let path = url.strip_prefix("file://").unwrap_or(url);
        let is_path = path.starts_with(['/', '.']) && !path.chars().any(char::is_control);
        let path = is_path.then(|| context.project.join(path))?.canonicalize().ok()?;
        // With a working tree, git uses what is in it.
        let inner = path.join(".git");
        Some(if inner.is_dir() { inner } else { path })
    });
    paths.collect()
}

fn is_repository(path: &Path) -> bool {
    ["objects", "refs"].iter().all(|name| path.join(name).is_dir()) && path.join("HEAD").is_file()
}

/// Whether it has the same owner, is not in a foreign directory, and not already in the project.
fn may_be_shown(path: &Path, context: &Context) -> bool {
    let owner = |path: &Path| path.symlink_metadata().ok().map(|found| found.uid());
    path.is_dir()
        && owner(path) == owner(&context.project)
        && !path.starts_with(&context.project)
        && !context.project.starts_with(path)
        && !context.home.starts_with(path)
        && !is_system(path)
        && [&context.state, &context.data, &context.config].iter().all(|own| !path.starts_with(own))
}

fn read_bounded(path: &Path) -> Option<String> {
    small_file::text(path, MAX_BYTES)
}
