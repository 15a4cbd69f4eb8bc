//! `agentsh run -- AGENT`: the agent in its sandbox, its servers behind bridges, every decision on record.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::process::Signal;

use crate::agent::{self, Access as StateAccess, Kind, Launch, StateKind, Transport};
use crate::policy;
use crate::sandbox::SpawnError;
use crate::sandbox::layout::{Elsewhere, Grant, OWN_DIRECTORY, ProjectLayer};
use crate::sandbox::plan::{Access, Program, Terminal};
use crate::sandbox::report::Enforcement;
use crate::store::Event;
use crate::store::words::ExitCause;
use crate::types::ServerId;

use super::agreements;
use super::bridges::{self, Bridges, Declared};
use super::context::Context;
use super::guarded_terminal::GuardedTerminal;
use super::launch::{self, Running, Start};
use super::model::Model;
use super::pinning::{self, Command, Pinned};
use super::publish::Asked;
use super::remote;
use super::server::{Declaration, KILLED, memory_exceeded};
use super::signals::{Signals, has_terminal, take_terminal_back};
use super::suspend::Suspended;
use super::toolchains::{self, Caches, Toolchains};
use super::watch::{self, Guards};
use super::{
    Opening, RemoveOnDrop, Session, SessionError, briefing, environment, git_identity, grants, network,
    registries, repositories, review, socket_directory, trust, why,
};

/// The command line of `run`.
#[derive(Clone, Debug)]
pub struct Request {
    pub policy: Option<String>,
    /// What the command line adds to the policy.
    pub flags: policy::Flags,
    pub allow_degraded: bool,
    pub backend: network::Backend,
    pub publish: Vec<Asked>,
    /// Agree to the repositories beside the project that its git leads to.
    pub agree: bool,
    /// What is written to the project is kept apart, and applied afterwards.
    pub review: bool,
    pub agent: Vec<String>,
    /// `run`, or `demo`.
    pub verb: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Agent(#[from] agent::AgentError),
    #[error(transparent)]
    Pin(#[from] crate::pin::PinError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{0}")]
    Refused(String),
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
    #[error("cannot record what happened: {0}")]
    Store(#[from] crate::store::StoreError),
}

/// What is left of a run: its status, and the session for the report.
pub struct Outcome {
    pub exit_code: u8,
    pub session: Rc<Session>,
}

/// Runs the agent to its end. Must be called inside a `LocalSet`.
///
/// # Errors
/// Whatever stopped the agent from being started. A failure after that is the agent's.
pub async fn run(request: Request) -> Result<Outcome, RunError> {
    let program = request.agent.first().cloned().unwrap_or_default();
    let kind = agent::kind_of(&program);
    let session = Session::open(
        Context::find().map_err(SessionError::from)?,
        Opening {
            verb: request.verb,
            command: &request.agent,
            agent: agent_name(kind),
            policy: request.policy.clone(),
            flags: request.flags.clone(),
            allow_degraded: request.allow_degraded,
            backend: request.backend,
            project_shown: true,
            hold_messages: true,
        },
    )
    .await?;
    session.is_reviewed.set(request.review);
    let session = Rc::new(session);
    let result = supervise(&session, kind, &request).await;
    session.release_notes();
    let exit_code = match &result {
        Ok(code) => *code,
        Err(error) => exit_code_of(error),
    };
    session.close(exit_code).await?;
    result.map(|exit_code| Outcome { exit_code, session })
}

/// 127 when the program does not exist, 126 when it cannot be executed, 125 for everything of agentsh's own.
#[must_use]
pub fn exit_code_of(error: &RunError) -> u8 {
    match error {
        RunError::Pin(error) if error.is_missing() => 127,
        RunError::Pin(error) if error.is_not_executable() => 126,
        RunError::Spawn(SpawnError::Init { missing: true, .. }) => 127,
        // ENOEXEC: neither a program of this machine nor a script.
        RunError::Spawn(SpawnError::Init { message, .. }) if message.ends_with("(os error 8)") => 126,
        _ => 125,
    }
}

async fn supervise(session: &Rc<Session>, kind: Kind, request: &Request) -> Result<u8, RunError> {
    let argv = &request.agent;
    let io = |doing| move |source| RunError::Io { doing, source };
    let sockets = RemoveOnDrop(
        socket_directory(&session.context, session.id).map_err(io("make the socket directory"))?,
    );
    let (listener, socket) = bridges::listen(sockets.path()).map_err(io("make the bridge socket"))?;
    // It gets ready while there is other work.
    let mut terminal = GuardedTerminal::begin();
    let launch = adapt(session, kind, argv)?;
    for (id, reason) in &launch.refused {
        session.journal.record(Event::McpServerRefused {
            server_id: id.clone(),
            reason: "not-supported".to_owned(),
            detail: reason.clone(),
            rule: crate::types::RuleRef::default_rule("agent"),
        });
        session.note(&format!("server '{id}' is not passed to the agent: {reason}"));
    }
    for note in &launch.notes {
        session.note(note);
    }
    let declared = declarations(&launch);
    session.neighbours.set(!declared.is_empty());

    let command = Command {
        program: launch.argv.first().cloned().unwrap_or_default(),
        args: launch.argv.iter().skip(1).cloned().collect(),
        cwd: session.context.directory.clone(),
        env: session.context.env.clone(),
        not_below: None,
    };
    let (pinned, ()) =
        tokio::join!(pinning::resolve(session, command, None), pinning::ahead(session, &declared));
    let pinned = pinned?;
    session.agent_runs.set(true);
    let bridges = Bridges::new(Rc::clone(session), declared).with_policy();
    let bridges = Rc::new(bridges.map_err(io("make a key"))?);
    // Before the agent runs: a signal that came between its first step and ours would end us, and it with us.
    let signals = Signals::listen()?;
    if let Some(terminal) = &mut terminal {
        terminal.ready();
    }
    let started = start_agent(session, kind, &launch, pinned, &socket, request).await;
    if started.is_err() && request.review {
        tell_of_layer(session);
    }
    let (running, guards, layers) = started?;
    tokio::task::spawn_local(Rc::clone(&bridges).serve(listener));
    let code = until_exit(session, running, signals).await;
    guards.finish().await;
    drop(layers);
    let code = code?;
    if let Some(terminal) = terminal.as_mut().filter(|_| code != 0) {
        terminal.restore();
    }
    drop(terminal);
    bridges.finish();
    session.clean_up(sockets);
    if request.review {
        tell_of_layer(session);
    }
    Ok(code)
}

fn adapt(session: &Session, kind: Kind, argv: &[String]) -> Result<Launch, RunError> {
    let context = &session.context;
    let paths = session.paths();
    let config = session
        .policy
        .agent_only
        .mcp_config
        .as_ref()
        .map(|ruled| policy::place::resolve(&ruled.value, &paths));
    let extra = policy_servers(session);
    let agreed = agreements::load(&context.state);
    let bridge = format!("{OWN_DIRECTORY}/agentsh");
    let told = briefing::text(session);
    let socket = format!("{OWN_DIRECTORY}/bridge");
    Ok(agent::adapt(
        kind,
        &agent::Context {
            argv,
            env: &context.env,
            home: &context.home,
            project: &context.project,
            cwd: &context.directory,
            bridge: &bridge,
            socket: &socket,
            inject_dir: Path::new(OWN_DIRECTORY),
            generic_config: config.as_deref(),
            extra: &extra,
            agreed: &agreed,
            told: told.as_deref(),
        },
    )?)
}

/// Servers that the policy itself declares.
fn policy_servers(session: &Session) -> BTreeMap<ServerId, agent::Declared> {
    let mut servers = BTreeMap::new();
    for (id, server) in &session.policy.mcp.servers {
        let Some(command) = &server.command else { continue };
        let transport = Transport::Stdio {
            command: command.clone(),
            args: server.args.clone(),
            env: server.env.clone(),
            cwd: None,
        };
        let origin = agent::Origin {
            file: PathBuf::from(&server.rule.file),
            line: server.rule.line,
            scope: agent::Scope::Policy,
            agreed: false,
        };
        servers.insert(id.clone(), agent::Declared { id: id.clone(), transport, origin });
    }
    servers
}

fn declarations(launch: &Launch) -> BTreeMap<ServerId, Declared> {
    let mut declared = BTreeMap::new();
    for (id, server) in &launch.servers {
        let users_word = server.origin.scope != agent::Scope::Project;
        let place = Some(match server.origin.line {
            0 => server.origin.file.display().to_string(),
            line => format!("{}:{line}", server.origin.file.display()),
        });
        let id = id.clone();
        let declaration = match &server.transport {
            Transport::Stdio { command, args, env, cwd } => Declared::Command(Declaration {
                id: id.clone(),
                command: command.clone(),
                args: args.clone(),
                env: env.clone(),
                cwd: cwd.as_ref().map(PathBuf::from),
                users_word,
                agreed: server.origin.agreed,
                place,
            }),
            Transport::Remote { url, headers, .. } => Declared::Url(remote::Declaration {
                id: id.clone(),
                url: url.clone(),
                headers: Ok(headers.clone().into_iter().collect()),
                users_word,
                place,
            }),
        };
        declared.insert(id, declaration);
    }
    declared
}

/// What stays locked while the agent runs.
struct Layers {
    _project: Option<review::Layer>,
    _caches: Caches,
}

async fn start_agent(
    session: &Rc<Session>,
    kind: Kind,
    launch: &Launch,
    pinned: Pinned,
    socket: &Path,
    request: &Request,
) -> Result<(Running, Guards, Layers), RunError> {
    let context = &session.context;
    let process = &session.policy.agent;
    let paths = session.paths();
    let expanded = grants::expand(&process.filesystem, &paths);
    if let Some(why) = expanded.refused {
        return Err(RunError::Refused(why));
    }
    let project_access = if process.filesystem.may_write(&paths.project, &paths) {
        Some(Access::ReadWrite)
    } else {
        process.filesystem.may_read(&paths.project, &paths).then_some(Access::ReadOnly)
    };
    let (own_state, mut files, of_project) = home_state(session, kind, launch)?;
    let state_paths: Vec<PathBuf> = own_state.iter().map(|grant| grant.path.clone()).collect();
    // What the user granted himself is there as it is.
    let is_granted = |path: &Path| expanded.grants.iter().any(|grant| path.starts_with(&grant.path));
    let of_git = git_identity::files(context).into_iter().filter(|(path, _)| !is_granted(path));
    files.extend(of_git.map(|(path, content)| (path, content, 0o644)));
    files.extend(launch.files.iter().map(|file| (file.path.clone(), file.content.clone(), file.mode)));
    files.extend(launch.replaced.iter().map(|(path, content)| (path.clone(), content.clone(), 0o444)));

    // Where a policy lists what may run, it means to leave nothing to chance.
    let is_listed = !session.executable_paths(process).is_empty();
    let mut toolchains = if is_listed { Toolchains::default() } else { toolchains::find(context) };
    toolchains.caches.retain(|cache| !is_granted(cache));
    let hidden: Vec<PathBuf> = expanded.denied.iter().chain(&toolchains.hidden).cloned().collect();
    let caches = toolchains::caches(context, &toolchains, &hidden)
        .map_err(|source| RunError::Io { doing: "make the project's caches", source })?;
    let socket = (socket.to_owned(), Path::new(OWN_DIRECTORY).join("bridge"), Access::ReadOnly);
    let of_caches: Vec<_> = caches.places().into_iter().map(|inside| (inside, Access::ReadWrite)).collect();
    let own = caches.own.iter().cloned().map(|(host, inside)| (host, inside, Access::ReadWrite));
    let extra = own.chain([socket]).chain(of_project);
    let extra = extra.map(|(host, inside, access)| Elsewhere { host, inside, access }).collect();

    let mut beside = repositories::agreed(session, request.agree)
        .map_err(|source| RunError::Io { doing: "remember what was agreed to", source })?;
    if request.review {
        for grant in &mut beside {
            grant.access = Access::ReadOnly;
            let path = grant.path.display();
            session.note(&format!("{path} lies outside the project: with --review it may only be read"));
        }
    }

    let rules = network::with_endpoints(&process.network, &launch.endpoints, Model::ends_tls(session));
    let rules = if is_listed { rules } else { registries::with_registries(rules, context) };
    let shown = toolchains
        .grants
        .iter()
        .chain(&own_state)
        .chain(&beside)
        .map(|grant| (grant.path.clone(), grant.access));
    let has = why::Has {
        rules: rules.clone(),
        shown: shown.chain(of_caches).collect(),
        hidden: toolchains.hidden.clone(),
    };
    // It is set once: a session has one agent.
    let _ = session.agent_has.set(has);
    let mut way = network::way(session, None, rules.clone())
        .await
        .map_err(|why| RunError::Refused(format!("cannot start the agent: {why}")))?;
    let known = launch.servers.keys().map(|id| id.0.clone()).collect();
    if let Some(model) = Model::of(session, &launch.endpoints, known) {
        let judged = Enforcement::enforced("model", "tool calls are judged before the agent sees them");
        session.record_enforcement(None, &[judged]);
        way.channel = Some(model);
    }
    way.publish(&to_publish(session, &request.publish)).map_err(RunError::Refused)?;
    for published in &way.published {
        session.announce(&published.line());
    }
    let mut env = agent_environment(session, kind, launch, &toolchains, &pinned);
    files.extend(trust::give(session, &rules, &mut env));
    let is_layered = request.review && project_access.is_some();
    let layer = is_layered.then(|| layer(session, &request.agent, &expanded.unmasked)).transpose()?;
    let argv: Vec<String> =
        pinned.resolved.argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let limits = process.limits.clone().or(policy::limits::limits_for_agent());
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let start = Start {
        label: "agent",
        policy: process,
        limits: &limits,
        for_agent: true,
        terminal: Terminal::Keep,
        program: Program {
            path: pinned.resolved.program.clone(),
            argv: argv.clone(),
            env: env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            workdir: context.directory.clone(),
        },
        pinned: pinned.files,
        program_roots: pinned.resolved.read_roots.clone(),
        descriptors: pinned.descriptors,
        project_access,
        layer: layer.as_ref().map(|layer| ProjectLayer::Own(layer.directory.clone())),
        grants: expanded.grants.into_iter().chain(toolchains.grants).chain(beside).collect(),
        own_state,
        denied: expanded.denied.into_iter().chain(toolchains.hidden).collect(),
        unmasked: expanded.unmasked.into_iter().chain(state_paths).collect(),
        execute: session.executable_paths(process),
        shared_sockets: !session.neighbours.get(),
        files,
        extra,
        caches: caches.layers.clone(),
        network: Some(way),
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        allow_degraded: session.allow_degraded,
    };
    let begun = launch::begin(context, &start, &session.next_cgroup())?;
    let layout = launch::prepare(context, &start);
    for (path, why) in &layout.refused {
        session.note(&format!("the agent does not get {}: {why}", path.display()));
    }
    // Before the stand-ins, which may stand in a directory that was pinned.
    pinned.resolved.unchanged_since()?;
    let stand_ins = launch::stand_ins(context, &layout)
        .map_err(|source| RunError::Io { doing: "guard hook files of the project", source })?;
    let before = watch::Before::new(session, launch::keep(context, &start), &layout);
    let mut running = launch::start(context, begun, start, layout).await?;
    if layer.is_some() {
        share_layer(session, &running)?;
    }
    let guards = Guards::start(session, None, before, &mut running, stand_ins);
    session.record_enforcement(None, &running.enforcement);
    session.journal.record(Event::ProcessStarted {
        server_id: None,
        program: pinned.resolved.program.display().to_string(),
        args: Vec::new(),
        hash: pinned.resolved.digest.clone(),
        pid: running.child.pid,
    });
    // While the agent loads there is time, which a short one would have to wait for at the end.
    session.journal.hurry();
    Ok((running, guards, Layers { _project: layer, _caches: caches }))
}

/// The layer that is laid over the project.
fn layer(session: &Session, agent: &[String], unmasked: &[PathBuf]) -> Result<review::Layer, RunError> {
    let context = &session.context;
    review::forget_old(&context.state);
    let guard_all = session.policy.agent.filesystem.guard_all.as_ref().is_some_and(|all| all.value);
    let command = crate::store::redact::arguments(agent);
    review::begin(context, &session.id.to_string(), &command, unmasked, guard_all)
        .map_err(|error| RunError::Refused(format!("cannot start in review mode: {error}")))
}

/// Servers get to it through the agent's sandbox.
fn share_layer(session: &Session, running: &Running) -> Result<(), RunError> {
    let namespaces = running.child.namespaces.as_ref().map(crate::sandbox::mend::Namespaces::try_clone);
    if let Some(namespaces) = namespaces {
        let namespaces = namespaces.map_err(|source| RunError::Io { doing: "share the layer", source })?;
        // It is set once: a session has one agent.
        let _ = session.layered.set(namespaces);
    }
    let got = "a copy-on-write layer, of servers too; nothing reaches it before `agentsh review --apply`";
    session.record_enforcement(None, &[Enforcement::enforced("project", got)]);
    Ok(())
}

/// What waits for a person.
fn tell_of_layer(session: &Session) {
    let context = &session.context;
    let id = session.id.to_string();
    let Ok(found) = review::find(&context.state, Some(&id), &context.project) else { return };
    match found.changes(context) {
        Ok((changes, _)) if changes.is_empty() => match found.discard() {
            Ok(()) if session.layered.get().is_none() => {}
            Ok(()) => session.note("nothing was changed in the project"),
            Err(error) => session.note(&error.to_string()),
        },
        Ok((changes, _)) => {
            let guarded = changes.iter().filter(|change| change.guarded.is_some()).count();
            let also = if guarded > 0 {
                format!(" ({guarded} of them run by themselves outside)")
            } else {
                String::new()
            };
            let files = changes.iter().filter(|change| !change.is_directory()).count();
            let what = match files {
                0 => "directories".to_owned(),
                1 => "1 file".to_owned(),
                files => format!("{files} files"),
            };
            session.note(&format!("{what} changed{also}; agentsh review {id}"));
        }
        Err(error) => session.note(&format!("{error}; agentsh review {id}")),
    }
}

/// What the command line says of a port goes before what the policy says.
fn to_publish(session: &Session, asked: &[Asked]) -> Vec<Asked> {
    let of_policy = session.policy.agent_only.publish.iter().map(|port| port.value);
    let of_policy = of_policy.map(|port| Asked { port, host_port: port });
    let is_new = |one: &Asked| !asked.iter().any(|other| other.port == one.port);
    asked.iter().copied().chain(of_policy.filter(is_new)).collect()
}

fn agent_environment(
    session: &Session,
    kind: Kind,
    launch: &Launch,
    toolchains: &Toolchains,
    pinned: &Pinned,
) -> BTreeMap<String, String> {
    let context = &session.context;
    let filtered = environment::filter(&session.policy.agent.env, &context.env, environment::Asker::Agent);
    let mut env = filtered.passed;
    let mut stripped = filtered.stripped;
    // What the adapter says its agent cannot work without: its own account and settings.
    stripped.retain(|name| {
        let own = agent::own_environment(kind).iter().any(|pattern| policy::glob::matches(pattern, name))
            || toolchains.env.contains(name);
        if let (true, Some(value)) = (own, context.env.get(name)) {
            env.insert(name.clone(), value.clone());
        }
        !own
    });
    for (name, value) in &toolchains.set {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    env.extend(launch.env.clone());
    env.extend(pinned.resolved.worded.clone());
    env.extend(pinned.resolved.env.clone());
    environment::settle(&mut env, context);
    if !stripped.is_empty() {
        session.journal.record(Event::McpServerEnvFiltered {
            server_id: None,
            stripped_vars: stripped,
            passed_count: env.len(),
        });
    }
    env
}

type Files = Vec<(PathBuf, Vec<u8>, u32)>;

/// What is bound at another place than its own.
type Moved = Vec<(PathBuf, PathBuf, Access)>;

/// The agent's own files of the home: bound, kept for each project, or copied where changes are to be thrown away.
fn home_state(
    session: &Session,
    kind: Kind,
    launch: &Launch,
) -> Result<(Vec<Grant>, Files, Moved), RunError> {
    let (mut grants, mut files, mut of_project) = (Vec::new(), Vec::new(), Vec::new());
    for state in &launch.home_state {
        let path = session.context.home.join(&state.path);
        let io = |source| RunError::Io { doing: "prepare the agent's own files", source };
        match state.access {
            StateAccess::Private if path.is_file() => {
                let content = std::fs::read(&path).map_err(io)?;
                files.push((path, content, 0o600));
            }
            StateAccess::Private => {
                copy_private(&path, &mut files, &mut { MOST_COPIED_BYTES }).map_err(io)?;
            }
            StateAccess::PerProject => {
                let own = kept_for_project(session, kind, &path, state.kind).map_err(io)?;
                of_project.push((own, path, Access::ReadWrite));
            }
            access => {
                let access =
                    if access == StateAccess::ReadWrite { Access::ReadWrite } else { Access::ReadOnly };
                if access == Access::ReadWrite && state.kind == StateKind::Dir && !path.exists() {
                    use std::os::unix::fs::DirBuilderExt;
                    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io)?;
                }
                // Where a link leads is what is bound, at the place where the agent looks for it.
                grants.push(Grant { path, access });
            }
        }
    }
    Ok((grants, files, of_project))
}

/// `STATE/agents/NAME/PROJECT/FILE`: what an agent keeps in one place for all projects, kept apart.
fn kept_for_project(
    session: &Session,
    kind: Kind,
    path: &Path,
    wanted: StateKind,
) -> std::io::Result<PathBuf> {
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let hash = Sha256::digest(session.context.project.as_os_str().as_encoded_bytes());
    let project: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let directory = session.context.state.join("agents").join(agent_name(kind)).join(project);
    let own = directory.join(path.file_name().unwrap_or_default());
    let wanted_directory = if wanted == StateKind::Dir { &own } else { &directory };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(wanted_directory)?;
    if wanted == StateKind::File {
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&own)?;
    }
    Ok(own)
}

/// Of a directory that the agent gets as a copy; the rest stays unseen.
const MOST_COPIED_BYTES: u64 = 16 << 20;

/// Plain files, recursively. Links are left out: they may lead anywhere.
fn copy_private(path: &Path, files: &mut Files, room: &mut u64) -> std::io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_dir() {
        for entry in std::fs::read_dir(path)? {
            copy_private(&entry?.path(), files, room)?;
        }
    } else if found.is_file() && found.len() <= *room {
        *room -= found.len();
        files.push((path.to_owned(), std::fs::read(path)?, 0o600));
    }
    Ok(())
}

const OUT_OF_MEMORY: &str = "the agent was ended: it used more memory than agent.limits.memory allows";
/// An agent that does not end when it is asked to so often is killed.
const MOST_REQUESTS: u32 = 3;

/// Waits for the agent; the terminal's signals are its business, ours are passed on.
async fn until_exit(session: &Session, running: Running, mut signals: Signals) -> Result<u8, RunError> {
    let Running { child, cgroup, watched_memory, way_out, published, .. } = running;
    let pid = child.pid;
    let over = memory_exceeded(pid, watched_memory);
    tokio::pin!(over);
    let (mut cause, mut asked) = (ExitCause::Exited, 0);
    let mut suspended = Suspended::default();
    let [stop_key, read_behind, write_behind] = &mut signals.stop;
    let code = loop {
        tokio::select! {
            code = child.exit() => break code,
            () = &mut over, if cause == ExitCause::Exited => {
                cause = ExitCause::MemoryLimit;
                session.note(OUT_OF_MEMORY);
                child.kill();
            }
            // From the terminal they reach the agent too, which decides what they mean.
            _ = signals.interrupt.recv() => if !has_terminal() { child.signal(Signal::INT) },
            _ = signals.quit.recv() => if !has_terminal() { child.signal(Signal::QUIT) },
            _ = signals.terminate.recv() => {
                asked += 1;
                if asked < MOST_REQUESTS {
                    child.signal(Signal::TERM);
                } else {
                    cause = ExitCause::Killed;
                    child.kill();
                }
            }
            () = child.stopped() => suspended.stop(&child),
            _ = signals.resumed.recv() => suspended.resume(&child),
            // What they mean is the agent's business.
            _ = stop_key.recv() => {}
            _ = read_behind.recv() => {}
            _ = write_behind.recv() => {}
            _ = signals.hang_up.recv() => child.signal(Signal::HUP),
        }
    };
    take_terminal_back();
    if cause == ExitCause::Exited && code == KILLED && cgroup.was_out_of_memory() {
        cause = ExitCause::MemoryLimit;
        session.note(OUT_OF_MEMORY);
    }
    if let Some(error) = child.execution_error() {
        return Err(error.into());
    }
    drop(published);
    drop(child);
    drop(cgroup);
    if let Some(way_out) = way_out {
        network::finish(session, way_out).await;
    }
    session.journal.record(Event::ProcessExited { server_id: None, exit_code: code, cause });
    Ok(code)
}

fn agent_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Claude => "claude",
        Kind::Codex => "codex",
        Kind::Generic => "generic",
    }
}
