//! Questions about a tool that is not what was trusted. A yes that lasts is a yes to its new definition, whatever the
//! arguments of the next call are.

use crate::guard::{Decision, Outcome, Reason};
use crate::store::words::ApprovalScope;
use crate::types::ServerId;

use super::{Approvals, Item};

/// Whether the change of the tool is all that a person is asked about: with another question beside it, a yes is about
/// this call alone.
pub(super) fn asks_nothing_else(decision: &Decision) -> bool {
    let asking = |outcome: Outcome| outcome == Outcome::Ask;
    decision.deciding().is_some_and(|found| asking(found.verdict.outcome))
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
    /// Trusts the new definition for as long as the answer holds.
    pub(super) async fn accept_change(&self, item: &Item, scope: ApprovalScope) {
        let Some(hash) = item.interface.as_deref().filter(|_| item.is_change) else { return };
        if scope == ApprovalScope::Once {
            return;
        }
        let session = &self.0.session;
        let server = ServerId(item.server.clone());
        let for_good = scope == ApprovalScope::Always;
        // What the person could look at stands in the store: first that, then the session.
        let kept = session.interfaces.confirm(&session.pins, &server, (&item.name, hash), for_good).await;
        let kept = kept.and_then(|()| match session.interfaces.accept(&server, &item.name, hash) {
            true => Ok(()),
            false => Err("the server has changed it again since".to_owned()),
        });
        if let Err(why) = kept {
            session.note(&format!(
                "the definition of '{}' that was approved is not the pin: {why}; see `agentsh mcp pins diff --server {}`",
                item.name, server.0
            ));
        }
    }
}
