//! One MCP server behind the proxy: resolved, compared with its pin, started and restarted.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::unix::pipe;

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_mcp::{ExitInfo, Running, StartError, Upstream};
use agentsh_pin::Resolved;
use agentsh_policy::ProcessPolicy;
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{Contribution, EnvChange, Feature, PathRules, ProcessKind, ProjectLayer, merge};
use agentsh_store::Event;
use agentsh_store::words::ExitCause;

use super::declared::Declaration;
use super::held_names::HeldNames;
use super::launch::Handles;
use super::network::{self, AgentNetwork};
use super::process::{self, Process, ProcessEnd, ProcessError};
use super::resolving::Pinned;
use super::{
    Session, advisories, environment, grants, interface_pins, pinning, pipes, profiles, server_errors,
    specify, trust,
};

/// Between SIGTERM and SIGKILL.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(1);
/// For an ended server's last output.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// The destination of a server's standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOutput {
    /// The last lines are kept for a crash message.
    Kept,
    /// agentsh's standard error, with the server's id before each line.
    Shown,
}

pub struct Server {
    session: Rc<Session>,
    declaration: Declaration,
    process: ProcessPolicy,
    error_output: ErrorOutput,
    starts: u32,
    /// Set to a shell's exit status if the start fails.
    failure: Rc<Cell<Option<u8>>>,
}

impl Server {
    /// Sets `failure` if the start fails.
    #[must_use]
    pub fn with_failure_flag(mut self, failure: Rc<Cell<Option<u8>>>) -> Self {
        self.failure = failure;
        self
    }

    #[must_use]
    pub fn new(session: Rc<Session>, declaration: Declaration, error_output: ErrorOutput) -> Self {
        let process = session
            .facts
            .policy
            .mcp
            .servers
            .get(&declaration.id)
            .filter(|_| declaration.has_grants_by_name())
            .map_or_else(ProcessPolicy::server_default, |server| server.process.clone());
        Self { session, declaration, process, error_output, starts: 0, failure: Rc::default() }
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
                self.session.record.journal.record(Event::McpServerRefused {
                    server_id: self.declaration.id.clone(),
                    reason: "start-failed".to_owned(),
                    detail: error.message.clone(),
                    rule: RuleRef::default_rule("server start"),
                });
            }
            self.session.record.note(&error.message);
            self.session.record.told.borrow_mut().entry(error.message.clone()).or_default();
        }
        started
    }
}

impl Server {
    async fn launch(&mut self) -> Result<Running<pipe::Sender, pipe::Receiver>, StartError> {
        let session = Rc::clone(&self.session);
        let id = &self.declaration.id;
        let (pinned, scope) = pinning::check(&session, &self.declaration).await?;
        let Pinned { resolved, files, descriptors } = pinned;
        advisories::check(&session, id, &scope, advisories::Launch::Command(&resolved)).await?;
        // Other arguments may change the interface.
        let basis = interface_pins::basis(&resolved.digest, &self.declaration.args);
        session
            .live
            .servers
            .interfaces
            .expect(&session.live.servers.pins, id, &scope, &basis)
            .await
            .map_err(|error| StartError::permanent(format!("cannot start server '{id}': {error}")))?;
        let given = profiles::apply(&session, &self.declaration, &resolved)?;
        self.process = given.process;
        let context = &session.facts.context;
        let of_policy = grants::contribution(&self.process.filesystem, &session.facts.paths())
            .map_err(|why| StartError::permanent(format!("cannot start server '{id}': {why}")))?;
        let directory = self.declaration.cwd.clone().unwrap_or_else(|| context.directory.clone());
        let own = self.declaration.from_user;
        let (from_arguments, refused) =
            grants::from_arguments(&self.declaration.args, &directory, &session.facts.paths(), own);
        for line in refused {
            session.record.note(&format!("server '{id}' does not get {line}"));
        }
        let env = &self.process.env;
        let from_arguments = from_arguments.into_iter().filter(|grant| !covered(&resolved, &grant.path));
        let defaults = given.env.into_iter().map(|(name, value)| EnvChange::Default(name, value));
        let of_profile =
            Contribution::new(Feature::Profile).granting(given.grants).with_own_files(given.own_state);
        let worded = environment::declared_variables(&resolved.worded, env, own);
        let needed = resolved.env.clone().into_iter().map(|(name, value)| EnvChange::Set(name, value));
        let authority = trust::authority(&session, &self.process.network);
        let parts = vec![
            of_policy,
            Contribution { environment: defaults.collect(), ..of_profile },
            Contribution {
                environment: environment::declared_variables(&self.declaration.env, env, own),
                ..Contribution::new(Feature::Declaration).granting(from_arguments)
            },
            Contribution {
                environment: worded.into_iter().chain(needed).collect(),
                ..Contribution::new(Feature::Program)
            },
            specify::of_sandbox(context, ProcessKind::Server),
            trust::contribution(context, authority.as_deref(), false),
            specify::closed_hosts(&session),
        ];

        let (stdin, stdin_inside) = pipes::to_write().map_err(|error| start_error(id, &error))?;
        let (stdout, stdout_inside) = pipes::to_read().map_err(|error| start_error(id, &error))?;
        let (stderr, stderr_inside) = pipes::to_read().map_err(|error| start_error(id, &error))?;
        let cwd = self.declaration.cwd.clone().or_else(|| resolved.cwd.clone());
        let program = specify::Pinning {
            argv: strings(&resolved)?.into_iter().map(Into::into).collect(),
            workdir: cwd.unwrap_or_else(|| session.facts.workdir()),
            resolved: &resolved,
            pinned: files,
        };
        let limits = self.process.limits.resolve_for_server();
        let mut process = specify::process(&session.facts, ProcessKind::Server, &id.0, limits, program);
        process.raw_environment = environment::raw(&self.process.env, context);
        let filesystem = &self.process.filesystem;
        let paths = PathRules {
            project_access: session.facts.project_shown.then_some(Access::ReadOnly),
            layer: session.live.agent.layered.get().map(|_| ProjectLayer::Lent),
            program_roots: resolved.read_roots.clone(),
            guard_all: filesystem.guard.as_ref().is_some_and(|all| all.value),
            execute: session.facts.executable_paths(&self.process),
            shared_sockets: !session.live.agent.has_neighbours.get(),
            ..specify::path_rules(context, ProcessKind::Server, &limits)
        };
        let section = format!("sandbox.mcp.servers[{id}]");
        let mut spec = merge(process, paths, &specify::rules(&self.process, &section, &context.env), parts);
        specify::remove_variables(&mut spec, &resolved);
        specify::report(&session.record, Some(id), &spec);
        let egress = network::open(&session, Some(id.clone()), &spec.network, AgentNetwork::default())
            .await
            .map_err(|why| StartError::permanent(format!("cannot start server '{id}': {why}")))?;
        let handles = Handles {
            descriptors,
            lender: session.live.agent.layered.get(),
            egress: Some(egress),
            stdio: [stdin_inside.as_fd(), stdout_inside.as_fd(), stderr_inside.as_fd()],
            reports_to: Some((Rc::clone(&session), Some(id.clone()))),
            asks: None,
        };
        let is_there =
            |path: &std::path::Path| session.facts.project_shown || path != session.facts.context.project;
        let lacks = |path: &std::path::Path, why: &str| {
            if is_there(path) {
                session.record.note(&format!("server '{id}' does not get {}: {why}", path.display()));
            }
        };
        let granted = grants::on_record(filesystem);
        // Before the last look at them.
        let held = HeldNames::of(&session, &resolved)
            .map_err(|why| StartError::permanent(format!("cannot start server '{id}': {why}")))?;
        let started = process::start(&session, Some(id), &spec, handles, &resolved, granted, lacks).await;
        let process = started.map_err(|error| match error {
            ProcessError::Spawn(error) => StartError::permanent(error.to_string()),
            ProcessError::Changed(error) => {
                StartError::permanent(format!("cannot start server '{id}': {error}"))
            }
            ProcessError::Stubs(error) => start_error(id, &error),
        })?;
        self.starts += 1;
        if let Some(held) = held {
            held.until_it_speaks(&stdout).map_err(|error| start_error(id, &error))?;
        }
        drop((stdin_inside, stdout_inside, stderr_inside));
        // The manifest may be large, and the session long.
        drop(resolved);
        agentsh_base::memory::trim_heap();
        let said =
            server_errors::follow(stderr, (self.error_output == ErrorOutput::Shown).then(|| id.clone()));
        let said = agentsh_base::task::spawn_local(said);
        Ok(supervised(session, id.clone(), process, stdin, stdout, (said, self.error_output)))
    }
}

/// Wraps the sandbox for the proxy: streams, exit, kill.
fn supervised(
    session: Rc<Session>,
    id: ServerId,
    process: Process,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    (said, error_output): (tokio::task::JoinHandle<String>, ErrorOutput),
) -> Running<pipe::Sender, pipe::Receiver> {
    let (kill, mut killed) = tokio::sync::mpsc::unbounded_channel::<()>();
    let told = Rc::new(Cell::new(false));
    let is_told = Rc::clone(&told);
    let exit = agentsh_base::task::spawn_local(async move {
        let is_ended = Cell::new(false);
        let (code, cause) = process
            .exit(async {
                killed.recv().await;
                is_ended.set(true);
                // Its input is closed.
                process.child().signal(Signal::TERM);
                tokio::time::sleep(TERMINATE_TIMEOUT).await;
                ExitCause::Killed
            })
            .await;
        let cause = if is_ended.get() { ExitCause::Killed } else { cause };
        let ProcessEnd { cause, error } = process.finish(code, cause).await;
        if cause == ExitCause::MemoryLimit {
            session.record.note(&format!(
                "agentsh killed server '{id}': it used more memory than its `limits.memory` allows"
            ));
        }
        let said = tokio::time::timeout(DRAIN_TIMEOUT, said).await;
        if let Some(error) = error {
            session.record.note(&error.to_string());
        } else if code != 0
            && cause == ExitCause::Exited
            && !is_told.get()
            && error_output == ErrorOutput::Kept
            && let Ok(Ok(text)) = said
            && !text.is_empty()
        {
            session.record.note(&format!("server '{id}' exited ({code}); its last output:\n{text}"));
        }
        ExitInfo { code, cause: cause.as_str().to_owned() }
    });
    Running {
        stdin,
        stdout,
        exit: Box::pin(async move {
            exit.await.unwrap_or_else(|_| ExitInfo { code: u8::MAX, cause: "killed".to_owned() })
        }),
        // The server may have ended.
        kill: Box::new(move || {
            let _ = kill.send(());
        }),
        told,
    }
}

/// A grant must not make the pinned program writable.
fn covered(resolved: &Resolved, path: &std::path::Path) -> bool {
    resolved.files.iter().any(|file| file.path == path)
        || resolved.trees.iter().any(|tree| path.starts_with(&tree.root))
}

fn strings(resolved: &Resolved) -> Result<Vec<String>, StartError> {
    let convert = |argument: &std::ffi::OsString| argument.clone().into_string();
    resolved.argv.iter().map(convert).collect::<Result<_, _>>().map_err(|argument| {
        StartError::permanent(format!(
            "argument {} is not UTF-8; agentsh passes only UTF-8 arguments",
            argument.to_string_lossy()
        ))
    })
}

fn start_error(id: &ServerId, error: &std::io::Error) -> StartError {
    let message = format!("cannot start server '{id}': {error}");
    StartError { permanent: false, ..StartError::permanent(message) }
}
