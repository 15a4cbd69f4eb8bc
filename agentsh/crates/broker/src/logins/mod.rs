//! Logins to servers behind a URL: where tokens are stored, what is sent, and how a login begins and ends. No sandbox
//! sees the state directory, so none sees a token.

pub mod flow;
mod keyring;
mod store;
mod stored_login;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use agentsh_base::types::ServerId;
use agentsh_egress::Client;
use agentsh_egress::resolve::Resolver;
use agentsh_login::Clients;
use agentsh_store::{Event, escape, words::LoginWord};

use agentsh_approvals::{Approvals, WeakApprovals, notice};
use agentsh_host::outgoing::{self, is_here, rules};
use agentsh_host::{Facts, Record};

pub use store::Store;
pub use stored_login::StoredLogin;

/// Different questions of a session. What they say is the servers' choice.
const MAX_REPORTED: usize = 256;

/// A session, as far as logins need it.
#[derive(Clone)]
pub struct LoginSession {
    pub facts: Rc<Facts>,
    pub record: Rc<Record>,
    pub logins: Rc<Logins>,
}

/// The messages to the user in this session, each of them once.
#[derive(Debug, Default)]
pub struct Logins {
    told: RefCell<BTreeSet<String>>,
    /// Puts questions to a person, and waits for the answers.
    approvals: OnceCell<WeakApprovals>,
}

impl Logins {
    /// From now on a call that needs further rights waits for them, where a person can be asked.
    pub fn ask_by(&self, approvals: &Approvals) {
        // A session has one queue of questions.
        let _ = self.approvals.set(approvals.downgrade());
    }

    /// None: no person can be asked.
    fn approvals(&self) -> Option<Approvals> {
        self.approvals.get()?.upgrade().filter(Approvals::can_ask)
    }

    /// Asks the user, once for each question, even while another program draws on the terminal. False: this was asked before.
    fn ask(session: &LoginSession, what: &str, how: &str) -> bool {
        let is_new = session.logins.is_new(format!("{what} {how}"));
        if is_new {
            notice(&session.facts, &session.record, &escape::line(what), how);
        }
        is_new
    }

    /// True the first time. A server that names another one each time is ignored after a limit.
    fn is_new(&self, what: String) -> bool {
        let mut told = self.told.borrow_mut();
        told.len() < MAX_REPORTED && told.insert(what)
    }
}

pub fn record(
    record: &Record,
    id: &ServerId,
    url: &str,
    what: LoginWord,
    (issuer, detail): (Option<&str>, String),
) {
    record.journal.record(Event::ServerLogin {
        server_id: id.clone(),
        url: url.to_owned(),
        issuer: issuer.map(str::to_owned),
        what,
        detail,
    });
}

/// Clients for all requests of a login to this server. The authorization server may be where the server itself may: on this
/// machine only if the server is, in a private network only if the rules of the server name it.
///
/// # Errors
/// When this machine cannot resolve names, or the policy's proxy is invalid.
pub fn clients(
    session: &LoginSession,
    id: &ServerId,
    server: &str,
    from_user: bool,
) -> Result<Clients, String> {
    let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
    let proxy = outgoing::proxy(&session.facts, &session.record, &session.facts.policy.agent.network)?;
    let here = from_user && url::Url::parse(server).is_ok_and(|url| is_here(&url));
    let (session, id) = (session.clone(), id.clone());
    Ok(Rc::new(move |url: &str| {
        let rules = rules(&session.facts, &id, url, here);
        Ok(Client::new(lookup.clone(), rules).with_proxy(proxy.clone()))
    }))
}

/// One word of a shell's command line.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_scopes_are_reported_once_and_bounded() {
        let logins = Logins::default();
        assert!(logins.is_new("0".to_owned()) && !logins.is_new("0".to_owned()));
        let told = (0..MAX_REPORTED * 2).filter(|scope| logins.is_new(scope.to_string())).count();
        assert_eq!(told, MAX_REPORTED - 1);
        assert_eq!(logins.told.borrow().len(), MAX_REPORTED);
    }
}
