//! The last look, when everything inside has ended.

use std::os::fd::OwnedFd;

use super::super::names::Names;
use super::super::{changed, fresh};
use super::{Watch, set_aside};
use agentsh_host::copies::Copy;
use agentsh_host::undo::forget_old;
use agentsh_sandbox::placeholders;
use agentsh_store::words::GuardChange;

impl Watch {
    /// Everything inside has ended: a last look.
    pub(super) fn finish(mut self) {
        self.hear();
        for path in self.lost().unwrap_or_default() {
            if let Err(why) = self.settle(&path, false) {
                self.say(&path, GuardChange::NotPutBack, format!("cannot put back what was guarded: {why}"));
            }
        }
        // Everything inside is dead, so that nothing can be made behind this look.
        self.look_for_new_repositories();
        for path in self.baseline.arrivals() {
            let copy = Copy::of_own(&path);
            let is_stand_in = copy.is_nothing() && placeholders::is_stand_in(&self.state, &path);
            if !is_stand_in && !self.copies.contains_key(&path) {
                self.set_aside_arrival(&path, &copy);
            }
        }
        let now = changed::instructions(&self.instructed, &self.host);
        for change in changed::compare(&self.instructions, &now) {
            // Without a copy the diff still tells.
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
        /// New repositories that are told one by one although nothing was set aside in them.
        const MAX_TOLD: usize = 20;
        let mut untold = 0_usize;
        let mut told = 0;
        for (entry, done) in fresh::disarm_all(&self.directories, &self.baseline, &self.aside) {
            let text = match done.is_empty() {
                true if told >= MAX_TOLD => {
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
