//! The agent's own files of the user's home, as it gets them.

use std::path::{Path, PathBuf};

use super::run_error::RunError;
use crate::agent::{Access as StateAccess, Kind, Launch, StateKind};
use crate::sandbox::plan::Access;
use crate::sandbox::spec::{Contribution, Elsewhere, Feature, File, Grant};
use crate::session::Facts;

/// The agent's own files of the home: bound, kept for each project, or copied where changes are to be thrown away.
///
/// # Errors
/// When one of them cannot be prepared.
pub fn contribution(facts: &Facts, kind: Kind, launch: &Launch) -> Result<Contribution, RunError> {
    let (mut own, mut files, mut moved) = (Vec::new(), Vec::new(), Vec::<Elsewhere>::new());
    let at = |host: PathBuf, inside: PathBuf| Elsewhere { host, inside, access: Access::ReadWrite };
    for state in &launch.home_state {
        let path = facts.context.home.join(&state.path);
        let io = |source| RunError::Io { doing: "prepare the agent's own files", source };
        match state.access {
            StateAccess::Private if path.is_file() => {
                let content = std::fs::read(&path).map_err(io)?;
                files.push(File::new(path, content, 0o600));
            }
            StateAccess::Private => {
                copy_private(&path, &mut files, &mut { MOST_COPIED_BYTES }).map_err(io)?;
            }
            StateAccess::Scratch => {
                moved.push(at(scratch_of(facts, kind, &path, &launch.hidden).map_err(io)?, path));
            }
            StateAccess::PerProject => {
                moved.push(at(kept_for_project(facts, kind, &path, state.kind).map_err(io)?, path));
            }
            // What hides below a directory of the project's own has to be mounted after it.
            StateAccess::ReadWrite if moved.iter().any(|above| path.starts_with(&above.inside)) => {
                moved.push(at(path.clone(), path));
            }
            access => {
                let access =
                    if access == StateAccess::ReadWrite { Access::ReadWrite } else { Access::ReadOnly };
                if access == Access::ReadWrite && state.kind == StateKind::Dir && !path.exists() {
                    use std::os::unix::fs::DirBuilderExt;
                    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io)?;
                }
                // Where a link leads is what is bound, at the place where the agent looks for it.
                own.push(Grant { path, access });
            }
        }
    }
    let part = Contribution::new(Feature::AgentHome).owning(own);
    Ok(Contribution { files, elsewhere: moved, ..part })
}

/// `STATE/agents/NAME/PROJECT`
#[must_use]
pub fn of_project(facts: &Facts, kind: Kind) -> PathBuf {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(facts.context.project.as_os_str().as_encoded_bytes());
    let project: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    facts.context.state.join("agents").join(kind.name()).join(project)
}

/// `STATE/agents/NAME/PROJECT/FILE`: what an agent keeps in one place for all projects, kept apart.
fn kept_for_project(facts: &Facts, kind: Kind, path: &Path, wanted: StateKind) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let directory = of_project(facts, kind);
    // Two directories of one agent may have the same name, one for data and one for state.
    let own = match path.strip_prefix(&facts.context.home) {
        Ok(below) if below.components().count() > 2 => {
            directory.join(below.to_string_lossy().replace('/', "-").trim_matches(['.', '-']))
        }
        _ => directory.join(path.file_name().unwrap_or_default()),
    };
    let wanted_directory = if wanted == StateKind::Dir { &own } else { &directory };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(wanted_directory)?;
    if wanted == StateKind::File {
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&own)?;
    }
    Ok(own)
}

/// A copy of a directory, made anew for this run. What is not copied is not there.
fn scratch_of(facts: &Facts, kind: Kind, path: &Path, hidden: &[PathBuf]) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = of_project(facts, kind).join(format!("copies-{}", facts.id)).join(name.trim_matches('.'));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut files = Vec::new();
    if path.is_dir() {
        copy_private(path, &mut files, &mut { MOST_COPIED_BYTES })?;
    }
    for File { path: file, content, mode, .. } in files {
        let Ok(below) = file.strip_prefix(path) else { continue };
        let real = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
        if hidden.iter().any(|hidden| real.starts_with(hidden)) {
            continue;
        }
        let file = directory.join(below);
        std::fs::create_dir_all(file.parent().unwrap_or(&directory))?;
        let mut new =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(file)?;
        std::io::Write::write_all(&mut new, &content)?;
    }
    Ok(directory)
}

/// Of a directory that the agent gets as a copy; the rest stays unseen.
const MOST_COPIED_BYTES: u64 = 16 << 20;

/// Plain files, recursively. Links are left out: they may lead anywhere.
fn copy_private(path: &Path, files: &mut Vec<File>, room: &mut u64) -> std::io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_dir() {
        for entry in std::fs::read_dir(path)? {
            copy_private(&entry?.path(), files, room)?;
        }
    } else if found.is_file() && found.len() <= *room {
        *room -= found.len();
        files.push(File::new(path.to_owned(), std::fs::read(path)?, 0o600));
    }
    Ok(())
}
