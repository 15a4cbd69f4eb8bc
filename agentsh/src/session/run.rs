//! `agentsh run -- AGENT`.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;

use agentsh_agents::{Kind, Launch};
use agentsh_home::logins::Logins;
use agentsh_home::memory::MemoryState;
use agentsh_home::{changed_settings, files, remember};
use agentsh_policy::Credentials;
use agentsh_store::Event;
use agentsh_store::words::ExitCause;

use super::bridges::{self, Bridges};
use super::command_line::CommandLine;
use super::context::Context;
use super::launch::Handles;
use super::network::AgentNetwork;
use super::process::{self, Process};
use super::publish::PublishedPort;
use super::refused_files;
use super::resolving::{self, Command, Pinned};
use super::review_mode::Layers;
use super::run_error::{RunError, exit_code_of};
use super::signals::{self, Signals, has_terminal, reclaim_terminal};
use super::suspend::Suspended;
use agentsh_approvals::guarded_terminal::GuardedTerminal;
use agentsh_approvals::{Approvals, BackgroundHosts, Terminal};
use agentsh_broker::{credentials, ssh};
use agentsh_model::hosted::Reachable;
use agentsh_model::{Model, Wire};

use super::{
    RemoveOnDrop, Session, SessionError, SessionOptions, committed, configured, go_modules, grants, network,
    pinning, project_sources, remotes, review_mode, skill_pins, socket_directory, specify, unknown_agent,
};
use agentsh_host::{Facts, Record, registries};

/// The arguments of `run`.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub policy: Option<String>,
    pub flags: agentsh_policy::Flags,
    pub allow_degraded: bool,
    /// The kind of sandboxes.
    pub tier: agentsh_sandbox::Tier,
    pub backend: agentsh_host::Backend,
    pub publish: Vec<PublishedPort>,
    /// Approve the repositories that the project's git uses.
    pub agree: bool,
    /// Review mode.
    pub review: bool,
    /// Allow hosts without a rule, to generate a policy.
    pub learns: bool,
    /// Report missing and unwritable files.
    pub tells_files: bool,
    /// Print a summary.
    pub summarised: bool,
    pub agent: CommandLine,
    /// `run`, or `demo`.
    pub verb: &'static str,
}

/// The status, and the session for the report.
pub struct Outcome {
    pub exit_code: u8,
    pub session: Rc<Session>,
}

/// How often logins inside and outside are compared.
const BETWEEN_COMPARISONS: Duration = Duration::from_millis(500);

/// Runs the agent to its end. Call inside a `LocalSet`.
///
/// # Errors
/// Why the agent was not started. Later failures are the agent's.
pub async fn run(request: Request) -> Result<Outcome, RunError> {
    let program = request.agent.words.first().cloned().unwrap_or_default();
    let kind = Kind::of(&program);
    let session = Session::open(
        Context::find().map_err(SessionError::from)?.of_tier(request.tier),
        SessionOptions {
            verb: request.verb,
            command: &request.agent.words,
            agent: kind.name(),
            policy: request.policy.clone(),
            flags: request.flags.clone(),
            allow_degraded: request.allow_degraded,
            backend: request.backend,
            project_shown: true,
            hold_messages: true,
            gathers_events: true,
            learns: request.learns,
            is_reviewed: request.review,
            tells_files: request.learns || request.tells_files,
        },
    )
    .await?;
    let session = Rc::new(session);
    let result = supervise(&session, kind, &request).await;
    if request.review {
        review_mode::report_layer(&session);
    } else {
        committed::report_commits(&session);
    }
    if matches!(result, Ok(code) if code != 0) {
        session
            .live
            .refusals
            .writes
            .take()
            .all()
            .for_each(|(_, write)| refused_files::report_refusal(&session, write));
    }
    let result = result.map(|code| session.exit_code(code));
    session.record.release_refusals(request.summarised && result.is_ok());
    session.record.release_notes();
    let exit_code = match &result {
        Ok(code) => *code,
        Err(error) => exit_code_of(error),
    };
    session.close(exit_code).await?;
    result.map(|exit_code| Outcome { exit_code, session })
}

async fn supervise(session: &Rc<Session>, kind: Kind, request: &Request) -> Result<u8, RunError> {
    let argv = &request.agent.words;
    let io = |doing| move |source| RunError::Io { doing, source };
    let sockets = RemoveOnDrop(
        socket_directory(&session.facts.context, session.facts.id)
            .map_err(io("make the socket directory"))?,
    );
    let (listener, socket) = bridges::listen(sockets.path()).map_err(io("make the bridge socket"))?;
    // The terminal's guard starts in the background.
    let mut terminal = GuardedTerminal::begin();
    session.facts.context.host.keep_listings();
    // Before anything is opened or told to the agent.
    let sources = remotes::named_remotes(&session.facts.context)
        .into_iter()
        .chain(go_modules::named_sources(&session.facts.context));
    let new = project_sources::note(&session.facts.context, &sources.collect::<Vec<_>>(), request.agree);
    new.map_err(io("store the project's remotes and modules"))?
        .iter()
        .for_each(|line| session.record.note(line));
    let mut launch = configured::adapt(&session.facts, kind, argv)?;
    files::unless_unmasked(&session.facts, &mut launch);
    let given = remember::give(&session.facts, kind, &mut launch);
    let logins = Logins::copy(&session.facts, kind, &launch).map_err(io("copy the agent's login"))?;
    let memory = MemoryState::of(&launch).map_err(io("prepare the agent's own files"))?;
    if !launch.home_state.is_empty() {
        // From here on listings must show what has just been made.
        session.facts.context.host.keep_listings();
    }
    for (id, reason) in &launch.refused {
        session.record.journal.record(Event::McpServerRefused {
            server_id: id.clone(),
            reason: "not-supported".to_owned(),
            detail: reason.clone(),
            rule: agentsh_base::types::RuleRef::default_rule("agent"),
        });
        session.record.note(&format!("server '{id}' is not passed to the agent: {reason}"));
    }
    for note in &launch.notes {
        session.record.note(note);
    }
    let declared = configured::declarations(&session.facts.context, &session.facts.policy, &launch);
    changed_settings::report_changes(&session.facts, &session.record, kind);
    session.live.agent.has_neighbours.set(!declared.is_empty());

    let command = Command {
        program: launch.argv.first().cloned().unwrap_or_default(),
        args: launch.argv.iter().skip(1).cloned().collect(),
        cwd: session.facts.context.directory.clone(),
        env: session.facts.context.env.clone(),
        not_below: None,
    };
    let (pinned, (), ()) = tokio::join!(
        resolving::resolve(session, command, None),
        pinning::pin_in_advance(session, &declared),
        skill_pins::check(session, kind)
    );
    let pinned = pinned?;
    for directory in &pinned.resolved.alone_in {
        let directory = agentsh_store::escape::line(&directory.display().to_string()).into_owned();
        session.record.note(&format!(
            "only the script in '{directory}' is visible, not what it loads from there: add that with `--read PATH`"
        ));
    }
    session.record.agent_starts();
    let order = configured::in_order(&launch);
    let bridges = Bridges::in_order(Rc::clone(session), declared, &order).with_policy();
    let bridges = Rc::new(bridges.map_err(io("make a key"))?.with_classifier()?);
    // Before the agent runs, so that no signal ends us alone.
    let signals = Signals::listen()?;
    if let Some(terminal) = &mut terminal {
        terminal.wait_until_modes_are_saved();
    }
    let asked = (request, bridges.approvals(), bridges.guard());
    let AgentResources { process, layers, keys } =
        start_agent(session, kind, &launch, pinned, &socket, asked).await?;
    let inside = process.namespaces();
    agentsh_base::task::spawn_local(Rc::clone(&bridges).serve(listener));
    let approvals = bridges.approvals();
    let is_headless = kind.is_headless(argv.get(1..).unwrap_or_default());
    let agent = (process.child().pid, process.group());
    let modes = terminal.as_ref().map(|terminal| terminal.modes.clone());
    if let Some(terminal) = Terminal::of(is_headless, agent, modes) {
        approvals.ask_on(terminal);
    }
    let logins = RefCell::new(logins);
    let compare_logins =
        |is_last| logins.borrow_mut().compare(&session.facts, &session.record, kind, is_last);
    let compared_again = async {
        while !logins.borrow().is_empty() {
            compare_logins(false);
            tokio::time::sleep(BETWEEN_COMPARISONS).await;
        }
        std::future::pending::<u8>().await
    };
    let code = tokio::select! {
        code = until_exit(&session.record, process, signals, &approvals) => code?,
        never = compared_again => never,
    };
    compare_logins(true);
    memory.report_changes(&session.facts, &session.record, kind);
    drop(keys);
    remember::keep(&session.facts, &session.record, kind, &launch, &given, inside.as_ref());
    if let Some(inside) = &inside {
        super::missing_files::tell_what_is_gone(session, inside);
    }
    for inside in inside.into_iter().chain(session.live.agent.inside.take()) {
        // The last descriptor of a mount namespace takes a grace period of the kernel.
        session.close_in_background(inside.into_descriptors());
    }
    files::finish(&session.facts, &session.record, kind, &launch, &given.paths().collect::<Vec<_>>());
    let noted = project_sources::note_added_modules(&session.facts.context);
    // Unlocked for the person's review.
    drop(layers);
    if let Some(terminal) = terminal.as_mut().filter(|_| code != 0) {
        terminal.restore();
    }
    drop(terminal);
    // Their clients ended with the agent.
    bridges.wait_until_drained().await?;
    bridges.finish();
    drop(sockets);
    noted.map_err(io("store the project's modules"))?;
    Ok(code)
}

/// What has the agent's lifetime.
struct AgentResources {
    process: Process,
    layers: Layers,
    keys: ssh::SshGrants,
}

async fn start_agent(
    session: &Rc<Session>,
    kind: Kind,
    launch: &Launch,
    pinned: Pinned,
    socket: &Path,
    (request, approvals, guard): (&Request, Approvals, Wire),
) -> Result<AgentResources, RunError> {
    let brokered = credentials::read(&session.facts, &session.record).await;
    let keys = ssh::open(&session.facts, &session.record, socket.parent().unwrap_or(socket))
        .await
        .map_err(|source| RunError::Io { doing: "serve ssh keys", source })?;
    let servers = launch.servers.keys().map(|id| id.0.clone()).collect();
    let model = Model::of((&session.facts, &session.record), &launch.endpoints, servers, guard);
    let wants_broker = session.facts.policy.llm.credentials.as_ref();
    if let Some(word) = wants_broker.filter(|word| word.value == Credentials::Broker && model.is_none()) {
        return Err(RunError::Refused(format!(
            "{}: keys can stay outside only with the model channel: add `enabled: true`",
            word.rule
        )));
    }
    let is_layered = request.review && specify::project_access(&session.facts).is_some();
    let layer = is_layered.then(|| review_mode::begin(&session.facts, &request.agent.words)).transpose()?;
    let agent = specify::Agent {
        kind,
        given: &request.agent,
        launch,
        pinned: &pinned,
        socket,
        brokered: &brokered,
        keys: &keys,
        model: model.as_deref(),
        agree: request.agree,
        layer: layer.as_ref().map(|layer| layer.directory.clone()),
        review: request.review,
    };
    let (mut spec, caches) = specify::specify(session, &agent).await?;
    if let Some(layer) = &layer {
        review_mode::keep_guards(layer, &spec.paths)?;
    }
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    request.agent.hand_pipes_to(session.facts.context.identity, &stdio);
    let numbered = request.agent.descriptors();
    let numbered = numbered.map_err(|source| RunError::Io { doing: "pass descriptors on", source })?;
    let mut descriptors = pinned.descriptors;
    for (number, open) in numbered {
        spec.process.descriptors.push((number, descriptors.len()));
        descriptors.push(open);
    }
    specify::report(&session.record, None, &spec);
    if kind.is_unknown() {
        unknown_agent::report_unknown_agent(
            &session.facts,
            &session.record,
            launch,
            &pinned.resolved,
            &spec.stripped,
        );
    }
    let of_agent = AgentNetwork {
        approvals: Some(approvals.clone()),
        broker: brokered.broker.clone(),
        channel: model.clone().map(|model| model as Rc<dyn agentsh_net::channel::Channel>),
        publish: to_publish(&session.facts, &request.publish),
        background: background_hosts(&session.facts, kind, launch.argv.first()),
    };
    let egress = network::open(session, None, &spec.network, of_agent)
        .await
        .map_err(|why| RunError::Refused(format!("cannot start the agent: {why}")))?;
    if let Some(model) = model {
        let (allow, ask) = egress.reachable();
        model.may_reach(Reachable { allow, ask });
    }
    egress.published.iter().for_each(|published| session.record.announce(&published.line()));
    let handles = Handles {
        descriptors,
        lender: None,
        egress: Some(egress),
        stdio,
        reports_to: Some((Rc::clone(session), None)),
        asks: Some(approvals),
    };
    let lacks = |path: &Path, why: &str| {
        session.record.note(&format!("the agent does not get {}: {why}", path.display()));
    };
    let granted = grants::on_record(&session.facts.policy.agent.filesystem);
    let process = process::start(session, None, &spec, handles, &pinned.resolved, granted, lacks).await?;
    // It is set once: a session has one agent.
    let _ = session.live.agent.spec.set(spec);
    if session.live.agent.has_neighbours.get() {
        session.live.agent.inside.replace(process.namespaces());
    }
    if layer.is_some() {
        review_mode::share_layer(session, &process)?;
    }
    // While the agent loads, because a short one would have to wait at its end.
    session.record.journal.flush_now();
    Ok(AgentResources { process, layers: Layers::new(layer, caches), keys })
}

fn background_hosts(facts: &Facts, kind: Kind, program: Option<&String>) -> Rc<BackgroundHosts> {
    let hosts = kind.background_hosts(program.map_or("", String::as_str));
    let mut at_start: Vec<String> = hosts.at_start.iter().map(|host| (*host).to_owned()).collect();
    if hosts.asks_npm {
        at_start.extend(registries::npm_hosts(&facts.context));
    }
    Rc::new(BackgroundHosts::new(hosts.always, at_start))
}

/// Ports of the command line override the policy's.
fn to_publish(facts: &Facts, asked: &[PublishedPort]) -> Vec<PublishedPort> {
    let of_policy = facts.policy.agent_only.publish.iter().map(|port| port.value);
    let of_policy = of_policy.map(|port| PublishedPort { port, host_port: port });
    let is_new = |one: &PublishedPort| !asked.iter().any(|other| other.port == one.port);
    asked.iter().copied().chain(of_policy.filter(is_new)).collect()
}

const OUT_OF_MEMORY: &str = "agentsh killed the agent: it used more memory than agent.limits.memory allows";
/// After this many requests to end, the agent is killed.
const MAX_REQUESTS: u32 = 3;

/// Waits for the agent. The terminal signals it directly; other signals are forwarded.
async fn until_exit(
    record: &Record,
    process: Process,
    mut signals: Signals,
    approvals: &Approvals,
) -> Result<u8, RunError> {
    let child = process.child();
    let mut over = Box::pin(process.over_memory());
    let (mut cause, mut asked) = (ExitCause::Exited, 0);
    let mut suspended = Suspended::default();
    let [stop_key, read_behind, write_behind] = &mut signals.stop;
    let [user1, user2] = &mut signals.user;
    let code = loop {
        tokio::select! {
            code = child.exit() => break code,
            () = &mut over, if cause == ExitCause::Exited => {
                cause = ExitCause::MemoryLimit;
                child.kill();
            }
            // From the terminal, the agent gets them too and decides.
            _ = signals.interrupt.recv() => {
                if suspended.return_terminal() || !has_terminal() { child.signal(Signal::INT) }
            }
            _ = signals.quit.recv() => {
                if suspended.return_terminal() || !has_terminal() { child.signal(Signal::QUIT) }
            }
            _ = signals.terminate.recv() => {
                asked += 1;
                if asked < MAX_REQUESTS {
                    child.signal(Signal::TERM);
                } else {
                    cause = ExitCause::Killed;
                    child.kill();
                }
            }
            () = child.wait_until_stopped() => if !approvals.has_paused_the_agent() { suspended.stop(child) },
            _ = signals.resumed.recv() => suspended.resume(child),
            () = suspended.in_front() => drop(suspended.return_terminal()),
            // The agent decides; it did not get this one if the shell had just put the job in front.
            _ = stop_key.recv() => if suspended.return_terminal() { child.signal(Signal::TSTP) },
            _ = read_behind.recv() => {}
            _ = write_behind.recv() => {}
            _ = signals.hang_up.recv() => child.signal(Signal::HUP),
            // A program without a terminal uses it for anything (nginx).
            _ = signals.resized.recv() => if !has_terminal() { child.signal(Signal::WINCH) },
            _ = user1.recv() => child.signal(Signal::USR1),
            _ = user2.recv() => child.signal(Signal::USR2),
        }
    };
    let own = if reclaim_terminal() { signals::pass_on(code) } else { 0 };
    signals::end_after(own + if asked > 0 { 1 } else { 2 })?;
    drop(over);
    let ended = process.finish(code, cause).await;
    if ended.cause == ExitCause::MemoryLimit {
        record.note(OUT_OF_MEMORY);
    }
    ended.error.map_or(Ok(code), |error| Err(error.into()))
}
