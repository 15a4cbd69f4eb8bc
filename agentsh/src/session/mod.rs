//! One run: opens everything, owns everything, closes everything.

pub mod advisories;
pub mod bridges;
mod briefing;
mod call_responder;
mod cargo_index;
#[cfg(test)]
mod circles_tests;
mod classifying;
pub mod command_line;
pub mod committed;
mod configured;
mod connection_slots;
pub mod declared;
mod drain;
pub mod fetch;
pub mod fleet;
pub mod gateway;
pub(crate) mod git_head;
mod held_names;
mod interface;
pub mod inventory;
pub mod launch;
pub mod login;
pub mod mcp_run;
mod missing_files;
pub mod network;
pub mod pinning;
pub mod pipes;
#[cfg(test)]
mod plan_tests;
mod port_owners;
pub mod probe;
pub mod process;
pub mod profiles;
pub mod proxy;
mod refused_calls;
pub(crate) mod refused_files;
pub mod remote;
pub mod resolving;
mod review_mode;
pub mod run;
pub mod run_error;
mod sentinel;
pub mod server;
mod server_errors;
mod signals;
mod skill_pins;
pub mod specify;
mod startup;
pub mod stdio;
pub mod suggested_rules;
mod suspend;
mod teardown;
mod telemetry;
pub mod trust;
mod unknown_agent;
mod upstream_kind;
mod why;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use agentsh_base::paragraph;
use agentsh_base::random;
use agentsh_base::types::{ServerId, SessionId};
use agentsh_dlp::flow::labels::Labels;
use agentsh_policy::{Answer, PathContext, Policy, Question, Search};
use agentsh_sandbox::Tier;
use agentsh_sandbox::cgroup::TaskCount;
use agentsh_sandbox::seccomp::FileEffect;
use agentsh_sandbox::spec::SandboxSpec;
use agentsh_store::pins::PinStore;
use agentsh_store::{Journal, StoreError, running};

use agentsh_broker::logins::{self, LoginSession};
use agentsh_content::{content, content_scan, interface_pins};
pub use agentsh_host::{Context, ContextError};
use agentsh_host::{
    Facts, Record, address, agreements, context, copies, environment, git_identity, go_modules, grants,
    host_programs, installed, layer, project_sources, publish, remotes, repositories, user_git,
};
use agentsh_verifier::Registered;

use teardown::Teardown;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error("{0}")]
    Policy(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the system gives no random numbers: {0}")]
    Random(std::io::Error),
}

/// Where to search for the policy.
fn search(context: &Context, explicit: Option<String>, agent: &str, flags: agentsh_policy::Flags) -> Search {
    let (home, directory) = (context.home.clone(), context.directory.clone());
    Search {
        explicit,
        project: context.project.clone(),
        config_home: context.config.clone(),
        system: agentsh_policy::SYSTEM_FILE.into(),
        state: context.state.clone(),
        agent: agent.to_owned(),
        flags: agentsh_policy::Flags { home, directory, ..flags },
        proposed: None,
    }
}

fn load_policy(search: &Search) -> Result<Policy, SessionError> {
    agentsh_policy::load(search).map_err(|error| {
        // The caller prints the first `error: `.
        let text = error.render();
        SessionError::Policy(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
    })
}

/// What all parts of a run share: facts, record and changing state.
pub struct Session {
    pub facts: Rc<Facts>,
    pub record: Rc<Record>,
    pub live: SessionState,
}

/// The changing state, by subject. Functions get the part that they need.
pub struct SessionState {
    pub servers: KnownServers,
    pub agent: AgentSandbox,
    pub network: network::Network,
    pub refusals: Refusals,
    pub people: People,
    /// Sandboxes that were started.
    sandboxes: Cell<u32>,
    fetched: fetch::Fetched,
    teardown: Teardown,
}

/// State of the servers.
pub struct KnownServers {
    pub pins: Arc<PinStore>,
    /// The trusted interfaces of servers.
    pub interfaces: interface_pins::InterfacePins,
    /// The registry's answers.
    pub registered: Registered,
    /// A server is started whatever its pin says, and is not pinned: its interface is to be read as it is now.
    pub starts_unpinned: Cell<bool>,
    /// Data labels of started servers: see [`agentsh_dlp::flow::labels`].
    pub labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>,
    /// Servers that could not be pinned before the agent started, and why.
    unready: RefCell<BTreeMap<ServerId, String>>,
    /// Advisories for servers' results, as JSON.
    pub advised: RefCell<BTreeMap<ServerId, Rc<str>>>,
}

/// State of the agent's sandbox.
#[derive(Default)]
pub struct AgentSandbox {
    /// Set at the agent's start.
    spec: OnceCell<SandboxSpec>,
    /// The namespaces with the project's layer, set at the agent's start.
    pub layered: OnceCell<agentsh_sandbox::remount_guards::Namespaces>,
    /// With several sandboxes, shared host directories must not have sockets.
    pub has_neighbours: Cell<bool>,
    pub tasks: OnceCell<TaskCount>,
    /// SIGINT ended it.
    pub was_interrupted: Cell<bool>,
    /// Its namespaces while it runs, if servers start from files that it may write.
    inside: RefCell<Option<agentsh_sandbox::remount_guards::Namespaces>>,
    /// How many servers start from names that are held in it.
    held: Cell<u32>,
    /// Places in the private home where something was made, which is lost when the session ends.
    made_at_home: RefCell<BTreeSet<PathBuf>>,
}

/// Refusals: each is reported once, and the end suggests rules.
#[derive(Default)]
pub struct Refusals {
    pub suggested: suggested_rules::SuggestedRules,
    /// By Landlock.
    pub files: refused_files::Files,
    /// By seccomp.
    pub calls: refused_calls::Calls,
    /// By read-only mounts.
    pub writes: RefCell<refused_files::Writes>,
    /// Missing files, if they are reported.
    pub looked_for: RefCell<missing_files::MissingFileLog>,
    /// Denied `agentsh why` questions.
    pub asked: RefCell<BTreeSet<(String, String)>>,
}

/// Notices and questions to people.
#[derive(Default)]
pub struct People {
    pub logins: Rc<logins::Logins>,
    /// The approvals page, for clients that open URLs; `{id}` is the question.
    pub page: Rc<OnceCell<String>>,
}

/// Paths that sandboxes may write, up to the first pattern.
fn writable(policy: &Policy, paths: &PathContext) -> Vec<PathBuf> {
    let of_servers = policy.mcp.servers.values().map(|server| &server.process);
    let written = of_servers.chain([&policy.agent]).flat_map(|process| &process.filesystem.write);
    let plain = |path: PathBuf| {
        path.iter().take_while(|part| !part.to_string_lossy().contains(['*', '?', '['])).collect()
    };
    written.map(|rule| plain(agentsh_policy::place::resolve(&rule.value, paths))).collect()
}

/// The share of memory left to the machine: one part in this many.
const RESERVED_MEMORY_DIVISOR: u64 = 10;

/// The memory limit of all sandboxes together.
fn most_memory() -> u64 {
    agentsh_base::memory::total()
        .map_or(u64::MAX >> 1, |bytes| bytes / RESERVED_MEMORY_DIVISOR * (RESERVED_MEMORY_DIVISOR - 1))
}

/// How to open a session.
#[derive(Default)]
pub struct SessionOptions<'a> {
    pub verb: &'a str,
    pub command: &'a [String],
    /// The adapter's name, which selects the built-in policy.
    pub agent: &'a str,
    pub policy: Option<String>,
    /// The command line's flags.
    pub flags: agentsh_policy::Flags,
    pub allow_degraded: bool,
    pub backend: agentsh_host::Backend,
    pub project_shown: bool,
    /// Hold messages until the end, because the program uses this terminal.
    pub hold_messages: bool,
    /// Write events from before the start in one go.
    pub gathers_events: bool,
    /// Allow hosts without a rule, to generate a policy.
    pub learns: bool,
    /// Review mode.
    pub is_reviewed: bool,
    /// Report missing files.
    pub tells_files: bool,
}

impl SessionState {
    fn new(facts: &Facts, network: network::Network, registered: Registered, teardown: Teardown) -> Self {
        let servers = KnownServers {
            pins: Arc::new(PinStore::new(&facts.context.state)),
            interfaces: interface_pins::InterfacePins::new(&facts.policy.mcp.pinning),
            registered,
            starts_unpinned: Cell::default(),
            labels: Rc::default(),
            unready: RefCell::default(),
            advised: RefCell::default(),
        };
        Self {
            servers,
            network,
            teardown,
            agent: AgentSandbox::default(),
            refusals: Refusals::default(),
            people: People::default(),
            fetched: fetch::Fetched::default(),
            sandboxes: Cell::new(0),
        }
    }
}

/// A session that learns must not widen what an organisation locks.
fn refuse_to_learn_what_is_locked(policy: &Policy) -> Result<(), SessionError> {
    match ["agent.network", "sandbox.mcp.servers"].into_iter().find(|path| policy.is_locked(path)) {
        None => Ok(()),
        Some(path) => Err(SessionError::Policy(format!(
            "--learn: `{path}` is locked by your organisation's policy, and learning would widen it"
        ))),
    }
}

impl Session {
    /// Reads the policy and opens the store. Starts nothing.
    ///
    /// # Errors
    /// An invalid policy or store: nothing runs without a record.
    pub async fn open(mut context: Context, opening: SessionOptions<'_>) -> Result<Self, SessionError> {
        let search = search(&context, opening.policy, opening.agent, opening.flags);
        let flags = search.flags.clone();
        let (bounded, bound) =
            context.hierarchies.create_bounded(&format!("agentsh-{}", std::process::id()), most_memory());
        let found = std::mem::replace(&mut context.hierarchies, bounded);
        // All concurrently: eBPF programs, policy, zygote (the first order shows whether it started) and store. The
        // programs need cgroups, which a container rarely has.
        let backend = match context.tier {
            Tier::Namespaces => opening.backend,
            Tier::Container => agentsh_host::Backend::Userns,
        };
        let network = network::Network::new(backend, &context.hierarchies);
        // Before there is a third thread, because this one waits for the exec.
        let _ = context.zygote.warm_up();
        let id = SessionId(random::uuid().map_err(SessionError::Random)?);
        // The journal first: its thread works while the policy is read.
        let reading = async { load_policy(&search) };
        let (journal, policy) = tokio::join!(biased; Journal::open(&context.state, id), reading);
        let policy = policy?;
        context.set_writable(writable(&policy, &context.paths()));
        let journal = journal?;
        if opening.gathers_events {
            journal.start_collecting();
        }
        if opening.learns {
            refuse_to_learn_what_is_locked(&policy)?;
        }
        let registered = Registered::new(&policy.interface, &context.env, &context.state)
            .map_err(|error| SessionError::Policy(error.to_string()))?;
        // The directory must exist to be masked; otherwise an agent that may write `~/.config` could write the next
        // policy. If we cannot create it, neither can the agent.
        let own = context.config.join("agentsh");
        if !own.is_dir() {
            let _ = std::fs::create_dir_all(own);
        }
        // Only displays depend on it.
        let mark = running::RunningMark::set(&context.state, id).ok();
        let network_programs = network.programs();
        let facts = Facts {
            id,
            head: git_head::head(&context.project),
            context,
            policy,
            allow_degraded: opening.allow_degraded,
            learns: opening.learns,
            backend: opening.backend,
            project_shown: opening.project_shown,
            is_reviewed: opening.is_reviewed,
            tells_files: opening.tells_files,
            started: Instant::now(),
        };
        let record =
            Record::new(journal, opening.hold_messages && paragraph::is_terminal(&std::io::stderr()));
        let live = SessionState::new(&facts, network, registered, Teardown::new(mark, bound));
        let session = Self { facts: Rc::new(facts), record: Rc::new(record), live };
        session.begin(opening.verb, opening.command, &flags, network_programs)?;
        let _busy_ones_are_left_to_a_later_run = agentsh_sandbox::cgroup::remove_abandoned(&found);
        Ok(session)
    }

    /// The commands that would allow what was refused, with the `most` most frequent words each.
    #[must_use]
    pub fn wanted_lines(&self, most: usize) -> Vec<String> {
        let file = self.facts.context.config.join("agentsh/policy.yaml");
        self.live.refusals.suggested.lines(most, &file.display().to_string())
    }

    /// Narrows the policy before others share it.
    ///
    /// # Errors
    /// When it is shared already.
    pub fn narrow(&mut self, change: impl FnOnce(&mut Policy)) -> Result<(), SessionError> {
        let facts = Rc::get_mut(&mut self.facts);
        let facts = facts.ok_or_else(|| SessionError::Policy("the policy is in use already".to_owned()))?;
        change(&mut facts.policy);
        Ok(())
    }

    /// The context that logins need.
    #[must_use]
    pub fn for_logins(&self) -> LoginSession {
        let Self { facts, record, live } = self;
        LoginSession {
            facts: Rc::clone(facts),
            record: Rc::clone(record),
            logins: Rc::clone(&live.people.logins),
        }
    }

    /// Closes descriptors without waiting.
    pub fn close_in_background(&self, descriptors: Vec<std::os::fd::OwnedFd>) {
        self.facts.context.zygote.close(descriptors);
    }

    /// The cgroup name of the next sandbox: `agentsh-PID-N`, by which a later run recognises orphans.
    #[must_use]
    pub fn next_cgroup(&self) -> String {
        let number = self.live.sandboxes.get();
        self.live.sandboxes.set(number + 1);
        format!("agentsh-{}-{number}", std::process::id())
    }

    /// Saves servers' interfaces.
    pub async fn keep_interfaces(&self) {
        self.live.servers.interfaces.keep(&self.live.servers.pins, |why| self.record.note(why)).await;
    }
}

/// Directory for the session's sockets: short (a socket path has at most 107 bytes), mode 0700.
///
/// # Errors
/// When it cannot be created.
pub fn socket_directory(context: &Context, id: SessionId) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let base = context.runtime_directory();
    let directory = base.join(format!("s-{}", &id.0.simple().to_string()[16..]));
    let private = || std::fs::Permissions::from_mode(0o700);
    let make = || std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    // Regardless of the umask.
    make().or_else(|_| std::fs::set_permissions(base, private()).and_then(|()| make()))?;
    std::fs::set_permissions(&directory, private())?;
    Ok(directory)
}

/// Removes the directory of [`socket_directory`] when dropped.
pub struct RemoveOnDrop(pub PathBuf);

impl RemoveOnDrop {
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // Usually its only file.
        let _ = std::fs::remove_file(self.0.join(bridges::SOCKET));
        if std::fs::remove_dir(&self.0).is_err() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

impl agentsh_guards::GuardSession for Session {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn record(&self) -> &Record {
        &self.record
    }

    fn ask(&self, server: Option<&ServerId>, question: &Question) -> Answer {
        why::ask(&self.facts, self.live.agent.spec.get(), server, question)
    }

    fn changes(&self, server: Option<&ServerId>, pid: u32, path: &Path, effect: FileEffect) {
        missing_files::hear_change(self, server, pid, path, effect);
    }

    fn suggest(&self, change: &str) {
        self.live.refusals.suggested.add(&self.facts, change);
    }

    fn note_unfinished(&self) {
        self.live.teardown.remains.set(true);
    }
}
