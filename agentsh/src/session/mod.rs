//! One run: opens everything, owns everything, closes everything.

pub mod advisories;
mod answering;
pub mod bridges;
mod briefing;
#[cfg(test)]
mod circles_tests;
mod classifying;
mod configured;
pub mod declared;
mod draining;
mod either;
pub mod fetch;
mod first_index;
pub mod fleet;
pub mod gateway;
pub mod given;
mod head;
mod interface;
pub mod inventory;
pub mod launch;
mod listeners;
pub mod login;
pub mod mcp_run;
mod missing_files;
pub mod network;
pub mod pinning;
pub mod pipes;
mod places;
#[cfg(test)]
mod plan_tests;
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
pub mod specify;
pub mod standard;
mod suspend;
mod telemetry;
mod trees;
pub mod trust;
mod unknown;
pub mod wanted;
mod why;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use agentsh_base::remedy::{self, Allow};
use agentsh_base::types::{ServerId, SessionId};
use agentsh_dlp::flow::labels::Labels;
use agentsh_policy::{Answer, PathContext, Policy, Question, Search};
use agentsh_sandbox::Tier;
use agentsh_sandbox::cgroup::SessionGroups;
use agentsh_sandbox::spec::SandboxSpec;
use agentsh_store::pins::PinStore;
use agentsh_store::words::{BundleState, LayerState};
use agentsh_store::{Event, Journal, PolicyLayer, StoreError, running};

use agentsh_broker::logins::{self, LoginSession};
use agentsh_content::{content, content_scan, interface_pins};
pub use agentsh_host::{Context, ContextError};
use agentsh_host::{
    Facts, Record, address, agreements, context, copies, environment, git_identity, go_modules, grants,
    host_programs, installed, layer, project_sources, publish, remotes, repositories, user_git,
};
use agentsh_verifier::Registered;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error("{0}")]
    Policy(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where the policy of a session is looked for.
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
        // The first line gets its `error: ` where it is printed.
        let text = error.render();
        SessionError::Policy(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
    })
}

/// What every part of a run shares: what is settled, what is written down, and what changes.
pub struct Session {
    pub facts: Rc<Facts>,
    pub record: Rc<Record>,
    pub live: Live,
}

/// What changes while a session lives. Each field is changed by the module that its type is of.
pub struct Live {
    pub pins: Arc<PinStore>,
    /// What servers offered when they were trusted.
    pub interfaces: interface_pins::InterfacePins,
    /// What a registry says of them.
    pub registered: Registered,
    pub network: network::Network,
    /// What is known of each server that was started, for data: see [`agentsh_dlp::flow::labels`].
    pub labels: Rc<RefCell<BTreeMap<ServerId, Labels>>>,
    /// More than one sandbox: what they share of the host is not a place for sockets.
    pub neighbours: Cell<bool>,
    /// Servers that could not be pinned before the agent started, and why.
    unready: RefCell<BTreeMap<ServerId, String>>,
    /// What the agent's sandbox is made of; set when it is started.
    agent_spec: OnceCell<SandboxSpec>,
    /// The project is a layer, and this is how others get to it; set when the agent is started.
    pub layered: OnceCell<agentsh_sandbox::mend::Namespaces>,
    /// What the user was told about logins.
    pub logins: Rc<logins::Logins>,
    /// Where a person answers, for clients that open addresses; `{id}` is the question.
    pub approvals_page: Rc<OnceCell<String>>,
    /// What results of a server carry of what others warn about it, as JSON.
    pub advised: RefCell<BTreeMap<ServerId, Rc<str>>>,
    /// What would have to be allowed.
    pub wanted: wanted::SuggestedRules,
    /// Files that Landlock refused.
    pub refused_files: refused_files::Files,
    /// System calls that no policy allows.
    pub refused_calls: refused_calls::Calls,
    /// Which agents of the user's own listen on this machine.
    pub listeners: listeners::Listeners,
    /// While it learns.
    pub looked_for: RefCell<missing_files::LookedFor>,
    /// What `agentsh why` was asked and denied.
    pub whys: RefCell<BTreeSet<(String, String)>>,
    fetched: fetch::Fetched,
    /// What ends with the session.
    ending: SessionTeardown,
}

/// What [`Session::close`] stops, waits for or takes away.
struct SessionTeardown {
    /// Tells others that the session runs; None where that cannot be told.
    _mark: Option<running::RunningMark>,
    sentinel: RefCell<Option<sentinel::Sentinel>>,
    /// Tells others what is recorded.
    telemetry: RefCell<Option<agentsh_telemetry::subscriber::Subscriber>>,
    sandboxes: Cell<u32>,
    /// What programs left behind, on its way out.
    cleaning: RefCell<Vec<tokio::task::JoinHandle<()>>>,
    /// The limit on the memory of all sandboxes together.
    bound: RefCell<SessionGroups>,
}

/// What sandboxes may write by their policy, up to the first pattern.
fn writable(policy: &Policy, paths: &PathContext) -> Vec<PathBuf> {
    let of_servers = policy.mcp.servers.values().map(|server| &server.process);
    let written = of_servers.chain([&policy.agent]).flat_map(|process| &process.filesystem.write);
    let plain = |path: PathBuf| {
        path.iter().take_while(|part| !part.to_string_lossy().contains(['*', '?', '['])).collect()
    };
    written.map(|rule| plain(agentsh_policy::place::resolve(&rule.value, paths))).collect()
}

/// Left to the rest of the machine, of its memory: one part in this many.
const PART_FOR_OTHERS: u64 = 10;

/// What all sandboxes of a session may hold together.
fn most_memory() -> u64 {
    agentsh_base::memory::total()
        .map_or(u64::MAX >> 1, |bytes| bytes / PART_FOR_OTHERS * (PART_FOR_OTHERS - 1))
}

/// How a session is opened.
#[derive(Default)]
pub struct SessionOptions<'a> {
    pub verb: &'a str,
    pub command: &'a [String],
    /// Name of the adapter, which decides the built-in policy.
    pub agent: &'a str,
    pub policy: Option<String>,
    /// What the command line adds to it.
    pub flags: agentsh_policy::Flags,
    pub allow_degraded: bool,
    pub backend: agentsh_host::Backend,
    pub project_shown: bool,
    /// Messages wait for the end: the program draws on this terminal.
    pub hold_messages: bool,
    /// What is recorded before the program starts is written at once.
    pub gathers_events: bool,
    /// Hosts that no rule names are reached, to write down what was needed.
    pub learns: bool,
    /// What is written to the project is looked at afterwards.
    pub is_reviewed: bool,
    /// Files that programs look for and that are not there inside are told.
    pub tells_files: bool,
}

impl Session {
    /// Reads the policy and opens the store. Starts nothing.
    ///
    /// # Errors
    /// An unusable policy or store: nothing runs without a record.
    pub async fn open(mut context: Context, opening: SessionOptions<'_>) -> Result<Self, SessionError> {
        let search = search(&context, opening.policy, opening.agent, opening.flags);
        let flags = search.flags.clone();
        let (bounded, bound) =
            context.hierarchies.bounded(&format!("agentsh-{}", std::process::id()), most_memory());
        let found = std::mem::replace(&mut context.hierarchies, bounded);
        // All of it at once: programs for the kernel, the policy, the process that sandboxes are born from (whether it
        // started shows when the first one is ordered), and the store.
        // The kernel's programs know sandboxes by their control group, which a container rarely gives.
        let backend = match context.tier {
            Tier::Namespaces => opening.backend,
            Tier::Container => agentsh_host::Backend::Userns,
        };
        let network = network::Network::new(backend, &context.hierarchies);
        // Before there is a third thread: until the process is executed, this one waits.
        let _ = context.zygote.warm_up();
        let id = SessionId(uuid::Uuid::now_v7());
        // The journal first: it has a thread, which works while the policy is read.
        let reading = async { load_policy(&search) };
        let (journal, policy) = tokio::join!(biased; Journal::open(&context.state, id), reading);
        let policy = policy?;
        context.set_writable(writable(&policy, &context.paths()));
        let journal = journal?;
        if opening.gathers_events {
            journal.gather();
        }
        let locked = ["agent.network", "sandbox.mcp.servers"].into_iter().find(|path| policy.is_locked(path));
        if let Some(path) = locked.filter(|_| opening.learns) {
            let why = format!(
                "--learn: `{path}` is locked by your organisation's policy, and learning would widen it"
            );
            return Err(SessionError::Policy(why));
        }
        let registered = Registered::new(&policy.interface, &context.env, &context.state)
            .map_err(|error| SessionError::Policy(error.to_string()))?;
        // Something must stand here for the sandbox to cover: else an agent that may write in `~/.config` writes the next
        // run's policy. Where we may not make it, it cannot either.
        let own = context.config.join("agentsh");
        if !own.is_dir() {
            let _ = std::fs::create_dir_all(own);
        }
        let pins = Arc::new(PinStore::new(&context.state));
        // Nothing but what is shown to people depends on it.
        let mark = running::RunningMark::set(&context.state, id).ok();
        let network_programs = network.programs();
        let facts = Facts {
            id,
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
        let record = Record::new(journal, opening.hold_messages && std::io::stderr().is_terminal());
        let live = Live {
            pins,
            interfaces: interface_pins::InterfacePins::new(&facts.policy.mcp.pinning),
            registered,
            network,
            labels: Rc::default(),
            neighbours: Cell::new(false),
            unready: RefCell::default(),
            agent_spec: OnceCell::new(),
            layered: OnceCell::new(),
            logins: Rc::default(),
            approvals_page: Rc::default(),
            advised: RefCell::default(),
            wanted: wanted::SuggestedRules::default(),
            refused_files: refused_files::Files::default(),
            refused_calls: refused_calls::Calls::default(),
            listeners: listeners::Listeners::default(),
            looked_for: RefCell::default(),
            whys: RefCell::default(),
            fetched: fetch::Fetched::default(),
            ending: SessionTeardown {
                _mark: mark,
                sentinel: RefCell::default(),
                telemetry: RefCell::default(),
                sandboxes: Cell::new(0),
                cleaning: RefCell::default(),
                bound: RefCell::new(bound),
            },
        };
        let session = Self { facts: Rc::new(facts), record: Rc::new(record), live };
        // Before the first event: nobody hears what was recorded before.
        let telemetry =
            telemetry::start(&session.facts, &session.record, || session.record.journal.subscribe());
        session.live.ending.telemetry.replace(telemetry);
        session.record.journal.record(Event::SessionStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            verb: opening.verb.to_owned(),
            agent: opening.command.to_vec(),
            project: session.facts.context.directory.display().to_string(),
            policy: session.facts.policy.source.clone(),
            kernel: kernel(),
            uid: rustix::process::getuid().as_raw(),
            network_programs,
            policy_layers: session.facts.policy.layers.iter().map(hashed).collect(),
            head: head::head(&session.facts.context.project),
        });
        if let Some(why) = fleet::start(&session.facts.context.state) {
            session.record.note(&format!("fleet: nothing is forwarded: {why}"));
        }
        agentsh_guards::finish_all(&session.facts.context.state)
            .iter()
            .for_each(|line| session.record.note(line));
        session.record.enforcement(None, &session.facts.context.notes);
        session.report_policy(opening.verb);
        session.report_flags(&flags);
        let sentinel = sentinel::Sentinel::start(
            session.record.journal.clone(),
            session.facts.policy.mcp.max_line_bytes,
        );
        let sentinel = sentinel.map_err(|error| {
            SessionError::Policy(format!("cannot watch over the session: no thread for it: {error}"))
        })?;
        session.live.ending.sentinel.replace(Some(sentinel));
        let _busy_ones_are_left_to_a_later_run = agentsh_sandbox::cgroup::sweep(&found);
        Ok(session)
    }

    /// What the policy says and this version cannot hold, and what its author probably did not mean.
    fn report_policy(&self, verb: &str) {
        if let Some(found) = &self.facts.policy.organisation {
            let (state, detail) = match &found.refused {
                Some(why) => (BundleState::Refused, format!("a newer one was refused: {why}")),
                None if found.is_expired => (
                    BundleState::Expired,
                    format!("its time was over at {}; it stays in force", found.expires),
                ),
                None => (BundleState::InForce, String::new()),
            };
            if state != BundleState::InForce {
                let version = found.version;
                self.record.note(&format!(
                    "policy of the organisation '{}', version {version}: {detail}",
                    found.name
                ));
            }
            let (name, version) = (found.name.clone(), Some(found.version));
            self.record.journal.record(Event::PolicyBundle { name, version, state, detail });
        }
        for warning in &self.facts.policy.warnings {
            self.record.note(&format!("{}: {}", warning.rule, warning.value));
        }
        let mcp = &self.facts.policy.mcp;
        let about_clients =
            mcp.rules.iter().filter(|rule| verb != "gateway" && gateway::is_about_client(&rule.value));
        let only_there = "only `agentsh gateway` knows the network and the headers of a client";
        let unheld = mcp.not_enforced.iter().map(|rule| (rule, agentsh_policy::NO_ENGINE));
        for (rule, why) in unheld.chain(about_clients.map(|rule| (&rule.rule, only_there))) {
            self.record.journal.record(Event::Enforcement {
                server_id: None,
                layer: rule.id.clone(),
                asked: format!("as written in {rule}"),
                got: "nothing".to_owned(),
                state: LayerState::Absent,
                why: why.to_owned(),
            });
        }
    }

    /// What would allow what was refused: `most` words of each command, those that were refused most often.
    #[must_use]
    pub fn wanted_lines(&self, most: usize) -> Vec<String> {
        let file = self.facts.context.config.join("agentsh/policy.yaml");
        self.live.wanted.lines(most, &file.display().to_string())
    }

    /// What would make last what the command line adds.
    fn report_flags(&self, flags: &agentsh_policy::Flags) {
        let server = flags.server.as_ref().map(|id| id.0.clone());
        let read = flags.read.iter().map(|path| remedy::path(path));
        let words = flags.allow.iter().cloned().chain(read).collect();
        let written = flags.write.iter().map(|path| remedy::path(path)).collect();
        let allow = Allow { server: server.clone(), words, env: flags.env.clone(), ..Allow::default() };
        let write = Allow { server, words: written, write: true, ..Allow::default() };
        let denied =
            agentsh_policy::Flags { deny_tool: flags.deny_tool.clone(), ..agentsh_policy::Flags::default() };
        let denied = denied.text().unwrap_or_default();
        let file = self.facts.context.config.join("agentsh/policy.yaml");
        let commands = [allow, write].into_iter().filter_map(|allow| Some(format!("`{}`", allow.line()?)));
        let denied = denied.lines().map(|line| format!("add to {}: {line}", file.display()));
        for how in commands.chain(denied) {
            self.record.note(&format!("for this start alone; to make it last: {how}"));
        }
    }

    /// Narrows the policy before anything else knows it.
    ///
    /// # Errors
    /// When something else knows it already.
    pub fn narrow(&mut self, change: impl FnOnce(&mut Policy)) -> Result<(), SessionError> {
        let facts = Rc::get_mut(&mut self.facts);
        let facts = facts.ok_or_else(|| SessionError::Policy("the policy is in use already".to_owned()))?;
        change(&mut facts.policy);
        Ok(())
    }

    /// What logins need of it.
    #[must_use]
    pub fn for_logins(&self) -> LoginSession {
        let Self { facts, record, live } = self;
        LoginSession { facts: Rc::clone(facts), record: Rc::clone(record), logins: Rc::clone(&live.logins) }
    }

    /// Closes what the kernel waits for, without a wait.
    pub fn close_elsewhere(&self, descriptors: Vec<std::os::fd::OwnedFd>) {
        self.facts.context.zygote.closer().close(descriptors);
    }

    /// Drops what a program leaves behind, off this thread; [`Self::close`] waits for it.
    pub fn clean_up(&self, leftovers: impl Send + 'static) {
        self.live.ending.cleaning.borrow_mut().push(tokio::task::spawn_blocking(move || drop(leftovers)));
    }

    /// Writes down what servers offered.
    pub async fn keep_interfaces(&self) {
        self.live.interfaces.keep(&self.live.pins, |why| self.record.note(why)).await;
    }

    /// Ends the record. The exit code is the one that the verb gives back.
    pub async fn close(&self, exit_code: u8) -> Result<(), StoreError> {
        self.live.ending.sentinel.take();
        if self.live.interfaces.ask_no_more() {
            // So that they are gone before the record ends.
            tokio::task::yield_now().await;
        }
        self.live.network.close().await;
        self.keep_interfaces().await;
        let duration_ms = u64::try_from(self.facts.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.record.journal.record(Event::SessionEnded {
            exit_code,
            duration_ms,
            head: head::head(&self.facts.context.project),
        });
        if let Some(policed) = self.live.network.let_go() {
            self.clean_up(policed);
        }
        if let Some(telemetry) = self.live.ending.telemetry.take() {
            // Without the disk nobody is told; the end of the journal says so.
            let _ = self.record.journal.flush().await;
            for note in telemetry.finish().await {
                self.record.announce(&format!("telemetry: {}", agentsh_store::escape::line(&note)));
            }
        }
        let ((), closed) = tokio::join!(self.live.pins.close(), self.record.journal.close());
        for work in self.live.ending.cleaning.take() {
            // It has no result; a panic was told where it happened.
            let _ = work.await;
        }
        self.live.ending.bound.borrow_mut().lift();
        closed
    }

    /// A name for the cgroups of the next sandbox: `agentsh-PID-N`, which a later run can tell to be orphaned.
    #[must_use]
    pub fn next_cgroup(&self) -> String {
        let number = self.live.ending.sandboxes.get();
        self.live.ending.sandboxes.set(number + 1);
        format!("agentsh-{}-{number}", std::process::id())
    }
}

fn hashed((file, layer): (&String, &agentsh_policy::WrittenLayer)) -> PolicyLayer {
    PolicyLayer { file: file.clone(), hash: layer.hash.clone() }
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

/// One line to standard error; a closed one is nobody's fault here.
/// Where sockets of a session live: short, since a socket's path has room for 107 bytes, and for the user alone.
///
/// # Errors
/// When the directory cannot be made.
pub fn socket_directory(context: &Context, id: SessionId) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let base = context
        .env
        .get("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_dir())
        .unwrap_or_else(|| context.state.clone());
    let directory = base.join(format!("s-{}", &id.0.simple().to_string()[16..]));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    // Whatever the umask is.
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
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
        // What is in one as a rule.
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
        why::ask(self, server, question)
    }

    fn suggest(&self, change: &str) {
        self.live.wanted.add(&self.facts, change);
    }
}
