//! Finds, opens and hashes the files of a command, on another thread.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use agentsh_base::paragraph;
use agentsh_base::types::FileKey;
use agentsh_pin::{PinError, Resolved};
use agentsh_sandbox::layout::{PinnedBytes, PinnedFile};
use agentsh_sandbox::mount_calls::file_key;
use agentsh_sandbox::sealed;
use agentsh_store::pins::PinStore;

use super::Session;

/// Larger files are bound instead of copied to memory.
const MAX_COPIED_BYTES: u64 = 16 << 20;

/// A pinned program.
pub struct Pinned {
    pub resolved: Resolved,
    pub files: Vec<PinnedFile>,
    pub descriptors: Vec<OwnedFd>,
}

/// The agent's or a server's command.
#[derive(Clone, Debug)]
pub struct Command {
    pub program: String,
    pub args: Vec<String>,
    pub cwd: PathBuf,
    pub env: BTreeMap<String, String>,
    /// See [`agentsh_pin::Request::not_below`].
    pub not_below: Option<PathBuf>,
}

/// Finds, opens and hashes a command's files on another thread.
///
/// # Errors
/// Those of `pin`.
pub async fn resolve(
    session: &Session,
    command: Command,
    store: Option<agentsh_pin::Store>,
) -> Result<Pinned, PinError> {
    let (home, project) = (session.facts.context.home.clone(), session.facts.context.project.clone());
    let state = session.facts.context.state.clone();
    let mut cache = Cache::new(session);
    let path = OsString::from(command.env.get("PATH").cloned().unwrap_or_default());
    let place = match paragraph::is_terminal(&std::io::stderr()) {
        false => ProgressOutput::Nowhere,
        true if session.record.agent_draws() => ProgressOutput::Beside,
        true => ProgressOutput::Line,
    };
    let (resolved, cache) = tokio::task::spawn_blocking(move || {
        let request = agentsh_pin::Request {
            program: &command.program,
            args: &command.args,
            cwd: &command.cwd,
            path_env: &path,
            home: &home,
            project: &project,
            env: &command.env,
            accept_missing_package: false,
            not_below: command.not_below.as_deref(),
            hidden: Some(&state),
            store: store.as_ref(),
        };
        let mut progress = Progress::new(place);
        let resolved = agentsh_pin::resolve(&request, &mut cache, &mut |step| progress.show(&step));
        progress.clear();
        (resolved.and_then(pin_resolved), cache)
    })
    .await
    .map_err(|error| PinError::internal(&error.to_string()))?;
    cache.save().await;
    resolved
}

fn pin_resolved(resolved: Resolved) -> Result<Pinned, PinError> {
    let (mut files, mut descriptors) = (Vec::new(), Vec::new());
    for file in &resolved.files {
        let bytes = if file.system_owned || file.size > MAX_COPIED_BYTES {
            PinnedBytes::InPlace(
                file_key(file.file.as_fd()).map_err(|error| PinError::internal(&error.to_string()))?,
            )
        } else {
            let sealed = sealed::seal(file.file.as_fd(), file.size);
            let sealed = sealed.map_err(|error| PinError::io(&file.path, error))?;
            if sealed.sha256 != file.sha256 {
                return Err(PinError::ChangedSince { path: file.path.clone() });
            }
            descriptors.push(sealed.memory);
            PinnedBytes::Copied { from: descriptors.len() - 1 }
        };
        let executable = file.role != agentsh_pin::Role::Entry;
        files.push(PinnedFile { path: file.path.clone(), bytes, executable });
    }
    Ok(Pinned { resolved, files, descriptors })
}

/// A shell's exit status for such a command; None if the command is not at fault.
#[must_use]
pub fn shell_status(error: &PinError) -> Option<u8> {
    if error.is_missing() {
        Some(127)
    } else if error.is_not_executable() {
        Some(126)
    } else {
        None
    }
}

/// Cached hashes of unchanged files. The first small files are hashed without a lookup, the next ones are looked up
/// singly, then the whole cache is loaded.
struct Cache {
    store: Arc<PinStore>,
    runtime: tokio::runtime::Handle,
    /// Remaining bytes to hash without a lookup, and those files.
    unasked_bytes: u64,
    unasked: BTreeSet<FileKey>,
    asked: usize,
    all: Option<BTreeMap<FileKey, [u8; 32]>>,
    fresh: Vec<(FileKey, [u8; 32])>,
}

/// Loading everything costs as much as this many lookups.
const SINGLE_QUESTIONS: usize = 24;

/// Hashing this much takes as long as opening the database.
const UNASKED_BYTES: u64 = 1 << 20;

impl Cache {
    fn new(session: &Session) -> Self {
        let (store, runtime) = (Arc::clone(&session.live.servers.pins), tokio::runtime::Handle::current());
        let unasked = BTreeSet::new();
        Self { store, runtime, unasked_bytes: UNASKED_BYTES, unasked, asked: 0, all: None, fresh: Vec::new() }
    }

    async fn save(&self) {
        if !self.fresh.is_empty() {
            // Without the cache everything is hashed again.
            let _ = self.store.keep_digests(&self.fresh).await;
        }
    }
}

impl agentsh_pin::DigestCache for Cache {
    fn lookup(&mut self, key: &FileKey) -> Option<[u8; 32]> {
        if let Some(all) = &self.all {
            return all.get(key).copied();
        }
        if let Some(left) = self.unasked_bytes.checked_sub(key.size) {
            self.unasked_bytes = left;
            self.unasked.insert(*key);
            return None;
        }
        self.asked += 1;
        if self.asked > SINGLE_QUESTIONS {
            let all = self.runtime.block_on(self.store.all_digests()).unwrap_or_default();
            return self.all.insert(all).get(key).copied();
        }
        self.runtime.block_on(self.store.digests(&[*key])).unwrap_or_default().get(key).copied()
    }

    fn store(&mut self, key: FileKey, digest: [u8; 32]) {
        if !self.unasked.contains(&key) {
            self.fresh.push((key, digest));
        }
    }
}

/// Reports hashing that takes longer than a second.
struct Progress {
    started: std::time::Instant,
    shown: bool,
    place: ProgressOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressOutput {
    Nowhere,
    /// A line of the terminal, rewritten.
    Line,
    /// The agent uses the terminal: a title or notification, once.
    Beside,
}

impl Progress {
    fn new(place: ProgressOutput) -> Self {
        Self { started: std::time::Instant::now(), shown: false, place }
    }

    fn show(&mut self, step: &agentsh_pin::Progress<'_>) {
        use std::io::Write;
        if self.place == ProgressOutput::Nowhere || self.started.elapsed().as_millis() < 1000 {
            return;
        }
        let first = !std::mem::replace(&mut self.shown, true);
        let percent = (step.done * 100).checked_div(step.total).unwrap_or(100);
        let name = step.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = agentsh_store::escape::line(&name);
        match self.place {
            ProgressOutput::Nowhere => {}
            ProgressOutput::Line => {
                let _ = write!(std::io::stderr(), "\r\x1b[Kchecking {name} ({percent} %)");
            }
            ProgressOutput::Beside if first => {
                agentsh_approvals::show_notification(
                    &format!("checking what a server runs ({name} and more)"),
                    "",
                );
            }
            ProgressOutput::Beside => {}
        }
    }

    fn clear(&self) {
        use std::io::Write;
        if self.shown && self.place == ProgressOutput::Line {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
