//! Facts about the host and the invocation, shared by every launch of a session.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use agentsh_base::real_paths::RealPaths;
use agentsh_policy::PathContext;
use agentsh_sandbox::cgroup::Hierarchies;
use agentsh_sandbox::host::{RealHost, normalised_path};
use agentsh_sandbox::idmap::IdMaps;
use agentsh_sandbox::plan::{FileKey, Identity};
use agentsh_sandbox::spec::NamedFile;
use agentsh_sandbox::{Enforcement, State, Tier, Zygote};

use super::accepted_files;
use super::git_settings::Settings;
use super::host_programs::Usable;
use super::project_sources::ApprovedSources;
use super::repositories::RepositoryConfig;

/// First host id of the sandboxes when agentsh is started by root itself. It belongs to no user: it is above the ids
/// that distributions, systemd and container runtimes hand out, below 2^31.
const UNPRIVILEGED_ID: u32 = 1_785_135_104;
/// Its number inside: archives such as ustar have no room for a higher one than 2,097,151.
const FIRST_ORDINARY_ID: u32 = 1000;

/// Represents the project if there is none: it is empty.
const NO_PROJECT: &str = "/run/agentsh/no-project";

#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error("cannot find the current directory: {0}")]
    NoDirectory(std::io::Error),
    #[error(
        "HOME is not set to an absolute path that exists; agentsh needs it to know which secrets to hide; to set it: \
         `export HOME=\"$(getent passwd \"$(id -u)\" | cut -d: -f6)\"`"
    )]
    NoHome,
    #[error("cannot find agentsh's own executable: {0}")]
    NoExecutable(std::io::Error),
    #[error("'{path}' cannot be a project: {why}; change to the directory of your project first")]
    NotAProject { path: PathBuf, why: &'static str },
}

pub struct Context {
    pub identity: Identity,
    pub user: String,
    pub home: PathBuf,
    /// The home as the user names it: perhaps through links.
    pub home_as_given: PathBuf,
    /// The symlinks in the paths of the home and the working directory. They exist inside too.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Shown to what runs: the top of the repository that agentsh was started in, else that directory. See
    /// [`Context::find_for_server`].
    pub project: PathBuf,
    /// Where agentsh was started: relative names of a command line count from here.
    pub directory: PathBuf,
    /// The working directory as the user entered it: perhaps through links.
    pub directory_as_given: PathBuf,
    /// Where journal, pins and sockets live.
    pub state: PathBuf,
    pub config: PathBuf,
    /// Where fetched packages live.
    pub data: PathBuf,
    /// Directories next to the project that sandboxes of this session may write, by its policy. See [`Context::set_writable`].
    pub(super) writable: Vec<PathBuf>,
    /// The invoking environment. Values stay here: only names are ever recorded.
    pub env: BTreeMap<String, String>,
    /// Variables whose values are not UTF-8: agentsh does not read them, programs get them unchanged.
    pub env_bytes: BTreeMap<String, OsString>,
    /// A cache of resolved links from before the first sandbox started.
    pub paths: RealPaths,
    pub hierarchies: Hierarchies,
    /// Show files of root, and of other owners, as the sandbox's own; only when started as root.
    pub idmaps: Option<IdMaps>,
    /// agentsh's own executable, which is also the bridge inside the agent's sandbox.
    pub executable: (PathBuf, FileKey),
    pub host: RealHost,
    /// Where sandboxes come from.
    pub zygote: Zygote,
    /// The kind of its sandboxes.
    pub tier: Tier,
    /// Directories of PATH in which no sandbox may write, once they were asked for.
    pub(super) usable_path: OnceLock<Vec<Usable>>,
    /// The files that the user's configurations name, once they were read.
    pub(super) named_files: OnceLock<BTreeMap<PathBuf, NamedFile>>,
    pub(super) runtime: OnceLock<PathBuf>,
    /// What the configuration of the project's repository names, once it was read.
    pub(super) repository_config: OnceLock<RepositoryConfig>,
    /// Which of the project's sources the user has agreed to.
    pub(super) sources: OnceLock<ApprovedSources>,
    /// The answer of each git of the user, once it was asked.
    pub(super) git_says: Mutex<BTreeMap<PathBuf, Option<Settings>>>,
    /// Problems that were found while looking.
    pub notes: Vec<Enforcement>,
}

impl Context {
    /// Sets the directories next to the project that sandboxes of this session may write. Cached results are dropped.
    pub fn set_writable(&mut self, writable: Vec<PathBuf>) {
        self.writable = writable;
        self.usable_path = OnceLock::new();
        self.named_files = OnceLock::new();
    }

    /// Where the sockets of sessions are.
    #[must_use]
    pub fn runtime_directory(&self) -> &Path {
        self.runtime.get_or_init(|| {
            let users = self.env.get("XDG_RUNTIME_DIR").map(Path::new).filter(|path| path.is_absolute());
            // Without links: the directory is hidden by its path.
            let users = users.and_then(|path| path.canonicalize().ok()).filter(|path| path.is_dir());
            users.map_or_else(|| self.state.clone(), |users| users.join("agentsh"))
        })
    }

    /// The directories that paths of a policy are relative to.
    #[must_use]
    pub fn paths(&self) -> PathContext {
        PathContext { home: self.home.clone(), project: self.project.clone() }
    }

    /// Looks at the process and the host. Changes nothing.
    ///
    /// # Errors
    /// When there is no home or no directory that may be a project.
    pub fn find() -> Result<Self, ContextError> {
        let context = Self::detect()?;
        check_project(&context.project, &context.home)?;
        Ok(context)
    }

    /// Like [`Context::find`], for a server that a client started in any directory: the flag says whether that directory may
    /// be visible.
    ///
    /// # Errors
    /// When there is no home or no current directory.
    pub fn find_for_server() -> Result<(Self, bool), ContextError> {
        let mut context = Self::detect()?;
        let shown = check_project(&context.project, &context.home).is_ok();
        if !shown {
            context.project = PathBuf::from(NO_PROJECT);
        }
        Ok((context, shown))
    }

    /// The same facts for sandboxes of this tier. Without namespaces there is one id, that of the user who started agentsh.
    #[must_use]
    pub fn of_tier(self, tier: Tier) -> Self {
        if tier == Tier::Namespaces {
            return self;
        }
        let identity = Identity::of(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { tier, identity, idmaps: None, notes: Vec::new(), ..self }
    }

    fn detect() -> Result<Self, ContextError> {
        let (mut env, mut env_bytes) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in std::env::vars_os() {
            // No rule can say a name that is not UTF-8.
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => drop(env.insert(name, value)),
                Err(value) => drop(env_bytes.insert(name, value)),
            }
        }
        // As execvp(3) and shells do.
        env.entry("PATH".to_owned()).or_insert_with(|| DEFAULT_PATH.to_owned());
        without_parent_parts(&mut env);
        without_shims(&mut env);
        let home_as_given = env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home_as_given = home_as_given.ok_or(ContextError::NoHome)?;
        let paths = RealPaths::default();
        let home = paths.canonical(&home_as_given).ok_or(ContextError::NoHome)?;
        let directory = std::env::current_dir().map_err(ContextError::NoDirectory)?;
        let project = project_of(&directory, &home);
        let directory_as_given = env.get("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
        let directory_as_given = directory_as_given
            .filter(|path| paths.canonical(path).is_some_and(|real| real == directory))
            .unwrap_or_else(|| directory.clone());
        let links = [&home_as_given, &directory_as_given].into_iter().flat_map(|path| links_on(path, &paths));
        let links = links.collect::<BTreeMap<_, _>>().into_iter().collect();
        let identity = identity(&env);
        let base = |name: &str, default: &str| {
            env.get(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| home.join(default))
        };
        let (idmaps, notes) = id_maps(identity);
        let state = base("XDG_STATE_HOME", ".local/state").join("agentsh");
        accepted_files::judge_by(&state);
        Ok(Self {
            identity,
            user: env.get("USER").or_else(|| env.get("LOGNAME")).cloned().unwrap_or_default(),
            host: RealHost::keeping(&state),
            state,
            config: base("XDG_CONFIG_HOME", ".config"),
            data: base("XDG_DATA_HOME", ".local/share").join("agentsh"),
            writable: Vec::new(),
            directory,
            directory_as_given,
            project,
            executable: own_executable().map_err(ContextError::NoExecutable)?,
            hierarchies: Hierarchies::find(),
            idmaps,
            zygote: Zygote::default(),
            tier: Tier::default(),
            usable_path: OnceLock::new(),
            named_files: OnceLock::new(),
            runtime: OnceLock::new(),
            repository_config: OnceLock::new(),
            sources: OnceLock::new(),
            git_says: Mutex::default(),
            notes,
            home,
            home_as_given,
            links,
            env,
            env_bytes,
            paths,
        })
    }
}

/// Removes `..` from the XDG base directories: nothing can be mounted there, or hidden, under such a name.
fn without_parent_parts(env: &mut BTreeMap<String, String>) {
    for (name, value) in env {
        let path = Path::new(value.as_str());
        let is_base = name.starts_with("XDG_") && name.ends_with("_HOME") && path.is_absolute();
        if is_base && path.iter().any(|part| part == "..") {
            *value = normalised_path(path).to_string_lossy().into_owned();
        }
    }
}

/// The links on the way to a path, each with its target as written.
fn links_on(path: &Path, paths: &RealPaths) -> Vec<(PathBuf, PathBuf)> {
    /// The kernel follows no more.
    const MAX_LINKS: usize = 40;
    let parts = |path: &Path| path.iter().rev().map(OsString::from).collect::<Vec<_>>();
    let (mut links, mut at, mut rest) = (Vec::new(), PathBuf::from("/"), parts(path));
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        // An absolute part, as in the target of a link, starts from the root.
        let part_is_name = part != "/";
        let next = at.join(part);
        match paths.link(&next).filter(|_| part_is_name) {
            Some(to) if links.len() < MAX_LINKS => {
                rest.extend(parts(&to));
                links.push((next, to));
            }
            _ => at = next,
        }
    }
    links
}

/// Where programs are looked for if the environment does not say.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Below the directory of data: where `agentsh enable` puts programs with the names of agents.
pub const SHIMS: &str = "shims";

/// An agent that agentsh starts is the agent itself, also for what it starts.
pub fn without_shims(env: &mut BTreeMap<String, String>) {
    let data = env.get("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let data = data.or_else(|| Some(PathBuf::from(env.get("HOME")?).join(".local/share")));
    let Some((shims, path)) = data.map(|data| data.join("agentsh").join(SHIMS)).zip(env.get_mut("PATH"))
    else {
        return;
    };
    if let Ok(rest) =
        std::env::join_paths(std::env::split_paths(&path).filter(|entry| normalised_path(entry) != shims))
    {
        *path = rest.to_string_lossy().into_owned();
    }
}

/// The project for this working directory: the repository around it, else the directory.
#[must_use]
pub fn project_of(directory: &Path, home: &Path) -> PathBuf {
    let top = repository_top(directory).filter(|top| check_project(top, home).is_ok());
    top.unwrap_or_else(|| directory.to_owned())
}

/// The nearest directory with a `.git`, from where agentsh was started upwards. It counts if it has the same owner, as git
/// itself requires: another user's `.git` further up must not widen the project.
fn repository_top(directory: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let owner = |path: &Path| std::fs::symlink_metadata(path).ok().map(|found| found.uid());
    let here = owner(directory)?;
    let found = |above: &Path| std::fs::symlink_metadata(above.join(".git")).ok();
    let (top, git) = directory.ancestors().find_map(|above| Some((above, found(above)?)))?;
    let is_repository = top.join(".git/HEAD").symlink_metadata().is_ok() || top.join(".git").is_file();
    let is_own = git.uid() == here && (top == directory || owner(top) == Some(here));
    (is_repository && is_own).then(|| top.to_owned())
}

/// A directory whose grant would show the whole machine, or undo the private home, is not a project.
fn check_project(project: &Path, home: &Path) -> Result<(), ContextError> {
    let refuse = |why| Err(ContextError::NotAProject { path: project.to_owned(), why });
    if project == Path::new("/") {
        return refuse("it is the whole file system");
    }
    // Missing files of the home cannot be guarded: keys, programs and files that run at the next login.
    if home == project {
        return refuse("it is your home directory");
    }
    if home.starts_with(project) {
        return refuse("it contains your home directory");
    }
    if agentsh_sandbox::layout::is_system(project)
        || ["/etc", "/proc", "/sys", "/dev", "/boot", "/run"].iter().any(|system| project.starts_with(system))
    {
        return refuse("it belongs to the system");
    }
    if ["/tmp", "/var", "/var/tmp", "/home", "/mnt", "/media", "/srv"]
        .iter()
        .any(|shared| project == Path::new(shared))
    {
        return refuse("it is shared by everybody");
    }
    Ok(())
}

/// For an ordinary user: that user. For root: the user who called sudo, else an unused id.
fn identity(env: &BTreeMap<String, String>) -> Identity {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid != 0 {
        return Identity::of(uid, gid);
    }
    let number = |name: &str| {
        env.get(name).and_then(|text| text.parse::<u32>().ok()).filter(|id| *id != 0 && *id != u32::MAX)
    };
    let own = match (number("SUDO_UID"), number("SUDO_GID")) {
        (Some(uid), Some(gid)) => Identity::of(uid, gid),
        _ => Identity {
            uid: FIRST_ORDINARY_ID,
            gid: FIRST_ORDINARY_ID,
            ..Identity::of(UNPRIVILEGED_ID, UNPRIVILEGED_ID)
        },
    };
    Identity { from_root: true, ..own }
}

fn id_maps(identity: Identity) -> (Option<IdMaps>, Vec<Enforcement>) {
    if !identity.from_root {
        return (None, Vec::new());
    }
    match IdMaps::new(identity) {
        Ok(maps) => (Some(maps), Vec::new()),
        Err(error) => {
            let why =
                format!("{error}: inside, files of root seem to belong to another user and may be read-only");
            (None, vec![Enforcement::weakened("id map", "id-mapped mounts", "none", State::Degraded, why)])
        }
    }
}

/// The path under which the running executable can be bound, and the identity that it must still have then.
fn own_executable() -> std::io::Result<(PathBuf, FileKey)> {
    let path = std::env::current_exe()?;
    let running = std::fs::File::open("/proc/self/exe")?;
    let key = agentsh_sandbox::mount_calls::file_key(std::os::fd::AsFd::as_fd(&running))?;
    Ok((path, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_directories_have_no_parent_parts_and_everything_else_stays() {
        let given = [
            ("XDG_CONFIG_HOME", "/p/xc/../xc/.", "/p/xc"),
            ("XDG_DATA_HOME", "/p/data//", "/p/data//"),
            ("XDG_STATE_HOME", "../x", "../x"),
            ("XDG_DATA_DIRS", "/a:/b/../c", "/a:/b/../c"),
            ("OTHER_HOME", "/a/../b", "/a/../b"),
        ];
        let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut env = given.map(|(name, value, _)| text((name, value))).into();
        without_parent_parts(&mut env);
        assert_eq!(env, given.map(|(name, _, plain)| text((name, plain))).into());
    }
}
