//! One MCP server behind the proxy: resolved, compared with its pin, and started in its sandbox, again and again.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::unix::pipe;

use crate::mcp::{ExitInfo, Running, StartError, Upstream};
use crate::pin::Resolved;
use crate::policy::{self, PathContext, ProcessPolicy};
use crate::sandbox::layout::ProjectLayer;
use crate::sandbox::plan::{Access, Program, Terminal};
use crate::sandbox::{SpawnError, watchdog};
use crate::store::words::ExitCause;
use crate::store::{Event, redact};
use crate::types::{RuleRef, ServerId};

use super::launch::{self, Start};
use super::pinning::{self, Pinned};
use super::watch::{self, Guards};
use super::{Session, environment, grants, interface_pins, network, profiles, server_errors, trust};

/// A server as the host's configuration (or the policy) declares it.
#[derive(Clone, Debug)]
pub struct Declaration {
    pub id: ServerId,
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    /// The user wrote it; false for a file that came with the project.
    pub users_word: bool,
    /// It came with the project, and the user has agreed to that file as it is.
    pub agreed: bool,
    /// `FILE:LINE` where it stands; None for a command line.
    pub place: Option<String>,
}

/// As a shell tells of SIGKILL.
pub(super) const KILLED: u8 = 137;
/// How long an ended server's last words are waited for.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Where the server's standard error goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOutput {
    /// The last lines are kept for the message after a crash.
    Kept,
    /// To agentsh's own, with the server's id in front of each line.
    Shown,
}

impl Declaration {
    /// Whether what the user's policy gives to this name is meant for this server. Anybody can choose a name.
    #[must_use]
    pub fn has_grants_by_name(&self) -> bool {
        self.users_word || self.agreed
    }
}

pub struct Server {
    session: Rc<Session>,
    declaration: Declaration,
    process: ProcessPolicy,
    error_output: ErrorOutput,
    starts: u32,
    /// Set to the exit status of a shell where a start failed.
    failure: Rc<Cell<Option<u8>>>,
}

impl Server {
    /// Says in `failure` with which status a shell would have ended, where a start fails.
    #[must_use]
    pub fn telling(mut self, failure: Rc<Cell<Option<u8>>>) -> Self {
        self.failure = failure;
        self
    }

    #[must_use]
    pub fn new(session: Rc<Session>, declaration: Declaration, error_output: ErrorOutput) -> Self {
        let process = session
            .policy
            .mcp
            .servers
            .get(&declaration.id)
            .filter(|_| declaration.has_grants_by_name())
            .map_or_else(ProcessPolicy::server_default, |server| server.process.clone());
        Self { session, declaration, process, error_output, starts: 0, failure: Rc::default() }
    }

    /// What will run, as pinned; refused when the pin says so.
    async fn pinned(&self) -> Result<Pinned, StartError> {
        pinning::check(&self.session, &self.declaration).await
    }
}

impl Upstream for Server {
    type Stdin = pipe::Sender;
    type Stdout = pipe::Receiver;

    async fn start(&mut self) -> Result<Running<Self::Stdin, Self::Stdout>, StartError> {
        let mut started = self.launch().await;
        self.failure.set(started.as_ref().err().map(|error| error.status));
        if let Err(error) = &mut started {
            if let Some(place) = &self.declaration.place {
                error.message.push_str(&format!(" ({place})"));
            }
            if !error.recorded {
                self.session.journal.record(Event::McpServerRefused {
                    server_id: self.declaration.id.clone(),
                    reason: "start-failed".to_owned(),
                    detail: error.message.clone(),
                    rule: RuleRef::default_rule("server start"),
                });
            }
            self.session.note(&error.message);
            self.session.told.borrow_mut().entry(error.message.clone()).or_default();
        }
        started
    }
}

impl Server {
    async fn launch(&mut self) -> Result<Running<pipe::Sender, pipe::Receiver>, StartError> {
        let session = Rc::clone(&self.session);
        let id = &self.declaration.id;
        let Pinned { resolved, files, descriptors } = self.pinned().await?;
        let scope = pinning::scope(&session, &self.declaration);
        // Other arguments make another server: what it offers may follow from them.
        let basis = interface_pins::basis(&resolved.digest, &self.declaration.args);
        session
            .interfaces
            .expect(&session.pins, id, &scope, &basis)
            .await
            .map_err(|error| permanent(format!("cannot start server '{id}': {error}")))?;
        let given = profiles::apply(&session, &self.declaration, &resolved)?;
        self.process = given.process;
        let context =
            PathContext { home: session.context.home.clone(), project: session.context.project.clone() };
        let mut expanded = grants::expand(&self.process.filesystem, &context);
        if let Some(why) = &expanded.refused {
            return Err(permanent(format!("cannot start server '{id}': {why}")));
        }
        let directory = self.declaration.cwd.clone().unwrap_or_else(|| session.context.directory.clone());
        let (from_arguments, refused) =
            grants::from_arguments(&self.declaration.args, &directory, &context, self.declaration.users_word);
        expanded.grants.extend(from_arguments.into_iter().filter(|grant| !covered(&resolved, &grant.path)));
        expanded.grants.extend(given.grants);
        for line in refused {
            session.note(&format!("server '{id}' does not get {line}"));
        }

        let filtered =
            environment::filter(&self.process.env, &session.context.env, environment::Asker::Server(id));
        let mut env = filtered.passed;
        environment::overlay(&mut env, &self.declaration.env, &self.process.env, self.declaration.users_word);
        for (name, value) in given.env {
            env.entry(name).or_insert(value);
        }
        let own = self.declaration.users_word;
        environment::overlay(&mut env, &resolved.worded, &self.process.env, own);
        env.extend(resolved.env.clone());
        environment::settle(&mut env, &session.context);
        let bundle = trust::give(&session, &self.process.network, &mut env);
        if !filtered.stripped.is_empty() {
            session.journal.record(Event::McpServerEnvFiltered {
                server_id: Some(id.clone()),
                stripped_vars: filtered.stripped,
                passed_count: env.len(),
            });
        }

        let (stdin, stdin_inside) = pipe_in().map_err(|error| failed(id, &error))?;
        let (stdout, stdout_inside) = pipe_out().map_err(|error| failed(id, &error))?;
        let (stderr, stderr_inside) = pipe_out().map_err(|error| failed(id, &error))?;
        let limits = self.process.limits.clone().or(policy::limits::limits_for_server());
        let workdir = self
            .declaration
            .cwd
            .clone()
            .or_else(|| resolved.cwd.clone())
            .unwrap_or_else(|| session.workdir());
        let argv = strings(&resolved)?;
        let way = network::way(&session, Some(id.clone()), self.process.network.clone())
            .await
            .map_err(|why| permanent(format!("cannot start server '{id}': {why}")))?;
        let mut start = Start {
            label: &id.0,
            policy: &self.process,
            limits: &limits,
            for_agent: false,
            terminal: Terminal::NewSession,
            program: Program {
                path: resolved.program.clone(),
                argv: argv.clone(),
                env: env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
                workdir,
            },
            pinned: files,
            program_roots: resolved.read_roots.clone(),
            descriptors,
            project_access: session.project_shown.then_some(Access::ReadOnly),
            layer: session.layered.get().map(|_| ProjectLayer::Lent),
            grants: expanded.grants,
            own_state: given.own_state,
            denied: expanded.denied,
            unmasked: expanded.unmasked,
            execute: session.executable_paths(&self.process),
            shared_sockets: !session.neighbours.get(),
            files: bundle.into_iter().collect(),
            extra: Vec::new(),
            caches: Vec::new(),
            network: Some(way),
            stdio: [stdin_inside.as_fd(), stdout_inside.as_fd(), stderr_inside.as_fd()],
            allow_degraded: session.allow_degraded,
        };
        let refused = |error: SpawnError| permanent(error.to_string());
        let begun = launch::begin(&session.context, &start, &session.next_cgroup()).map_err(refused)?;
        let mut layout = launch::prepare(&session.context, &start);
        if let Some(agent) = session.layered.get() {
            launch::borrow_layer(&session.context, agent, &mut layout, &mut start.descriptors)
                .map_err(|why| permanent(format!("cannot show the project to server '{id}': {why}")))?;
        }
        let is_there = |path: &std::path::Path| session.project_shown || path != session.context.project;
        for (path, why) in layout.refused.iter().filter(|(path, _)| is_there(path)) {
            session.note(&format!("server '{id}' does not get {}: {why}", path.display()));
        }
        // Before the stand-ins, which may stand in a directory that was pinned.
        resolved
            .unchanged_since()
            .map_err(|error| permanent(format!("cannot start server '{id}': {error}")))?;
        let stand_ins = launch::stand_ins(&session.context, &layout).map_err(|error| failed(id, &error))?;
        self.starts += 1;
        let before = watch::Before::new(&session, launch::keep(&session.context, &start), &layout);
        let mut running = launch::start(&session.context, begun, start, layout).await.map_err(refused)?;
        drop((stdin_inside, stdout_inside, stderr_inside));
        let guards = Guards::start(&session, Some(id), before, &mut running, stand_ins);

        session.record_enforcement(Some(id), &running.enforcement);
        session.journal.record(Event::ProcessStarted {
            server_id: Some(id.clone()),
            program: resolved.program.display().to_string(),
            args: redact::arguments(&argv[1.min(argv.len())..]),
            hash: resolved.digest.clone(),
            pid: running.child.pid,
        });
        // The manifest of a large tree is needed no more; the session lives on.
        drop(resolved);
        crate::memory::trim_heap();
        crate::memory::forget_code();
        let said =
            server_errors::follow(stderr, (self.error_output == ErrorOutput::Shown).then(|| id.clone()));
        let said = tokio::task::spawn_local(said);
        Ok(supervised(session, id.clone(), (running, guards), stdin, stdout, (said, self.error_output)))
    }
}

/// Turns the sandbox into what the proxy holds: streams, an exit to await, a way to kill.
fn supervised(
    session: Rc<Session>,
    id: ServerId,
    (running, guards): (launch::Running, Guards),
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    (said, error_output): (tokio::task::JoinHandle<String>, ErrorOutput),
) -> Running<pipe::Sender, pipe::Receiver> {
    let (kill, mut killed) = tokio::sync::mpsc::unbounded_channel::<()>();
    let exit = tokio::task::spawn_local(async move {
        let launch::Running { child, cgroup, watched_memory, way_out, .. } = running;
        let pid = child.pid;
        let mut cause = ExitCause::Exited;
        let code = {
            let over = memory_exceeded(pid, watched_memory);
            tokio::pin!(over);
            tokio::select! {
                code = child.exit() => code,
                () = &mut over => {
                    cause = ExitCause::MemoryLimit;
                    child.kill();
                    child.exit().await
                }
                _ = killed.recv() => {
                    cause = ExitCause::Killed;
                    child.kill();
                    child.exit().await
                }
            }
        };
        if cause == ExitCause::Exited && code == KILLED && cgroup.was_out_of_memory() {
            cause = ExitCause::MemoryLimit;
        }
        if cause == ExitCause::MemoryLimit {
            session.note(&format!(
                "server '{id}' was ended: it used more memory than its `limits.memory` allows"
            ));
        }
        let message = child.execution_error().map(|error| error.to_string());
        drop(child);
        drop(cgroup);
        guards.finish().await;
        if let Some(way_out) = way_out {
            network::finish(&session, way_out).await;
        }
        session.journal.record(Event::ProcessExited { server_id: Some(id.clone()), exit_code: code, cause });
        let said = tokio::time::timeout(LAST_WORDS, said).await;
        if let Some(message) = message {
            session.note(&message);
        } else if code != 0
            && cause == ExitCause::Exited
            && error_output == ErrorOutput::Kept
            && let Ok(Ok(text)) = said
            && !text.is_empty()
        {
            session.note(&format!("server '{id}' said before it ended with exit code {code}:\n{text}"));
        }
        ExitInfo { code, cause: cause.as_str().to_owned() }
    });
    Running {
        stdin,
        stdout,
        exit: Box::pin(async move {
            exit.await.unwrap_or_else(|_| ExitInfo { code: u8::MAX, cause: "killed".to_owned() })
        }),
        // Nobody listens any more: the server has ended already.
        kill: Box::new(move || {
            let _ = kill.send(());
        }),
    }
}

/// Resolves when the processes below `pid` together hold more than `limit` bytes; never without a limit.
pub async fn memory_exceeded(pid: u32, limit: Option<u64>) {
    let Some(limit) = limit else { return std::future::pending().await };
    watchdog::exceeded(pid, limit).await;
}

/// A grant must not make the pinned program itself writable.
fn covered(resolved: &Resolved, path: &std::path::Path) -> bool {
    resolved.files.iter().any(|file| file.path == path)
        || resolved.trees.iter().any(|tree| path.starts_with(&tree.root))
}

fn strings(resolved: &Resolved) -> Result<Vec<String>, StartError> {
    let convert = |argument: &std::ffi::OsString| argument.clone().into_string();
    resolved.argv.iter().map(convert).collect::<Result<_, _>>().map_err(|argument| {
        permanent(format!(
            "argument {} is not UTF-8; agentsh passes only UTF-8 arguments",
            argument.to_string_lossy()
        ))
    })
}

fn pipe_in() -> std::io::Result<(pipe::Sender, std::os::fd::OwnedFd)> {
    let (inside, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    make_ours(&ours)?;
    Ok((pipe::Sender::from_owned_fd(ours)?, inside))
}

fn pipe_out() -> std::io::Result<(pipe::Receiver, std::os::fd::OwnedFd)> {
    let (ours, inside) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    make_ours(&ours)?;
    Ok((pipe::Receiver::from_owned_fd(ours)?, inside))
}

/// Bytes that a server may have written, or not yet read. The kernel gives a pipe 64 KiB, and a long line in such pieces is
/// a change of process for each; a user may have 64 MiB of pipes (fs.pipe-user-pages-soft).
const PIPE_BYTES: usize = 256 << 10;

fn make_ours(end: &std::os::fd::OwnedFd) -> std::io::Result<()> {
    // A user's pipes may be limited: a small one is slower and works.
    let _ = rustix::pipe::fcntl_setpipe_size(end, PIPE_BYTES);
    Ok(rustix::io::ioctl_fionbio(end, true)?)
}

fn permanent(message: String) -> StartError {
    StartError { message, permanent: true, recorded: false, status: StartError::FAILED }
}

fn failed(id: &ServerId, error: &std::io::Error) -> StartError {
    let message = format!("cannot start server '{id}': {error}");
    StartError { permanent: false, ..permanent(message) }
}
