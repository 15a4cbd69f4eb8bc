//! Pins of skills and plugins: trusted on first use, changes are reported until a person trusts them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use sha2::{Digest, Sha256};

use agentsh_agents::Kind;
use agentsh_agents::trees::{self, Content, Tree};
use agentsh_base::types::ServerId;
use agentsh_store::pins::{Pin, PinState, TrustedBy};
use agentsh_store::{Event, StoreError, escape, words};

use super::Session;
use agentsh_broker::logins::shell_word;
use agentsh_host::Facts;

/// Limit of trees in a message, and of files in an event.
const MAX_NAMED: usize = 4;
const MAX_FILES: usize = 20;
/// The store's id for those beyond the limit.
const LEFT_OUT: &str = "skills:left-out";

/// Pins new trees, and reports changed ones.
pub async fn check(session: &Rc<Session>, kind: Kind) {
    let pinning = &session.facts.policy.mcp.pinning;
    if kind.is_unknown() || !pinning.enabled || !pinning.pin_binary {
        return;
    }
    let (home, project) = (session.facts.context.home.clone(), session.facts.context.project.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let mut left = trees::budget();
        let read = |tree: Tree| {
            let content = trees::read(&tree, &mut left);
            (tree, content)
        };
        let found = trees::find(kind, &home, &project);
        (found.trees.into_iter().map(read).collect::<Vec<_>>(), found.left_out)
    });
    let Ok((found, left_out)) = looked.await else { return };
    if found.is_empty() && left_out.is_empty() {
        return;
    }
    let lines = async {
        let changed = compare(session, found).await?;
        let untold = leave_out(session, left_out).await?;
        Ok::<_, StoreError>([changed_note(&changed), untold])
    };
    match lines.await {
        Ok(lines) => lines.into_iter().flatten().for_each(|line| session.record.note(&line)),
        Err(error) => {
            session.record.note(&format!("skills and plugins cannot be compared with their pins: {error}"));
        }
    }
}

/// The agent also uses those beyond the limit: an entry names them, untrusted until a person trusts it. Returns
/// messages.
async fn leave_out(
    session: &Session,
    left_out: Vec<(String, PathBuf)>,
) -> Result<Option<String>, StoreError> {
    if left_out.is_empty() {
        return Ok(None);
    }
    let hex = |hasher: Sha256| agentsh_base::hex(&hasher.finalize());
    let sha256 = |bytes: &[u8]| hex(Sha256::new().chain_update(bytes));
    let names: Vec<String> = left_out.iter().map(|(name, _)| name.clone()).collect();
    let manifest = left_out
        .into_iter()
        .map(|(name, root)| (format!("{} ({name})", root.display()), sha256(name.as_bytes())))
        .collect::<BTreeMap<_, _>>();
    let mut hasher = Sha256::new();
    manifest.keys().for_each(|path| hasher.update(format!("{}:{path}", path.len())));
    let state = PinState {
        server_id: ServerId(LEFT_OUT.to_owned()),
        scope: session.facts.context.project.display().to_string(),
        program: format!("skills and plugins beyond the first {}", trees::MAX_TREES),
        identity: "not compared".to_owned(),
        digest: format!("sha256:{}", hex(hasher)),
        manifest,
    };
    let pin = session.live.servers.pins.load(&state.server_id, &state.scope).await?;
    if pin.as_ref().is_some_and(|pin| pin.state.digest == state.digest) {
        return Ok(None);
    }
    session.live.servers.pins.refuse(&state, &BTreeMap::new()).await?;
    session.record.journal.record(Event::McpServerBinaryMismatch {
        server_id: state.server_id,
        binary_path: state.program,
        expected_hash: pin.map(|pin| pin.state.digest).unwrap_or_default(),
        actual_hash: state.digest,
        action: words::Action::Alert,
        changed: state.manifest.into_keys().take(MAX_FILES).collect(),
    });
    let what =
        format!("more than {} skills and plugins; these are not compared with their pins", trees::MAX_TREES);
    Ok(Some(format!("{what}: {}; {}", join_names(&names), offered_commands(LEFT_OUT))))
}

/// The names of changed trees.
async fn compare(
    session: &Session,
    found: Vec<(Tree, Result<Content, String>)>,
) -> Result<Vec<String>, StoreError> {
    let pins = session.live.servers.pins.list().await?;
    let mut changed = Vec::new();
    for (tree, content) in found {
        let content = match content {
            Ok(content) => content,
            Err(error) => {
                let name = escape::line(&tree.name).into_owned();
                session
                    .record
                    .note(&format!("'{name}' cannot be compared with its pin: {}", escape::line(&error)));
                continue;
            }
        };
        let state = state(&session.facts, &tree, &content);
        let pinned =
            pins.iter().find(|pin| pin.state.server_id == state.server_id && pin.state.scope == state.scope);
        match pinned {
            Some(pin) if pin.state.digest == state.digest => {}
            None => {
                session.live.servers.pins.trust(&state, &content.texts, TrustedBy::FirstUse).await?;
                session.record.journal.record(Event::McpServerBinaryPinned {
                    server_id: state.server_id,
                    binary_path: state.program,
                    hash: state.digest,
                    files: state.manifest.len() as u64,
                });
            }
            Some(pin) => {
                session.live.servers.pins.refuse(&state, &content.texts).await?;
                session.record.journal.record(Event::McpServerBinaryMismatch {
                    server_id: state.server_id.clone(),
                    binary_path: state.program.clone(),
                    expected_hash: pin.state.digest.clone(),
                    actual_hash: state.digest.clone(),
                    action: words::Action::Alert,
                    changed: other_files(pin, &state),
                });
                changed.push(state.server_id.0);
            }
        }
    }
    Ok(changed)
}

fn state(facts: &Facts, tree: &Tree, content: &Content) -> PinState {
    let scope = match tree.of_project {
        true => facts.context.project.display().to_string(),
        false => String::new(),
    };
    let identity = tree.name.split(':').next().unwrap_or_default().to_owned();
    PinState {
        server_id: ServerId(tree.name.clone()),
        scope,
        program: tree.root.display().to_string(),
        identity,
        digest: content.digest.clone(),
        manifest: content.manifest.clone(),
    }
}

fn other_files(pin: &Pin, state: &PinState) -> Vec<String> {
    let (before, now) = (&pin.state.manifest, &state.manifest);
    let is_other = |(path, hash): &(&String, &String)| before.get(*path) != Some(hash);
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    let other = now.iter().filter(is_other).map(|(path, _)| path);
    other.chain(gone).take(MAX_FILES).cloned().collect()
}

fn changed_note(changed: &[String]) -> Option<String> {
    let first = changed.first()?;
    Some(format!("changed since it was pinned: {}; {}", join_names(changed), offered_commands(first)))
}

fn join_names(names: &[String]) -> String {
    let mut named: Vec<_> =
        names.iter().take(MAX_NAMED).map(|name| format!("'{}'", escape::line(name))).collect();
    if names.len() > MAX_NAMED {
        named.push(format!("{} more", names.len() - MAX_NAMED));
    }
    named.join(", ")
}

/// The commands, quoted for a shell.
fn offered_commands(name: &str) -> String {
    let server = shell_word(&escape::line(name));
    format!(
        "look at it with `agentsh mcp pins diff --server {server}`, accept it with `agentsh mcp pins trust --server {server}`"
    )
}
