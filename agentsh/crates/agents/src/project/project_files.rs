//! All files of a project that agents obey.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::super::read;
use super::{AGENTS, effects};

/// Directories of third-party files, or that nothing reads.
const SKIPPED: &[&str] = &[".git", ".hg", ".jj", "node_modules", "target", ".venv", "venv", "__pycache__"];
const DEPTH: usize = 24;
/// Maximum number of reported files.
const MAX_FILES: usize = 2_000;

#[derive(Clone, Debug, Default)]
pub struct ProjectAgentConfig {
    /// By path.
    pub files: Vec<ProjectFile>,
    /// There is more than was searched.
    pub is_cut: bool,
}

#[derive(Clone, Debug)]
pub struct ProjectFile {
    /// Below the project.
    pub path: PathBuf,
    /// The name of the agent that obeys it.
    pub agent: &'static str,
    /// True if it names programs, servers or variables; false if it instructs a model.
    pub starts: bool,
    /// Its automatic effects, each in words.
    pub acts: Vec<String>,
    /// SHA-256 of its content, as hex digits.
    pub hash: String,
    /// None: no text, or too long.
    pub text: Option<String>,
}

/// Looks through a project. Of more than `most` entries the rest is left out. Links are not followed out of it.
#[must_use]
pub fn scan_project(project: &Path, most: usize) -> ProjectAgentConfig {
    let mut brings = ProjectAgentConfig::default();
    let mut left = most;
    walk(project, Path::new(""), DEPTH, &mut left, &mut brings);
    brings.files.sort_by(|one, other| one.path.cmp(&other.path));
    brings
}

fn walk(project: &Path, below: &Path, depth: usize, left: &mut usize, brings: &mut ProjectAgentConfig) {
    let Ok(entries) = std::fs::read_dir(project.join(below)) else { return };
    let Some(depth) = depth.checked_sub(1) else {
        brings.is_cut = true;
        return;
    };
    for entry in entries.flatten() {
        if *left == 0 || brings.files.len() >= MAX_FILES {
            brings.is_cut = true;
            return;
        }
        *left -= 1;
        let (name, path) = (entry.file_name(), below.join(entry.file_name()));
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                walk(project, &path, depth, left, brings);
            }
        } else if let Some((agent, starts)) = agent_of_file(&path) {
            brings.files.push(project_file(project, path, agent, starts, kind.is_symlink()));
        }
    }
}

/// The agent that obeys a file, by the longest matching path.
fn agent_of_file(path: &Path) -> Option<(&'static str, bool)> {
    let text = format!("/{}", path.to_str()?);
    let fits = |known: &str| match known.ends_with('/') {
        true => text.contains(&format!("/{known}")),
        false => text.ends_with(&format!("/{known}")),
    };
    let starts = AGENTS.iter().flat_map(|agent| agent.starts.iter().map(|path| (agent.title, true, *path)));
    let instructs =
        AGENTS.iter().flat_map(|agent| agent.instructs.iter().map(|path| (agent.title, false, *path)));
    let best =
        starts.chain(instructs).filter(|(_, _, known)| fits(known)).max_by_key(|(_, _, known)| known.len());
    best.map(|(title, starts, _)| (title, starts))
}

fn project_file(
    project: &Path,
    path: PathBuf,
    agent: &'static str,
    starts: bool,
    is_link: bool,
) -> ProjectFile {
    let whole = project.join(&path);
    let of = |acts: Vec<String>, hash: String, text| ProjectFile {
        path: path.clone(),
        agent,
        starts,
        acts,
        hash,
        text,
    };
    if is_link {
        let leads = std::fs::canonicalize(&whole).unwrap_or_default();
        let root = std::fs::canonicalize(project).unwrap_or_else(|_| project.to_owned());
        let to = std::fs::read_link(&whole).unwrap_or_default();
        let hash = hex(to.as_os_str().as_encoded_bytes());
        let shown = to.display().to_string();
        // A file in the project is checked at its own path, unless nothing would obey it there.
        return match leads.strip_prefix(&root) {
            Ok(inside) if agent_of_file(inside).is_some() => of(Vec::new(), hash, None),
            Ok(inside) => ProjectFile {
                path: path.clone(),
                ..project_file(project, inside.to_owned(), agent, starts, false)
            },
            Err(_) => {
                let what = format!("leads out of the project, to {}", agentsh_base::escape::line(&shown));
                of(vec![what], hash, None)
            }
        };
    }
    match read::text(&whole, read::LIMIT) {
        Ok(Some(text)) => {
            let is_script = !starts && runs(&whole, &text);
            let mut found =
                if starts { effects::of_settings(&path, &text) } else { effects::of_instructions(&text) };
            if is_script {
                found.push("is a program that the model may be told to run".to_owned());
            }
            let hash = hex(text.as_bytes());
            of(found, hash, Some(text))
        }
        Ok(None) => of(Vec::new(), String::new(), None),
        Err(error) => {
            let length = whole.metadata().map_or(0, |file| file.len());
            of(vec![format!("cannot be read: {error}")], hex(&length.to_le_bytes()), None)
        }
    }
}

fn runs(path: &Path, text: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const PROGRAMS: [&str; 9] = ["sh", "bash", "py", "js", "mjs", "ts", "rb", "pl", "ps1"];
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let may_run = path.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0);
    PROGRAMS.contains(&end) || text.starts_with("#!") || may_run && end.is_empty()
}

fn hex(bytes: &[u8]) -> String {
    agentsh_base::hex(&Sha256::digest(bytes))
}
