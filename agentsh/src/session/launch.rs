//! From what a process is (the agent, or one server) to its running sandbox.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::policy::Limits;
use crate::sandbox::cgroup::{Cgroup, Quota};
use crate::sandbox::control::Cause;
use crate::sandbox::layout::{Grant, Keep, Layout, Request, layout};
use crate::sandbox::mount_calls::file_key;
use crate::sandbox::placeholders::{self, Placeholders};
use crate::sandbox::plan::{self, Access, Plan, Source, Terminal, What};
use crate::sandbox::{Child, Enforcement, Launch, Ordered, SpawnError, State, Tier, spawn};

use crate::net::EgressContext;

use super::Context;
use super::container::{self, Place};
use super::layer::{Shown, borrow};
use super::network::{self, Way};
use super::publish::{self, Published};
use super::refused_calls::Answering;
use super::start::Start;

/// A started process tree and what must live as long as it.
pub struct Running {
    /// Dropped before the cgroup: a cgroup with processes cannot be removed.
    pub child: Child,
    pub cgroup: Cgroup,
    /// Memory that the watchdog must hold because no cgroup does.
    pub watched_memory: Option<u64>,
    pub enforcement: Vec<Enforcement>,
    /// Serves the sandbox's connections while it lives.
    pub way_out: Option<network::WayOut>,
    /// Carries connections to its published ports while it lives.
    pub published: tokio::task::JoinSet<()>,
    /// What the weaker tier has in place of a root of its own.
    pub place: Option<Place>,
    /// Answers the calls that its filter refuses.
    pub refused_calls: Option<Answering>,
}

/// The one way from what a process is to its running sandbox: pid 1 is born while its layout is made. `before` sees the
/// layout before anything of the program runs, and can still refuse.
///
/// # Errors
/// The step that failed; nothing is left running.
pub async fn assemble<T, E: From<SpawnError>>(
    context: &Context,
    mut start: Start<'_>,
    cgroup: &str,
    before: impl FnOnce(&Start<'_>, &Layout) -> Result<T, E>,
) -> Result<(Running, T), E> {
    let begun = begin(context, &start, cgroup)?;
    let mut layout = prepare(context, &start);
    let place = match context.tier {
        Tier::Namespaces => None,
        Tier::Container => Some(Place::make(&mut start, &mut layout)?),
    };
    if let Some(Shown::Lent(agent)) = &start.layer {
        borrow(context, agent, &mut layout, &mut start.descriptors).map_err(|why| SpawnError::Init {
            label: start.label.to_owned(),
            message: format!("cannot show the project to it: {why}"),
            cause: Cause::Other,
        })?;
    }
    let kept = before(&start, &layout)?;
    Ok((finish(context, begun, start, layout, place).await?, kept))
}

/// The mounts of a start, as data, and the stand-ins that they need.
fn prepare(context: &Context, start: &Start<'_>) -> Layout {
    let request = Request {
        identity: context.identity,
        user: &context.user,
        home: &context.home,
        project: &context.project,
        project_access: start.project_access.map(|access| as_the_user_may(&context.project, access)),
        layer: start.layer.as_ref().map(Shown::of_project),
        grants: start
            .grants
            .iter()
            .map(|grant| Grant {
                path: grant.path.clone(),
                access: as_the_user_may(&grant.path, grant.access),
            })
            .collect(),
        own_state: start.own_state.clone(),
        // The records and the policy of agentsh are nobody's business inside, wherever they were put.
        denied: start
            .denied
            .iter()
            .cloned()
            .chain([context.state.clone(), context.config.join("agentsh")])
            .chain(start.for_agent.then(|| context.data.clone()))
            .collect(),
        unmasked: start.unmasked.clone(),
        guard_all: start.policy.filesystem.guard_all.as_ref().is_some_and(|all| all.value),
        pinned: start.pinned.clone(),
        program_roots: start.program_roots.clone(),
        links: start.links.clone(),
        private_bytes: private_bytes(context, start.limits),
        files: start.files.clone(),
        extra: start.extra.clone(),
        stand_ins: start.stand_ins,
        beyond_landlock: start.beyond_landlock.clone(),
        sets_git: start.program.env.iter().any(|variable| variable.starts_with("GIT_CONFIG_COUNT=")),
        caches: start.caches.clone(),
        for_agent: start.for_agent,
        bridge: start.for_agent.then_some((context.executable.0.as_path(), context.executable.1)),
        execute: start.execute.clone(),
        shared_sockets: start.shared_sockets,
        terminal: (start.terminal == Terminal::Keep).then(own_terminal).flatten(),
    };
    layout(&request, &context.host)
}

/// The first standard stream that is a terminal, by its name on this host.
fn own_terminal() -> Option<PathBuf> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let name = |stream: BorrowedFd<'_>| nix::unistd::ttyname(stream).ok();
    let found = name(stdin.as_fd()).or_else(|| name(stdout.as_fd())).or_else(|| name(stderr.as_fd()))?;
    found.starts_with("/dev").then_some(found)
}

/// What is needed to guard again, while it runs, what a start guards.
#[must_use]
pub fn keep(context: &Context, start: &Start<'_>) -> Keep {
    let denied = [context.state.clone(), context.config.join("agentsh")];
    Keep {
        identity: context.identity,
        home: context.home.clone(),
        project: context.project.clone(),
        project_access: start.project_access.map(|access| as_the_user_may(&context.project, access)),
        is_layered: start.layer.is_some(),
        grants: start
            .grants
            .iter()
            .map(|grant| Grant {
                path: grant.path.clone(),
                access: as_the_user_may(&grant.path, grant.access),
            })
            .collect(),
        program_roots: start.program_roots.clone(),
        denied: start.denied.iter().cloned().chain(denied).collect(),
        unmasked: start.unmasked.clone(),
        guard_all: start.policy.filesystem.guard_all.as_ref().is_some_and(|all| all.value),
    }
}

/// Pages of a private directory belong to the sandbox's cgroup and count there. Where no cgroup holds memory nobody
/// counts them, so the four directories together get as much as the limit.
fn private_bytes(context: &Context, limits: &Limits) -> u64 {
    const LARGEST: u64 = 1 << 30;
    match &limits.memory {
        Some(memory) if !context.hierarchies.may_hold_memory() => (memory.value / 4).min(LARGEST),
        _ => LARGEST,
    }
}

/// What the invoking user may not write, the sandbox cannot either: shown as read-only, it needs no stand-ins.
fn as_the_user_may(path: &Path, access: Access) -> Access {
    if rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok() { access } else { Access::ReadOnly }
}

/// What agentsh needs only to start something may leave its memory after this time.
const START_IS_OVER: Duration = Duration::from_secs(1);

/// What must stand before the first process: its cgroup with what polices it, and a pid 1 that waits for its plan.
struct Begun {
    /// Dropped before the cgroup, as in [`Running`].
    ordered: Ordered,
    cgroup: Cgroup,
    egress: Option<Rc<EgressContext<crate::store::Journal>>>,
    quota: Quota,
}

/// The first half of a launch. Pid 1 is born while [`prepare`] looks at the host.
///
/// # Errors
/// What could not be had; nothing is left running.
fn begin(context: &Context, start: &Start<'_>, name: &str) -> Result<Begun, SpawnError> {
    // A quota of more CPUs than there are would cost a cgroup and hold nothing.
    let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| u64::from(set.count()));
    let cpu_percent = start
        .limits
        .cpu_percent
        .as_ref()
        .map(|ruled| ruled.value)
        .filter(|percent| *percent < processors * 100);
    let hierarchies = start.network.as_ref().and_then(Way::hierarchies).unwrap_or(&context.hierarchies);
    let memory_bytes = start.limits.memory.as_ref().map_or(u64::MAX, |ruled| ruled.value);
    let quota = Quota { memory_bytes, cpu_percent };
    let mut cgroup = hierarchies.create(name, quota);
    // Before anything exists that could connect.
    let egress = start.network.as_ref().map(|way| way.arm(&cgroup)).transpose().map_err(|message| {
        SpawnError::Init { label: start.label.to_owned(), message, cause: Cause::Other }
    })?;
    let ordered = spawn::order(&context.zygote, start.label, &cgroup, context.tier)?;
    hierarchies.complete(&mut cgroup, name, quota);
    Ok(Begun { ordered, cgroup, egress, quota })
}

/// Stand-ins that are removed whatever becomes of this process.
///
/// # Errors
/// When one cannot be made: nothing must start without it.
pub fn stand_ins(context: &Context, layout: &Layout) -> std::io::Result<Placeholders> {
    let wanted = placeholders::wanted(&layout.placeholders);
    if !wanted.is_empty() {
        // Without it the next run sweeps.
        let _ = context.zygote.clean_up_after_me(&placeholders::records(&context.state));
    }
    Placeholders::make(&context.state, &wanted)
}

/// The second half: hands the plan over and waits until the program is about to be executed.
///
/// # Errors
/// The step that failed; nothing is left running.
async fn finish(
    context: &Context,
    begun: Begun,
    start: Start<'_>,
    layout: Layout,
    mut place: Option<Place>,
) -> Result<Running, SpawnError> {
    let Begun { ordered, mut cgroup, egress, quota } = begun;
    let memory = quota.memory_bytes;
    let mut enforcement = limits_report(&cgroup, quota);
    let value = |limit: &Option<crate::policy::Ruled<u64>>, fallback| {
        limit.as_ref().map_or(fallback, |ruled| ruled.value)
    };

    let mut passed = start.descriptors;
    let first_task = passed.len();
    passed.extend(cgroup.take_tasks());
    let join = (first_task..passed.len()).collect();
    let mut mounts = layout.mounts;
    if let Some(maps) = &context.idmaps {
        map_owned(maps, &mut mounts, &mut passed, &mut enforcement);
    }
    for directory in &layout.unsearched {
        enforcement.push(Enforcement::less(
            "hook files",
            "every repository below the project",
            "the top level",
            State::Degraded,
            format!("{} holds too many files to be searched for nested repositories", directory.display()),
        ));
    }
    let mut program = start.program;
    program.env.extend(layout.env);
    let mut network = start.network;
    let published = network.as_mut().map(|way| std::mem::take(&mut way.published)).unwrap_or_default();
    let is_policed = network.as_ref().is_some_and(Way::is_policed);
    let others = if context.tier == Tier::Container { container::processes_of_user() } else { 0 };
    let plan = Plan {
        tier: context.tier,
        label: start.label.to_owned(),
        program,
        identity: context.identity,
        terminal: start.terminal,
        mounts,
        landlock: layout.landlock,
        limits: plan::Limits {
            // The kernel counts per user: here those of the container too.
            pids: value(&start.limits.pids, 512).saturating_add(others),
            open_files: value(&start.limits.open_files, 1024),
            inotify_instances: share("max_inotify_instances", start.for_agent),
            inotify_watches: share("max_inotify_watches", start.for_agent),
        },
        executable: layout.executable,
        network: network.as_ref().map_or(plan::Network::Closed, |way| way.plan.clone()),
        published: !published.is_empty() && !is_policed,
        join,
        allow_degraded: start.allow_degraded,
        tells_files: network.as_ref().is_some_and(|way| way.owner().0.tells_files.get()),
    };
    let mut child = ordered.start(Launch { plan: &plan, stdio: start.stdio, passed }).await?;
    enforcement.extend(child.enforcement.iter().cloned());
    let told = network.as_ref().map(Way::owner);
    enforcement.extend(network.map(|way| way.enforcement));
    if let Some((session, server)) = &told {
        super::refused_files::add(session, server.clone(), child.pid);
    }
    let refused_calls = match child.listener.take_if(|_| place.is_none()) {
        Some(listener) => {
            Some(Answering::start(listener, told, super::missing_files::hear).map_err(|error| {
                SpawnError::Init {
                    label: start.label.to_owned(),
                    message: format!("its system calls cannot be answered: {error}"),
                    cause: Cause::Other,
                }
            })?)
        }
        None => None,
    };
    let published = publish_on(published, is_policed, &mut child)?;
    if let Some(place) = &mut place {
        child.sockets =
            place.connect(child.listener.take(), egress.as_deref()).map_err(|error| SpawnError::Init {
                label: start.label.to_owned(),
                message: format!("its connections cannot be made: {error}"),
                cause: Cause::Other,
            })?;
    }
    if place.is_none() && child.sockets.as_ref().is_some_and(|sockets| sockets.refused.is_empty()) {
        let why = "this kernel gives no packet sockets: connections to ports that no rule names fail without an event";
        enforcement.push(Enforcement::less("refused connections", "told", "some", State::Degraded, why));
    }
    let way_out = egress.zip(child.sockets.take()).map(|(egress, sockets)| network::serve(egress, sockets));
    let watched_memory = (!cgroup.memory_held).then_some(memory);
    tokio::task::spawn_local(async {
        tokio::time::sleep(START_IS_OVER).await;
        crate::memory::trim_heap();
    });
    Ok(Running { child, cgroup, watched_memory, enforcement, way_out, published, place, refused_calls })
}

/// Sockets that pid 1 made count as the sandbox's for the kernel's programs, which refuse them to anybody else: there ours
/// are made by who may enter.
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
        message: format!("its ports cannot be published: {error}; `--network userns` can"),
        cause: Cause::Other,
    })?;
    Ok(publish::serve(published, sockets))
}

/// A part of what the user has for everything: the agent gets half, a server an eighth.
fn share(name: &str, for_agent: bool) -> u64 {
    const LEAST: u64 = 8;
    let text = std::fs::read_to_string(Path::new("/proc/sys/user").join(name)).unwrap_or_default();
    let all: u64 = text.trim().parse().unwrap_or(0);
    (all / if for_agent { 2 } else { 8 }).max(LEAST)
}

fn limits_report(cgroup: &Cgroup, quota: Quota) -> Vec<Enforcement> {
    let Quota { memory_bytes: memory, cpu_percent: cpu } = quota;
    let mut report = Vec::new();
    let asked = format!("{} MiB together", memory >> 20);
    report.push(if cgroup.memory_held {
        Enforcement::enforced("memory limit", format!("{asked}, by cgroup"))
    } else {
        let why = "no memory cgroup may be made here (needs root or a delegated cgroup)";
        Enforcement::less("memory limit", &asked, "a watchdog over all", State::Degraded, why)
    });
    if let Some(percent) = cpu {
        let asked = format!("{percent} % of one CPU");
        report.push(if cgroup.cpu_held {
            Enforcement::enforced("cpu limit", format!("{asked}, by cgroup"))
        } else {
            let why = "no CPU cgroup may be made here (needs root or a delegated cgroup)";
            Enforcement::less("cpu limit", &asked, "none", State::Absent, why)
        });
    }
    report
}

/// As root: what belongs to root, or to somebody else than the sandbox's id, is bound through an id map, so that it is the
/// sandbox's own inside, and what is made there belongs to its owner outside.
pub(super) fn map_owned(
    maps: &crate::sandbox::idmap::IdMaps,
    mounts: &mut [plan::Mount],
    passed: &mut Vec<OwnedFd>,
    enforcement: &mut Vec<Enforcement>,
) {
    let mut sources: Vec<&mut Source> = Vec::new();
    for mount in mounts {
        match &mut mount.what {
            What::Bind { access: Access::Device, .. } => {}
            What::Bind { source, .. } => sources.push(source),
            What::Overlay { lower, layer, .. } => sources.extend([lower, layer]),
            _ => {}
        }
    }
    for source in sources {
        let Source::Path { path, expect, no_links } = source else { continue };
        if crate::sandbox::layout::is_system(path) || path.starts_with("/dev") {
            continue;
        }
        let Some((uid, gid)) = maps.owner(path) else { continue };
        match maps.of(uid, gid).and_then(|map| map.tree(path, *no_links)) {
            // A pinned file must still be the one that was hashed; the launch fails when init finds another.
            Ok(tree) if expect.is_none_or(|key| file_key(tree.as_fd()).is_ok_and(|now| now == key)) => {
                passed.push(tree);
                *source = Source::Detached(passed.len() - 1);
            }
            Ok(_) => {}
            Err(error) => enforcement.push(Enforcement::less(
                "id map",
                &format!("{} as the sandbox's own", path.display()),
                "as another user's",
                State::Degraded,
                error.to_string(),
            )),
        }
    }
}
