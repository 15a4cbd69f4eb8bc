//! Fetches packages that a launcher (`npx`, `uvx`, `pipx run`) would download: once, with the package manager, in a
//! sandbox that reaches only the configured registry, into a content-addressed store. Servers start from there, without
//! launcher and registry.

mod npm;
mod python;
mod stage;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::session::declared::Declaration;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_host::Facts;
use agentsh_pin::{NoCache, PackageRequest, Store};
use agentsh_policy::profile::{self, Package, Registry};

use super::Session;
use super::address::Address;

/// Why a package was not fetched. Messages fit after "cannot fetch PACKAGE: ".
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot reach the registry {registry}")]
    Unreachable { registry: String },
    #[error("the registry {registry} has no such package or version")]
    Missing { registry: String },
    #[error("the registry {registry} sent other content than it announced (integrity mismatch)")]
    Integrity { registry: String },
    #[error(
        "no version installs without running a build script; to let it run, with no network except the registry, add to your policy: {line}"
    )]
    NeedsScripts { line: String },
    #[error("cannot start {tool}: {why}")]
    Tool { tool: &'static str, why: String },
    #[error("{tool} failed:\n{output}")]
    Failed { tool: &'static str, output: String },
    #[error("agentsh killed {tool}: it used more memory than {rule} allows")]
    Memory { tool: &'static str, rule: RuleRef },
    #[error("agentsh killed {tool}: it took longer than {} minutes", stage::FETCH_TIMEOUT.as_secs() / 60)]
    Slow { tool: &'static str },
    #[error("cannot read the registry that {tool} is configured for")]
    NoRegistry { tool: &'static str },
    #[error("{doing}: {source}")]
    Io { doing: &'static str, source: std::io::Error },
    #[error("{0}")]
    Pin(#[from] agentsh_pin::PinError),
}

/// Fetches of a session. Servers with the same package share one.
#[derive(Default)]
pub struct Fetched(RefCell<BTreeMap<Request, Rc<Mutex<Shared>>>>);

/// Registry, words, and whether scripts run.
type Request = (String, bool);

/// The result of a request.
#[derive(Default)]
struct Shared {
    /// A tree's name in the store.
    name: Option<String>,
    /// Its servers. A server that asks again gets a newer version.
    owners: BTreeSet<String>,
}

impl Fetched {
    fn of(&self, wanted: &PackageRequest, run_scripts: bool) -> Rc<Mutex<Shared>> {
        let request = format!("{:?} {}", wanted.registry, wanted.text());
        Rc::clone(self.0.borrow_mut().entry((request, run_scripts)).or_default())
    }
}

struct Job<'a> {
    session: &'a Rc<Session>,
    id: &'a ServerId,
    wanted: &'a PackageRequest,
    /// Writable inside; its `tree` becomes the stored tree.
    directory: PathBuf,
    run_scripts: bool,
}

/// The user's package store.
#[must_use]
pub fn store(facts: &Facts, id: &ServerId, scope: &str) -> Store {
    Store { root: facts.context.data.join("store"), owner: format!("{id}\0{scope}") }
}

/// Fetches a package and records that it answers this request.
///
/// # Errors
/// In words; the store is unchanged.
pub async fn fetch(
    session: &Rc<Session>,
    declaration: &Declaration,
    store: &Store,
    wanted: &PackageRequest,
) -> Result<(), FetchError> {
    let id = &declaration.id;
    let run_scripts = may_run_scripts(&session.facts, declaration, wanted);
    let shared = session.live.fetched.of(wanted, run_scripts);
    let mut shared = shared.lock().await;
    if let Some(name) = shared.name.clone().filter(|name| store.trees().join(name).is_dir())
        && shared.owners.insert(store.owner.clone())
    {
        return record(store, wanted, &name);
    }
    let started = Instant::now();
    let directory = staging(store)?;
    let staged = super::RemoveOnDrop(directory.clone());
    let job = Job { session, id, wanted, directory, run_scripts };
    let work = async {
        match wanted.registry {
            Registry::Npm => npm::install(&job).await,
            Registry::Pypi => python::install(&job).await,
        }
    };
    tokio::pin!(work);
    let told = tokio::select! {
        done = &mut work => { done?; false }
        () = tokio::time::sleep(Duration::from_secs(1)) => {
            let message =
                format!("fetching {} for server '{id}' (once; later starts need no registry) ...", wanted.text());
            agentsh_approvals::hint(&session.record, &message);
            session.record.note(&message);
            work.await?;
            true
        }
    };
    let name = keep(store, wanted, &staged.path().join("tree")).await?;
    record(store, wanted, &name)?;
    *shared = Shared { name: Some(name), owners: BTreeSet::from([store.owner.clone()]) };
    if told {
        session.record.note(&format!(
            "fetched {} in {:.1} s",
            wanted.text(),
            started.elapsed().as_secs_f64()
        ));
    }
    Ok(())
}

/// A directory for one fetch, on the store's file system.
fn staging(store: &Store) -> Result<PathBuf, FetchError> {
    use std::os::unix::fs::DirBuilderExt;
    remove_abandoned(&store.root.join("staging"));
    let directory = store.root.join("staging").join(uuid::Uuid::now_v7().simple().to_string());
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory.join("tree"))
        .map_err(|source| FetchError::Io { doing: "make a directory in the store", source })?;
    Ok(directory)
}

/// Removes what killed fetches left. No fetch takes this long.
fn remove_abandoned(staging: &Path) {
    const DAY: Duration = Duration::from_hours(24);
    for entry in std::fs::read_dir(staging).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|found| found.modified()).map(|time| time.elapsed());
        if matches!(age, Ok(Ok(age)) if age > DAY) {
            // The next run tries again.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Moves the tree to its content-addressed name, and returns it.
async fn keep(store: &Store, wanted: &PackageRequest, tree: &Path) -> Result<String, FetchError> {
    // Code that ran in the sandbox could have replaced it.
    if !std::fs::symlink_metadata(tree).is_ok_and(|found| found.is_dir()) {
        return Err(io("keep the package")(std::io::ErrorKind::NotADirectory.into()));
    }
    let (registry, from) = (wanted.registry, tree.to_owned());
    let name = tokio::task::spawn_blocking(move || Store::name(registry, &from, &mut NoCache, &mut |_| {}))
        .await
        .map_err(|error| FetchError::Io { doing: "hash the package", source: error.into() })??;
    let target = store.trees().join(&name);
    std::fs::create_dir_all(store.trees()).map_err(io("make the store"))?;
    match std::fs::rename(tree, &target) {
        Ok(()) => {}
        // Another process fetched the same content.
        Err(_) if target.is_dir() => {}
        Err(source) => return Err(FetchError::Io { doing: "keep the package", source }),
    }
    Ok(name)
}

fn io(doing: &'static str) -> impl Fn(std::io::Error) -> FetchError {
    move |source| FetchError::Io { doing, source }
}

/// Records that a tree answers this request.
fn record(store: &Store, wanted: &PackageRequest, name: &str) -> Result<(), FetchError> {
    let record = store.request(wanted);
    let records = record.parent().unwrap_or(&store.root);
    std::fs::create_dir_all(records).map_err(io("make the store"))?;
    // Outside what was writable inside: a link could redirect it.
    let written = records.join(format!("new-{}", uuid::Uuid::now_v7().simple()));
    std::fs::write(&written, format!("{name}\n")).map_err(io("write the record of the package"))?;
    std::fs::rename(&written, &record).map_err(io("write the record of the package"))
}

/// The user's policy decides, then the profile; the default is no. Project entries can only restrict.
fn may_run_scripts(facts: &Facts, declaration: &Declaration, wanted: &PackageRequest) -> bool {
    let entry = facts.policy.mcp.servers.get(&declaration.id);
    let written = entry.and_then(|server| server.install_scripts.as_ref());
    if let Some(written) = written.filter(|written| !written.value || declaration.has_grants_by_name()) {
        return written.value;
    }
    let spec = wanted.specs.first().map(String::as_str).unwrap_or_default();
    let package = Package::of_spec(wanted.registry, spec);
    let found = profile::of_package(&package, &facts.context.config).ok().flatten();
    found.and_then(|profile| profile.install_scripts).is_some_and(|scripts| scripts.value)
}

impl Job<'_> {
    fn tree(&self) -> PathBuf {
        self.directory.join("tree")
    }

    /// The policy line that allows scripts.
    fn scripts_line(&self) -> String {
        format!("sandbox: {{mcp: {{servers: [{{id: {:?}, install_scripts: allow}}]}}}}", self.id.0)
    }
}

/// Classifies a package manager's error output.
fn failure(tool: &'static str, registries: &[Address], output: &str) -> FetchError {
    let has = |words: &[&str]| words.iter().any(|word| output.contains(word));
    let registry = registries.iter().map(|address| format!("{}:{}", address.host, address.port));
    let registry = registry.collect::<Vec<_>>().join(", ");
    if has(&["EINTEGRITY", "DO NOT MATCH THE HASHES", "hash mismatch"]) {
        return FetchError::Integrity { registry };
    }
    if has(&["No module named pip", "No module named 'pip'"]) {
        let why = "python3 has no pip; install it (such as `apt install python3-pip`), or run the server's command \
                   once yourself";
        return FetchError::Tool { tool, why: why.to_owned() };
    }
    if has(&[
        "ECONNREFUSED",
        "ENOTFOUND",
        "EAI_AGAIN",
        "ETIMEDOUT",
        "ECONNRESET",
        "ENETUNREACH",
        "EHOSTUNREACH",
        "Max retries exceeded",
        "NewConnectionError",
        "Temporary failure in name resolution",
        "Connection refused",
        "Connection aborted",
        "Connection reset",
        "ERR_SOCKET",
    ]) {
        return FetchError::Unreachable { registry };
    }
    if has(&["E404", "ETARGET", "No matching version", "404 Client Error"]) {
        return FetchError::Missing { registry };
    }
    let tail: Vec<&str> = output.lines().rev().take(8).collect();
    let tail = tail.into_iter().rev().map(|line| format!("  {}", agentsh_store::escape::line(line)));
    FetchError::Failed { tool, output: tail.collect::<Vec<_>>().join("\n") }
}
