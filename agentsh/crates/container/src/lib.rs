//! The container tier (`--tier container`): a sandbox without mounts (decision 270).
//!
//! Landlock rules replace bind mounts. A private directory holds the sandbox's own files (home, generated files), and
//! the program is told its path. Hidden files cannot be hidden, so the launch is refused. Guarded files are copied; the
//! final check of `agentsh-guards` restores them after the last process has ended.

mod connect;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use agentsh_host::copies::{Copy, write_anew};
use agentsh_net::EgressContext;
use agentsh_net::egress_context::Origin;
use agentsh_policy::builtin_paths::SYSTEM_READ;
use agentsh_sandbox::SpawnError;
use agentsh_sandbox::control::Cause;
use agentsh_sandbox::layout::{Layout, OWN_DIRECTORY};
use agentsh_sandbox::network::Sockets;
use agentsh_sandbox::plan::{Access, LandlockAccess, LandlockRule, Mount, NodeContent, Program, Source};
use agentsh_sandbox::seccomp::listener::Listener;
use agentsh_sandbox::spec::SandboxSpec;
use agentsh_store::Journal;

use connect::Connector;

/// Devices that every process uses and that reveal nothing about others. A terminal, if there is one, is bound by its
/// own name.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

const WRITE: LandlockAccess = LandlockAccess::Write { execute: true, sockets: true };

/// The private files of one sandbox, in place of a root. The directory is removed on drop.
pub struct ContainerFiles {
    directory: PathBuf,
    /// Guarded paths and what was there, to be restored when all processes have ended.
    pub guarded: BTreeMap<PathBuf, Copy>,
    /// The directories of sockets that the program may connect to.
    sockets: Vec<PathBuf>,
    connector: Option<Connector>,
}

impl ContainerFiles {
    /// Makes the private directory, and turns the layout into rules of Landlock.
    ///
    /// # Errors
    /// What this tier cannot do, and what to do about it.
    pub fn make(spec: &SandboxSpec, program: &mut Program, layout: &mut Layout) -> Result<Self, SpawnError> {
        let label = spec.process.label.clone();
        let refused =
            |message: String| SpawnError::Init { label: label.clone(), message, cause: Cause::Missing };
        if spec.paths.layer.is_some() {
            return Err(refused(
                "`--review` mounts a layer, which `--tier container` cannot; use only one of them".into(),
            ));
        }
        let directory =
            private().map_err(|error| refused(format!("cannot create a private directory: {error}")))?;
        let mut place = Self { directory, guarded: BTreeMap::new(), sockets: Vec::new(), connector: None };
        place.guard(layout).map_err(refused)?;
        let home = spec.environment.get("HOME").map(PathBuf::from);
        let executable = executable(layout);
        let mounts = std::mem::take(&mut layout.mounts);
        place.keep_what_is_in_writable(&mounts);
        let private = LandlockRule { path: place.directory.clone(), access: WRITE };
        let rules = rules_for_all().into_iter().chain([private]).collect();
        let mut fill =
            ContainerFiller { place: &place, home, rules, sockets: Vec::new(), linked: Vec::new() };
        let filled = mounts.iter().try_for_each(|mount| fill.take(mount));
        let (rules, sockets) = (std::mem::take(&mut fill.rules), std::mem::take(&mut fill.sockets));
        let home = fill.home.take();
        filled.map_err(|error| refused(format!("cannot fill its private directory: {error}")))?;
        layout.landlock = match executable {
            Some(listed) => rules.into_iter().map(without_execute).chain(listed).collect(),
            None => rules,
        };
        place.sockets = sockets;
        place.insert_own_directory(program, home.as_deref());
        Ok(place)
    }

    /// Keeps copies of what is guarded. What is hidden by policy has to be somewhere else.
    fn guard(&mut self, layout: &mut Layout) -> Result<(), String> {
        let private = std::mem::take(&mut layout.private);
        let is_copy = |mount: &Mount| private.iter().any(|path| mount.target.starts_with(path));
        layout.guards.retain(|mount| !is_copy(mount) || matches!(mount.what, NodeContent::Bind { .. }));
        layout.mounts.retain(|mount| !is_copy(mount));
        for Mount { target, what } in std::mem::take(&mut layout.guards) {
            let is_hidden = match what {
                NodeContent::Bind { access: Access::ReadOnly, .. } => false,
                NodeContent::Tmpfs { .. } | NodeContent::File { .. } => true,
                _ => continue,
            };
            if is_hidden {
                return Err(format!(
                    "the policy hides {}, but `--tier container` cannot hide anything below a visible directory; move it elsewhere, or add it to `unmask`",
                    target.display()
                ));
            }
            self.keep(target)?;
        }
        for (path, _) in std::mem::take(&mut layout.stubs) {
            self.keep(path)?;
        }
        Ok(())
    }

    fn keep(&mut self, path: PathBuf) -> Result<(), String> {
        let copy = Copy::of(&path);
        if has_unread(&copy) {
            return Err(format!(
                "cannot copy {}, and `--tier container` restores guarded files from a copy; add it to `unmask` if the program may change it",
                path.display()
            ));
        }
        self.guarded.insert(path, copy);
        Ok(())
    }

    /// Copies what would be mounted over a part of a writable directory, such as an agent's settings that start
    /// programs. Files too large to copy were pinned, not guarded.
    fn keep_what_is_in_writable(&mut self, mounts: &[Mount]) {
        let writable: Vec<&Path> =
            mounts.iter().filter(|mount| is_writable(mount)).map(|mount| &*mount.target).collect();
        for mount in mounts.iter().filter(|mount| !is_writable(mount)) {
            let target = &mount.target;
            if writable.iter().any(|above| target.starts_with(above) && target != above)
                && !self.guarded.contains_key(target)
            {
                // As above, without the refusal.
                let _ = self.keep(target.clone());
            }
        }
    }

    /// The program is told where its own files are.
    fn insert_own_directory(&self, program: &mut Program, home: Option<&Path>) {
        let own = self.own_directory();
        let own = own.to_string_lossy();
        for value in program.argv.iter_mut().chain(&mut program.env) {
            // A value that is not UTF-8 was not made here.
            if let Some(text) = value.to_str().filter(|text| text.contains(OWN_DIRECTORY)) {
                *value = text.replace(OWN_DIRECTORY, &own).into();
            }
        }
        let mut set = |name: &str, value: &str| {
            let is_other = |entry: &OsString| {
                entry.as_encoded_bytes().split(|byte| *byte == b'=').next() != Some(name.as_bytes())
            };
            program.env.retain(is_other);
            program.env.push(format!("{name}={value}").into());
        };
        if home.is_some() {
            set("HOME", &self.home().to_string_lossy());
        }
        set("TMPDIR", &self.directory.join("tmp").to_string_lossy());
        // Names are asked for over a connection: there is nothing else.
        set("RES_OPTIONS", "use-vc");
        // A file that may not be read stops git, where one that is not there would not.
        set("GIT_CONFIG_NOSYSTEM", "1");
        if home.is_some_and(|home| program.workdir == home) {
            program.workdir = self.home();
        }
    }

    fn own_directory(&self) -> PathBuf {
        self.directory.join("agentsh")
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// Begins to make the program's connections: those that an egress context lets through, or none.
    ///
    /// # Errors
    /// If they cannot be observed.
    pub fn connect(
        &mut self,
        listener: Option<Listener>,
        egress: Option<&EgressContext<Journal>>,
    ) -> io::Result<Option<Sockets>> {
        let listener = listener.ok_or(io::ErrorKind::NotFound)?;
        let told = egress.and_then(|egress| match &egress.origin {
            Origin::Told(told) => Some(told.clone()),
            _ => None,
        });
        let mut allowed = std::mem::take(&mut self.sockets);
        allowed.push(self.directory.clone());
        let (connector, sockets) = Connector::start(listener, told, allowed)?;
        self.connector = Some(connector);
        Ok(sockets)
    }
}

impl Drop for ContainerFiles {
    fn drop(&mut self) {
        self.connector = None;
        // What remains is private, and is removed with the machine's temporary files.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Decides for each mount of a layout where its content goes.
struct ContainerFiller<'p> {
    place: &'p ContainerFiles,
    home: Option<PathBuf>,
    rules: Vec<LandlockRule>,
    sockets: Vec<PathBuf>,
    /// Links to what is this machine's own: nothing is made below.
    linked: Vec<PathBuf>,
}

impl ContainerFiller<'_> {
    fn take(&mut self, mount: &Mount) -> io::Result<()> {
        let target = &mount.target;
        let inside = self
            .path_inside(target)
            .filter(|inside| !self.linked.iter().any(|link| inside.starts_with(link)));
        match (&mount.what, &inside) {
            (NodeContent::Bind { source: Source::Path { path, .. }, access, .. }, _) => {
                let access = match access {
                    Access::ReadOnly => LandlockAccess::Read,
                    Access::ReadWrite | Access::Device => WRITE,
                };
                if access != LandlockAccess::Read || inside.is_some() {
                    self.sockets.push(path.clone());
                }
                self.rules.push(LandlockRule { path: path.clone(), access });
                if let Some(inside) = inside.filter(|inside| inside.symlink_metadata().is_err()) {
                    create_parent(&inside)?;
                    symlink(path, &inside)?;
                    self.linked.push(inside);
                }
                Ok(())
            }
            (NodeContent::Copy { .. }, _) => {
                self.rules.push(LandlockRule { path: target.clone(), access: LandlockAccess::Read });
                Ok(())
            }
            (NodeContent::File { content, mode }, Some(inside)) => {
                create_parent(inside)?;
                if inside.symlink_metadata().is_ok() {
                    fs::remove_file(inside)?;
                }
                write_anew(inside, &self.translated(content), mode | 0o400)
            }
            // No other user may read it: mounts are made there.
            (NodeContent::Directory { mode: 0 }, _) => Ok(()),
            (NodeContent::Directory { mode }, Some(inside)) => {
                create_parent(&inside.join("."))?;
                fs::set_permissions(inside, fs::Permissions::from_mode(mode | 0o700))
            }
            (NodeContent::Tmpfs { .. } | NodeContent::Overlay { .. }, Some(inside)) => {
                create_parent(&inside.join("."))
            }
            (NodeContent::Symlink { to }, Some(inside)) if inside.symlink_metadata().is_err() => {
                create_parent(inside)?;
                symlink(to, inside)
            }
            _ => Ok(()),
        }
    }

    /// The path inside of a file that has no path on this machine.
    fn path_inside(&self, target: &Path) -> Option<PathBuf> {
        if let Ok(rest) = target.strip_prefix(OWN_DIRECTORY) {
            return Some(self.place.own_directory().join(rest));
        }
        let rest = target.strip_prefix(self.home.as_ref()?).ok()?;
        Some(self.place.home().join(rest))
    }

    fn translated(&self, content: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(content) {
            Ok(text) => {
                text.replace(OWN_DIRECTORY, &self.place.own_directory().to_string_lossy()).into_bytes()
            }
            Err(_) => content.to_vec(),
        }
    }
}

fn is_writable(mount: &Mount) -> bool {
    matches!(&mount.what, NodeContent::Bind { access: Access::ReadWrite, source: Source::Path { .. }, .. })
}

/// The rules for what may be executed, where a policy lists it.
fn executable(layout: &Layout) -> Option<Vec<LandlockRule>> {
    let is_listed = layout.landlock.first().is_some_and(|rule| rule.access == LandlockAccess::ReadNoExecute);
    let listed = layout.landlock.iter().filter(|rule| rule.access == LandlockAccess::Read).cloned();
    is_listed.then(|| listed.collect())
}

fn without_execute(rule: LandlockRule) -> LandlockRule {
    let access = match rule.access {
        LandlockAccess::Read | LandlockAccess::ReadNoExecute => LandlockAccess::ReadNoExecute,
        LandlockAccess::Write { sockets, .. } => LandlockAccess::Write { execute: false, sockets },
    };
    LandlockRule { access, ..rule }
}

fn create_parent(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(path))
}

/// The system, devices, and information of the kernel.
fn rules_for_all() -> Vec<LandlockRule> {
    let read = |path: &str| LandlockRule { path: path.into(), access: LandlockAccess::Read };
    let write = |path: &&str| LandlockRule {
        path: path.into(),
        access: LandlockAccess::Write { execute: false, sockets: false },
    };
    // Programs that look for these files find them missing in a private root, but refused here, which some of them
    // cannot handle.
    let of_python = fs::read_dir("/etc").into_iter().flatten().flatten().map(|entry| entry.path());
    let of_python = of_python.filter(|path| path.to_string_lossy().starts_with("/etc/python3"));
    let of_python = of_python.map(|path| LandlockRule { path, access: LandlockAccess::Read });
    SYSTEM_READ
        .iter()
        .map(|path| read(path))
        .chain(of_python)
        .chain([read("/proc")])
        .chain(DEVICES.iter().map(write))
        .collect()
}

fn has_unread(copy: &Copy) -> bool {
    match copy {
        Copy::Unread { .. } => true,
        Copy::Directory(entries) => entries.values().any(has_unread),
        _ => false,
    }
}

/// A directory that no other user may read, with a place for temporary files.
fn private() -> io::Result<PathBuf> {
    let name = agentsh_base::random::hex::<8>()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "made anew, for its user alone, under a name that nobody can guess"
    )]
    let directory = std::env::temp_dir().canonicalize()?.join(format!("agentsh-{name}"));
    fs::DirBuilder::new().mode(0o700).create(&directory)?;
    for below in ["tmp", "home", "agentsh"] {
        fs::DirBuilder::new().mode(0o700).create(directory.join(below))?;
    }
    Ok(directory)
}

/// Processes and threads that the kernel counts against the same limit.
#[must_use]
pub fn processes_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    let found = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_user = found.filter(|entry| {
        entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)
            && entry.metadata().is_ok_and(|meta| meta.uid() == own)
    });
    let threads = of_user.map(|entry| fs::read_dir(entry.path().join("task")).map_or(1, Iterator::count));
    threads.fold(0, |sum, count| sum.saturating_add(count as u64))
}
