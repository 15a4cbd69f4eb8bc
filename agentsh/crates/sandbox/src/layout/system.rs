//! What every sandbox has: system directories, private directories, generated files.

use std::path::{Path, PathBuf};

use super::{Builder, OWN_DIRECTORY, RelocatedPath, SandboxSpec};
use crate::etc;
use crate::host::PathKind;
use crate::plan::{Access, Kind, Mount, NodeContent, Source};
use crate::policy::builtin_paths;

/// Descriptions of the invoking user's kernel keys, visible to all processes with that user id.
const HIDDEN_IN_PROC: [&str; 2] = ["keys", "key-users"];

impl Builder<'_> {
    /// Read-only system directories; `/bin` and friends are symlinks on merged systems. What is small may be copied: a mount
    /// costs ten times as much, to make and to take down again.
    pub(super) fn system(&mut self) {
        for path in builtin_paths::SYSTEM_READ.iter().map(Path::new) {
            if is_generated(path) {
                continue;
            }
            let kind = match self.host.path_kind(path) {
                Some(PathKind::Directory) => Kind::Directory,
                Some(PathKind::File) => Kind::File,
                Some(PathKind::Symlink) => {
                    if let Some(to) = self.host.link(path) {
                        self.push(path, NodeContent::Symlink { to });
                    }
                    continue;
                }
                _ => continue,
            };
            if let Some(tree) = self.host.small_tree(path).filter(|_| path.starts_with("/etc")) {
                self.layout.copied.insert(path.to_owned(), tree);
            }
            self.bind(path, Access::ReadOnly, kind);
        }
    }

    /// Hardware facts that programs read: processors, memory, disks. Nothing that identifies the machine, such as
    /// network interfaces and addresses.
    pub(super) fn machine(&mut self) {
        for path in builtin_paths::MACHINE.iter().map(Path::new) {
            if self.host.path_kind(path) == Some(PathKind::Directory) {
                self.bind(path, Access::ReadOnly, Kind::Directory);
            }
        }
        for (links, device) in self.host.disks() {
            self.bind(&device, Access::ReadOnly, Kind::Directory);
            for (link, to) in links {
                self.push(link, NodeContent::Symlink { to });
            }
        }
    }

    pub(super) fn private(&mut self, spec: &SandboxSpec) {
        self.push("/proc", NodeContent::Proc);
        for name in HIDDEN_IN_PROC {
            self.hide(&Path::new("/proc").join(name));
        }
        self.push("/dev", NodeContent::Directory { mode: 0o755 });
        for name in ["null", "zero", "full", "urandom", "tty"] {
            let path = Path::new("/dev").join(name);
            if (name != "tty" || spec.process.kind.is_agent()) && self.host.path_kind(&path).is_some() {
                self.bind(&path, Access::Device, Kind::File);
            }
        }
        if let Some(terminal) = &spec.process.terminal_device {
            let source = Source::Path { path: terminal.clone(), expect: None, no_links: true };
            self.push("/dev/console", NodeContent::Bind { source, access: Access::Device, kind: Kind::File });
        }
        for (link, to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
            // The same since Linux 5.18.
            ("random", "urandom"),
        ] {
            self.push(Path::new("/dev").join(link), NodeContent::Symlink { to: to.into() });
        }
        self.push("/dev/pts", NodeContent::Devpts);
        self.push("/dev/mqueue", NodeContent::Mqueue);
        for (path, mode) in [("/dev/shm", 0o1777), ("/tmp", 0o1777), ("/var/tmp", 0o1777)] {
            self.push(path, NodeContent::Tmpfs { bytes: self.rules.private_bytes, mode });
        }
        self.push("/run", NodeContent::Directory { mode: 0o755 });
    }

    /// If nothing is visible in `/var/tmp`, it is another name of `/tmp`: both live as long as the sandbox.
    pub(super) fn one_temporary_directory(&mut self) {
        let other = Path::new("/var/tmp");
        let mut within = self.layout.mounts.iter_mut().filter(|mount| mount.target.starts_with(other));
        if let (Some(mount), None) = (within.next(), within.next()) {
            mount.what = NodeContent::Symlink { to: "/tmp".into() };
        }
    }

    pub(super) fn generated(&mut self, spec: &SandboxSpec) {
        let process = &spec.process;
        let [users, groups, hosts] =
            ["/etc/passwd", "/etc/group", "/etc/hosts"].map(|file| self.host.names_in(Path::new(file)));
        let (user, shell) = self.host.account(process.identity.host_uid, &users);
        let shell = shell.filter(|shell| super::is_system(shell));
        let user = user.as_ref().unwrap_or(&process.user);
        let passwd = etc::passwd(process.identity, user, &self.rules.home, shell.as_deref(), &users);
        for (path, content) in [
            ("/etc/passwd", passwd),
            ("/etc/group", etc::group(process.identity, &groups)),
            ("/etc/hosts", etc::hosts(&hosts)),
            ("/etc/resolv.conf", etc::resolv_conf()),
            ("/etc/nsswitch.conf", etc::nsswitch_conf()),
        ] {
            self.push(path, NodeContent::File { content, mode: 0o644 });
        }
        if let Some((path, key)) = &process.bridge {
            let source = Source::Path { path: path.clone(), expect: Some(*key), no_links: false };
            self.push(
                Path::new(OWN_DIRECTORY).join("agentsh"),
                NodeContent::Bind { source, access: Access::ReadOnly, kind: Kind::File },
            );
        }
        self.add_relocated(&spec.placed.elsewhere);
        for cache in &spec.placed.caches {
            let source = |path: &PathBuf| Source::Path { path: path.clone(), expect: None, no_links: false };
            let (lower, layer) = (source(&cache.lower), source(&cache.layer));
            self.push(&cache.inside, NodeContent::Overlay { lower, layer, or_upper: true });
        }
        for file in &spec.placed.files {
            self.push(&file.path, NodeContent::File { content: file.content.clone(), mode: file.mode });
        }
        // Debian's /etc/profile sets a PATH of the system alone; the user's own profile, which adds to it, is not shown.
        let profile = self.rules.home.join(".profile");
        if let Some(path) = spec.environment.get("PATH").filter(|_| self.is_private(&profile)) {
            let content = format!("PATH='{}'\nexport PATH\n", path.replace('\'', "'\\''")).into_bytes();
            self.push(profile, NodeContent::File { content, mode: 0o644 });
        }
    }

    /// Whether nothing of the host is shown at a path, and no generated file.
    pub(super) fn is_private(&self, path: &Path) -> bool {
        let above = self.layout.mounts.iter().rev().find(|mount| path.starts_with(&mount.target));
        above.is_some_and(|mount| matches!(mount.what, NodeContent::Tmpfs { .. }))
    }

    pub(super) fn add_relocated(&mut self, shown: &[RelocatedPath]) {
        let before = self.layout.mounts.len();
        for RelocatedPath { host, inside, access } in shown {
            let again = if host == inside { self.laid_over(inside, before) } else { Some(Vec::new()) };
            let Some(again) = again else { continue };
            let kind = if self.host.path_kind(host) == Some(PathKind::Directory) {
                Kind::Directory
            } else {
                Kind::File
            };
            let source = Source::Path { path: host.clone(), expect: None, no_links: false };
            self.push(inside, NodeContent::Bind { source, access: *access, kind });
            self.layout.mounts.extend(again);
        }
    }

    /// Masks and guards of a host directory, applied to its second visible path. None: it is hidden itself.
    fn laid_over(&self, place: &Path, before: usize) -> Option<Vec<Mount>> {
        let mounts = self.layout.mounts.get(..before).unwrap_or_default();
        let is_bind = |mount: &Mount| matches!(mount.what, NodeContent::Bind { .. });
        let covering: Vec<&Mount> = mounts.iter().filter(|mount| place.starts_with(&mount.target)).collect();
        if covering.iter().any(|mount| is_bind(mount)) && !covering.last().is_some_and(|mount| is_bind(mount))
        {
            return None;
        }
        let is_below = |mount: &&Mount| mount.target != place && mount.target.starts_with(place);
        Some(mounts.iter().filter(is_below).cloned().collect())
    }
}

/// System files that get generated content instead of the host's.
fn is_generated(path: &Path) -> bool {
    ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"]
        .iter()
        .any(|generated| path == Path::new(generated))
}
