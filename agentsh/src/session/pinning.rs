//! Resolves a declaration to the files that will run, compares them with the pin, and records the result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agentsh_base::counted;
use agentsh_base::types::ServerId;
use agentsh_mcp::StartError;
use agentsh_pin::{Action, Launcher, PinError, PinnedState, PinnedTree, Resolved, Status};
use agentsh_store::Event;
use agentsh_store::pins::{MAX_TEXT_BYTES, MAX_TEXTS_BYTES, PinState, Texts, TrustedBy};
use agentsh_store::words;
use sha2::{Digest, Sha256};

use super::declared::{Declaration, Declared};
use super::resolving::{Command, Pinned, resolve, shell_status};
use super::{Session, fetch, installed};
use agentsh_host::{Facts, Record};

/// Limit of files in an event.
const MAX_NAMED: usize = 20;

/// Resolves a server and compares it with its pin. Also returns the scope of its pins.
///
/// # Errors
/// For the user: a missing program, or changed files.
pub async fn check(session: &Rc<Session>, declaration: &Declaration) -> Result<(Pinned, String), StartError> {
    let id = &declaration.id;
    let pinning = &session.facts.policy.mcp.pinning;
    let mut scope = scope(&session.facts, declaration);
    let pins = &session.live.servers.pins;
    let unreadable = |error| StartError::permanent(format!("cannot read the pins: {error}"));
    let mut stored = pins.load(id, &scope).await.map_err(unreadable)?;
    let mut command = command(&session.facts, declaration);
    if stored.is_none() && session.record.agent_runs() {
        // The agent may have put a package there.
        command.not_below = Some(repository(&session.facts));
    }
    let command = command;
    // After `pins reset` the newest version is wanted.
    let renew = stored.is_none() && pinning.enabled && pinning.pin_binary;
    let pinned =
        resolve_or_fetch(session, declaration, &scope, command, renew).await.map_err(|(error, status)| {
            StartError { status, ..StartError::permanent(format!("cannot start server '{id}': {error}")) }
        })?;
    let resolved = &pinned.resolved;
    // A pin of an earlier version, for this very program, stays where it is.
    if declaration.id_is_derived
        && stored
            .as_ref()
            .is_none_or(|pin| without_version(&pin.state.identity) != without_version(&resolved.identity))
        && let Some(place) = own_place(&session.facts, resolved, &declaration.command)
    {
        scope = place;
        stored = pins.load(id, &scope).await.map_err(unreadable)?;
    }
    if !declaration.from_user
        && let Some(path) = installed::out_of_place(resolved, &session.facts.context)
    {
        return Err(StartError::permanent(format!(
            "cannot start server '{id}': its command names {}, which is neither in the project nor an installed program, and the server came with the project; to allow it, declare the server in your own configuration of the agent",
            path.display()
        )));
    }
    let known = stored.map(|pin| PinnedState {
        digest: pin.state.digest,
        program: pin.state.program,
        manifest: pin.state.manifest,
    });
    let status = agentsh_pin::compare(known.as_ref(), resolved);
    let is_read_only = session.live.servers.starts_unpinned.get();
    let action = match (&status, agentsh_pin::decide(&status, pinning)) {
        (Status::Mismatch(_), Action::Refuse) if is_read_only => Action::ProceedWithAlert,
        (Status::NotPinned, _) if is_read_only => Action::Proceed,
        (_, action) => action,
    };
    let binary_path = resolved.program.display().to_string();
    let actual_hash = resolved.digest.clone();
    match (&status, action) {
        (Status::Match, _) => {}
        (_, Action::PinAndProceed) => {
            if let Some(why) = session.live.servers.unready.borrow().get(id) {
                return Err(StartError::permanent(format!(
                    "cannot pin server '{id}': it was not there before the agent started ({why}), so the agent may have written it; restart the session to use it"
                )));
            }
            let files = resolved.state().manifest.len() as u64;
            pins.trust(&state(resolved, declaration, &scope), &texts(resolved), TrustedBy::FirstUse)
                .await
                .map_err(|error| {
                    StartError::permanent(format!("cannot store the pin of server '{id}': {error}"))
                })?;
            session.record.journal.record(Event::McpServerBinaryPinned {
                server_id: id.clone(),
                binary_path,
                hash: actual_hash,
                files,
            });
        }
        (Status::NotPinned, action) => {
            // If the policy requires no pin, there is nothing for the user to accept later.
            if action != Action::Proceed {
                pins.refuse(&state(resolved, declaration, &scope), &texts(resolved))
                    .await
                    .map_err(|error| StartError::permanent(error.to_string()))?;
            }
            let event = Event::McpServerBinaryNotPinned {
                server_id: id.clone(),
                binary_path,
                actual_hash,
                action: on_record(action),
            };
            if action == Action::Refuse {
                commit(&session.record, event).await?;
                return Err(recorded_refusal(format!(
                    "server '{id}' is not pinned, and {} requires a pin; inspect it with \
                     `agentsh mcp pins diff --server {id}`, accept it with `agentsh mcp pins trust --server {id}`",
                    pinning.rule
                )));
            }
            session.record.journal.record(event);
        }
        (Status::Mismatch(change), action) => {
            pins.refuse(&state(resolved, declaration, &scope), &texts(resolved))
                .await
                .map_err(|error| StartError::permanent(error.to_string()))?;
            let changed: Vec<String> =
                change.changed.iter().take(MAX_NAMED).map(|file| file.path.display().to_string()).collect();
            let event = Event::McpServerBinaryMismatch {
                server_id: id.clone(),
                binary_path,
                expected_hash: change.expected.clone(),
                actual_hash,
                action: on_record(action),
                changed: changed.clone(),
            };
            if action == Action::Refuse {
                commit(&session.record, event).await?;
                // Clients show no more than that the server failed.
                agentsh_approvals::tell_refused(
                    &session.facts,
                    &session.record,
                    &format!(
                        "server '{id}' was not started: its program changed (agentsh mcp pins diff --server {id})"
                    ),
                    &format!("`agentsh mcp pins trust --server {id}` accepts it"),
                );
                let paths: Vec<&Path> = change.changed.iter().map(|file| file.path.as_path()).collect();
                return Err(recorded_refusal(format!(
                    "server '{id}' differs from its pin: {} changed; refused by {}; see \
                     `agentsh mcp pins diff --server {id}`, accept with `agentsh mcp pins trust --server {id}`",
                    changed_files(&paths),
                    pinning.rule
                )));
            }
            if action == Action::ProceedWithAlert {
                let files = counted(change.changed.len() as u64, "file");
                let by = format!("by {}", pinning.rule);
                let why = if is_read_only { "to read its interface" } else { &by };
                session.record.note(&format!(
                    "server '{id}' differs from its pin ({files} changed); started anyway, {why}"
                ));
            }
            session.record.journal.record(event);
        }
    }
    if let Some(why) = &resolved.unpinned {
        session.record.note(&format!("server '{id}' is only partly pinned: {why}"));
    }
    Ok((pinned, scope))
}

/// A few paths as they are; of many their number, the directory of all of them and a few names in it.
fn changed_files(paths: &[&Path]) -> String {
    const MAX_SHOWN: usize = 8;
    const MAX_NAMES: usize = 3;
    if paths.len() <= MAX_SHOWN {
        let shown: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return shown.join(", ");
    }
    let is_above_all = |above: &&Path| paths.iter().all(|path| path.starts_with(above));
    let above = paths[0].ancestors().skip(1).find(is_above_all).unwrap_or(Path::new("/"));
    let names = paths.iter().take(MAX_NAMES).filter_map(|path| path.strip_prefix(above).ok());
    let names: Vec<_> = names.map(|path| path.display().to_string()).collect();
    format!("{} files below {} ({}, ...)", paths.len(), above.display(), names.join(", "))
}

/// Pins servers without a pin before the agent can write their files. What cannot be pinned now is not pinned later
/// either; packages to be fetched come from where no agent writes.
pub async fn pin_in_advance(session: &Rc<Session>, declared: &BTreeMap<ServerId, Declared>) {
    let pinning = &session.facts.policy.mcp.pinning;
    if !pinning.enabled || !pinning.pin_binary || !pinning.auto_trust_first {
        return;
    }
    for (id, declared) in declared {
        let Declared::Command(declaration) = declared else { continue };
        let scope = scope(&session.facts, declaration);
        if !matches!(session.live.servers.pins.load(id, &scope).await, Ok(None)) {
            continue;
        }
        let outcome = match resolve(session, command(&session.facts, declaration), None).await {
            Ok(pinned) => pin_now(session, declaration, &scope, &pinned.resolved).await,
            Err(PinError::PackageNotInstalled { wanted: Some(_), .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = outcome {
            session.live.servers.unready.borrow_mut().insert(id.clone(), why);
        }
    }
}

async fn pin_now(
    session: &Session,
    declaration: &Declaration,
    scope: &str,
    resolved: &Resolved,
) -> Result<(), String> {
    // Refused at its start, with the reason.
    if !declaration.from_user && installed::out_of_place(resolved, &session.facts.context).is_some() {
        return Ok(());
    }
    let state = state(resolved, declaration, scope);
    let files = state.manifest.len() as u64;
    let stored = session.live.servers.pins.trust(&state, &texts(resolved), TrustedBy::FirstUse).await;
    stored.map_err(|error| format!("cannot store its pin: {error}"))?;
    session.record.journal.record(Event::McpServerBinaryPinned {
        server_id: declaration.id.clone(),
        binary_path: resolved.program.display().to_string(),
        hash: resolved.digest.clone(),
        files,
    });
    Ok(())
}

fn command(facts: &Facts, declaration: &Declaration) -> Command {
    let mut env = facts.context.env.clone();
    // Variables that the process will not have do not affect its program.
    let counts = |name: &str| declaration.from_user || !agentsh_policy::env::is_loader(name);
    env.extend(declaration.env.clone().into_iter().filter(|(name, _)| counts(name)));
    Command {
        program: declaration.command.clone(),
        args: declaration.args.clone(),
        cwd: declaration.cwd.clone().unwrap_or_else(|| facts.context.directory.clone()),
        env,
        not_below: foreign_packages(facts, declaration),
    }
}

/// Directories whose packages the user's command does not mean: the repository around the project, unless the user set
/// a working directory there.
fn foreign_packages(facts: &Facts, declaration: &Declaration) -> Option<PathBuf> {
    let around = repository(facts);
    let is_named = declaration.cwd.as_ref().is_some_and(|cwd| cwd.starts_with(&around));
    (declaration.from_user && !is_named && facts.project_shown).then_some(around)
}

/// The repository around the project, or the project.
fn repository(facts: &Facts) -> PathBuf {
    let start = &facts.context.directory;
    let found = start.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok());
    found.unwrap_or(start).to_owned()
}

/// Like [`resolve`], after fetching a missing package. With `renew`, an earlier fetch is used only if there is no newer
/// one.
async fn resolve_or_fetch(
    session: &Rc<Session>,
    declaration: &Declaration,
    scope: &str,
    command: Command,
    renew: bool,
) -> Result<Pinned, (String, u8)> {
    let id = &declaration.id;
    let store = fetch::store(&session.facts, id, scope);
    let first = resolve(session, command.clone(), (!renew).then(|| store.clone())).await;
    let wanted = match first {
        Err(PinError::PackageNotInstalled { wanted: Some(wanted), .. }) => wanted,
        other => return other.map_err(reason_and_status),
    };
    if let Err(error) = fetch::fetch(session, declaration, &store, &wanted).await {
        let message = format!("cannot fetch {}: {error}", wanted.text());
        if !matches!(store.find(&wanted), Ok(Some(_))) {
            let is_missing = matches!(error, fetch::FetchError::Missing { .. });
            return Err((message, if is_missing { 127 } else { StartError::FAILED }));
        }
        session.record.note(&format!("{message}; server '{id}' uses the copy fetched before"));
    }
    resolve(session, command, Some(store)).await.map_err(reason_and_status)
}

/// The error, and a shell's exit status for it.
fn reason_and_status(error: PinError) -> (String, u8) {
    (error.to_string(), shell_status(&error).unwrap_or(StartError::FAILED))
}

fn state(resolved: &Resolved, declaration: &Declaration, scope: &str) -> PinState {
    let state = resolved.state();
    PinState {
        server_id: declaration.id.clone(),
        scope: scope.to_owned(),
        program: state.program,
        identity: resolved.identity.clone(),
        digest: state.digest,
        manifest: state.manifest,
    }
}

/// Small files of the pinned set, for later diffs, the server's own before those of packages. Unreadable ones are omitted; the
/// manifest has their hashes.
fn texts(resolved: &Resolved) -> Texts {
    let is_installed = |tree: &PinnedTree, path: &Path| {
        let is_own = tree.name.starts_with("script") || tree.name.starts_with("package");
        !is_own || path.iter().any(|part| part == "node_modules")
    };
    let in_trees = |installed: bool| {
        resolved.trees.iter().flat_map(move |tree| {
            let paths = tree.manifest.keys().filter(move |path| is_installed(tree, path) == installed);
            paths.map(|path| tree.root.join(path))
        })
    };
    // In any role: a script with a shebang is an executable.
    let alone = resolved.files.iter().map(|file| file.path.clone());
    let (mut texts, mut room) = (Texts::new(), MAX_TEXTS_BYTES);
    for path in alone.chain(in_trees(false)).chain(in_trees(true)) {
        let fits = std::fs::metadata(&path)
            .is_ok_and(|found| found.is_file() && found.len() <= MAX_TEXT_BYTES as u64);
        if !fits {
            continue;
        }
        let Ok(content) = std::fs::read(&path) else { continue };
        let Some(left) = room.checked_sub(content.len()) else { break };
        room = left;
        let hash = agentsh_base::hex(&Sha256::digest(&content));
        texts.insert(hash, content);
    }
    texts
}

/// Where a program is whose name does not tell which one it is: the directory of its file or of the project's virtual
/// environment, or the working directory. None for an installed package, and for a program that was found in PATH.
fn own_place(facts: &Facts, resolved: &Resolved, command: &str) -> Option<String> {
    let directory = resolved.cwd.as_deref().unwrap_or(&facts.context.directory);
    let program = resolved.program.as_path();
    let is_found = !command.contains('/');
    let mut own = resolved.cwd.iter().chain([&facts.context.project]);
    let place = match resolved.identity.split_once(':')? {
        ("npm" | "pypi", _) if own.any(|own| program.starts_with(own)) => program.ancestors().nth(3)?,
        ("npm" | "pypi", _) => return None,
        ("file", file) if is_found && Path::new(file) == program => return None,
        ("file", _) if is_found && resolved.launcher == Launcher::Shebang => return None,
        ("file", file) => Path::new(file).parent()?,
        _ => directory,
    };
    Some(place.display().to_string())
}

/// A package without its version.
fn without_version(identity: &str) -> &str {
    let is_package = ["npm:", "pypi:"].iter().any(|kind| identity.starts_with(kind));
    identity.rsplit_once('@').filter(|_| is_package).map_or(identity, |(name, _)| name)
}

/// A pin of the user's server applies everywhere, a project server's in its project.
pub fn scope(facts: &Facts, declaration: &Declaration) -> String {
    if declaration.from_user { String::new() } else { facts.context.project.display().to_string() }
}

fn on_record(action: Action) -> words::Action {
    match action {
        Action::Refuse => words::Action::Block,
        Action::ProceedWithAlert => words::Action::Alert,
        Action::Proceed | Action::PinAndProceed => words::Action::Allow,
    }
}

async fn commit(record: &Record, event: Event) -> Result<(), StartError> {
    record
        .journal
        .commit(event)
        .await
        .map_err(|error| StartError::permanent(format!("cannot record the refusal: {error}")))
}

/// A refusal with its own event.
fn recorded_refusal(message: String) -> StartError {
    StartError { recorded: true, ..StartError::permanent(message) }
}
