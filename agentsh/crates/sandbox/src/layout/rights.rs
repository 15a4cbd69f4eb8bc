//! The Landlock rules that match the mounts.

use std::path::{Path, PathBuf};

use super::{Builder, OWN_DIRECTORY};
use crate::plan::{Access, Executable, LandlockAccess, LandlockRule, Mount, NodeContent};
use crate::policy::builtin_paths;
use crate::spec::{PinnedFile, Process, ProcessKind, SandboxSpec};

impl Builder<'_> {
    /// Read everywhere (the mounts limit that), write where a mount is writable. A rule applies to everything below,
    /// including other mounts.
    pub(super) fn landlock(&mut self, process: &Process) {
        let shown = self.rules;
        let execute = self.executable(process);
        let all = shown.execute.is_empty();
        let everywhere = if all { LandlockAccess::Read } else { LandlockAccess::ReadNoExecute };
        let mut rules = vec![LandlockRule { path: "/".into(), access: everywhere }];
        for path in &execute {
            rules.push(LandlockRule { path: path.clone(), access: LandlockAccess::Read });
        }
        let private = LandlockAccess::Write { execute: all, sockets: true };
        rules.push(LandlockRule { path: "/dev".into(), access: private });
        // `mq_open` uses the file system without its mount point.
        let queues = LandlockAccess::Write { execute: false, sockets: false };
        rules.push(LandlockRule { path: "/dev/mqueue".into(), access: queues });
        let listed = |target: &Path| all || shown.execute.iter().any(|path| target.starts_with(path));
        for mount in &self.layout.mounts {
            let target = &mount.target;
            let sockets = match &mount.what {
                NodeContent::Bind { access: Access::ReadWrite, .. } | NodeContent::Overlay { .. } => {
                    !self.is_shared(target)
                }
                // The mode applies to everything in the tmpfs.
                NodeContent::Tmpfs { mode, .. } if mode & 0o200 != 0 => {
                    !self.layout.mounts.iter().any(|inner| {
                        let bound =
                            matches!(&inner.what, NodeContent::Bind { access: Access::ReadWrite, .. });
                        bound && inner.target.starts_with(target) && self.is_shared(&inner.target)
                    })
                }
                _ => continue,
            };
            if !target.starts_with("/dev") {
                let sockets = shown.shared_sockets || sockets;
                let access = LandlockAccess::Write { execute: listed(target), sockets };
                rules.push(LandlockRule { path: target.clone(), access });
            }
        }
        if !all {
            let system = builtin_paths::SYSTEM_READ.iter().map(PathBuf::from);
            self.layout.executable = Executable::Below(system.chain(execute).collect());
        }
        self.layout.landlock = rules;
    }

    /// Whether other sandboxes may see a host directory: all except the program's own files.
    fn is_shared(&self, target: &Path) -> bool {
        !self.rules.own.iter().any(|own| target.starts_with(&own.value.path))
    }

    /// A script of the agent's command line that the agent may write, as it stands there: git could not replace a mount. It was
    /// compared with its hash right before. A guard, or the layer of review mode, may show another file.
    pub(super) fn is_shown_anyway(&self, spec: &SandboxSpec, file: &PinnedFile) -> bool {
        let between = |mount: &Mount, grant: &Path| {
            file.path.starts_with(&mount.target) && mount.target != grant && mount.target.starts_with(grant)
        };
        spec.process.kind == ProcessKind::Agent
            && !file.executable
            && self.rules.layer.is_none()
            && self.may_be_written(&file.path)
            && self
                .nearest_grant(&file.path)
                .is_some_and(|(grant, _)| !self.layout.mounts.iter().any(|mount| between(mount, grant)))
    }

    /// Executable files under `exec.allow`: the list, the pinned program that the user named, and the agent's bridge.
    fn executable(&self, process: &Process) -> Vec<PathBuf> {
        if self.rules.execute.is_empty() {
            return Vec::new();
        }
        let pinned = process.pinned.iter().filter(|file| file.executable).map(|file| file.path.clone());
        let bridge = process.bridge.iter().map(|_| Path::new(OWN_DIRECTORY).join("agentsh"));
        self.rules.execute.iter().cloned().chain(pinned).chain(bridge).collect()
    }
}
