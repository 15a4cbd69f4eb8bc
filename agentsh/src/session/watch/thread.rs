//! The thread itself: waits, stops the sandbox, compares, guards again.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::sync::mpsc::UnboundedSender;

use super::names::{Names, What};
use super::newcomers::Newcomers;
use super::{Told, changed, fresh, newcomers};
use crate::sandbox::freeze::Freezer;
use crate::sandbox::host::RealHost;
use crate::sandbox::idmap::IdMaps;
use crate::sandbox::layout::{self, Keep};
use crate::sandbox::mend::{Namespaces, mend};
use crate::sandbox::mounted::Mounted;
use crate::sandbox::placeholders::{self, Placeholders};
use crate::sandbox::plan::{Access, Executable, Mount, What as Made};
use crate::sandbox::{Closer, Zygote, spawn};
use crate::session::close_elsewhere::close_elsewhere;
use crate::session::copies::Copy;
use crate::session::launch::map_owned;
use crate::session::undo::{Aside, forget_old};
use crate::store::words::GuardChange;

/// After events that were about nothing guarded: a program that writes a lot costs little.
const REST: Duration = Duration::from_millis(3);
/// Clocks of file systems are coarse.
const A_LITTLE: Duration = Duration::from_secs(1);
/// Where not every name is told, repositories are looked for: no more often than this, and no longer than this part of
/// the time.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
const PART_OF_THE_TIME: u32 = 20;
/// The host may go on renaming meanwhile.
const MOST_TRIES: usize = 5;
/// Events of one name that are told apart.
const MOST_EVENTS: usize = 8;

pub(super) struct Watch {
    pub keep: Keep,
    pub guards: Vec<Mount>,
    pub executable: Executable,
    /// Repositories of before the run, and what was not guarded from the start.
    pub known: BTreeSet<PathBuf>,
    pub started: SystemTime,
    pub directories: Vec<PathBuf>,
    pub instructions: BTreeMap<PathBuf, (Copy, &'static str)>,
    pub state: PathBuf,
    pub aside: Aside,
    pub sandbox: OwnedFd,
    pub namespaces: Namespaces,
    /// None: nobody knows what is mounted in it.
    pub mounted: Option<Mounted>,
    pub freezer: Freezer,
    pub zygote: Zygote,
    /// Of the session's own.
    pub closer: Closer,
    pub host: RealHost,
    pub stand_ins: Vec<Placeholders>,
    /// Readable when the sandbox has ended.
    pub stop: OwnedFd,
    pub tell: UnboundedSender<Told>,
    pub copies: BTreeMap<PathBuf, Copy>,
    /// What happened to guarded names since they were last as they should be.
    pub seen: BTreeMap<PathBuf, Vec<What>>,
    pub names: Option<Names>,
    pub newcomers: Newcomers,
    /// When repositories are looked for, where not every name is told.
    pub look_again: Option<Instant>,
    /// What is guarded and was to be replaced inside, as far as its names tell.
    pub tried: BTreeSet<PathBuf>,
}

impl Watch {
    pub fn run(mut self) {
        self.known.extend(self.guards.iter().map(|mount| mount.target.clone()));
        self.names = Names::new().ok();
        self.watch_guarded();
        self.take_copies();
        if let Err(why) = self.check(false) {
            self.end(&why);
        }
        let mut is_armed = false;
        let mut rests_until = None;
        loop {
            let now = Instant::now();
            rests_until = rests_until.filter(|until| *until > now);
            let wake = [rests_until, self.newcomers.due(), self.look_again, (!is_armed).then_some(now)];
            let wait = wake.into_iter().flatten().min().map(|until| until.saturating_duration_since(now));
            let (has_ended, has_names, lost) = self.wait(wait, rests_until.is_none());
            if has_ended {
                break;
            }
            let mut matters = lost;
            if has_names {
                matters |= self.hear();
                rests_until = Some(Instant::now() + REST);
            }
            if self.look_again.is_some_and(|due| due <= Instant::now()) {
                self.look_for_newcomers();
            }
            let is_due = self.must_guard_newcomers();
            if (matters || is_due)
                && let Err(why) = self.check(is_due)
            {
                self.end(&why);
            }
            if !is_armed && !matters {
                is_armed = true;
                self.watch_tree();
                if self.is_incomplete() {
                    self.look_again = Some(Instant::now());
                }
            }
        }
        self.finish(is_armed);
    }

    /// What cannot be guarded does not run.
    fn end(&mut self, why: &str) {
        let text = format!("the sandbox was ended: what the host replaced could not be guarded again: {why}");
        self.say(&self.keep.project.clone(), GuardChange::Ended, text);
        spawn::kill(self.sandbox.as_fd());
        self.freezer.thaw();
    }

    /// Not every name is told: a repository may come into being unseen.
    fn is_incomplete(&self) -> bool {
        self.names.as_ref().is_none_or(|names| names.is_incomplete)
    }

    /// Whether a directory was not there before the run and is none of somebody else's, and lies where the sandbox may write.
    fn is_new(&self, directory: &Path) -> bool {
        let is_known = [directory.to_owned(), directory.join("config"), directory.join("hooks")]
            .iter()
            .any(|path| self.known.contains(path));
        // Whoever put a link on the way would lead us elsewhere.
        let is_inside = |root: &PathBuf| directory.starts_with(root) && !is_behind_link(directory, root);
        !is_known && self.directories.iter().any(is_inside)
    }

    fn must_guard_newcomers(&mut self) -> bool {
        let mut newcomers = std::mem::take(&mut self.newcomers);
        let must = newcomers.must_be_guarded(&self.host, &|directory| self.is_new(directory));
        self.newcomers = newcomers;
        must
    }

    fn look_for_newcomers(&mut self) {
        let start = Instant::now();
        for entry in fresh::repositories(&self.directories, &self.host) {
            if !self.newcomers.holds(&entry) {
                self.note_repository(&entry);
            }
        }
        self.look_again = Some(start + LOOK_AGAIN.max(start.elapsed() * PART_OF_THE_TIME));
    }

    /// While nothing runs: what would run by itself is taken out before the rest is guarded.
    fn disarm_newcomers(&mut self) {
        for entry in self.newcomers.take() {
            let done = fresh::disarm(&entry, &self.aside, &self.host, &|directory| self.is_new(directory));
            if !done.is_empty() {
                self.say(&entry, GuardChange::NewRepository, set_aside(&entry, &done));
            }
        }
    }

    /// Waits for the end, for names and for mounts.
    fn wait(&self, at_most: Option<Duration>, with_names: bool) -> (bool, bool, bool) {
        let mut wanted = vec![PollFd::new(self.stop.as_fd(), PollFlags::POLLIN)];
        match &self.mounted {
            Some(mounted) => wanted.push(PollFd::new(mounted.as_fd(), PollFlags::POLLPRI)),
            None => wanted.push(PollFd::new(self.stop.as_fd(), PollFlags::empty())),
        }
        if let Some(names) = self.names.as_ref().filter(|_| with_names) {
            wanted.push(PollFd::new(names.as_fd(), PollFlags::POLLIN));
        }
        let timeout = at_most.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
        });
        let timeout = if at_most == Some(Duration::ZERO) { PollTimeout::ZERO } else { timeout };
        if poll(&mut wanted, timeout).is_err() {
            return (false, false, false);
        }
        let is = |index: usize| {
            wanted.get(index).and_then(PollFd::revents).is_some_and(|events| !events.is_empty())
        };
        (is(0), is(2), is(1))
    }

    fn has_ended(&self) -> bool {
        self.wait(Some(Duration::ZERO), false).0
    }

    fn watch_guarded(&mut self) {
        let directories: BTreeSet<&Path> =
            self.guards.iter().filter_map(|mount| mount.target.parent()).collect();
        if let Some(names) = &mut self.names {
            directories.into_iter().for_each(|directory| names.watch(directory, true));
        }
    }

    /// Every directory in which a repository may come into being, as far as there is room.
    fn watch_tree(&mut self) {
        let mut open: std::collections::VecDeque<PathBuf> = self.directories.iter().cloned().collect();
        while let Some(directory) = open.pop_front() {
            if self.has_ended() {
                if let Some(names) = &mut self.names {
                    names.is_incomplete = true;
                }
                return;
            }
            open.extend(self.watch_new(&directory));
            if self.names.as_ref().is_none_or(|names| names.is_incomplete) {
                return;
            }
        }
    }

    /// Watches one directory; gives those in it.
    fn watch_new(&mut self, directory: &Path) -> Vec<PathBuf> {
        if let Some(names) = &mut self.names {
            names.watch(directory, false);
        }
        let mut inner = Vec::new();
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if newcomers::is_repository_name(&path) {
                self.note_repository(&path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name() == "node_modules" {
                    // Too much to be watched: it is looked at from time to time.
                    self.look_again.get_or_insert_with(Instant::now);
                } else {
                    inner.push(path);
                }
            }
        }
        inner
    }

    fn note_repository(&mut self, entry: &Path) {
        if !self.known.contains(entry) {
            self.newcomers.note(entry, self.names.as_mut(), &self.host);
        }
    }

    fn take_copies(&mut self) {
        for mount in &self.guards {
            if is_guard(mount) && !self.copies.contains_key(&mount.target) {
                self.copies.insert(mount.target.clone(), Copy::of_own(&mount.target));
            }
        }
    }

    /// What happened to names. True when something guarded may have lost its place.
    fn hear(&mut self) -> bool {
        let Some(names) = &mut self.names else { return false };
        let happened = names.happened();
        let mut matters = false;
        for (path, what, is_directory) in happened {
            self.note_attempt(&path, what);
            self.newcomers.hear(&path, self.names.as_mut(), &self.host);
            let is_held =
                self.copies.contains_key(&path) || self.known.contains(&path) || self.newcomers.holds(&path);
            if is_held {
                let seen = self.seen.entry(path.clone()).or_default();
                if seen.len() < MOST_EVENTS {
                    seen.push(what);
                }
                matters |= what != What::Written;
            }
            if matches!(what, What::Made | What::MovedHere) {
                if newcomers::is_repository_name(&path) {
                    self.note_repository(&path);
                } else if newcomers::begins_bare(&path) {
                    let above = path.parent().unwrap_or(&path).to_owned();
                    if !newcomers::is_repository_name(&above) && !self.newcomers.holds(&above) {
                        self.note_repository(&above);
                    }
                } else if is_directory && !is_held {
                    let mut open = vec![path];
                    while let Some(directory) = open.pop() {
                        open.extend(self.watch_new(&directory));
                    }
                }
            }
        }
        matters
    }

    /// Programs write a file anew beside it and rename: over a guard that fails, and what is beside it goes again.
    fn note_attempt(&mut self, path: &Path, what: What) {
        match what {
            What::Made if path.extension().is_some_and(|end| end == "lock") => {
                let guarded = path.with_extension("");
                if self.copies.contains_key(&guarded) {
                    self.tried.insert(guarded);
                }
            }
            // It was somebody outside.
            What::MovedHere | What::Written => drop(self.tried.remove(path)),
            _ => {}
        }
    }

    fn points(&mut self) -> Result<BTreeSet<PathBuf>, String> {
        let Some(mounted) = &mut self.mounted else { return Ok(BTreeSet::new()) };
        mounted.points().map(|points| points.into_iter().collect()).map_err(|error| error.to_string())
    }

    /// Guards whose place has nothing mounted on it any more.
    fn lost(&mut self) -> Result<BTreeSet<PathBuf>, String> {
        let points = self.points()?;
        let targets = self.guards.iter().map(|mount| &mount.target);
        Ok(targets.filter(|target| !points.contains(*target)).cloned().collect())
    }

    fn check(&mut self, in_any_case: bool) -> Result<(), String> {
        if self.has_ended() {
            return Ok(());
        }
        if self.mounted.is_none() {
            return Err("what is mounted in it cannot be looked at".to_owned());
        }
        if self.lost()?.is_empty() && !in_any_case {
            self.accept_from_outside();
            return Ok(());
        }
        self.freezer.freeze().map_err(|error| format!("it cannot be stopped: {error}"))?;
        let result = self.guard_again(in_any_case);
        if result.is_ok() {
            self.freezer.thaw();
        }
        result
    }

    /// Guarded, and changed all the same: it was somebody outside.
    fn accept_from_outside(&mut self) {
        for path in std::mem::take(&mut self.seen).into_keys() {
            if let Some(copy) = self.copies.get_mut(&path) {
                *copy = Copy::of_own(&path);
            }
        }
    }

    /// The kernel takes a mount away a moment before it puts the new file there: then this comes while everything inside
    /// stands still.
    fn accept_while_stopped(&mut self, mut touched: BTreeSet<PathBuf>) {
        touched.extend(std::mem::take(&mut self.seen).into_keys());
        for path in touched {
            let now = Copy::of_own(&path);
            let is_news = |copy: &Copy| *copy != now && !(copy.is_nothing() && now.is_nothing());
            if self.copies.get(&path).is_some_and(is_news) {
                self.say(&path, GuardChange::Replaced, replaced(&path));
                self.copies.insert(path, now);
            }
        }
    }

    /// Nothing runs inside.
    fn guard_again(&mut self, mut in_any_case: bool) -> Result<(), String> {
        let (mut why, mut touched) = (String::new(), BTreeSet::new());
        for attempt in 0..MOST_TRIES {
            self.hear();
            self.disarm_newcomers();
            let lost = self.lost()?;
            if lost.is_empty() && !in_any_case {
                self.accept_while_stopped(touched);
                return Ok(());
            }
            for path in &lost {
                // Since it was stopped, nobody inside has done anything.
                self.settle(path, attempt > 0)?;
            }
            touched.extend(lost);
            // Most of it we did ourselves.
            self.hear();
            touched.extend(std::mem::take(&mut self.seen).into_keys());
            match self.mount_again() {
                Ok(()) => in_any_case = false,
                Err(error) => why = error,
            }
        }
        match self.lost()?.into_iter().next() {
            Some(path) => Err(format!("{}: {why}", path.display())),
            None => {
                self.accept_while_stopped(touched);
                Ok(())
            }
        }
    }

    fn mount_again(&mut self) -> Result<(), String> {
        let layout = layout::guards(&self.keep, &self.host);
        let wanted = placeholders::wanted(&layout.placeholders);
        let made = Placeholders::make(&self.state, &wanted).map_err(|error| error.to_string())?;
        self.stand_ins.push(made);
        let points = self.points()?;
        let is_home =
            |mount: &Mount| mount.target == self.keep.home && matches!(mount.what, Made::Tmpfs { .. });
        let mut again: BTreeSet<PathBuf> = BTreeSet::new();
        let mut mounts = Vec::new();
        for mount in layout.guards.iter().filter(|mount| !is_home(mount)) {
            // What is mounted over a directory covers what was mounted below it.
            let is_covered = mount.target.ancestors().any(|above| again.contains(above));
            if is_covered || !points.contains(&mount.target) {
                again.insert(mount.target.clone());
                mounts.push(mount.clone());
            }
        }
        let mut passed = Vec::new();
        if self.keep.identity.from_root
            && let Ok(maps) = IdMaps::new(self.keep.identity)
        {
            map_owned(&maps, &mut mounts, &mut passed, &mut Vec::new());
        }
        if !mounts.is_empty() {
            let rules = (self.keep.identity, &self.executable);
            mend(&self.zygote, &self.namespaces, rules, mounts, &passed)?;
        }
        self.guards = layout.guards;
        self.watch_guarded();
        self.take_copies();
        Ok(())
    }

    /// What stands where a guard was: the host's, or what somebody inside made of it before it was stopped?
    fn settle(&mut self, path: &Path, is_stopped: bool) -> Result<(), String> {
        let Some(before) = self.copies.get(path).cloned() else { return Ok(()) };
        let seen = self.seen.remove(path).unwrap_or_default();
        let now = Copy::of_own(path);
        let is_known = self.names.as_ref().is_some_and(|names| !names.is_incomplete);
        let by_host = is_stopped || is_known && matches!(seen.as_slice(), [What::MovedHere | What::Gone]);
        let accepted = now == before
            || now.is_nothing()
            || by_host
            || before
                .text()
                .zip(now.text())
                .is_some_and(|(before, now)| is_git_config(path) && fresh::adds_only_harmless(before, now));
        let text = if accepted {
            // Anew, since somebody inside may have opened it.
            if let Err(error) = now.renew(path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(format!("{}: {error}", path.display()));
            }
            if now == before || now.is_nothing() {
                None
            } else {
                Some((GuardChange::Replaced, replaced(path)))
            }
        } else {
            self.aside.keep(path, &now).map_err(|error| format!("{}: {error}", path.display()))?;
            before.put_back(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Some((
                GuardChange::PutBack,
                format!(
                    "{} was changed while it was not guarded for a moment; it is as before, and `agentsh undo {}` \
                     gives what was found",
                    path.display(),
                    path.display()
                ),
            ))
        };
        let kept = if accepted { now } else { before };
        self.copies.insert(path.to_owned(), kept);
        if let Some((what, text)) = text {
            self.say(path, what, text);
        }
        Ok(())
    }

    /// Everything inside has ended: a last look.
    fn finish(mut self, is_armed: bool) {
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

    fn say(&self, path: &Path, what: GuardChange, text: String) {
        // A session that is gone hears nothing.
        let _ = self.tell.send(Told { path: path.to_owned(), what, text });
    }
}

fn set_aside(entry: &Path, done: &[String]) -> String {
    format!(
        "new repository: {}; what would have run by itself was set aside (`agentsh undo FILE` gives it back): {}",
        entry.display(),
        done.join("; ")
    )
}

/// Directories of a new repository in which git, or another system, would look for something.
fn directories_with_something(entry: &Path, host: &RealHost) -> Vec<PathBuf> {
    let names = ["HEAD", "config", "hooks", "requires", "repo", "store"];
    let has_some = |directory: &PathBuf| names.iter().any(|name| directory.join(name).exists());
    fresh::directories_of(entry, host).into_iter().filter(has_some).collect()
}

/// Whether a link stands between a directory of the host and something below it.
fn is_behind_link(path: &Path, root: &Path) -> bool {
    path.ancestors().take_while(|above| *above != root && above.starts_with(root)).any(Path::is_symlink)
}

fn replaced(path: &Path) -> String {
    format!("{} was replaced outside the sandbox, and is guarded again", path.display())
}

/// What stands at these guards now.
pub(super) fn copies<'m>(guards: impl Iterator<Item = &'m Mount>) -> BTreeMap<PathBuf, Copy> {
    guards
        .filter(|mount| is_guard(mount))
        .map(|mount| (mount.target.clone(), Copy::of_own(&mount.target)))
        .collect()
}

/// Read-only, and of the host: not a directory that is only held in its place.
fn is_guard(mount: &Mount) -> bool {
    matches!(mount.what, Made::Bind { access: Access::ReadOnly, .. })
}

fn is_git_config(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "config" || name == "config.worktree")
}
