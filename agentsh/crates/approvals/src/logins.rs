//! Questions about further rights at a server. An approval starts the login, and a login made anywhere is an approval.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use agentsh_base::types::{RuleRef, ServerId};
use agentsh_store::words::{ApprovalScope, ApprovalWord};

use super::{Approvals, Item, Key, Waiting};

#[derive(Clone, Debug)]
pub struct FurtherRights {
    pub server: ServerId,
    /// The names of the rights, as one text.
    pub scopes: String,
    pub why: String,
    /// The command that gets them as well.
    pub command: String,
}

impl Approvals {
    /// Waits for a login with these scopes: `logged_in` completes when there is one, `log_in` makes one after an approval.
    ///
    /// # Errors
    /// Why there is no login: one word, or the login's message.
    pub async fn further_rights(
        &self,
        wanted: &FurtherRights,
        logged_in: impl Future<Output = ()>,
        log_in: impl AsyncFnOnce(Duration) -> Result<(), String>,
    ) -> Result<(), String> {
        let key = Key::Login { server: wanted.server.clone(), scopes: wanted.scopes.clone() };
        if self.0.state.borrow().denied.contains(&key) {
            return Err("approval-denied".to_owned());
        }
        let patience = self.0.session.facts.policy.mcp.approvals.wait();
        let (item, heard) = self
            .put(|id| self.rights_item(id, wanted, patience))
            .ok_or_else(|| "nobody-to-ask".to_owned())?;
        self.record_request(&item, &RuleRef::default_rule("login"));
        let mut waiting = Waiting { approvals: self, item: &item, since: Instant::now(), is_over: false };
        let until = tokio::time::Instant::now() + patience;
        let mut logged_in = pin!(logged_in);
        let answer = tokio::select! {
            biased;
            () = &mut logged_in => Some((true, ApprovalScope::Once, "a login".to_owned(), true)),
            answer = tokio::time::timeout_at(until, heard) => {
                answer.ok().and_then(Result::ok).map(|(is_yes, scope, by)| (is_yes, scope, by, false))
            }
        };
        waiting.is_over = true;
        let since = waiting.since;
        drop(waiting);
        self.0.state.borrow_mut().open.remove(&item.id);
        let Some((is_yes, scope, by, is_done)) = answer else {
            self.record_decision(&item, ApprovalWord::TimedOut, None, "", since);
            return Err("approval-timed-out".to_owned());
        };
        let word = if is_yes { ApprovalWord::Approved } else { ApprovalWord::Denied };
        self.record_decision(&item, word, is_yes.then_some(scope), &by, since);
        if !is_yes {
            self.0.state.borrow_mut().denied.insert(key);
            return Err("approval-denied".to_owned());
        }
        if is_done {
            return Ok(());
        }
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        tokio::select! {
            () = &mut logged_in => Ok(()),
            done = log_in(left) => done,
        }
    }

    fn rights_item(&self, id: String, wanted: &FurtherRights, patience: Duration) -> Item {
        let about = (wanted.server.0.as_str(), format!("login {}", wanted.scopes).trim_end().to_owned());
        let rule = RuleRef::default_rule("login");
        Item {
            login: Some(wanted.command.clone()),
            ..Item::new(id, &self.0.session, about, (&rule, wanted.why.clone()), patience)
        }
    }
}
