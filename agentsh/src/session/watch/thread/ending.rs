//! The last look, when everything inside has ended.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::names::Names;
use super::super::{changed, fresh};
use super::{Watch, set_aside};
use crate::sandbox::host::RealHost;
use crate::session::close_elsewhere::close_elsewhere;
use crate::session::undo::forget_old;
use crate::store::words::GuardChange;

/// Clocks of file systems are coarse.
const A_LITTLE: Duration = Duration::from_secs(1);

impl Watch {
    /// Everything inside has ended: a last look.
    pub(super) fn finish(mut self, is_armed: bool) {
        self.hear();
        for path in self.lost().unwrap_or_default() {
            if let Err(why) = self.settle(&path, false) {
                self.say(&path, GuardChange::NotPutBack, format!("cannot put back what was guarded: {why}"));
            }
        }
        let is_sure = is_armed && self.names.as_ref().is_some_and(|names| !names.is_incomplete);
        for path in std::mem::take(&mut self.tried) {
            let shown = path.strip_prefix(&self.keep.project).unwrap_or(&path).display().to_string();
            let text = format!(
                "{shown} was to be changed inside and stays as it is: it names programs that run outside; change it \
                 outside, or allow it: agent: {{filesystem: {{unmask: [{shown:?}]}}}}"
            );
            self.say(&path, GuardChange::Refused, text);
        }
        if self.newcomers.were_there() || !is_sure {
            self.look_for_new_repositories();
        }
        let now = changed::instructions(&self.directories, &self.host);
        for change in changed::compare(&self.instructions, &now) {
            // Without a copy the diff still tells.
            let _ = self.aside.keep(&change.path, &change.before);
            self.say(&change.path, GuardChange::Instructions, change.text);
        }
        forget_old(&self.state);
        let Self { closer, names, namespaces, mounted, .. } = self;
        let mut open = namespaces.into_descriptors();
        open.extend(names.map(Names::into_descriptor));
        open.extend(mounted.map(OwnedFd::from));
        close_elsewhere(&closer, open);
    }

    fn look_for_new_repositories(&mut self) {
        for git in fresh::repositories(&self.directories, &self.host) {
            if self.known.contains(&git) {
                continue;
            }
            if directories_with_something(&git, &self.host).is_empty() && !git.is_symlink() {
                continue;
            }
            // Somebody moved it here who had it before: it was not made inside.
            let born = git.symlink_metadata().and_then(|found| found.created());
            let is_older = born.is_ok_and(|born| born + A_LITTLE < self.started);
            let done = if is_older {
                Vec::new()
            } else {
                fresh::disarm(&git, &self.aside, &self.host, &|directory| self.is_new(directory))
            };
            let text = if done.is_empty() {
                format!("new repository: {}", git.display())
            } else {
                set_aside(&git, &done)
            };
            self.say(&git, GuardChange::NewRepository, text);
        }
    }
}

/// Directories of a new repository in which git, or another system, would look for something.
fn directories_with_something(entry: &Path, host: &RealHost) -> Vec<PathBuf> {
    let names = ["HEAD", "config", "hooks", "requires", "repo", "store"];
    let has_some = |directory: &PathBuf| names.iter().any(|name| directory.join(name).exists());
    fresh::directories_of(entry, host).into_iter().filter(has_some).collect()
}
