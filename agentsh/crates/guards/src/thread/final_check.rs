//! The final check after all processes have ended.

use std::os::fd::OwnedFd;

use super::super::name_watcher::Names;
use super::super::{changed_instructions, disarm_new};
use super::{Watch, set_aside};
use agentsh_host::copies::Copy;
use agentsh_host::undo::forget_old;
use agentsh_sandbox::stubs;
use agentsh_store::words::GuardChange;

impl Watch {
    /// The final check after all processes have ended.
    pub(super) fn finish(mut self) {
        self.hear();
        for path in self.lost().unwrap_or_default() {
            if let Err(why) = self.settle(&path, false) {
                self.say(&path, GuardChange::NotPutBack, format!("cannot put back what was guarded: {why}"));
            }
        }
        // Nothing runs any more, so nothing appears after this check.
        self.look_for_new_repositories();
        for path in self.baseline.arrivals() {
            let copy = Copy::of_own(&path);
            let is_stub = copy.is_nothing() && stubs::is_stub(&self.state, &path);
            let is_guarded = self.copies.get(&path).is_some_and(|copy| *copy != Copy::Absent);
            if !is_stub && !is_guarded && self.removed.get(&path) != Some(&copy) {
                self.set_aside_arrival(&path, &copy);
            }
        }
        let now = changed_instructions::instructions(&self.instructed, &self.host);
        for change in changed_instructions::compare(&self.instructions, &now) {
            // Without a copy, the difference still shows it.
            let _ = self.aside.keep(&change.path, &change.before);
            self.say(&change.path, GuardChange::Instructions, change.text);
        }
        forget_old(&self.state);
        let Self { closer, names, namespaces, mounted, unfinished, .. } = self;
        drop(unfinished);
        let mut open = namespaces.into_descriptors();
        open.extend(names.map(Names::into_descriptor));
        open.extend(mounted.map(OwnedFd::from));
        closer.close(open);
    }

    fn look_for_new_repositories(&mut self) {
        /// Limit of reported repositories without set-aside files.
        const MAX_REPORTED: usize = 20;
        let mut untold = 0_usize;
        let mut told = 0;
        for (entry, done) in disarm_new::disarm_all(&self.directories, &self.baseline, &self.aside) {
            let text = match done.is_empty() {
                true if told >= MAX_REPORTED => {
                    untold += 1;
                    continue;
                }
                true => {
                    told += 1;
                    format!("new repository: {}", entry.display())
                }
                false => set_aside(&entry, &done),
            };
            self.say(&entry, GuardChange::NewRepository, text);
        }
        if untold > 0 {
            let text = format!("and {untold} more new repositories, in which nothing had to be set aside");
            self.say(&self.rules.project, GuardChange::NewRepository, text);
        }
    }
}
