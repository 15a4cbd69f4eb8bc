//! Questions about what is kept from the agent because it is not what was trusted. No call waits for the answer: a yes shows it,
//! and whoever listed is told to list again.

use std::rc::Rc;

use agentsh_store::Event;

use super::{Approvals, Changed, Item, Key, changes};
use agentsh_content::content::since_1970;
use agentsh_content::interface_pins::Withheld;

impl Approvals {
    /// From now on a person is asked about it, where one can be. Must be called once.
    pub fn ask_about_changes(&self) {
        let elsewhere = self.elsewhere();
        self.0.session.interfaces.ask_by(Rc::new(move |withheld: Withheld| {
            let approvals = elsewhere.there().filter(Approvals::can_ask)?;
            Some(tokio::task::spawn_local(approvals.release(withheld)).abort_handle())
        }));
    }

    async fn release(self, withheld: Withheld) {
        self.ask_about(&withheld).await;
        self.0.session.interfaces.asked(&withheld);
    }

    async fn ask_about(&self, withheld: &Withheld) {
        let Withheld { server, kind, name, hash, what, rule, is_hidden } = withheld;
        let key = Key::Release { server: server.clone(), kind: *kind, name: name.clone() };
        if self.known(&key).is_some() {
            return;
        }
        let patience = self.0.session.facts.policy.mcp.approvals.wait();
        let now = since_1970();
        let until = if *is_hidden { "; hidden from the agent until you answer" } else { "" };
        let why = changes::with_hint(&format!("{what}{until}"), server);
        let put = self.put(|id| Item {
            id,
            session: self.0.session.facts.id.to_string(),
            server: server.0.clone(),
            name: called(kind.as_str(), name),
            arguments: String::new(),
            arguments_hash: String::new(),
            interface: Some(hash.clone()),
            from: None,
            is_copy: false,
            host: None,
            login: None,
            is_change: true,
            changed: Some(Changed { kind: *kind, name: name.clone(), is_withheld: true }),
            rule: rule.to_string(),
            why,
            asked_at: now.as_secs(),
            expires_at: (now + patience).as_secs(),
        });
        let Some((item, heard)) = put else { return };
        self.0.session.record.journal.record(Event::ApprovalRequested {
            approval: item.id.clone(),
            server_id: server.clone(),
            name: item.name.clone(),
            arguments_hash: String::new(),
            interface: item.interface.clone(),
            rule: rule.clone(),
            why: item.why.clone(),
        });
        // What it says is done by then, and nobody waits for it.
        let _ = self.clone().wait(key, item, heard, (rule.clone(), patience)).await;
    }
}

/// A tool has its name; everything else says what it is.
fn called(kind: &str, name: &str) -> String {
    match kind {
        "tool" => name.to_owned(),
        _ => format!("{kind} {name}").trim_end().to_owned(),
    }
}
