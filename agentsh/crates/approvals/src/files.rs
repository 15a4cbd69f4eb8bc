//! Questions about guarded files: the agent has written a new version, and a person sees the difference.

use agentsh_base::types::RuleRef;
use agentsh_guard::{Outcome, Reason};

use super::{Approvals, Item, Key};

/// A new version of a guarded file. An answer applies only to these bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The path for people.
    pub path: String,
    /// The difference in lines, redacted and escaped.
    pub difference: String,
    /// A hash of the old and the new content.
    pub hash: String,
    /// `sha256:` of the new content.
    pub content: String,
    pub rule: RuleRef,
    /// The effect of the file.
    pub why: String,
}

impl Approvals {
    /// Waits for a person.
    ///
    /// # Errors
    /// Why the change is denied.
    pub async fn file(&self, change: &FileChange) -> Result<(), Reason> {
        let key = Key::File { path: change.path.clone(), hash: change.hash.clone() };
        let session = &self.0.session;
        let wait = session.facts.policy.mcp.approvals.wait();
        let asked = self.ask_person(key, change.rule.clone(), wait, |id| Item {
            path: Some(change.path.clone()),
            arguments: change.difference.clone(),
            arguments_hash: change.content.clone(),
            ..Item::new(id, session, ("agent", change.path.clone()), (&change.rule, change.why.clone()), wait)
        });
        let verdict = asked.await.ok_or(Reason::NobodyToAsk)?;
        if verdict.outcome == Outcome::Allow { Ok(()) } else { Err(verdict.reason) }
    }
}
