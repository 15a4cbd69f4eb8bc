//! Runs one command of a package manager in a sandbox.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::session::launch::Handles;
use crate::session::network::{self, AgentNetwork};
use crate::session::process::{self, ProcessError};
use crate::session::resolving::{self, Command};
use crate::session::{pipes, specify, trust};
use agentsh_base::types::RuleRef;
use agentsh_egress::authorities::Source;
use agentsh_host::address::Address;
use agentsh_policy::{HostPattern, NetworkRule, ProcessPolicy, Ruled, domain};
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{
    Contribution, EnvChange, Feature, File, Grant, PathRules, ProcessKind, environment_so_far, merge,
};
use agentsh_store::words::ExitCause;

use super::{FetchError, Job};

/// Longer than any package takes, against slow registries.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_mins(10);
/// Limit of kept output.
const MAX_OUTPUT: usize = 4 << 20;

pub struct Task<'a> {
    /// In messages.
    pub tool: &'static str,
    pub program: &'a str,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Mounted read-only.
    pub read: Vec<PathBuf>,
    /// Generated files: path and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The only reachable hosts.
    pub reach: &'a [Address],
    /// Additional certificate authorities.
    pub trusts: Vec<Source>,
}

pub struct CommandOutput {
    pub code: u8,
    pub output: String,
    pub errors: String,
}

pub async fn run(job: &Job<'_>, task: Task<'_>) -> Result<CommandOutput, FetchError> {
    let session = job.session;
    let context = &session.facts.context;
    let cannot = |why: String| FetchError::Tool { tool: task.tool, why };
    let process = policy(task.tool, task.reach);
    let section = format!("sandbox.mcp.servers[{}]", job.id);
    let rules = specify::rules(&process, &section, &context.env);
    let of_task = || {
        let env = task.env.clone().into_iter().map(|(name, value)| EnvChange::Set(name, value));
        let files = task.files.iter();
        Contribution {
            environment: env.collect(),
            files: files.map(|(path, content)| File::new(path.clone(), content.clone(), 0o444)).collect(),
            ..Contribution::new(Feature::Declaration)
        }
    };
    let command = Command {
        program: task.program.to_owned(),
        args: task.args.clone(),
        cwd: job.directory.clone(),
        env: environment_so_far(&rules, &[of_task()]),
        not_below: None,
    };
    let pinned =
        resolving::resolve(session, command, None).await.map_err(|error| cannot(error.to_string()))?;
    let resolved = &pinned.resolved;
    let io = |source| FetchError::Io { doing: "make a pipe", source };
    let nothing = std::fs::File::open("/dev/null").map_err(io)?;
    let (mut output, output_inside) = pipes::to_read().map_err(io)?;
    let (mut errors, errors_inside) = pipes::to_read().map_err(io)?;
    // A build is the agent's work, with its limits.
    let limits = session.facts.policy.agent.limits.resolve_for_agent();
    let readable = |path: &PathBuf| Grant { path: path.clone(), access: Access::ReadOnly };
    // Below directories that every sandbox hides.
    let own = Grant { path: job.directory.clone(), access: Access::ReadWrite };
    let authority = trust::authority(session, &process.network);
    let parts = vec![
        of_task().granting(task.read.iter().map(readable)).with_own_files([own]),
        specify::of_program(resolved.worded.clone().into_iter().chain(resolved.env.clone())),
        specify::of_sandbox(context, ProcessKind::Fetch),
        trust::contribution_to_fetch(context, authority.as_deref(), &task.trusts),
        specify::closed_hosts(session),
    ];
    let program = specify::Pinning {
        resolved,
        pinned: pinned.files,
        argv: resolved.argv.clone(),
        workdir: job.directory.clone(),
    };
    let label = format!("fetch {}", job.id);
    let paths = PathRules {
        program_roots: resolved.read_roots.clone(),
        shared_sockets: true,
        ..specify::path_rules(context, ProcessKind::Fetch, &limits)
    };
    let process = specify::process(&session.facts, ProcessKind::Fetch, &label, limits, program);
    let spec = merge(process, paths, &rules, parts);
    let egress = network::open(session, Some(job.id.clone()), &spec.network, AgentNetwork::default())
        .await
        .map_err(cannot)?;
    let handles = Handles {
        descriptors: pinned.descriptors,
        lender: None,
        egress: Some(egress),
        stdio: [nothing.as_fd(), output_inside.as_fd(), errors_inside.as_fd()],
        reports_to: Some((Rc::clone(session), Some(job.id.clone()))),
        asks: None,
    };
    let lacks = |path: &Path, why: &str| {
        session.record.note(&format!("{} is not visible to {}: {why}", path.display(), task.tool));
    };
    let process = process::start(session, Some(job.id), &spec, handles, resolved, None, lacks)
        .await
        .map_err(|error| match error {
            ProcessError::Changed(error) => error.into(),
            other => cannot(other.to_string()),
        })?;
    drop((output_inside, errors_inside));
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let too_long = async {
        tokio::time::sleep(FETCH_TIMEOUT).await;
        ExitCause::Killed
    };
    let ((code, mut cause), (), ()) = tokio::join!(
        process.exit(too_long),
        read(&mut output, &mut said),
        read(&mut errors, &mut complained)
    );
    // The kernel kills the largest process, which need not be the first.
    if cause == ExitCause::Exited && code != 0 && process.was_out_of_memory() {
        cause = ExitCause::MemoryLimit;
    }
    let ended = process.finish(code, cause).await;
    if let Some(error) = ended.error {
        return Err(cannot(error.to_string()));
    }
    match ended.cause {
        ExitCause::MemoryLimit => {
            let rule = session
                .facts
                .policy
                .agent
                .limits
                .memory
                .clone()
                .map_or_else(|| RuleRef::default_rule("agent.limits.memory"), |limit| limit.rule);
            return Err(FetchError::Memory { tool: task.tool, rule });
        }
        ExitCause::Killed => return Err(FetchError::Slow { tool: task.tool }),
        _ => {}
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(CommandOutput { code, output: text(&said), errors: text(&complained) })
}

/// Only the registry. A private address is permitted by name, because the user configured it.
fn policy(tool: &'static str, reach: &[Address]) -> ProcessPolicy {
    let mut process = ProcessPolicy::default();
    let rule = RuleRef { id: "registry".to_owned(), file: format!("configuration of {tool}"), line: 0 };
    for address in reach {
        if address.is_loopback() {
            process.network.loopback.push(Ruled { value: address.port, rule: rule.clone() });
        } else if let Ok(host) = domain::parse_pattern(&address.host) {
            let any_tcp = matches!(host, HostPattern::Net(..));
            let mut value = NetworkRule { any_tcp, ..NetworkRule::plain(host, vec![address.port]) };
            if !any_tcp {
                value.addresses = agentsh_host::users_networks::users_networks(&rule);
            }
            process.network.allow.push(Ruled { value, rule: rule.clone() });
        }
    }
    process
}

async fn read(from: &mut pipe::Receiver, into: &mut Vec<u8>) {
    let mut buffer = [0; 8192];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        // The rest is discarded, so that the program does not block.
        let room = MAX_OUTPUT.saturating_sub(into.len()).min(read);
        into.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}

/// A small configuration file of the user; None if missing.
pub fn configuration(path: &Path) -> Option<Vec<u8>> {
    let small = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() < 1 << 20);
    if small { std::fs::read(path).ok() } else { None }
}

/// The caller's variables with one of `prefixes`, in any case.
pub fn variables(job: &Job<'_>, prefixes: &[&str]) -> BTreeMap<String, String> {
    let wanted = |name: &str| {
        let name = name.to_ascii_uppercase();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let env = job.session.facts.context.env.iter().filter(|(name, _)| wanted(name));
    env.map(|(name, value)| (name.clone(), value.clone())).collect()
}
