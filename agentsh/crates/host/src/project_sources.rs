//! Network rights that project files may give: a remote of the repository, a module in a lock file.
//!
//! An agent can write such files. So the entries count that were there when agentsh first ran in the project; their hashes are kept
//! outside every sandbox. Later entries are opened once the user agrees to them (`agentsh run --agree`). A project is recognised by
//! its path, by its repository (it may have been moved, or be another working tree), and by the directories around it, because an
//! agent may have made the whole project there. What an agent added does not count in a copy of the project either, and nothing counts
//! that a sandbox could write when it was changed.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Context, accepted_files, go_modules, remotes, repositories};
use agentsh_base::small_file;
use agentsh_sandbox::host::{Host, RealHost};

/// Sources of one list, and its bytes: 65 for each. A longer one says nothing, so that everything new stays blocked.
const MAX_SOURCES: usize = 64 << 10;
const MAX_BYTES: u64 = 65 * MAX_SOURCES as u64;
/// New sources that are reported singly.
const MAX_REPORTED: usize = 5;

/// The sources that count, because they existed at the first run or the user agreed.
#[derive(Clone, Debug)]
pub struct ApprovedSources {
    projects: Vec<String>,
    hashes: BTreeSet<String>,
}

impl ApprovedSources {
    /// The approved sources of this project: like [`note`] left them, or as stored. Nothing before the first run.
    #[must_use]
    pub fn of(context: &Context) -> &Self {
        context.sources.get_or_init(|| {
            let projects = projects(context);
            Self { hashes: read(context, &projects).1, projects }
        })
    }

    #[must_use]
    pub fn holds(&self, kind: &str, source: &str) -> bool {
        is_known(&self.hashes, &self.projects, kind, source)
    }
}

/// Takes note of what files of the project name, before a run: everything where it is the first one or the user agrees. Gives
/// what is new otherwise, one line for the user each.
///
/// # Errors
/// When the list cannot be written: nothing new is opened then.
pub fn note(context: &Context, sources: &[(&str, String)], agree: bool) -> std::io::Result<Vec<String>> {
    let projects = projects(context);
    let (lists, mut hashes) = read(context, &projects);
    let is_first = lists == 0 && !is_inside_another(context) && !was_written_inside(context);
    let added = if is_first || agree { added(&context.state) } else { Some(BTreeSet::new()) };
    // Without the list anything may be in it.
    let (is_first, added) = (is_first && added.is_some(), added.unwrap_or_default());
    let new: Vec<&(&str, String)> =
        sources.iter().filter(|(kind, source)| !is_known(&hashes, &projects, kind, source)).collect();
    let (blocked, taken): (Vec<&(&str, String)>, Vec<_>) = new.into_iter().partition(|(kind, source)| {
        let is_added = || !added.is_empty() && added.contains(&hash(&scope(context, kind), kind, source));
        !agree && (!is_first || is_added())
    });
    let allowed = taken.iter().filter(|_| agree && !is_first).take(MAX_REPORTED).map(|(kind, source)| {
        format!("{kind} '{}' is allowed in this project from now on", agentsh_store::escape::line(source))
    });
    // A repository on this machine is reached as its directory is.
    let is_remote = |(kind, source): &&&(&str, String)| {
        *kind != remotes::KIND || source.contains(':') && !source.starts_with("file:")
    };
    let told: Vec<&(&str, String)> = blocked.iter().filter(is_remote).copied().collect();
    let lines = new_source_lines(&told, is_first).into_iter().chain(allowed).collect();
    if is_first || !taken.is_empty() || (blocked.is_empty() && lists < projects.len()) {
        for project in &projects {
            let known = sources.iter().filter(|source| !blocked.contains(source));
            hashes.extend(known.map(|(kind, source)| hash(project, kind, source)));
        }
        for project in &projects {
            write(&context.state, project, &hashes)?;
        }
    }
    let agreed = |(kind, source): &(&str, String)| hash(&scope(context, kind), kind, source);
    let agreed: BTreeSet<String> = if agree { sources.iter().map(agreed).collect() } else { BTreeSet::new() };
    if !agreed.is_disjoint(&added) {
        let _locked = Lock::take(&context.state)?;
        let added = self::added(&context.state).unwrap_or_default();
        write(&context.state, ADDED_LIST, &(&added - &agreed))?;
    }
    // Set only once: a session notes its sources before it uses them.
    let _ = context.sources.set(ApprovedSources { projects, hashes });
    Ok(lines)
}

/// Remembers the Go modules that are new in the project since [`note`], after a run.
///
/// # Errors
/// When the list cannot be written.
pub fn note_added_modules(context: &Context) -> std::io::Result<()> {
    if !go_modules::FILES.iter().any(|name| context.project.join(name).exists()) {
        return Ok(());
    }
    // Listings from before the run lack a new one.
    context.host.keep_listings();
    let known = ApprovedSources::of(context);
    let sources = go_modules::named_sources(context).into_iter();
    let new = sources.filter(|(kind, source)| !known.holds(kind, source));
    remember_added(
        &context.state,
        new.map(|(kind, source)| hash(&scope(context, kind), kind, &source)).collect(),
    )
}

/// Remembers addresses of remotes that were written inside a sandbox.
///
/// # Errors
/// When the list cannot be written.
pub fn note_added_remotes(state: &Path, addresses: impl IntoIterator<Item = String>) -> std::io::Result<()> {
    let hashes = addresses.into_iter().map(|address| hash("", remotes::KIND, &address));
    remember_added(state, hashes.collect())
}

fn remember_added(state: &Path, new: BTreeSet<String>) -> std::io::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let _locked = Lock::take(state)?;
    let Some(mut all) = added(state) else { return Ok(()) };
    all.extend(new.into_iter().take(MAX_SOURCES + 1));
    write(state, ADDED_LIST, &all)
}

/// Held while a list is read and written again: sessions end at the same time.
struct Lock(#[expect(dead_code, reason = "closing it unlocks")] File);

impl Lock {
    fn take(state: &Path) -> std::io::Result<Self> {
        let directory = state.join("sources");
        std::fs::create_dir_all(&directory)?;
        let directory = File::open(directory)?;
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(Self(directory))
    }
}

/// Whether a sandbox could write one of the files that name sources when it was changed last.
fn was_written_inside(context: &Context) -> bool {
    let own = go_modules::FILES.map(|name| context.project.join(name));
    let config = repositories::config_file(context);
    let files =
        own.iter().map(PathBuf::as_path).chain([config]).filter(|file| !context.host.is_missing(file));
    files.into_iter().any(|file| accepted_files::written_in(&context.state, file).is_some())
}

/// The list of what agents added to projects.
const ADDED_LIST: &str = "added";

/// None: it is too long, or cannot be read.
fn added(state: &Path) -> Option<BTreeSet<String>> {
    let text = list(&list_path(state, ADDED_LIST)).unwrap_or_else(|| Some(String::new()))?;
    Some(text.lines().map(str::to_owned).collect())
}

/// What a copy of the project has in common with it, and projects that use the same modules do not.
fn scope(context: &Context, kind: &str) -> String {
    if kind == go_modules::KIND { go_modules::own_name(context) } else { String::new() }
}

fn new_source_lines(new: &[&(&str, String)], is_first: bool) -> Vec<String> {
    let why = if is_first { "was added by an agent in another project" } else { "is new in this project" };
    let mut lines: Vec<String> = new
        .iter()
        .take(MAX_REPORTED)
        .map(|(kind, source)| {
            let source = agentsh_store::escape::line(source);
            format!("{kind} '{source}' {why} and stays blocked; to allow it: `agentsh run --agree`")
        })
        .collect();
    if new.len() > MAX_REPORTED {
        lines.push(format!(
            "{} more sources of the project are new and stay blocked",
            new.len() - MAX_REPORTED
        ));
    }
    lines
}

fn list_path(state: &Path, project: &str) -> PathBuf {
    state.join("sources").join(project)
}

fn by_path(directory: &Path) -> String {
    agentsh_base::hex(&Sha256::digest(directory.as_os_str().as_encoded_bytes()))
}

/// By its path, and by its repository where it has one.
fn projects(context: &Context) -> Vec<String> {
    let host = RealHost::default();
    let entry = context.project.join(".git");
    let git = host.git_directory(&entry).unwrap_or(entry);
    let common =
        host.common_directory(&git).unwrap_or(git).symlink_metadata().ok().filter(|found| found.is_dir());
    let by_repository = common.map(|found| {
        // Another repository may get the number of one that is gone.
        let born = found.created().ok();
        agentsh_base::hex(&Sha256::digest(format!("{} {} {born:?}", found.dev(), found.ino())))
    });
    [by_path(&context.project)].into_iter().chain(by_repository).collect()
}

/// Whether an agent ran in a directory around the project.
fn is_inside_another(context: &Context) -> bool {
    let around = context.project.ancestors().skip(1).take_while(|around| *around != context.home);
    around.into_iter().any(|around| list_path(&context.state, &by_path(around)).exists())
}

fn is_known(hashes: &BTreeSet<String>, projects: &[String], kind: &str, source: &str) -> bool {
    projects.iter().any(|project| hashes.contains(&hash(project, kind, source)))
}

fn hash(project: &str, kind: &str, source: &str) -> String {
    let mut hash = Sha256::new();
    for part in [project, kind, source] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    agentsh_base::hex(&hash.finalize())
}

/// The number of lists (none before the first run) and their content. An unreadable list is empty.
fn read(context: &Context, projects: &[String]) -> (usize, BTreeSet<String>) {
    let lists = projects.iter().filter_map(|project| list(&list_path(&context.state, project)));
    let lists: Vec<String> = lists.map(Option::unwrap_or_default).collect();
    (lists.len(), lists.iter().flat_map(|list| list.lines()).map(str::to_owned).collect())
}

/// None: there is no list. Some(None): one that says nothing.
#[expect(clippy::option_option, reason = "a list that cannot be read is not a missing one")]
fn list(file: &Path) -> Option<Option<String>> {
    match small_file::read(file, MAX_BYTES) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        text => Some(text.ok().flatten().and_then(|text| String::from_utf8(text).ok())),
    }
}

/// In one step: half a list must not pass for a whole one.
fn write(state: &Path, project: &str, hashes: &BTreeSet<String>) -> std::io::Result<()> {
    let text: String = hashes.iter().flat_map(|hash| [hash.as_str(), "\n"]).collect();
    small_file::replace(&list_path(state, project), text.as_bytes())
}
