//! Review mode during a run: makes the layer, shows it to servers, summarises it at the end.

use crate::session::process::Process;
use crate::session::run_error::RunError;
use crate::session::{Session, grants};
use agentsh_host::Facts;
use agentsh_host::review::{Layer, begin as begin_layer, find, forget_old};
use agentsh_host::toolchains::Caches;
use agentsh_sandbox::report::Enforcement;
use agentsh_sandbox::spec::PathRules;

/// Locks held while the agent runs.
pub struct Layers {
    _project: Option<Layer>,
    _caches: Caches,
}

impl Layers {
    #[must_use]
    pub fn new(project: Option<Layer>, caches: Caches) -> Self {
        Self { _project: project, _caches: caches }
    }
}

/// Creates the project's layer.
///
/// # Errors
/// When it cannot be created.
pub fn begin(facts: &Facts, agent: &[String]) -> Result<Layer, RunError> {
    let context = &facts.context;
    let unmasked = grants::unmasked(&facts.policy.agent.filesystem, &facts.paths());
    forget_old(&context.state);
    let guard_all = facts.policy.agent.filesystem.guard.as_ref().is_some_and(|all| all.value);
    let command = agentsh_store::redact::arguments(agent);
    begin_layer(context, &facts.id.to_string(), &command, &unmasked, guard_all)
        .map_err(|error| RunError::Refused(format!("cannot start in review mode: {error}")))
}

/// Writes down what a run on the project itself would guard.
///
/// # Errors
/// When that fails: `agentsh review` would apply the guards like any other change.
pub fn keep_guards(layer: &Layer, rules: &PathRules) -> Result<(), RunError> {
    layer
        .keep_guards(rules)
        .map_err(|error| RunError::Refused(format!("cannot start in review mode: {error}")))
}

/// Shows the layer to servers, through the agent's sandbox.
///
/// # Errors
/// When that fails: the servers would see the project itself.
pub fn share_layer(session: &Session, agent: &Process) -> Result<(), RunError> {
    let namespaces = agent.namespaces();
    let namespaces =
        namespaces.ok_or_else(|| RunError::Refused("cannot share the layer with servers".to_owned()))?;
    // Set once: a session has one agent.
    let _ = session.live.agent.layered.set(namespaces);
    let got =
        "a copy-on-write layer, shared with servers; the project changes only with `agentsh review --apply`";
    session.record.enforcement(None, &[Enforcement::enforced("project", got)]);
    Ok(())
}

/// Summarises the layer for the user. Removes an empty one.
pub fn report_layer(session: &Session) {
    let context = &session.facts.context;
    let id = session.facts.id.to_string();
    let Ok(found) = find(&context.state, Some(&id), &context.project) else { return };
    match found.changes(context) {
        Ok((changes, _)) if changes.is_empty() => match found.discard() {
            Ok(()) if session.live.agent.layered.get().is_none() => {}
            Ok(()) => session.record.note("no changes in the project"),
            Err(error) => session.record.note(&error.to_string()),
        },
        Ok((changes, _)) => {
            let guarded = changes.iter().filter(|change| change.guarded.is_some()).count();
            let also = if guarded > 0 {
                format!(" ({guarded} of them may run automatically outside)")
            } else {
                String::new()
            };
            let files = changes.iter().filter(|change| !change.is_directory()).count();
            let what = match files {
                0 => "directories".to_owned(),
                1 => "1 file".to_owned(),
                files => format!("{files} files"),
            };
            session.record.note(&format!(
                "{what} changed{also}, not yet in the project: `agentsh review {id}` shows them, with `--apply` applies them"
            ));
        }
        Err(error) => session.record.note(&format!("{error}; agentsh review {id}")),
    }
}
