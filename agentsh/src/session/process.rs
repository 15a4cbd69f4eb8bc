//! A process of a session from its start to its end: what the agent, a server and a fetch have in common.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agentsh_base::types::ServerId;
use agentsh_pin::{PinError, Resolved};
use agentsh_sandbox::mend::Namespaces;
use agentsh_sandbox::spec::SandboxSpec;
use agentsh_sandbox::{Child, SpawnError, Tier, watchdog};
use agentsh_store::words::ExitCause;
use agentsh_store::{Event, FileGrant, redact};

use super::launch::{self, Handles, Running};
use super::{Session, network};
use agentsh_guards::{Before, GuardSession, Guards};

/// As a shell tells of SIGKILL.
const SIGKILL_EXIT_CODE: u8 = 137;

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// What was hashed is not what lies there now.
    #[error(transparent)]
    Changed(PinError),
    #[error("cannot guard hook files of the project: {0}")]
    StandIns(io::Error),
}

/// A process tree that runs, is guarded, and is on record.
pub struct Process {
    session: Rc<Session>,
    server: Option<ServerId>,
    running: Running,
    guards: Guards,
    inside: Option<Namespaces>,
}

/// What became of one.
pub struct ProcessEnd {
    pub cause: ExitCause,
    /// The program was never executed.
    pub error: Option<SpawnError>,
}

/// Starts what `resolved` found. `granted` is put on record; `lacks` hears of every grant that is void, and why.
///
/// # Errors
/// The step that failed; nothing is left running.
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
        // Before the stand-ins, which may stand in a directory that was pinned.
        resolved.unchanged_since().map_err(ProcessError::Changed)?;
        let stand_ins = launch::stand_ins(context, layout).map_err(ProcessError::StandIns)?;
        Ok::<_, ProcessError>((Before::new(&session.facts, spec, layout), stand_ins))
    });
    let (mut running, (before, stand_ins)) = assembled.await?;
    let guarded: Rc<dyn GuardSession> = session.clone();
    let names = std::mem::take(&mut running.guarded);
    let guards =
        Guards::start(&guarded, server, before, &mut running.child, &running.cgroup, stand_ins, names);
    let inside = running.child.namespaces.take();
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

    /// What is needed to look into it when its program has ended.
    #[must_use]
    pub fn namespaces(&self) -> Option<Namespaces> {
        self.inside.as_ref().and_then(|inside| inside.try_clone().ok())
    }

    /// The control group by which all of it, pid 1 too, can be held while a person is asked. None in the weaker tier: there
    /// pid 1 is what ends the others when agentsh is gone, and has to go on for that.
    #[must_use]
    pub fn group(&self) -> Option<PathBuf> {
        let is_whole = self.session.facts.context.tier == Tier::Namespaces;
        self.running.cgroup.directory().filter(|_| is_whole).map(Path::to_owned)
    }

    /// Whether the kernel ended one of its processes because the limit on memory was reached.
    #[must_use]
    pub fn was_out_of_memory(&self) -> bool {
        self.running.cgroup.was_out_of_memory()
    }

    /// Resolves when it holds more memory than it may, where no cgroup sees to that; never otherwise.
    pub async fn over_memory(&self) {
        memory_exceeded(&self.running).await;
    }

    /// Waits for its end, and brings it about where it holds too much memory or `until` says why.
    pub async fn exit(&self, until: impl Future<Output = ExitCause>) -> (u8, ExitCause) {
        let cause = tokio::select! {
            code = self.child().exit() => return (code, ExitCause::Exited),
            () = self.over_memory() => ExitCause::MemoryLimit,
            cause = until => cause,
        };
        self.child().kill();
        (self.child().exit().await, cause)
    }

    /// Takes down what is left of it: its other processes, its guards, and at last its connections. Writes down how it
    /// ended.
    pub async fn finish(self, exit_code: u8, cause: ExitCause) -> ProcessEnd {
        let Self { session, server, running, guards, inside } = self;
        let Running { child, cgroup, way_out, published, place, refused_calls, .. } = running;
        let by_kernel =
            cause == ExitCause::Exited && exit_code == SIGKILL_EXIT_CODE && cgroup.was_out_of_memory();
        let cause = if by_kernel { ExitCause::MemoryLimit } else { cause };
        let error = child.execution_error();
        drop(published);
        drop((child, refused_calls));
        drop(cgroup);
        if let Some(place) = place {
            place.put_back(&session.facts, &session.record, server.as_ref());
        }
        guards.finish().await;
        session.close_elsewhere(inside.map(Namespaces::into_descriptors).unwrap_or_default());
        if let Some(way_out) = way_out {
            network::finish(&session, way_out).await;
        }
        session.record.journal.record(Event::ProcessExited { server_id: server, exit_code, cause });
        ProcessEnd { cause, error }
    }
}

/// Resolves when the processes of a sandbox together hold more than its limit; never where a cgroup holds it.
pub async fn memory_exceeded(running: &Running) {
    let Some(limit) = running.watched_memory else { return std::future::pending().await };
    watchdog::exceeded(running.child.pid, limit).await;
}
