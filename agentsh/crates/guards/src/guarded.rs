//! Decides about renames and links over guarded names, which seccomp reports before the kernel refuses them. Harmless
//! changes of git's own configuration are written by the session; for any other a person is asked, or it is refused
//! (decisions 580 and 680).
//!
//! The mount over the name stays, so a path that is changed while it is read gains nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::task::JoinSet;

use super::GuardSession;
use super::baseline::{Baseline, Identity};
use super::crash_recovery::MarkerFile;
use super::final_check::undo;
use super::interrupted_git::{self, Trees};
use super::new_version::{Change, NewName, Refusal};
use agentsh_approvals::{Approvals, FileChange};
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_guard::Reason;
use agentsh_host::project_sources::{self, ApprovedSources};
use agentsh_host::undo::SavedVersions;
use agentsh_host::{remotes, repositories};
use agentsh_policy::builtin_paths::{OTHER_REPOSITORIES, is_never_offered};
use agentsh_policy::{Answer, Question};
use agentsh_registry::hex;
use agentsh_sandbox::git_config::{Entry, entries, is_plain, not_harmless};
use agentsh_sandbox::layout::Layout;
use agentsh_sandbox::plan::{Access, Kind, Mount, NodeContent, Source};
use agentsh_sandbox::seccomp::listener::{Listener, NotifiedCall};
use agentsh_sandbox::seccomp::{FileEffect, MissingFile};
use agentsh_sandbox::spec::NamedFile;
use agentsh_sandbox::stubs;
use agentsh_store::words::GuardChange;
use agentsh_store::{Event, escape, redact};

/// Limit of recorded different refusals per sandbox.
const MAX_DIFFERENT: usize = 200;
/// Reported at once; the journal has the others.
const MAX_SHOWN: usize = 5;
/// Variables that one message names, and their length.
const MAX_NAMED: usize = 4;
const MAX_LETTERS: usize = 120;
/// Limit of open questions per sandbox.
const MAX_ASKED: usize = 16;
/// How often a question checks whether its caller still exists.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Guarded host paths of one sandbox. The thread that guards new repositories adds theirs.
#[derive(Clone, Debug, Default)]
pub struct GuardedNames(Arc<Mutex<Names>>);

#[derive(Debug, Default)]
pub(super) struct Names {
    pub files: BTreeSet<PathBuf>,
    pub directories: BTreeSet<PathBuf>,
    /// Mount points that keep guarded paths in place.
    pub held: BTreeSet<PathBuf>,
    /// Repositories that existed before the run: nothing inside may move them, nor remove that of a writable directory.
    pub held_before: BTreeSet<PathBuf>,
    pub repositories: BTreeSet<PathBuf>,
    /// Those from before the run.
    pub before: BTreeSet<PathBuf>,
    /// Guarded directories of which the sandbox has a copy.
    pub private: BTreeSet<PathBuf>,
    /// Writable directories.
    pub tops: BTreeSet<PathBuf>,
    /// The agent's own directories cover these (decision 610), so only visible parts of the project in them are
    /// guarded.
    covered: BTreeSet<PathBuf>,
    /// State before the run. None: this sandbox is not watched.
    pub baseline: Option<Baseline>,
    /// Entries that a program is removing, for the watching thread.
    pub released: Vec<PathBuf>,
    /// Repositories among them that existed before the run.
    pub lost: Vec<Identity>,
    /// Paths that are set aside from now on when they appear.
    pub expected: BTreeMap<PathBuf, NamedFile>,
    /// Learns it before it happens, for the case that agentsh is killed.
    pub marker: Option<Arc<MarkerFile>>,
}

impl GuardedNames {
    pub(super) fn lock(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the guards of a layout.
    pub(super) fn add(&self, layout: &Layout) {
        let mut names = self.lock();
        let is_covered = |target: &Path| names.covered.contains(target);
        let shown = layout.mounts.iter().filter(|mount| mount.target.parent().is_some_and(is_covered));
        let guards: Vec<_> =
            layout.guards.iter().filter(|mount| !is_covered(&mount.target)).chain(shown).collect();
        let of_kind = |wanted_access: Access, wanted: Kind| -> Vec<PathBuf> {
            let itself = guards.iter().filter(|mount| {
                let is_itself =
                    |source: &Source| matches!(source, Source::Path { path, .. } if *path == mount.target);
                matches!(&mount.what, NodeContent::Bind { source, access, kind }
                    if is_itself(source) && *access == wanted_access && *kind == wanted)
            });
            itself.map(|mount| mount.target.clone()).collect()
        };
        let [files, directories] = [Kind::File, Kind::Directory].map(|kind| of_kind(Access::ReadOnly, kind));
        let held = of_kind(Access::ReadWrite, Kind::Directory);
        names.files.extend(files);
        names.directories.extend(directories);
        let held = held.into_iter().filter(|path| !names.held_before.contains(path)).collect::<Vec<_>>();
        names.held.extend(held);
        names.repositories.extend(layout.repositories.iter().cloned());
        names.private.extend(layout.private.iter().cloned());
        names.tops.extend(layout.instructed.iter().cloned());
    }
}

/// Decides about guarded paths of one sandbox.
#[derive(Debug, Default)]
pub struct Guarded {
    pub(super) names: GuardedNames,
    trees: Trees,
    /// None: no person can be asked.
    asks: Option<Approvals>,
    told: RefCell<BTreeSet<String>>,
    /// Files whose old version is already kept.
    kept: RefCell<BTreeSet<PathBuf>>,
    /// Done, but the caller had stopped waiting; it will try again.
    unheard: RefCell<Option<NewName>>,
    /// The same for removals: the process, and the path.
    unheard_removals: RefCell<BTreeSet<(u32, PathBuf)>>,
    /// Callers that wait for the answer about a path and a hash.
    asked: RefCell<BTreeMap<QuestionKey, Vec<(NotifiedCall, NewName)>>>,
    /// Ends with the sandbox.
    asking: RefCell<JoinSet<()>>,
}

type QuestionKey = (PathBuf, String);

/// The decision about a new name.
enum RenameDecision {
    /// Done. The change, in words.
    Done(Option<String>),
    /// A person decides. The reason, if there is one besides the guard.
    Asks(Change, String),
}

/// Session and server.
type Owner<'a> = (&'a Rc<dyn GuardSession>, Option<&'a ServerId>);

impl Guarded {
    #[must_use]
    pub fn of(layout: &Layout, asks: Option<Approvals>) -> Self {
        let covers = |mount: &&Mount| {
            matches!(&mount.what, NodeContent::Bind { source: Source::Path { path, .. }, access: Access::ReadWrite, .. }
                if *path != mount.target)
        };
        let covered = layout.mounts.iter().filter(covers).map(|mount| mount.target.clone()).collect();
        let names = GuardedNames(Arc::new(Mutex::new(Names { covered, ..Names::default() })));
        names.add(layout);
        {
            let mut names = names.lock();
            names.held_before = std::mem::take(&mut names.held);
            names.before = names.repositories.clone();
        }
        Self {
            names,
            trees: Trees::of(layout.repositories.iter().cloned().collect()),
            asks,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        let names = self.names.lock();
        names.files.is_empty() && names.directories.is_empty()
    }

    /// For the thread that adds guards.
    #[must_use]
    pub fn names(&self) -> GuardedNames {
        self.names.clone()
    }

    pub(super) fn is_guarded(&self, path: &Path) -> bool {
        let names = self.names.lock();
        let mut around = path.ancestors().skip(1).take_while(|above| !names.private.contains(*above));
        names.files.contains(path) || around.any(|above| names.directories.contains(above))
    }

    /// The copy of a guarded directory around a path.
    fn private(&self, path: &Path) -> Option<PathBuf> {
        let names = self.names.lock();
        path.ancestors().skip(1).find(|above| names.private.contains(*above)).map(Path::to_owned)
    }

    /// Whether it is a mount point, which no process inside can rename.
    pub(super) fn is_mounted(&self, path: &Path) -> bool {
        let names = self.names.lock();
        names.files.contains(path) || names.directories.contains(path) || names.held_before.contains(path)
    }

    pub(super) fn is_held(&self, path: &Path) -> bool {
        let names = self.names.lock();
        names.held.contains(path) || names.directories.contains(path)
    }

    /// Answers a rename, link or change call. Returns other calls.
    pub fn answer(
        self: &Rc<Self>,
        listener: &Rc<Listener>,
        heard: NotifiedCall,
        owner: Owner<'_>,
    ) -> Option<NotifiedCall> {
        if let Some(touched) = listener.file_effect(&heard) {
            return self.handle_file_change(listener, heard, &touched, owner);
        }
        let is_met = |name: &MissingFile| {
            name.absolute(heard.pid).is_some_and(|path| {
                let is_unheard = self.unheard.borrow().as_ref().is_some_and(|name| name.from == path);
                is_unheard || self.is_guarded(&path) || self.is_held(&path) || self.is_mounted(&path)
            })
        };
        let Some(renamed) =
            listener.rename_call(&heard, |renamed| is_met(&renamed.to) || is_met(&renamed.from))
        else {
            return Some(heard);
        };
        let name = renamed.and_then(|renamed| {
            let (from, to) = (renamed.from.absolute(heard.pid)?, renamed.to.absolute(heard.pid)?);
            Some(NewName { pid: heard.pid, from, to, only_new: renamed.only_new, is_link: renamed.is_link })
        });
        let is_unheard = name.is_some() && self.unheard.take() == name;
        if let Some(name) = name.as_ref().filter(|_| is_unheard)
            && (name.is_link || !name.from.exists())
        {
            let _ = listener.done(&heard, Ok(()));
            return None;
        }
        if let Some(name) = &name
            && let Some((outcome, text)) =
                self.move_repository(&kept_versions(owner.0), &owner.0.facts().context.state, name)
        {
            self.tell_lost(owner, &name.from, text);
            self.done(listener, &[(heard, name.clone())], outcome);
            return None;
        }
        if let Some(name) = name.as_ref().filter(|name| !name.is_link && self.is_mounted(&name.from)) {
            self.record_refusal(owner, &name.from, "");
        }
        let Some(name) = name.filter(|name| self.is_guarded(&name.to) && !self.is_guarded(&name.from)) else {
            listener.go_on(&heard);
            return None;
        };
        let (session, server) = owner;
        match self.decide(session, &name) {
            Ok(RenameDecision::Done(text)) => {
                if let Some(text) = text {
                    self.report_change(session, server, &name.to, GuardChange::Written, text);
                }
                self.done(listener, &[(heard, name)], Ok(()));
            }
            Ok(RenameDecision::Asks(change, detail)) => {
                self.ask(listener, (heard, name), change, detail, owner)
            }
            Err(refusal) => self.refuse(listener, &[(heard, name)], refusal, owner),
        }
        None
    }

    /// Continues a call that changes a file. The mount refuses guarded ones, which is reported; git is stopped first.
    fn handle_file_change(
        &self,
        listener: &Listener,
        heard: NotifiedCall,
        (wanted, touch): &(MissingFile, FileEffect),
        owner: Owner<'_>,
    ) -> Option<NotifiedCall> {
        let (session, server) = owner;
        let path = wanted.absolute(heard.pid).unwrap_or_default();
        let is_guarded = self.is_guarded(&path) || self.names.lock().directories.contains(&path);
        // It only reserves the name: a program that removes it, such as `git clean`, wants the name to be free.
        let is_stub = || {
            let is_empty = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
            is_empty && stubs::is_stub(&session.facts().context.state, &path)
        };
        if is_guarded && *touch == FileEffect::RemovesDirectory && is_stub() {
            let _ = listener.done(&heard, Ok(()));
            return None;
        }
        // git's next commit would record the removal of what git makes and the guards take away again.
        let is_arrival = || {
            let makes = matches!(touch, FileEffect::Makes | FileEffect::Writes);
            makes && self.names.lock().baseline.as_ref().is_some_and(|baseline| baseline.is_arrival(&path))
        };
        let is_kept = || is_guarded && !self.is_removable(heard.pid, &path, *touch);
        if let Some(found) = self.trees.note_change(heard.pid, &path, || is_kept() || is_arrival()) {
            let verb = if is_guarded { "replaced" } else { "made" };
            let mut text = format!("stopped git before it {verb} {}", self.refusal(owner, &path, ""));
            if let Some(command) = self.trees.abort_command(&path) {
                text.push_str(&format!("; the operation is half done, and `{command}` undoes it"));
            }
            let left = interrupted_git::stop(heard.pid, &text, found);
            text.push_str(match left.is_empty() {
                true => "; the working tree is as before",
                false => "; these could not be restored: ",
            });
            text.push_str(&left.join(", "));
            self.report_change(session, server, &path, GuardChange::Refused, text);
            let _ = listener.done(&heard, Err(Errno::ACCESS));
            return None;
        }
        let removal = (heard.pid, path.clone());
        let is_removed = self.unheard_removals.borrow_mut().remove(&removal) && !path.exists();
        let state = &session.facts().context.state;
        let outcome = match is_removed {
            true => Some((Ok(()), None)),
            false => self.remove_repository(&kept_versions(session), state, heard.pid, &path, *touch),
        };
        if let Some((outcome, text)) = outcome {
            self.tell_lost(owner, &path, text);
            if listener.done(&heard, outcome).is_err() && outcome.is_ok() {
                self.unheard_removals.borrow_mut().insert(removal);
            }
            return None;
        }
        // With file reports on, this call is reported too.
        let is_looked_for = session.facts().tells_files && listener.looked_for(&heard).is_some();
        let exists = is_guarded && path.symlink_metadata().is_ok();
        let would_be_done = match touch {
            FileEffect::Makes => !exists,
            FileEffect::Changes | FileEffect::Unlinks | FileEffect::RemovesDirectory => exists,
            FileEffect::Writes => true,
        };
        // The lookup of a missing file says nothing.
        if is_guarded && would_be_done && (!is_looked_for || !exists) {
            self.record_refusal(owner, &path, "");
        } else if is_looked_for {
            return Some(heard);
        }
        if let Some(private) = self.private(&path) {
            let text = format!(
                "{} is a copy inside; the original is unchanged, because git ignores it and a tool makes it again",
                display_path(session, &private)
            );
            if self.told.borrow_mut().insert(text.clone()) {
                session.record().note(&escape::line(&text));
            }
        } else if !is_guarded {
            session.changes(server, heard.pid, &path, *touch);
        }
        listener.go_on(&heard);
        None
    }

    fn refuse(
        &self,
        listener: &Listener,
        waiting: &[(NotifiedCall, NewName)],
        refusal: Refusal,
        owner: Owner<'_>,
    ) {
        let error = match refusal {
            Refusal::Not => return waiting.iter().for_each(|(heard, _)| listener.go_on(heard)),
            Refusal::Failed(error) => error,
            Refusal::Because(detail) => {
                if let Some((_, name)) = waiting.first() {
                    self.record_refusal(owner, &name.to, &detail);
                }
                Errno::ACCESS
            }
        };
        self.done(listener, waiting, Err(error));
    }

    fn done(&self, listener: &Listener, waiting: &[(NotifiedCall, NewName)], outcome: Result<(), Errno>) {
        let heard = waiting.iter().filter(|(heard, _)| listener.done(heard, outcome).is_ok()).count();
        if let Some((_, name)) = waiting.last().filter(|_| heard == 0 && outcome.is_ok()) {
            self.unheard.replace(Some(name.clone()));
        }
    }

    fn decide(&self, session: &Rc<dyn GuardSession>, name: &NewName) -> Result<RenameDecision, Refusal> {
        let change = Change::read(name)?;
        // A `config.worktree` with content is no longer a stub and stays.
        let is_config = name.to.parent().zip(name.to.file_name());
        let is_config = is_config.is_some_and(|(above, last)| self.is_git_config(above, last));
        if !is_config && stubs::is_stub(&session.facts().context.state, &name.to) {
            return Err(Refusal::Because(String::new()));
        }
        if change.is_nothing() || is_config && found_no_modes(&change, name.pid) {
            change.take_source()?;
            return Ok(RenameDecision::Done(None));
        }
        match self.runs_nothing(&change, name) {
            Err(detail) => Ok(RenameDecision::Asks(change, detail)),
            Ok(()) => {
                let text = change.old_text().unwrap_or_default();
                let new = change.new.text().unwrap_or_default();
                let (said, addresses) = (changed_variables(text, new), new_addresses(text, new));
                self.write(session, &change, &name.to, false)?;
                let (shown, undo) = (name.to.display(), undo(&name.to));
                if !addresses.is_empty() {
                    session.record().note(&escape::line(&format!(
                        "the agent changed where git sends and fetches ({shown}): {}; {undo} restores it",
                        join_words(addresses)
                    )));
                }
                Ok(RenameDecision::Done(Some(format!(
                    "{shown} was changed inside; the change starts no program: {said}; {undo} restores it"
                ))))
            }
        }
    }

    /// Whether it is git's configuration and adds nothing that runs.
    fn runs_nothing(&self, change: &Change, name: &NewName) -> Result<(), String> {
        let (Some(above), Some(last)) = (name.to.parent(), name.to.file_name()) else {
            return Err(String::new());
        };
        if !self.is_git_config(above, last) {
            return Err(String::new());
        }
        // git holds its lock while it writes; other writers wait for it.
        let lock = name.to.with_added_extension("lock");
        let old = change.old_text()?;
        let new = change.new.text()?;
        if !is_plain(new) {
            return Err("it has lines that git itself would not write, so it cannot be compared".to_owned());
        }
        let is_worktree = |said: &String| said.trim_start_matches("no ").starts_with("core.worktree = ");
        let mut trees = Vec::new();
        if let Some(differ) = not_harmless(old, new) {
            let own = self.names.lock().own_worktrees(above, new).filter(|_| differ.iter().all(is_worktree));
            trees = own.ok_or_else(|| format!("it would set {}", join_words(differ)))?;
        }
        if name.is_link || name.from != lock {
            return Err("only changes by git itself are written without a question".to_owned());
        }
        let mut names = self.names.lock();
        let expected = trees.into_iter().try_for_each(|tree| names.expect(&tree, NamedFile::tree()));
        expected.map_err(|error| format!("cannot keep what it names: {error}"))
    }

    /// Keeps the old version, writes the new one and removes the source.
    fn write(
        &self,
        session: &Rc<dyn GuardSession>,
        change: &Change,
        path: &Path,
        with_mode: bool,
    ) -> Result<(), Refusal> {
        if !self.kept.borrow().contains(path) {
            let keep = kept_versions(session).keep(path, &change.old_version());
            keep.map_err(|error| Refusal::Because(format!("cannot keep what is there: {error}")))?;
            self.kept.borrow_mut().insert(path.to_owned());
        }
        note_added_remotes(session, change)
            .map_err(|error| Refusal::Because(format!("cannot store its new remotes: {error}")))?;
        change.write(with_mode)?;
        change.take_source()
    }

    /// Asks a person about a difference. Other callers with the same difference wait for the same answer. A question
    /// on the terminal stops its caller, which calls again.
    fn ask(
        self: &Rc<Self>,
        listener: &Rc<Listener>,
        waits: (NotifiedCall, NewName),
        change: Change,
        detail: String,
        owner: Owner<'_>,
    ) {
        let (session, server) = owner;
        let path = waits.1.to.clone();
        let context = &session.facts().context;
        let asks = self.asks.clone().filter(|asks| asks.can_ask());
        let asks = asks.filter(|_| !is_never_offered(&path, &context.home, &context.state));
        let Some(asks) = asks else {
            return self.refuse(listener, &[waits], Refusal::Because(detail), owner);
        };
        let difference = match change.difference() {
            Ok(difference) => difference.unwrap_or_default(),
            Err(why) => return self.refuse(listener, &[waits], Refusal::Because(why), owner),
        };
        let key = (path.clone(), change.hash());
        if let Some(waiting) = self.asked.borrow_mut().get_mut(&key) {
            waiting.push(waits);
            return;
        }
        if self.asked.borrow().len() >= MAX_ASKED {
            return self.refuse(
                listener,
                &[waits],
                Refusal::Because("too many questions wait".to_owned()),
                owner,
            );
        }
        let answer = ask_why(owner, &path);
        let question = FileChange {
            path: display_path(session, &path),
            difference,
            hash: key.1.clone(),
            content: format!("sha256:{}", hex(&change.new.content)),
            rule: answer.rule,
            why: if detail.is_empty() { answer.text } else { detail.clone() },
        };
        self.asked.borrow_mut().insert(key.clone(), vec![waits]);
        let (weak, listener) = (Rc::downgrade(self), Rc::clone(listener));
        let (session, server) = (Rc::clone(session), server.cloned());
        self.asking.borrow_mut().spawn_local(async move {
            let said = tokio::select! {
                said = asks.file(&question) => Some(said),
                () = nobody_waits(&weak, &key) => None,
            };
            let Some(guarded) = weak.upgrade() else { return };
            let waiting = guarded.asked.borrow_mut().remove(&key).unwrap_or_default();
            let owner = (&session, server.as_ref());
            let outcome = match said {
                Some(Ok(())) => guarded.write(&session, &change, &path, true),
                said => Err(Refusal::Because(with_reason(&detail, said.and_then(Result::err)))),
            };
            match outcome {
                Ok(()) => {
                    let shown = path.display();
                    let text =
                        format!("{shown} was changed inside, as you approved; {} restores it", undo(&path));
                    guarded.report_change(&session, owner.1, &path, GuardChange::Written, text);
                    guarded.done(&listener, &waiting, Ok(()));
                }
                Err(refusal) => guarded.refuse(&listener, &waiting, refusal, owner),
            }
        });
    }

    /// Whether git reads it as a repository's configuration. Elsewhere a file of that name may be anything.
    fn is_git_config(&self, above: &Path, name: &OsStr) -> bool {
        let is_other = OTHER_REPOSITORIES.iter().any(|(other, _)| above.file_name() == Some(other.as_ref()));
        (name == "config" || name == "config.worktree")
            && self.names.lock().repositories.contains(above)
            && !is_other
    }

    fn record_refusal(&self, owner: Owner<'_>, path: &Path, detail: &str) {
        let text = format!("refused to change {}", self.refusal(owner, path, detail));
        self.report_change(owner.0, owner.1, path, GuardChange::Refused, text);
    }

    /// File, reason, rule, and what to do.
    fn refusal(&self, owner: Owner<'_>, path: &Path, detail: &str) -> String {
        let session = owner.0;
        let answer = ask_why(owner, path);
        let context = &session.facts().context;
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        let is_offered = !is_never_offered(path, &context.home, &context.state);
        let offered = answer.change.as_ref().filter(|_| is_offered);
        // One of the two: the record keeps 200 characters, and the command has to be among them.
        let change = offered.map_or_else(
            || "; change it outside".to_owned(),
            |change| format!("; to allow it: {}", session.facts().remedy(change)),
        );
        if let Some(change) = offered {
            session.suggest(change);
        }
        format!("{}{detail}: {}, by {}{change}", display_path(session, path), answer.text, answer.rule)
    }

    /// A repository from before the run is known no longer.
    fn tell_lost(&self, (session, server): Owner<'_>, path: &Path, text: Option<String>) {
        let Some(text) = text else { return };
        session.record().note(&escape::line(&text));
        self.report_change(session, server, path, GuardChange::Written, text);
    }

    /// Reports once. Written changes are recorded; refusals are also shown.
    fn report_change(
        &self,
        session: &Rc<dyn GuardSession>,
        server: Option<&ServerId>,
        path: &Path,
        what: GuardChange,
        text: String,
    ) {
        let mut told = self.told.borrow_mut();
        if told.len() >= MAX_DIFFERENT || !told.insert(text.clone()) {
            return;
        }
        if what == GuardChange::Refused && told.len() <= MAX_SHOWN {
            session.record().note(&escape::line(&text));
        }
        session.record().journal.record(Event::GuardChanged {
            server_id: server.cloned(),
            path: path.to_string_lossy().into_owned(),
            what,
            detail: redact::text(&text),
        });
    }
}

/// Why no rule can allow this write.
fn ask_why((session, server): Owner<'_>, path: &Path) -> Answer {
    let answer = session.ask(server, &Question::Write(path.to_string_lossy().into_owned()));
    if !answer.allow {
        return answer;
    }
    // The policy allows it, but a host program or a guarded link uses it.
    Answer {
        allow: false,
        rule: RuleRef::default_rule("guard"),
        text: "a program of the host reads it, or a guarded file points to it".to_owned(),
        change: None,
    }
}

/// What `agentsh undo` restores.
fn kept_versions(session: &Rc<dyn GuardSession>) -> SavedVersions {
    SavedVersions::new(&session.facts().context.state, &session.facts().id.to_string())
}

/// The path as people in the project write it.
fn display_path(session: &Rc<dyn GuardSession>, path: &Path) -> String {
    path.strip_prefix(&session.facts().context.project).unwrap_or(path).display().to_string()
}

/// `git init` in a repository changes the mode of its configuration, to learn whether modes count there; the mount refuses that.
fn found_no_modes(change: &Change, pid: u32) -> bool {
    let (Ok(old), Ok(new)) = (change.old_text(), change.new.text()) else { return false };
    let says = |line: &str, said: &str| line.trim().eq_ignore_ascii_case(said);
    let is_same = |(old, new): (&str, &str)| {
        old == new || says(old, "filemode = true") && says(new, "filemode = false")
    };
    old.lines().count() == new.lines().count()
        && old.lines().zip(new.lines()).all(is_same)
        && std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|words| !words.to_ascii_lowercase().windows(8).any(|word| word == b"filemode"))
}

fn with_reason(detail: &str, reason: Option<Reason>) -> String {
    let said = match reason {
        Some(Reason::ApprovalDenied) => "you said no",
        Some(Reason::ApprovalTimedOut) => "nobody answered in time",
        _ => "",
    };
    [detail, said].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Resolves when every caller of a question is gone.
async fn nobody_waits(guarded: &Weak<Guarded>, key: &QuestionKey) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let Some(guarded) = guarded.upgrade() else { return };
        let asked = guarded.asked.borrow();
        let is_there =
            |(_, name): &(NotifiedCall, NewName)| Path::new(&format!("/proc/{}", name.pid)).exists();
        if !asked.get(key).is_some_and(|waiting| waiting.iter().any(is_there)) {
            return;
        }
    }
}

/// Added and removed variables.
fn changed_variables(before: &str, now: &str) -> String {
    let (before, now) = (entries(before), entries(now));
    let added = now.iter().filter(|entry| !before.contains(entry)).map(ToString::to_string);
    let gone = before.iter().filter(|entry| !now.contains(entry)).map(|entry| format!("no {entry}"));
    join_words(added.chain(gone).collect())
}

/// Remotes that the agent adds do not count where their configuration turns up next. Only git's configuration has such lines.
fn note_added_remotes(session: &Rc<dyn GuardSession>, change: &Change) -> std::io::Result<()> {
    let context = &session.facts().context;
    let known = ApprovedSources::of(context);
    let before = repositories::addresses_of(change.old_text().unwrap_or_default());
    let now = repositories::addresses_of(change.new.text().unwrap_or_default());
    let is_new = |address: &String| !before.contains(address) && !known.holds(remotes::KIND, address);
    project_sources::note_added_remotes(&context.state, now.into_iter().filter(is_new))
}

/// Remotes and servers that a configuration did not name before.
fn new_addresses(before: &str, now: &str) -> Vec<String> {
    let before = entries(before);
    let is_new = |entry: &Entry| {
        !before.contains(entry) && (entry.names_address() || entry.names_other_remote(&before))
    };
    entries(now).iter().filter(|entry| is_new(entry)).map(ToString::to_string).collect()
}

fn join_words(words: Vec<String>) -> String {
    let more = words.len().saturating_sub(MAX_NAMED);
    let shown = words.into_iter().take(MAX_NAMED).map(|word| {
        let mut letters = word.chars();
        let mut shown: String = letters.by_ref().take(MAX_LETTERS).collect();
        if letters.next().is_some() {
            shown.push('…');
        }
        shown
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    #[test]
    fn guard_message_is_bounded() {
        let words: Vec<String> = (0..9).map(|number| format!("{number}{}", "x".repeat(500))).collect();
        let text = join_words(words);
        assert!(text.len() < 600 && text.ends_with(" and 5 more"), "{text}");
    }
}
