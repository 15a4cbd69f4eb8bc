//! Guards that stay: a thread beside each sandbox that guards something.
//!
//! A guard is a mount over one name. Whoever renames something over that name on the host takes the mount away. The
//! kernel tells at once; then the sandbox is stopped, what stands there is compared with what stood there, and everything
//! is guarded again before it goes on (decision 47).

mod baseline;
mod change;
mod changed;
mod deep;
mod difference;
mod fresh;
mod guarded;
mod names;
mod newcomers;
mod removal;
mod thread;
mod trees;
mod unfinished;

pub use guarded::{Guarded, GuardedNames};
pub use thread::arrived;
pub use unfinished::finish_all;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::mpsc;

use self::baseline::Baseline;
use agentsh_base::types::ServerId;
use agentsh_host::copies::Copy;
use agentsh_host::undo::SavedVersions;
use agentsh_host::{Facts, Record};
use agentsh_policy::builtin_paths::is_never_offered;
use agentsh_policy::{Answer, Question};
use agentsh_sandbox::cgroup::Cgroup;
use agentsh_sandbox::freeze::Freezer;
use agentsh_sandbox::layout::Layout;
use agentsh_sandbox::placeholders::Placeholders;
use agentsh_sandbox::plan::{Executable, Identity, Mount};
use agentsh_sandbox::spec::{PathRules, SandboxSpec};
use agentsh_sandbox::{Child, State, Zygote};
use agentsh_store::Event;
use agentsh_store::words::GuardChange;

/// The session that a guarded sandbox belongs to.
pub trait GuardSession {
    fn facts(&self) -> &Facts;
    fn record(&self) -> &Record;
    /// Whether the policy grants it, by which rule, and which change of the policy would.
    fn ask(&self, server: Option<&ServerId>, question: &Question) -> Answer;
    /// Names a change of the policy at the end of the run, as one that would allow what was refused.
    fn suggest(&self, change: &str);
}

/// What is known before the start and needed afterwards.
pub struct Before {
    rules: PathRules,
    identity: Identity,
    guards: Vec<Mount>,
    executable: Executable,
    baseline: Baseline,
    directories: Vec<PathBuf>,
    /// At whose top files may lie that instruct.
    instructed: BTreeSet<PathBuf>,
    instructions: BTreeMap<PathBuf, (Copy, &'static str)>,
    copies: BTreeMap<PathBuf, Copy>,
}

/// Guards of which copies are made before the start; those of the others are made by the thread.
const MAX_COPIED_FIRST: usize = 200;

impl Before {
    /// To be called before the program runs: it may change what instructs at once.
    #[must_use]
    pub fn new(facts: &Facts, spec: &SandboxSpec, layout: &Layout) -> Self {
        let path = facts.context.env.get("PATH");
        let instructed: BTreeSet<_> = layout.instructed.iter().chain(&layout.worked_in).cloned().collect();
        Self {
            rules: spec.paths.clone(),
            identity: spec.process.identity,
            guards: layout.guards.clone(),
            executable: layout.executable.clone(),
            baseline: Baseline::of(layout, &spec.paths, &facts.context.host, path.map_or("", String::as_str)),
            copies: thread::copies(layout.guards.iter().take(MAX_COPIED_FIRST)),
            directories: layout.instructed.clone(),
            instructions: changed::instructions(&instructed, &facts.context.host),
            instructed,
        }
    }
}

/// Something that a person should know.
struct GuardNotice {
    path: PathBuf,
    what: GuardChange,
    text: String,
}

/// The watch over one sandbox. Dropping it gives up the stand-ins without a last look.
pub struct Guards {
    /// Closed to ask for the end.
    stop: Option<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
    telling: Option<tokio::task::JoinHandle<()>>,
    stand_ins: Option<Placeholders>,
}

impl Guards {
    /// Begins to watch. What cannot be watched is on record.
    #[must_use]
    pub fn start(
        session: &Rc<dyn GuardSession>,
        server: Option<&ServerId>,
        before: Before,
        child: &mut Child,
        cgroup: &Cgroup,
        stand_ins: Placeholders,
        guarded: GuardedNames,
    ) -> Self {
        let mut guards = Self { stop: None, thread: None, telling: None, stand_ins: None };
        if before.guards.is_empty() && before.directories.is_empty() {
            guards.stand_ins = Some(stand_ins);
            return guards;
        }
        guarded.lock().baseline = Some(before.baseline.clone());
        let (tell, mut told) = mpsc::unbounded_channel();
        let parts = || -> std::io::Result<(thread::Watch, OwnedFd)> {
            let (stop, ask_to_stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
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
                unfinished: unfinished::Unfinished::begin(
                    &session.facts().context.state,
                    &session.facts().id.to_string(),
                    &before.directories,
                    &before.baseline,
                )?,
                baseline: before.baseline,
                directories: before.directories,
                instructed: before.instructed,
                instructions: before.instructions,
                state: session.facts().context.state.clone(),
                aside: SavedVersions::new(&session.facts().context.state, &session.facts().id.to_string()),
                sandbox: child.handle()?,
                namespaces: namespaces.try_clone()?,
                mounted: child.mounted.take(),
                freezer,
                zygote: Zygote::default(),
                closer: session.facts().context.zygote.closer(),
                host: agentsh_sandbox::host::RealHost::default(),
                stand_ins: Vec::new(),
                stop,
                tell,
                copies: before.copies,
                seen: BTreeMap::new(),
                names: None,
                newcomers: newcomers::NewRepositoryWatcher::default(),
                is_moved: false,
                arrivals: BTreeSet::new(),
                look_again: None,
            };
            Ok((watch, ask_to_stop))
        };
        let started = parts().and_then(|(mut watch, stop)| {
            watch.stand_ins.push(stand_ins);
            let thread = std::thread::Builder::new().name("guards".to_owned()).stack_size(1 << 20);
            Ok((thread.spawn(move || watch.run())?, stop))
        });
        match started {
            Ok((thread, stop)) => {
                guards.thread = Some(thread);
                guards.stop = Some(stop);
                let (session, server) = (Rc::clone(session), server.cloned());
                guards.telling = Some(tokio::task::spawn_local(async move {
                    while let Some(GuardNotice { path, what, text }) = told.recv().await {
                        let lines: Vec<_> = text.lines().map(agentsh_store::escape::line).collect();
                        session.record().note(&lines.join("\n"));
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
                // What cannot be guarded does not run.
                child.kill();
                let why = format!(
                    "{error}: files that the host replaced could not be guarded again, so the sandbox \
                    was ended"
                );
                session.record().note(&format!("the sandbox was ended: {why}"));
                let layer = agentsh_sandbox::Enforcement::less(
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

    /// After the sandbox ended: a last look, and the stand-ins are given up.
    pub async fn finish(mut self) {
        drop(self.stop.take());
        if let Some(telling) = self.telling.take() {
            let _ = telling.await;
        }
        if let Some(thread) = self.thread.take() {
            // It let go of what it tells with, which is its last step. A panic was told where it happened.
            let _ = thread.join();
        }
    }
}
