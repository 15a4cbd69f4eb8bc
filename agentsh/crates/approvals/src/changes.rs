//! Questions about the use of something that differs from its pin. A lasting approval is for the new definition, with
//! any arguments.

use agentsh_base::types::ServerId;
use agentsh_guard::{Decision, Outcome, Reason};
use agentsh_mcp::ApprovalSubject;
use agentsh_store::Offered;
use agentsh_store::words::ApprovalScope;

use super::{Approvals, ChangedEntry, Item};

/// Whether a person is asked only about the change: if there is another question about the call, an approval applies
/// to this call only.
fn asks_nothing_else(decision: &Decision) -> bool {
    let asking = |outcome: Outcome| outcome == Outcome::Ask;
    decision.deciding_finding().is_some_and(|found| asking(found.verdict.outcome))
        && decision
            .findings
            .iter()
            .filter(|found| asking(found.verdict.outcome))
            .all(|found| found.verdict.reason == Reason::InterfaceChanged)
}

pub(super) fn with_hint(why: &str, server: &ServerId) -> String {
    format!("{why}; `agentsh mcp pins diff --server {}` shows the difference", server.0)
}

impl Approvals {
    /// The changed entry that the call uses, with the hash of its definition, if the change is all that is asked about.
    pub(super) fn changed_entry(&self, call: &ApprovalSubject<'_>) -> Option<(ChangedEntry, String)> {
        if !asks_nothing_else(call.decision) {
            return None;
        }
        let of = |kind, name: &str| ChangedEntry { kind, name: name.to_owned(), is_withheld: false };
        if let Some(hash) = call.interface {
            return Some((of(Offered::Tool, call.name), hash.to_owned()));
        }
        let interfaces = &self.0.session.interfaces;
        let (kind, name) = interfaces.drifted_entry_in_request(call.server, call.name, call.arguments)?;
        let hash = interfaces.offered_definition(call.server, kind, &name)?;
        Some((of(kind, &name), hash))
    }

    /// Trusts the new definition for as long as the answer holds.
    pub(super) async fn accept_change(&self, item: &Item, scope: ApprovalScope) {
        let (Some(hash), Some(changed)) = (item.interface.as_deref(), &item.changed) else { return };
        if scope == ApprovalScope::Once {
            return;
        }
        let session = &self.0.session;
        let server = ServerId(item.server.clone());
        let (entry, for_good) = ((changed.kind, changed.name.as_str()), scope == ApprovalScope::Always);
        // First the pin that the person could look at, then the session.
        let kept = session.interfaces.confirm(&session.pins, &server, (entry, hash), for_good).await;
        let kept = kept.and_then(|()| match session.interfaces.accept(&server, entry, hash) {
            true => Ok(()),
            false => Err("the server changed it again".to_owned()),
        });
        if let Err(why) = kept {
            session.record.note(&format!(
                "the approved definition of '{}' is not the pinned one: {why}; see `agentsh mcp pins diff --server {}`",
                item.name, server.0
            ));
        }
    }
}
