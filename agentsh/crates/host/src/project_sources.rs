//! Network rights that project files may give: a remote of the repository, a module in a lock file.
//!
//! An agent can write such files. So the entries count that were there when agentsh first ran in the project; their hashes are kept
//! outside every sandbox. Later entries are opened once the user agrees to them (`agentsh run --agree`). A project is recognised by
//! its path, by its repository (it may have been moved, or be another working tree), and by the directories around it, because an
//! agent may have made the whole project there.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Context;
use agentsh_sandbox::host::{Host, RealHost};

/// Longest list that is read: 65 bytes are one source.
const MAX_BYTES: u64 = 4 << 20;
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
    let is_first = lists == 0 && !is_inside_another(context);
    let new: Vec<&(&str, String)> =
        sources.iter().filter(|(kind, source)| !is_known(&hashes, &projects, kind, source)).collect();
    let takes_all = is_first || agree || new.is_empty();
    let lines = if takes_all { Vec::new() } else { new_source_lines(&new) };
    if takes_all && !(new.is_empty() && lists == projects.len()) {
        for project in &projects {
            hashes.extend(sources.iter().map(|(kind, source)| hash(project, kind, source)));
        }
        for project in &projects {
            write(context, project, &hashes)?;
        }
    }
    // Set only once: a session notes its sources before it uses them.
    let _ = context.sources.set(ApprovedSources { projects, hashes });
    Ok(lines)
}

fn new_source_lines(new: &[&(&str, String)]) -> Vec<String> {
    let mut lines: Vec<String> = new
        .iter()
        .take(MAX_REPORTED)
        .map(|(kind, source)| {
            let source = agentsh_store::escape::line(source);
            format!("{kind} '{source}' is new in this project and stays blocked; to allow it: `agentsh run --agree`")
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

fn place(context: &Context, project: &str) -> PathBuf {
    context.state.join("sources").join(project)
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
    around.into_iter().any(|around| place(context, &by_path(around)).exists())
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
    let lists: Vec<String> = projects.iter().filter_map(|project| list(&place(context, project))).collect();
    (lists.len(), lists.iter().flat_map(|list| list.lines()).map(str::to_owned).collect())
}

fn list(file: &Path) -> Option<String> {
    let file = match std::fs::File::open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(String::new()),
    };
    let mut text = String::new();
    Some(if file.take(MAX_BYTES).read_to_string(&mut text).is_ok() { text } else { String::new() })
}

/// In one step: half a list must not pass for a whole one.
fn write(context: &Context, project: &str, hashes: &BTreeSet<String>) -> std::io::Result<()> {
    let text: String = hashes.iter().flat_map(|hash| [hash.as_str(), "\n"]).collect();
    agentsh_base::small_file::replace(&place(context, project), text.as_bytes())
}
