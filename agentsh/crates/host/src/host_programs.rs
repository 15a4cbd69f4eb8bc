//! Programs of the user that agentsh starts outside every sandbox: git, gh, ssh-agent, notify-send, a browser.
//!
//! PATH may name directories that a sandbox can write (`node_modules/.bin`, a project's `bin`). A program found there would be
//! the agent's own code, run outside. This file is the one place where such programs are looked up and started.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Context;
use agentsh_base::real_paths::RealPaths;
use agentsh_sandbox::layout::is_system;

/// The file behind a name in PATH, or behind an absolute path, links followed, where no sandbox may write.
#[must_use]
pub fn find(context: &Context, name: &str) -> Option<PathBuf> {
    let writable = writable(context);
    if Path::new(name).is_absolute() {
        return Path::new(name).canonicalize().ok().filter(|real| !is_writable_inside(real, &writable));
    }
    all_in(usable(context), name, &writable, &|path| !is_writable_inside(path, &writable)).next()
}

/// Every different file behind a name in PATH, as [`find`] would find it if the ones before were not there.
#[must_use]
pub fn all(context: &Context, name: &str) -> Vec<PathBuf> {
    let writable = writable(context);
    let mut found: Vec<PathBuf> = Vec::new();
    for program in all_in(usable(context), name, &writable, &|path| !is_writable_inside(path, &writable)) {
        if !found.contains(&program) {
            found.push(program);
        }
    }
    found
}

/// The user's environment for such a program: what it starts itself is found where no sandbox may write, too.
#[must_use]
pub fn environment(context: &Context) -> BTreeMap<String, String> {
    let mut env = context.env.clone();
    if let Some(path) = env.get_mut("PATH") {
        let directories: Vec<_> = usable(context).iter().map(|one| one.written.to_string_lossy()).collect();
        *path = directories.join(":");
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
    let directories = usable_of(&std::env::var("PATH").ok()?, &RealPaths::default(), &may_be);
    let program = all_in(&directories, name, &[], &may_be).next()?;
    #[expect(clippy::disallowed_methods, reason = "a program of the system, which no sandbox may write")]
    let mut command = Command::new(program);
    let directories: Vec<_> = directories.iter().map(|one| one.written.to_string_lossy()).collect();
    command.env("PATH", directories.join(":"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command)
}

/// The directories that sandboxes of this session may write, by its policy.
#[must_use]
pub fn writable(context: &Context) -> Vec<&Path> {
    let own = [&context.project, &context.data, &context.state].into_iter();
    own.chain(&context.writable).map(PathBuf::as_path).collect()
}

/// A directory of PATH in which no sandbox may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    /// The path as in PATH.
    written: PathBuf,
    /// Links followed.
    real: PathBuf,
}

/// The usable directories of PATH. Determined once: who may write there is known before the first sandbox starts.
fn usable(context: &Context) -> &[Usable] {
    context.usable_path.get_or_init(|| {
        let writable = writable(context);
        let path = context.env.get("PATH").map(String::as_str).unwrap_or_default();
        let looks = PathChecks { paths: context.paths.clone(), ..PathChecks::default() };
        usable_of(path, &looks.paths, &|path| !looks.is_writable_inside(path, &writable))
    })
}

fn usable_of(path: &str, paths: &RealPaths, may_be: &dyn Fn(&Path) -> bool) -> Vec<Usable> {
    let directories = path.split(':').map(Path::new).filter(|directory| directory.is_absolute());
    let usable = directories.filter(|directory| may_be(directory)).filter_map(|directory| {
        Some(Usable { written: directory.to_owned(), real: paths.canonical(directory)? })
    });
    usable.collect()
}

/// The files behind a name in these directories, in order.
fn all_in<'f>(
    directories: &'f [Usable],
    name: &'f str,
    granted: &'f [&Path],
    may_be: &'f dyn Fn(&Path) -> bool,
) -> impl Iterator<Item = PathBuf> + 'f {
    let mut seen = BTreeSet::new();
    // `/bin` is `/usr/bin` nearly everywhere.
    directories.iter().filter(move |directory| seen.insert(&directory.real)).filter_map(move |directory| {
        let path = directory.real.join(name);
        let found = path.symlink_metadata().ok()?;
        if found.is_symlink() {
            let real = path.canonicalize().ok()?;
            return (real.is_file() && may_be(&real)).then_some(real);
        }
        // Its directory was judged. What is left is the file: a policy may grant it alone.
        let is_own =
            !may_be_written_by_others(found.mode()) && !granted.iter().any(|root| path.starts_with(root));
        (found.is_file() && is_own && Path::new(name).components().count() == 1).then_some(path)
    })
}

/// Whether a sandbox, of this session or of another one, may be able to write what is at a path.
fn is_writable_inside(path: &Path, writable: &[&Path]) -> bool {
    PathChecks::default().is_writable_inside(path, writable)
}

/// A cache of checked directories, because most parents of PATH entries are the same.
#[derive(Default)]
struct PathChecks {
    paths: RealPaths,
    by_others: RefCell<BTreeMap<PathBuf, bool>>,
}

impl PathChecks {
    fn is_writable_inside(&self, path: &Path, writable: &[&Path]) -> bool {
        let Some(real) = self.paths.canonical(path) else { return true };
        if writable.iter().any(|root| real.starts_with(root) || path.starts_with(root)) {
            return true;
        }
        // Another project, in which another session may run.
        let in_working_tree = !is_system(&real)
            && real.ancestors().skip(1).any(|above| above.join(".git").symlink_metadata().is_ok());
        let mut by_others = self.by_others.borrow_mut();
        let mut is_by_others = |path: &Path| match by_others.get(path) {
            Some(known) => *known,
            None => *by_others.entry(path.to_owned()).or_insert(is_writable_by_others(path)),
        };
        in_working_tree || real.ancestors().any(&mut is_by_others)
    }
}

fn is_writable_by_others(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| may_be_written_by_others(found.mode()))
}

fn may_be_written_by_others(mode: u32) -> bool {
    const OTHERS: u32 = 0o002;
    // In a sticky directory no user can replace another user's files.
    const STICKY: u32 = 0o1000;
    mode & (OTHERS | STICKY) == OTHERS
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
        let usable = usable_of(&path, &RealPaths::default(), &may_be);
        let first = |name| all_in(&usable, name, &[], &may_be).next();
        assert_eq!(first("tool"), Some(real));
        assert_eq!(first("linked"), None, "a link into the project is the project's");
        let granted = root.join("own/tool");
        assert_eq!(all_in(&usable, "tool", &[&granted], &may_be).next(), None, "a policy grants the file");
        assert_eq!(
            usable_of("bin:.", &RealPaths::default(), &may_be),
            [],
            "a relative directory is the project's"
        );
        assert_eq!(usable, [Usable { written: root.join("own"), real: root.join("own") }]);
    }

    #[test]
    fn program_that_a_sandbox_or_user_may_replace_is_writable() {
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
