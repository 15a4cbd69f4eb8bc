//! A sandboxed process from start to end: agent, server or fetch.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agentsh_base::types::ServerId;
use agentsh_pin::{PinError, Resolved};
use agentsh_policy::limits::{limits_for_agent, limits_for_server};
use agentsh_sandbox::cgroup::TaskCount;
use agentsh_sandbox::remount_guards::Namespaces;
use agentsh_sandbox::spec::SandboxSpec;
use agentsh_sandbox::{Child, SpawnError, Tier, watchdog};
use agentsh_store::words::ExitCause;
use agentsh_store::{Event, FileGrant, escape, redact};

use super::launch::{self, Handles, Running};
use super::{Session, network};
use agentsh_guards::{GuardSession, Guards, StateBeforeStart};

/// 128 + SIGKILL.
const SIGKILL_EXIT_CODE: u8 = 137;

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A file changed after it was hashed.
    #[error(transparent)]
    Changed(PinError),
    #[error("cannot guard hook files of the project: {0}")]
    Stubs(io::Error),
}

/// A running, guarded and recorded process tree.
pub struct Process {
    session: Rc<Session>,
    server: Option<ServerId>,
    running: Running,
    guards: Guards,
    inside: Option<Namespaces>,
}

pub struct ProcessEnd {
    pub cause: ExitCause,
    /// The program was not executed.
    pub error: Option<SpawnError>,
}

/// Repositories for which a start takes half a second or more.
const MANY_REPOSITORIES: usize = 300;

/// Starts what `resolved` found. `granted` is recorded; `lacks` gets every void grant with its reason.
///
/// # Errors
/// The failed step; nothing keeps running.
pub async fn start(
    session: &Rc<Session>,
    server: Option<&ServerId>,
    spec: &SandboxSpec,
    handles: Handles<'_>,
    resolved: &Resolved,
    granted: Option<Vec<FileGrant>>,
    lacks: impl Fn(&Path, &str),
) -> Result<Process, ProcessError> {
    let context = &session.facts.context;
    let args = spec.process.argv.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let args = redact::arguments(&args.collect::<Vec<_>>());
    let cgroup = session.next_cgroup();
    let assembled = launch::assemble(context, spec, handles, &cgroup, |layout| {
        layout.refused.iter().for_each(|(path, why)| lacks(path, why));
        let repositories = layout.repositories.len();
        if repositories >= MANY_REPOSITORIES && server.is_none() {
            session.record.announce(&format!("guarding {repositories} repositories takes a moment"));
        }
        // Before the stubs, which may be in a pinned directory.
        resolved.unchanged_since().map_err(ProcessError::Changed)?;
        let stubs = launch::stubs(context, layout).map_err(ProcessError::Stubs)?;
        Ok::<_, ProcessError>((StateBeforeStart::new(&session.facts, spec, layout), stubs))
    });
    let (mut running, (before, stubs)) = assembled.await?;
    let unprotected = running.place.as_mut().map(|place| std::mem::take(&mut place.guarded));
    let before = before.with_unprotected(unprotected);
    let guarded: Rc<dyn GuardSession> = session.clone();
    let names = std::mem::take(&mut running.guarded);
    let guards = Guards::start(&guarded, server, before, &mut running.child, &running.cgroup, stubs, names);
    let inside = running.child.namespaces.take();
    if server.is_none() {
        let _ = session.live.agent.tasks.set(running.tasks.clone());
    }
    session.record.enforcement(server, &running.enforcement);
    session.record.journal.record(Event::ProcessStarted {
        server_id: server.cloned(),
        program: resolved.program.display().to_string(),
        args,
        hash: resolved.digest.clone(),
        pid: running.child.pid,
    });
    if let Some(grants) = granted {
        session.record.journal.record(Event::FilesGranted { server_id: server.cloned(), grants });
    }
    Ok(Process { session: Rc::clone(session), server: server.cloned(), running, guards, inside })
}

impl Process {
    #[must_use]
    pub fn child(&self) -> &Child {
        &self.running.child
    }

    /// Its namespaces, for access after its end.
    #[must_use]
    pub fn namespaces(&self) -> Option<Namespaces> {
        self.inside.clone()
    }

    /// The cgroup to freeze while a person is asked. None in the container tier, where pid 1 has to keep running to
    /// end the others.
    #[must_use]
    pub fn group(&self) -> Option<PathBuf> {
        let is_whole = self.session.facts.context.tier == Tier::Namespaces;
        self.running.cgroup.directory().filter(|_| is_whole).map(Path::to_owned)
    }

    /// Whether the OOM killer ended a process at the memory limit.
    #[must_use]
    pub fn was_out_of_memory(&self) -> bool {
        self.running.cgroup.was_out_of_memory()
    }

    /// Resolves when it exceeds its memory limit without a cgroup; otherwise never.
    pub async fn over_memory(&self) {
        memory_exceeded(&self.running).await;
    }

    /// Waits for its end; ends it above its memory limit, or if `until` resolves.
    pub async fn exit(&self, until: impl Future<Output = ExitCause>) -> (u8, ExitCause) {
        let cause = tokio::select! {
            code = self.child().exit() => return (code, ExitCause::Exited),
            () = self.over_memory() => ExitCause::MemoryLimit,
            cause = until => cause,
        };
        self.child().kill();
        (self.child().exit().await, cause)
    }

    /// Ends its other processes, guards and connections, and records its end.
    pub async fn finish(self, exit_code: u8, cause: ExitCause) -> ProcessEnd {
        let Self { session, server, running, guards, inside } = self;
        let Running { child, cgroup, way_out, published, place, refused_calls, tasks, .. } = running;
        tell_task_limit(&session, server.as_ref(), &tasks);
        let by_kernel =
            cause == ExitCause::Exited && exit_code == SIGKILL_EXIT_CODE && cgroup.was_out_of_memory();
        let cause = if by_kernel { ExitCause::MemoryLimit } else { cause };
        let error = child.execution_error();
        if server.is_none() {
            session.live.agent.was_interrupted.set(child.was_interrupted());
        }
        drop(published);
        drop((child, refused_calls));
        drop(cgroup);
        drop(place);
        guards.finish().await;
        session.close_in_background(inside.map(Namespaces::into_descriptors).unwrap_or_default());
        if let Some(way_out) = way_out {
            network::finish(&session, way_out).await;
        }
        session.record.journal.record(Event::ProcessExited { server_id: server, exit_code, cause });
        ProcessEnd { cause, error }
    }
}

/// A program that cannot start another one often only says EAGAIN.
fn tell_task_limit(session: &Session, server: Option<&ServerId>, tasks: &TaskCount) {
    let policy = &session.facts.policy;
    let (own, default) = match server {
        None => (policy.agent.limits.pids.as_ref(), limits_for_agent()),
        Some(id) => (
            policy.mcp.servers.get(id).and_then(|server| server.process.limits.pids.as_ref()),
            limits_for_server(),
        ),
    };
    // A look from outside may miss one that has just ended.
    let Some(limit) = own.or(default.pids.as_ref()).filter(|limit| tasks.highest_count() + 2 >= limit.value)
    else {
        return;
    };
    let who = server.map_or("the agent".to_owned(), |id| format!("server '{}'", escape::line(&id.0)));
    session.record.note(&format!(
        "{who} had {} processes and threads, and could start no more (EAGAIN), by {}",
        limit.value, limit.rule
    ));
}

/// Resolves when a sandbox exceeds its memory limit; never with a cgroup.
pub async fn memory_exceeded(running: &Running) {
    let Some(limit) = running.watched_memory else { return std::future::pending().await };
    watchdog::wait_until_exceeded(running.child.pid, limit, running.tasks.clone()).await;
}
