//! Programs of the user that agentsh starts outside every sandbox: git, gh, ssh-agent, notify-send, a browser.
//!
//! PATH may name directories that a sandbox can write (`node_modules/.bin`, a project's `bin`). A program found there would be
//! the agent's own code, run outside. This file is the one place where such programs are looked up and started.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Context;
use crate::sandbox::layout::is_system;

/// The file behind a name in PATH, or behind an absolute path, links followed, where no sandbox may write.
#[must_use]
pub fn find(context: &Context, name: &str) -> Option<PathBuf> {
    let writable = writable(context);
    let may_be = |path: &Path| !is_writable_inside(path, &writable);
    if Path::new(name).is_absolute() {
        return Path::new(name).canonicalize().ok().filter(|real| may_be(real));
    }
    find_in(context.env.get("PATH")?, name, &may_be)
}

/// Every different file behind a name in PATH, as [`find`] would find it if the ones before were not there.
#[must_use]
pub fn all(context: &Context, name: &str) -> Vec<PathBuf> {
    let writable = writable(context);
    let may_be = |path: &Path| !is_writable_inside(path, &writable);
    let mut found = Vec::new();
    for directory in context.env.get("PATH").map(String::as_str).unwrap_or_default().split(':') {
        found.extend(find_in(directory, name, &may_be).filter(|program| !found.contains(program)));
    }
    found
}

/// The user's environment for such a program: what it starts itself is found where no sandbox may write, too.
#[must_use]
pub fn environment(context: &Context) -> BTreeMap<String, String> {
    let writable = writable(context);
    let mut env = context.env.clone();
    if let Some(path) = env.get_mut("PATH") {
        *path = only(path, &|path| !is_writable_inside(path, &writable));
    }
    env
}

/// Prepares to start a program that [`find`] found, in this environment.
#[must_use]
pub fn command(program: &Path, env: &BTreeMap<String, String>) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "a program of the user, looked up where no sandbox may write"
    )]
    let mut command = Command::new(program);
    command.env_clear().envs(env);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Prepares to start a program of the system, such as those of the desktop: for verbs that belong to no project. What it
/// starts itself is one of the system too.
#[must_use]
pub fn command_of_system(name: &str) -> Option<Command> {
    let may_be = |path: &Path| is_system(path) && !is_writable_inside(path, &[]);
    let path = std::env::var("PATH").ok()?;
    let program = find_in(&path, name, &may_be)?;
    #[expect(clippy::disallowed_methods, reason = "a program of the system, which no sandbox may write")]
    let mut command = Command::new(program);
    command.env("PATH", only(&path, &may_be));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command)
}

fn writable(context: &Context) -> Vec<&Path> {
    let own = [&context.project, &context.data, &context.state].into_iter();
    own.chain(&context.writable).map(PathBuf::as_path).collect()
}

/// The directories of PATH that may be used.
fn only(path: &str, may_be: &dyn Fn(&Path) -> bool) -> String {
    let directories = path.split(':').filter(|directory| directory.starts_with('/'));
    directories.filter(|directory| may_be(Path::new(directory))).collect::<Vec<_>>().join(":")
}

fn find_in(path: &str, name: &str, may_be: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let directories = path.split(':').map(Path::new).filter(|directory| directory.is_absolute());
    directories.filter(|directory| may_be(directory)).find_map(|directory| {
        let real = directory.join(name).canonicalize().ok()?;
        (real.is_file() && may_be(&real)).then_some(real)
    })
}

/// Whether a sandbox, of this session or of another one, may be able to write what lies at a path.
fn is_writable_inside(path: &Path, writable: &[&Path]) -> bool {
    let Ok(real) = path.canonicalize() else { return true };
    if writable.iter().any(|root| real.starts_with(root) || path.starts_with(root)) {
        return true;
    }
    // Another project, in which another session may run.
    let in_working_tree = !is_system(&real)
        && real.ancestors().skip(1).any(|above| above.join(".git").symlink_metadata().is_ok());
    in_working_tree || real.ancestors().any(is_writable_by_others)
}

fn is_writable_by_others(path: &Path) -> bool {
    const OTHERS: u32 = 0o002;
    // In a sticky directory nobody replaces what is somebody else's.
    const STICKY: u32 = 0o1000;
    path.metadata().is_ok_and(|found| found.mode() & (OTHERS | STICKY) == OTHERS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A place in which nothing is writable by others, unlike the one for temporary files.
    fn place() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    fn program(directory: &Path, name: &str) -> PathBuf {
        std::fs::create_dir_all(directory).unwrap();
        let file = directory.join(name);
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn a_program_is_found_only_where_no_sandbox_may_write() {
        let place = place();
        let root = place.path().canonicalize().unwrap();
        let fake = program(&root.join("project/bin"), "tool");
        let real = program(&root.join("own"), "tool");
        std::os::unix::fs::symlink(&fake, root.join("own/linked")).unwrap();
        let project = root.join("project");
        // The clone that holds this test is a working tree itself.
        let may_be = |path: &Path| {
            let real = path.canonicalize().unwrap_or_default();
            !real.starts_with(&project)
        };
        let path = format!("bin:.:{}:{}", root.join("project/bin").display(), root.join("own").display());
        assert_eq!(find_in(&path, "tool", &may_be), Some(real));
        assert_eq!(find_in(&path, "linked", &may_be), None, "a link into the project is the project's");
        assert_eq!(find_in("bin:.", "tool", &may_be), None, "a relative directory is the project's");
        assert_eq!(only(&path, &may_be), root.join("own").display().to_string());
    }

    #[test]
    fn what_a_sandbox_or_another_user_may_replace_counts_as_writable() {
        let place = place();
        let root = place.path().canonicalize().unwrap();
        let tool = program(&root.join("tree/bin"), "tool");
        std::fs::create_dir_all(root.join("tree/.git")).unwrap();
        assert!(is_writable_inside(&tool, &[]), "another project");
        assert!(is_writable_inside(Path::new("/usr/bin/env"), &[Path::new("/usr/bin")]), "a grant");
        assert!(is_writable_inside(&root.join("missing"), &[]));
        let shared = program(&root.join("shared"), "tool");
        std::fs::set_permissions(root.join("shared"), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(is_writable_inside(&shared, &[]), "everybody may replace it");
        assert!(!is_writable_inside(Path::new("/usr/bin/env"), &[]));
    }
}
