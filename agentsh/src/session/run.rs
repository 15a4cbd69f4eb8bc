//! `agentsh run -- AGENT`: the agent in its sandbox, its servers behind bridges, every decision on record.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::process::Signal;

use crate::agent::{Access as StateAccess, Kind, Launch};
use crate::guard::Guard;
use crate::policy;
use crate::sandbox::layout::{Elsewhere, OWN_DIRECTORY};
use crate::sandbox::plan::{Access, Program, Terminal};
use crate::store::Event;
use crate::store::words::ExitCause;

use super::approvals::{self, Approvals, Hosts};
use super::bridges::{self, Bridges};
use super::context::Context;
use super::guarded_terminal::GuardedTerminal;
use super::layer::Shown;
use super::model::{Model, places};
use super::process::{self, Process};
use super::publish::Asked;
use super::resolving::{self, Command, Pinned};
use super::review::launch::Layers;
use super::run_error::{RunError, exit_code_of};
use super::signals::{Signals, has_terminal, take_terminal_back};
use super::start::Start;
use super::suspend::Suspended;
use super::toolchains::{self, Toolchains};
use super::{
    Opening, RemoveOnDrop, Session, SessionError, agent_home, brings, configured, credentials, environment,
    first_index, git_identity, grants, network, pinning, registries, remember, remotes, repositories, review,
    socket_directory, ssh, trees, trust, unknown, why,
};

/// The command line of `run`.
#[derive(Clone, Debug)]
pub struct Request {
    pub policy: Option<String>,
    /// What the command line adds to the policy.
    pub flags: policy::Flags,
    pub allow_degraded: bool,
    /// What sandboxes are made of.
    pub tier: crate::sandbox::Tier,
    pub backend: network::Backend,
    pub publish: Vec<Asked>,
    /// Agree to the repositories beside the project that its git leads to.
    pub agree: bool,
    /// What is written to the project is kept apart, and applied afterwards.
    pub review: bool,
    /// Hosts that no rule names are reached, to write down what was needed.
    pub learns: bool,
    /// Files that are looked for and not there inside, or not to be written, are told.
    pub tells_files: bool,
    /// A summary follows the run, and says what was refused.
    pub summarised: bool,
    pub agent: Vec<String>,
    /// `run`, or `demo`.
    pub verb: &'static str,
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
    let kind = Kind::of(&program);
    let session = Session::open(
        Context::find().map_err(SessionError::from)?.of_tier(request.tier),
        Opening {
            verb: request.verb,
            command: &request.agent,
            agent: kind.name(),
            policy: request.policy.clone(),
            flags: request.flags.clone(),
            allow_degraded: request.allow_degraded,
            backend: request.backend,
            project_shown: true,
            hold_messages: true,
            learns: request.learns,
        },
    )
    .await?;
    session.is_reviewed.set(request.review);
    session.tells_files.set(request.learns || request.tells_files);
    let session = Rc::new(session);
    let result = supervise(&session, kind, &request).await;
    if request.review {
        review::launch::tell(&session);
    }
    session.release_refusals(request.summarised && result.is_ok());
    session.release_notes();
    let exit_code = match &result {
        Ok(code) => *code,
        Err(error) => exit_code_of(error),
    };
    session.close(exit_code).await?;
    result.map(|exit_code| Outcome { exit_code, session })
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
    let mut launch = configured::adapt(session, kind, argv)?;
    let given = remember::give(session, kind, &mut launch);
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
    let declared = configured::declarations(&session.context, &session.policy, &launch);
    brings::tell(session, kind);
    session.neighbours.set(!declared.is_empty());

    let command = Command {
        program: launch.argv.first().cloned().unwrap_or_default(),
        args: launch.argv.iter().skip(1).cloned().collect(),
        cwd: session.context.directory.clone(),
        env: session.context.env.clone(),
        not_below: None,
    };
    let (pinned, (), ()) = tokio::join!(
        resolving::resolve(session, command, None),
        pinning::ahead(session, &declared),
        trees::check(session, kind)
    );
    let pinned = pinned?;
    for directory in &pinned.resolved.alone_in {
        let directory = crate::store::escape::line(&directory.display().to_string()).into_owned();
        session.note(&format!(
            "of '{directory}' the script alone is shown, and nothing that it loads from there: name that by `--read PATH`"
        ));
    }
    session.agent_runs.set(true);
    let bridges = Bridges::new(Rc::clone(session), declared).with_policy();
    let bridges = Rc::new(bridges.map_err(io("make a key"))?.with_classifier()?);
    // Before the agent runs: a signal that came between its first step and ours would end us, and it with us.
    let signals = Signals::listen()?;
    if let Some(terminal) = &mut terminal {
        terminal.ready();
    }
    let asked = (request, bridges.approvals(), bridges.guard());
    let (process, layers, keys) = start_agent(session, kind, &launch, pinned, &socket, asked).await?;
    let inside = process.namespaces();
    tokio::task::spawn_local(Rc::clone(&bridges).serve(listener));
    let approvals = bridges.approvals();
    let is_headless = kind.is_headless(argv.get(1..).unwrap_or_default());
    if let Some(terminal) = approvals::Terminal::of(is_headless, process.child().pid, process.group()) {
        approvals.ask_on(terminal);
    }
    let code = until_exit(session, process, signals, &approvals).await?;
    drop(keys);
    if launch.home_state.iter().any(|state| state.access == StateAccess::Scratch) {
        // What is left of it is a directory that nobody reads.
        let _ = std::fs::remove_dir_all(
            agent_home::of_project(session, kind).join(format!("copies-{}", session.id)),
        );
    }
    if let Some(inside) = inside {
        remember::keep(session, kind, &given, &inside);
        // The last descriptor of a mount namespace takes a grace period of the kernel.
        session.close_elsewhere(inside.into_descriptors());
    }
    // Unlocked: from here on it is a person's.
    drop(layers);
    if let Some(terminal) = terminal.as_mut().filter(|_| code != 0) {
        terminal.restore();
    }
    drop(terminal);
    bridges.finish();
    session.clean_up(sockets);
    Ok(code)
}

async fn start_agent(
    session: &Rc<Session>,
    kind: Kind,
    launch: &Launch,
    pinned: Pinned,
    socket: &Path,
    (request, approvals, guard): (&Request, Approvals, Rc<RefCell<Guard>>),
) -> Result<(Process, Layers, ssh::Given), RunError> {
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
    let (own_state, mut files, of_project) = agent_home::home_state(session, kind, launch)?;
    let state_paths: Vec<PathBuf> = own_state.iter().map(|grant| grant.path.clone()).collect();
    // What the user granted himself is there as it is.
    let is_granted = |path: &Path| expanded.grants.iter().any(|grant| path.starts_with(&grant.path));
    let brokered = credentials::read(session).await;
    let keys = ssh::open(session, socket.parent().unwrap_or(socket))
        .await
        .map_err(|source| RunError::Io { doing: "serve ssh keys", source })?;
    let of_git = git_identity::files(context, &format!("{}{}", brokered.git, keys.git));
    let of_git = of_git.into_iter().filter(|(path, _)| !is_granted(path));
    let of_tools = brokered.files.iter().chain(&keys.files);
    let of_tools: Vec<_> = of_tools.filter(|(path, _)| !is_granted(path)).cloned().collect();
    let unmasked: Vec<PathBuf> = of_tools.iter().map(|(path, _)| path.clone()).collect();
    files.extend(of_tools.into_iter().map(|(path, content)| (path, content, 0o600)));
    files.extend(of_git.map(|(path, content)| (path, content, 0o644)));
    files.extend(launch.files.iter().map(|file| (file.path.clone(), file.content.clone(), file.mode)));
    files.extend(launch.replaced.iter().map(|(path, content)| (path.clone(), content.clone(), 0o444)));

    // Where a policy lists what may run, it means to leave nothing to chance.
    let is_listed = !session.executable_paths(process).is_empty();
    let mut toolchains = if is_listed { Toolchains::default() } else { toolchains::find(context) };
    toolchains.caches.retain(|cache| !is_granted(cache));
    toolchains.make_room(expanded.grants.iter().map(|grant| grant.path.as_path()));
    let hidden = expanded.denied.into_iter().chain(toolchains.hidden.iter().cloned());
    let mut hidden: Vec<PathBuf> =
        hidden.chain(launch.hidden.iter().cloned()).chain(brokered.hidden.iter().cloned()).collect();
    if !toolchains.links.is_empty() {
        hidden.extend(toolchains::elsewhere(&hidden));
    }
    let caches = toolchains::caches(context, &toolchains, &hidden)
        .map_err(|source| RunError::Io { doing: "make the project's caches", source })?;
    let socket = (socket.to_owned(), Path::new(OWN_DIRECTORY).join("bridge"), Access::ReadOnly);
    let of_caches: Vec<_> = caches.places().into_iter().map(|inside| (inside, Access::ReadWrite)).collect();
    let own = caches.own.iter().cloned().map(|(host, inside)| (host, inside, Access::ReadWrite));
    let of_ssh = keys.socket.iter().map(|socket| (socket.clone(), ssh::inside(), Access::ReadOnly));
    let extra = own.chain([socket]).chain(of_ssh).chain(of_project);
    let extra = extra.map(|(host, inside, access)| Elsewhere { host, inside, access }).collect();

    let mut beside = repositories::agreed(session, request.agree)
        .map_err(|source| RunError::Io { doing: "remember what was agreed to", source })?;
    if request.review {
        review::launch::read_only(session, &mut beside);
    }

    let rules = network::with_endpoints(&process.network, &launch.endpoints, |endpoint| {
        places::way(session, endpoint) == Some(places::Way::EndsTls)
    });
    let rules = match is_listed {
        true => rules,
        false => {
            let first = first_index::of_new_cargo(session).await;
            remotes::with_remotes(registries::with_registries(rules, context, &first), context)
        }
    };
    let rules = ssh::with_hosts(&credentials::with_hosts(&rules, session), session);
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
    let model = Model::of(session, &launch.endpoints, known, guard);
    session.record_enforcement(None, places::told(session, &launch.endpoints).as_slice());
    let broker = session.policy.llm.credentials.as_ref();
    if let Some(word) = broker.filter(|word| word.value == policy::Credentials::Broker && model.is_none()) {
        let why = format!(
            "{}: keys can only stay outside where the model's channel is: add `enabled: true`",
            word.rule
        );
        return Err(RunError::Refused(why));
    }
    if let Some(model) = model.clone() {
        way.channel = Some(model);
    }
    way.broker.clone_from(&brokered.broker);
    if way.asks && way.ask.is_none() {
        way.ask = Some(Rc::new(Hosts::new(approvals)));
    }
    way.publish(&to_publish(session, &request.publish)).map_err(RunError::Refused)?;
    for published in &way.published {
        session.announce(&published.line());
    }
    let mut env = agent_environment(session, kind, launch, &toolchains, &pinned);
    brokered.settle(&mut env);
    keys.settle(&mut env);
    let bundle = trust::give(session, &rules, &mut env);
    if let Some((_, bundle, _)) = bundle.as_ref().filter(|_| registries::uses_java(&rules)) {
        files.extend(trust::give_java(session, bundle));
    }
    files.extend(bundle);
    if let Some(model) = &model {
        model.keep_keys(&launch.endpoints, &mut env);
    }
    let is_layered = request.review && project_access.is_some();
    let layer =
        is_layered.then(|| review::launch::begin(session, &request.agent, &expanded.unmasked)).transpose()?;
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
            argv,
            env: env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            workdir: context.directory.clone(),
        },
        pinned: pinned.files,
        program_roots: pinned.resolved.read_roots.clone(),
        links: toolchains.links.into_iter().collect(),
        descriptors: pinned.descriptors,
        project_access,
        layer: layer.as_ref().map(|layer| Shown::Own(layer.directory.clone())),
        grants: expanded.grants.into_iter().chain(toolchains.grants).chain(beside).collect(),
        own_state,
        denied: hidden,
        unmasked: expanded.unmasked.into_iter().chain(state_paths).chain(unmasked).collect(),
        execute: session.executable_paths(process),
        shared_sockets: !session.neighbours.get(),
        files,
        extra,
        stand_ins: true,
        beyond_landlock: Vec::new(),
        caches: caches.layers.clone(),
        network: Some(way),
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        allow_degraded: session.allow_degraded,
    };
    let lacks = |path: &Path, why: &str| {
        session.note(&format!("the agent does not get {}: {why}", path.display()));
    };
    let process = process::start(session, None, start, &pinned.resolved, lacks).await?;
    if layer.is_some() {
        review::launch::share(session, &process)?;
    }
    // While the agent loads there is time, which a short one would have to wait for at the end.
    session.journal.hurry();
    Ok((process, Layers::new(layer, caches), keys))
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
        let own = kind.own_environment().iter().any(|pattern| policy::glob::matches(pattern, name))
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
    if kind.is_unknown() {
        unknown::tell(session, launch, &stripped);
    }
    if !stripped.is_empty() {
        session.journal.record(Event::McpServerEnvFiltered {
            server_id: None,
            stripped_vars: stripped,
            passed_count: env.len(),
        });
    }
    env
}

const OUT_OF_MEMORY: &str = "the agent was ended: it used more memory than agent.limits.memory allows";
/// An agent that does not end when it is asked to so often is killed.
const MOST_REQUESTS: u32 = 3;

/// Waits for the agent; the terminal's signals are its business, ours are passed on.
async fn until_exit(
    session: &Session,
    process: Process,
    mut signals: Signals,
    approvals: &Approvals,
) -> Result<u8, RunError> {
    let child = process.child();
    let mut over = Box::pin(process.over_memory());
    let (mut cause, mut asked) = (ExitCause::Exited, 0);
    let mut suspended = Suspended::default();
    let [stop_key, read_behind, write_behind] = &mut signals.stop;
    let code = loop {
        tokio::select! {
            code = child.exit() => break code,
            () = &mut over, if cause == ExitCause::Exited => {
                cause = ExitCause::MemoryLimit;
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
            () = child.stopped() => if !approvals.holds_the_agent() { suspended.stop(child) },
            _ = signals.resumed.recv() => suspended.resume(child),
            // What they mean is the agent's business.
            _ = stop_key.recv() => {}
            _ = read_behind.recv() => {}
            _ = write_behind.recv() => {}
            _ = signals.hang_up.recv() => child.signal(Signal::HUP),
        }
    };
    take_terminal_back();
    drop(over);
    let ended = process.finish(code, cause).await;
    if ended.cause == ExitCause::MemoryLimit {
        session.note(OUT_OF_MEMORY);
    }
    ended.error.map_or(Ok(code), |error| Err(error.into()))
}
