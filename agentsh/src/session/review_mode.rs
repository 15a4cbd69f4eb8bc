//! What a run in review mode does beside: the layer is made before the agent, shown to its servers, and told of at the
//! end.

use crate::session::process::Process;
use crate::session::run_error::RunError;
use crate::session::{Session, grants};
use agentsh_host::Facts;
use agentsh_host::review::{Layer, begin as begin_layer, find, forget_old};
use agentsh_host::toolchains::Caches;
use agentsh_sandbox::report::Enforcement;

/// What stays locked while the agent runs.
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

/// Makes the layer that is laid over the project.
///
/// # Errors
/// When it cannot be made.
pub fn begin(facts: &Facts, agent: &[String]) -> Result<Layer, RunError> {
    let context = &facts.context;
    let unmasked = grants::unmasked(&facts.policy.agent.filesystem, &facts.paths());
    forget_old(&context.state);
    let guard_all = facts.policy.agent.filesystem.guard_all.as_ref().is_some_and(|all| all.value);
    let command = agentsh_store::redact::arguments(agent);
    begin_layer(context, &facts.id.to_string(), &command, &unmasked, guard_all)
        .map_err(|error| RunError::Refused(format!("cannot start in review mode: {error}")))
}

/// From here on servers get to the layer, through the agent's sandbox.
///
/// # Errors
/// When they could not: they would see the project itself.
pub fn share(session: &Session, agent: &Process) -> Result<(), RunError> {
    let namespaces = agent.namespaces();
    let namespaces =
        namespaces.ok_or_else(|| RunError::Refused("cannot share the layer with servers".to_owned()))?;
    // It is set once: a session has one agent.
    let _ = session.live.layered.set(namespaces);
    let got =
        "a copy-on-write layer, shared with servers; the project changes only with `agentsh review --apply`";
    session.record.enforcement(None, &[Enforcement::enforced("project", got)]);
    Ok(())
}

/// Says what waits for a person. A layer in which nothing was written is removed.
pub fn tell(session: &Session) {
    let context = &session.facts.context;
    let id = session.facts.id.to_string();
    let Ok(found) = find(&context.state, Some(&id), &context.project) else { return };
    match found.changes(context) {
        Ok((changes, _)) if changes.is_empty() => match found.discard() {
            Ok(()) if session.live.layered.get().is_none() => {}
            Ok(()) => session.record.note("no changes in the project"),
            Err(error) => session.record.note(&error.to_string()),
        },
        Ok((changes, _)) => {
            let guarded = changes.iter().filter(|change| change.guarded.is_some()).count();
            let also = if guarded > 0 {
                format!(" ({guarded} of them run by themselves outside)")
            } else {
                String::new()
            };
            let files = changes.iter().filter(|change| !change.is_directory()).count();
            let what = match files {
                0 => "directories".to_owned(),
                1 => "1 file".to_owned(),
                files => format!("{files} files"),
            };
            session.record.note(&format!("{what} changed{also}; agentsh review {id}"));
        }
        Err(error) => session.record.note(&format!("{error}; agentsh review {id}")),
    }
}
