//! The agent's own files of the user's home, as the agent sees them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use agentsh_agents::{Access as StateAccess, HomeState, InjectedFile, Kind, Launch, StateKind};
use agentsh_guards::set_aside_message;
use agentsh_host::copies::{Copy, write_anew};
use agentsh_host::undo::SavedVersions;
use agentsh_host::{Facts, Record, grants};
use agentsh_policy::{Question, ask_file};
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{Contribution, Feature, File, Grant, RelocatedPath};
use agentsh_store::words::GuardChange;
use agentsh_store::{Event, escape};

/// The agent's own files of the home: bound, kept for each project, or copied where changes are to be thrown away.
///
/// # Errors
/// When one of them cannot be prepared.
pub fn contribution(facts: &Facts, kind: Kind, launch: &Launch) -> std::io::Result<Contribution> {
    let (mut own, mut files, mut moved) = (Vec::new(), Vec::new(), Vec::<RelocatedPath>::new());
    let at = |host: PathBuf, inside: PathBuf| RelocatedPath { host, inside, access: Access::ReadWrite };
    for state in &launch.home_state {
        let path = facts.context.home.join(&state.path);
        match state.access {
            StateAccess::Settings => moved.push(at(settings_in(facts, kind, &path, launch)?, path)),
            StateAccess::Private if directory_of_run(facts, launch, &path).is_some() => {}
            StateAccess::Login(_) if directory_of_run(facts, launch, &path).is_some() => {}
            StateAccess::Private if path.is_file() => {
                let content = std::fs::read(&path)?;
                files.push(File::new(path, content, 0o600));
            }
            StateAccess::Private => {
                copy_private(&path, &mut files, &mut { MAX_COPIED_BYTES })?;
            }
            StateAccess::Scratch => {
                moved.push(at(scratch_of(facts, kind, &path, &launch.hidden)?, path));
            }
            StateAccess::Answers => {
                let (own, shown) = answers_in(facts, kind, &path, &launch.files)?;
                moved.push(at(own, path));
                moved.extend(shown.into_iter().map(|there| RelocatedPath {
                    host: there.clone(),
                    inside: there,
                    access: Access::ReadOnly,
                }));
            }
            StateAccess::Login(_) => moved.push(at(login_copy(facts, kind, launch, &path), path)),
            StateAccess::PerProject => {
                moved.push(at(kept_for_project(facts, kind, &path, state.kind)?, path));
            }
            // Hidden paths below a directory of the project have to be mounted after it.
            StateAccess::ReadWrite if moved.iter().any(|above| path.starts_with(&above.inside)) => {
                moved.push(at(path.clone(), path));
            }
            access => {
                let access =
                    if access == StateAccess::ReadWrite { Access::ReadWrite } else { Access::ReadOnly };
                if access == Access::ReadWrite && state.kind == StateKind::Dir && !path.exists() {
                    use std::os::unix::fs::DirBuilderExt;
                    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
                }
                // The sandbox binds the target of a link at the path where the agent looks for it.
                own.push(Grant { path, access });
            }
        }
    }
    let part = Contribution::new(Feature::AgentHome).with_own_files(own);
    Ok(Contribution { files, elsewhere: moved, ..part })
}

/// `STATE/agents/NAME/PROJECT`
#[must_use]
pub fn of_project(facts: &Facts, kind: Kind) -> PathBuf {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(facts.context.project.as_os_str().as_encoded_bytes());
    let project: String = agentsh_base::hex(hash.iter().take(12));
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

/// A copy of a directory, made for this run. Everything else of it is missing inside.
fn scratch_of(facts: &Facts, kind: Kind, path: &Path, hidden: &[PathBuf]) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = copies(facts, kind).join(name.trim_matches('.'));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut files = Vec::new();
    if path.is_dir() {
        copy_private(path, &mut files, &mut { MAX_COPIED_BYTES })?;
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

/// A directory for this run with copies of the agent's own files; those with logins are there already.
fn settings_in(facts: &Facts, kind: Kind, path: &Path, launch: &Launch) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = copies(facts, kind).join(SETTINGS);
    let make = |directory: &Path| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    make(&directory)?;
    let put = |file: &Path, content: &[u8], mode: u32| match file.strip_prefix(path) {
        Ok(name) => {
            let file = directory.join(name);
            make(file.parent().unwrap_or(&directory))?;
            write_anew(&file, content, mode)
        }
        Err(_) => Ok(()),
    };
    for state in launch.home_state.iter().filter(|state| state.access == StateAccess::Private) {
        let file = facts.context.home.join(&state.path);
        if file.starts_with(path) && file.is_file() {
            put(&file, &std::fs::read(&file)?, 0o600)?;
        }
    }
    for file in &launch.files {
        put(&file.path, &file.content, file.mode)?;
    }
    Ok(directory)
}

/// Git inside does not list files that exist only for this run.
const UNLISTED: &str = ".gitignore";

/// A directory for this run with the agent's own files, in which the project's entries are mounted.
fn answers_in(
    facts: &Facts,
    kind: Kind,
    path: &Path,
    files: &[InjectedFile],
) -> std::io::Result<(PathBuf, Vec<PathBuf>)> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = copies(facts, kind).join(ANSWERS);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let mut ignored = String::new();
    let own = files.iter().filter_map(|file| Some((file.path.strip_prefix(path).ok()?, &file.content)));
    let own: BTreeMap<&Path, &Vec<u8>> = own.collect();
    for (name, content) in &own {
        write_anew(&directory.join(name), content, 0o600)?;
    }
    let mut shown = Vec::new();
    let entries = if path.is_dir() { std::fs::read_dir(path)?.collect() } else { Vec::new() };
    for entry in entries {
        let (name, there) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        let found = std::fs::symlink_metadata(&there)?;
        let point = directory.join(&name);
        if own.contains_key(Path::new(&name)) {
            continue;
        } else if found.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&there)?, point)?;
            continue;
        } else if found.is_dir() {
            std::fs::create_dir(point)?;
        } else {
            std::fs::write(point, "")?;
        }
        shown.push(there);
    }
    if !path.join(UNLISTED).exists() {
        for name in own.keys().filter(|name| !path.join(name).exists()).chain([&Path::new(UNLISTED)]) {
            ignored.push_str(&format!("/{}\n", name.display()));
        }
        std::fs::write(directory.join(UNLISTED), ignored)?;
    }
    Ok((directory, shown))
}

/// If the agent may write such a directory itself, by the policy or in a layer, it gets the project's own
/// directory. If the policy hides the directory, it gets nothing of it.
pub fn unless_unmasked(facts: &Facts, launch: &mut Launch) {
    let is_hidden = |path: &Path| {
        let question = Question::Read(path.to_string_lossy().into_owned());
        !ask_file(&facts.policy.agent.filesystem, &question, &facts.paths()).allow
    };
    let unmasked = grants::unmasked(&facts.policy.agent.filesystem, &facts.paths());
    let is_project_own = |state: &HomeState| {
        state.access == StateAccess::Answers
            && (facts.is_reviewed
                || is_hidden(&state.path)
                || unmasked.iter().any(|lifted| state.path.starts_with(lifted)))
    };
    let given_up: Vec<PathBuf> = launch
        .home_state
        .iter()
        .filter(|state| is_project_own(state))
        .map(|state| state.path.clone())
        .collect();
    launch.home_state.retain(|state| !is_project_own(state));
    for directory in given_up {
        launch.remembered.retain(|remembered| !remembered.path.starts_with(&directory));
        for file in launch.files.extract_if(.., |file| file.path.starts_with(&directory)) {
            // It exists, without keys of the project that do not count.
            if !is_hidden(&file.path) && std::fs::read(&file.path).ok().as_ref() != Some(&file.content) {
                launch.replaced.push((file.path, file.content));
            }
        }
    }
}

/// After the end: moves new files next to the agent's own ones (`own`) to the versions of `agentsh undo`, and removes the
/// directories of this run.
pub fn finish(facts: &Facts, record: &Record, kind: Kind, launch: &Launch, own: &[&Path]) {
    let is_for_this_run = |state: &HomeState| {
        matches!(state.access, StateAccess::Scratch | StateAccess::Answers | StateAccess::Settings)
    };
    if !launch.home_state.iter().any(is_for_this_run) {
        return;
    }
    for state in launch.home_state.iter().filter(|state| state.access == StateAccess::Answers) {
        let names = own.iter().filter_map(|path| path.strip_prefix(&state.path).ok());
        let names: Vec<&OsStr> = names.map(Path::as_os_str).collect();
        let is_known = |name: &OsStr| {
            let name = name.as_encoded_bytes();
            name == UNLISTED.as_bytes() || names.iter().any(|own| name.starts_with(own.as_encoded_bytes()))
        };
        let entries = std::fs::read_dir(copies(facts, kind).join(ANSWERS)).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !is_known(&entry.file_name())) {
            let path = state.path.join(entry.file_name());
            if path.symlink_metadata().is_ok() {
                continue;
            }
            let kept = SavedVersions::new(&facts.context.state, &facts.id.to_string())
                .keep(&path, &Copy::of(&entry.path()));
            let text = match kept {
                Ok(()) => set_aside_message(&display_path(&facts.context.project, &path), &path, None),
                Err(error) => format!("cannot keep {}, which was created inside: {error}", path.display()),
            };
            record.note(&escape::line(&text));
            record.journal.record(Event::GuardChanged {
                server_id: None,
                path: path.to_string_lossy().into_owned(),
                what: GuardChange::SetAside,
                detail: text,
            });
        }
    }
    // The rest is a directory that nothing reads.
    let _ = std::fs::remove_dir_all(copies(facts, kind));
}

/// The directory of the agent that exists for this run alone and holds this file, and its name below [`copies`].
fn directory_of_run(facts: &Facts, launch: &Launch, path: &Path) -> Option<(PathBuf, &'static str)> {
    launch.home_state.iter().find_map(|state| {
        let name = match state.access {
            StateAccess::Answers => ANSWERS,
            StateAccess::Settings => SETTINGS,
            _ => return None,
        };
        let directory = facts.context.home.join(&state.path);
        path.starts_with(&directory).then_some((directory, name))
    })
}

/// Whether this file of the agent is created in a directory for this run.
#[must_use]
pub fn is_in_directory_of_run(facts: &Facts, launch: &Launch, path: &Path) -> bool {
    directory_of_run(facts, launch, path).is_some()
}

/// The path outside of the agent's own file in a directory for this run.
#[must_use]
pub fn file_of_run(facts: &Facts, kind: Kind, launch: &Launch, path: &Path) -> Option<PathBuf> {
    let (directory, name) = directory_of_run(facts, launch, path)?;
    Some(copies(facts, kind).join(name).join(path.strip_prefix(directory).ok()?))
}

fn display_path(project: &Path, path: &Path) -> String {
    path.strip_prefix(project).unwrap_or(path).display().to_string()
}

/// Names below [`copies`].
const ANSWERS: &str = "answers";
const SETTINGS: &str = "settings";

/// Directories of this run.
fn copies(facts: &Facts, kind: Kind) -> PathBuf {
    of_project(facts, kind).join(format!("copies-{}", facts.id))
}

/// The path of the copy of a file with logins.
pub(super) fn login_copy(facts: &Facts, kind: Kind, launch: &Launch, path: &Path) -> PathBuf {
    let alone = || copies(facts, kind).join("logins").join(path.file_name().unwrap_or_default());
    file_of_run(facts, kind, launch, path).unwrap_or_else(alone)
}

/// Maximum size of a directory that the agent gets as a copy; the rest is not visible.
const MAX_COPIED_BYTES: u64 = 16 << 20;

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
