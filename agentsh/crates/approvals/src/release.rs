//! Questions about what is hidden from the agent because it differs from its pin. No call waits: an approval shows it,
//! and the client is told to list again.

use std::rc::Rc;

use super::{Approvals, ChangedEntry, Item, Key, changes};
use agentsh_content::interface_pins::WithheldEntry;

impl Approvals {
    /// From now on a person is asked about it, where one can be. Must be called once.
    pub fn ask_about_changes(&self) {
        let elsewhere = self.downgrade();
        self.0.session.interfaces.ask_by(Rc::new(move |withheld: WithheldEntry| {
            let approvals = elsewhere.upgrade().filter(Approvals::can_ask)?;
            Some(agentsh_base::task::spawn_local(approvals.release(withheld)).abort_handle())
        }));
    }

    async fn release(self, withheld: WithheldEntry) {
        self.ask_about(&withheld).await;
        self.0.session.interfaces.end_question(&withheld);
    }

    async fn ask_about(&self, withheld: &WithheldEntry) {
        let WithheldEntry { server, kind, name, hash, what, rule, is_hidden } = withheld;
        let key = Key::Release { server: server.clone(), kind: *kind, name: name.clone() };
        let patience = self.0.session.facts.policy.mcp.approvals.wait();
        let until = if *is_hidden { "; hidden from the agent until you answer" } else { "" };
        let why = changes::with_hint(&format!("{what}{until}"), server);
        let about = (server.0.as_str(), called(kind.as_str(), name));
        // The answer is applied when it arrives; no call waits for it.
        let asked = self.ask_person(key, rule.clone(), patience, |id| Item {
            interface: Some(hash.clone()),
            is_change: true,
            changed: Some(ChangedEntry { kind: *kind, name: name.clone(), is_withheld: true }),
            ..Item::new(id, &self.0.session, about, (rule, why), patience)
        });
        let _ = asked.await;
    }
}

/// A tool is called by its name, all else by kind and name.
fn called(kind: &str, name: &str) -> String {
    match kind {
        "tool" => name.to_owned(),
        _ => format!("{kind} {name}").trim_end().to_owned(),
    }
}
