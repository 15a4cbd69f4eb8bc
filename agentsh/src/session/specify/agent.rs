//! The contributions to the agent's sandbox.

use std::path::{Path, PathBuf};

use agentsh_agents::{Endpoint, Kind, Launch};
use agentsh_sandbox::layout::OWN_DIRECTORY;
use agentsh_sandbox::plan::{Access, Terminal};
use agentsh_sandbox::spec::{
    self, Contribution, EnvChange, Feature, File, ProcessKind, ProjectLayer, SandboxSpec,
};

use super::{AGENT_SECTION, Pinning, at, closed_hosts, of_program, of_sandbox, path_rules, remove_variables};
use crate::session::command_line::{self, CommandLine};
use crate::session::resolving::Pinned;
use crate::session::run_error::RunError;
use crate::session::{
    Session, cargo_index, environment, git_identity, grants, remotes, repositories, signals, trust,
};
use agentsh_broker::credentials::BrokerSetup;
use agentsh_broker::ssh;
use agentsh_home::files;
use agentsh_host::Facts;
use agentsh_host::project_sources::ApprovedSources;
use agentsh_host::registries;
use agentsh_host::toolchains::{self, Caches, Toolchains};
use agentsh_model::{Model, endpoints};

/// The inputs of an agent's specification.
pub struct Agent<'a> {
    pub kind: Kind,
    /// The original command line.
    pub given: &'a CommandLine,
    pub launch: &'a Launch,
    pub pinned: &'a Pinned,
    /// The socket for bridges.
    pub socket: &'a Path,
    pub brokered: &'a BrokerSetup,
    pub keys: &'a ssh::SshGrants,
    pub model: Option<&'a Model>,
    /// The user approves the repositories that git uses.
    pub agree: bool,
    /// The layer of review mode.
    pub layer: Option<PathBuf>,
    pub review: bool,
}

/// Collects and merges all contributions. The caches stay locked while the agent runs.
///
/// # Errors
/// Why the agent cannot be started.
pub async fn specify(session: &Session, agent: &Agent<'_>) -> Result<(SandboxSpec, Caches), RunError> {
    let context = &session.facts.context;
    let policy = &session.facts.policy.agent;
    let io = |doing| move |source| RunError::Io { doing, source };
    // A policy with an exec list is meant to be complete.
    let is_listed = agentsh_host::facts::lists_programs(policy);
    let toolchains =
        if is_listed { Toolchains::default() } else { toolchains::find(context, &context.paths) };

    let mut parts = network_parts(session, &agent.launch.endpoints).await;
    parts.extend([
        grants::contribution(&policy.filesystem, &session.facts.paths()).map_err(RunError::Refused)?,
        toolchains.contribution(),
        repositories::contribution(context, agent.agree, agent.review).map_err(io("store approvals"))?,
        files::contribution(&session.facts, agent.kind, agent.launch)
            .map_err(|source| RunError::Io { doing: "prepare the agent's own files", source })?,
        of_adapter(&session.facts, agent.kind, agent.launch, agent.socket),
        of_program(agent.pinned.resolved.worded.clone().into_iter().chain(agent.pinned.resolved.env.clone())),
        of_sandbox(context, ProcessKind::Agent),
        git_identity::contribution(context, !agent.keys.git.is_empty()),
        agent.brokered.contribution(context, &session.facts.policy.agent_only.credentials),
        agent.keys.contribution(context, &session.facts.policy.agent_only.ssh),
    ]);
    if !toolchains.links.is_empty() {
        // Links may show hidden paths under other names.
        let elsewhere = toolchains::real_paths(&spec::hidden_paths(&parts));
        parts.push(Contribution::new(Feature::Toolchains).hiding(elsewhere));
    }
    let granted = spec::user_grants(&parts);
    let wanted = toolchains.caches.iter().filter(|cache| !granted.iter().any(|path| cache.starts_with(path)));
    let caches = toolchains::caches(context, wanted, &spec::links(&parts), &spec::hidden_paths(&parts))
        .map_err(io("make the project's caches"))?;
    parts.push(caches.contribution());

    let rules = super::rules(policy, AGENT_SECTION, &context.env);
    let allowed = spec::network_rules(&policy.network, &parts);
    let authority = trust::authority(session, &allowed);
    parts.push(trust::contribution(context, authority.as_deref(), registries::uses_java(&allowed)));
    if let Some(model) = agent.model {
        let keys = model.keep_keys(&agent.launch.endpoints, spec::environment_so_far(&rules, &parts));
        parts.push(Contribution::new(Feature::ModelKeys).setting(keys));
    }
    parts.push(Contribution {
        enforcement: endpoints::model_enforcement(&session.facts, &agent.launch.endpoints)
            .into_iter()
            .collect(),
        ..Contribution::new(Feature::Adapter)
    });

    let limits = policy.limits.resolve_for_agent();
    let access = project_access(&session.facts);
    let workdir = agent.pinned.resolved.cwd.as_ref().unwrap_or(&context.directory);
    let as_typed = access
        .map(|_| command_line::scripts(&context.project, workdir, &agent.launch.argv))
        .unwrap_or_default();
    let argv = agent.pinned.resolved.argv.iter();
    let argv = argv.map(|argument| as_typed.get(argument).unwrap_or(argument).clone());
    let argv = argv.map(|argument| agent.given.argument(argument));
    let program = Pinning {
        resolved: &agent.pinned.resolved,
        pinned: agent.pinned.files.clone(),
        argv: argv.collect(),
        workdir: workdir.clone(),
    };
    let mut process = super::process(&session.facts, ProcessKind::Agent, "agent", limits, program);
    process.raw_environment = environment::raw(&policy.env, context);
    let is_headless = agent.kind.is_headless(agent.launch.argv.get(1..).unwrap_or_default());
    if signals::may_have_the_terminal(is_headless) {
        process.terminal = Terminal::OwnGroup;
    }
    let mut paths = path_rules(context, ProcessKind::Agent, &limits);
    paths.project_access = access;
    paths.program_roots = agent.pinned.resolved.read_roots.clone();
    paths.layer = agent.layer.clone().map(ProjectLayer::Own);
    paths.guard_all = policy.filesystem.guard.as_ref().is_some_and(|all| all.value);
    paths.execute = session.facts.executable_paths(policy);
    paths.shared_sockets = !session.live.agent.has_neighbours.get();
    let mut spec = spec::merge(process, paths, &rules, parts);
    remove_variables(&mut spec, &agent.pinned.resolved);
    Ok((spec, caches))
}

/// The agent's access to the project.
#[must_use]
pub fn project_access(facts: &Facts) -> Option<Access> {
    let (context, filesystem, paths) = (&facts.context, &facts.policy.agent.filesystem, facts.paths());
    if filesystem.may_write(&context.project, &paths) {
        Some(Access::ReadWrite)
    } else {
        filesystem.may_read(&context.project, &paths).then_some(Access::ReadOnly)
    }
}

/// The features that open hosts, also for the briefing.
pub async fn network_parts(session: &Session, endpoints: &[Endpoint]) -> Vec<Contribution> {
    let context = &session.facts.context;
    let mut parts = vec![
        endpoints::of_endpoints(endpoints, |endpoint| {
            endpoints::interception(&session.facts, endpoint) == Some(endpoints::Interception::EndsTls)
        }),
        closed_hosts(session),
    ];
    if !agentsh_host::facts::lists_programs(&session.facts.policy.agent) {
        let first = cargo_index::of_new_cargo(&session.facts, &session.record).await;
        let known = ApprovedSources::of(context);
        parts.extend([
            registries::contribution(context, &first, known),
            remotes::contribution(context, known),
        ]);
    }
    parts
}

/// Makes the agent use bridges instead of its servers.
fn of_adapter(facts: &Facts, kind: Kind, launch: &Launch, socket: &Path) -> Contribution {
    let files = launch.files.iter().filter(|file| !files::is_in_directory_of_run(facts, launch, &file.path));
    let files = files.map(|file| File::new(file.path.clone(), file.content.clone(), file.mode));
    let replaced =
        launch.replaced.iter().map(|(path, content)| File::new(path.clone(), content.clone(), 0o444));
    let pass = kind.own_environment().iter().map(|pattern| EnvChange::Pass((*pattern).to_owned()));
    let bridge = Path::new(OWN_DIRECTORY).join("bridge");
    let part = Contribution {
        files: files.chain(replaced).collect(),
        environment: pass.collect(),
        elsewhere: vec![at(socket, bridge, Access::ReadOnly)],
        ..Contribution::new(Feature::Adapter)
    };
    part.hiding(launch.hidden.iter().cloned()).setting(launch.env.clone())
}
