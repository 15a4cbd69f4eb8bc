//! Skills and plugins are pinned as servers are: at first use, and what changed since is told until somebody trusts it.

use std::rc::Rc;

use crate::agent::Kind;
use crate::agent::trees::{self, Content, Tree};
use crate::store::pins::{Pin, PinState, TrustedBy};
use crate::store::{Event, StoreError, escape, words};
use crate::types::ServerId;

use super::Session;

/// Trees that one line names, and files of each that the record does.
const MOST_NAMED: usize = 4;
const MOST_FILES: usize = 20;

/// Pins what is new, and tells what is not as it was pinned.
pub async fn check(session: &Rc<Session>, kind: Kind) {
    let pinning = &session.policy.mcp.pinning;
    if kind.is_unknown() || !pinning.enabled || !pinning.pin_binary {
        return;
    }
    let (home, project) = (session.context.home.clone(), session.context.project.clone());
    let looked = tokio::task::spawn_blocking(move || {
        let mut left = trees::budget();
        let read = |tree: Tree| {
            let content = trees::read(&tree, &mut left);
            (tree, content)
        };
        trees::find(kind, &home, &project).into_iter().map(read).collect::<Vec<_>>()
    });
    let Ok(found) = looked.await else { return };
    if found.is_empty() {
        return;
    }
    let changed = match compare(session, found).await {
        Ok(changed) => changed,
        Err(error) => {
            return session.note(&format!("skills and plugins cannot be compared with their pins: {error}"));
        }
    };
    if let Some(line) = told(&changed) {
        session.note(&line);
    }
}

/// The names of those that changed.
async fn compare(
    session: &Session,
    found: Vec<(Tree, Result<Content, String>)>,
) -> Result<Vec<String>, StoreError> {
    let pins = session.pins.list().await?;
    let mut changed = Vec::new();
    for (tree, content) in found {
        let content = match content {
            Ok(content) => content,
            Err(error) => {
                let name = escape::line(&tree.name).into_owned();
                session.note(&format!("'{name}' cannot be compared with its pin: {}", escape::line(&error)));
                continue;
            }
        };
        let state = state(session, &tree, &content);
        let pinned =
            pins.iter().find(|pin| pin.state.server_id == state.server_id && pin.state.scope == state.scope);
        match pinned {
            Some(pin) if pin.state.digest == state.digest => {}
            None => {
                session.pins.trust(&state, &content.texts, TrustedBy::FirstUse).await?;
                session.journal.record(Event::McpServerBinaryPinned {
                    server_id: state.server_id,
                    binary_path: state.program,
                    hash: state.digest,
                    files: state.manifest.len() as u64,
                });
            }
            Some(pin) => {
                session.pins.refuse(&state, &content.texts).await?;
                session.journal.record(Event::McpServerBinaryMismatch {
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

fn state(session: &Session, tree: &Tree, content: &Content) -> PinState {
    let scope = match tree.of_project {
        true => session.context.project.display().to_string(),
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

/// The files that are not as they were pinned.
fn other_files(pin: &Pin, state: &PinState) -> Vec<String> {
    let (before, now) = (&pin.state.manifest, &state.manifest);
    let is_other = |(path, hash): &(&String, &String)| before.get(*path) != Some(hash);
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    let other = now.iter().filter(is_other).map(|(path, _)| path);
    other.chain(gone).take(MOST_FILES).cloned().collect()
}

fn told(changed: &[String]) -> Option<String> {
    let first = escape::line(changed.first()?).into_owned();
    let mut named: Vec<_> =
        changed.iter().take(MOST_NAMED).map(|name| format!("'{}'", escape::line(name))).collect();
    if changed.len() > MOST_NAMED {
        named.push(format!("{} more", changed.len() - MOST_NAMED));
    }
    Some(format!(
        "changed since it was pinned: {}; look at it with `agentsh mcp pins diff --server {first}`, accept it with `agentsh mcp \
         pins trust --server {first}`",
        named.join(", ")
    ))
}
