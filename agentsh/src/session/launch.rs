//! Starts the sandbox of the agent or of one server.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use agentsh_base::proc_file;
use agentsh_base::types::ServerId;
use agentsh_net::EgressContext;
use agentsh_sandbox::cgroup::{Cgroup, Quota, TaskCount};
use agentsh_sandbox::control::Cause;
use agentsh_sandbox::etc_cache::{self, EtcLock};
use agentsh_sandbox::layout::{Layout, layout};
use agentsh_sandbox::plan::{self, Plan, Program};
use agentsh_sandbox::remount_guards::Namespaces;
use agentsh_sandbox::spec::{ProcessKind, SandboxSpec};
use agentsh_sandbox::stubs::{self, StubFiles};
use agentsh_sandbox::zygote;
use agentsh_sandbox::{Child, Enforcement, Launch, SpawnError, State, Tier, WaitingInit, spawn};

use super::call_responder::CallResponder;
use super::layer::borrow;
use super::network::{self, Egress};
use super::publish::{self, Published};
use super::{Context, Session};
use agentsh_approvals::Approvals;
use agentsh_container::{self as container, ContainerFiles};
use agentsh_guards::{Guarded, GuardedNames};

/// What a launch needs besides data: descriptors and services.
pub struct Handles<'a> {
    /// Descriptors of pinned files.
    pub descriptors: Vec<OwnedFd>,
    /// The agent's sandbox, for the project's layer.
    pub lender: Option<&'a Namespaces>,
    /// None: no network.
    pub egress: Option<Egress>,
    pub stdio: [BorrowedFd<'a>; 3],
    /// Who gets reports of refused calls and files.
    pub reports_to: Option<(Rc<Session>, Option<ServerId>)>,
    /// Asks a person about guarded files.
    pub asks: Option<Approvals>,
}

/// A started process tree, with everything of the same lifetime.
pub struct Running {
    /// Dropped before the cgroup, which cannot be removed with processes.
    pub child: Child,
    pub cgroup: Cgroup,
    /// The memory limit for the watchdog, without a cgroup.
    pub watched_memory: Option<u64>,
    pub tasks: TaskCount,
    pub enforcement: Vec<Enforcement>,
    /// Serves its connections until dropped.
    pub way_out: Option<network::EgressService>,
    /// Serves its published ports until dropped.
    pub published: tokio::task::JoinSet<()>,
    /// The container tier's files.
    pub place: Option<ContainerFiles>,
    /// Guarded paths, for renames.
    pub guarded: GuardedNames,
    /// Answers refused calls.
    pub refused_calls: Option<CallResponder>,
    /// Keeps its `/etc` from being removed.
    pub shown_etc: Option<EtcLock>,
}

/// Starts a sandbox; pid 1 starts while the layout is made. `before` gets the layout before the program runs, and can
/// refuse.
///
/// # Errors
/// The failed step; nothing keeps running.
pub async fn assemble<T, E: From<SpawnError>>(
    context: &Context,
    spec: &SandboxSpec,
    mut handles: Handles<'_>,
    cgroup: &str,
    before: impl FnOnce(&mut Layout) -> Result<T, E>,
) -> Result<(Running, T), E> {
    let begun = begin(context, spec, handles.egress.as_ref(), cgroup)?;
    let mut layout = layout(spec, &context.host);
    let mut program = Program {
        path: spec.process.program.clone(),
        argv: spec.process.argv.clone(),
        env: spec.environment_block(),
        workdir: spec.process.workdir.clone(),
        descriptors: spec.process.descriptors.clone(),
    };
    let place = (context.tier == Tier::Container).then(|| {
        context.host.forget_listings();
        ContainerFiles::make(spec, &mut program, &mut layout)
    });
    let place = place.transpose()?;
    if let Some(lender) = handles.lender {
        borrow(context, lender, &mut layout, &mut handles.descriptors).map_err(|why| SpawnError::Init {
            label: spec.process.label.clone(),
            message: format!("cannot make the project visible: {why}"),
            cause: Cause::Other,
        })?;
    }
    let kept = before(&mut layout).inspect(|_| context.host.forget_listings())?;
    Ok((finish(context, begun, spec, handles, program, layout, place).await?, kept))
}

/// After this time agentsh frees memory that only the start needed.
const RELEASE_MEMORY_DELAY: Duration = Duration::from_secs(1);

/// A cgroup with its programs, and a waiting pid 1.
struct PreparedSandbox {
    /// Dropped before the cgroup, as in [`Running`].
    ordered: WaitingInit,
    cgroup: Cgroup,
    egress: Option<Rc<EgressContext<agentsh_store::Journal>>>,
    quota: Quota,
}

/// The first half: starts pid 1.
///
/// # Errors
/// The failed step; nothing keeps running.
fn begin(
    context: &Context,
    spec: &SandboxSpec,
    egress: Option<&Egress>,
    name: &str,
) -> Result<PreparedSandbox, SpawnError> {
    let process = &spec.process;
    // A quota above the number of CPUs limits nothing.
    let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| u64::from(set.count()));
    let cpu_percent = Some(process.limits.cpu_percent).filter(|percent| *percent < processors * 100);
    let hierarchies = egress.and_then(Egress::hierarchies).unwrap_or(&context.hierarchies);
    let quota = Quota { memory_bytes: process.limits.memory, cpu_percent };
    let mut cgroup = hierarchies.create(name, quota);
    // Before anything can connect.
    let egress = egress
        .map(|egress| egress.arm(&cgroup))
        .transpose()
        .map_err(|message| SpawnError::Init { label: process.label.clone(), message, cause: Cause::Other })?;
    let ordered = spawn::order(&context.zygote, &process.label, &cgroup, context.tier)?;
    hierarchies.complete(&mut cgroup, name, quota);
    Ok(PreparedSandbox { ordered, cgroup, egress, quota })
}

/// Creates stubs, which are removed even if this process dies.
///
/// # Errors
/// When one cannot be created: no sandbox may start without it.
pub fn stubs(context: &Context, layout: &Layout) -> std::io::Result<StubFiles> {
    let wanted = stubs::wanted_stubs(&layout.stubs);
    if !wanted.is_empty() {
        // Otherwise the next run removes them.
        let _ = context.zygote.let_others_clean_up(&stubs::records(&context.state));
    }
    wanted.iter().for_each(|(path, _)| context.host.note_made(path));
    StubFiles::make(&context.state, &wanted)
}

/// The second half: sends the plan and waits until the program is about to be executed.
///
/// # Errors
/// The failed step; nothing keeps running.
async fn finish(
    context: &Context,
    begun: PreparedSandbox,
    spec: &SandboxSpec,
    handles: Handles<'_>,
    program: Program,
    mut layout: Layout,
    mut place: Option<ContainerFiles>,
) -> Result<Running, SpawnError> {
    let PreparedSandbox { ordered, mut cgroup, egress, quota } = begun;
    let process = &spec.process;
    let Handles { descriptors: mut passed, egress: mut way, stdio, reports_to, asks, .. } = handles;
    let memory = quota.memory_bytes;
    let mut enforcement = limits_report(&cgroup, quota);
    let first_task = passed.len();
    passed.extend(cgroup.take_tasks());
    let join = (first_task..passed.len()).collect();
    // Review mode checks writes when they are applied.
    let decides = reports_to.as_ref().is_some_and(|(session, _)| !session.facts.is_reviewed);
    let guarded = if decides { Guarded::of(&layout, asks) } else { Guarded::default() };
    let names = guarded.names();
    let mut mounts = std::mem::take(&mut layout.mounts);
    context.host.keep();
    let shown_etc = match context.tier {
        // If it cannot be cached, it is made as usual.
        Tier::Namespaces => etc_cache::show_etc(&context.state, &mut mounts, &layout.copied).ok().flatten(),
        Tier::Container => None,
    };
    if let Some(maps) = &context.idmaps {
        maps.map_owned(&mut mounts, &mut passed, &mut enforcement);
    }
    for directory in &layout.unsearched {
        enforcement.push(Enforcement::weakened(
            "hook files",
            "guarded in every repository below the project",
            "guarded at the top level",
            State::Degraded,
            format!("{} has too many files to search for nested repositories", directory.display()),
        ));
    }
    let published = way.as_mut().map(|way| std::mem::take(&mut way.published)).unwrap_or_default();
    let is_policed = way.as_ref().is_some_and(Egress::is_policed);
    let others = if context.tier == Tier::Container { container::processes_of_user() } else { 0 };
    let plan = Plan {
        tier: context.tier,
        label: process.label.clone(),
        program,
        identity: process.identity,
        terminal: process.terminal,
        mounts,
        landlock: layout.landlock,
        limits: plan::Limits {
            // The kernel counts per user, with the container's other processes.
            pids: process.limits.pids.saturating_add(others),
            open_files: process.limits.open_files,
            usual_open_files: zygote::usual_limits().0,
            file_bytes: zygote::usual_limits().1,
            inotify_instances: share_of_limit("max_inotify_instances", process.kind),
            inotify_watches: share_of_limit("max_inotify_watches", process.kind),
        },
        executable: layout.executable,
        network: way
            .as_ref()
            .map_or(plan::Network::Redirected { listeners: Vec::new() }, |way| way.plan.clone()),
        published: !published.is_empty() && !is_policed,
        join,
        allow_degraded: process.allow_degraded,
        ignored: agentsh_sandbox::init::ignored_by_caller(),
        tells_files: process.reports_files,
        // For the agent, also refusals below read-only directories.
        hears_renames: !guarded.is_empty() || {
            matches!(&reports_to, Some((session, None)) if !session.facts.is_reviewed)
        },
    };
    let mut child = ordered.start(Launch { plan: &plan, stdio, passed }).await?;
    enforcement.extend(child.enforcement.iter().cloned());
    enforcement.extend(way.map(|way| way.enforcement));
    if let Some((session, server)) = &reports_to {
        super::refused_files::add(session, server.clone(), child.pid);
    }
    let refused_calls = match child.listener.take_if(|_| place.is_none()) {
        Some(listener) => {
            let answering =
                CallResponder::start(listener, reports_to, guarded, super::missing_files::handle_lookup);
            Some(answering.map_err(|error| SpawnError::Init {
                label: process.label.clone(),
                message: format!("cannot answer its system calls: {error}"),
                cause: Cause::Other,
            })?)
        }
        None => None,
    };
    let ports = published.iter().map(Published::port).collect();
    let published = publish_on(published, is_policed, &mut child)?;
    if let Some(place) = &mut place {
        child.sockets =
            place.connect(child.listener.take(), egress.as_deref()).map_err(|error| SpawnError::Init {
                label: process.label.clone(),
                message: format!("cannot make its connections: {error}"),
                cause: Cause::Other,
            })?;
    }
    if place.is_none() && child.sockets.as_ref().is_some_and(|sockets| sockets.refused.is_empty()) {
        let got = "not those to ports without a rule";
        let why = "this kernel has no packet sockets";
        enforcement.push(Enforcement::weakened(
            "refused connections",
            "all are recorded",
            got,
            State::Degraded,
            why,
        ));
    }
    let way_out = egress.zip(child.sockets.take());
    let way_out = way_out.map(|(egress, sockets)| network::serve(egress, sockets, &ports));
    let tasks = cgroup.tasks();
    let watched_memory = (!cgroup.memory_held).then_some(memory);
    agentsh_base::task::spawn_local(async {
        tokio::time::sleep(RELEASE_MEMORY_DELAY).await;
        agentsh_base::memory::trim_heap();
    });
    Ok(Running {
        child,
        cgroup,
        watched_memory,
        tasks,
        enforcement,
        way_out,
        published,
        place,
        guarded: names,
        refused_calls,
        shown_etc,
    })
}

/// With the eBPF programs, the session creates the sockets in the sandbox's network namespace, because the programs
/// count pid 1's sockets as the sandbox's.
fn publish_on(
    published: Vec<Published>,
    is_policed: bool,
    child: &mut Child,
) -> Result<tokio::task::JoinSet<()>, SpawnError> {
    let made = child.sockets.as_mut().map(|sockets| std::mem::take(&mut sockets.unconnected));
    if published.is_empty() {
        return Ok(tokio::task::JoinSet::new());
    }
    let sockets = if is_policed { publish::enter(child.pid) } else { Ok(made.unwrap_or_default()) };
    let sockets = sockets.map_err(|error| SpawnError::Init {
        label: "the agent".to_owned(),
        message: format!("cannot publish its ports: {error}; `--network userns` can"),
        cause: Cause::Other,
    })?;
    Ok(publish::serve(published, sockets))
}

/// A share of the user's limit: half for the agent, an eighth for a server.
fn share_of_limit(name: &str, kind: ProcessKind) -> u64 {
    const LEAST: u64 = 8;
    let text = proc_file::value(Path::new("/proc/sys/user").join(name)).unwrap_or_default();
    let all: u64 = text.trim().parse().unwrap_or(0);
    (all / if kind.is_agent() { 2 } else { 8 }).max(LEAST)
}

fn limits_report(cgroup: &Cgroup, quota: Quota) -> Vec<Enforcement> {
    let Quota { memory_bytes: memory, cpu_percent: cpu } = quota;
    let mut report = Vec::new();
    let is_root = rustix::process::geteuid().is_root();
    let needs =
        if is_root { ": no cgroup file system is writable" } else { " (needs root or a delegated cgroup)" };
    let asked = format!("{} MiB together", memory >> 20);
    report.push(if cgroup.memory_held {
        Enforcement::enforced("memory limit", format!("{asked}, by cgroup"))
    } else {
        let why = format!("cannot create a memory cgroup here{needs}");
        Enforcement::weakened("memory limit", &asked, "a watchdog over all", State::Degraded, why)
    });
    if let Some(percent) = cpu {
        let asked = format!("{percent} % of one CPU");
        report.push(if cgroup.cpu_held {
            Enforcement::enforced("cpu limit", format!("{asked}, by cgroup"))
        } else {
            let why = format!("cannot create a CPU cgroup here{needs}");
            Enforcement::weakened("cpu limit", &asked, "none", State::Absent, why)
        });
    }
    report
}
