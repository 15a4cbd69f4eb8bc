//! The test sandboxes of `agentsh doctor`: their specification, their start, and what is left after a killed
//! supervisor.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;

use super::PROBE_VERB;
use crate::session::probe::{self, Probe, ProbeError};
use agentsh_base::types::RuleRef;
use agentsh_host::{Context, ContextError};
use agentsh_policy::{Limits, Ruled};
use agentsh_sandbox::cgroup;
use agentsh_sandbox::layout::{PinnedBytes, PinnedFile};
use agentsh_sandbox::mount_calls::file_key;
use agentsh_sandbox::sealed;
use agentsh_trials::attempt;
use agentsh_trials::doctor::Probed;
use agentsh_trials::doctor::layer::{Layer, State};
use agentsh_trials::doctor::probe::{CPU_PERCENT, MEMORY_LIMIT, PIDS_LIMIT, ProbeFacts};
use agentsh_trials::doctor::stage::{PINNED, Stage};

/// The probes of the ordinary sandbox, in an order in which none disturbs another.
const ORDINARY: [&str; 10] = [
    "namespaces",
    "mounts",
    "network",
    "identity",
    "landlock",
    "seccomp",
    "capabilities",
    "no-new-privileges",
    "terminal",
    "pinned",
];

/// The first argument of the throw-away supervisor.
pub const SUPERVISE: &str = "supervise";
/// Time within which all that a killed supervisor leaves must have ended.
const DEATH_LIMIT: Duration = Duration::from_millis(1000);
const START_LIMIT: Duration = Duration::from_millis(2000);

/// The sandbox that most rows are about.
///
/// # Errors
/// When it cannot be started.
pub async fn probe_ordinary_sandbox(stage: &Stage, context: &Context) -> Result<Probed, ProbeError> {
    let sealed = sealed::seal(File::open(&stage.facts.pinned)?.as_fd(), PINNED.len() as u64)?;
    // Too late: the sandbox must show the bytes that were checked.
    attempt::append(&stage.facts.pinned, "and more\n").map_err(io::Error::from)?;
    let bytes = PinnedBytes::Copied { from: 0 };
    let file = PinnedFile { path: stage.facts.pinned.clone(), bytes, executable: false };
    let probe = Probe {
        name: "doctor".to_owned(),
        arguments: arguments(&stage.facts, &ORDINARY),
        pinned: vec![file],
        descriptors: vec![sealed.memory],
        landlock_only: Some(stage.directory().join("closed")),
        ..Probe::default()
    };
    probe::run(context, probe).await
}

/// One sandbox per limit, so that none hides another.
///
/// # Errors
/// When it cannot be started.
pub async fn limited(stage: &Stage, context: &Context, name: &str) -> Result<Probed, ProbeError> {
    let ruled = |value| Some(Ruled { value, rule: RuleRef::default_rule("doctor") });
    let limits = match name {
        "memory" => Limits { memory: ruled(MEMORY_LIMIT), ..Limits::default() },
        "pids" => Limits { pids: ruled(PIDS_LIMIT), ..Limits::default() },
        _ => Limits { cpu: ruled(CPU_PERCENT), ..Limits::default() },
    };
    let arguments = arguments(&stage.facts, &[name]);
    probe::run(context, Probe { name: name.to_owned(), arguments, limits, ..Probe::default() }).await
}

/// Starts with a bound file that changes between check and start; None when that worked.
///
/// # Errors
/// When the attempt itself cannot be made.
pub async fn probe_tampered_program(stage: &Stage, context: &Context) -> io::Result<Option<String>> {
    let name = "tampered";
    let path = stage.write_file(name, PINNED)?;
    let bytes = PinnedBytes::InPlace(file_key(File::open(&path)?.as_fd())?);
    let file = PinnedFile { path: path.clone(), bytes, executable: false };
    // Into the same file: a new one under the same name would not even be the checked one.
    attempt::append(&path, "and more\n")?;
    let probe = Probe {
        name: name.to_owned(),
        arguments: arguments(&stage.facts, &[]),
        pinned: vec![file],
        ..Probe::default()
    };
    Ok(probe::run(context, probe).await.err().map(|error| error.to_string()))
}

/// Starts a supervisor with a sandbox below it, kills it with SIGKILL, and waits for the last process to go.
///
/// # Errors
/// When it cannot be started.
#[expect(clippy::disallowed_methods, reason = "agentsh itself, which is to be killed")]
pub async fn parent_death(context: &Context, facts: &ProbeFacts) -> io::Result<Layer> {
    let (layer, asked) = ("parent-death", "no process survives a killed agentsh");
    let (mut held, inside) = crate::session::pipes::to_read()?;
    let mut supervisor = Command::new(&context.executable.0)
        .args([PROBE_VERB, SUPERVISE, &serde_json::to_string(facts)?])
        .stdin(Stdio::null())
        .stdout(inside)
        .stderr(Stdio::null())
        .spawn()?;
    let mut heard = Vec::new();
    let ready = async {
        while !heard.contains(&b'\n') {
            let mut buffer = [0; 1024];
            match held.read(&mut buffer).await {
                Ok(0) | Err(_) => return false,
                Ok(read) => heard.extend_from_slice(&buffer[..read]),
            }
        }
        true
    };
    let ready = tokio::time::timeout(START_LIMIT, ready).await.unwrap_or(false);
    supervisor.kill()?;
    supervisor.wait()?;
    // Every process below the supervisor has the write end, and no other process.
    let gone = probe::wait_until_closed(held, DEATH_LIMIT).await;
    // A process leaves its control group a little after it has closed its files.
    let deadline = Instant::now() + DEATH_LIMIT;
    while cgroup::remove_abandoned(&context.hierarchies).contains(&supervisor.id())
        && Instant::now() < deadline
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(match (ready, gone) {
        (false, _) => Layer::new(layer, asked, "not tried", State::Absent)
            .with_reason("the test supervisor could not start its sandbox"),
        (true, Some(after)) => {
            let after = after.as_secs_f64() * 1000.0;
            Layer::enforced(
                layer,
                asked,
                format!("program, daemon and grandchild gone {after:.1} ms after SIGKILL"),
            )
        }
        (true, None) => Layer::new(layer, asked, "processes still run after a second", State::Absent)
            .remedy("please report it, with the kernel's version"),
    })
}

/// The throw-away supervisor: a sandbox whose program waits. Ends when it is killed.
pub async fn supervise(facts: ProbeFacts) -> u8 {
    let Some(directory) = facts.project.parent() else { return 1 };
    let Ok(context) = context(directory) else { return 1 };
    let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned() else { return 1 };
    let arguments = arguments(&facts, &["linger"]);
    let probe = Probe { name: "supervise".to_owned(), arguments, ..Probe::default() };
    match probe::start(&context, probe, stdout).await {
        Ok(running) => running.child.exit().await,
        Err(_) => 1,
    }
}

/// The host as every run sees it, but with a home and a project of our own.
///
/// # Errors
/// When there is no home, or agentsh's own executable cannot be found.
pub fn context(directory: &Path) -> Result<Context, ContextError> {
    let (mut context, _) = Context::find_for_server()?;
    context.home = directory.join("home");
    context.project = directory.join("project");
    context.directory.clone_from(&context.project);
    Ok(context)
}

/// The command line of the program inside.
#[must_use]
pub fn arguments(facts: &ProbeFacts, names: &[&str]) -> Vec<String> {
    let facts = serde_json::to_string(facts).unwrap_or_default();
    [PROBE_VERB.to_owned(), facts].into_iter().chain(names.iter().map(|name| (*name).to_owned())).collect()
}
