//! One command of a package manager, in a sandbox of its own.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::egress::authorities::Source;
use crate::policy::{HostPattern, NetworkRule, ProcessPolicy, Ruled, domain, limits};
use crate::sandbox::layout::Grant;
use crate::sandbox::plan::{Access, Program, Terminal};
use crate::session::address::Address;
use crate::session::process::{self, ProcessError};
use crate::session::resolving::{self, Command};
use crate::session::start::Start;
use crate::session::{environment, network, pipes, trust};
use crate::store::words::ExitCause;
use crate::types::RuleRef;

use super::{FetchError, Job};

/// Longer than any package takes; a registry that trickles ends here.
pub(super) const LIMIT: Duration = Duration::from_mins(10);
/// What is kept of the output.
const MOST_OUTPUT: usize = 4 << 20;

pub struct Task<'a> {
    /// As messages name it.
    pub tool: &'static str,
    pub program: &'a str,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Shown read-only where they are.
    pub read: Vec<PathBuf>,
    /// Generated files: path, content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Nothing else can be reached.
    pub reach: &'a [Address],
    /// Whom the package manager is told to trust, besides whom everything trusts.
    pub trusts: Vec<Source>,
}

pub struct Done {
    pub code: u8,
    pub output: String,
    pub errors: String,
}

pub async fn run(job: &Job<'_>, task: Task<'_>) -> Result<Done, FetchError> {
    let session = job.session;
    let context = &session.context;
    let cannot = |why: String| FetchError::Tool { tool: task.tool, why };
    let process = policy(task.tool, task.reach);
    let mut env = environment::filter(&process.env, &context.env, environment::Asker::Server(job.id)).passed;
    env.extend(task.env.clone());
    let command = Command {
        program: task.program.to_owned(),
        args: task.args.clone(),
        cwd: job.directory.clone(),
        env: env.clone(),
        not_below: None,
    };
    let pinned =
        resolving::resolve(session, command, None).await.map_err(|error| cannot(error.to_string()))?;
    let resolved = &pinned.resolved;
    env.extend(resolved.worded.clone());
    env.extend(resolved.env.clone());
    environment::settle(&mut env, context);
    let bundle = trust::give_to_fetch(session, &process.network, &task.trusts, &mut env);

    let io = |source| FetchError::Io { doing: "make a pipe", source };
    let nothing = std::fs::File::open("/dev/null").map_err(io)?;
    let (mut output, output_inside) = pipes::to_read().map_err(io)?;
    let (mut errors, errors_inside) = pipes::to_read().map_err(io)?;
    let way = network::way(session, Some(job.id.clone()), process.network.clone()).await.map_err(cannot)?;
    let argv: Vec<String> =
        resolved.argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    // A package's build is work that the agent would do: it has the agent's limits.
    let limits = session.policy.agent.limits.clone().or(limits::limits_for_agent());
    let writable = Grant { path: job.directory.clone(), access: Access::ReadWrite };
    let readable = |path: &PathBuf| Grant { path: path.clone(), access: Access::ReadOnly };
    let files = task.files.iter().map(|(path, content)| (path.clone(), content.clone(), 0o444));
    let start = Start {
        label: &format!("fetch {}", job.id),
        policy: &process,
        limits: &limits,
        for_agent: false,
        terminal: Terminal::NewSession,
        program: Program {
            path: resolved.program.clone(),
            argv: argv.clone(),
            env: env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            workdir: job.directory.clone(),
        },
        pinned: pinned.files,
        program_roots: resolved.read_roots.clone(),
        links: Vec::new(),
        descriptors: pinned.descriptors,
        project_access: None,
        layer: None,
        grants: task.read.iter().map(readable).collect(),
        // Inside what every sandbox hides: the records and packages of agentsh.
        own_state: vec![writable],
        denied: Vec::new(),
        unmasked: Vec::new(),
        execute: Vec::new(),
        shared_sockets: true,
        files: files.chain(bundle).collect(),
        extra: Vec::new(),
        stand_ins: true,
        beyond_landlock: Vec::new(),
        caches: Vec::new(),
        network: Some(way),
        stdio: [nothing.as_fd(), output_inside.as_fd(), errors_inside.as_fd()],
        allow_degraded: session.allow_degraded,
    };
    let lacks = |path: &Path, why: &str| {
        session.note(&format!("{} is not shown to {}: {why}", path.display(), task.tool));
    };
    let process =
        process::start(session, Some(job.id), start, resolved, lacks).await.map_err(|error| match error {
            ProcessError::Changed(error) => error.into(),
            other => cannot(other.to_string()),
        })?;
    drop((output_inside, errors_inside));
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let too_long = async {
        tokio::time::sleep(LIMIT).await;
        ExitCause::Killed
    };
    let ((code, mut cause), (), ()) = tokio::join!(
        process.exit(too_long),
        read(&mut output, &mut said),
        read(&mut errors, &mut complained)
    );
    // The kernel ends the largest process, which need not be the first one.
    if cause == ExitCause::Exited && code != 0 && process.was_out_of_memory() {
        cause = ExitCause::MemoryLimit;
    }
    let ended = process.finish(code, cause).await;
    if let Some(error) = ended.error {
        return Err(cannot(error.to_string()));
    }
    match ended.cause {
        ExitCause::MemoryLimit => {
            let rule = limits
                .memory
                .map_or_else(|| RuleRef::default_rule("agent.limits.memory"), |limit| limit.rule);
            return Err(FetchError::Memory { tool: task.tool, rule });
        }
        ExitCause::Killed => return Err(FetchError::Slow { tool: task.tool }),
        _ => {}
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Done { code, output: text(&said), errors: text(&complained) })
}

/// The registry and nothing else. An address that is not public is opened by name: the user's own configuration of
/// the package manager says so.
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
                value.addresses = network::users_networks(&rule);
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
        // The rest is read and forgotten: whoever writes must not wait for us.
        let room = MOST_OUTPUT.saturating_sub(into.len()).min(read);
        into.extend_from_slice(buffer.get(..room).unwrap_or_default());
    }
}

/// A small file of the user's configuration; None when it is not there.
pub fn configuration(path: &Path) -> Option<Vec<u8>> {
    let small = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() < 1 << 20);
    if small { std::fs::read(path).ok() } else { None }
}

/// Variables of the invoking environment that begin with one of `prefixes`, in any case.
pub fn variables(job: &Job<'_>, prefixes: &[&str]) -> BTreeMap<String, String> {
    let wanted = |name: &str| {
        let name = name.to_ascii_uppercase();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let env = job.session.context.env.iter().filter(|(name, _)| wanted(name));
    env.map(|(name, value)| (name.clone(), value.clone())).collect()
}
