//! Repositories beside the project that its git leads to: the main repository of a linked working tree, and remotes that
//! are directories of this machine. Each is shown once the user has agreed to it; its hooks and configuration are guarded
//! as those of the project are.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::sandbox::git_config::entries;
use crate::sandbox::host::plain;
use crate::sandbox::layout::{Grant, is_system};
use crate::sandbox::plan::Access;

use super::{Context, Session, agreements};

/// Of one configuration or pointer of git.
const MOST_BYTES: u64 = 256 << 10;

/// The repositories that the user agreed to. With `agree`, he does so now.
///
/// # Errors
/// When an agreement cannot be remembered.
pub fn agreed(session: &Session, agree: bool) -> std::io::Result<Vec<Grant>> {
    let context = &session.context;
    let found = find(context);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let known = agreements::load(&context.state);
    let mut grants = Vec::new();
    for (path, what) in found {
        let key = key(&context.project, &path);
        let shown = crate::store::escape::line(&path.to_string_lossy()).into_owned();
        if agree && !known.contains(&key) {
            agreements::add(&context.state, &key)?;
            session.note(&format!("{shown} ({what}) is shown, from now on whenever this is the project"));
        } else if !known.contains(&key) {
            session.note(&format!(
                "{shown} ({what}) is not shown, so git cannot use it; `agentsh run --agree` shows it, from then on"
            ));
            continue;
        }
        grants.push(Grant { path, access: Access::ReadWrite });
    }
    Ok(grants)
}

fn key(project: &Path, repository: &Path) -> String {
    let mut hash = Sha256::new();
    for part in [Path::new("repository"), project, repository] {
        hash.update(part.as_os_str().as_encoded_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where git is led from the project, and as what.
fn find(context: &Context) -> BTreeMap<PathBuf, &'static str> {
    let mut found = BTreeMap::new();
    let (configs, main) = configurations(context);
    if let Some(main) = main {
        found.insert(main, "the main repository of this working tree");
    }
    let remotes: BTreeSet<PathBuf> =
        configs.iter().flat_map(|config| remotes(config, &context.project)).collect();
    for remote in remotes {
        found.entry(remote).or_insert("a remote of this repository");
    }
    found.retain(|path, _| may_be_shown(path, context));
    found
}

/// The configurations of the project's repository, and the main repository if its working tree is a linked one.
fn configurations(context: &Context) -> (Vec<PathBuf>, Option<PathBuf>) {
    let dot = context.project.join(".git");
    let main = main_repository(&dot);
    let of_main = main.as_ref().map(|main| main.join("config"));
    ([dot.join("config")].into_iter().chain(of_main).collect(), main)
}

/// The addresses of the project's remotes, each with the configuration that says so.
#[must_use]
pub fn addresses(context: &Context) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for config in configurations(context).0 {
        let entries = entries(&bounded(&config).unwrap_or_default());
        let urls = entries.into_iter().filter(|entry| entry.section == "remote" && entry.key == "url");
        found.extend(urls.filter_map(|entry| entry.value).map(|url| (url, config.clone())));
    }
    found
}

/// The repository that a linked working tree belongs to, if it says so too.
fn main_repository(dot: &Path) -> Option<PathBuf> {
    let text = bounded(dot)?;
    let named = text.lines().find_map(|line| line.strip_prefix("gitdir:"))?.trim();
    let own = plain(&dot.parent()?.join(named)).canonicalize().ok()?;
    let back = bounded(&own.join("gitdir"))?;
    let back = plain(&own.join(back.trim())).canonicalize().ok()?;
    if back != dot.canonicalize().ok()? {
        return None;
    }
    let common = bounded(&own.join("commondir"))?;
    plain(&own.join(common.trim())).canonicalize().ok().filter(|main| own.starts_with(main))
}

/// Remotes of a configuration that are directories.
fn remotes(config: &Path, project: &Path) -> Vec<PathBuf> {
    let text = bounded(config).unwrap_or_default();
    let urls = entries(&text).into_iter().filter(|entry| entry.section == "remote");
    let urls = urls.filter(|entry| entry.key == "url" || entry.key == "pushurl");
    let paths = urls.filter_map(|entry| entry.value).filter_map(|url| {
        let path = url.strip_prefix("file://").unwrap_or(&url);
        let is_path = path.starts_with(['/', '.']) && !path.chars().any(char::is_control);
        let path = is_path.then(|| project.join(path))?.canonicalize().ok()?;
        // With a working tree, git uses what is in it.
        let inner = path.join(".git");
        Some(if inner.is_dir() { inner } else { path })
    });
    paths.collect()
}

/// A whole repository of the same owner, in no place that belongs to somebody else, and not in the project already.
fn may_be_shown(path: &Path, context: &Context) -> bool {
    let owner = |path: &Path| path.symlink_metadata().ok().map(|found| found.uid());
    path.is_dir()
        && ["objects", "refs"].iter().all(|name| path.join(name).is_dir())
        && path.join("HEAD").is_file()
        && owner(path) == owner(&context.project)
        && !path.starts_with(&context.project)
        && !context.project.starts_with(path)
        && !context.home.starts_with(path)
        && !is_system(path)
        && [&context.state, &context.data, &context.config].iter().all(|own| !path.starts_with(own))
}

fn bounded(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= MOST_BYTES).then(|| std::fs::read_to_string(path).ok())?
}
