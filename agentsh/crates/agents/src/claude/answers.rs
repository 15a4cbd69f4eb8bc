//! The project's `.claude/settings.local.json`, where Claude Code stores answers: permissions, and servers of the
//! project.
//!
//! The same file can hold hooks, so nothing inside may write the project's own. Claude Code gets a separate file at that path; of
//! what it writes there, the answers are kept for the next run in this project.

use std::path::Path;

use super::config::Sources;
use crate::{
    Access, Context, Format, HomeState, InjectedFile, KeptFile, Key, Launch, Shape, StateKind, read,
};

const FILE: &str = "settings.local.json";

/// Gives Claude Code that file, with the project's content as far as `launch` does not cover it. Nothing if it is outside the
/// project, or behind a link.
pub(super) fn provide_settings_file(context: &Context<'_>, sources: &Sources, launch: &mut Launch) {
    let root = Path::new(&sources.project_key);
    let directory = root.join(".claude");
    let file = directory.join(FILE);
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    let project = std::fs::canonicalize(context.project).unwrap_or_else(|_| context.project.to_owned());
    let users = std::fs::canonicalize(&sources.directory).unwrap_or_else(|_| sources.directory.clone());
    if !root.starts_with(project) || directory == users || is_link(&directory) || is_link(&file) {
        return;
    }
    let Ok(text) = read::text(&file, read::LIMIT) else { return };
    let covered = launch.replaced.iter().position(|(path, _)| *path == file);
    let content = match covered {
        Some(index) => Some(launch.replaced.remove(index).1),
        None => text.map(String::into_bytes),
    };
    if let Some(content) = content {
        launch.files.push(InjectedFile { path: file.clone(), content, mode: 0o600 });
    }
    launch.home_state.push(HomeState { path: directory, kind: StateKind::Dir, access: Access::Answers });
    launch.remembered.push(KeptFile { path: file, format: Format::Json, keys: keys() });
}

/// They hold for further runs in this project, each in its sandbox. The project may still set keys that take rights
/// away.
fn keys() -> Vec<Key> {
    vec![
        Key::of_project(&["permissions", "allow"], Shape::Rules),
        Key::of_project(&["permissions", "additionalDirectories"], Shape::Rules),
        Key::of_project(&["enableAllProjectMcpServers"], Shape::Flag),
        Key::of_project(&["enabledMcpjsonServers"], Shape::Names),
        Key::of_project(&["disabledMcpjsonServers"], Shape::Names),
    ]
}
