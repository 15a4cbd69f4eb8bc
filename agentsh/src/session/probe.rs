//! A temporary sandbox around agentsh itself, with which `doctor` tests the kernel.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use agentsh_policy::{Limits, ProcessPolicy};
use agentsh_sandbox::SpawnError;
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::spec::{
    Contribution, Feature, PathRules, PinnedBytes, PinnedFile, Process, ProcessKind, RelocatedPath, merge,
};
use agentsh_trials::doctor::probe::LANDLOCK_ONLY;
use agentsh_trials::doctor::{ProbeEnd, Probed};

use super::Context;
use super::launch::{self, Handles, Running};
use super::process::memory_exceeded;
use super::{pipes, specify};

/// A slower sandbox is killed.
pub const PROBE_TIMEOUT: Duration = Duration::from_millis(2500);
/// Limit of output.
const MAX_OUTPUT: u64 = 256 * 1024;

/// A test run, and its differences from an agent's.
#[derive(Debug, Default)]
pub struct Probe {
    /// For messages and cgroups; unique in this process.
    pub name: String,
    /// After argv[0].
    pub arguments: Vec<String>,
    pub limits: Limits,
    pub pinned: Vec<PinnedFile>,
    /// Descriptors of `pinned`.
    pub descriptors: Vec<OwnedFd>,
    /// A directory mounted writable at [`LANDLOCK_ONLY`] without a Landlock rule: only Landlock refuses access there.
    pub landlock_only: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("cannot talk to the test sandbox: {0}")]
    Io(#[from] io::Error),
}

/// Runs the program, and returns its output.
///
/// # Errors
/// When the program could not be started; nothing keeps running.
pub async fn run(context: &Context, probe: Probe) -> Result<Probed, ProbeError> {
    let (stdout, inside) = pipes::to_read()?;
    let running = start(context, probe, inside).await?;
    let child = &running.child;
    let output = agentsh_base::task::spawn_local(read(stdout));
    let mut ended = ProbeEnd::ByItself;
    let exit_code = {
        let over = memory_exceeded(&running);
        tokio::pin!(over);
        tokio::select! {
            code = child.exit() => code,
            () = &mut over => {
                ended = ProbeEnd::ByTheMemoryWatchdog;
                child.kill();
                child.exit().await
            }
            () = tokio::time::sleep(PROBE_TIMEOUT) => {
                ended = ProbeEnd::TooSlow;
                child.kill();
                child.exit().await
            }
        }
    };
    if let Some(error) = child.execution_error() {
        return Err(error.into());
    }
    let output = output.await.unwrap_or_default();
    Ok(Probed {
        output,
        exit_code,
        memory_in_cgroup: running.cgroup.memory_held,
        cpu_in_cgroup: running.cgroup.cpu_held,
        throttled: running.cgroup.times_throttled(),
        enforcement: running.enforcement,
        ended,
    })
}

/// Starts the sandbox with only `stdout`.
///
/// # Errors
/// The failed step.
pub async fn start(context: &Context, probe: Probe, stdout: OwnedFd) -> Result<Running, ProbeError> {
    let (executable, key) = &context.executable;
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let own = PinnedFile { path: executable.clone(), bytes: PinnedBytes::InPlace(*key), executable: true };
    let words = std::iter::once("agentsh".to_owned()).chain(probe.arguments);
    let limits = probe.limits.resolve_for_agent();
    let place = |host| RelocatedPath { host, inside: LANDLOCK_ONLY.into(), access: Access::ReadWrite };
    let part = Contribution {
        beyond_landlock: probe.landlock_only.map(place).into_iter().collect(),
        ..Contribution::new(Feature::Probe)
    };
    let part = part.setting([("HOME".to_owned(), context.home.display().to_string())]);
    let own_records =
        Contribution { environment: Vec::new(), ..specify::of_sandbox(context, ProcessKind::Probe) };
    let process = Process {
        program: executable.clone(),
        argv: words.map(Into::into).collect(),
        pinned: std::iter::once(own).chain(probe.pinned).collect(),
        // The probe reports missing layers.
        allow_degraded: true,
        ..specify::bare_process(context, ProcessKind::Probe, &probe.name, limits)
    };
    let paths = PathRules {
        project_access: Some(Access::ReadWrite),
        ..specify::path_rules(context, ProcessKind::Probe, &limits)
    };
    let (policy, nothing_inherited) = (ProcessPolicy::default(), BTreeMap::new());
    let rules = specify::rules(&policy, "doctor", &nothing_inherited);
    let spec = merge(process, paths, &rules, vec![part, own_records]);
    let handles = Handles {
        descriptors: probe.descriptors,
        lender: None,
        egress: None,
        stdio: [nothing.as_fd(), stdout.as_fd(), nothing.as_fd()],
        reports_to: None,
        asks: None,
    };
    let cgroup = format!("agentsh-{}-{}", std::process::id(), probe.name);
    let (running, ()) =
        launch::assemble(context, &spec, handles, &cgroup, |_| Ok::<_, SpawnError>(())).await?;
    Ok(running)
}

/// Resolves to true when every holder of the other end is gone.
pub async fn wait_until_closed(mut held: pipe::Receiver, patience: Duration) -> Option<Duration> {
    let started = Instant::now();
    let mut buffer = [0; 64];
    loop {
        let left = patience.checked_sub(started.elapsed())?;
        match tokio::time::timeout(left, held.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return Some(started.elapsed()),
            Ok(Ok(_)) => {}
            Err(_) => return None,
        }
    }
}

async fn read(stdout: pipe::Receiver) -> String {
    let mut bytes = Vec::new();
    // Output before an error is valid.
    let _ = stdout.take(MAX_OUTPUT).read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
