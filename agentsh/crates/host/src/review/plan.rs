//! Which changes are applied, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::apply::{Applier, Content, NOT_SHOWN, Outcome, Step};
use super::changes::{Change, State};
use super::directory_handle::{DirectoryHandle, Kind, Stamp};
use super::hard_links::Names;
use super::journal::{AppliedChange, ApplyHeader, Line, Mark, Merged, Run, Staged};
use super::{APPLYING, Context, Result, Review, ReviewError, io_at, lock};

/// The requested paths and options.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Relative to the project; empty for everything.
    pub paths: Vec<PathBuf>,
    /// Includes files that run automatically outside.
    pub guarded: bool,
}

impl Selection {
    fn names(&self, path: &Path) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|selected| path.starts_with(selected))
    }
}

/// The outcome of an apply or undo.
#[derive(Debug, Default)]
pub struct Applied {
    pub applied: Vec<PathBuf>,
    pub conflicts: Vec<(PathBuf, String)>,
    /// Left because they run automatically outside, and were not named.
    pub guarded: Vec<(PathBuf, String)>,
    /// Never applied.
    pub refused: Vec<(PathBuf, String)>,
    /// Names that do not exist in the layer.
    pub unknown: Vec<PathBuf>,
    /// Nothing of the layer is left to apply.
    pub is_complete: bool,
}

impl Review {
    fn lock_for_apply(&self) -> Result<std::fs::File> {
        lock(&self.directory, APPLYING)?
            .ok_or_else(|| ReviewError::Refused("another process is applying this layer".to_owned()))
    }

    /// After a kill: makes every file whole. Gives what a person has to look at.
    ///
    /// # Errors
    /// When the project cannot be opened, or the journal not be written.
    pub fn finish_interrupted(&self) -> Result<Vec<(PathBuf, String)>> {
        if self.interrupted().is_none() {
            return Ok(Vec::new());
        }
        let _lock = self.lock_for_apply()?;
        let mut runs = self.runs()?;
        let names = Names::of(&runs);
        let Some(mut run) = runs.pop() else { return Ok(Vec::new()) };
        let project = self.open_project()?;
        let applier = Applier { project: &project, source: &project, name: self.short_name(), names };
        applier.finish_interrupted(&mut run).map_err(io_at("finish the interrupted apply of", &self.project))
    }

    fn runs(&self) -> Result<Vec<Run>> {
        Run::all(&self.directory).map_err(io_at("read what was applied of", &self.directory))
    }

    fn last_run(&self) -> Result<Option<Run>> {
        Run::last(&self.directory).map_err(io_at("read what was applied of", &self.directory))
    }

    /// A part of the random session id.
    fn short_name(&self) -> String {
        let letters: Vec<char> = self.session.chars().filter(char::is_ascii_alphanumeric).collect();
        letters.iter().rev().take(12).rev().collect()
    }

    /// Applies what is selected and unchanged. Without paths, an interrupted one continues with its own selection.
    ///
    /// # Errors
    /// When nothing could be begun; what was done until then is in the journal.
    pub fn apply(&self, context: &Context, mut selection: Selection) -> Result<Applied> {
        if let Some(last) = self.last_run()?.filter(|last| !last.has_ended() && !last.began().is_undo)
            && selection.paths.is_empty()
        {
            let began = last.began();
            selection.guarded |= began.guarded;
            selection.paths = began.selected.into_iter().map(|selected| selected.path).collect();
        }
        self.finish_interrupted()?;
        let _lock = self.lock_for_apply()?;
        let (changes, trees) = self.changes(context)?;
        let guarded = self.guarded(context);
        let mut out = Applied::default();
        let is_named = |path: &Path| {
            selection.guarded
                || selection.paths.iter().any(|named| {
                    path == named || (path.starts_with(named) && guarded.is_named_by(named, &trees))
                })
        };
        out.unknown = selection.paths.iter().filter(|named| !has_change(&changes, named)).cloned().collect();
        let mut chosen: Vec<&Change> = Vec::new();
        for change in changes.iter().filter(|change| selection.names(&change.path)) {
            let path = change.path.clone();
            match (&change.state, &change.guarded) {
                (State::Refused(why), _) => out.refused.push((path, (*why).to_owned())),
                (State::Conflict(why), _) => out.conflicts.push((path, (*why).to_owned())),
                (State::Clean, Some(why)) if !is_named(&path) => out.guarded.push((path, why.clone())),
                (State::Clean, _) => chosen.push(change),
            }
        }
        add_directories(&changes, &mut chosen);
        let mut steps = steps(&chosen);
        if let Some(shown) = self.shown_paths()? {
            let is_new = |step: &Step| !shown.contains_key(&step.path);
            for step in steps.iter().filter(|step| is_new(step)) {
                out.conflicts.push((step.path.clone(), NOT_SHOWN.to_owned()));
            }
            steps.retain(|step| !is_new(step));
            let made: BTreeSet<PathBuf> =
                steps.iter().filter(|step| step.new.is_some()).map(|step| step.path.clone()).collect();
            for step in &mut steps {
                // A path that is removed for another kind of file is shown as the new one.
                let makes_room = step.new.is_none() && made.contains(&step.path);
                step.shown = if makes_room { None } else { shown.get(&step.path).cloned() };
            }
        }
        if steps.is_empty() {
            out.is_complete = changes.is_empty();
            return Ok(out);
        }
        let begin = ApplyHeader {
            selected: selection.paths.iter().map(|path| Staged { number: 0, path: path.clone() }).collect(),
            guarded: selection.guarded,
            is_undo: false,
            total: steps.len(),
        };
        let outcome = self.run(&trees.project, &trees.upper, begin, steps)?;
        out.applied = outcome.applied;
        out.conflicts.extend(outcome.conflicts);
        out.is_complete = self.changes(context)?.0.is_empty();
        Ok(out)
    }

    fn run(
        &self,
        project: &DirectoryHandle,
        source: &DirectoryHandle,
        begin: ApplyHeader,
        steps: Vec<Step>,
    ) -> Result<Outcome> {
        let names = Names::of(&self.runs()?);
        let mut run = Run::begin(&self.directory, begin).map_err(io_at("begin to apply", &self.directory))?;
        let applier = Applier { project, source, name: self.short_name(), names };
        applier.apply(&mut run, steps).map_err(io_at("apply to", &self.project))
    }

    /// For each path that was applied and not undone, its state before; None: it did not exist.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn applied(&self) -> Result<BTreeMap<PathBuf, Option<Mark>>> {
        let mut applied = BTreeMap::new();
        for run in self.runs()? {
            let mut about = BTreeMap::new();
            for line in &run.lines {
                match line {
                    Line::About(one) => drop(about.insert(one.number, one.new.clone())),
                    // An undo of an undo does it again.
                    Line::Done(done) if run.began().is_undo && applied.contains_key(&done.path) => {
                        applied.remove(&done.path);
                    }
                    Line::Done(done) => {
                        applied.insert(done.path.clone(), about.get(&done.number).cloned().flatten());
                    }
                    _ => {}
                }
            }
        }
        Ok(applied)
    }

    /// Takes back what the last apply (or undo) did, where nobody changed it since: doing it twice changes nothing. What
    /// was interrupted and went on is one. With paths, for each of them the last that was about it.
    ///
    /// # Errors
    /// When nothing was applied, or the journal cannot be written.
    pub fn undo(&self, paths: &[PathBuf]) -> Result<Applied> {
        self.finish_interrupted()?;
        let _lock = self.lock_for_apply()?;
        let mut runs = self.runs()?;
        runs.retain(|run| run.done().next().is_some());
        if runs.is_empty() {
            return Err(ReviewError::Nothing(format!("nothing of session {} was applied", self.session)));
        }
        let selection = Selection { paths: paths.to_vec(), guarded: true };
        let steps = if paths.is_empty() { of_last(&runs) } else { of_paths(&runs, &selection) };
        let project = self.open_project()?;
        let source = DirectoryHandle::open(&self.directory).map_err(io_at("open", &self.directory))?;
        let begin = ApplyHeader { is_undo: true, total: steps.len(), ..ApplyHeader::default() };
        let outcome = self.run(&project, &source, begin, steps)?;
        Ok(Applied { applied: outcome.applied, conflicts: outcome.conflicts, ..Applied::default() })
    }
}

/// The step that restores the former state.
fn restoring_step(run: &Run, done: &AppliedChange) -> Step {
    let kept = |was: &Stamp| (was.clone(), Content::At(run.earlier_version(done.number)));
    Step {
        path: done.path.clone(),
        expected: done.now.clone(),
        new: done.was.as_ref().map(kept),
        merged: done.merged.as_ref().map(Merged::reversed),
        same: None,
        shown: None,
    }
}

/// Index of the first run that belongs to the last one: an interrupted run is continued by the next.
fn first_of_last(runs: &[Run]) -> usize {
    let belong = |at: &usize| {
        let pair = at.checked_sub(1).and_then(|before| runs.get(before)).zip(runs.get(*at));
        pair.is_some_and(|(before, run)| !before.has_ended() && before.began().is_undo == run.began().is_undo)
    };
    let mut at = runs.len().saturating_sub(1);
    while belong(&at) {
        at -= 1;
    }
    at
}

fn of_last(runs: &[Run]) -> Vec<Step> {
    let mut done_already: BTreeMap<&Path, usize> = BTreeMap::new();
    let mut rest = runs;
    // An interrupted undo continues.
    if runs.last().is_some_and(|run| run.began().is_undo && !run.has_ended()) {
        let (before, undo) = runs.split_at(first_of_last(runs));
        for done in undo.iter().flat_map(Run::done) {
            *done_already.entry(&done.path).or_default() += 1;
        }
        rest = before;
    }
    let last = rest.get(first_of_last(rest)..).unwrap_or_default();
    let mut steps = Vec::new();
    for run in last.iter().rev() {
        for done in run.done().rev() {
            match done_already.get_mut(done.path.as_path()).filter(|count| **count > 0) {
                Some(count) => *count -= 1,
                None => steps.push(restoring_step(run, done)),
            }
        }
    }
    steps
}

fn of_paths(runs: &[Run], selection: &Selection) -> Vec<Step> {
    let mut seen: BTreeSet<&Path> = BTreeSet::new();
    let mut steps = Vec::new();
    for run in runs.iter().rev() {
        let of_run: Vec<&AppliedChange> = run
            .done()
            .rev()
            .filter(|done| selection.names(&done.path) && !seen.contains(done.path.as_path()))
            .collect();
        steps.extend(of_run.iter().map(|done| restoring_step(run, done)));
        seen.extend(of_run.iter().map(|done| done.path.as_path()));
    }
    steps
}

fn has_change(changes: &[Change], named: &Path) -> bool {
    changes.iter().any(|change| change.path.starts_with(named))
}

/// New files need the directories above them.
fn add_directories<'c>(changes: &'c [Change], chosen: &mut Vec<&'c Change>) {
    let mut have: BTreeSet<&Path> = chosen.iter().map(|change| change.path.as_path()).collect();
    let wanted: BTreeSet<&Path> = chosen
        .iter()
        .filter(|change| change.now.is_some())
        .flat_map(|change| change.path.ancestors().skip(1))
        .collect();
    for change in changes {
        let is_directory = change.now.as_ref().is_some_and(|now| now.kind == Kind::Directory);
        if is_directory
            && change.state == State::Clean
            && wanted.contains(change.path.as_path())
            && have.insert(&change.path)
        {
            chosen.push(change);
        }
    }
}

/// First what is in the way of another kind, then everything that is made (directories, objects of git, what names
/// them), and what is removed last: content that was moved is always somewhere. What is in a directory goes before it.
fn steps(chosen: &[&Change]) -> Vec<Step> {
    let is_directory = |stamp: &Stamp| stamp.kind == Kind::Directory;
    let turned: Vec<&Change> = chosen
        .iter()
        .copied()
        .filter(|change| {
            change
                .was
                .as_ref()
                .zip(change.now.as_ref())
                .is_some_and(|(was, now)| is_directory(was) != is_directory(now))
        })
        .collect();
    let is_in_the_way = |path: &Path| turned.iter().any(|change| path.starts_with(&change.path));
    let (mut first, mut made, mut last) = (Vec::new(), Vec::new(), Vec::new());
    let remove = |change: &Change| Step {
        path: change.path.clone(),
        expected: change.was.clone(),
        new: None,
        merged: None,
        same: None,
        shown: None,
    };
    for change in chosen {
        let has_turned = turned.iter().any(|other| other.path == change.path);
        match &change.now {
            None if is_in_the_way(&change.path) => first.push(remove(change)),
            None => last.push(remove(change)),
            Some(now) => {
                if has_turned {
                    first.push(remove(change));
                }
                let expected = change.was.clone().filter(|_| !has_turned);
                // Never written into the layer: until it is applied, the layer is what the agent made of the project.
                let content = change.merged.clone().map_or(Content::At(change.path.clone()), Content::Text);
                made.push(Step {
                    path: change.path.clone(),
                    expected,
                    new: Some((now.clone(), content)),
                    merged: change.merged.is_some().then(|| Merged::Done(now.clone())),
                    same: change.same.clone(),
                    shown: None,
                });
            }
        }
    }
    let holds = |step: &Step| step.expected.as_ref().is_some_and(is_directory);
    for removed in [&mut first, &mut last] {
        removed.sort_by(|one, other| (holds(one), &other.path).cmp(&(holds(other), &one.path)));
    }
    let is_object =
        |path: &Path| path.iter().any(|part| part == ".git") && path.iter().any(|part| part == "objects");
    let order = |step: &Step| {
        let is_directory = step.new.as_ref().is_some_and(|(stamp, _)| is_directory(stamp));
        // Directories first, from the top down. A hard link comes after its file.
        (!is_directory, !is_directory && !is_object(&step.path), step.same.is_some())
    };
    made.sort_by(|one, other| (order(one), &one.path).cmp(&(order(other), &other.path)));
    first.into_iter().chain(made).chain(last).collect()
}
