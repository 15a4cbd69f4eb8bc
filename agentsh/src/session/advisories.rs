//! Looks up security advisories when a server starts: records them, tells the user, and refuses the server if the
//! policy says so.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::json;
use url::Url;

use agentsh_advisories::Advisory;
use agentsh_base::types::{RuleRef, ServerId};
use agentsh_mcp::StartError;
use agentsh_pin::Resolved;
use agentsh_policy::{AdvisoryKind, AdvisoryPolicy, OnAdvisory};
use agentsh_store::Event;
use agentsh_store::words::{Action, AdvisorySource};

use super::Session;
use agentsh_host::known_advisories::{self, ServerPackages};
use agentsh_host::packages;

/// Limit of ids in a server's results.
const MAX_IDS: usize = 20;

pub enum Launch<'a> {
    Command(&'a Resolved),
    Url(&'a str),
}

/// Looks up a server. If no advisory can refuse it, its start does not wait.
///
/// # Errors
/// The refusing advisory and rule.
pub async fn check(
    session: &Rc<Session>,
    id: &ServerId,
    scope: &str,
    what: Launch<'_>,
) -> Result<(), StartError> {
    let policy = &session.facts.policy.mcp.advisories;
    let on = |kind| policy.on(kind).value;
    let kinds = AdvisoryKind::ALL;
    if kinds.iter().all(|kind| on(*kind) == OnAdvisory::Off) {
        return Ok(());
    }
    let (packages, host) = match what {
        Launch::Command(resolved) => (packages::of(resolved), None),
        Launch::Url(url) => {
            (BTreeSet::new(), Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)))
        }
    };
    let asked = ServerPackages { server: id.clone(), scope: scope.to_owned(), packages, host };
    if kinds.iter().any(|kind| on(*kind) == OnAdvisory::Block) {
        return look_up(session, asked).await;
    }
    let session = Rc::clone(session);
    agentsh_base::task::spawn_local(async move { look_up(&session, asked).await });
    Ok(())
}

async fn look_up(session: &Rc<Session>, asked: ServerPackages) -> Result<(), StartError> {
    let id = asked.server.clone();
    let policy = &session.facts.policy.mcp.advisories;
    let found = match known_advisories::cached_advisories(&session.facts.context, policy, asked).await {
        Ok(found) => found,
        Err(why) => {
            let is_needed = AdvisoryKind::ALL.iter().any(|kind| policy.on(*kind).value == OnAdvisory::Block);
            if is_needed {
                let message = format!("server '{id}' is not started: cannot read the advisories: {why}");
                return Err(StartError::permanent(message));
            }
            session.record.note(&format!("cannot read the advisories about server '{id}': {why}"));
            return Ok(());
        }
    };
    session.live.servers.advised.borrow_mut().remove(&id);
    if let Some(about) = result_notice(&found) {
        session.live.servers.advised.borrow_mut().insert(id.clone(), about);
    }
    let mut refused = None;
    for one in &found {
        let (action, rule) = verdict(policy, one);
        session.record.journal.record(Event::McpAdvisory {
            server_id: id.clone(),
            kind: source(one.kind),
            id: one.id.clone(),
            subject: one.subject.clone(),
            severity: agentsh_mcp::severity(one.severity),
            summary: one.summary.clone(),
            fixed: one.fixed.clone(),
            action,
            rule: rule.clone(),
        });
        if action == Action::Block && refused.is_none() {
            refused = Some((one, rule));
        }
    }
    let Some((one, rule)) = refused else { return Ok(()) };
    let fixed = one.fixed.as_ref().map(|fixed| format!(", fixed in {fixed}")).unwrap_or_default();
    let message = format!(
        "server '{id}' refused by {rule}: {} ({}, {}) about {}{fixed}: {}; look at it with `agentsh advisories show {}`, or \
         allow it with `sandbox: {{mcp: {{advisories: {{ignore: [{:?}]}}}}}}`",
        one.id,
        one.kind.as_str(),
        one.severity.as_str(),
        one.subject,
        one.summary,
        one.id,
        one.id
    );
    let message = agentsh_store::escape::line(&message).into_owned();
    let event = Event::McpServerRefused {
        server_id: id,
        reason: "advisory".to_owned(),
        detail: message.clone(),
        rule,
    };
    let recorded = session.record.journal.commit(event).await.is_ok();
    Err(StartError { recorded, ..StartError::permanent(message) })
}

/// The reaction to one advisory.
fn verdict(policy: &AdvisoryPolicy, found: &Advisory) -> (Action, RuleRef) {
    let on = policy.on(found.kind);
    let is_refused = on.value == OnAdvisory::Block && found.severity >= policy.block_from();
    (if is_refused { Action::Block } else { Action::Alert }, on.rule)
}

/// Facts for a server's results, as JSON. None: no warning.
fn result_notice(found: &[Advisory]) -> Option<Rc<str>> {
    let highest = found.iter().map(|one| one.severity).max()?;
    // One advisory may be about several versions of a package. The worst come first.
    let mut seen = BTreeSet::new();
    let mut ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).filter(|id| seen.insert(*id)).collect();
    let active = ids.len();
    ids.truncate(MAX_IDS);
    let about = json!({"active": active, "highest": highest.as_str(), "ids": ids});
    Some(about.to_string().into())
}

fn source(kind: AdvisoryKind) -> AdvisorySource {
    match kind {
        AdvisoryKind::Dependency => AdvisorySource::Dependency,
        AdvisoryKind::Vendor => AdvisorySource::Vendor,
        AdvisoryKind::Community => AdvisorySource::Community,
        AdvisoryKind::Availability => AdvisorySource::Availability,
    }
}
