//! The specification of a sandbox: collects a [`Contribution`] from each feature, and
//! [`spec::merge`](agentsh_sandbox::spec::merge) merges them. To show one more directory, write such a function and
//! call it here.

mod agent;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use agentsh_base::types::ServerId;
use agentsh_pin::Resolved;
use agentsh_policy::limits::ResolvedLimits;
use agentsh_policy::{ProcessPolicy, Ruled};
use agentsh_sandbox::plan::{Access, Terminal};
use agentsh_sandbox::spec::{
    Contribution, EnvChange, Feature, PathRules, PinnedFile, Process, ProcessKind, RelocatedPath, SandboxSpec,
};
use agentsh_store::Event;

use super::{Context, Session, environment, fleet, user_git};
use agentsh_host::{Facts, Record};

pub use agent::{Agent, project_access, specify};

/// A found and pinned program.
pub struct Pinning<'a> {
    pub resolved: &'a Resolved,
    pub pinned: Vec<PinnedFile>,
    pub argv: Vec<OsString>,
    pub workdir: PathBuf,
}

/// Identity and program.
#[must_use]
pub fn process(
    facts: &Facts,
    kind: ProcessKind,
    label: &str,
    limits: ResolvedLimits,
    program: Pinning<'_>,
) -> Process {
    let context = &facts.context;
    Process {
        program: program.resolved.program.clone(),
        argv: program.argv,
        workdir: program.workdir,
        pinned: program.pinned,
        allow_degraded: facts.allow_degraded,
        reports_files: facts.tells_files,
        ..bare_process(context, kind, label, limits)
    }
}

/// A process without a program.
#[must_use]
pub fn bare_process(context: &Context, kind: ProcessKind, label: &str, limits: ResolvedLimits) -> Process {
    let keeps_terminal = kind == ProcessKind::Agent;
    Process {
        kind,
        label: label.to_owned(),
        identity: context.identity,
        user: context.user.clone(),
        program: PathBuf::new(),
        argv: Vec::new(),
        workdir: context.directory.clone(),
        descriptors: Vec::new(),
        raw_environment: Vec::new(),
        pinned: Vec::new(),
        terminal: if keeps_terminal { Terminal::Keep } else { Terminal::NewSession },
        terminal_device: keeps_terminal.then(own_terminal).flatten(),
        bridge: kind.is_agent().then(|| context.executable.clone()),
        limits,
        allow_degraded: false,
        reports_files: false,
    }
}

/// Home and project. Contributions decide what is visible.
#[must_use]
pub fn path_rules(context: &Context, kind: ProcessKind, limits: &ResolvedLimits) -> PathRules {
    PathRules {
        home: context.home.clone(),
        project: context.project.clone(),
        start: context.directory.clone(),
        has_project_directory: kind.is_agent(),
        stubs: kind != ProcessKind::Probe,
        git: user_git::global_settings(context),
        named: agentsh_host::named_files::named_files(context),
        private_bytes: private_bytes(context, limits),
        ..PathRules::default()
    }
}

/// Private directories count towards the cgroup's memory. Without one, the four share the limit.
fn private_bytes(context: &Context, limits: &ResolvedLimits) -> u64 {
    const LARGEST: u64 = 1 << 30;
    if context.hierarchies.may_hold_memory() { LARGEST } else { (limits.memory / 4).min(LARGEST) }
}

/// The first standard stream's terminal.
fn own_terminal() -> Option<PathBuf> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let name = |stream: BorrowedFd<'_>| nix::unistd::ttyname(stream).ok();
    let found = name(stdin.as_fd()).or_else(|| name(stdout.as_fd())).or_else(|| name(stderr.as_fd()))?;
    found.starts_with("/dev").then_some(found)
}

/// What every sandbox has; and agentsh's records and policy, which none has.
#[must_use]
pub fn of_sandbox(context: &Context, kind: ProcessKind) -> Contribution {
    // Who reaches a session's sockets may call its servers. Others of the user may have another environment.
    let usual = PathBuf::from(format!("/run/user/{}/agentsh", nix::unistd::getuid()));
    let own = [
        context.state.clone(),
        context.config.join("agentsh"),
        context.runtime_directory().to_owned(),
        usual,
    ];
    // A fetched server package is there.
    let data = kind.is_agent().then(|| context.data.clone());
    let part = Contribution::new(Feature::Sandbox).hiding(own.into_iter().chain(data));
    let links = context.links.iter().cloned().collect();
    let mut environment = environment::of_sandbox(context);
    if kind == ProcessKind::Agent {
        // The path as typed, perhaps through links.
        let directory = context.directory_as_given.display().to_string();
        environment.push(EnvChange::Set("PWD".to_owned(), directory));
    }
    Contribution { environment, links, ..part }
}

/// Hosts that no rule opens: the registry and fleet server that judge this sandbox.
#[must_use]
pub fn closed_hosts(session: &Session) -> Contribution {
    let mut part = Contribution::new(Feature::ClosedHosts);
    let registry = session.live.servers.registered.settings();
    let registry = registry.and_then(|settings| Some((settings.registry_address()?, settings.rule.clone())));
    let fleet = fleet::fleet_address(&session.facts.context.state)
        .map(|place| (place, agentsh_base::types::RuleRef::default_rule("fleet")));
    part.closed.extend(registry.into_iter().chain(fleet).map(|(value, rule)| Ruled { value, rule }));
    part
}

/// Variables that a program's interpreter or package needs.
#[must_use]
pub fn of_program(env: impl IntoIterator<Item = (String, String)>) -> Contribution {
    Contribution::new(Feature::Program).setting(env)
}

/// What an `env` wrapper takes away, it takes from everything that its program would have got.
pub fn remove_variables(spec: &mut SandboxSpec, resolved: &Resolved) {
    spec.environment.retain(|name, _| !resolved.removes(name));
    spec.process.raw_environment.retain(|assignment| resolved.keeps_assignment(assignment));
}

/// A host path at another place.
fn at(host: &Path, inside: PathBuf, access: Access) -> RelocatedPath {
    RelocatedPath { host: host.to_owned(), inside, access }
}

/// The section of the policy for rules about the agent's variables.
pub const AGENT_SECTION: &str = "agent";

/// A process's policy, for the merge.
#[must_use]
pub fn rules<'a>(
    process: &'a ProcessPolicy,
    section: &'a str,
    inherited: &'a BTreeMap<String, String>,
) -> agentsh_sandbox::spec::Rules<'a> {
    agentsh_sandbox::spec::Rules { env: &process.env, section, inherited, network: &process.network }
}

/// Reports decisions of the specification to user and journal.
pub fn report(record: &Record, server: Option<&ServerId>, spec: &SandboxSpec) {
    spec.notices.iter().for_each(|notice| record.note(notice));
    record.enforcement(server, &spec.enforcement);
    if !spec.stripped.is_empty() {
        record.journal.record(Event::McpServerEnvFiltered {
            server_id: server.cloned(),
            stripped_vars: spec.stripped.clone(),
            passed_count: spec.environment.len(),
        });
    }
}
