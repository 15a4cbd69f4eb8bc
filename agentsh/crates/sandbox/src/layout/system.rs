//! What every sandbox has: directories of the system, private places, and files with content of their own.

use std::path::{Path, PathBuf};

use super::{Builder, Elsewhere, OWN_DIRECTORY};
use crate::etc;
use crate::host::{Found, Small};
use crate::plan::{Access, Kind, Source, What};
use crate::policy::builtin_paths;

/// Descriptions of the invoking user's keys: shown to every process of the same user id.
const HIDDEN_IN_PROC: [&str; 2] = ["keys", "key-users"];

impl Builder<'_> {
    /// Read-only system directories; `/bin` and friends are symlinks on merged systems. Small files are copied: a mount
    /// costs ten times as much, to make and to take down again.
    pub(super) fn system(&mut self) {
        for path in builtin_paths::SYSTEM_READ.iter().map(Path::new) {
            if is_generated(path) {
                continue;
            }
            let kind = match self.host.look(path) {
                Some(Found::Directory) => Kind::Directory,
                Some(Found::File) => Kind::File,
                Some(Found::Symlink) => {
                    if let Some(to) = self.host.link(path) {
                        self.push(path, What::Symlink { to });
                    }
                    continue;
                }
                _ => continue,
            };
            let copied = if path.starts_with("/etc") { self.host.small(path) } else { None };
            match copied {
                Some(copied) => self.copies(copied),
                None => self.bind(path, Access::ReadOnly, kind),
            }
        }
    }

    fn copies(&mut self, copied: Vec<(PathBuf, Small)>) {
        for (path, small) in copied {
            let what = match small {
                Small::Directory { mode } => What::Directory { mode },
                Small::File { content, mode } => What::File { content, mode },
                Small::Symlink { to } => What::Symlink { to },
            };
            self.push(path, what);
        }
    }

    pub(super) fn private(&mut self) {
        self.push("/proc", What::Proc);
        for name in HIDDEN_IN_PROC {
            self.hide(&Path::new("/proc").join(name));
        }
        self.push("/dev", What::Directory { mode: 0o755 });
        for name in ["null", "zero", "full", "random", "urandom", "tty"] {
            let path = Path::new("/dev").join(name);
            if (name != "tty" || self.request.for_agent) && self.host.look(&path).is_some() {
                self.bind(&path, Access::Device, Kind::File);
            }
        }
        if let Some(terminal) = &self.request.terminal {
            let source = Source::Path { path: terminal.clone(), expect: None, no_links: true };
            self.push("/dev/console", What::Bind { source, access: Access::Device, kind: Kind::File });
        }
        for (link, to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            self.push(Path::new("/dev").join(link), What::Symlink { to: to.into() });
        }
        self.push("/dev/pts", What::Devpts);
        for (path, mode) in [("/dev/shm", 0o1777), ("/tmp", 0o1777), ("/var/tmp", 0o1777)] {
            self.push(path, What::Tmpfs { bytes: self.request.private_bytes, mode });
        }
        self.push("/run", What::Directory { mode: 0o755 });
    }

    pub(super) fn generated(&mut self) {
        let request = self.request;
        let passwd = etc::passwd(request.identity, request.user, request.home);
        for (path, content) in [
            ("/etc/passwd", passwd),
            ("/etc/group", etc::group(request.identity)),
            ("/etc/hosts", etc::hosts()),
            ("/etc/resolv.conf", etc::resolv_conf()),
            ("/etc/nsswitch.conf", etc::nsswitch_conf()),
        ] {
            self.push(path, What::File { content, mode: 0o644 });
        }
        if let Some((path, key)) = request.bridge {
            let source = Source::Path { path: path.to_owned(), expect: Some(key), no_links: false };
            self.push(
                Path::new(OWN_DIRECTORY).join("agentsh"),
                What::Bind { source, access: Access::ReadOnly, kind: Kind::File },
            );
        }
        self.elsewhere(&request.extra);
        for cache in &request.caches {
            let source = |path: &PathBuf| Source::Path { path: path.clone(), expect: None, no_links: false };
            let (lower, layer) = (source(&cache.lower), source(&cache.layer));
            self.push(&cache.inside, What::Overlay { lower, layer, or_upper: true });
        }
        for (path, content, mode) in &request.files {
            self.push(path, What::File { content: content.clone(), mode: *mode });
        }
    }

    pub(super) fn elsewhere(&mut self, shown: &[Elsewhere]) {
        for Elsewhere { host, inside, access } in shown {
            let kind =
                if self.host.look(host) == Some(Found::Directory) { Kind::Directory } else { Kind::File };
            let source = Source::Path { path: host.clone(), expect: None, no_links: false };
            self.push(inside, What::Bind { source, access: *access, kind });
        }
    }
}

/// System files that get generated content instead of the host's.
fn is_generated(path: &Path) -> bool {
    ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf"]
        .iter()
        .any(|generated| path == Path::new(generated))
}
