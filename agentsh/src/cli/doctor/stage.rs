//! The throw-away sandboxes: what they are given, and starting them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::cli::{attempt, scratch};
use crate::session::probe::{self, Probe, ProbeError, Probed};
use crate::session::{Context, RemoveOnDrop};
use agentsh_base::types::RuleRef;
use agentsh_policy::{Limits, Ruled};
use agentsh_sandbox::layout::{PinnedBytes, PinnedFile};
use agentsh_sandbox::mount_calls::file_key;
use agentsh_sandbox::sealed;

use super::judge::Host;
use super::probe::{CPU_PERCENT, Facts, MEMORY_LIMIT, NAMESPACES, PIDS_LIMIT};

const HOOK: &str = "#!/bin/sh\n";
const PINNED: &str = "the bytes that were checked\n";
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

/// The host's side of the attempts. Dropping it removes every trace.
pub struct Stage {
    pub facts: Facts,
    directory: RemoveOnDrop,
    loopback: TcpListener,
    local: UnixListener,
    queue: Option<libc::c_long>,
}

impl Stage {
    /// # Errors
    /// When there is no place for temporary files, or no listener can be opened.
    pub fn set() -> io::Result<Self> {
        let directory = scratch::make("doctor")?;
        let place = directory.path();
        scratch::plant(place, "home/.ssh/id_doctor", "no key\n")?;
        scratch::plant(place, "project/.git/hooks/pre-commit", HOOK)?;
        scratch::plant(place, "project/.git/config", "")?;
        scratch::plant(place, "closed/there", "x")?;
        let outside = scratch::plant(place, "outside", "nobody granted this\n")?;
        let pinned = scratch::plant(place, "pinned", PINNED)?;
        let loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        loopback.set_nonblocking(true)?;
        let unique = uuid::Uuid::now_v7().simple().to_string();
        let abstract_name = format!("agentsh-doctor-{unique}");
        let local = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        local.set_nonblocking(true)?;
        // Any key will do; a number that is in use already makes the attempt inside no less true.
        let key = i32::from_str_radix(&unique[24..31], 16).unwrap_or(1).max(1);
        let queue = attempt::message_queue(key, true).ok();
        let facts = Facts {
            pid: std::process::id().cast_signed(),
            port: loopback.local_addr()?.port(),
            abstract_name,
            queue: key,
            home: place.join("home"),
            project: place.join("project"),
            outside,
            pinned,
        };
        Ok(Self { facts, directory, loopback, local, queue })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The sandbox that most rows are about.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn ordinary(&self, context: &Context) -> Result<Probed, ProbeError> {
        let sealed = sealed::seal(File::open(&self.facts.pinned)?.as_fd(), PINNED.len() as u64)?;
        // Too late: the sandbox must show the bytes that were checked.
        attempt::append(&self.facts.pinned, "and more\n").map_err(io::Error::from)?;
        let bytes = PinnedBytes::Copied { from: 0 };
        let file = PinnedFile { path: self.facts.pinned.clone(), bytes, executable: false };
        let probe = Probe {
            name: "doctor".to_owned(),
            arguments: arguments(&self.facts, &ORDINARY),
            pinned: vec![file],
            descriptors: vec![sealed.memory],
            landlock_only: Some(self.directory().join("closed")),
            ..Probe::default()
        };
        probe::run(context, probe).await
    }

    /// One sandbox per limit, so that none hides another.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn limited(&self, context: &Context, name: &str) -> Result<Probed, ProbeError> {
        let ruled = |value| Some(Ruled { value, rule: RuleRef::default_rule("doctor") });
        let limits = match name {
            "memory" => Limits { memory: ruled(MEMORY_LIMIT), ..Limits::default() },
            "pids" => Limits { pids: ruled(PIDS_LIMIT), ..Limits::default() },
            _ => Limits { cpu_percent: ruled(CPU_PERCENT), ..Limits::default() },
        };
        let arguments = arguments(&self.facts, &[name]);
        probe::run(context, Probe { name: name.to_owned(), arguments, limits, ..Probe::default() }).await
    }

    /// Starts with a bound file that changes between check and start; None when that worked.
    ///
    /// # Errors
    /// When the attempt itself cannot be made.
    pub async fn tampered(&self, context: &Context) -> io::Result<Option<String>> {
        let name = "tampered";
        let path = scratch::plant(self.directory(), name, PINNED)?;
        let bytes = PinnedBytes::InPlace(file_key(File::open(&path)?.as_fd())?);
        let file = PinnedFile { path: path.clone(), bytes, executable: false };
        // Into the same file: a new one under the same name would not even be the checked one.
        attempt::append(&path, "and more\n")?;
        let probe = Probe {
            name: name.to_owned(),
            arguments: arguments(&self.facts, &[]),
            pinned: vec![file],
            ..Probe::default()
        };
        Ok(probe::run(context, probe).await.err().map(|error| error.to_string()))
    }

    /// What can be seen from outside after the attempts.
    #[must_use]
    pub fn look(&self) -> Host {
        let link = |name: &&str| {
            let link = std::fs::read_link(Path::new("/proc/self/ns").join(name)).unwrap_or_default();
            ((*name).to_owned(), link.display().to_string())
        };
        let mut reached = 0;
        while self.loopback.accept().is_ok() || self.local.accept().is_ok() {
            reached += 1;
        }
        let hook = std::fs::read_to_string(self.facts.project.join(".git/hooks/pre-commit"));
        Host {
            namespaces: NAMESPACES.iter().map(link).collect::<BTreeMap<_, _>>(),
            uid: rustix::process::geteuid().as_raw(),
            made_by: std::fs::metadata(self.facts.project.join("owned")).ok().map(|found| found.uid()),
            reached,
            hook_unchanged: hook.is_ok_and(|text| text == HOOK),
            pinned_text: PINNED.to_owned(),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(queue) = self.queue {
            // It is ours; there is nothing to be done about a failure.
            let _ = attempt::remove_message_queue(queue);
        }
    }
}

/// The host as every run sees it, but with a home and a project of our own.
///
/// # Errors
/// When there is no home, or agentsh's own executable cannot be found.
pub fn context(directory: &Path) -> Result<Context, crate::session::ContextError> {
    let (mut context, _) = Context::find_for_server()?;
    context.home = directory.join("home");
    context.project = directory.join("project");
    context.directory.clone_from(&context.project);
    Ok(context)
}

/// The command line of the inside.
#[must_use]
pub fn arguments(facts: &Facts, names: &[&str]) -> Vec<String> {
    let facts = serde_json::to_string(facts).unwrap_or_default();
    [super::PROBE_VERB.to_owned(), facts]
        .into_iter()
        .chain(names.iter().map(|name| (*name).to_owned()))
        .collect()
}
