//! Checks all guards and restores the missing ones while the sandbox is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::name_watcher::NameChange;
use super::super::new_repositories;
use super::super::{disarm_new, final_check};
use super::Watch;
use agentsh_host::copies::Copy;
use agentsh_sandbox::idmap::IdMaps;
use agentsh_sandbox::layout;
use agentsh_sandbox::plan::{Access, Mount, NodeContent as Made};
use agentsh_sandbox::remount_guards::remount;
use agentsh_sandbox::stubs::{self, StubFiles};
use agentsh_store::words::GuardChange;

/// Guarded files that get a stub because they appeared.
const MAX_APPEARED: usize = 64;
/// The host may keep renaming.
const MAX_TRIES: usize = 5;
/// Pause between two looks at what the host is removing; time without a change after which it counts as done; and the
/// maximum, because the sandbox is stopped meanwhile.
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);
const REMOVAL_QUIET: Duration = Duration::from_millis(400);
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

impl Watch {
    pub(super) fn take_copies(&mut self) {
        for mount in &self.guards {
            if is_guard(mount) && !self.copies.contains_key(&mount.target) {
                self.copies.insert(mount.target.clone(), Copy::of_own(&mount.target));
            }
        }
    }

    fn points(&mut self) -> Result<BTreeSet<PathBuf>, String> {
        let Some(mounted) = &mut self.mounted else { return Ok(BTreeSet::new()) };
        mounted.points().map(|points| points.into_iter().collect()).map_err(|error| error.to_string())
    }

    /// Entries whose removal began are guarded again if they still exist when it should be done.
    pub(super) fn release(&mut self) {
        let (released, lost, expected) = {
            let names = &mut *self.guarded.lock();
            let lists = (&mut names.released, &mut names.lost, &mut names.expected);
            (std::mem::take(lists.0), std::mem::take(lists.1), std::mem::take(lists.2))
        };
        lost.iter().for_each(|lost| self.check.baseline.forget_repository(lost));
        self.check.baseline.expect(expected);
        for gone in released {
            self.check.baseline.unguard(&gone);
            self.guards.retain(|mount| !mount.target.starts_with(&gone));
            self.targets.retain(|target| !target.starts_with(&gone));
            self.copies.retain(|target, _| !target.starts_with(&gone));
            if new_repositories::is_repository(&gone) {
                self.new_repository_watcher.note(&gone, self.names.as_mut(), &self.check.host);
            }
        }
    }

    /// Guards that are no longer mounted.
    pub(super) fn lost_guards(&mut self) -> Result<BTreeSet<PathBuf>, String> {
        self.release();
        let points = self.points()?;
        let targets = self.guards.iter().map(|mount| &mount.target);
        Ok(targets.filter(|target| !points.contains(*target)).cloned().collect())
    }

    pub(super) fn check(&mut self, in_any_case: bool) -> Result<(), String> {
        if self.has_ended() {
            return Ok(());
        }
        if self.mounted.is_none() {
            return Err("cannot check what is mounted in it".to_owned());
        }
        if self.lost_guards()?.is_empty() && !in_any_case {
            self.accept_from_outside();
            return Ok(());
        }
        self.freezer.freeze().map_err(|error| format!("it cannot be stopped: {error}"))?;
        let result = self.restore_guards(in_any_case);
        if result.is_ok() {
            self.freezer.thaw();
        }
        result
    }

    /// A guarded path changed anyway: by the host.
    fn accept_from_outside(&mut self) {
        for path in std::mem::take(&mut self.seen).into_keys() {
            if self.copies.contains_key(&path) {
                let now = Copy::of_own(&path);
                self.note_copy(&path, now);
            }
        }
    }

    /// Records what is at a guarded path from now on. If the host removed it, the next file there is new.
    fn note_copy(&mut self, path: &Path, now: Copy) {
        let is_gone = now == Copy::Absent;
        let before = self.copies.insert(path.to_owned(), now).filter(|before| *before != Copy::Absent);
        if let Some(before) = before.filter(|_| is_gone) {
            self.check.baseline.forget(path);
            self.targets.remove(path);
            self.removed.insert(path.to_owned(), before);
        }
    }

    /// Waits until the host has removed what it is removing, because a stub that comes back would keep the directory from
    /// being removed. Nothing runs inside meanwhile.
    fn await_removal(&self, lost: &BTreeSet<PathBuf>) {
        let is_gone = |path: &&PathBuf| path.symlink_metadata().is_err();
        let mut directories: BTreeSet<&Path> = BTreeSet::new();
        for path in lost.iter().filter(is_gone) {
            let above = path.ancestors().skip(1).take(2);
            directories.extend(above.filter(|above| above.starts_with(&self.rules.project)));
        }
        if directories.is_empty() {
            return;
        }
        // When each was changed, and what is in it.
        let state = || -> Vec<_> {
            let below =
                directories.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten().flatten();
            let below =
                below.map(|entry| entry.path()).chain(directories.iter().map(|path| path.to_path_buf()));
            let found = below.filter_map(|path| path.symlink_metadata().ok());
            found.map(|found| (found.ino(), found.mtime(), found.mtime_nsec())).collect()
        };
        let (start, mut before, mut since) = (Instant::now(), state(), Instant::now());
        while start.elapsed() < REMOVAL_TIMEOUT && since.elapsed() < REMOVAL_QUIET && !before.is_empty() {
            std::thread::sleep(REMOVAL_PAUSE);
            let now = state();
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    /// The kernel removes a mount shortly before the new file appears, so an event may arrive while the sandbox is
    /// stopped.
    fn accept_while_stopped(&mut self, lost: &BTreeSet<PathBuf>, mut seen: BTreeSet<PathBuf>) {
        seen.extend(std::mem::take(&mut self.seen).into_keys());
        for path in lost.union(&seen) {
            let now = Copy::of_own(path);
            let is_news = |copy: &Copy| *copy != now && !(copy.is_nothing() && now.is_nothing());
            if self.copies.get(path).is_some_and(is_news) {
                // Else the session wrote it, or the host did in place: its guard was never gone.
                if now != Copy::Absent && lost.contains(path) {
                    self.report_change(path, GuardChange::Replaced, replaced_message(path));
                }
                // The kernel takes a mount away before its file, so that the file may still have been there.
                self.note_copy(path, now);
            }
        }
    }

    /// Nothing runs inside.
    fn restore_guards(&mut self, mut in_any_case: bool) -> Result<(), String> {
        let (mut why, mut all_lost, mut seen) = (String::new(), BTreeSet::new(), BTreeSet::new());
        for attempt in 0..MAX_TRIES {
            self.read_events();
            self.disarm_newcomers();
            in_any_case |= self.set_aside_arrivals();
            let lost = self.lost_guards()?;
            if lost.is_empty() && !in_any_case {
                self.accept_while_stopped(&all_lost, seen);
                return Ok(());
            }
            self.await_removal(&lost);
            for path in &lost {
                // Since the stop nothing inside has run.
                self.judge_replacement(path, attempt > 0)?;
            }
            all_lost.extend(lost);
            // Mostly our own events.
            self.read_events();
            seen.extend(std::mem::take(&mut self.seen).into_keys());
            match self.remount_guards_in_sandbox() {
                Ok(()) => in_any_case = false,
                Err(error) => why = error,
            }
        }
        match self.lost_guards()?.into_iter().next() {
            Some(path) => Err(format!("{}: {why}", path.display())),
            None => {
                self.accept_while_stopped(&all_lost, seen);
                Ok(())
            }
        }
    }

    /// Sets aside new automatically run files, replaced by stubs. Call while nothing runs.
    fn set_aside_arrivals(&mut self) -> bool {
        let arrivals = std::mem::take(&mut self.arrivals);
        let mut is_any = false;
        for path in arrivals {
            let is_guarded = self.targets.contains(&path) && !self.check.baseline.leads_away(&path);
            if is_guarded || !self.unfinished.is_in_place(&path) {
                continue;
            }
            let (found, copy) = self.check.baseline.found_at(&path, &self.check.directories);
            if copy == Copy::Absent {
                continue;
            }
            if self.removed.get(&found) == Some(&copy) {
                // The host put it back.
                is_any = true;
                continue;
            }
            // Another sandbox's stub stays.
            if !(copy.is_nothing() && stubs::is_stub(&self.check.state, &found)) {
                let why = self.check.baseline.obeyed_reason(&path);
                let (what, text) = final_check::set_aside_arrival(
                    &self.rules.project,
                    &found,
                    &copy,
                    &self.check.aside,
                    why,
                );
                self.report_change(&found, what, text);
            }
            // Without a stub it may be made again, and is set aside again.
            is_any |= found == path
                && self.rules.with_stub.len() < MAX_APPEARED
                && self.rules.with_stub.insert(path);
        }
        is_any
    }

    fn remount_guards_in_sandbox(&mut self) -> Result<(), String> {
        let layout = layout::guards(&self.rules, &self.check.host);
        let wanted = stubs::wanted_stubs(&layout.stubs);
        let made = StubFiles::make(&self.check.state, &wanted).map_err(|error| error.to_string())?;
        self.stubs.push(made);
        let points = self.points()?;
        let is_home =
            |mount: &Mount| mount.target == self.rules.home && matches!(mount.what, Made::Tmpfs { .. });
        let mut again: BTreeSet<PathBuf> = BTreeSet::new();
        let mut mounts = Vec::new();
        for mount in layout.guards.iter().filter(|mount| !is_home(mount)) {
            // A mount over a directory hides mounts below it.
            let is_covered = mount.target.ancestors().any(|above| again.contains(above));
            if is_covered || !points.contains(&mount.target) {
                again.insert(mount.target.clone());
                mounts.push(mount.clone());
            }
        }
        let mut passed = Vec::new();
        if self.identity.from_root
            && let Ok(maps) = IdMaps::new(self.identity)
        {
            maps.map_owned(&mut mounts, &mut passed, &mut Vec::new());
        }
        if !mounts.is_empty() {
            let rules = (self.identity, &self.executable);
            remount(&self.zygote, &self.namespaces, rules, mounts, &passed)?;
        }
        self.targets.extend(layout.guards.iter().map(|mount| mount.target.clone()));
        self.guarded.add(&layout);
        self.check.baseline.expect(layout.expected);
        self.guards = layout.guards;
        self.watch_guarded();
        self.take_copies();
        Ok(())
    }

    /// Decides whether the host or a program inside replaced a guarded file.
    pub(super) fn judge_replacement(&mut self, path: &Path, is_stopped: bool) -> Result<(), String> {
        let Some(before) = self.copies.get(path).cloned() else { return Ok(()) };
        let seen = self.seen.remove(path).unwrap_or_default();
        let now = Copy::of_own(path);
        let is_known = self.names.as_ref().is_some_and(|names| !names.is_incomplete);
        // A change after the mount was gone may be anybody's.
        let by_host = is_stopped || is_known && matches!(seen.as_slice(), [NameChange::MovedHere]);
        let accepted = now == before
            || now.is_nothing()
            || by_host
            || before.text().zip(now.text()).is_some_and(|(before, now)| {
                is_git_config(path) && disarm_new::adds_only_harmless(before, now)
            });
        let text = if accepted {
            // As a new file, because a program may have the old one open.
            if let Err(error) = now.renew(path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(format!("{}: {error}", path.display()));
            }
            if now == before || now.is_nothing() {
                None
            } else {
                Some((GuardChange::Replaced, replaced_message(path)))
            }
        } else {
            self.check.aside.keep(path, &now).map_err(|error| format!("{}: {error}", path.display()))?;
            before.put_back(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Some((
                GuardChange::PutBack,
                format!(
                    "{} was changed while it was unguarded; agentsh restored it, and {} restores the \
                     changed version",
                    path.display(),
                    final_check::undo(path)
                ),
            ))
        };
        self.note_copy(path, if accepted { now } else { before });
        if let Some((what, text)) = text {
            self.report_change(path, what, text);
        }
        Ok(())
    }
}

fn replaced_message(path: &Path) -> String {
    format!("{} changed during the run, and is guarded again", path.display())
}

/// Copies of these guards.
pub(in super::super) fn copies<'m>(guards: impl Iterator<Item = &'m Mount>) -> BTreeMap<PathBuf, Copy> {
    let guards = guards.filter(|mount| is_guard(mount));
    Copy::of_all(guards.map(|mount| mount.target.as_path())).into_iter().collect()
}

/// A read-only host mount, not one that only keeps a place.
pub(in super::super) fn is_guard(mount: &Mount) -> bool {
    matches!(mount.what, Made::Bind { access: Access::ReadOnly, .. })
}

fn is_git_config(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "config" || name == "config.worktree")
}
