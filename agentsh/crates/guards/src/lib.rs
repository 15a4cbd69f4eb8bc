//! A thread for each sandbox that keeps its guards mounted.
//!
//! A rename on the host over a guarded name removes the mount. The kernel reports that at once; the thread stops the
//! sandbox, compares the files with their copies, mounts all guards again and resumes the sandbox (decision 47).

mod baseline;
pub mod changed_instructions;
mod crash_recovery;
mod difference;
mod disarm_new;
mod final_check;
mod git_obeys;
mod guarded;
mod interrupted_git;
mod name_watcher;
mod new_repositories;
mod new_version;
mod removal;
mod restore;
mod thread;
mod unreachable_repositories;

pub use crash_recovery::recover_all;
pub use final_check::set_aside_message;
pub use guarded::{Guarded, GuardedNames};

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;

use self::baseline::Baseline;
use self::changed_instructions::{Instructions, Nested};
use self::final_check::FinalCheck;
use agentsh_base::types::ServerId;
use agentsh_host::copies::Copy;
use agentsh_host::{Facts, Record};
use agentsh_policy::builtin_paths::is_never_offered;
use agentsh_policy::{Answer, Question};
use agentsh_sandbox::cgroup::Cgroup;
use agentsh_sandbox::freeze::Freezer;
use agentsh_sandbox::layout::Layout;
use agentsh_sandbox::plan::{Access, Executable, Identity, Mount};
use agentsh_sandbox::seccomp::FileEffect;
use agentsh_sandbox::spec::{PathRules, SandboxSpec};
use agentsh_sandbox::stubs::StubFiles;
use agentsh_sandbox::{Child, State, Zygote};
use agentsh_store::Event;
use agentsh_store::words::GuardChange;

/// The session that a guarded sandbox belongs to.
pub trait GuardSession {
    fn facts(&self) -> &Facts;
    fn record(&self) -> &Record;
    /// Whether the policy grants it, by which rule, and which change would.
    fn ask(&self, server: Option<&ServerId>, question: &Question) -> Answer;
    /// A process is about to change this file, which is not guarded.
    fn changes(&self, server: Option<&ServerId>, pid: u32, path: &Path, effect: FileEffect);
    /// Suggests a policy change at the end of the run.
    fn suggest(&self, change: &str);
    /// Something could not be checked, set aside or put back.
    fn note_unfinished(&self);
}

/// State before the start that is needed later.
pub struct StateBeforeStart {
    rules: PathRules,
    identity: Identity,
    guards: Vec<Mount>,
    executable: Executable,
    since: SystemTime,
    baseline: Baseline,
    directories: Vec<PathBuf>,
    /// Directories that may have instruction files at their top.
    instructed: BTreeSet<PathBuf>,
    instructions: Instructions,
    nested: Nested,
    copies: BTreeMap<PathBuf, Copy>,
    /// In a sandbox without mounts: guarded files, which are restored at its end.
    unprotected: Option<BTreeMap<PathBuf, Copy>>,
}

/// Guards that are copied before the start; the thread copies the others.
const MAX_COPIED_FIRST: usize = 200;

impl StateBeforeStart {
    /// Call before the program runs, because it may change instructions at once.
    #[must_use]
    pub fn new(facts: &Facts, spec: &SandboxSpec, layout: &Layout) -> Self {
        let path = facts.context.env.get("PATH");
        let instructed: BTreeSet<_> = layout.instructed.iter().chain(&layout.worked_in).cloned().collect();
        let below = layout.obeyed_in.iter().filter(|directory| !instructed.contains(*directory));
        let below: Vec<PathBuf> = below.cloned().collect();
        let shown = spec.placed.elsewhere.iter().filter(|shown| shown.access == Access::ReadWrite);
        let (in_place, moved): (Vec<_>, Vec<_>) = shown.partition(|shown| shown.host == shown.inside);
        let layers = spec.placed.caches.iter().map(|cache| cache.layer.clone());
        let private = moved.into_iter().map(|shown| shown.host.clone()).chain(layers);
        let in_place = in_place.into_iter().map(|shown| shown.host.clone()).filter(|path| path.is_dir());
        let host = &facts.context.host;
        let baseline =
            Baseline::of(layout, &spec.paths, host, path.map_or("", String::as_str)).with_private(private);
        Self {
            rules: spec.paths.clone(),
            identity: spec.process.identity,
            guards: layout.guards.clone(),
            executable: layout.executable.clone(),
            since: SystemTime::now(),
            copies: thread::copies(layout.guards.iter().take(MAX_COPIED_FIRST)),
            directories: layout.instructed.iter().cloned().chain(in_place).collect(),
            instructions: changed_instructions::instructions(&instructed, &baseline, host),
            nested: changed_instructions::nested_instructions(&below, host),
            baseline,
            instructed,
            unprotected: None,
        }
    }

    /// For a sandbox without mounts: guarded files, which are compared and restored at its end.
    #[must_use]
    pub fn with_unprotected(self, unprotected: Option<BTreeMap<PathBuf, Copy>>) -> Self {
        Self { unprotected, ..self }
    }
}

/// A message for the user.
struct GuardNotice {
    path: PathBuf,
    what: GuardChange,
    text: String,
}

impl GuardNotice {
    /// Does nothing when the session is gone.
    fn send(tell: &mpsc::UnboundedSender<Self>, path: &Path, what: GuardChange, text: String) {
        let _ = tell.send(Self { path: path.to_owned(), what, text });
    }
}

/// The guards of one sandbox. Dropping it releases the stubs without a final check.
pub struct Guards {
    /// Closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
    telling: Option<tokio::task::JoinHandle<()>>,
    stubs: Option<StubFiles>,
}

impl Guards {
    /// Starts the thread. What cannot be watched is recorded.
    #[must_use]
    pub fn start(
        session: &Rc<dyn GuardSession>,
        server: Option<&ServerId>,
        before: StateBeforeStart,
        child: &mut Child,
        cgroup: &Cgroup,
        stubs: StubFiles,
        guarded: GuardedNames,
    ) -> Self {
        let mut guards = Self { stop: None, thread: None, telling: None, stubs: None };
        if before.guards.is_empty() && before.directories.is_empty() {
            guards.stubs = Some(stubs);
            return guards;
        }
        guarded.lock().baseline = Some(before.baseline.clone());
        let (tell, mut told) = mpsc::unbounded_channel();
        let parts = || -> std::io::Result<(Box<dyn FnOnce() + Send>, OwnedFd)> {
            let (stop, ask_to_stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
            let id = session.facts().id.to_string();
            let is_unprotected = before.unprotected.is_some();
            let check = FinalCheck {
                project: before.rules.project.clone(),
                instructed: before.instructed,
                instructions: before.instructions,
                nested: before.nested,
                unprotected: before.unprotected.unwrap_or_default(),
                ..FinalCheck::of(&session.facts().context.state, &id, before.directories, before.baseline)
            };
            let unfinished = crash_recovery::CrashMarker::begin(&check, &id, &before.guards, before.since)?;
            guarded.lock().marker = Some(Arc::clone(&unfinished.file));
            if is_unprotected {
                let at_end = move || {
                    // It is closed at the end.
                    let _ = std::fs::File::from(stop).read(&mut [0]);
                    unfinished.close(check, |_, _| false, &mut |path, what, text| {
                        GuardNotice::send(&tell, path, what, text)
                    });
                };
                return Ok((Box::new(at_end), ask_to_stop));
            }
            let pid = child.pid;
            let namespaces = child.namespaces.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
            let freezer = match cgroup.directory() {
                Some(directory) => Freezer::group(directory),
                None => Freezer::signals(pid, false),
            };
            let watch = thread::Watch {
                rules: before.rules,
                identity: before.identity,
                guarded,
                targets: before.guards.iter().map(|mount| mount.target.clone()).collect(),
                guards: before.guards,
                executable: before.executable,
                unfinished,
                check,
                sandbox: child.handle()?,
                namespaces: namespaces.clone(),
                mounted: child.mounted.take(),
                freezer,
                zygote: Zygote::default(),
                closer: session.facts().context.zygote.closing_handle(),
                stubs: vec![stubs],
                stop,
                tell,
                copies: before.copies,
                removed: BTreeMap::new(),
                seen: BTreeMap::new(),
                names: None,
                new_repository_watcher: new_repositories::NewRepositoryWatcher::default(),
                is_moved: false,
                arrivals: BTreeSet::new(),
                look_again: None,
            };
            Ok((Box::new(move || watch.run()), ask_to_stop))
        };
        let started = parts().and_then(|(work, stop)| {
            let thread = std::thread::Builder::new().name("guards".to_owned()).stack_size(1 << 20);
            Ok((thread.spawn(work)?, stop))
        });
        match started {
            Ok((thread, stop)) => {
                guards.thread = Some(thread);
                guards.stop = Some(stop);
                let (session, server) = (Rc::clone(session), server.cloned());
                guards.telling = Some(agentsh_base::task::spawn_local(async move {
                    while let Some(GuardNotice { path, what, text }) = told.recv().await {
                        // Names in it may hold line breaks; differences are lines, and escaped.
                        let shown = match what {
                            GuardChange::Instructions => text.as_str().into(),
                            _ => agentsh_store::escape::line(&text),
                        };
                        session.record().note(&shown);
                        if what == GuardChange::NotPutBack {
                            session.note_unfinished();
                        }
                        let context = &session.facts().context;
                        if what == GuardChange::SetAside
                            && !is_never_offered(&path, &context.home, &context.state)
                        {
                            let question = Question::Write(path.to_string_lossy().into_owned());
                            let answer = session.ask(server.as_ref(), &question);
                            answer.change.iter().for_each(|change| session.suggest(change));
                        }
                        session.record().journal.record(Event::GuardChanged {
                            server_id: server.clone(),
                            path: path.to_string_lossy().into_owned(),
                            what,
                            detail: text,
                        });
                    }
                }));
            }
            Err(error) => {
                // Without guards the sandbox must not run.
                child.kill();
                let why = format!(
                    "{error}: files that the host replaced could not be guarded again, so the sandbox \
                    was ended"
                );
                session.record().note(&format!("the sandbox was ended: {why}"));
                let layer = agentsh_sandbox::Enforcement::weakened(
                    "guards",
                    "watched while it runs",
                    "at the start",
                    State::Degraded,
                    why,
                );
                session.record().enforcement(server, &[layer]);
            }
        }
        guards
    }

    /// After the sandbox ended: final check, and release of the stubs.
    pub async fn finish(mut self) {
        drop(self.stop.take());
        if let Some(telling) = self.telling.take() {
            let _ = telling.await;
        }
        if let Some(thread) = self.thread.take() {
            // The thread dropped its sender as its last step. A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}
